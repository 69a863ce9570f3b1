//! Measuring, over a virtual card that poses as a real one: another build of the same driver, which the one that counts
//! passes every call on to, and an NVML that reads what that one holds.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Output;

use cargo_vram::bytes::Bytes;
use cargo_vram::driver;
use cargo_vram::gpu::Profiles;
use cargo_vram::report::{Metric, Mode, Obtained, ProcessOf, Report, Rule, Run, Status, Tuning};
use common::card::{CardFolder, builtin, card_folder};
use common::run;

/// What a context of the posing card takes, and each of its modules.
const CONTEXT: u64 = 201 << 20;
const MODULE: u64 = 65_536;

/// A card that looks like a built-in one, with more to say of it.
fn card(id: &str, more: &str) -> CardFolder {
    let context = format!("context={CONTEXT}\nmodule_each={MODULE}\n");
    card_folder(&(builtin(id) + &context + more))
}

/// Runs the tool with that card in the machine.
fn output(card: &CardFolder, arguments: &[&str]) -> Output {
    let mut command = common::vram(arguments);
    card.apply(&mut command);
    command.output().unwrap()
}

/// Runs a command that writes a report.
fn report(card: &CardFolder, arguments: &[&str]) -> (Report, i32, String) {
    common::report_of(arguments, |command| card.apply(command))
}

fn measured(card: &CardFolder, arguments: &[&str]) -> (Report, String) {
    let (report, exit, text) = report(card, &[&["measure", "-p", "zoo"], arguments].concat());
    assert_eq!(exit, 0, "{text}");
    (report, text)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_measurement_says_what_it_was_made_with_and_proves_it() {
    let card = card("l4", "");
    let (report, text) = measured(&card, &["-m", "transformer", "-m", "transformer_inference"]);
    assert_eq!(report.runs.len(), 2);
    for run in &report.runs {
        assert_eq!(run.mode, Mode::Measure);
        assert_eq!((run.gpu.id.as_str(), run.gpu.name.as_str()), ("l4", "NVIDIA L4"));
        let measurement = run.measurement.as_ref().unwrap();
        assert!(measurement.uuid.starts_with("GPU-"), "{measurement:?}");
        assert_eq!(measurement.proof.computed, measurement.proof.expected);
        let file = |name: &str| card.path.join(name).canonicalize().unwrap();
        assert_eq!(file("libcuda.so.1").to_str(), Some(measurement.libcuda.path.as_str()));
        // Burn 0.22 compiles with LLVM, and has a toolkit of its own beside the card.
        let compiler = match common::is_burn_0_22() {
            true => measurement.libnvrtc.path.ends_with("/lib/libnvrtc.so"),
            false => file("libnvrtc.so.13").to_str() == Some(measurement.libnvrtc.path.as_str()),
        };
        assert!(compiler, "{measurement:?}");
        assert_eq!(measurement.libcuda.version, "13.0");
        assert_eq!(measurement.tuning, Tuning::Free);
        let cores = std::thread::available_parallelism().unwrap().get();
        assert_eq!(measurement.cores as usize, cores);
        assert!(measurement.others.is_empty() && measurement.spread.is_none() && measurement.limit.is_none());
        // Left to themselves, Burn's threads may hold a little more or less than when they take turns.
        let known = |line: &String| line.contains("differs between the passes");
        assert!(run.assumptions.iter().all(known), "{:?}", run.assumptions);
        assert!(text.contains(&measurement.uuid), "{text}");
    }
    let seeds: Vec<_> = report
        .runs
        .iter()
        .map(|run| run.measurement.as_ref().unwrap().proof.seed)
        .collect();
    let again = measured(&card, &["-m", "transformer_inference"]).0;
    assert!(!seeds.contains(&again.runs[0].measurement.as_ref().unwrap().proof.seed));
}

#[test]
fn process_is_what_the_card_charges_context_and_modules_included() {
    let card = card("l4", "");
    let (report, _) = measured(&card, &["-m", "vgg16"]);
    let run = run(&report, "vgg16");
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
    // Looks are rare beside allocations: what they see is a lower bound.
    assert!(
        process <= Bytes(reserved.0 + CONTEXT + modules.bytes.0),
        "{process} of {reserved}"
    );
}

#[test]
fn live_is_that_of_the_estimate_to_the_byte_and_reserved_where_the_plan_is_the_same() {
    let card = card("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let models = ["-m", "transformer", "-m", "sequential*", "-m", "vgg16*"];
    let (report, _) = measured(&card, &[&models[..], &["--record", folder]].concat());
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
        assert_eq!(
            estimated.autotune.recorded, measured.autotune.recorded,
            "{}",
            measured.model
        );
        agree(measured, estimated);
    }
}

/// Live, and what the pass holds in which Burn's threads take turns in both ways of running. Cold and warm of a measurement
/// are races of those threads, which differ from run to run and most where the machine is busy, as it is here.
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
        let card = card("l4", &format!("nvml_processes={processes}\nnvml_idle={}\n", 300 << 20));
        let (report, text) = measured(&card, &["-m", "transformer_inference", "--verbose"]);
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
    let card = card("l4", "");
    std::fs::remove_file(card.path.join("libnvidia-ml.so.1")).unwrap();
    let (report, _) = measured(&card, &["-m", "transformer_inference"]);
    let run = &report.runs[0];
    assert_eq!(run.peaks.warm.process, None);
    assert_eq!(run.measurement.as_ref().unwrap().process, None);
    assert!(run.peaks.warm.reserved.is_some() && run.peaks.warm.live.is_some());
    // It is that of the profile, from a published reading.
    let profiles = Profiles::builtin().unwrap();
    let context = run.gpu.context.as_ref().unwrap();
    assert_eq!(context.bytes, profiles.get("l4").unwrap().context.value);
}

