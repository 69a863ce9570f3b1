//! [`DriverBuild`]: builds the virtual driver while the command does something else.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use crate::cli::terminal;
use crate::driver::{self, DriverError, DriverLibrary};
use crate::workspace;

/// A thread that opens the driver in a target folder, or builds it.
pub(super) struct DriverBuild {
    thread: JoinHandle<Result<DriverLibrary, DriverError>>,
    folder: PathBuf,
}

impl DriverBuild {
    /// Starts the thread; `target` is a target triple, or `None` for the host.
    pub(super) fn start(target: Option<String>, folder: &Path) -> Self {
        let folder = folder.to_owned();
        let target_dir = folder.clone();
        let build = move || driver::build(&workspace::rustc(), target.as_deref(), &target_dir);
        Self {
            thread: std::thread::spawn(build),
            folder,
        }
    }

    /// Waits for the driver.
    pub(super) fn wait(self) -> Result<DriverLibrary, DriverError> {
        let folder = self.folder.join("vram/driver");
        let doing = format!(
            "waiting for the virtual driver, which this or another command builds in {}",
            folder.display()
        );
        terminal::wait_for(self.thread, &doing)
    }
}
