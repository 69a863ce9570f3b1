//! Asks CUDA for its versions and its GPUs in a separate process (`vram-survey`).

mod error;
mod parse;
mod select;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{GpuLimits, Libraries, Toolkit, toolkit};
use crate::bytes::Bytes;
use crate::folders;
use crate::report::{LoadedLibrary, Proof};

pub use error::SurveyError;
pub use select::DeviceError;

/// The source of every value of a survey, as [`Provenance`](crate::gpu::Provenance) shows it.
pub(super) const SOURCE: &str = "reported by the GPU's driver";

/// How long a driver may take to start.
///
/// The first start on a machine with many large GPUs takes more than a minute if nothing keeps the GPUs initialized.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The time between two checks whether the process has ended.
const INTERVAL: Duration = Duration::from_millis(5);
/// The maximum length of an output that is read, in bytes: more than any number of GPUs needs.
const LONGEST: u64 = 1 << 20;

/// CUDA's versions and visible GPUs on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The driver's CUDA version: major and minor.
    pub driver_version: (u32, u32),
    /// The CUDA driver.
    pub libcuda: LoadedLibrary,
    /// NVRTC, the compiler of kernels, if it can be loaded.
    pub libnvrtc: Option<LoadedLibrary>,
    /// Why NVRTC cannot be loaded, if its file exists.
    pub libnvrtc_error: Option<String>,
    /// The visible GPUs, in CUDA's order.
    pub devices: Vec<SurveyedDevice>,
    /// The result of a kernel on the first GPU, if a proof was requested.
    pub proof: Option<Proof>,
    /// The first GPU's memory beside the context of the survey's process, if a proof was requested.
    pub context: Option<ContextSeen>,
}

/// A GPU's memory, as a process with a context sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSeen {
    /// Memory that is free for allocations.
    pub free: Bytes,
    /// Total memory of the GPU.
    pub total: Bytes,
}

/// A GPU with the values that its driver reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedDevice {
    /// The GPU's number in CUDA's order, from 0.
    pub ordinal: u32,
    /// The GPU's id: `GPU-…`, or `MIG-…` for a MIG instance.
    pub uuid: String,
    /// The driver's name of the GPU: `NVIDIA L4`.
    pub name: String,
    /// The PCI bus id, if the GPU has one: `0000:01:00.0`.
    pub pci: Option<String>,
    /// Total memory, as `cuDeviceTotalMem` returns it.
    pub total: Bytes,
    /// Compute capability: major and minor version.
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub sm_count: u32,
    /// Size of the L2 cache.
    pub l2_cache: Bytes,
    /// All other limits of a program. Their CUDA version is the older one of driver and NVRTC.
    pub limits: GpuLimits,
    /// Maximum number of resident blocks per multiprocessor.
    pub max_blocks_per_sm: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_width: u32,
    /// Clock of the multiprocessors in kHz, if the driver reports it.
    pub clock_rate: Option<u32>,
    /// Clock of the memory in kHz, if the driver reports it.
    pub memory_clock_rate: Option<u32>,
}

/// Asks the driver in `libraries` for its GPUs.
///
/// `program` does it in its own process ([`DriverLibrary::survey`](crate::driver::DriverLibrary)). If there is a
/// `proof_seed`, the program compiles a kernel and runs it on the first GPU, to prove that this GPU computes.
/// `visible`, if given, replaces `CUDA_VISIBLE_DEVICES`.
///
/// # Errors
/// If there is no driver, if it does not start or finds no GPU, or if the kernel gives a wrong result.
pub fn survey(
    program: &Path,
    libraries: &Libraries,
    proof_seed: Option<u64>,
    visible: Option<&str>,
) -> Result<Survey, SurveyError> {
    survey_within(TIMEOUT, program, libraries, proof_seed, visible)
}

