//! Why a GPU cannot be used.

use std::path::PathBuf;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

/// Why there is no survey: no GPU of this machine can be used.
#[derive(Debug, Error, Diagnostic)]
pub enum SurveyError {
    /// There is no CUDA driver.
    #[error("there is no CUDA driver here: libcuda.so was not found")]
    #[diagnostic(
        code(gpu::no_driver),
        help(
            "install NVIDIA's driver, put the folder of libcuda.so on LD_LIBRARY_PATH, or start the container with --gpus all"
        )
    )]
    NoDriver,
    /// The program that asks did not start.
    #[error("`{}` could not be started", program.display())]
    #[diagnostic(
        code(gpu::survey),
        help("is the target folder on a disk that programs may be run from?")
    )]
    Start {
        /// The program.
        program: PathBuf,
        /// Why it did not.
        #[source]
        source: std::io::Error,
    },
    /// The driver's library cannot be loaded.
    #[error("the CUDA driver `{}` cannot be loaded: {detail}", libcuda.display())]
    #[diagnostic(
        code(gpu::unloadable),
        help("reinstall NVIDIA's driver, or take a broken copy off LD_LIBRARY_PATH")
    )]
    Unloadable {
        /// The driver.
        libcuda: PathBuf,
        /// What the loader said.
        detail: String,
    },
    /// The driver lacks a function.
    #[error("the CUDA driver{} is too old: it has no {function}", version_words(*.version))]
    #[diagnostic(
        code(gpu::driver_too_old),
        help("install a driver for CUDA 12.0 or newer (525 or newer)")
    )]
    TooOld {
        /// Its version of CUDA, where it told.
        version: Option<(u32, u32)>,
        /// The function.
        function: String,
    },
    /// The driver works, and there is no card.
    #[error("the CUDA driver finds no card{}", visible_words(.visible.as_deref()))]
    #[diagnostic(
        code(gpu::no_card),
        help("`nvidia-smi -L` lists the cards there are; CUDA_VISIBLE_DEVICES hides all but those it names")
    )]
    NoCard {
        /// `CUDA_VISIBLE_DEVICES`, where it is set.
        visible: Option<String>,
    },
    /// The driver's library and the part of it in the kernel do not go together.
    #[error("the CUDA driver does not fit the kernel's: {name} ({code})")]
    #[diagnostic(
        code(gpu::driver_mismatch),
        help(
            "after an update of the driver, reboot; in a container, take CUDA's `compat` folder off LD_LIBRARY_PATH, or update the host's driver"
        )
    )]
    Mismatch {
        /// CUDA's code: 803 or 804.
        code: u32,
        /// Its name.
        name: String,
    },
    /// A function of the driver or the compiler failed.
    #[error("{function} failed: {name} ({code}){}", detail_words(.detail))]
    #[diagnostic(code(gpu::refused))]
    Refused {
        /// The function.
        function: String,
        /// Its answer.
        code: u32,
        /// The answer's name.
        name: String,
        /// What else was said of it.
        detail: String,
        /// What to do about it.
        #[help]
        help: String,
    },
    /// There is no compiler for the kernel of the proof.
    #[error("NVRTC cannot be loaded: {detail}")]
    #[diagnostic(
        code(gpu::no_nvrtc),
        help(
            "install NVRTC of the driver's CUDA version (the package cuda-nvrtc), and put its folder on LD_LIBRARY_PATH"
        )
    )]
    NoCompiler {
        /// Why.
        detail: String,
    },
    /// A kernel did not compute what it should have.
    #[error("a kernel computed {}, and should have computed {expected}", .computed.map_or("nothing".to_owned(), |it| it.to_string()))]
    #[diagnostic(
        code(gpu::not_real),
        help("this is no GPU that runs kernels: something on LD_LIBRARY_PATH takes the driver's place")
    )]
    NotReal {
        /// What is right.
        expected: u64,
        /// What came.
        computed: Option<u64>,
    },
    /// The driver did not answer.
    #[error("the CUDA driver `{}` did not answer within {} s", libcuda.display(), after.as_secs_f64())]
    #[diagnostic(
        code(gpu::timed_out),
        help(
            "run it again: a first start takes longest where no nvidia-persistenced runs, and less with CUDA_VISIBLE_DEVICES set to one card; if it stays, `nvidia-smi` and the kernel's log (`dmesg`) tell of a card that hangs, and a reboot brings most back"
        )
    )]
    TimedOut {
        /// The driver.
        libcuda: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The driver ended the process.
    #[error("the CUDA driver `{}` ended the process that asked it: {status}{}", libcuda.display(), detail_words(.stderr))]
    #[diagnostic(
        code(gpu::died),
        help("reinstall NVIDIA's driver; the kernel's log (`dmesg`) may tell more")
    )]
    Died {
        /// The driver.
        libcuda: PathBuf,
        /// How the process ended.
        status: String,
        /// What it said last.
        stderr: String,
    },
    /// What the program said makes no sense.
    #[error("the answer of the CUDA driver is damaged: {what}")]
    #[diagnostic(
        code(gpu::damaged),
        help(
            "run it again; if it stays, `vram-survey` in the target folder's vram/driver is not what this program built"
        )
    )]
    Damaged {
        /// What of it.
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
    /// What a line of the program says that begins with `error`.
    pub(super) fn of(failed: Failed, libcuda: PathBuf, version: Option<(u32, u32)>) -> Self {
        let Failed {
            function,
            code,
            name,
            detail,
        } = failed;
        match (function.as_str(), code) {
            // Once the driver has told its version, what could not be loaded is the compiler.
            ("dlopen", _) if version.is_some() => Self::NoCompiler { detail },
            ("dlopen", _) => Self::Unloadable { libcuda, detail },
            (_, 0) if name == "MISSING_FUNCTION" => Self::TooOld { version, function },
            ("cuInit" | "cuDeviceGetCount", 100) => Self::NoCard {
                visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            },
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

/// What to do about a code of CUDA's.
fn advice(function: &str, code: u32) -> &'static str {
    if (function, code) == ("nvrtcCompileProgram", NOT_COMPILED) {
        return "CUDA's headers, which Burn's kernels include too, are missing in part or of another version: install those of NVRTC's version (the packages cuda-cudart-dev and cuda-crt), and set CUDA_PATH to the folder that has them in `include`";
    }
    if function.starts_with("nvrtc") {
        return "install NVRTC of the driver's CUDA version, complete with its libnvrtc-builtins, and one that knows this card";
    }
    match code {
        2 => "the card is full: `nvidia-smi` shows who holds it",
        34 => "this is the stub that CUDA's toolkit has for linkers: take its folder off LD_LIBRARY_PATH",
        46 | 101 => "another process has the card to itself: `nvidia-smi -q -d COMPUTE` shows its compute mode",
        802 => "the fabric of the cards is not up: start nvidia-fabricmanager",
        222 | 36 => "NVRTC is newer than the driver: install a newer driver, or NVRTC of the driver's CUDA version",
        214 | 220 | 700..=719 | 999 => "the card is in trouble: `nvidia-smi` and the kernel's log (`dmesg`) tell more",
        _ => "`nvidia-smi` and the kernel's log (`dmesg`) may tell more",
    }
}

/// What failed, in the program's words.
pub(super) struct Failed {
    pub(super) function: String,
    pub(super) code: u32,
    pub(super) name: String,
    pub(super) detail: String,
}
