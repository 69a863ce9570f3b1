//! `fixtures/fooled`: one folder per trick that once let a change pass that should fail. Each trick gives an exit code
//! other than 0 and a reason; the honest model beside them passes.

use std::process::Command;
use std::sync::LazyLock;

use cargo_vram::bytes::Bytes;
use cargo_vram::explain::Explanation;
use cargo_vram::protocol::SizeOrder;
use cargo_vram::report::{Phase, Report, Rule, Run, Status, Step};

use crate::common;

/// The result of one check.
struct Checked {
    report: Report,
    exit: i32,
    text: String,
}

impl Checked {
    /// Checks models of the fixture with these budgets, which are lines below `models:`.
    fn of(budgets: &str, more: &[&str]) -> Self {
        Self::by(budgets, more, |_| {})
    }

    fn by(budgets: &str, more: &[&str], with: impl FnOnce(&mut Command)) -> Self {
        let (_folder, file) = common::budgets(&format!("version: 1\ngpu: l4\nmodels:\n{budgets}"));
        let manifest = common::manifest("fixtures/fooled");
        let arguments = ["check", "--estimate", "--manifest-path", &manifest, "--budgets", &file];
        let (report, exit, text) = common::report_of(&[&arguments, more].concat(), with);
        Self { report, exit, text }
    }

    fn run(&self, model: &str) -> &Run {
        common::run(&self.report, model)
    }

    /// The code and the message of a run's error.
    fn error(&self, model: &str) -> (&str, &str) {
        match &self.run(model).error {
            Some(error) => (error.code.as_str(), error.message.raw()),
            None => panic!("{model} has no error\n{}", self.text),
        }
    }

    #[track_caller]
    fn assert_error(&self, model: &str, code: &str, message: &str) {
        let (found, told) = self.error(model);
        assert_eq!(found, code, "{model}: {told}");
        assert!(told.contains(message), "{model}: {told}");
        assert!(self.run(model).error.as_ref().unwrap().help.is_some());
        // A run with an error does not pass a budget.
        let verdicts = self.report.verdicts.iter().filter(|verdict| verdict.model == model);
        let passes = verdicts.filter(|verdict| verdict.rule == Rule::Budget && verdict.status == Status::Pass);
        assert_eq!(passes.count(), 0, "{model}\n{}", self.text);
    }
}

/// A budget per model, and the options that select the models.
fn budgeted(models: &[&str]) -> (String, Vec<String>) {
    let budgets = models
        .iter()
        .map(|model| format!("  {model}: {{ reserved: 20 GiB }}\n"));
    let selected = models.iter().flat_map(|model| ["-m".to_owned(), (*model).to_owned()]);
    (budgets.collect(), selected.collect())
}

fn check(models: &[&str], more: &[&str]) -> Checked {
    check_with(models, more, |_| {})
}

fn check_with(models: &[&str], more: &[&str], with: impl FnOnce(&mut Command)) -> Checked {
    let (budgets, selected) = budgeted(models);
    let selected: Vec<&str> = selected.iter().map(String::as_str).collect();
    Checked::by(&budgets, &[&selected, more].concat(), with)
}

#[test]
fn a_model_with_nothing_wrong_passes() {
    let checked = check(&["honest", "honest_on_a_thread", "an_unused_head", "only_logs"], &[]);
    assert_eq!(checked.exit, 0, "{}", checked.text);
    // The start of the backward phase is found in the second step at the latest.
    let steps = &checked.run("an_unused_head").steps;
    let backward = |step: &Step| step.phases.iter().any(|peaks| peaks.phase == Phase::Backward);
    // Burn 0.22 does not show when the backward phase starts in a `TrainStep`, so the forward phase includes it.
    if !common::is_burn_0_22() {
        assert_eq!(steps.iter().map(backward).collect::<Vec<_>>(), [false, true, true]);
    }
    // This model reads its loss, but does the same with every value.
    let only_logs = checked.run("only_logs");
    let reads = if common::is_burn_0_22() {
        only_logs.steps.len() as u64
    } else {
        3
    };
    assert_eq!(only_logs.device_reads, reads);
}

