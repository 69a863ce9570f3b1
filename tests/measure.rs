//! Measurements on a virtual GPU that poses as a real one. The counting driver forwards every call to another build of
//! the same driver, and a virtual NVML reads the memory that this other driver holds.

use std::process::Output;

use cargo_vram::bytes::Bytes;
use cargo_vram::driver;
use cargo_vram::gpu::Profiles;
use cargo_vram::report::{
    Assumption, Metric, Mode, Obtained, Peaks, ProcessOf, Report, Rule, Run, SkippedCheck, Status, Tuning,
};

use crate::common;
use crate::common::gpu::{GpuFolder, builtin, gpu_folder};
use crate::common::run;

/// The size of the posing GPU's context; `MODULE` is the size of each loaded module.
const CONTEXT: u64 = 201 << 20;
const MODULE: u64 = 65_536;

/// Makes a GPU like a built-in one, with more lines of configuration.
fn gpu(id: &str, more: &str) -> GpuFolder {
    let context = format!("context={CONTEXT}\nmodule_each={MODULE}\n");
    gpu_folder(&(builtin(id) + &context + more))
}

/// Runs `cargo vram` as on a machine with this GPU.
fn output(gpu: &GpuFolder, arguments: &[&str]) -> Output {
    let mut command = common::vram(arguments);
    gpu.apply(&mut command);
    command.output().unwrap()
}

/// Runs a command that writes a report, with this GPU.
fn report(gpu: &GpuFolder, arguments: &[&str]) -> (Report, i32, String) {
    common::report_of(arguments, |command| gpu.apply(command))
}

