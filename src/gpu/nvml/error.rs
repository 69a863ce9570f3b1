//! Why NVML does not answer.

use miette::Diagnostic;
use nvml_wrapper::error::NvmlError as Cause;
use thiserror::Error;

/// Why NVML, the driver's own account of its cards, cannot be asked.
#[derive(Debug, Error, Diagnostic)]
pub enum NvmlError {
    /// The library cannot be loaded.
    #[error("cannot load NVML: {detail}")]
    #[diagnostic(
        code(nvml::library),
        help(
            "libnvidia-ml.so.1 comes with NVIDIA's driver: is that installed? In a container, is it passed in (`--gpus all`)?"
        )
    )]
    Library {
        /// What the dynamic loader said.
        detail: String,
    },
    /// The library was loaded, and lacks a function.
    #[error("this is no NVML that can be used: {detail}")]
    #[diagnostic(
        code(nvml::function),
        help("NVIDIA's driver 525 or newer is needed; is another libnvidia-ml.so.1 found before its own?")
    )]
    Function {
        /// What the dynamic loader said.
        detail: String,
    },
    /// There is no driver in the kernel.
    #[error("NVIDIA's driver is not loaded")]
    #[diagnostic(
        code(nvml::driver),
        help("is the kernel module loaded (`lsmod | grep nvidia`), and are there /dev/nvidia* files?")
    )]
    Driver,
    /// The library and the kernel module are of different versions.
    #[error("NVML and NVIDIA's kernel module are of different versions")]
    #[diagnostic(
        code(nvml::version),
        help("this is so after an update of the driver: restart the machine, or the container")
    )]
    Version,
    /// The user may not.
    #[error("NVML: permission denied")]
    #[diagnostic(
        code(nvml::permission),
        help("may this user read and write /dev/nvidiactl and /dev/nvidia0?")
    )]
    Permission,
    /// No card has this id.
    #[error("NVML knows no device `{uuid}`")]
    #[diagnostic(code(nvml::device), help("`nvidia-smi -L` lists the ids that it knows"))]
    Device {
        /// The id that was asked for.
        uuid: String,
    },
    /// The card was there, and is no more.
    #[error("the card fell off the bus, or must be reset")]
    #[diagnostic(
        code(nvml::lost),
        help("`dmesg | grep -i xid` tells why; restart the machine, or `nvidia-smi --gpu-reset`")
    )]
    Lost,
    /// Something else.
    #[error("NVML cannot {action}: {cause}")]
    #[diagnostic(code(nvml::call), help("does `nvidia-smi` work?"))]
    Call {
        /// What was asked of it.
        action: &'static str,
        /// What it said.
        cause: Cause,
    },
}

impl NvmlError {
    /// What NVML said when it was asked to do something.
    pub(super) fn new(action: &'static str, cause: Cause) -> Self {
        match cause {
            Cause::LibloadingError(error) => Self::Library {
                detail: error.to_string(),
            },
            Cause::FailedToLoadSymbol(detail) => Self::Function { detail },
            Cause::DriverNotLoaded => Self::Driver,
            Cause::LibRmVersionMismatch => Self::Version,
            Cause::NoPermission => Self::Permission,
            Cause::GpuLost | Cause::ResetRequired => Self::Lost,
            cause => Self::Call { action, cause },
        }
    }
}
