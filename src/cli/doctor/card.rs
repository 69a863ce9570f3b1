//! The GPU, its driver, and what models need to run on it.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Finding::{self, Fail, Pass, Warn};
use super::{Check, help, said};
use crate::bytes::Bytes;
use crate::driver::LIBDEVICE;
use crate::gpu::{
    Device, GpuError, Libraries, Nvml, Profiles, Survey, Toolkit, device_node, libdevice, survey, toolkit,
};

/// The oldest CUDA that a driver should be for: Burn's kernels are compiled by NVRTC of 12 and 13.
const OLDEST_CUDA: u32 = 12;
/// How long NVML may take, all in all.
const NVML_TIMEOUT: Duration = Duration::from_secs(10);
// Names of checks that are made in one of several places.
const GPU: &str = "gpu";
const DRIVER: &str = "cuda-driver";
const NVRTC: &str = "nvrtc";
const HEADERS: &str = "cuda-headers";
const MATH_FUNCTIONS: &str = "libdevice";
const NVML: &str = "nvml";
const NOT_NEEDED: &str = "none, and none is needed to estimate";

/// Everything of a GPU. `program` asks the driver, and is absent where it could not be built.
/// `needs_libdevice` says whether a model needs CUDA's math functions to compile its kernels.
pub(super) fn checks(program: Option<&Path>, needs_libdevice: bool) -> Vec<Check> {
    let libraries = Libraries::find();
    let Some(node) = device_node() else {
        return without_a_card(&libraries);
    };
    let mut checks = vec![Pass(format!("NVIDIA device node: {}", node.display())).of("device-node")];
    let survey = match ask(program, &libraries) {
        Ok(survey) => survey,
        Err(finding) => {
            checks.extend([
                finding.of(DRIVER),
                compiler_file(&libraries).of(NVRTC),
                headers(&libraries).of(HEADERS),
                math_functions(&libraries, needs_libdevice).of(MATH_FUNCTIONS),
            ]);
            return checks;
        }
    };
    let program = program.unwrap_or(Path::new(""));
    checks.extend([
        driver(&survey).of(DRIVER),
        compiler(&survey, &libraries).of(NVRTC),
        headers(&libraries).of(HEADERS),
        math_functions(&libraries, needs_libdevice).of(MATH_FUNCTIONS),
    ]);
    checks.extend(cards(&survey).into_iter().map(|card| card.of(GPU)));
    let free_of_first = if survey.libnvrtc.is_some() {
        let (finding, free) = proof(program, &libraries);
        checks.push(finding.of("kernel"));
        free
    } else {
        None
    };
    checks.extend(memory(&survey, &libraries, free_of_first));
    checks
}

/// Nothing fails: an estimate needs none of it.
fn without_a_card(libraries: &Libraries) -> Vec<Check> {
    let found = |what: &str, path: &Option<PathBuf>| {
        Pass(match path {
            Some(path) => format!("{what}: {}, not needed to estimate", path.display()),
            None => format!("{what}: {NOT_NEEDED}"),
        })
    };
    vec![
        Pass(format!("GPU: {NOT_NEEDED}")).of(GPU),
        found("CUDA driver", &libraries.libcuda).of(DRIVER),
        found("NVRTC", &libraries.libnvrtc).of(NVRTC),
        found(
            "CUDA headers",
            &match toolkit(libraries.libnvrtc.as_deref()) {
                Toolkit::Here(folder) | Toolkit::Without(folder, _) => Some(folder),
                Toolkit::Nowhere => None,
            },
        )
        .of(HEADERS),
        found("libdevice", &libdevice(&toolkit(libraries.libnvrtc.as_deref()))).of(MATH_FUNCTIONS),
        found("NVML", &libraries.libnvml).of(NVML),
    ]
}

fn ask(program: Option<&Path>, libraries: &Libraries) -> Result<Survey, Finding> {
    let program = program.ok_or_else(|| {
        Fail(
            "CUDA driver: it cannot be asked, for the program that does was not built".to_owned(),
            "see the virtual driver's line".to_owned(),
        )
    })?;
    survey(program, libraries, None, None).map_err(|error| Fail(format!("CUDA driver: {}", said(&error)), help(&error)))
}

fn driver(survey: &Survey) -> Finding {
    let what = format!(
        "CUDA driver: {}, for CUDA {}",
        survey.libcuda.path, survey.libcuda.version
    );
    if survey.driver_version.0 < OLDEST_CUDA {
        Warn(
            what,
            format!("install a driver for CUDA {OLDEST_CUDA} or newer (525 or newer)"),
        )
    } else {
        Pass(what)
    }
}

