//! The driver library and the program that asks the real driver: built wherever the command was run, or out of an archive.

use std::path::{Path, PathBuf};

use miette::IntoDiagnostic;

use super::Stopped;
use super::source::Source;
use crate::driver::{self, DriverError, DriverLibrary};

/// Our driver library, and the folder that holds it where that goes when it is dropped.
pub(super) struct Built {
    pub(super) library: DriverLibrary,
    _folder: Option<tempfile::TempDir>,
}

/// The compiler that Cargo would take.
pub(super) fn rustc() -> PathBuf {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into()
}

/// The library of an archive, for as long as the archive is held. Else it is built for this machine: in the workspace's target
/// folder or, where there is no workspace, in a folder of its own.
pub(super) fn built(source: Option<&Source>) -> Result<Built, Stopped> {
    let build = |folder: &Path| -> Result<DriverLibrary, DriverError> { driver::build(&rustc(), None, folder) };
    let (library, folder) = match source {
        Some(Source::Archive(brought)) => (brought.driver().clone(), None),
        Some(Source::Workspace(here)) => (build(here.workspace().target_directory().as_std_path())?, None),
        None => {
            let folder = tempfile::tempdir().into_diagnostic()?;
            (build(folder.path())?, Some(folder))
        }
    };
    Ok(Built {
        library,
        _folder: folder,
    })
}
