//! What another version of Burn means where two runs are compared.

use cargo_metadata::semver::Version;

/// Whether these are two minor versions of Burn, such as 0.21.0 and 0.22.1: each has an allocator and kernels of its own, so that memory
/// that differs says nothing of the model. Patches have not.
pub(crate) fn is_upgrade(before: &str, after: &str) -> bool {
    let minor = |version: &str| {
        Version::parse(version)
            .ok()
            .map(|version| (version.major, version.minor))
    };
    match (minor(before), minor(after)) {
        (Some(before), Some(after)) => before != after,
        // What is no version is no reason to judge less.
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