/// NVRTC where the driver cannot be asked: whether the file is here.
fn compiler_file(libraries: &Libraries) -> Finding {
    match &libraries.libnvrtc {
        Some(path) => Pass(format!("NVRTC: {}", path.display())),
        None => no_compiler("libnvrtc.so was not found"),
    }
}

fn no_compiler(why: &str) -> Finding {
    Fail(
        format!("NVRTC: {why}, and kernels cannot be compiled without it"),
        "install NVRTC of the driver's CUDA version (the package cuda-nvrtc), and put its folder on LD_LIBRARY_PATH"
            .to_owned(),
    )
}

fn compiler(survey: &Survey, libraries: &Libraries) -> Finding {
    let Some(nvrtc) = &survey.libnvrtc else {
        return match (&survey.libnvrtc_error, &libraries.libnvrtc) {
            (Some(error), _) => no_compiler(error),
            (None, Some(path)) => no_compiler(&format!("{} does not tell its version", path.display())),
            (None, None) => no_compiler("libnvrtc.so was not found"),
        };
    };
    let what = format!("NVRTC: {}, version {}", nvrtc.path, nvrtc.version);
    let major = nvrtc
        .version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major > survey.driver_version.0) {
        let fix = format!(
            "the driver is for CUDA {} and may refuse what it compiles: install NVRTC of that version, or a newer driver",
            survey.libcuda.version
        );
        return Warn(what, fix);
    }
    Pass(what)
}

fn headers(libraries: &Libraries) -> Finding {
    let fix = "install the toolkit's headers (the package cuda-cudart-dev), and set CUDA_PATH to the folder that has them in `include`";
    match toolkit(libraries.libnvrtc.as_deref()) {
        Toolkit::Here(folder) => Pass(format!("CUDA headers: {}", folder.join("include").display())),
        Toolkit::Without(folder, missing) => Fail(
            format!(
                "CUDA headers: {} has no {missing}, which Burn's kernels include",
                folder.join("include").display()
            ),
            fix.to_owned(),
        ),
        Toolkit::Nowhere => Fail(
            "CUDA headers: CUDA_PATH is not set, and /usr/local/cuda and /opt/cuda are not there".to_owned(),
            fix.to_owned(),
        ),
    }
}

/// CUDA's math functions. Models whose kernels NVRTC compiles can be measured without them.
fn math_functions(libraries: &Libraries, is_needed: bool) -> Finding {
    let toolkit = toolkit(libraries.libnvrtc.as_deref());
    if let Some(path) = libdevice(&toolkit) {
        return Pass(format!("libdevice: {}", path.display()));
    }
    let what = match toolkit {
        Toolkit::Here(folder) | Toolkit::Without(folder, _) => {
            format!("libdevice: {} is missing", folder.join(LIBDEVICE).display())
        }
        Toolkit::Nowhere => format!("libdevice: no toolkit has {LIBDEVICE}"),
    };
    if !is_needed {
        return Pass(format!("{what}, and no model needs it: NVRTC compiles their kernels"));
    }
    Fail(
        format!("{what}, and LLVM, with which Burn 0.22 compiles kernels, needs it"),
        "install it (part of the CUDA toolkit: the package libnvvm or cuda-nvcc), and set CUDA_PATH to the toolkit's folder"
            .to_owned(),
    )
}

fn cards(survey: &Survey) -> Vec<Finding> {
    let profiles = match Profiles::builtin() {
        Ok(profiles) => profiles,
        Err(error) => return vec![broken(&error)],
    };
    let one = |device: &Device| {
        let profile = profiles.of_device(device);
        let (major, minor) = device.compute_capability;
        let what = format!(
            "GPU {}: {}, {}, {:#}, compute capability {major}.{minor}, profile `{}`",
            device.ordinal, device.name, device.uuid, device.total, profile.id
        );
        if profiles.find(&profile.id).is_some() {
            Pass(what)
        } else {
            Warn(
                format!("{what}, made from its driver's report: what its context takes is assumed"),
                "`cargo vram gpus --here` prints an entry for `gpu_profiles:` in budgets.yaml".to_owned(),
            )
        }
    };
    survey.devices.iter().map(one).collect()
}

fn broken(error: &GpuError) -> Finding {
    Fail(error.to_string(), help(error))
}

/// Runs a kernel on the first card. Also gives what was free on it.
fn proof(program: &Path, libraries: &Libraries) -> (Finding, Option<Bytes>) {
    match survey(program, libraries, Some(seed()), None) {
        Ok(survey) => (
            Pass("kernel: one was compiled, and ran on GPU 0".to_owned()),
            survey.context.map(|context| context.free),
        ),
        Err(error) => (
            Fail(format!("kernel: none ran on GPU 0: {}", said(&error)), help(&error)),
            None,
        ),
    }
}

