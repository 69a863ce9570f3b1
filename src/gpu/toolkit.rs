//! CUDA's headers, which Burn's kernels include.

use std::path::{Path, PathBuf};

use crate::driver::LIBDEVICE;

/// What every kernel of Burn includes, or most do.
const HEADERS: [&str; 2] = ["cuda_runtime.h", "cuda_fp16.h"];

/// Where the headers are, or are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolkit {
    /// The toolkit's folder, with headers in `include`.
    Here(PathBuf),
    /// A folder that should have this header and has not.
    Without(PathBuf, &'static str),
    /// No folder at all.
    Nowhere,
}

/// Looks where cubecl-cuda 0.10 looks (`install::cuda_path`) and, where that finds nothing, beside NVRTC.
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
        None => match beside().map(look) {
            Some(here @ Toolkit::Here(_)) => here,
            _ => Toolkit::Nowhere,
        },
    }
}

/// CUDA's math functions, which kernels of Burn 0.22 are linked with, where they are.
#[must_use]
pub fn libdevice(toolkit: &Toolkit) -> Option<PathBuf> {
    let (Toolkit::Here(folder) | Toolkit::Without(folder, _)) = toolkit else {
        return None;
    };
    Some(folder.join(LIBDEVICE)).filter(|path| path.is_file())
}

fn named() -> Option<PathBuf> {
    std::env::var("CUDA_PATH").ok().map(PathBuf::from)
}

fn installed(root: &Path) -> Option<PathBuf> {
    let known = ["usr/local/cuda", "opt/cuda"].map(|path| root.join(path));
    known.into_iter().find(|path| path.exists()).or_else(|| {
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
