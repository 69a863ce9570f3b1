//! Finds out whether a benchmark can use a package: its library or modules, and its Burn.

use std::fmt::Write as _;

use camino::Utf8Path;
use cargo_metadata::semver::Version;
use cargo_metadata::{Package, Target, TargetKind};

use super::error::InitError;
use super::scan::SourceScan;
use crate::workspace::{Workspace, supported_burn, supported_by, supports_burn, update_of_prereleases};

/// Returns the library that a benchmark can link, or `None` if the package has no library.
///
/// # Errors
///
/// The package has only a library of another kind, such as a proc-macro.
pub(super) fn library(package: &Package) -> Result<Option<&Target>, InitError> {
    const RUST: [TargetKind; 3] = [TargetKind::Lib, TargetKind::RLib, TargetKind::DyLib];
    const LIBRARIES: [TargetKind; 3] = [TargetKind::CDyLib, TargetKind::StaticLib, TargetKind::ProcMacro];
    let with = |kinds: &[TargetKind]| {
        let is_of = |target: &&Target| target.kind.iter().any(|kind| kinds.contains(kind));
        package.targets.iter().find(is_of)
    };
    match (with(&RUST), with(&LIBRARIES)) {
        (Some(library), _) => Ok(Some(library)),
        (None, None) => Ok(None),
        (None, Some(other)) => Err(InitError::Unlinkable {
            package: package.name.to_string(),
            kind: other
                .kind
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Returns the lines with which the benchmark includes the modules of a program.
pub(super) fn included(scan: &SourceScan, folder: &Utf8Path) -> String {
    let from = folder.join("benches");
    let mut text = String::new();
    for (name, file) in &scan.files {
        // rustc resolves `#[path]` from the folder of the benchmark.
        // A relative path is valid on other machines, too.
        let path = pathdiff::diff_utf8_paths(file, &from).unwrap_or_else(|| file.clone());
        let _ = writeln!(
            text,
            "#[allow(dead_code, unused_imports)]\n#[path = {:?}]\nmod {name};",
            path.as_str()
        );
    }
    text + "\n"
}

/// Returns the error for a package that has only a binary. It describes two ways out, the smaller one first.
pub(super) fn binary_only(package: &Package, folder: &Utf8Path, main: &Utf8Path, scan: &SourceScan) -> InitError {
    let short = |path: &Utf8Path| path.strip_prefix(folder).unwrap_or(path).to_string();
    let main_file = short(main);
    // A benchmark can include a file by path, but not the `main.rs` of a program with its `fn main`.
    let in_main = scan.models().iter().any(|model| model.file == main);
    let files: Vec<_> = scan.files.iter().map(|(_, file)| short(file)).collect();
    let is_ready = !scan.models().is_empty() && !in_main && scan.files_stand_alone();
    let include = if is_ready {
        format!(
            "run `cargo vram init --from-binary`: the benchmark includes {} by path, and your sources do not change",
            files.join(", ")
        )
    } else {
        format!(
            "move the model from {main_file} into its own file, such as src/model.rs, that uses nothing from \
             {main_file}; then run `cargo vram init --from-binary`"
        )
    };
    let name = package.name.replace('-', "_");
    let library = format!(
        "move the model from {main_file} into src/lib.rs (`pub mod model;`), and use it from {main_file} as \
         `{name}::model`; then run `cargo vram init`"
    );
    InitError::BinaryOnly {
        package: package.name.to_string(),
        ways: format!("nothing was written; choose one of two ways\n1. small change: {include}\n2. library: {library}"),
    }
}

/// Returns the package's Burn as text and as a version: the one that Cargo resolved. If Cargo resolved none, as for an
/// optional dependency, the requirement counts.
///
/// # Errors
///
/// The package does not depend on Burn, or cargo-vram does not support its version.
pub(super) fn require_burn(
    workspace: &Workspace,
    package: &Package,
    lock: &Utf8Path,
) -> Result<(String, Version), InitError> {
    let mut declared = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.name == "burn");
    let Some(dependency) = declared.next() else {
        return Err(InitError::NoBurn(package.name.to_string()));
    };
    let required = supported_by(&dependency.req);
    let unsupported = |burn: String| InitError::UnsupportedBurn {
        package: package.name.to_string(),
        burn,
        supported: format!(
            "nothing was written; this version of cargo-vram supports Burn {}",
            supported_burn()
        ),
    };
    // A Burn that only cargo-vram brings says nothing about the project.
    let versions = workspace.versions_in_graph(package, "burn", Some(env!("CARGO_PKG_NAME")));
    let Some(version) = versions
        .iter()
        // Of several versions, an unsupported one decides: the user must hear about it.
        .find(|version| !supports_burn(version))
        .or(versions.last())
    else {
        return match required {
            Some(version) => Ok((dependency.req.to_string(), version)),
            None => Err(unsupported(dependency.req.to_string())),
        };
    };
    if supports_burn(version) {
        return Ok((version.to_string(), version.clone()));
    }
    let text = std::fs::read_to_string(lock).unwrap_or_default();
    match update_of_prereleases(&text).filter(|_| !version.pre.is_empty()) {
        // The manifest allows a supported version, so moving the lock is enough.
        Some(command) if required.is_some() => Err(InitError::LockedPrerelease {
            burn: version.to_string(),
            command: format!(
                "nothing was written; run this command, and then `cargo vram init` again\n{}",
                in_lines(&command)
            ),
        }),
        _ => Err(unsupported(version.to_string())),
    }
}

/// Breaks a long command into lines that end with a backslash. A line that the terminal wraps could not be copied.
fn in_lines(command: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = vec![String::new()];
    for option in command.split(" -p ").enumerate() {
        let word = match option {
            (0, command) => command.to_owned(),
            (_, name) => format!(" -p {name}"),
        };
        if let Some(line) = lines.last_mut()
            && line.len() + word.len() <= WIDTH
        {
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines.join(" \\\n")
}