/// A number that nobody knows beforehand.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()).rotate_left(48)
}

/// What NVML says of one card.
struct Seen {
    used: Option<(Bytes, Bytes)>,
    /// How many processes; nothing where it may not say.
    processes: Option<usize>,
    error: Option<String>,
}

/// What NVML says, in the order of the survey's cards, and the driver's version.
type Told = Result<(Option<String>, Vec<Seen>), (String, String)>;

/// NVML, and the memory that is free.
fn memory(survey: &Survey, libraries: &Libraries, free_of_first: Option<Bytes>) -> Vec<Check> {
    let uuids: Vec<String> = survey.devices.iter().map(|device| device.uuid.clone()).collect();
    let path = libraries.libnvml.clone();
    let (sender, receiver) = mpsc::channel();
    // A card that hangs keeps this thread, and nobody else.
    std::thread::spawn(move || sender.send(told(path.as_deref(), &uuids)));
    let answer = receiver.recv_timeout(NVML_TIMEOUT).unwrap_or_else(|_| {
        let seconds = NVML_TIMEOUT.as_secs();
        let fix = "`nvidia-smi` and the kernel's log (`dmesg`) tell of a card that hangs";
        Err((format!("it did not answer within {seconds} s"), fix.to_owned()))
    });
    let mut checks = vec![nvml(&answer, libraries).of(NVML)];
    let seen = answer.map(|(_, seen)| seen).unwrap_or_default();
    for (at, device) in survey.devices.iter().enumerate() {
        let used = seen.get(at).and_then(|seen| seen.used);
        let free = used.map(|(used, total)| (total.saturating_sub(used), total));
        let by_cuda = free_of_first.filter(|_| at == 0).map(|free| (free, device.total));
        checks.push(free_memory(device.ordinal, free.or(by_cuda)).of("free-memory"));
    }
    checks
}

fn told(path: Option<&Path>, uuids: &[String]) -> Told {
    let failed = |error: crate::gpu::NvmlError| (error.to_string(), help(&error));
    let nvml = Nvml::open(path).map_err(failed)?;
    let one = |uuid: &String| match nvml.device(uuid) {
        Ok(card) => {
            let memory = card.memory();
            Seen {
                processes: card.processes().map(|processes| processes.len()),
                error: memory.as_ref().err().map(ToString::to_string),
                used: memory.ok().map(|memory| (memory.used, memory.total)),
            }
        }
        Err(error) => Seen {
            used: None,
            processes: None,
            error: Some(error.to_string()),
        },
    };
    Ok((nvml.driver_version(), uuids.iter().map(one).collect()))
}

fn nvml(told: &Told, libraries: &Libraries) -> Finding {
    let path = libraries
        .libnvml
        .as_ref()
        .map_or_else(|| "libnvidia-ml.so.1".to_owned(), |path| path.display().to_string());
    let (version, seen) = match told {
        Ok((version, seen)) => (version.as_deref().unwrap_or("of unknown version"), seen),
        Err((error, fix)) => return Warn(format!("NVML: {path}: {error}"), fix.clone()),
    };
    let what = format!("NVML: {path}, driver {version}");
    if let Some(error) = seen.iter().find_map(|seen| seen.error.as_ref()) {
        let fix = "a measurement goes without the memory that is charged to the process";
        return Warn(format!("{what}: {error}"), fix.to_owned());
    }
    if seen.iter().any(|seen| seen.processes.is_none()) {
        return Warn(
            format!("{what}: it does not show processes here"),
            "a measurement takes the whole card's memory for the process's, less what was held before; let nobody else use the card".to_owned(),
        );
    }
    let processes: usize = seen.iter().filter_map(|seen| seen.processes).sum();
    Pass(format!("{what}, shows processes ({processes} now)"))
}

fn free_memory(ordinal: u32, free: Option<(Bytes, Bytes)>) -> Finding {
    let Some((free, total)) = free else {
        return Warn(
            format!("GPU {ordinal}: how much of its memory is free is not known"),
            "see the line on NVML".to_owned(),
        );
    };
    let what = format!("GPU {ordinal}: {free:#} of {total:#} are free");
    if free.0 < total.0 / 2 {
        Warn(
            what,
            "`nvidia-smi` shows who holds the rest; a model may not fit beside it".to_owned(),
        )
    } else {
        Pass(what)
    }
}
