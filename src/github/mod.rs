//! GitHub's REST API, as far as one comment on one pull request needs it: which pull request (`event.rs`, `pulls.rs`), which
//! comment (`marker.rs`), how requests are sent (`client.rs`), and what is done with them (`comments.rs`).

mod client;
mod comments;
mod error;
mod event;
mod marker;
mod pulls;

pub use client::{Client, Token};
pub use comments::{App, Place, Posted, post};
pub use error::GithubError;
pub use event::{Environment, Event, Head, Repository, Where};
pub use marker::Label;
pub use pulls::find;
