//! Compiles the driver, once per source, toolchain and target.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

use super::{DriverError, DriverLibrary, LIBRARY, NO_FUNCTIONS, SOURCES, SURVEY, SURVEY_SOURCES, fingerprint, hex};
use crate::folders;

/// The number of hexadecimal digits of a hash in a folder's name.
const SHORT: usize = 16;

/// Returns the driver for a target, or for the host if `target` is `None`; compiles it if necessary.
///
/// The driver is in its own folder in `target_dir`. Several processes can call this at once: a lock on a file makes
/// sure that only one compiles.
///
/// # Errors
/// If `rustc` does not run, models do not run on the target, the source does not compile, or a file cannot be written.
pub fn build(rustc: &Path, target: Option<&str>, target_dir: &Path) -> Result<DriverLibrary, DriverError> {
    let toolchain = toolchain(rustc)?;
    let host = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or_default();
    let target_name = target.unwrap_or(host);
    if !is_supported(target_name) {
        return Err(DriverError::UnsupportedHost {
            target: target_name.to_owned(),
        });
    }
    let parent = target_dir.join("vram/driver");
    let key = key(&toolchain, target_name);
    let folder = parent.join(&key);
    if let Some(library) = DriverLibrary::open(&folder) {
        return Ok(library);
    }
    fs::create_dir_all(&parent).map_err(io("create", &parent))?;
    let lock = parent.join("lock");
    let file = File::create(&lock).map_err(io("create", &lock))?;
    file.lock().map_err(io("lock", &lock))?;
    // Another process may have built the driver while this process waited for the lock.
    if let Some(library) = DriverLibrary::open(&folder) {
        return Ok(library);
    }
    // The folder gets its final name last. So a build that is killed leaves nothing that looks like a driver.
    // See docs/design/driver.md.
    // Each build has a folder of its own: if a command ends during a build, its compiler may go on writing for a while.
    remove_unfinished(&parent)?;
    let scratch = parent.join(format!(".{key}-{}", std::process::id()));
    // `open` found it incomplete, and `rename` cannot replace a folder that has files.
    remove(&folder)?;
    compile(rustc, target, &scratch)?;
    fs::rename(scratch.join("lib"), &folder).map_err(io("create", &folder))?;
    remove(&scratch)?;
    DriverLibrary::open(&folder).ok_or_else(|| DriverError::Io {
        action: "find",
        path: folder,
        source: Error::from(ErrorKind::NotFound),
    })
}

/// Removes the folders of builds that did not finish.
fn remove_unfinished(parent: &Path) -> Result<(), DriverError> {
    let entries = fs::read_dir(parent).map_err(io("read", parent))?.flatten();
    let unfinished = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    unfinished
        .map(|entry| entry.path())
        .try_for_each(|folder| remove(&folder))
}

/// The output of `rustc -vV`.
fn toolchain(rustc: &Path) -> Result<String, DriverError> {
    let failed = |source| DriverError::Rustc {
        rustc: rustc.to_owned(),
        source,
    };
    let output = Command::new(rustc).arg("-vV").output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(Error::other(said)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_supported(target: &str) -> bool {
    // The trampoline is assembly for these two, and the
    // library replaces functions of glibc. musl is not enough.
    ["x86_64-", "aarch64-"].iter().any(|arch| target.starts_with(arch)) && target.ends_with("-linux-gnu")
}

/// The folder's name: a hash of everything that changes the compiled files.
fn key(toolchain: &str, target: &str) -> String {
    let mut hash = Sha256::new();
    // `fingerprint` leaves the survey program out, because no
    // value depends on it. It must be compiled again, too.
    let survey: String = SURVEY_SOURCES.iter().map(|(_, text)| *text).collect();
    for part in [&fingerprint(), &survey, env!("CARGO_PKG_VERSION"), toolchain, target] {
        hash.update(part);
        // Without a separator, text could move from one part to the next, and the hash would stay the same.
        hash.update([0]);
    }
    hash.update(NO_FUNCTIONS);
    let mut key = hex(&hash.finalize());
    key.truncate(SHORT);
    key
}

fn compile(rustc: &Path, target: Option<&str>, scratch: &Path) -> Result<(), DriverError> {
    let (source, lib) = (scratch.join("source"), scratch.join("lib"));
    for folder in [&source, &lib] {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    for (name, text) in SOURCES.iter().chain(SURVEY_SOURCES) {
        let path = source.join(name);
        fs::write(&path, text).map_err(io("write", &path))?;
    }
    // A process can load two copies of this library. Without this option, a symbol of one could bind to the other copy.
    let symbolic = ["-C", "link-arg=-Wl,-Bsymbolic"];
    for (kind, name, options, root, file) in [
        ("cdylib", "cargo_vram_driver", &symbolic[..], "lib.rs", LIBRARY),
        ("bin", "vram_survey", &[], "survey.rs", SURVEY),
    ] {
        let mut command = Command::new(rustc);
        command
            .args(["--crate-type", kind, "--crate-name", name])
            .args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "strip=debuginfo"])
            .args(options)
            // A newer compiler may have more lints. The user cannot act on their warnings.
            .args(["--cap-lints", "allow"])
            .arg("-o")
            .arg(lib.join(file))
            .arg(source.join(root));
        run(rustc, &mut command, target)?;
    }
    DriverLibrary::link(&lib).map_err(io("make links in", &lib))
}

/// Runs the compiler for a target, with the linker that Cargo would use for it.
fn run(rustc: &Path, command: &mut Command, target: Option<&str>) -> Result<(), DriverError> {
    if let Some(target) = target {
        command.args(["--target", target]);
        // rustc itself does not read Cargo's variables. Without this, it would call the linker of the host.
        let variable = target.to_uppercase().replace('-', "_");
        if let Some(linker) = std::env::var_os(format!("CARGO_TARGET_{variable}_LINKER")) {
            let mut option = OsString::from("linker=");
            option.push(linker);
            command.arg("-C").arg(option);
        }
    }
    let output = command.output().map_err(|source| DriverError::Rustc {
        rustc: rustc.to_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(DriverError::Compile { stderr })
}

fn remove(folder: &Path) -> Result<(), DriverError> {
    folders::remove(folder).map_err(io("remove", folder))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(Error) -> DriverError + use<> {
    let path = path.to_owned();
    move |source| DriverError::Io { action, path, source }
}
