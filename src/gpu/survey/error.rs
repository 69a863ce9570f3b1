//! [`SurveyError`]: why no GPU of this machine can be used.

use std::path::PathBuf;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

/// Why the survey of this machine's GPUs failed: no GPU can be used.
#[derive(Debug, Error, Diagnostic)]
pub enum SurveyError {
    /// There is no CUDA driver.
    #[error("no CUDA driver on this machine: libcuda.so was not found")]
    #[diagnostic(
        code(gpu::no_driver),
        help(
            "install NVIDIA's driver, add the folder of libcuda.so to LD_LIBRARY_PATH, or start the container with \
             `--gpus all`"
        )
    )]
    NoDriver,
    /// The survey program did not start.
    #[error("cannot start `{}`", program.display())]
    #[diagnostic(
        code(gpu::survey),
        help("check that programs may run from the disk of the target folder")
    )]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The driver's library cannot be loaded.
    #[error("cannot load the CUDA driver `{}`: {detail}", libcuda.display())]
    #[diagnostic(
        code(gpu::unloadable),
        help("reinstall NVIDIA's driver, or remove a broken copy from LD_LIBRARY_PATH")
    )]
    Unloadable {
        /// The path of the driver.
        libcuda: PathBuf,
        /// The error of the dynamic loader.
        detail: String,
    },
    /// The driver lacks a function because it is too old.
    #[error("the CUDA driver{} is too old: it has no {function}", version_words(*.version))]
    #[diagnostic(
        code(gpu::driver_too_old),
        help("install a driver for CUDA 12.0 or newer (525 or newer)")
    )]
    TooOld {
        /// The driver's CUDA version, if it said so before.
        version: Option<(u32, u32)>,
        /// The missing function.
        function: String,
    },
    /// The driver works but finds no GPU.
    #[error("the CUDA driver finds no GPU{}", visible_words(.visible.as_deref()))]
    #[diagnostic(
        code(gpu::no_gpu),
        help(
            "run `nvidia-smi -L` to list the GPUs; CUDA_VISIBLE_DEVICES, if set, hides all GPUs that it does not name"
        )
    )]
    NoGpu {
        /// The value of `CUDA_VISIBLE_DEVICES`, if set.
        visible: Option<String>,
    },
    /// The driver's library and NVIDIA's kernel module do not match.
    #[error("the CUDA driver does not match NVIDIA's kernel module: {name} ({code})")]
    #[diagnostic(
        code(gpu::driver_mismatch),
        help(
            "reboot after an update of the driver; in a container, remove CUDA's `compat` folder from LD_LIBRARY_PATH, \
             or update the host's driver"
        )
    )]
    Mismatch {
        /// CUDA's code: 803 or 804.
        code: u32,
        /// The name of the code.
        name: String,
    },
    /// A function of the driver or of NVRTC failed.
    #[error("{function} failed: {name} ({code}){}", detail_words(.detail))]
    #[diagnostic(code(gpu::refused))]
    Refused {
        /// The function.
        function: String,
        /// The result code that it returned.
        code: u32,
        /// The name of the code.
        name: String,
        /// More about the failure, such as the compiler's log; may be empty.
        detail: String,
        /// What to do next.
        #[help]
        help: String,
    },
    /// NVRTC, which compiles the kernel of the proof, cannot be loaded.
    #[error("cannot load NVRTC: {detail}")]
    #[diagnostic(
        code(gpu::no_nvrtc),
        help(
            "install NVRTC of the driver's CUDA version (the package cuda-nvrtc), and add its folder to LD_LIBRARY_PATH"
        )
    )]
    NoCompiler {
        /// The reason.
        detail: String,
    },
    /// The kernel of the proof gave a wrong result or none.
    #[error("a test kernel computed {}, expected {expected}", .computed.map_or("nothing".to_owned(), |it| it.to_string()))]
    #[diagnostic(
        code(gpu::not_real),
        help(
            "remove the library from LD_LIBRARY_PATH that takes the place of NVIDIA's driver: it does not run kernels"
        )
    )]
    NotReal {
        /// The correct result.
        expected: u64,
        /// The result, if there was one.
        computed: Option<u64>,
    },
    /// The driver did not answer in time.
    #[error("the CUDA driver `{}` did not answer within {} s", libcuda.display(), after.as_secs_f64())]
    #[diagnostic(
        code(gpu::timed_out),
        help(
            "run it again: without nvidia-persistenced, the first start takes longest. To make it faster, set \
             CUDA_VISIBLE_DEVICES to one GPU. If it fails again, a GPU may hang: check `nvidia-smi` and the kernel's \
             log (`dmesg`); a reboot usually helps"
        )
    )]
    TimedOut {
        /// The path of the driver.
        libcuda: PathBuf,
        /// How long this program waited.
        after: Duration,
    },
    /// The process that called the driver crashed, or ended before it had written the whole survey.
    #[error("the process that called the CUDA driver `{}` ended early: {status}{}", libcuda.display(), detail_words(.stderr))]
    #[diagnostic(
        code(gpu::died),
        help("check the kernel's log (`dmesg`) for the reason, or reinstall NVIDIA's driver")
    )]
    Died {
        /// The path of the driver.
        libcuda: PathBuf,
        /// How the process ended.
        status: String,
        /// The process's stderr.
        stderr: String,
    },
    /// The survey program printed a line that cannot be parsed.
    #[error("cannot parse the survey of the CUDA driver: {what}")]
    #[diagnostic(
        code(gpu::damaged),
        help(
            "run it again; if it fails again, delete vram/driver in the target folder: its `vram-survey` is not the \
             one that this program built"
        )
    )]
    Damaged {
        /// The line.
        what: String,
    },
}

