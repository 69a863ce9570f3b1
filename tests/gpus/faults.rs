//! CUDA drivers that have one fault each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cargo_vram::gpu::{Libraries, Survey, SurveyError, survey_within};

use super::{assert_exit, library, on, said};
use crate::common;
use crate::common::gpu::{self, builtin, gpu_folder};

/// More time than a driver needs to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The source of a driver with a few functions. A `cfg` with the name of a fault switches it on.
const FAKE: &str = r#"
use std::ffi::{c_char, c_int, c_uint};
#[unsafe(no_mangle)] extern "C" fn cuDriverGetVersion(version: &mut c_int) -> c_uint { *version = 12_040; 0 }
#[unsafe(no_mangle)] extern "C" fn cuInit(_: c_uint) -> c_uint {
    if cfg!(chatters) { println!("nonsense device ordinal=0\n\u{7}"); }
    if cfg!(hangs) { loop { std::thread::park(); } }
    if cfg!(aborts) { eprintln!("driver: assertion failed"); std::process::abort(); }
    if cfg!(exits) { std::process::exit(0); }
    if cfg!(no_device) { 100 } else if cfg!(mismatch) { 803 } else if cfg!(compat) { 804 } else if cfg!(unknown) { 999 } else { 0 }
}
#[cfg(not(lacks))]
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetCount(count: &mut c_int) -> c_uint {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    *count = visible.map_or(1, |visible| visible.split(',').filter(|one| !one.is_empty()).count() as c_int);
    0
}
#[unsafe(no_mangle)] extern "C" fn cuDeviceGet(device: &mut c_int, ordinal: c_int) -> c_uint { *device = ordinal; 0 }
#[unsafe(no_mangle)] unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, room: c_int, _: c_int) -> c_uint {
    // As long as there is room, and no NUL at the end.
    unsafe { std::ptr::write_bytes(name.cast::<u8>(), b'%', room as usize) };
    0
}
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetUuid(id: &mut [u8; 16], device: c_int) -> c_uint { *id = [device as u8; 16]; 0 }
#[cfg(mig)]
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetUuid_v2(id: &mut [u8; 16], _: c_int) -> c_uint { *id = [0xab; 16]; 0 }
#[unsafe(no_mangle)] extern "C" fn cuDeviceTotalMem_v2(bytes: &mut usize, _: c_int) -> c_uint { *bytes = 8 << 30; 0 }
#[unsafe(no_mangle)] extern "C" fn cuDeviceGetAttribute(value: &mut c_int, which: c_int, _: c_int) -> c_uint {
    *value = 7;
    if cfg!(newer) && matches!(which, 13 | 36) { 1 } else { 0 }
}
"#;

/// The source of an NVRTC that compiles nothing. Its log has the start of the source and the options.
const FAKE_COMPILER: &str = r#"
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::Mutex;
static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());
#[unsafe(no_mangle)] extern "C" fn nvrtcVersion(major: &mut c_int, minor: &mut c_int) -> c_uint { (*major, *minor) = (13, 0); 0 }
#[unsafe(no_mangle)] unsafe extern "C" fn nvrtcCreateProgram(
    _: usize, source: *const c_char, _: usize, _: c_int, _: usize, _: usize,
) -> c_uint {
    let source = unsafe { CStr::from_ptr(source) }.to_bytes();
    let kernel = source.windows(6).position(|part| part == b"extern").unwrap();
    *SAID.lock().unwrap() = source[..kernel].to_vec();
    0
}
#[unsafe(no_mangle)] unsafe extern "C" fn nvrtcCompileProgram(_: usize, count: c_int, options: *const *const c_char) -> c_uint {
    for at in 0..count as usize {
        let option = unsafe { CStr::from_ptr(*options.add(at)) }.to_bytes();
        SAID.lock().unwrap().extend([b"|", option].concat());
    }
    6
}
#[unsafe(no_mangle)] extern "C" fn nvrtcGetProgramLogSize(_: usize, size: &mut usize) -> c_uint { *size = SAID.lock().unwrap().len() + 1; 0 }
#[unsafe(no_mangle)] unsafe extern "C" fn nvrtcGetProgramLog(_: usize, log: *mut u8) -> c_uint {
    let said = SAID.lock().unwrap();
    unsafe { std::ptr::copy_nonoverlapping(said.as_ptr(), log, said.len()) };
    0
}
"#;

#[test]
fn the_proof_is_compiled_as_burns_own_kernels_are() {
    for (id, architecture) in [("h200", "sm_90a"), ("l4", "sm_89")] {
        let gpu = gpu_folder(&builtin(id));
        let source = gpu.path.join("compiler.rs");
        std::fs::write(&source, FAKE_COMPILER).unwrap();
        for name in ["libnvrtc.so", "libnvrtc.so.13"] {
            std::fs::remove_file(gpu.path.join(name)).unwrap();
            gpu::compile(&source, &gpu.path.join(name), &[]);
        }
        let include = gpu.toolkit().join("include");
        std::fs::create_dir(include.join("cccl")).unwrap();
        let output = on(&gpu, &["doctor", "-p", "zoo"]);
        assert_exit(&output, 101);
        let said = said(&output);
        let include = include.display();
        let given = format!(
            "#include <cuda_fp16.h>\n      |--gpu-architecture={architecture}|--include-path={include}|-lineinfo|--include-path={include}/cccl"
        );
        assert!(
            said.contains("#include <cuda_runtime.h>") && said.contains(&given),
            "{given}\n{said}"
        );
        assert!(
            said.contains("help: install CUDA's headers of NVRTC's version"),
            "{said}"
        );
    }
}

