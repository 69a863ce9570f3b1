//! Refuses programs that were built from another checkout.
//!
//! Cargo takes packages at the same place in two workspaces for one package. If both workspaces share a target folder,
//! `cargo build` in one of them can find the program of the other one up to date. Its values would be those of other
//! sources. A program of `models!` depends on its folder, so Cargo builds it again. What remains is that another command
//! builds between the build and the run of this one. See docs/design/builds.md.

use std::path::{Path, PathBuf};

use crate::names::quoted;
use crate::protocol::ProbeEvent;
use crate::workspace::Built;

/// Returns a message and the help if the program was built from the folder of another package than the expected one.
pub(super) fn other(built: &Built, events: &[ProbeEvent]) -> Option<(String, String)> {
    let folder = events.iter().find_map(|event| match event {
        ProbeEvent::Hello { folder, .. } => Some(folder),
        _ => None,
    })?;
    let target = &built.target;
    let is_same = real(folder.as_ref()) == real(target.folder.as_std_path());
    if is_same || !built.is_local {
        return None;
    }
    let message = format!(
        "the program of {} in the target folder was built from {}, and not from {}",
        target.package,
        quoted(folder),
        quoted(target.folder.as_str())
    );
    let help = format!(
        "another checkout uses the same target folder, and Cargo takes both packages for one: give each checkout its own \
         target folder (CARGO_TARGET_DIR); if this project was moved, run `cargo clean -p {}`",
        target.package
    );
    Some((message, help))
}

/// Resolves links; a folder that no longer exists stays as it is written.
fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{DeclaredTarget, KernelCompiler};

    fn refusal(from: &str, is_local: bool) -> Option<(String, String)> {
        let built = Built {
            target: DeclaredTarget {
                package: "p".into(),
                package_id: "p".to_owned(),
                folder: "/work/here/p".into(),
                name: "vram".into(),
                option: "--bench",
                burn: "0.21.0".into(),
            },
            executable: "/target/vram".into(),
            is_local,
            kernel_code: None,
            kernel_compiler: KernelCompiler::Nvrtc,
        };
        let hello = ProbeEvent::Hello {
            protocol: crate::protocol::PROTOCOL,
            version: String::new(),
            adapter: String::new(),
            features: None,
            folder: from.to_owned(),
        };
        other(&built, &[hello])
    }

    #[test]
    fn a_program_of_another_folder_is_refused_unless_it_comes_from_an_archive() {
        assert_eq!(refusal("/work/here/p", true), None);
        assert_eq!(refusal("/work/there/p", false), None);
        let (message, help) = refusal("/work/there/p", true).unwrap();
        assert_eq!(
            message,
            "the program of p in the target folder was built from `/work/there/p`, and not from `/work/here/p`"
        );
        assert!(help.contains("`cargo clean -p p`"), "{help}");
        // A program that does not say where it was built is not trusted either.
        assert!(refusal("", true).is_some());
    }
}