fn measured(gpu: &GpuFolder, arguments: &[&str]) -> (Report, String) {
    let (report, exit, text) = report(gpu, &[&["measure", "-p", "zoo"], arguments].concat());
    assert_eq!(exit, 0, "{text}");
    (report, text)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_measurement_says_what_it_was_made_with_and_proves_it() {
    let gpu = gpu("l4", "");
    let (report, text) = measured(&gpu, &["-m", "sequential", "-m", "sequential_inference"]);
    assert_eq!(report.runs.len(), 2);
    for run in &report.runs {
        assert_eq!(run.mode, Mode::Measure);
        assert_eq!((run.gpu.id.as_str(), run.gpu.name.raw()), ("l4", "NVIDIA L4"));
        let measurement = run.measurement.as_ref().unwrap();
        assert!(measurement.uuid.raw().starts_with("GPU-"), "{measurement:?}");
        assert_eq!(measurement.proof.computed, measurement.proof.expected);
        let file = |name: &str| gpu.path.join(name).canonicalize().unwrap();
        assert_eq!(file("libcuda.so.1").to_str(), Some(measurement.libcuda.path.raw()));
        // Burn 0.22 compiles with LLVM, so the NVRTC is that of the toolkit in another folder.
        let compiler = match common::is_burn_0_22() {
            true => measurement.libnvrtc.path.raw().ends_with("/lib/libnvrtc.so"),
            false => file("libnvrtc.so.13").to_str() == Some(measurement.libnvrtc.path.raw()),
        };
        assert!(compiler, "{measurement:?}");
        assert_eq!(measurement.libcuda.version, "13.0");
        assert_eq!(measurement.tuning, Tuning::Free);
        let cores = std::thread::available_parallelism().unwrap().get();
        assert_eq!(measurement.cores as usize, cores);
        assert!(measurement.others.is_empty() && measurement.spread.is_none() && measurement.limit.is_none());
        // If Burn's threads run freely, they may hold a little more or less than when they take turns.
        let known = |line: &Assumption| line.code() == "reserved-differs";
        assert!(run.assumptions.iter().all(known), "{:?}", run.assumptions);
        assert!(text.contains(measurement.uuid.raw()), "{text}");
    }
    let seeds: Vec<_> = report
        .runs
        .iter()
        .map(|run| run.measurement.as_ref().unwrap().proof.seed)
        .collect();
    let again = measured(&gpu, &["-m", "sequential_inference"]).0;
    assert!(!seeds.contains(&again.runs[0].measurement.as_ref().unwrap().proof.seed));
}

#[test]
fn process_is_what_the_gpu_charges_context_and_modules_included() {
    let gpu = gpu("l4", "");
    let (report, _) = measured(&gpu, &["-m", "sequential"]);
    let run = run(&report, "sequential");
    let process = run.measurement.as_ref().unwrap().process.clone().unwrap();
    assert_eq!(process.of, ProcessOf::Process);
    assert_eq!(process.interval_us, 10_000);
    assert!(process.looks > 10 && process.longest_gap_us >= 1_000, "{process:?}");
    let context = run.gpu.context.clone().unwrap();
    assert_eq!((context.bytes, context.obtained), (Bytes(CONTEXT), Obtained::Measured));
    let modules = run.gpu.modules.clone().unwrap();
    assert_eq!(modules.obtained, Obtained::Measured);
    assert!(
        modules.bytes > Bytes(0) && modules.bytes.0.is_multiple_of(MODULE),
        "{modules:?}"
    );
    let (reserved, process) = (run.peaks.warm.reserved.unwrap(), run.peaks.warm.process.unwrap());
    assert!(process > Bytes(CONTEXT), "{process}");
    // NVML is sampled less often than memory is allocated, so its peak is a lower bound.
    assert!(
        process <= Bytes(reserved.0 + CONTEXT + modules.bytes.0),
        "{process} of {reserved}"
    );
}

#[test]
fn live_is_that_of_the_estimate_to_the_byte_and_reserved_where_the_plan_is_the_same() {
    let gpu = gpu("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let models = ["-m", "sequential*", "-m", "transformer_inference"];
    let (report, _) = measured(&gpu, &[&models[..], &["--record", folder]].concat());
    let arguments = [
        &["estimate", "-p", "zoo", "--gpu", "l4", "--recordings", folder],
        &models[..],
    ]
    .concat();
    let (estimate, exit, text) = common::report(&arguments);
    assert_eq!(exit, 0, "{text}");
    for measured in &report.runs {
        let estimated = run(&estimate, &measured.model);
        assert_eq!(
            estimated.autotune.nearest + estimated.autotune.assumed,
            0,
            "{}",
            measured.model
        );
        // The numbers of keys need not be equal: in a measurement, Burn's threads race. Then a fused kernel may write a
        // tensor that another run has already dropped, and such a kernel has a key of its own.
        assert!(
            estimated.autotune.recorded > 0 && measured.autotune.recorded > 0,
            "{}",
            measured.model
        );
        agree(measured, estimated);
    }
}

/// Asserts that live memory agrees, and so does reserved memory of the pass in which Burn's threads take turns.
///
/// In the cold and warm pass of a measurement, these threads race, so reserved memory differs from run to run. It
/// differs most on a busy machine, which this one is during the tests.
fn agree(measured: &Run, estimated: &Run) {
    assert_eq!(
        measured.peaks.warm.live, estimated.peaks.warm.live,
        "{}",
        measured.model
    );
    let phases = measured.steps.iter().flat_map(|step| &step.phases);
    let held = phases.map(|phase| phase.reserved_peak).max();
    assert_eq!(held, estimated.peaks.warm.reserved, "{}", measured.model);
}

#[test]
fn where_nvml_shows_no_processes_the_device_is_looked_at() {
    for processes in ["none", "unavailable", "foreign"] {
        let gpu = gpu("l4", &format!("nvml_processes={processes}\nnvml_idle={}\n", 300 << 20));
        let (report, text) = measured(&gpu, &["-m", "sequential_inference", "--verbose"]);
        let run = &report.runs[0];
        let measurement = run.measurement.as_ref().unwrap();
        assert_eq!(
            measurement.process.as_ref().unwrap().of,
            ProcessOf::Device,
            "{processes}"
        );
        assert_eq!(measurement.idle, Some(Bytes(300 << 20)), "{processes}");
        assert_eq!(run.gpu.context.as_ref().unwrap().bytes, Bytes(CONTEXT), "{processes}");
        assert!(text.contains("device"), "{text}");
    }
}

#[test]
fn without_nvml_process_is_not_measured_and_nothing_is_made_up() {
    let gpu = gpu("l4", "");
    std::fs::remove_file(gpu.path.join("libnvidia-ml.so.1")).unwrap();
    let (report, _) = measured(&gpu, &["-m", "sequential_inference"]);
    let run = &report.runs[0];
    assert_eq!(run.peaks.warm.process, None);
    assert_eq!(run.measurement.as_ref().unwrap().process, None);
    assert!(run.peaks.warm.reserved.is_some() && run.peaks.warm.live.is_some());
    // The context is the profile's, from a published reading.
    let profiles = Profiles::builtin().unwrap();
    let context = run.gpu.context.as_ref().unwrap();
    assert_eq!(context.bytes, profiles.get("l4").unwrap().context.value);
}

#[test]
fn other_processes_on_the_gpu_are_told_and_refused_where_it_is_to_be_exclusive() {
    let gpu = gpu("l4", &format!("nvml_other={}:{}\n", std::process::id(), 2_u64 << 30));
    let (report, text) = measured(&gpu, &["-m", "sequential_inference"]);
    let others = &report.runs[0].measurement.as_ref().unwrap().others;
    assert_eq!(
        (others[0].pid, others[0].bytes),
        (std::process::id(), Some(Bytes(2 << 30)))
    );
    assert!(
        text.contains("2 GiB") && text.contains(&std::process::id().to_string()),
        "{text}"
    );
    let refused = output(&gpu, &["measure", "-p", "zoo", "--exclusive"]);
    assert_eq!(refused.status.code(), Some(101));
    assert!(
        self::text(&refused).contains("other processes use the GPU"),
        "{}",
        self::text(&refused)
    );
}

#[test]
fn a_second_measurement_of_a_gpu_waits_for_the_first() {
    let gpu = gpu("l4", "");
    let start = || {
        let mut command = common::vram(&["measure", "-p", "zoo", "-m", "sequential_inference"]);
        gpu.apply(&mut command);
        command
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let (first, second) = (start(), start());
    let said: Vec<String> = [first, second]
        .into_iter()
        .map(|child| text(&child.wait_with_output().unwrap()))
        .collect();
    let waited = said
        .iter()
        .filter(|said| said.contains("waiting for another measurement"));
    // Other tests measure the same GPU, so both runs may have waited for them.
    assert!(waited.count() >= 1, "{said:?}");
    assert!(said.iter().all(|said| said.contains("1 run")), "{said:?}");
}

#[test]
fn a_large_gpu_can_be_measured_as_a_smaller_one() {
    let gpu = gpu("h200", "");
    let (report, _, text) = report(&gpu, &["measure", "-p", "zoo", "-m", "vgg16", "--limit", "4GiB"]);
    let run = run(&report, "vgg16");
    assert_eq!(run.gpu.total_bytes, Bytes(4 << 30), "{text}");
    assert_eq!(run.measurement.as_ref().unwrap().limit, Some(Bytes(4 << 30)));
    let oom = run.oom.as_ref().expect(&text);
    assert!(
        oom.reserved + oom.requested.unwrap() > run.gpu.available_bytes || oom.requested.unwrap().0 > 1 << 30,
        "{oom:?}"
    );
    let more = output(&gpu, &["measure", "-p", "zoo", "--limit", "500GiB"]);
    assert_eq!(more.status.code(), Some(2), "{}", self::text(&more));
}

#[test]
fn repeated_measurements_tell_how_far_they_lie_apart() {
    let gpu = gpu("l4", "");
    let (report, text) = measured(&gpu, &["-m", "sequential_inference", "--repeat", "2"]);
    let run = &report.runs[0];
    let spread = run.measurement.as_ref().unwrap().spread.clone().unwrap();
    assert_eq!(spread.repeats, 2);
    // The report has the values of the first measurement. The second may differ even in live memory, because autotune
    // times the kernels of each measurement.
    let Peaks { warm, cold } = &run.peaks;
    for (range, first) in [
        (spread.warm.live, warm.live),
        (spread.warm.reserved, warm.reserved),
        (spread.cold.reserved, cold.reserved),
    ] {
        let [least, most] = range.unwrap();
        assert!(Bytes(0) < least && least <= most, "{range:?}");
        assert!([least, most].contains(&first.unwrap()), "{first:?} of {range:?}");
    }
    assert!(
        text.contains("sequential_inference on l4, 2 measurements: warm live"),
        "{text}"
    );
}

#[test]
fn a_gpu_is_chosen_by_number_or_by_uuid() {
    let gpu = gpu("l4", "devices=2\n");
    let second = "GPU-7672616d-0000-0001-0000-000000000001";
    for device in ["1", second, "GPU-7672616d-0000-0001-0000-000000000001"] {
        let (report, _) = measured(&gpu, &["-m", "sequential_inference", "--device", device]);
        assert_eq!(report.runs[0].measurement.as_ref().unwrap().uuid, second);
    }
    let unknown = output(&gpu, &["measure", "-p", "zoo", "--device", "7"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said: String = text(&unknown).split_whitespace().collect();
    assert!(said.contains(second), "{}", text(&unknown));
}

#[test]
fn what_runs_no_kernels_is_no_gpu() {
    // The driver of estimates, which does not pose as a real one.
    let folder = tempfile::tempdir().unwrap();
    let driver = driver::build(std::path::Path::new("rustc"), None, &common::target_folder()).unwrap();
    let gpu = gpu("l4", "");
    for name in ["libcuda.so", "libcuda.so.1", "libnvrtc.so", "libnvrtc.so.13"] {
        std::fs::remove_file(gpu.path.join(name)).unwrap();
        std::fs::copy(&driver.library, gpu.path.join(name)).unwrap();
    }
    let config = folder.path().join("driver.conf");
    let record = folder.path().join("driver.log");
    std::fs::write(
        &config,
        format!("mode=virtual\nrecord={}\n{}", record.display(), builtin("l4")),
    )
    .unwrap();
    let mut command = common::vram(&["measure", "-p", "zoo"]);
    gpu.apply(&mut command);
    command.env(driver::CONFIG_VARIABLE, &config);
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(
        text(&refused).contains("a test kernel computed 0, expected"),
        "{}",
        text(&refused)
    );
}

#[test]
fn without_cudas_headers_nothing_is_measured() {
    let gpu = gpu("l4", "");
    std::fs::remove_file(gpu.toolkit().join("include/cuda_runtime.h")).unwrap();
    let refused = output(&gpu, &["measure", "-p", "zoo"]);
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(text(&refused).contains("gpu::no_headers"), "{}", text(&refused));
}

#[test]
fn where_nothing_tells_who_uses_a_gpu_it_is_not_exclusive() {
    let gpu = gpu("l4", "nvml_processes=refused\n");
    let refused = output(&gpu, &["measure", "-p", "zoo", "--exclusive"]);
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(text(&refused).contains("gpu::unseen"), "{}", text(&refused));
}

#[test]
fn what_was_measured_of_a_gpu_goes_into_its_estimates() {
    let gpu = gpu("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-p", "zoo", "-m", "sequential_inference"];
    measured(&gpu, &["-m", "sequential_inference", "--record", folder]);
    let (estimate, ..) = common::report(&[&["estimate", "--gpu", "l4", "--recordings", folder], &model[..]].concat());
    let context = estimate.runs[0].gpu.context.clone().unwrap();
    assert_eq!((context.bytes, context.obtained), (Bytes(CONTEXT), Obtained::Measured));
    let (without, ..) = common::report(&[&["estimate", "--gpu", "l4"], &model[..]].concat());
    let profiles = Profiles::builtin().unwrap();
    let published = profiles.get("l4").unwrap().context.value;
    assert_ne!(published, Bytes(CONTEXT));
    assert_eq!(without.runs[0].gpu.context.as_ref().unwrap().bytes, published);
}

#[test]
fn a_gpu_of_ones_own_is_estimated_with_what_was_recorded_on_the_gpu_it_is_like() {
    let gpu = gpu("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-p", "zoo", "-m", "sequential_inference"];
    measured(&gpu, &["-m", "sequential_inference", "--record", folder]);
    let (_folder, budgets) = common::budgets("version: 1\ngpu_profiles:\n  edge: { like: l4, total: 8 GiB }\n");
    let estimate = ["estimate", "--recordings", folder, "--budgets", &budgets, "-v", "--gpu"];
    let (edge, _, text) = common::report(&[&estimate[..], &["edge"], &model].concat());
    let (edge, own) = (
        run(&edge, "sequential_inference"),
        common::report(&[&estimate[..], &["l4"], &model].concat()).0,
    );
    let own = run(&own, "sequential_inference");
    assert!(edge.autotune.recorded > 0, "{:?}", edge.autotune);
    assert_eq!(edge.autotune, own.autotune);
    assert_eq!((&edge.recording, edge.gpu.id.as_str()), (&own.recording, "edge"));
    assert_eq!(edge.recording.as_ref().unwrap().gpu, "l4");
    let context = edge.gpu.context.as_ref().unwrap();
    assert_eq!((context.bytes, context.obtained), (Bytes(CONTEXT), Obtained::Assumed));
    let told = "there is no recording of `edge`: the autotune choices come from a recording of `l4`";
    assert!(
        edge.assumptions.iter().any(|line| line.to_string().starts_with(told)),
        "{:?}",
        edge.assumptions
    );
    assert!(
        !own.assumptions
            .iter()
            .any(|line| line.code() == "recorded-on-other-gpu")
    );
    assert!(text.contains(" recorded on l4 with driver 580.82.07, "), "{text}");
}

#[test]
fn a_measurement_replays_what_was_recorded_with_the_driver_that_is_here() {
    let gpu = gpu("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-m", "sequential_inference"];
    measured(&gpu, &[&model[..], &["--record", folder]].concat());
    // Copy the recording as one of a newer driver.
    let (here, newer) = ("580.82.07", "590.1");
    let (from, to) = (
        recordings.path().join("l4").join(here),
        recordings.path().join("l4").join(newer),
    );
    std::fs::create_dir(&to).unwrap();
    for file in ["report.json", "autotune.jsonl", "gpu.json"] {
        let text = std::fs::read_to_string(from.join(file)).unwrap();
        std::fs::write(
            to.join(file),
            text.replace(&format!("\"driver\": \"{here}\""), &format!("\"driver\": \"{newer}\"")),
        )
        .unwrap();
    }
    let driver = |run: &Run| run.recording.as_ref().unwrap().driver.clone();
    let (replayed, _) = measured(&gpu, &[&model[..], &["--recordings", folder]].concat());
    assert_eq!(driver(run(&replayed, "sequential_inference")), here);
    let arguments = ["estimate", "-p", "zoo", "--gpu", "l4", "--recordings", folder];
    let (estimated, ..) = common::report(&[&arguments[..], &model].concat());
    assert_eq!(
        driver(run(&estimated, "sequential_inference")),
        newer,
        "an estimate uses the newest recording, so it is the same on every machine"
    );
}

#[test]
fn check_measures_where_there_is_a_gpu_and_estimates_the_declared_one_and_that_one() {
    let gpu = gpu("t4", "");
    let (_folder, budgets) = common::budgets(
        "version: 1\ngpu: l4\ndefaults: { drift: { warn: 20%, fail: 50% } }\nmodels:\n  transformer_inference:\n    reserved: 512 MiB\n    gpus: { t4: { reserved: 2 GiB } }\n",
    );
    let (report, exit, text) = report(
        &gpu,
        &[
            "check",
            "-p",
            "zoo",
            "-m",
            "transformer_inference",
            "--measure",
            "--budgets",
            &budgets,
        ],
    );
    assert_eq!(exit, 0, "{text}");
    let mut runs: Vec<_> = report.runs.iter().map(|run| (run.mode, run.gpu.id.as_str())).collect();
    runs.sort_unstable();
    assert_eq!(
        runs,
        [(Mode::Estimate, "l4"), (Mode::Estimate, "t4"), (Mode::Measure, "t4")]
    );
    let drift: Vec<_> = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Drift)
        .collect();
    assert_eq!(drift.len(), 2, "{:?}", report.verdicts);
    let of = |mode| {
        let run = report
            .runs
            .iter()
            .find(|run| run.mode == mode && run.gpu.id == "t4")
            .unwrap();
        (run.peaks.warm.live, run.peaks.warm.reserved)
    };
    let (measured, estimated) = (of(Mode::Measure), of(Mode::Estimate));
    assert_eq!((drift[0].actual, drift[1].actual), measured);
    assert_eq!((drift[0].baseline, drift[1].baseline), estimated);
    assert_eq!(drift[0].status, Status::Pass, "live is the same: {drift:?}");
    let judged = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.metric == Some(Metric::Reserved) && verdict.rule == Rule::Budget);
    let mut judged: Vec<_> = judged.map(|verdict| (verdict.mode, verdict.gpu.as_str())).collect();
    judged.sort_unstable();
    assert_eq!(judged, [(Mode::Estimate, "l4"), (Mode::Measure, "t4")]);
}

#[test]
fn a_gpu_that_is_there_and_cannot_be_used_is_never_silently_estimated() {
    let dev = tempfile::tempdir().unwrap();
    std::fs::write(dev.path().join("nvidiactl"), "").unwrap();
    let mut command = common::vram(&["check", "-p", "zoo", "-m", "sequential_inference"]);
    command.env("CARGO_VRAM_DEV", dev.path());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    let mut command = common::vram(&["check", "-p", "zoo", "-m", "sequential_inference", "--estimate"]);
    command.env("CARGO_VRAM_DEV", dev.path());
    let estimated = command.output().unwrap();
    assert_eq!(estimated.status.code(), Some(0), "{}", text(&estimated));
}

#[test]
fn a_model_over_several_gpus_is_estimated_and_not_measured() {
    let gpu = gpu("l4", "");
    let manifest = common::manifest("fixtures/cards");
    let package = match common::is_burn_0_22() {
        true => ["--manifest-path", &manifest],
        false => ["-p", "cards"],
    };
    let model = [&package[..], &["-m", "transformer_split"]].concat();
    let (report, exit, text) = report(&gpu, &[&["measure"], &model[..]].concat());
    assert_eq!(exit, 101, "{text}");
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "too-few-gpus");
    // Half of the layers take half of the time.
    let budgets = "version: 1\ngpu: l4\nmodels:\n  transformer_split: { reserved: 20 GiB, inputs: { layers: 2 } }\n";
    let (_folder, file) = common::budgets(budgets);
    let (report, exit, text) = self::report(&gpu, &[&["check"], &model[..], &["--budgets", &file]].concat());
    assert_eq!(exit, 0, "{text}");
    let [run] = report.runs.as_slice() else {
        panic!("{} runs\n{text}", report.runs.len());
    };
    assert_eq!((run.mode, run.gpus.len()), (Mode::Estimate, 2));
    let skipped = report
        .skipped
        .iter()
        .find(|skipped| skipped.check == SkippedCheck::Measurement);
    assert!(skipped.unwrap().why.raw().contains("several GPUs"), "{text}");
}
