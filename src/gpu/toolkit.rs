//! Finds the CUDA toolkit, whose headers Burn's kernels include.

use std::path::{Path, PathBuf};

use crate::driver::LIBDEVICE;

/// The headers that Burn's kernels include: all kernels the first, those with half precision the second.
const HEADERS: [&str; 2] = ["cuda_runtime.h", "cuda_fp16.h"];

/// The CUDA toolkit, as far as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolkit {
    /// The toolkit's folder; its subfolder `include` has the headers.
    Here(PathBuf),
    /// A toolkit's folder in which this header is missing.
    Without(PathBuf, &'static str),
    /// No toolkit was found.
    Nowhere,
}

/// Why no toolkit was found.
pub const NO_TOOLKIT: &str = "CUDA_PATH is not set, and neither /usr/local/cuda nor /opt/cuda exists";

/// Finds the toolkit where cubecl-cuda 0.10 looks for it (`install::cuda_path`), or else beside NVRTC.
#[must_use]
pub fn toolkit(libnvrtc: Option<&Path>) -> Toolkit {
    let known = named().or_else(|| installed(Path::new("/")));
    let beside = || {
        libnvrtc
            .and_then(Path::parent)
            .and_then(Path::parent)
            .map(Path::to_owned)
    };
    match known {
        Some(folder) => look(folder),
        // A folder beside NVRTC is only a guess. So one without the headers is not reported as a toolkit.
        None => match beside().map(look) {
            Some(here @ Toolkit::Here(_)) => here,
            _ => Toolkit::Nowhere,
        },
    }
}

/// The file of CUDA's math functions, if the toolkit has it; Burn 0.22 links kernels with it.
#[must_use]
pub fn libdevice(toolkit: &Toolkit) -> Option<PathBuf> {
    let (Toolkit::Here(folder) | Toolkit::Without(folder, _)) = toolkit else {
        return None;
    };
    Some(folder.join(LIBDEVICE)).filter(|path| path.is_file())
}

fn named() -> Option<PathBuf> {
    // As in cubecl: if the variable is set, no other folder counts, even if this one does not exist.
    std::env::var("CUDA_PATH").ok().map(PathBuf::from)
}

fn installed(root: &Path) -> Option<PathBuf> {
    let known = ["usr/local/cuda", "opt/cuda"].map(|path| root.join(path));
    known.into_iter().find(|path| path.exists()).or_else(|| {
        // As in cubecl: a compiler in `/usr/bin` means that the headers are in `/usr/include`.
        let compiler = root.join("usr/bin/nvcc").exists();
        compiler.then(|| root.join("usr"))
    })
}

fn look(folder: PathBuf) -> Toolkit {
    let missing = HEADERS
        .iter()
        .find(|header| !folder.join("include").join(header).exists());
    match missing {
        None => Toolkit::Here(folder),
        Some(header) => Toolkit::Without(folder, header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_header_is_no_toolkit() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        assert_eq!(look(root.clone()), Toolkit::Without(root.clone(), "cuda_runtime.h"));
        std::fs::create_dir(root.join("include")).unwrap();
        for header in HEADERS {
            std::fs::write(root.join("include").join(header), "").unwrap();
        }
        assert_eq!(look(root.clone()), Toolkit::Here(root));
    }

    #[test]
    fn the_folders_are_those_that_burn_looks_in() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(installed(root), None);
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("usr/bin/nvcc"), "").unwrap();
        assert_eq!(installed(root), Some(root.join("usr")));
        std::fs::create_dir_all(root.join("opt/cuda")).unwrap();
        assert_eq!(installed(root), Some(root.join("opt/cuda")));
    }
}