#[test]
fn steps_that_were_not_run_are_missed() {
    let models = [
        "breaks",
        "catches",
        "catches_within",
        "skips",
        "takes",
        "learns_once",
        "hides_panics",
        "resumes",
        "hides_what_was_too_large",
        "another_runs_them",
    ];
    let checked = check(&models, &[]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    checked.assert_error("breaks", "model-exited", "ran 2 of 3 steps");
    checked.assert_error("catches", "model-panicked", "caught the panic: no more data");
    checked.assert_error("catches_within", "model-panicked", "caught the panic: no more data");
    checked.assert_error("skips", "no-gpu-work", "step 2 of 3 launches no kernel");
    checked.assert_error("takes", "model-exited", "ran 1 of 3 steps");
    checked.assert_error("learns_once", "no-gpu-work", "trains in only 1 of 3 steps");
    checked.assert_error("hides_panics", "model-panicked", "its own panic hook hid the panic");
    assert_eq!(checked.run("resumes").error, None, "a resumed unwind is not a panic");
    // Burn 0.22 does not allocate a tensor that nothing uses, even a large one.
    if !common::is_burn_0_22() {
        checked.assert_error(
            "hides_what_was_too_large",
            "model-panicked",
            "its own panic hook hid the panic",
        );
    }
    checked.assert_error("another_runs_them", "model-exited", "ran 2 of 3 steps");
    // The number of steps in the error is that of `--steps`, not the minimum.
    let ten = check(&["breaks"], &["--steps", "10"]);
    assert_eq!(ten.exit, 101);
    ten.assert_error("breaks", "model-exited", "ran 2 of 10 steps");
}

#[test]
fn a_model_that_leaves_the_gpu_alone_is_no_model_of_nothing() {
    let models = [
        "empty",
        "on_the_processor",
        "a_token_tensor",
        "forward_alone",
        "unmarked",
    ];
    let checked = check(&models, &[]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    checked.assert_error("empty", "no-gpu-work", "never uses the GPU");
    checked.assert_error("on_the_processor", "no-gpu-work", "never uses the GPU");
    checked.assert_error("a_token_tensor", "no-gpu-work", "step 0 of 3 launches no kernel");
    checked.assert_error(
        "forward_alone",
        "no-gpu-work",
        "launches no kernel in any backward phase",
    );
    checked.assert_error("unmarked", "no-gpu-work", "never begins the backward phase");
    let help = checked.run("unmarked").error.as_ref().unwrap().help.as_ref().unwrap();
    assert!(help.raw().contains("step.phase(Phase::Backward)"), "{help}");
}

#[test]
fn a_model_that_differs_from_run_to_run_never_passes_by_chance() {
    let models = [
        "random_batches",
        "random_layers",
        "a_sets_order",
        "the_second",
        "the_seed_of_a_map",
    ];
    for _ in 0..3 {
        let checked = check(&models, &[]);
        assert_eq!(checked.exit, 101, "{}", checked.text);
        for model in models {
            checked.assert_error(model, "nondeterministic", "the model is not deterministic");
        }
    }
    // The check also finds it on another GPU, which has other kernels.
    let checked = check(&["random_batches"], &["--gpu", "h200"]);
    assert_eq!(checked.exit, 101);
    checked.assert_error("random_batches", "nondeterministic", "the model is not deterministic");
}

#[test]
fn the_largest_of_several_runs_is_judged_where_a_model_may_differ() {
    let within = "  random_batches: { reserved: 20 GiB, nondeterministic: allowed }\n";
    let checked = Checked::of(within, &["-m", "random_batches", "--repeat", "4"]);
    assert_eq!(checked.exit, 0, "{}", checked.text);
    let run = checked.run("random_batches");
    let range = run.range.as_ref().unwrap();
    assert_eq!(range.repeats, 4);
    let [least, most] = range.warm.live.unwrap();
    assert!(least < most);
    assert_eq!(run.peaks.warm.live, Some(most));
    assert_eq!(run.peaks.cold.reserved, Some(range.cold.reserved.unwrap()[1]));
    assert!(
        checked
            .text
            .contains("differs from run to run; the largest of 4 runs counts"),
        "{}",
        checked.text
    );
    let over = "  random_batches: { live: 64 KiB, nondeterministic: allowed }\n";
    let checked = Checked::of(over, &["-m", "random_batches"]);
    assert_eq!(checked.exit, 100, "{}", checked.text);
}

#[test]
fn a_crash_in_one_of_the_runs_that_may_differ_fails() {
    let budgets = "  a_crash_in_another_second: { reserved: 20 GiB, nondeterministic: allowed }\n";
    let checked = Checked::of(budgets, &["-m", "a_crash_in_another_second"]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    checked.assert_error(
        "a_crash_in_another_second",
        "model-panicked",
        "a bug that few runs meet",
    );
}

#[test]
fn values_read_from_the_gpu_do_not_decide_what_is_judged() {
    let models = [
        "only_normal_losses",
        "stops_early",
        "as_many_as_it_says",
        "panics_if_any",
        "keeps_the_best",
        "one_for_each_label",
    ];
    let checked = check(&models, &[]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    // With losses of zero, this model never runs a backward phase.
    checked.assert_error("only_normal_losses", "no-gpu-work", "backward phase");
    checked.assert_error("stops_early", "data-dependent", "in the backward phase of step 1");
    let differs = match common::is_burn_0_22() {
        // The driver cannot know that a kernel of Burn 0.22 writes integers, so a read returns the bits of 1.0.
        true => "finishes the first pass but not the second",
        false => "in the forward phase of step 0",
    };
    checked.assert_error("as_many_as_it_says", "data-dependent", differs);
    checked.assert_error("panics_if_any", "data-dependent", "more than a half");
    checked.assert_error("keeps_the_best", "data-dependent", "");
    checked.assert_error("one_for_each_label", "data-dependent", "");
}

#[test]
fn the_larger_of_both_passes_is_judged_where_the_work_may_depend_on_values() {
    if common::is_burn_0_22() {
        // The bits of 1.0 as an integer ask for more numbers than fit on a GPU.
        return;
    }
    let models = ["as_many_as_it_says", "panics_if_any"];
    let allowed = "{ reserved: 20 GiB, control_flow: data-dependent }";
    let budgets: String = models.iter().map(|model| format!("  {model}: {allowed}\n")).collect();
    let selected = models.iter().flat_map(|model| ["-m", *model]).collect::<Vec<_>>();
    let checked = Checked::of(&budgets, &selected);
    assert_eq!(checked.exit, 0, "{}", checked.text);
    // If reads return zeros, the model allocates 256 KiB; with ones, twice as much.
    assert!(checked.run("as_many_as_it_says").peaks.warm.live.unwrap() >= Bytes(512 << 10));
    let refused = Checked::of(
        "  as_many_as_it_says: { live: 300 KiB, control_flow: data-dependent }\n",
        &["-m", "as_many_as_it_says"],
    );
    assert_eq!(refused.exit, 100, "{}", refused.text);
}

#[test]
fn what_other_processes_hold_counts() {
    let checked = check(&["honest", "a_helper", "three_helpers", "one_after_another"], &[]);
    let reserved = |model: &str| checked.run(model).peaks.warm.reserved.unwrap();
    let live = |model: &str| checked.run(model).peaks.warm.live.unwrap();
    assert_eq!(checked.exit, 0, "{}", checked.text);
    let helper = reserved("a_helper") - reserved("honest");
    assert!(helper >= Bytes(64 << 20), "{helper}");
    if common::is_burn_0_22() {
        // A helper measures the GPU's throughput with buffers of a GiB unless another did so before, so helpers differ.
        let over = Checked::of("  a_helper: { reserved: 60 MiB }\n", &["-m", "a_helper"]);
        return assert_eq!(over.exit, 100, "{}", over.text);
    }
    assert_eq!(reserved("three_helpers") - reserved("honest"), Bytes(3 * helper.0));
    assert_eq!(live("a_helper") - live("honest"), helper);
    // Helpers that run one after another count as one.
    assert_eq!(reserved("one_after_another"), reserved("a_helper"));
    // Each process has its own context.
    let process = |model: &str| checked.run(model).peaks.warm.process.unwrap() - reserved(model);
    assert_eq!(process("three_helpers"), Bytes(4 * process("honest").0));
    let over = Checked::of("  a_helper: { reserved: 60 MiB }\n", &["-m", "a_helper"]);
    assert_eq!(over.exit, 100, "{}", over.text);
}

#[test]
fn processes_together_run_out_of_memory_that_each_has() {
    let checked = check(&["more_than_there_is"], &[]);
    assert_eq!(checked.exit, 100, "{}", checked.text);
    assert!(checked.run("more_than_there_is").oom.is_some());
}

#[test]
fn what_another_process_was_refused_is_out_of_memory() {
    let checked = check(&["a_refused_helper"], &[]);
    assert_eq!(checked.exit, 100, "{}", checked.text);
    assert!(checked.run("a_refused_helper").oom.is_some(), "{}", checked.text);
}

#[test]
fn how_a_process_ends_matters() {
    let models = ["faults_at_exit", "aborts_at_exit", "leaves_at_exit", "fails_at_exit"];
    let checked = check(&models, &[]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    checked.assert_error(
        "faults_at_exit",
        "model-aborted",
        "signal 11 ended the model's process after its last step",
    );
    checked.assert_error(
        "aborts_at_exit",
        "model-aborted",
        "signal 6 ended the model's process after its last step",
    );
    checked.assert_error("leaves_at_exit", "model-exited", "without running its exit handlers");
    checked.assert_error(
        "fails_at_exit",
        "model-exited",
        "exited with code 3 after its last step",
    );
}

#[test]
fn leaks_are_found_whatever_their_period() {
    let models = [
        "keeps_losses",
        "keeps_predictions",
        "keeps_some",
        "releases_once",
        "settles",
        "honest",
    ];
    let budgets: String = std::iter::once("  honest: { reserved: 1 GiB, steps: 12 }\n".to_owned())
        .chain(
            models
                .iter()
                .filter(|model| **model != "honest")
                .map(|model| format!("  {model}: {{ reserved: 1 GiB, steps: 10 }}\n")),
        )
        .collect();
    let selected = models.iter().flat_map(|model| ["-m", *model]).collect::<Vec<_>>();
    let checked = Checked::of(&budgets, &selected);
    assert_eq!(checked.exit, 100, "{}", checked.text);
    let leaks: Vec<_> = checked
        .report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Leak)
        .collect();
    let mut leaking: Vec<_> = leaks.iter().map(|verdict| verdict.model.as_str()).collect();
    leaking.sort_unstable();
    assert_eq!(
        leaking,
        ["keeps_losses", "keeps_predictions", "keeps_some", "releases_once"],
        "{}",
        checked.text
    );
    let told = |model: &str| &leaks.iter().find(|verdict| verdict.model == model).unwrap().message;
    // One model leaks 640 numbers per step, the other 4096 in every fourth step. With Burn 0.22, fusion allocates those
    // of the last step later.
    let leaves = if common::is_burn_0_22() {
        "live memory grows on average by 2."
    } else {
        "live memory grows on average by 2.50 KiB per step, 20 KiB over 8 steps"
    };
    assert!(
        told("keeps_predictions").raw().starts_with(leaves),
        "{}",
        told("keeps_predictions")
    );
    assert!(
        told("keeps_some")
            .raw()
            .starts_with("live memory grows on average by 4 KiB per step"),
        "{}",
        told("keeps_some")
    );
    // The budget sets the number of steps, and the command line overrides it.
    assert_eq!(checked.run("honest").steps.len(), 12);
    let three = Checked::of(&budgets, &["-m", "keeps_losses", "--steps", "3"]);
    assert_eq!((three.exit, three.run("keeps_losses").steps.len()), (0, 3));
    assert!(three.text.contains("skipped: leaks"), "{}", three.text);
}

/// An empty library with the file name of a CUDA driver.
static OTHER_DRIVER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("lib.rs");
    std::fs::write(&source, "").unwrap();
    common::gpu::compile(&source, &folder.path().join("libcuda.so.1"), &[]);
    std::os::unix::fs::symlink("libcuda.so.1", folder.path().join("harmless.so")).unwrap();
    folder
});

#[test]
fn another_driver_that_was_opened_by_its_path_is_seen() {
    let path = |name: &str| OTHER_DRIVER.path().join(name);
    let with = |command: &mut Command| {
        command.env("FOOLED_DRIVER", path("libcuda.so.1"));
        command.env("FOOLED_DRIVER_LINK", path("harmless.so"));
    };
    let checked = check_with(&["by_path", "by_link"], &[], with);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    for model in ["by_path", "by_link"] {
        checked.assert_error(model, "no-driver", "loaded a CUDA driver that does not count memory");
        let (_, message) = checked.error(model);
        assert!(message.contains(path("libcuda.so.1").to_str().unwrap()), "{message}");
    }
}

/// Two checkouts share a target folder. Cargo takes a package at the same place in both for one package, and would find
/// the program of the other checkout up to date, if the program did not depend on the folder of its package.
#[test]
fn the_program_of_another_checkout_is_never_run_for_this_one() {
    let here = crate::growth::before("twice", &["batch-constant".to_owned()]);
    let there = crate::growth::before("twice", &["dtype".to_owned()]);
    let list = |of: &crate::common::repository::Repository| {
        let listed = common::vram(&["list"]).current_dir(of.folder.root()).output().unwrap();
        common::said(&listed)
    };
    // Built last, so its program is newer than all files of the other one.
    let listed = list(&there);
    assert!(
        listed.contains("dtype") && !listed.contains("batch_constant"),
        "{listed}"
    );
    let listed = list(&here);
    assert!(
        listed.contains("batch_constant") && !listed.contains("dtype"),
        "{listed}"
    );
}

#[test]
fn sizes_that_vary_are_judged_by_the_order_that_needs_most() {
    let models = ["texts_of_all_lengths", "batches_of_three_sizes"];
    let checked = check(&models, &[]);
    assert_eq!(checked.exit, 0, "{}", checked.text);
    for model in models {
        let run = checked.run(model);
        let varying = run.varying.as_ref().unwrap();
        let orders: Vec<_> = varying.orders.iter().map(|memory| memory.order).collect();
        assert_eq!(orders, SizeOrder::ALL);
        assert!(varying.orders.iter().all(|memory| memory.is_complete), "{varying:?}");
        for memory in varying.orders.iter().filter(|memory| memory.order.varies()) {
            // With Burn 0.22, rounds follow until one reserves nothing more.
            let is_enough = if common::is_burn_0_22() {
                memory.steps >= 16
            } else {
                memory.steps == 16
            };
            assert!(is_enough && !memory.still_grows(), "{model}: {memory:?}");
        }
        let reserved = |order: SizeOrder| {
            let memory = varying.orders.iter().find(|memory| memory.order == order).unwrap();
            memory.peaks.warm.reserved.unwrap()
        };
        let most = SizeOrder::ALL.map(reserved).into_iter().max().unwrap();
        assert_eq!(run.peaks.warm.reserved, Some(most));
        assert!(reserved(SizeOrder::Smallest) < reserved(SizeOrder::Largest));
        let [rising, falling, shuffled] = [SizeOrder::Rising, SizeOrder::Falling, SizeOrder::Shuffled].map(reserved);
        let highest = rising.max(falling).max(shuffled);
        let fragmentation = highest.saturating_sub(reserved(SizeOrder::Largest));
        assert_eq!(varying.fragmentation, Some(fragmentation));
        assert!(checked.text.contains("fragmentation"), "{}", checked.text);
    }
    let sampled = |model: &str| {
        checked
            .run(model)
            .assumptions
            .iter()
            .any(|of| of.code() == "sizes-sampled")
    };
    assert!(models.into_iter().all(sampled));

    let of_texts = checked.run("texts_of_all_lengths").varying.as_ref().unwrap();
    assert!(of_texts.fragmentation > Some(Bytes::GIB), "{of_texts:?}");

    // One size alone would pass a limit between both values.
    let of = |inputs: &str, limit: u64| {
        let budget = format!("  texts_of_all_lengths: {{ reserved: {limit} B{inputs} }}\n");
        Checked::of(&budget, &["-m", "texts_of_all_lengths"])
    };
    let varying = checked.run("texts_of_all_lengths");
    let limit = varying.peaks.warm.reserved.unwrap().0 - 1;
    let alone = of(", inputs: { seq_len: 512 }", limit);
    assert_eq!(alone.exit, 0, "{}", alone.text);
    let run = alone.run("texts_of_all_lengths");
    assert_eq!(run.varying, None);
    let largest = &varying.varying.as_ref().unwrap().orders[1];
    assert_eq!(run.peaks, largest.peaks);
    let failed = of("", limit);
    assert_eq!(failed.exit, 100, "{}", failed.text);
}

#[test]
fn savings_of_sizes_that_vary_are_of_the_largest_sizes() {
    let manifest = common::manifest("fixtures/fooled");
    let of = |command: &[&str]| {
        let gpu = ["--manifest-path", &manifest, "--gpu", "l4"];
        common::output(&[command, &gpu, &["--message-format", "json"]].concat())
    };
    let output = of(&["explain", "texts_of_all_lengths", "--savings"]);
    let explanation: Explanation =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", common::said(&output)));
    let said = &explanation.run.assumptions;
    assert!(said.iter().any(|of| of.code() == "largest-sizes"), "{said:?}");

    let half = |more: &[&str]| {
        let estimate = ["estimate", "-m", "texts_of_all_lengths", "--dtype", "f16"];
        let report: Report = serde_json::from_slice(&of(&[&estimate, more].concat()).stdout).unwrap();
        let run = report.runs.into_iter().find(|run| !run.what_if.is_none());
        run.unwrap().peaks.warm.reserved
    };
    let alone = half(&["--set", "seq_len=512"]);
    let mut savings = explanation.savings.iter();
    let saving = savings.find(|saving| saving.code.raw() == "half-precision").unwrap();
    assert_eq!(saving.reserved, alone);
    // All sizes one after the other reserve more.
    assert!(half(&[]) > alone);
    let before = explanation.run.peaks.warm.reserved.unwrap();
    assert_eq!(
        saving.saved_reserved,
        Some(i64::try_from(before.0).unwrap() - i64::try_from(saving.reserved.unwrap().0).unwrap())
    );
}

#[test]
fn a_range_that_cannot_be_run_is_an_error() {
    let models = [
        ("a_size_before_the_first_step", "before the first step"),
        ("a_range_without_sizes", "has no sizes"),
        ("asks_once", "only 1 of 16 steps asked for the size"),
        ("a_range_within_a_step", "declared after the first step"),
    ];
    let checked = check(&models.map(|(model, _)| model), &[]);
    assert_eq!(checked.exit, 101, "{}", checked.text);
    for (model, message) in models {
        checked.assert_error(model, "impossible", message);
    }
}

#[test]
fn a_leak_that_only_other_sizes_show_is_one() {
    let model = "keeps_a_loss_of_each_change";
    let checked = check(&[model], &[]);
    assert_eq!(checked.exit, 100, "{}", checked.text);
    let leaks = checked
        .report
        .verdicts
        .iter()
        .filter(|verdict| verdict.rule == Rule::Leak);
    let messages: Vec<_> = leaks.map(|verdict| verdict.message.raw()).collect();
    assert_eq!(messages.len(), 2, "rising and falling: {messages:?}");
    assert!(
        messages[0].contains("with rising sizes, live memory grows by at least"),
        "{messages:?}"
    );
    let budget = format!("  {model}: {{ reserved: 1 GiB, inputs: {{ batch: 64 }}, steps: 10 }}\n");
    let fixed = Checked::of(&budget, &["-m", model]);
    assert_eq!(fixed.exit, 0, "{}", fixed.text);
}
