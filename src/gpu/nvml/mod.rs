//! NVML, NVIDIA's management library: reports the memory and the processes of GPUs.
//!
//! Only this module uses the crate `nvml_wrapper`. NVML runs in this process, never in a model's process.

mod error;
mod looks;
mod poller;

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Cause;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use crate::bytes::Bytes;
use crate::report::OtherProcess;

pub use error::NvmlError;
pub use looks::{MemoryLook, MemoryLooks};
pub use poller::Poller;

/// The maximum number of requests for a list of processes, which may grow while NVML returns it.
const ATTEMPTS: u32 = 3;

/// The loaded NVML library.
#[derive(Debug)]
pub struct Nvml {
    library: nvml_wrapper::Nvml,
}

/// The memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// Memory in use by all processes and the driver.
    ///
    /// It does not include what NVML calls *reserved*: memory that the driver took for itself when it was loaded. Only
    /// differences between two such values are meaningful.
    pub used: Bytes,
    /// Total memory of the GPU.
    pub total: Bytes,
}

/// One GPU, or one MIG instance of a GPU.
#[derive(Debug)]
pub struct NvmlDevice<'nvml> {
    device: nvml_wrapper::Device<'nvml>,
    uuid: String,
}

/// The memory that one process holds on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessMemory {
    pid: u32,
    /// `None` if NVML shows the process but not its memory.
    bytes: Option<Bytes>,
}

impl Nvml {
    /// Loads NVML from a file, or the `libnvidia-ml.so.1` that the dynamic loader finds.
    ///
    /// # Errors
    /// If the library cannot be loaded, or if NVML cannot be initialized, for instance because no driver is loaded.
    pub fn open(library: Option<&Path>) -> Result<Self, NvmlError> {
        let mut builder = nvml_wrapper::Nvml::builder();
        if let Some(path) = library {
            builder.lib_path(path.as_os_str());
        }
        let library = builder
            .init()
            .map_err(|cause| NvmlError::new("be initialized", cause))?;
        Ok(Self { library })
    }

    /// The version of the driver in the form that `nvidia-smi` shows: `580.82.07`.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        self.library.sys_driver_version().ok()
    }

    /// Finds the GPU with this id, `GPU-…` or `MIG-…`.
    ///
    /// CUDA returns the ids of GPUs and of MIG instances in the same form. So if no GPU has the id `GPU-…`, this looks
    /// for the MIG instance `MIG-…`. [`NvmlDevice::uuid`] says which one it found.
    ///
    /// # Errors
    /// If no GPU has this id, or if NVML cannot be asked.
    pub fn device(&self, uuid: &str) -> Result<NvmlDevice<'_>, NvmlError> {
        let instance = uuid.strip_prefix("GPU-").map(|bare| format!("MIG-{bare}"));
        for name in [Some(uuid.to_owned()), instance].into_iter().flatten() {
            match self.library.device_by_uuid(name.as_str()) {
                Ok(device) => return Ok(NvmlDevice { device, uuid: name }),
                // NVML answers so to an id that it does not know. Any other error is not about the id.
                Err(Cause::NotFound | Cause::InvalidArg | Cause::NulError(_)) => {}
                Err(cause) => return Err(NvmlError::new("find a device", cause)),
            }
        }
        Err(NvmlError::Device { uuid: uuid.to_owned() })
    }
}

impl NvmlDevice<'_> {
    /// The id of the device in NVML: `GPU-…` or `MIG-…`.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Reads the GPU's current memory.
    ///
    /// # Errors
    /// If NVML cannot read it.
    pub fn memory(&self) -> Result<GpuMemory, NvmlError> {
        let info = self.device.memory_info();
        let info = info.map_err(|cause| NvmlError::new("read a GPU's memory", cause))?;
        Ok(GpuMemory {
            used: Bytes(info.used),
            total: Bytes(info.total),
        })
    }

    /// Lists the processes on the GPU in order of their ids, including children of this process.
    ///
    /// `None` if NVML refuses to list them. An empty list does not prove that nobody uses the GPU: in a container, NVML
    /// may leave out processes, or show them under ids of another namespace.
    #[must_use]
    pub fn processes(&self) -> Option<Vec<OtherProcess>> {
        Some(self.held()?.into_iter().map(named).collect())
    }

    fn held(&self) -> Option<Vec<ProcessMemory>> {
        let compute = complete(|| self.device.running_compute_processes())?;
        // Processes that draw on the GPU hold memory too. Not every driver lists them.
        let graphics = complete(|| self.device.running_graphics_processes()).unwrap_or_default();
        Some(merged(compute.into_iter().chain(graphics)))
    }
}

