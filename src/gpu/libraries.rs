//! Finds CUDA's libraries in the same places as a model's process.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver;

/// The absolute paths of CUDA's libraries on this machine.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Libraries {
    /// The CUDA driver.
    pub libcuda: Option<PathBuf>,
    /// NVRTC, the compiler of kernels.
    pub libnvrtc: Option<PathBuf>,
    /// NVML, NVIDIA's management library, which reports the memory of each process.
    pub libnvml: Option<PathBuf>,
}

/// The places to look for libraries.
///
/// The dynamic loader tries a name in all its places before it tries the next name, so this does too. Places that the
/// loader does not know come last.
#[derive(Debug, Default, Clone)]
struct LibraryFolders {
    /// The folders of `LD_LIBRARY_PATH`, which come first.
    library_path: Vec<PathBuf>,
    /// The names and paths in the loader's cache.
    cache: Vec<(String, PathBuf)>,
    /// The folders in which the loader looks last.
    defaults: Vec<PathBuf>,
    /// Folders that the loader does not search but that may have CUDA.
    others: Vec<PathBuf>,
}

impl Libraries {
    /// Finds the libraries with the environment of this process.
    #[must_use]
    pub fn find() -> Self {
        Self::find_in(&LibraryFolders::here())
    }

    fn find_in(places: &LibraryFolders) -> Self {
        Self {
            libcuda: places.first(&candidates("cuda")),
            libnvrtc: places.first(&candidates("nvrtc")),
            libnvml: places.first(&["libnvidia-ml.so.1".to_owned(), "libnvidia-ml.so".to_owned()]),
        }
    }
}

/// The file names that cudarc 0.19 tries (`get_lib_name_candidates`), in its order, without those that exist only on
/// Windows.
///
/// Its first version number is that of the CUDA version that cudarc was built for: 13, unless an older `nvcc` was on
/// the path.
fn candidates(library: &str) -> Vec<String> {
    let plain = format!("lib{library}.so");
    let versions = ["13", "12", "11", "10", "9", "1"];
    let versioned = versions.map(|version| format!("{plain}.{version}"));
    [plain].into_iter().chain(versioned).collect()
}

impl LibraryFolders {
    fn here() -> Self {
        let multiarch = format!("{}-linux-gnu", env::consts::ARCH);
        let cuda_path = env::var_os("CUDA_PATH").filter(|path| !path.is_empty());
        Self {
            library_path: env::var_os("LD_LIBRARY_PATH").map_or_else(Vec::new, |list| folders(&list)),
            cache: cached(&loader_cache()),
            defaults: [
                format!("/lib/{multiarch}"),
                format!("/usr/lib/{multiarch}"),
                "/lib64".to_owned(),
                "/usr/lib64".to_owned(),
                "/lib".to_owned(),
                "/usr/lib".to_owned(),
            ]
            .map(PathBuf::from)
            .into(),
            others: cuda_path
                .map(|path| PathBuf::from(path).join("lib64"))
                .into_iter()
                .chain(
                    [
                        "/usr/local/cuda/lib64",
                        "/opt/cuda/lib64",
                        "/usr/local/nvidia/lib64",
                        "/usr/lib/wsl/lib",
                    ]
                    .map(PathBuf::from),
                )
                .collect(),
        }
    }

    fn first(&self, names: &[String]) -> Option<PathBuf> {
        // The model's own process must find the same files. Otherwise a survey would describe another driver.
        let known = names.iter().flat_map(|name| {
            let cached = self.cache.iter().filter(move |(known, _)| known == name);
            let in_folders =
                |folders: &'_ [PathBuf]| folders.iter().map(|folder| folder.join(name)).collect::<Vec<_>>();
            in_folders(&self.library_path)
                .into_iter()
                .chain(cached.map(|(_, path)| path.clone()))
                .chain(in_folders(&self.defaults))
        });
        let unknown = names
            .iter()
            .flat_map(|name| self.others.iter().map(move |folder| folder.join(name)));
        known
            .chain(unknown)
            .find(|path| is_real(path))
            // The processes that get this path run in other folders.
            .and_then(|path| std::path::absolute(path).ok())
    }
}

/// Splits a path list into folders, as the loader does: an empty entry is the working directory.
fn folders(list: &OsStr) -> Vec<PathBuf> {
    let here = || PathBuf::from(".");
    env::split_paths(list)
        .map(|folder| {
            Some(folder)
                .filter(|folder| folder != Path::new(""))
                .unwrap_or_else(here)
        })
        .collect()
}

