//! The driver library and the program that asks the real driver, built wherever the command was run.

use std::path::Path;

use miette::IntoDiagnostic;

use super::Stopped;
use crate::driver::{self, DriverError, DriverLibrary};

/// Our driver library, and the folder that holds it where that goes when it is dropped.
pub(super) struct Built {
    pub(super) library: DriverLibrary,
    _folder: Option<tempfile::TempDir>,
}

/// Builds it in a target folder or, where there is none, in a folder of its own.
pub(super) fn built(target_folder: Option<&Path>) -> Result<Built, Stopped> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let build =
        |folder: &Path| -> Result<DriverLibrary, DriverError> { driver::build(Path::new(&rustc), None, folder) };
    Ok(match target_folder {
        Some(folder) => Built {
            library: build(folder)?,
            _folder: None,
        },
        None => {
            let folder = tempfile::tempdir().into_diagnostic()?;
            Built {
                library: build(folder.path())?,
                _folder: Some(folder),
            }
        }
    })
}
