//! [`NvmlError`]: why NVML gave no answer.

use miette::Diagnostic;
use nvml_wrapper::error::NvmlError as Cause;
use thiserror::Error;

/// Why NVML, NVIDIA's management library, gave no answer.
#[derive(Debug, Error, Diagnostic)]
pub enum NvmlError {
    /// The dynamic loader cannot load the library.
    #[error("cannot load NVML: {detail}")]
    #[diagnostic(
        code(nvml::library),
        help("install NVIDIA's driver, which brings libnvidia-ml.so.1; start a container with `--gpus all`")
    )]
    Library {
        /// The error of the dynamic loader.
        detail: String,
    },
    /// The library was loaded but a function is missing.
    #[error("incompatible NVML library: {detail}")]
    #[diagnostic(
        code(nvml::function),
        help("install NVIDIA's driver 525 or newer; remove other copies of libnvidia-ml.so.1 from LD_LIBRARY_PATH")
    )]
    Function {
        /// The error of the dynamic loader.
        detail: String,
    },
    /// NVIDIA's kernel module is not loaded.
    #[error("NVIDIA's driver is not loaded")]
    #[diagnostic(
        code(nvml::driver),
        help("load NVIDIA's kernel module (`lsmod | grep nvidia` shows it), and check that /dev/nvidia* exist")
    )]
    Driver,
    /// The library and the kernel module have different versions.
    #[error("NVML and NVIDIA's kernel module have different versions")]
    #[diagnostic(
        code(nvml::version),
        help("restart the machine or the container: this happens after an update of the driver")
    )]
    Version,
    /// The user lacks permission.
    #[error("NVML: permission denied")]
    #[diagnostic(
        code(nvml::permission),
        help("give this user permission to read and write /dev/nvidiactl and /dev/nvidia0")
    )]
    Permission,
    /// No GPU has this id.
    #[error("NVML finds no GPU `{uuid}`")]
    #[diagnostic(code(nvml::device), help("run `nvidia-smi -L` to list the ids of the GPUs"))]
    Device {
        /// The unknown id.
        uuid: String,
    },
    /// The GPU was lost or must be reset.
    #[error("the GPU fell off the bus or must be reset")]
    #[diagnostic(
        code(nvml::lost),
        help("restart the machine or run `nvidia-smi --gpu-reset`; `dmesg | grep -i xid` shows the reason")
    )]
    Lost,
    /// Another call failed.
    #[error("NVML cannot {action}: {cause}")]
    #[diagnostic(code(nvml::call), help("check that `nvidia-smi` works"))]
    Call {
        /// What NVML could not do, after "cannot": `be initialized`.
        action: &'static str,
        /// The error of NVML.
        cause: Cause,
    },
}

impl NvmlError {
    /// Makes the error of a call that was to do `action` and failed with `cause`.
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