#[test]
fn other_processes_on_the_card_are_told_and_refused_where_it_is_to_be_exclusive() {
    let card = card("l4", &format!("nvml_other={}:{}\n", std::process::id(), 2_u64 << 30));
    let (report, text) = measured(&card, &["-m", "transformer_inference"]);
    let others = &report.runs[0].measurement.as_ref().unwrap().others;
    assert_eq!(
        (others[0].pid, others[0].bytes),
        (std::process::id(), Some(Bytes(2 << 30)))
    );
    assert!(
        text.contains("2 GiB") && text.contains(&std::process::id().to_string()),
        "{text}"
    );
    let refused = output(&card, &["measure", "-p", "zoo", "--exclusive"]);
    assert_eq!(refused.status.code(), Some(101));
    assert!(self::text(&refused).contains("in use by"), "{}", self::text(&refused));
}

#[test]
fn a_second_measurement_of_a_card_waits_for_the_first() {
    let card = card("l4", "");
    let start = || {
        let mut command = common::vram(&["measure", "-p", "zoo", "-m", "transformer_inference"]);
        card.apply(&mut command);
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
    // Other tests measure the same card, and both may have waited for them.
    assert!(waited.count() >= 1, "{said:?}");
    assert!(said.iter().all(|said| said.contains("1 run")), "{said:?}");
}

#[test]
fn a_large_card_can_be_measured_as_a_smaller_one() {
    let card = card("h200", "");
    let (report, _, text) = report(&card, &["measure", "-p", "zoo", "-m", "vgg16", "--limit", "4GiB"]);
    let run = run(&report, "vgg16");
    assert_eq!(run.gpu.total_bytes, Bytes(4 << 30), "{text}");
    assert_eq!(run.measurement.as_ref().unwrap().limit, Some(Bytes(4 << 30)));
    let oom = run.oom.as_ref().expect(&text);
    assert!(
        oom.reserved + oom.requested.unwrap() > run.gpu.available_bytes || oom.requested.unwrap().0 > 1 << 30,
        "{oom:?}"
    );
    let more = output(&card, &["measure", "-p", "zoo", "--limit", "500GiB"]);
    assert_eq!(more.status.code(), Some(2), "{}", self::text(&more));
}

#[test]
fn repeated_measurements_tell_how_far_they_lie_apart() {
    let card = card("l4", "");
    let (report, text) = measured(&card, &["-m", "transformer_inference", "--repeat", "2"]);
    let run = &report.runs[0];
    let spread = run.measurement.as_ref().unwrap().spread.clone().unwrap();
    assert_eq!(spread.repeats, 2);
    let [least, most] = spread.warm.live.unwrap();
    assert_eq!(
        (least, most),
        (run.peaks.warm.live.unwrap(), run.peaks.warm.live.unwrap())
    );
    let [least, most] = spread.cold.reserved.unwrap();
    assert!(least <= most && least > Bytes(0));
    assert!(text.contains("2 "), "{text}");
}

#[test]
fn a_card_is_chosen_by_number_or_by_uuid() {
    let card = card("l4", "devices=2\n");
    let second = "GPU-7672616d-0000-0001-0000-000000000001";
    for device in ["1", second, "GPU-7672616d-0000-0001-0000-000000000001"] {
        let (report, _) = measured(&card, &["-m", "transformer_inference", "--device", device]);
        assert_eq!(report.runs[0].measurement.as_ref().unwrap().uuid, second);
    }
    let unknown = output(&card, &["measure", "-p", "zoo", "--device", "7"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said: String = text(&unknown).split_whitespace().collect();
    assert!(said.contains(second), "{}", text(&unknown));
}

#[test]
fn what_runs_no_kernels_is_no_card() {
    // The driver as it is shipped, which does not pose.
    let folder = tempfile::tempdir().unwrap();
    let driver = driver::build(std::path::Path::new("rustc"), None, &common::target_folder()).unwrap();
    let card = card("l4", "");
    for name in ["libcuda.so", "libcuda.so.1", "libnvrtc.so", "libnvrtc.so.13"] {
        std::fs::remove_file(card.path.join(name)).unwrap();
        std::fs::copy(&driver.library, card.path.join(name)).unwrap();
    }
    let config = folder.path().join("driver.conf");
    let record = folder.path().join("driver.log");
    std::fs::write(
        &config,
        format!("mode=virtual\nrecord={}\n{}", record.display(), builtin("l4")),
    )
    .unwrap();
    let mut command = common::vram(&["measure", "-p", "zoo"]);
    card.apply(&mut command);
    command.env(driver::CONFIG_VARIABLE, &config);
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(
        text(&refused).contains("no GPU that runs kernels"),
        "{}",
        text(&refused)
    );
}

#[test]
fn without_cudas_headers_nothing_is_measured() {
    let card = card("l4", "");
    std::fs::remove_file(card.toolkit().join("include/cuda_runtime.h")).unwrap();
    let refused = output(&card, &["measure", "-p", "zoo"]);
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(text(&refused).contains("card::no_headers"), "{}", text(&refused));
}

#[test]
fn where_nothing_tells_who_uses_a_card_it_is_not_exclusive() {
    let card = card("l4", "nvml_processes=refused\n");
    let refused = output(&card, &["measure", "-p", "zoo", "--exclusive"]);
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    assert!(text(&refused).contains("card::unseen"), "{}", text(&refused));
}

#[test]
fn what_was_measured_of_a_card_goes_into_its_estimates() {
    let card = card("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-p", "zoo", "-m", "transformer_inference"];
    measured(&card, &["-m", "transformer_inference", "--record", folder]);
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
fn a_card_of_ones_own_is_estimated_with_what_was_recorded_on_the_card_it_is_like() {
    let card = card("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-p", "zoo", "-m", "transformer_inference"];
    measured(&card, &["-m", "transformer_inference", "--record", folder]);
    let (_folder, budgets) = common::budgets("version: 1\ngpu_profiles:\n  edge: { like: l4, total: 8 GiB }\n");
    let estimate = ["estimate", "--recordings", folder, "--budgets", &budgets, "-v", "--gpu"];
    let (edge, _, text) = common::report(&[&estimate[..], &["edge"], &model].concat());
    let (edge, own) = (
        run(&edge, "transformer_inference"),
        common::report(&[&estimate[..], &["l4"], &model].concat()).0,
    );
    let own = run(&own, "transformer_inference");
    assert!(edge.autotune.recorded > 0, "{:?}", edge.autotune);
    assert_eq!(edge.autotune, own.autotune);
    assert_eq!((&edge.recording, edge.gpu.id.as_str()), (&own.recording, "edge"));
    assert_eq!(edge.recording.as_ref().unwrap().gpu, "l4");
    let context = edge.gpu.context.as_ref().unwrap();
    assert_eq!((context.bytes, context.obtained), (Bytes(CONTEXT), Obtained::Assumed));
    let told = "nothing was recorded on `edge`: autotune's choices are those recorded on `l4`";
    assert!(
        edge.assumptions.iter().any(|line| line.starts_with(told)),
        "{:?}",
        edge.assumptions
    );
    assert!(!own.assumptions.iter().any(|line| line.contains("nothing was recorded")));
    assert!(text.contains(" recorded on l4 with driver 580.82.07, "), "{text}");
}

#[test]
fn a_measurement_replays_what_was_recorded_with_the_driver_that_is_here() {
    let card = card("l4", "");
    let recordings = tempfile::tempdir().unwrap();
    let folder = recordings.path().to_str().unwrap();
    let model = ["-m", "transformer_inference"];
    measured(&card, &[&model[..], &["--record", folder]].concat());
    // The same, as a newer driver's.
    let (here, newer) = ("580.82.07", "590.1");
    let (from, to) = (
        recordings.path().join("l4").join(here),
        recordings.path().join("l4").join(newer),
    );
    std::fs::create_dir(&to).unwrap();
    for file in ["report.json", "autotune.jsonl", "card.json"] {
        let text = std::fs::read_to_string(from.join(file)).unwrap();
        std::fs::write(
            to.join(file),
            text.replace(&format!("\"driver\": \"{here}\""), &format!("\"driver\": \"{newer}\"")),
        )
        .unwrap();
    }
    let driver = |run: &Run| run.recording.as_ref().unwrap().driver.clone();
    let (replayed, _) = measured(&card, &[&model[..], &["--recordings", folder]].concat());
    assert_eq!(driver(run(&replayed, "transformer_inference")), here);
    let arguments = ["estimate", "-p", "zoo", "--gpu", "l4", "--recordings", folder];
    let (estimated, ..) = common::report(&[&arguments[..], &model].concat());
    assert_eq!(
        driver(run(&estimated, "transformer_inference")),
        newer,
        "the same on every machine"
    );
}

#[test]
fn check_measures_where_there_is_a_card_and_estimates_the_declared_one_and_that_one() {
    let card = card("t4", "");
    let (_folder, budgets) = common::budgets(
        "version: 1\ngpu: l4\ndefaults: { drift: { warn: 20%, fail: 50% } }\nmodels:\n  transformer_inference:\n    reserved: 512 MiB\n    gpus: { t4: { reserved: 2 GiB } }\n",
    );
    let (report, exit, text) = report(
        &card,
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
fn a_card_that_is_there_and_cannot_be_used_is_never_silently_estimated() {
    let dev = tempfile::tempdir().unwrap();
    std::fs::write(dev.path().join("nvidiactl"), "").unwrap();
    let mut command = common::vram(&["check", "-p", "zoo", "-m", "transformer_inference"]);
    command.env("CARGO_VRAM_DEV", dev.path());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(101), "{}", text(&refused));
    let mut command = common::vram(&["check", "-p", "zoo", "-m", "transformer_inference", "--estimate"]);
    command.env("CARGO_VRAM_DEV", dev.path());
    let estimated = command.output().unwrap();
    assert_eq!(estimated.status.code(), Some(0), "{}", text(&estimated));
}

#[test]
fn a_model_over_several_cards_is_estimated_and_not_measured() {
    let card = card("l4", "");
    let manifest = common::manifest("fixtures/cards");
    let package = match common::is_burn_0_22() {
        true => ["--manifest-path", &manifest],
        false => ["-p", "cards"],
    };
    let model = [&package[..], &["-m", "transformer_split"]].concat();
    let (report, exit, text) = report(&card, &[&["measure"], &model[..]].concat());
    assert_eq!(exit, 101, "{text}");
    assert_eq!(report.runs[0].error.as_ref().unwrap().code, "too-few-cards");
    // Of Burn 0.22, the fixture is a workspace without budgets.
    let (_folder, file) = common::budgets("version: 1\ngpu: l4\nmodels:\n  transformer_split: { reserved: 20 GiB }\n");
    let budgets = match common::is_burn_0_22() {
        true => &["--budgets", &file][..],
        false => &[],
    };
    let (report, exit, text) = self::report(&card, &[&["check"], &model[..], budgets].concat());
    assert_eq!(exit, 0, "{text}");
    let [run] = report.runs.as_slice() else {
        panic!("{} runs\n{text}", report.runs.len());
    };
    assert_eq!((run.mode, run.cards.len()), (Mode::Estimate, 2));
    let skipped = report
        .skipped
        .iter()
        .find(|skipped| skipped.what.contains("transformer_split"));
    assert!(skipped.unwrap().why.contains("several cards"), "{text}");
}