/// Requests a list of processes, and requests it again if it grew between the two calls that `nvml_wrapper` makes.
fn complete(mut list: impl FnMut() -> Result<Vec<ProcessInfo>, Cause>) -> Option<Vec<ProcessInfo>> {
    for _ in 0..ATTEMPTS {
        match list() {
            Err(Cause::InsufficientSize(_)) => {}
            answer => return answer.ok(),
        }
    }
    None
}

/// Merges lists to one entry per process.
///
/// A process that computes and draws is in both lists, with the same value, which counts once. A process on several MIG
/// instances has one entry per instance; these values are added.
fn merged(processes: impl Iterator<Item = ProcessInfo>) -> Vec<ProcessMemory> {
    let mut parts = BTreeMap::new();
    for process in processes {
        let part = (process.pid, process.gpu_instance_id, process.compute_instance_id);
        let bytes: &mut Option<Bytes> = parts.entry(part).or_default();
        // The lists of computing and of drawing processes give the same value. Adding both would double it.
        *bytes = (*bytes).max(figure(process.used_gpu_memory));
    }
    let mut held: Vec<ProcessMemory> = Vec::new();
    for ((pid, ..), bytes) in parts {
        match held.last_mut() {
            // If one part is unknown, the sum is unknown.
            Some(last) if last.pid == pid => last.bytes = last.bytes.zip(bytes).map(|(a, b)| a + b),
            _ => held.push(ProcessMemory { pid, bytes }),
        }
    }
    held
}

fn figure(memory: UsedGpuMemory) -> Option<Bytes> {
    match memory {
        // Each listed process has a context, which takes memory. So zero means that NVML does not know the value.
        UsedGpuMemory::Used(0) | UsedGpuMemory::Unavailable => None,
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
    }
}

fn named(held: ProcessMemory) -> OtherProcess {
    let name = std::fs::read(format!("/proc/{}/comm", held.pid)).ok();
    OtherProcess {
        pid: held.pid,
        name: name.map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned().into()),
        bytes: held.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, instance: Option<u32>, memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory: memory,
            gpu_instance_id: instance,
            compute_instance_id: instance,
        }
    }

    fn merge(processes: Vec<ProcessInfo>) -> Vec<(u32, Option<u64>)> {
        let held = merged(processes.into_iter());
        held.into_iter()
            .map(|held| (held.pid, held.bytes.map(|bytes| bytes.0)))
            .collect()
    }

    #[test]
    fn a_process_that_computes_and_draws_is_counted_once() {
        let both = vec![
            process(7, None, UsedGpuMemory::Used(5)),
            process(3, None, UsedGpuMemory::Used(1)),
            process(7, None, UsedGpuMemory::Used(5)),
        ];
        assert_eq!(merge(both), [(3, Some(1)), (7, Some(5))]);
    }

    #[test]
    fn a_process_on_two_instances_holds_the_sum_of_them() {
        let parts = |second| vec![process(7, Some(1), UsedGpuMemory::Used(5)), process(7, Some(2), second)];
        assert_eq!(merge(parts(UsedGpuMemory::Used(4))), [(7, Some(9))]);
        assert_eq!(merge(parts(UsedGpuMemory::Unavailable)), [(7, None)]);
    }

    #[test]
    fn zero_is_no_figure() {
        assert_eq!(merge(vec![process(7, None, UsedGpuMemory::Used(0))]), [(7, None)]);
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again_and_not_for_ever() {
        let mut asked = 0;
        let grown = complete(|| {
            asked += 1;
            if asked == 2 {
                Ok(Vec::new())
            } else {
                Err(Cause::InsufficientSize(None))
            }
        });
        assert_eq!((grown, asked), (Some(Vec::new()), 2));
        assert_eq!(complete(|| Err(Cause::InsufficientSize(None))), None);
        assert_eq!(complete(|| Err(Cause::NoPermission)), None);
    }
}