/// Makes a folder with a faulty driver as its only library.
pub(crate) fn fake(fault: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("fake.rs");
    std::fs::write(&source, FAKE).unwrap();
    gpu::compile(&source, &folder.path().join("libcuda.so"), &["--cfg", fault]);
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    std::fs::write(folder.path().join("dev/nvidiactl"), "").unwrap();
    folder
}

fn ask(folder: &Path, visible: Option<&str>) -> Result<Survey, SurveyError> {
    let libraries = Libraries {
        libcuda: Some(folder.join("libcuda.so")),
        ..Libraries::default()
    };
    survey_within(PATIENCE, &library().survey, &libraries, None, visible)
}

#[test]
fn each_fault_of_a_driver_has_its_name() {
    let error = |fault: &str| ask(fake(fault).path(), None).unwrap_err();
    assert!(matches!(error("no_device"), SurveyError::NoGpu { .. }));
    assert!(matches!(error("mismatch"), SurveyError::Mismatch { code: 803, .. }));
    assert!(matches!(error("compat"), SurveyError::Mismatch { code: 804, .. }));
    let unknown = error("unknown");
    assert!(
        matches!(&unknown, SurveyError::Refused { code: 999, function, .. } if function == "cuInit"),
        "{unknown}"
    );
    let lacks = error("lacks");
    assert_eq!(
        lacks.to_string(),
        "the CUDA driver (for CUDA 12.4) is too old: it has no cuDeviceGetCount"
    );
    let aborts = error("aborts");
    assert!(
        aborts.to_string().contains("SIGABRT") && aborts.to_string().contains("assertion failed"),
        "{aborts}"
    );
    // The process ended with exit code 0, but without an answer.
    let exits = error("exits");
    assert!(matches!(exits, SurveyError::Died { .. }), "{exits}");
}

#[test]
fn what_a_driver_prints_is_no_answer() {
    let survey = ask(fake("chatters").path(), None).unwrap();
    assert_eq!(survey.devices.len(), 1);
    // A name without a NUL is cut off, and its percent signs are not decoded.
    assert_eq!(survey.devices[0].name, "%".repeat(255));
    assert_eq!(survey.devices[0].pci, None);
}

#[test]
fn a_driver_that_no_longer_tells_its_clocks_is_asked_for_the_rest() {
    let survey = ask(fake("newer").path(), None).unwrap();
    assert_eq!(survey.devices[0].clock_rate, None);
    assert_eq!(survey.devices[0].sm_count, 7);
    let survey = ask(fake("older").path(), None).unwrap();
    assert_eq!(survey.devices[0].clock_rate, Some(7));
}

#[test]
fn a_slice_of_a_gpu_has_an_id_of_its_own_kind() {
    let uuid = |fault| ask(fake(fault).path(), None).unwrap().devices[0].uuid.clone();
    assert_eq!(uuid("whole"), "GPU-00000000-0000-0000-0000-000000000000");
    assert_eq!(uuid("mig"), "MIG-abababab-abab-abab-abab-abababababab");
}

#[test]
fn the_gpus_that_are_visible_are_those_that_are_told() {
    let folder = fake("whole");
    assert_eq!(ask(folder.path(), Some("0,1,GPU-6f")).unwrap().devices.len(), 3);
    let survey = ask(folder.path(), Some("5,6")).unwrap();
    assert_eq!(
        survey.device(Some("1")).unwrap().uuid,
        "GPU-01010101-0101-0101-0101-010101010101"
    );
    assert!(matches!(ask(folder.path(), Some("")), Err(SurveyError::NoGpu { .. })));
}

#[test]
fn a_driver_that_hangs_is_given_up() {
    let folder = fake("hangs");
    let libraries = Libraries {
        libcuda: Some(folder.path().join("libcuda.so")),
        ..Libraries::default()
    };
    let patience = Duration::from_millis(700);
    let program = library().survey;
    let started = Instant::now();
    let error = survey_within(patience, &program, &libraries, None, None).unwrap_err();
    assert!(matches!(error, SurveyError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn what_is_no_driver_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let libcuda = folder.path().join("libcuda.so");
    std::fs::write(&libcuda, b"\x7fELF and nothing else").unwrap();
    let error = ask(folder.path(), None).unwrap_err();
    assert!(
        matches!(&error, SurveyError::Unloadable { detail, .. } if !detail.is_empty()),
        "{error}"
    );
    std::fs::remove_file(&libcuda).unwrap();
    assert!(matches!(ask(folder.path(), None), Err(SurveyError::Unloadable { .. })));
    // A library, but not a CUDA driver.
    let libc: PathBuf = std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so")))
        .map(|(_, path)| format!("/{path}").into())
        .unwrap();
    std::os::unix::fs::symlink(libc, &libcuda).unwrap();
    let error = ask(folder.path(), None).unwrap_err();
    assert!(matches!(&error, SurveyError::TooOld { version: None, .. }), "{error}");
}

#[test]
fn detecting_says_what_to_do_where_no_gpu_can_be_used() {
    for (fault, hint) in [
        ("mismatch", "reboot"),
        ("no_device", "nvidia-smi -L"),
        ("unknown", "dmesg"),
    ] {
        let folder = fake(fault);
        let mut command = common::vram(&["gpus", "--here"]);
        gpu::show(&mut command, folder.path());
        let output = command.output().unwrap();
        assert_exit(&output, 101);
        assert!(said(&output).contains(hint), "{}", said(&output));
        assert!(output.stdout.is_empty());
    }
}
