//! A copy of the driver that poses as a real one. The driver under test forwards its calls to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Once;
use crate::driver_support;

/// The environment variable with the path of the posing driver's configuration file.
pub(crate) const POSING_VARIABLE: &str = "CARGO_VRAM_POSING_CONFIG";

/// The folder of the posing driver, which has the names of the real libraries.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: Once<PathBuf> = Once::new("posing", |_| {
        let folder = driver_support::target_dir().join("vram/posing");
        std::fs::create_dir_all(&folder).expect("a folder");
        let source = driver_support::root().join("src/driver/source/lib.rs");
        let options = ["--cfg", "posing", "-C", "link-arg=-Wl,-Bsymbolic"];
        compile(&source, &options, &folder.join("libcuda.so.1"));
        std::fs::copy(folder.join("libcuda.so.1"), folder.join(".nvrtc")).expect("a copy");
        std::fs::rename(folder.join(".nvrtc"), folder.join("libnvrtc.so.13")).expect("a name");
        folder
    });
    FOLDER.get()
}

/// Compiles a library, and replaces the old file at once, because other processes may use or compile it at the same
/// time.
pub(crate) fn compile(source: &Path, options: &[&str], library: &Path) {
    let scratch = library.with_extension(std::process::id().to_string());
    let output = Command::new(driver_support::rustc())
        .args(["--crate-type", "cdylib", "--edition", "2024", "-C", "panic=abort"])
        .args(["--crate-name", "posing", "--check-cfg", "cfg(posing)"])
        .args(options)
        .arg("-o")
        .arg(&scratch)
        .arg(source)
        .output()
        .expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(scratch, library).expect("a name");
}
