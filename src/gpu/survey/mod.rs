//! What CUDA says of itself and of its cards, asked in a process of its own (`vram-survey`).

mod error;
mod parse;
mod select;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Libraries, Limits, Toolkit, toolkit};
use crate::bytes::Bytes;
use crate::report::{Library, Proof};

pub use error::SurveyError;
pub use select::DeviceError;

/// The source of every figure that a survey brings.
pub(super) const SOURCE: &str = "as its driver reports it";

/// How long a driver may take to start: the first start on a machine with many large cards takes a minute and more, where
/// nothing keeps them initialized.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How often the process is looked at.
const INTERVAL: Duration = Duration::from_millis(5);
/// More than any number of cards has to say.
const LONGEST: u64 = 1 << 20;

/// What CUDA says of itself and of its cards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The version of CUDA that the driver is for.
    pub driver_version: (u32, u32),
    /// The driver.
    pub libcuda: Library,
    /// The compiler of kernels, where there is one that can be loaded.
    pub libnvrtc: Option<Library>,
    /// Why there is none, where a file of that name is here.
    pub libnvrtc_error: Option<String>,
    /// The visible cards, in CUDA's order.
    pub devices: Vec<Device>,
    /// What a kernel computed on the first card, where that was asked for.
    pub proof: Option<Proof>,
    /// The first card's memory with this process's context on it, where a proof was asked for.
    pub context: Option<ContextSeen>,
}

/// A card's memory as a process with a context sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSeen {
    /// What allocations could still have.
    pub free: Bytes,
    /// Of the card.
    pub total: Bytes,
}

/// A card, as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its place in CUDA's order.
    pub ordinal: u32,
    /// Its own id: `GPU-…`, or `MIG-…` of a slice of a card.
    pub uuid: String,
    /// As the driver names it: `NVIDIA L4`.
    pub name: String,
    /// Its place on the bus, where it has one: `0000:01:00.0`.
    pub pci: Option<String>,
    /// Total memory, as `cuDeviceTotalMem` returns it.
    pub total: Bytes,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: u32,
    /// L2 cache.
    pub l2_cache: Bytes,
    /// Everything else that a program can run into. Its CUDA version is the older one of driver and NVRTC.
    pub limits: Limits,
    /// Blocks resident on a multiprocessor, at most.
    pub max_blocks_per_sm: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_width: u32,
    /// Clock of the multiprocessors in kHz, where the driver tells.
    pub clock_rate: Option<u32>,
    /// Clock of the memory in kHz, where the driver tells.
    pub memory_clock_rate: Option<u32>,
}

/// Asks the driver in `libraries` for its cards, with the program that lies beside our own driver
/// ([`DriverLibrary::survey`](crate::driver::DriverLibrary)). With a seed, a kernel is compiled and run on the first card,
/// to show that it is one. `visible` takes the place of `CUDA_VISIBLE_DEVICES`.
///
/// # Errors
/// Where there is no driver, it does not start or finds no card, or the kernel does not come out right.
pub fn survey(
    program: &Path,
    libraries: &Libraries,
    proof_seed: Option<u64>,
    visible: Option<&str>,
) -> Result<Survey, SurveyError> {
    survey_within(TIMEOUT, program, libraries, proof_seed, visible)
}

/// The same, with another limit to how long the driver may take.
///
/// # Errors
/// As for [`survey`].
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
        // Without them a kernel still shows that there is a card; that they are missing is told elsewhere.
        if let Toolkit::Here(folder) = toolkit(libraries.libnvrtc.as_deref()) {
            command.arg("--headers").arg(folder.join("include"));
        }
    }
    // Both load libraries of their own, which lie beside them.
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

/// Refuses a survey that found nothing to measure on.
fn checked(survey: Survey, proof_seed: Option<u64>) -> Result<Survey, SurveyError> {
    if survey.devices.is_empty() {
        return Err(SurveyError::NoCard {
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        });
    }
    match (proof_seed, &survey.proof) {
        (None, _) => Ok(survey),
        (Some(seed), Some(proof)) if proof.seed == seed && proof.computed == expected(seed) => Ok(survey),
        (Some(seed), proof) => Err(SurveyError::NotReal {
            expected: expected(seed),
            computed: proof.as_ref().map(|proof| proof.computed),
        }),
    }
}

/// What the kernel of the proof computes: 1000 steps of Knuth's linear congruential generator (MMIX).
fn expected(seed: u64) -> u64 {
    (0..1000).fold(seed, |x: u64, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

/// What a process said.
struct Said {
    /// Absent where it was ended for taking too long.
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

/// Runs a command to its end. What it says goes into files rather than pipes, for a driver may leave processes behind that
/// would keep a pipe open.
fn run(command: &mut Command, timeout: Duration) -> std::io::Result<Said> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
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
        let too_much = stderr.metadata()?.len() > 16 * LONGEST;
        if started.elapsed() > timeout || too_much {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(INTERVAL);
    };
    Ok(Said {
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

    /// An H200, as its driver describes it.
    pub(crate) fn device() -> Device {
        Device {
            ordinal: 0,
            uuid: "GPU-6f3a0000-0000-0000-0000-000000000001".to_owned(),
            name: "NVIDIA H200".to_owned(),
            pci: Some("0000:01:00.0".to_owned()),
            total: Bytes(150_109_880_320),
            compute_capability: (9, 0),
            sm_count: 132,
            l2_cache: Bytes(62_914_560),
            limits: Limits {
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

    pub(crate) fn survey(devices: Vec<Device>) -> Survey {
        let library = |path: &str| Library {
            path: path.to_owned(),
            version: "12.4".to_owned(),
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
            Err(SurveyError::NoCard { .. })
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