/// Asks the driver for its GPUs as [`survey`] does, but waits at most `timeout`.
///
/// # Errors
/// The same as for [`survey`].
pub fn survey_within(
    timeout: Duration,
    program: &Path,
    libraries: &Libraries,
    proof_seed: Option<u64>,
    visible: Option<&str>,
) -> Result<Survey, SurveyError> {
    let libcuda = libraries.libcuda.as_deref().ok_or(SurveyError::NoDriver)?;
    let mut command = Command::new(program);
    command.arg("--libcuda").arg(libcuda);
    if let Some(libnvrtc) = &libraries.libnvrtc {
        command.arg("--libnvrtc").arg(libnvrtc);
    }
    if let Some(seed) = proof_seed {
        command.args(["--proof", &seed.to_string()]);
        // Without the headers, the kernel includes nothing, and still proves that there is a GPU. Callers report
        // missing headers themselves.
        if let Toolkit::Here(folder) = toolkit(libraries.libnvrtc.as_deref()) {
            command.arg("--headers").arg(folder.join("include"));
        }
    }
    // The driver and NVRTC load further libraries, which are in the same folders.
    let mut path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    for folder in [libraries.libnvrtc.as_deref(), Some(libcuda)]
        .into_iter()
        .flatten()
        .filter_map(Path::parent)
    {
        if !path.is_empty() {
            path.push(":");
        }
        path.push(folder);
    }
    command.env("LD_LIBRARY_PATH", path);
    if let Some(visible) = visible {
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    // In a process of its own: a driver that crashes or hangs takes nothing else with it.
    let said = run(&mut command, timeout).map_err(|source| SurveyError::Start {
        program: program.to_owned(),
        source,
    })?;
    let Some(status) = said.status else {
        return Err(SurveyError::TimedOut {
            libcuda: libcuda.to_owned(),
            after: timeout,
        });
    };
    // Before the exit status: a line with an error says more than the status does.
    let survey = parse::parse(&said.stdout, libcuda)?;
    match survey {
        Some(survey) if status.success() => checked(survey, proof_seed),
        _ => Err(SurveyError::Died {
            libcuda: libcuda.to_owned(),
            status: status.to_string(),
            stderr: said.stderr.trim().to_owned(),
        }),
    }
}

/// Returns an error if the survey found no GPU or the proof failed.
fn checked(survey: Survey, proof_seed: Option<u64>) -> Result<Survey, SurveyError> {
    if survey.devices.is_empty() {
        return Err(SurveyError::NoGpu {
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        });
    }
    match (proof_seed, &survey.proof) {
        (None, _) => Ok(survey),
        // Neither the program's own `expected` nor an old seed
        // proves anything: something may answer from memory.
        // See docs/design/real-gpus.md.
        (Some(seed), Some(proof)) if proof.seed == seed && proof.computed == expected(seed) => Ok(survey),
        (Some(seed), proof) => Err(SurveyError::NotReal {
            expected: expected(seed),
            computed: proof.as_ref().map(|proof| proof.computed),
        }),
    }
}

/// The correct result of the proof's kernel: 1000 steps of Knuth's linear congruential generator (MMIX).
fn expected(seed: u64) -> u64 {
    (0..1000).fold(seed, |x: u64, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

/// The output of the survey program.
struct SurveyOutput {
    /// `None` if the process was killed because it took too long or wrote too much to stderr.
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

/// Runs a command until it ends, for at most `timeout`.
///
/// Its output goes to files, not to pipes, because a driver may leave processes behind that keep a pipe open.
fn run(command: &mut Command, timeout: Duration) -> std::io::Result<SurveyOutput> {
    let file = || tempfile::tempfile_in(folders::temporary());
    let (mut stdout, mut stderr) = (file()?, file()?);
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        // A driver that repeats a message forever must not fill the disk.
        let too_much = stderr.metadata()?.len() > 16 * LONGEST;
        if started.elapsed() > timeout || too_much {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(INTERVAL);
    };
    Ok(SurveyOutput {
        status,
        stdout: text(&mut stdout)?,
        stderr: text(&mut stderr)?,
    })
}

fn text(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An H200 with the values that its driver reports.
    pub(crate) fn device() -> SurveyedDevice {
        SurveyedDevice {
            ordinal: 0,
            uuid: "GPU-6f3a0000-0000-0000-0000-000000000001".to_owned(),
            name: "NVIDIA H200".to_owned(),
            pci: Some("0000:01:00.0".to_owned()),
            total: Bytes(150_109_880_320),
            compute_capability: (9, 0),
            sm_count: 132,
            l2_cache: Bytes(62_914_560),
            limits: GpuLimits {
                source: SOURCE.to_owned(),
                cuda: (12, 4),
                warp_size: 32,
                max_threads_per_block: 1024,
                max_threads_per_sm: 2048,
                max_block_dim: [1024, 1024, 64],
                max_grid_dim: [2_147_483_647, 65_535, 65_535],
                shared_per_block: Bytes(49_152),
                shared_per_block_optin: Bytes(232_448),
                shared_per_sm: Bytes(233_472),
                registers_per_block: 65_536,
                registers_per_sm: 65_536,
            },
            max_blocks_per_sm: 32,
            memory_bus_width: 6144,
            clock_rate: None,
            memory_clock_rate: None,
        }
    }

    pub(crate) fn survey(devices: Vec<SurveyedDevice>) -> Survey {
        let library = |path: &str| LoadedLibrary {
            path: path.into(),
            version: "12.4".into(),
        };
        Survey {
            driver_version: (12, 4),
            libcuda: library("/usr/lib/libcuda.so.550"),
            libnvrtc: Some(library("/usr/lib/libnvrtc.so.12")),
            libnvrtc_error: None,
            devices,
            proof: None,
            context: None,
        }
    }

    #[test]
    fn without_a_driver_nothing_is_started() {
        let error = super::survey(Path::new("/nonexistent"), &Libraries::default(), None, None).unwrap_err();
        assert!(matches!(error, SurveyError::NoDriver));
    }

    #[test]
    fn a_proof_that_came_out_otherwise_is_none() {
        let with = |seed, computed| {
            let mut survey = survey(vec![device()]);
            survey.proof = Some(Proof {
                seed,
                expected: computed,
                computed,
            });
            survey
        };
        assert!(checked(with(7, expected(7)), Some(7)).is_ok());
        for wrong in [with(7, 0), with(8, expected(8)), survey(vec![device()])] {
            assert!(matches!(checked(wrong, Some(7)), Err(SurveyError::NotReal { .. })));
        }
        assert!(matches!(
            checked(survey(Vec::new()), None),
            Err(SurveyError::NoGpu { .. })
        ));
    }

    #[test]
    fn the_proof_is_what_the_kernel_computes() {
        let step = |x: u128| (x * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 64);
        let mut by_hand: u128 = 7;
        for _ in 0..1000 {
            by_hand = step(by_hand);
        }
        assert_eq!(u128::from(expected(7)), by_hand);
    }
}
