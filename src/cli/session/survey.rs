//! Builds the driver library and the survey program, which queries the real driver, or takes them from an archive.

use std::path::Path;

use crate::cli::error::CliError;
use crate::cli::session::driver_build::DriverBuild;
use crate::cli::session::error::file_error;
use crate::cli::session::source::ModelSource;
use crate::cli::temporary::TemporaryFolder;
use crate::driver::DriverLibrary;

/// The driver library, with its folder if that is temporary and removed on drop.
pub(in crate::cli) struct DriverForSurvey {
    pub(in crate::cli) library: DriverLibrary,
    _folder: Option<TemporaryFolder>,
}

/// Takes the library from an archive, which must outlive it, or builds it for this machine.
///
/// The build goes to the workspace's target folder, or to a temporary folder if there is no workspace.
pub(in crate::cli) fn built(source: Option<&ModelSource>) -> Result<DriverForSurvey, CliError> {
    let build = |folder: &Path| DriverBuild::start(None, folder).wait();
    let (library, folder) = match source {
        Some(ModelSource::Archive(brought)) => (brought.driver().clone(), None),
        Some(ModelSource::Workspace(here)) => (build(here.workspace().target_directory().as_std_path())?, None),
        None => {
            let folder = TemporaryFolder::new().map_err(file_error(&crate::folders::temporary()))?;
            (build(folder.path())?, Some(folder))
        }
    };
    Ok(DriverForSurvey {
        library,
        _folder: folder,
    })
}
