//! NVML, the driver's own account of its cards: the only place that names `nvml_wrapper`.
//!
//! It is asked from this process, never from a model's.

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
pub use looks::{Look, Looks};
pub use poller::Poller;

/// How often a list is asked for again that grew while it was read.
const ATTEMPTS: u32 = 3;

/// NVML, loaded.
#[derive(Debug)]
pub struct Nvml {
    library: nvml_wrapper::Nvml,
}

/// What a card holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardMemory {
    /// By all processes and the driver, without what NVML calls *reserved*: what the driver took
    /// for itself when it was loaded and nobody can have. Only differences of it mean something.
    pub used: Bytes,
    /// Of the card.
    pub total: Bytes,
}

/// One card, or one part of a card (a MIG instance).
#[derive(Debug)]
pub struct Card<'nvml> {
    device: nvml_wrapper::Device<'nvml>,
    uuid: String,
}

/// What one process holds of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    pid: u32,
    /// `None` where NVML shows the process and not its memory.
    bytes: Option<Bytes>,
}

impl Nvml {
    /// Loads NVML from a file, or from where the dynamic loader finds `libnvidia-ml.so.1`.
    ///
    /// # Errors
    /// Where there is none, or it finds no driver.
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

    /// The version of the driver, as `nvidia-smi` shows it: `580.82.07`.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        self.library.sys_driver_version().ok()
    }

    /// The card of this id, `GPU-…` or `MIG-…`.
    ///
    /// CUDA tells an id without saying of what, so an id that is no card's is looked for among
    /// MIG instances; [`Card::uuid`] tells which it was.
    ///
    /// # Errors
    /// Where NVML knows no such card, or may not say.
    pub fn device(&self, uuid: &str) -> Result<Card<'_>, NvmlError> {
        let instance = uuid.strip_prefix("GPU-").map(|bare| format!("MIG-{bare}"));
        for name in [Some(uuid.to_owned()), instance].into_iter().flatten() {
            match self.library.device_by_uuid(name.as_str()) {
                Ok(device) => return Ok(Card { device, uuid: name }),
                Err(Cause::NotFound | Cause::InvalidArg | Cause::NulError(_)) => {}
                Err(cause) => return Err(NvmlError::new("find a device", cause)),
            }
        }
        Err(NvmlError::Device { uuid: uuid.to_owned() })
    }
}

impl Card<'_> {
    /// The id under which NVML knows it: `GPU-…`, or `MIG-…`.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// What the card holds now.
    ///
    /// # Errors
    /// Where NVML cannot say.
    pub fn memory(&self) -> Result<CardMemory, NvmlError> {
        let info = self.device.memory_info();
        let info = info.map_err(|cause| NvmlError::new("read a card's memory", cause))?;
        Ok(CardMemory {
            used: Bytes(info.used),
            total: Bytes(info.total),
        })
    }

    /// The processes on the card, this one's children among them, in order of their ids.
    ///
    /// `None` where NVML refuses to list them. An empty list says less than it seems to: in a
    /// container NVML may leave out processes, or show them under ids of another namespace.
    #[must_use]
    pub fn processes(&self) -> Option<Vec<OtherProcess>> {
        Some(self.held()?.into_iter().map(named).collect())
    }

    fn held(&self) -> Option<Vec<Held>> {
        let compute = complete(|| self.device.running_compute_processes())?;
        // Whoever draws on the card holds memory too; not every driver tells.
        let graphics = complete(|| self.device.running_graphics_processes()).unwrap_or_default();
        Some(merged(compute.into_iter().chain(graphics)))
    }
}

/// A list of processes, asked for again where it grew between the two calls that it takes.
fn complete(mut list: impl FnMut() -> Result<Vec<ProcessInfo>, Cause>) -> Option<Vec<ProcessInfo>> {
    for _ in 0..ATTEMPTS {
        match list() {
            Err(Cause::InsufficientSize(_)) => {}
            answer => return answer.ok(),
        }
    }
    None
}

/// One entry a process. A process that computes and draws is in both lists, with the same figure;
/// one on several MIG instances is there once for each, with a figure for each.
fn merged(processes: impl Iterator<Item = ProcessInfo>) -> Vec<Held> {
    let mut parts = BTreeMap::new();
    for process in processes {
        let part = (process.pid, process.gpu_instance_id, process.compute_instance_id);
        let bytes: &mut Option<Bytes> = parts.entry(part).or_default();
        *bytes = (*bytes).max(figure(process.used_gpu_memory));
    }
    let mut held: Vec<Held> = Vec::new();
    for ((pid, ..), bytes) in parts {
        match held.last_mut() {
            // A sum of which a part is unknown is unknown.
            Some(last) if last.pid == pid => last.bytes = last.bytes.zip(bytes).map(|(a, b)| a + b),
            _ => held.push(Held { pid, bytes }),
        }
    }
    held
}

fn figure(memory: UsedGpuMemory) -> Option<Bytes> {
    match memory {
        // A process is listed for its context, which takes memory: zero is no figure.
        UsedGpuMemory::Used(0) | UsedGpuMemory::Unavailable => None,
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
    }
}

fn named(held: Held) -> OtherProcess {
    let name = std::fs::read(format!("/proc/{}/comm", held.pid)).ok();
    OtherProcess {
        pid: held.pid,
        name: name.map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned()),
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