/// The output of `ldconfig -p`; empty if `ldconfig` does not run.
fn loader_cache() -> String {
    // The `PATH` of a user often lacks the folders of system programs.
    ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .filter_map(|program| Command::new(program).arg("-p").output().ok())
        .find(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Parses names and paths from lines such as `libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1`.
fn cached(printed: &str) -> Vec<(String, PathBuf)> {
    printed
        .lines()
        .filter_map(|line| {
            let (name, path) = line.trim().split_once(" => ")?;
            Some((name.split_whitespace().next()?.to_owned(), PathBuf::from(path)))
        })
        .collect()
}

/// Whether the file is a library for this machine, but neither this tool's own driver nor the stub that CUDA's toolkit
/// has for linkers.
fn is_real(path: &Path) -> bool {
    let own = |path: &Path| {
        path.parent()
            .is_some_and(|folder| folder.join(driver::LIBRARY).exists())
    };
    let stub = |path: &Path| path.components().any(|part| part.as_os_str() == "stubs");
    // A link elsewhere may point to our own driver or to a stub, so both paths are checked.
    is_loadable(path)
        && [path.to_owned(), path.canonicalize().unwrap_or_default()]
            .iter()
            .all(|path| !own(path) && !stub(path))
}

/// Whether a file has the header of a 64-bit ELF file for this machine.
fn is_loadable(path: &Path) -> bool {
    let mut header = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let machine = match env::consts::ARCH {
        // EM_X86_64 and EM_AARCH64. The loader skips files
        // for other machines, and linker scripts named `.so`.
        "x86_64" => 62,
        "aarch64" => 183,
        _ => u16::from_le_bytes([header[18], header[19]]),
    };
    read.is_ok() && header.starts_with(b"\x7fELF\x02") && u16::from_le_bytes([header[18], header[19]]) == machine
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file that has the ELF header of a library for this machine.
    fn library(folder: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        let mut header = std::fs::read(env::current_exe().unwrap()).unwrap();
        header.truncate(64);
        std::fs::write(&path, header).unwrap();
        path
    }

    fn places(library_path: &[&Path]) -> LibraryFolders {
        LibraryFolders {
            library_path: library_path.iter().map(|folder| folder.to_path_buf()).collect(),
            ..LibraryFolders::default()
        }
    }

    #[test]
    fn the_library_path_comes_before_the_loaders_cache() {
        let folder = tempfile::tempdir().unwrap();
        let first = library(&folder.path().join("first"), "libcuda.so.1");
        let second = library(&folder.path().join("second"), "libcuda.so.1");
        let mut places = places(&[first.parent().unwrap()]);
        places.cache = cached(&format!("\tlibcuda.so.1 (libc6,x86-64) => {}\n", second.display()));
        assert_eq!(Libraries::find_in(&places).libcuda, Some(first));
        places.library_path.clear();
        assert_eq!(Libraries::find_in(&places).libcuda, Some(second));
    }

    #[test]
    fn an_earlier_name_comes_before_an_earlier_folder_as_it_does_for_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let versioned = library(&folder.path().join("wheel"), "libnvrtc.so.12");
        let plain = library(&folder.path().join("toolkit"), "libnvrtc.so");
        let mut places = places(&[versioned.parent().unwrap()]);
        places.defaults = vec![plain.parent().unwrap().to_owned()];
        assert_eq!(Libraries::find_in(&places).libnvrtc, Some(plain.clone()));
        // A folder that the loader searches comes before one that it does not search.
        places.others = std::mem::take(&mut places.defaults);
        assert_eq!(Libraries::find_in(&places).libnvrtc, Some(versioned));
        places.library_path.clear();
        assert_eq!(Libraries::find_in(&places).libnvrtc, Some(plain));
    }

    #[test]
    fn our_own_driver_and_the_toolkits_stub_are_no_drivers() {
        let folder = tempfile::tempdir().unwrap();
        let own = library(&folder.path().join("own"), "libcuda.so");
        library(own.parent().unwrap(), driver::LIBRARY);
        let stub = library(&folder.path().join("lib64/stubs"), "libcuda.so");
        let linked = folder.path().join("linked");
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&own, linked.join("libcuda.so")).unwrap();
        let folders = [own.parent().unwrap(), stub.parent().unwrap(), &linked];
        assert_eq!(Libraries::find_in(&places(&folders)), Libraries::default());
        let real = library(&folder.path().join("real"), "libcuda.so");
        let folders = [own.parent().unwrap(), stub.parent().unwrap(), real.parent().unwrap()];
        assert_eq!(Libraries::find_in(&places(&folders)).libcuda, Some(real));
    }

    #[test]
    fn what_is_no_library_of_this_machine_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("libcuda.so", &b"INPUT(libcuda.so.1)"[..]),
            ("libcuda.so.1", b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x03\0"),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        std::fs::create_dir(folder.path().join("libnvrtc.so")).unwrap();
        assert_eq!(Libraries::find_in(&places(&[folder.path()])), Libraries::default());
    }

    #[test]
    fn nvml_is_taken_by_the_name_that_programs_use() {
        let folder = tempfile::tempdir().unwrap();
        library(folder.path(), "libnvidia-ml.so");
        let versioned = library(folder.path(), "libnvidia-ml.so.1");
        assert_eq!(Libraries::find_in(&places(&[folder.path()])).libnvml, Some(versioned));
    }

    #[test]
    fn paths_are_absolute_and_an_empty_entry_is_the_working_directory() {
        assert_eq!(
            folders(OsStr::new("/a::b:/c")),
            ["/a", ".", "b", "/c"].map(PathBuf::from)
        );
        let found = Libraries::find();
        for path in [found.libcuda, found.libnvrtc, found.libnvml].into_iter().flatten() {
            assert!(path.is_absolute(), "{}", path.display());
        }
    }

    #[test]
    fn the_names_are_those_of_the_bindings_in_their_order() {
        assert_eq!(
            candidates("cuda")[..3],
            ["libcuda.so", "libcuda.so.13", "libcuda.so.12"]
        );
        assert_eq!(candidates("nvrtc").last().unwrap(), "libnvrtc.so.1");
    }
}
