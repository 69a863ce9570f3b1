//! GPU profiles.
