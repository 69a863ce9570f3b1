//! The CUDA driver library: a virtual driver, or a layer in front of a real driver.
//!
//! The source in `source/` is not part of this crate. The user's own `rustc` compiles it to a shared library, without
//! Cargo and without dependencies, once per source, toolchain and target.

mod build;
// The driver uses the same table of CUDA's result codes.
#[path = "source/codes.rs"]
mod codes;
mod error;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use build::build;
pub use error::DriverError;

/// The environment variable with the path of the driver's configuration file; without it, the driver has no device.
pub const CONFIG_VARIABLE: &str = "CARGO_VRAM_DRIVER_CONFIG";

/// The file name of the library; the links in [`LINKS`] point to it.
pub(crate) const LIBRARY: &str = "libcargo_vram_driver.so";

/// The file name of the program that asks CUDA for its versions and its GPUs.
pub(crate) const SURVEY: &str = "vram-survey";

/// The compiled files in the driver's folder; [`DriverLibrary::link`] makes the rest.
pub(crate) const FILES: [&str; 2] = [LIBRARY, SURVEY];

/// The file names by which programs load the CUDA driver and NVRTC.
const LINKS: [&str; 6] = [
    "libcuda.so",
    "libcuda.so.1",
    "libnvrtc.so",
    "libnvrtc.so.11",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
];

/// The subfolder with the names of NCCL, for virtual GPUs only.
///
/// On a real GPU it is not on the library path, so that a program finds the real NCCL.
const VIRTUAL: &str = "virtual";
/// The file names by which programs load NCCL.
const NCCL_LINKS: [&str; 2] = ["libnccl.so", "libnccl.so.2"];

/// The path of CUDA's math functions in a toolkit; the kernel compiler of Burn 0.22 links them.
pub(crate) const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
/// The content of [`LIBDEVICE`] for a virtual GPU: LLVM bitcode of a module without functions.
///
/// A kernel that calls a math function keeps the unresolved call. This is harmless because no kernel runs on a virtual
/// GPU. The bitcode was made from the one line `target triple = "nvptx64-nvidia-cuda"` with `llvm-as` of LLVM 22.
const NO_FUNCTIONS: &[u8] = include_bytes!("libdevice.bc");

macro_rules! sources {
    ($($file:literal)*) => { &[$(($file, include_str!(concat!("source/", $file)))),*] };
}

/// Every source file of the library; `lib.rs` is the root.
const SOURCES: &[(&str, &str)] = sources! {
    "abi.rs" "call.rs" "clock.rs" "codes.rs" "config.rs" "contents.rs" "context.rs" "copy.rs" "device.rs"
    "error.rs" "event.rs" "forward.rs" "forward_memory.rs" "handles.rs" "hash_keys.rs" "inject.rs" "launch.rs"
    "lib.rs" "libc.rs" "maps.rs" "memory.rs" "module.rs" "nccl.rs" "nvrtc.rs" "pinned.rs" "pool.rs" "posing.rs"
    "proc_address.rs" "ptx.rs" "real.rs" "record.rs" "source_scan.rs" "stream.rs" "stubs.rs"
    "tensor_map.rs" "trampoline.rs" "unwinding.rs"
};

/// Every source file of the survey program; `survey.rs` is the root.
///
/// The program does not influence any value of a run, so [`fingerprint`] leaves it out.
const SURVEY_SOURCES: &[(&str, &str)] = sources! { "survey.rs" "survey_library.rs" "survey_proof.rs" };

/// The compiled driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverLibrary {
    /// The folder with the library's links, to put on a process's `LD_LIBRARY_PATH` before the folders of a real
    /// driver.
    pub folder: PathBuf,
    /// The library; to give a process the virtual clock, add it to `LD_PRELOAD`.
    pub library: PathBuf,
    /// The program that asks a real driver for its GPUs. It runs in its own process, apart from the models.
    pub survey: PathBuf,
}

impl DriverLibrary {
    /// Opens the driver in a folder that [`build`] made here or on another machine; `None` if a file is missing.
    #[must_use]
    pub fn open(folder: &Path) -> Option<Self> {
        let library = folder.join(LIBRARY);
        let survey = folder.join(SURVEY);
        let nccl = NCCL_LINKS.map(|link| folder.join(VIRTUAL).join(link));
        let links = LINKS.map(|link| folder.join(link)).into_iter().chain(nccl);
        let mut files = [library.clone(), survey.clone(), folder.join(LIBDEVICE)]
            .into_iter()
            .chain(links);
        // `is_file` follows links, so a link without its library counts as missing.
        let complete = files.all(|file| file.is_file());
        complete.then(|| Self {
            folder: folder.to_owned(),
            library,
            survey,
        })
    }

    /// Completes a folder that has the library: links the names of CUDA's libraries to it, and writes the library
    /// of math functions that programs look for in a CUDA toolkit.
    ///
    /// # Errors
    /// If a link or folder cannot be made or the file cannot be written.
    pub fn link(folder: &Path) -> std::io::Result<()> {
        let libdevice = folder.join(LIBDEVICE);
        std::fs::create_dir_all(libdevice.with_file_name(""))?;
        std::fs::write(&libdevice, NO_FUNCTIONS)?;
        // Relative links: `build` renames the folder afterwards, and an archive is unpacked anywhere.
        LINKS.iter().try_for_each(|link| link_to(LIBRARY, &folder.join(link)))?;
        let nccl = folder.join(VIRTUAL);
        std::fs::create_dir_all(&nccl)?;
        let library = format!("../{LIBRARY}");
        NCCL_LINKS
            .iter()
            .try_for_each(|link| link_to(&library, &nccl.join(link)))
    }

    /// The folder to put before [`folder`](Self::folder) on `LD_LIBRARY_PATH` for virtual GPUs: its NCCL connects
    /// several of them.
    #[must_use]
    pub fn connected(&self) -> PathBuf {
        self.folder.join(VIRTUAL)
    }
}

#[cfg(unix)]
fn link_to(file: &str, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(file, link)
}

#[cfg(not(unix))]
fn link_to(_file: &str, _link: &Path) -> std::io::Result<()> {
    // Models do not run on such a machine, but it can be the host of a cross compilation.
    Err(std::io::ErrorKind::Unsupported.into())
}

/// A hash of the driver's source, in lower-case hexadecimal. Values that two different drivers gave are not compared.
#[must_use]
pub fn fingerprint() -> String {
    let mut hash = Sha256::new();
    for (name, text) in SOURCES {
        hash.update(name);
        hash.update([0]);
        hash.update(text);
        hash.update([0]);
    }
    hex(&hash.finalize())
}

/// The name of a result code of the CUDA driver, such as `CUDA_ERROR_OUT_OF_MEMORY` for 2; `None`
/// for a code that CUDA 13 does not have.
#[must_use]
pub fn error_name(code: i64) -> Option<&'static str> {
    let code = u32::try_from(code).ok()?;
    let (_, name, _) = codes::CODES.iter().find(|(known, ..)| *known == code)?;
    name.to_str().ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_the_name_that_cuda_gives_it() {
        assert_eq!(error_name(2), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(error_name(999), Some("CUDA_ERROR_UNKNOWN"));
        assert_eq!(error_name(-1), None);
        assert_eq!(error_name(12_345), None);
    }

    #[test]
    fn every_file_of_the_source_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/source");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        let mut embedded: Vec<&str> = SOURCES.iter().chain(SURVEY_SOURCES).map(|(name, _)| *name).collect();
        embedded.sort_unstable();
        assert_eq!(embedded, there);
    }
}
