//! Checks the GPU, its driver, and the libraries that models need to run on it.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::finding::Finding::{self, Fail, Pass, Warn};
use super::finding::{DoctorCheck, help, said};
use crate::bytes::Bytes;
use crate::driver::LIBDEVICE;
use crate::gpu::{
    GpuError, Libraries, NO_TOOLKIT, Nvml, Profiles, Survey, SurveyedDevice, Toolkit, device_node, libdevice, survey,
    toolkit,
};

/// The oldest CUDA version that a driver should support: NVRTC 12 and 13 compile Burn's kernels.
const OLDEST_CUDA: u32 = 12;
/// The time limit for all queries to NVML together.
const NVML_TIMEOUT: Duration = Duration::from_secs(10);
// The names of checks that are made in several places.
const GPU: &str = "gpu";
const DRIVER: &str = "cuda-driver";
const NVRTC: &str = "nvrtc";
const HEADERS: &str = "cuda-headers";
const MATH_FUNCTIONS: &str = "libdevice";
const NVML: &str = "nvml";
const NOT_NEEDED: &str = "none (not needed for estimates)";

/// Makes all checks of the GPU.
///
/// `program` queries the driver, and is `None` if it could not be built. `needs_libdevice` says whether a model needs
/// CUDA's math functions to compile its kernels.
pub(super) fn checks(program: Option<&Path>, needs_libdevice: bool) -> Vec<DoctorCheck> {
    let libraries = Libraries::find();
    // Without a device node there is nothing to repair: estimates need no GPU.
    let Some(node) = device_node() else {
        return without_a_gpu(&libraries);
    };
    let mut checks = vec![Pass(format!("NVIDIA device node: {}", node.display())).of("device-node")];
    let survey = match ask(program, &libraries) {
        Ok(survey) => survey,
        // The files can be checked without the driver, and missing ones may be the reason.
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
    // Without a program, `ask` has returned an error already.
    let program = program.unwrap_or(Path::new(""));
    checks.extend([
        driver(&survey).of(DRIVER),
        compiler(&survey, &libraries).of(NVRTC),
        headers(&libraries).of(HEADERS),
        math_functions(&libraries, needs_libdevice).of(MATH_FUNCTIONS),
    ]);
    checks.extend(gpus(&survey).into_iter().map(|gpu| gpu.of(GPU)));
    // Without NVRTC there is no kernel to run, and its own check has failed.
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

/// Makes the checks of a machine without a GPU. None of them fails, because estimates need no GPU.
fn without_a_gpu(libraries: &Libraries) -> Vec<DoctorCheck> {
    let found = |what: &str, path: &Option<PathBuf>| {
        Pass(match path {
            Some(path) => format!("{what}: {} (not needed for estimates)", path.display()),
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
            "CUDA driver: not checked, because the program that queries it was not built".to_owned(),
            "fix the failure of the virtual driver first".to_owned(),
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

/// Checks only that NVRTC's file exists, because the driver cannot be queried.
fn compiler_file(libraries: &Libraries) -> Finding {
    match &libraries.libnvrtc {
        Some(path) => Pass(format!("NVRTC: {}", path.display())),
        None => no_compiler("libnvrtc.so was not found"),
    }
}

fn no_compiler(why: &str) -> Finding {
    Fail(
        format!("NVRTC: {why}; without it, kernels cannot be compiled"),
        "install NVRTC of the driver's CUDA version (package cuda-nvrtc), and add its folder to LD_LIBRARY_PATH"
            .to_owned(),
    )
}

fn compiler(survey: &Survey, libraries: &Libraries) -> Finding {
    let Some(nvrtc) = &survey.libnvrtc else {
        return match (&survey.libnvrtc_error, &libraries.libnvrtc) {
            (Some(error), _) => no_compiler(error),
            (None, Some(path)) => no_compiler(&format!("{} does not report its version", path.display())),
            (None, None) => no_compiler("libnvrtc.so was not found"),
        };
    };
    let what = format!("NVRTC: {}, version {}", nvrtc.path, nvrtc.version);
    let major = nvrtc
        .version
        .raw()
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major > survey.driver_version.0) {
        let fix = format!(
            "install NVRTC for CUDA {}, which the driver supports, or a newer driver: this driver may refuse kernels \
             of a newer NVRTC",
            survey.libcuda.version
        );
        return Warn(what, fix);
    }
    Pass(what)
}

fn headers(libraries: &Libraries) -> Finding {
    let fix = "install the toolkit's headers (package cuda-cudart-dev), and set CUDA_PATH to the folder whose \
               `include` contains them";
    match toolkit(libraries.libnvrtc.as_deref()) {
        Toolkit::Here(folder) => Pass(format!("CUDA headers: {}", folder.join("include").display())),
        Toolkit::Without(folder, missing) => Fail(
            format!(
                "CUDA headers: {} has no {missing}, which Burn's kernels include",
                folder.join("include").display()
            ),
            fix.to_owned(),
        ),
        Toolkit::Nowhere => Fail(format!("CUDA headers: {NO_TOOLKIT}"), fix.to_owned()),
    }
}

/// Checks CUDA's math functions (libdevice). Models whose kernels NVRTC compiles can be measured without them.
fn math_functions(libraries: &Libraries, is_needed: bool) -> Finding {
    let toolkit = toolkit(libraries.libnvrtc.as_deref());
    if let Some(path) = libdevice(&toolkit) {
        return Pass(format!("libdevice: {}", path.display()));
    }
    let what = match toolkit {
        Toolkit::Here(folder) | Toolkit::Without(folder, _) => {
            format!("libdevice: {} is missing", folder.join(LIBDEVICE).display())
        }
        Toolkit::Nowhere => format!("libdevice: there is no CUDA toolkit with {LIBDEVICE}"),
    };
    if !is_needed {
        return Pass(format!("{what}, but no model needs it: NVRTC compiles their kernels"));
    }
    Fail(
        format!("{what}; LLVM needs it to compile the kernels of Burn 0.22"),
        "install it with the CUDA toolkit (package libnvvm or cuda-nvcc), and set CUDA_PATH to the toolkit's folder"
            .to_owned(),
    )
}

fn gpus(survey: &Survey) -> Vec<Finding> {
    let profiles = match Profiles::builtin() {
        Ok(profiles) => profiles,
        Err(error) => return vec![broken(&error)],
    };
    let one = |device: &SurveyedDevice| {
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
                format!("{what}, from the driver's report: the size of its context is an assumption"),
                "run `cargo vram gpus --here` to print an entry for `gpu_profiles:` in budgets.yaml".to_owned(),
            )
        }
    };
    survey.devices.iter().map(one).collect()
}

fn broken(error: &GpuError) -> Finding {
    Fail(error.to_string(), help(error))
}

/// Runs a kernel on the first GPU. Also returns the free memory of that GPU.
fn proof(program: &Path, libraries: &Libraries) -> (Finding, Option<Bytes>) {
    match survey(program, libraries, Some(seed()), None) {
        Ok(survey) => (
            Pass("kernel: compiled, and ran on GPU 0".to_owned()),
            survey.context.map(|context| context.free),
        ),
        Err(error) => (
            Fail(format!("kernel: cannot run on GPU 0: {}", said(&error)), help(&error)),
            None,
        ),
    }
}

/// Returns a number that nobody can know in advance, so that a remembered answer proves nothing.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().rotate_left(32) ^ u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()).rotate_left(48)
}

/// What NVML reports about one GPU.
struct SeenGpus {
    used: Option<(Bytes, Bytes)>,
    /// The number of processes on the GPU; `None` if NVML does not list them.
    processes: Option<usize>,
    error: Option<String>,
}

/// The driver's version, and what NVML reports about each GPU, in the survey's order; or an error with its fix.
type ToldGpu = Result<(Option<String>, Vec<SeenGpus>), (String, String)>;

/// Checks NVML, and the free memory of each GPU.
fn memory(survey: &Survey, libraries: &Libraries, free_of_first: Option<Bytes>) -> Vec<DoctorCheck> {
    let uuids: Vec<String> = survey.devices.iter().map(|device| device.uuid.clone()).collect();
    let path = libraries.libnvml.clone();
    let (sender, receiver) = mpsc::channel();
    // If a GPU hangs, only this thread hangs with it.
    std::thread::spawn(move || sender.send(told(path.as_deref(), &uuids)));
    let answer = receiver.recv_timeout(NVML_TIMEOUT).unwrap_or_else(|_| {
        let seconds = NVML_TIMEOUT.as_secs();
        let fix = "look for a GPU that hangs in `nvidia-smi` and in the kernel log (`dmesg`)";
        Err((format!("no answer within {seconds} s"), fix.to_owned()))
    });
    let mut checks = vec![nvml(&answer, libraries).of(NVML)];
    let seen = answer.map(|(_, seen)| seen).unwrap_or_default();
    for (at, device) in survey.devices.iter().enumerate() {
        let used = seen.get(at).and_then(|seen| seen.used);
        let free = used.map(|(used, total)| (total.saturating_sub(used), total));
        // The proof has seen the memory of GPU 0. It counts if NVML does not answer.
        let by_cuda = free_of_first.filter(|_| at == 0).map(|free| (free, device.total));
        checks.push(free_memory(device.ordinal, free.or(by_cuda)).of("free-memory"));
    }
    checks
}

fn told(path: Option<&Path>, uuids: &[String]) -> ToldGpu {
    let failed = |error: crate::gpu::NvmlError| (error.to_string(), help(&error));
    let nvml = Nvml::open(path).map_err(failed)?;
    let one = |uuid: &String| match nvml.device(uuid) {
        Ok(gpu) => {
            let memory = gpu.memory();
            SeenGpus {
                processes: gpu.processes().map(|processes| processes.len()),
                error: memory.as_ref().err().map(ToString::to_string),
                used: memory.ok().map(|memory| (memory.used, memory.total)),
            }
        }
        Err(error) => SeenGpus {
            used: None,
            processes: None,
            error: Some(error.to_string()),
        },
    };
    Ok((nvml.driver_version(), uuids.iter().map(one).collect()))
}

fn nvml(told: &ToldGpu, libraries: &Libraries) -> Finding {
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
        let fix = "expect measurements without the memory that NVML charges to the process";
        return Warn(format!("{what}: {error}"), fix.to_owned());
    }
    if seen.iter().any(|seen| seen.processes.is_none()) {
        return Warn(
            format!("{what}: it does not list processes here"),
            "let no other process use the GPU: without the list, a measurement counts all memory used on the GPU, \
             minus what was used before"
                .to_owned(),
        );
    }
    let processes: usize = seen.iter().filter_map(|seen| seen.processes).sum();
    Pass(format!("{what}, lists processes ({processes} now)"))
}

fn free_memory(ordinal: u32, free: Option<(Bytes, Bytes)>) -> Finding {
    let Some((free, total)) = free else {
        return Warn(
            format!("GPU {ordinal}: its free memory is unknown"),
            "see the NVML check".to_owned(),
        );
    };
    let what = format!("GPU {ordinal}: {free:#} of {total:#} free");
    if free.0 < total.0 / 2 {
        Warn(
            what,
            "run `nvidia-smi` to see which processes hold the rest: a model may not fit beside them".to_owned(),
        )
    } else {
        Pass(what)
    }
}
