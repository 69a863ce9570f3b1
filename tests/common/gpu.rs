//! A posing GPU: a folder with libraries that a process takes for the real CUDA driver, NVRTC and NVML.
//!
//! The driver's own source, compiled with `--cfg posing`, stands for libcuda and libnvrtc. A virtual NVML stands for
//! NVML.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cargo_vram::bytes::Bytes;
use cargo_vram::gpu::{DEV_VARIABLE, Profiles};
use cargo_vram::run::record::Record;
use sha2::{Digest, Sha256};

/// A library of device functions without any function: the kernels of these tests' models need none.
const LIBDEVICE: &[u8] = include_bytes!("../../src/driver/libdevice.bc");

/// A posing GPU in a temporary folder.
pub(crate) struct GpuFolder {
    /// The folder of the libraries, to put first on `LD_LIBRARY_PATH`.
    pub(crate) path: PathBuf,
    /// The configuration file of driver and NVML, which each process reads.
    pub(crate) config: PathBuf,
    folder: tempfile::TempDir,
}

/// Makes a posing GPU with this configuration: lines of `key=value`, with the keys of the virtual driver and the
/// virtual NVML.
///
/// The record of each process is in `{pid}.log` beside the configuration.
pub(crate) fn gpu_folder(config: &str) -> GpuFolder {
    let folder = tempfile::tempdir().unwrap();
    // The folder of the headers is beside the folder of the libraries, as in a toolkit.
    let path = folder.path().join("lib");
    std::fs::create_dir(&path).unwrap();
    let built = libraries();
    // Also the names without a version, because a program tries these first, in all folders.
    for (library, names) in [
        (
            "cuda",
            &["libcuda.so", "libcuda.so.1", "libnvrtc.so", "libnvrtc.so.13"][..],
        ),
        ("nvml", &["libnvidia-ml.so.1"]),
    ] {
        for name in names {
            std::os::unix::fs::symlink(built.join(library), path.join(name)).unwrap();
        }
    }
    for (file, content) in [
        ("dev/nvidiactl", &[][..]),
        ("../include/cuda_runtime.h", &[]),
        ("../include/cuda_fp16.h", &[]),
        ("../nvvm/libdevice/libdevice.10.bc", LIBDEVICE),
    ] {
        std::fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
        std::fs::write(path.join(file), content).unwrap();
    }
    let gpu = GpuFolder {
        config: path.join("GPU.conf"),
        path,
        folder,
    };
    gpu.configure(config);
    gpu
}

/// The configuration of a built-in GPU, with the values of its profile.
pub(crate) fn builtin(id: &str) -> String {
    let profiles = Profiles::builtin().unwrap();
    let profile = profiles.get(id).unwrap();
    let lines = profile
        .driver_config()
        .into_iter()
        .map(|(key, value)| format!("{key}={value}\n"));
    let Bytes(context) = profile.context.value;
    lines.chain([format!("context={context}\n")]).collect()
}

impl GpuFolder {
    /// Replaces the GPU's configuration.
    pub(crate) fn configure(&self, config: &str) {
        let record = self.path.join("{pid}.log");
        // The same ids as those of the virtual NVML.
        let uuids: Vec<_> = (0..16).map(uuid).collect();
        let always = format!("mode=virtual\nrecord={}\nuuid={}\n", record.display(), uuids.join(","));
        let new = self.path.join("GPU.conf.new");
        std::fs::write(&new, always + config).unwrap();
        std::fs::rename(new, &self.config).unwrap();
    }

    /// The peak of reserved memory of each process, as the posing driver counted it.
    pub(crate) fn peaks(&self) -> Vec<Bytes> {
        let records = self.records();
        let texts = records.iter().map(|record| std::fs::read_to_string(record).unwrap());
        texts.map(|text| Record::parse(&text).peak(0)).collect()
    }

    /// Removes the records of all processes.
    pub(crate) fn forget(&self) {
        for record in self.records() {
            std::fs::remove_file(record).unwrap();
        }
    }

    fn records(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.path).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|end| end == "log"))
            .collect()
    }

    /// The folder of the toolkit with CUDA's headers, for `CUDA_PATH`.
    pub(crate) fn toolkit(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Makes a command see only this GPU.
    pub(crate) fn apply(&self, command: &mut Command) {
        assert!(self.folder.path().exists());
        show(command, &self.path);
        command.env("CARGO_VRAM_POSING_CONFIG", &self.config);
    }
}

/// The id of a posing GPU.
pub(crate) fn uuid(ordinal: usize) -> String {
    format!("GPU-7672616d-0000-0001-0000-{ordinal:012x}")
}

/// Makes a command look for CUDA in `folder` first, and find the device node of a GPU there. `CUDA_PATH` does not
/// change, because then Cargo would build Burn again.
pub(crate) fn show(command: &mut Command, folder: &Path) {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    command
        .env("LD_LIBRARY_PATH", path)
        .env(DEV_VARIABLE, folder.join("dev"))
        .env_remove("CUDA_VISIBLE_DEVICES");
}

/// Makes a command see no GPU, even if the machine has one.
pub(crate) fn hide(command: &mut Command) {
    command.env(DEV_VARIABLE, "/nonexistent");
}

/// The folder with both libraries, which are compiled once for all test programs.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let sources = ["src/driver/source", "fixtures/virtual-nvml/src"].map(|folder| super::root().join(folder));
        let mut hash = Sha256::new();
        for source in &sources {
            let mut files: Vec<_> = std::fs::read_dir(source)
                .unwrap()
                .map(|file| file.unwrap().path())
                .collect();
            files.sort();
            for file in files {
                hash.update(std::fs::read(file).unwrap());
            }
        }
        hash.update(Command::new(rustc()).arg("-vV").output().unwrap().stdout);
        let key: String = hash
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let parent = super::target_folder().join("vram/GPU");
        std::fs::create_dir_all(&parent).unwrap();
        let lock = File::create(parent.join("lock")).unwrap();
        lock.lock().unwrap();
        let folder = parent.join(key);
        if !folder.exists() {
            let scratch = tempfile::tempdir_in(&parent).unwrap();
            let [driver, nvml] = sources.map(|source| source.join("lib.rs"));
            let posing = ["--cfg", "posing", "-C", "panic=abort", "-C", "link-arg=-Wl,-Bsymbolic"];
            compile(&driver, &scratch.path().join("cuda"), &posing);
            compile(&nvml, &scratch.path().join("nvml"), &[]);
            std::fs::rename(scratch.keep(), &folder).unwrap();
        }
        folder
    })
}

/// Compiles a shared library with `rustc` alone.
pub(crate) fn compile(source: &Path, library: &Path, options: &[&str]) {
    let output = Command::new(rustc())
        .args([
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
            "-O",
            "--cap-lints",
            "allow",
        ])
        .args(options)
        .args([Path::new("-o"), library, source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}
