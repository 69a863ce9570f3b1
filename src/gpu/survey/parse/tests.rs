//! Tests of parsing the output of `vram-survey`.

use super::*;

const DRIVER: &str = "driver version=12090 path=/usr/lib/libcuda.so.575.1\n";
const NVRTC: &str = "nvrtc version=12.4 path=/opt/my%20cuda/libnvrtc.so.12\n";
const DEVICE: &str = "device ordinal=0 uuid=GPU-6f3a0000-0000-0000-0000-000000000001 name=NVIDIA%20H200 pci=- total=150109880320 cc_major=9 cc_minor=0 sm_count=132 warp_size=32 max_threads_per_block=1024 max_threads_per_sm=2048 max_blocks_per_sm=32 max_block_dim=1024,1024,64 max_grid_dim=2147483647,65535,65535 shared_per_block=49152 shared_per_block_optin=232448 shared_per_sm=233472 registers_per_block=65536 registers_per_sm=65536 l2_cache=62914560 memory_bus_width=6144\n";

fn read(text: &str) -> Result<Option<Survey>, SurveyError> {
    parse(&(text.to_owned() + "end\n"), Path::new("/usr/lib/libcuda.so"))
}

#[test]
fn a_gpu_is_read_with_all_its_limits() {
    let survey = read(&[DRIVER, NVRTC, DEVICE].concat()).unwrap().unwrap();
    assert_eq!(survey.driver_version, (12, 9));
    assert_eq!(survey.libcuda.version, "12.9");
    assert_eq!(survey.libnvrtc.unwrap().path, "/opt/my cuda/libnvrtc.so.12");
    let device = &survey.devices[0];
    assert_eq!(
        (device.name.as_str(), device.total),
        ("NVIDIA H200", Bytes(150_109_880_320))
    );
    assert_eq!(device.limits.shared_per_block_optin, Bytes(232_448));
    assert_eq!(device.limits.max_grid_dim, [2_147_483_647, 65_535, 65_535]);
    assert_eq!((&device.pci, device.clock_rate), (&None, None));
}

#[test]
fn kernels_are_compiled_for_the_older_of_driver_and_compiler() {
    let of = |text: &str| read(text).unwrap().unwrap().devices[0].limits.cuda;
    assert_eq!(of(&[DRIVER, NVRTC, DEVICE].concat()), (12, 4));
    assert_eq!(of(&[DRIVER, DEVICE].concat()), (12, 9));
    let newer = NVRTC.replace("12.4", "13.0");
    assert_eq!(of(&[DRIVER, &newer, DEVICE].concat()), (12, 9));
}

#[test]
fn each_failure_is_told_by_its_name() {
    let error = |text: &str| read(text).unwrap_err();
    let line =
        |function: &str, code: u32, name: &str| format!("error function={function} code={code} name={name} detail=-\n");
    assert!(matches!(error(&line("dlopen", 0, "-")), SurveyError::Unloadable { .. }));
    let after = |line: String| error(&(DRIVER.to_owned() + &line));
    assert!(matches!(after(line("dlopen", 0, "-")), SurveyError::NoCompiler { .. }));
    assert!(matches!(
        after(line("cuInit", 100, "CUDA_ERROR_NO_DEVICE")),
        SurveyError::NoGpu { .. }
    ));
    assert!(matches!(
        after(line("cuInit", 803, "X")),
        SurveyError::Mismatch { code: 803, .. }
    ));
    assert!(matches!(
        after(line("cuInit", 804, "X")),
        SurveyError::Mismatch { code: 804, .. }
    ));
    assert!(matches!(
        after(line("cuInit", 999, "X")),
        SurveyError::Refused { code: 999, .. }
    ));
    let missing = after(line("cuDeviceGetName", 0, "MISSING_FUNCTION"));
    assert_eq!(
        missing.to_string(),
        "the CUDA driver (for CUDA 12.9) is too old: it has no cuDeviceGetName"
    );
}

#[test]
fn an_answer_that_makes_no_sense_is_damaged() {
    let without_name = DEVICE.replace(" name=NVIDIA%20H200", "");
    for text in [
        "nonsense\n".to_owned(),
        "device ordinal=0\n".to_owned(),
        DRIVER.replace("12090", "new"),
        DRIVER.to_owned() + DRIVER,
        DRIVER.to_owned() + "weather sunny=1\n",
        DRIVER.to_owned() + &without_name,
        DRIVER.to_owned() + &DEVICE.replace("1024,1024,64", "1024,1024"),
        DRIVER.to_owned() + &NVRTC.replace("%20cuda", "%2"),
    ] {
        assert!(matches!(read(&text), Err(SurveyError::Damaged { .. })), "{text}");
    }
}

#[test]
fn an_answer_without_its_end_is_none() {
    let whole = [DRIVER, DEVICE, "end\n"].concat();
    let read = |text: &str| parse(text, Path::new("/usr/lib/libcuda.so")).unwrap();
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), None, "{length}");
    }
    assert_eq!(read(&whole).unwrap().devices.len(), 1);
}
