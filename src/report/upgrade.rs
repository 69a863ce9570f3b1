//! Whether Burn was upgraded between two runs that are compared.

use cargo_metadata::semver::Version;

/// Whether these are two minor versions of Burn, such as 0.21.0 and 0.22.1. Each minor version has its own allocator
/// and kernels, so a difference in memory says nothing about the model. Patch versions share them.
pub(crate) fn is_upgrade(before: &str, after: &str) -> bool {
    let minor = |version: &str| {
        Version::parse(version)
            .ok()
            .map(|version| (version.major, version.minor))
    };
    match (minor(before), minor(after)) {
        (Some(before), Some(after)) => before != after,
        // An unreadable version is not a reason to judge less.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_upgrade;

    #[test]
    fn another_minor_version_is_an_upgrade_and_a_patch_is_none() {
        assert!(is_upgrade("0.21.0", "0.22.1") && is_upgrade("0.22.1", "0.21.0") && is_upgrade("0.22.1", "1.22.1"));
        assert!(!is_upgrade("0.22.0", "0.22.1") && !is_upgrade("0.22.1", "0.22.1"));
        assert!(!is_upgrade("0.22.1", "unknown") && !is_upgrade("unknown", "0.22.1"));
    }
}