fn version_words(version: Option<(u32, u32)>) -> String {
    version.map_or_else(String::new, |(major, minor)| format!(" (for CUDA {major}.{minor})"))
}

fn visible_words(visible: Option<&str>) -> String {
    visible.map_or_else(String::new, |visible| format!(" under CUDA_VISIBLE_DEVICES={visible}"))
}

fn detail_words(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}

impl SurveyError {
    /// Makes the error from a line of the survey program that starts with `error`.
    pub(super) fn from_call(failed: FailedCall, libcuda: PathBuf, version: Option<(u32, u32)>) -> Self {
        let FailedCall {
            function,
            code,
            name,
            detail,
        } = failed;
        match (function.as_str(), code) {
            // The program loads the driver first. If the driver's version is known, the library that failed is NVRTC.
            ("dlopen", _) if version.is_some() => Self::NoCompiler { detail },
            ("dlopen", _) => Self::Unloadable { libcuda, detail },
            (_, 0) if name == "MISSING_FUNCTION" => Self::TooOld { version, function },
            // CUDA_ERROR_NO_DEVICE.
            ("cuInit" | "cuDeviceGetCount", 100) => Self::NoGpu {
                visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            },
            // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH and CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE.
            ("cuInit", 803 | 804) => Self::Mismatch { code, name },
            _ => Self::Refused {
                help: advice(&function, code).to_owned(),
                function,
                code,
                name,
                detail,
            },
        }
    }
}

/// `NVRTC_ERROR_COMPILATION`.
const NOT_COMPILED: u32 = 6;

/// What to do about a result code of CUDA or NVRTC.
fn advice(function: &str, code: u32) -> &'static str {
    if (function, code) == ("nvrtcCompileProgram", NOT_COMPILED) {
        return "install CUDA's headers of NVRTC's version (the packages cuda-cudart-dev and cuda-crt), and set CUDA_PATH \
                to the folder that has them in `include`: some headers, which Burn's kernels include too, are missing \
                or have another version";
    }
    if function.starts_with("nvrtc") {
        return "install NVRTC of the driver's CUDA version, with its libnvrtc-builtins; it must support this GPU";
    }
    match code {
        // The names of these codes are in `source/codes.rs` of the driver.
        2 => "free memory of the GPU, which is full: `nvidia-smi` shows the processes that hold it",
        34 => "remove this library's folder from LD_LIBRARY_PATH: it is CUDA's stub for linkers, not a driver",
        46 | 101 => {
            "wait until the process that uses the GPU exclusively ends, or change the GPU's compute mode: see \
             `nvidia-smi -q -d COMPUTE`"
        }
        802 => "start nvidia-fabricmanager: the fabric of the GPUs is not ready",
        222 | 36 => "install a newer driver, or NVRTC of the driver's CUDA version: NVRTC is newer than the driver",
        214 | 220 | 700..=719 | 999 => {
            "check `nvidia-smi` and the kernel's log (`dmesg`) for the reason: the GPU has a fault"
        }
        _ => "check `nvidia-smi` and the kernel's log (`dmesg`) for the reason",
    }
}

/// A failed call, as the survey program reports it.
pub(super) struct FailedCall {
    pub(super) function: String,
    pub(super) code: u32,
    pub(super) name: String,
    pub(super) detail: String,
}
