//! Another CUDA driver in the process: one that was opened by its path gets round this one, and what it hands out is not
//! counted.

use std::path::{Path, PathBuf};

use crate::context;
use crate::record::Line;

/// The beginning of the file name of every CUDA driver.
const DRIVER: &str = "libcuda.so";

/// Records each CUDA driver that is mapped and is neither this one nor the one that it passes calls on to.
pub(crate) fn tell_other_drivers() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    let own = own_file();
    let real = context::configured()
        .and_then(|config| config.forward.as_ref())
        .map(|forward| resolved(&forward.libcuda));
    let mut told: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = PathBuf::from(&line[at..]);
        let is_driver = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(DRIVER));
        let is_known = Some(&path) == own.as_ref() || Some(&path) == real.as_ref();
        if is_driver && !is_known && !told.contains(&path) {
            Line::new("other_driver")
                .text("path", &path.to_string_lossy())
                .write();
            told.push(path);
        }
    }
}

/// The kernel names files as they are, links followed.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The file of this library itself.
fn own_file() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut info = crate::libc::DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let own = tell_other_drivers as *const () as *const std::ffi::c_void;
    // SAFETY: the address is that of a function of this library, and `info` has room for the answer.
    let found = unsafe { crate::libc::dladdr(own, &raw mut info) };
    if found == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which lives as long as this library.
    let file = unsafe { std::ffi::CStr::from_ptr(info.file) };
    Some(resolved(Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()))))
}
