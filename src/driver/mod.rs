//! The CUDA driver library, virtual or before a real driver: its source, and the shared library
//! that it is compiled to on demand.
//!
//! The source in `source/` is no part of this crate: it is compiled by the user's own `rustc`,
//! without Cargo and without dependencies, once per source, toolchain and target.

mod build;
// The driver's own table of its codes: one for both.
#[path = "source/codes.rs"]
mod codes;
mod error;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use build::build;
pub use error::DriverError;

/// The variable that tells the driver its configuration file; without it there is no device.
pub const CONFIG_VARIABLE: &str = "CARGO_VRAM_DRIVER_CONFIG";

/// The file name of the library itself; the names in [`LINKS`] lead to it.
pub(crate) const LIBRARY: &str = "libcargo_vram_driver.so";

/// The file name of the program that tells what CUDA says of itself and of its cards.
pub(crate) const SURVEY: &str = "vram-survey";

/// The files of the driver's folder; all else in it are links.
pub(crate) const FILES: [&str; 2] = [LIBRARY, SURVEY];

/// The names under which programs look for CUDA's driver and NVRTC.
const LINKS: [&str; 6] = [
    "libcuda.so",
    "libcuda.so.1",
    "libnvrtc.so",
    "libnvrtc.so.11",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
];

/// The folder beside the library in which NCCL is virtual, too. Before a real driver it is not looked at: there, a program
/// finds the real NCCL.
const VIRTUAL: &str = "virtual";
const NCCL_LINKS: [&str; 2] = ["libnccl.so", "libnccl.so.2"];

/// Where CUDA's math functions lie in a toolkit, for the compiler of Burn 0.22's kernels.
pub(crate) const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
/// What lies there for a virtual GPU: LLVM bitcode of a module without functions. Kernels that call one of them keep the call, and
/// no kernel runs. Made from the one line `target triple = "nvptx64-nvidia-cuda"` with `llvm-as` of LLVM 22.
const NO_FUNCTIONS: &[u8] = include_bytes!("libdevice.bc");

macro_rules! sources {
    ($($file:literal)*) => { &[$(($file, include_str!(concat!("source/", $file)))),*] };
}

/// Every file of the source; `lib.rs` is the root.
const SOURCES: &[(&str, &str)] = sources! {
    "abi.rs" "call.rs" "clock.rs" "codes.rs" "config.rs" "contents.rs" "context.rs" "copy.rs" "device.rs"
    "error.rs" "event.rs" "forward.rs" "forward_memory.rs" "handles.rs" "hash_keys.rs" "inject.rs" "launch.rs"
    "lib.rs" "libc.rs" "maps.rs" "memory.rs" "module.rs" "nccl.rs" "nvrtc.rs" "pinned.rs" "pool.rs" "posing.rs"
    "proc_address.rs" "ptx.rs" "real.rs" "record.rs" "source_scan.rs" "stream.rs" "stubs.rs"
    "tensor_map.rs" "trampoline.rs" "unwinding.rs"
};

/// The program beside the library. What it is does not change a figure, so it is no part of [`fingerprint`].
/// `survey.rs` is the root.
const SURVEY_SOURCES: &[(&str, &str)] = sources! { "survey.rs" "survey_library.rs" "survey_proof.rs" };

/// The driver, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverLibrary {
    /// The folder to put first on a process's `LD_LIBRARY_PATH`.
    pub folder: PathBuf,
    /// The library, to put into the process's `LD_PRELOAD` where the virtual clock is wanted.
    pub library: PathBuf,
    /// The program that asks a real driver for its cards, to be run beside the models rather than in their process.
    pub survey: PathBuf,
}

impl DriverLibrary {
    /// The driver in a folder that [`build`] made, here or on another machine.
    #[must_use]
    pub fn open(folder: &Path) -> Option<Self> {
        let library = folder.join(LIBRARY);
        let survey = folder.join(SURVEY);
        let nccl = NCCL_LINKS.map(|link| folder.join(VIRTUAL).join(link));
        let links = LINKS.map(|link| folder.join(link)).into_iter().chain(nccl);
        let mut files = [library.clone(), survey.clone(), folder.join(LIBDEVICE)]
            .into_iter()
            .chain(links);
        let complete = files.all(|file| file.is_file());
        complete.then(|| Self {
            folder: folder.to_owned(),
            library,
            survey,
        })
    }

    /// Makes the names under which programs look for CUDA lead to the library, in a folder that has the library, and puts there
    /// what they look for in a toolkit.
    ///
    /// # Errors
    /// Where a link cannot be made, or a file not be written.
    pub fn link(folder: &Path) -> std::io::Result<()> {
        let libdevice = folder.join(LIBDEVICE);
        std::fs::create_dir_all(libdevice.with_file_name(""))?;
        std::fs::write(&libdevice, NO_FUNCTIONS)?;
        LINKS.iter().try_for_each(|link| link_to(LIBRARY, &folder.join(link)))?;
        let nccl = folder.join(VIRTUAL);
        std::fs::create_dir_all(&nccl)?;
        let library = format!("../{LIBRARY}");
        NCCL_LINKS
            .iter()
            .try_for_each(|link| link_to(&library, &nccl.join(link)))
    }

    /// The folder to put before the other one where cards are virtual: several of them are connected by it.
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
    // Models do not run on such a machine; it may be the host of a cross compilation.
    Err(std::io::ErrorKind::Unsupported.into())
}

/// What the driver's source is, as a hash: figures of two drivers are not compared.
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
