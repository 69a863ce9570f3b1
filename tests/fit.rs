//! `cargo vram fit`, through the binary, on a small model and a small GPU.

use cargo_vram::fit::{FitAnswer, GpuFit, SearchEnd};

use crate::common;

/// Budgets with a small GPU that is soon full.
const GPUS: &str = "\
version: 1
gpu: small
gpu_profiles:
  small: { like: l4, total: 1 GiB, name: A small GPU }
models: {}
";

/// Runs `fit`; returns its answer, the exit code and the output.
fn fit(arguments: &[&str]) -> (Option<FitAnswer>, i32, String) {
    let (folder, budgets) = common::budgets(GPUS);
    let file = folder.path().join("fit.json");
    let manifest = common::retained_loss();
    let mut all = vec![
        "fit",
        "--manifest-path",
        manifest,
        "-p",
        "retained-loss-before",
        "charted",
        "--budgets",
        &budgets,
    ];
    all.extend(arguments);
    let output = common::vram(&all)
        .args(["--message-format", "json", "--output"])
        .arg(&file)
        .output()
        .unwrap();
    let said = common::said(&output);
    let fit = std::fs::read(&file).ok();
    let fit = fit.map(|json| {
        common::is_valid("fit", std::str::from_utf8(&json).unwrap());
        serde_json::from_slice(&json).unwrap()
    });
    (fit, output.status.code().unwrap(), said)
}

/// The warm and cold peak of the process in an estimate, or `None` if it runs out of memory.
fn estimated(batch_size: u64) -> Option<(u64, u64)> {
    let (_folder, budgets) = common::budgets(GPUS);
    let set = format!("batch_size={batch_size}");
    let (report, ..) = common::report(&[
        "estimate",
        "--manifest-path",
        common::retained_loss(),
        "-p",
        "retained-loss-before",
        "--budgets",
        &budgets,
        "--set",
        &set,
    ]);
    let run = &report.runs[0];
    let process = |peak: cargo_vram::report::Peak| peak.process.unwrap().0;
    run.oom
        .is_none()
        .then(|| (process(run.peaks.warm), process(run.peaks.cold)))
}

fn only(fit: Option<FitAnswer>) -> GpuFit {
    let mut gpus = fit.unwrap().gpus;
    assert_eq!(gpus.len(), 1);
    gpus.remove(0)
}

#[test]
fn the_largest_batch_is_found_and_is_what_an_estimate_says() {
    let (answer, exit, said) = fit(&["--gpu", "small"]);
    let gpu = only(answer);
    assert_eq!((exit, gpu.ended), (0, SearchEnd::Found), "{said}");
    let largest = gpu.largest.unwrap();
    assert_eq!(gpu.too_large, Some(largest + 1));
    assert!(
        said.contains(&format!("batch_size {largest} fits, {} does not", largest + 1)),
        "{said}"
    );
    // `estimate` gives the same values for the largest size, and an out of memory for the next.
    let (warm, cold) = estimated(largest).unwrap();
    let found = gpu.probes.iter().find(|probe| probe.value == Some(largest)).unwrap();
    assert_eq!(found.peaks.warm.process.unwrap().0, warm);
    assert_eq!(found.peaks.cold.process.unwrap().0, cold);
    assert!(estimated(largest + 1).is_none());
    // Autotune's choices for another size do not change a value.
    let shared: Vec<_> = gpu
        .probes
        .iter()
        .filter(|probe| probe.shares_plan && probe.fits)
        .collect();
    for probe in shared.iter().rev().take(2) {
        let (warm, _) = estimated(probe.value.unwrap()).unwrap();
        assert_eq!(probe.peaks.warm.process.unwrap().0, warm, "{probe:?}");
    }

    // The headroom stays free, and the two sizes at the limit differ by `--multiple-of`.
    let (answer, _, said) = fit(&["--gpu", "small", "--headroom", "25%", "--multiple-of", "64", "--warm"]);
    let gpu = only(answer);
    let fewer = gpu.largest.unwrap();
    assert!(fewer < largest && fewer.is_multiple_of(64), "{said}");
    assert_eq!(gpu.too_large, Some(fewer + 64));
    assert_eq!(gpu.room.0, 768 << 20);
    assert!(gpu.probes.iter().any(|probe| probe.shares_plan), "{said}");
}

/// On this GPU, the first launch of the largest batch that fits warm does not fit. The search then goes by first
/// launches, and completes only the answer.
#[test]
fn first_launches_decide_where_they_need_more_than_later_ones() {
    let small = GPUS.replace("1 GiB", "4 GiB");
    let (folder, budgets) = common::budgets(&small);
    let inputs = ["--set", "height=64", "--set", "width=64", "--budgets", &budgets];
    let file = folder.path().join("fit.json");
    let output = common::vram(&["fit", "-p", "zoo", "sequential", "--gpu", "small"])
        .args(inputs)
        .args(["--message-format", "json", "--output"])
        .arg(&file)
        .output()
        .unwrap();
    let said = common::said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let answer: FitAnswer = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let gpu = only(Some(answer));
    let largest = gpu.largest.unwrap();
    assert_eq!(
        (gpu.ended, gpu.too_large),
        (SearchEnd::Found, Some(largest + 1)),
        "{said}"
    );
    let probe = |value| gpu.probes.iter().find(|probe| probe.value == Some(value)).unwrap();
    let found = probe(largest);
    assert!(!found.first_only && !found.shares_plan, "{found:?}");
    let later = found.peaks.warm.process.unwrap();
    assert!(probe(largest + 1).at_least && later < gpu.room, "{said}");

    let first_only = gpu.probes.iter().rev().find(|probe| probe.first_only);
    let first_only = first_only.unwrap_or_else(|| panic!("{said}"));
    let process = |value: u64| {
        let set = format!("batch_size={value}");
        let chosen = ["estimate", "-p", "zoo", "-m", "sequential", "--set", &set];
        let (report, ..) = common::report(&[&chosen[..], &inputs, &["--gpu", "small"]].concat());
        let run = report.runs.into_iter().next().unwrap();
        (run.oom.is_none(), run.peaks.warm.process, run.peaks.cold.process)
    };
    let cold = found.peaks.cold.process;
    assert_eq!(process(largest), (true, Some(later), cold));
    assert!(!process(largest + 1).0);
    let (fits, warm, cold) = process(first_only.value.unwrap());
    assert!(fits && warm.is_some() && first_only.fits);
    assert_eq!(
        (first_only.peaks.warm.process, first_only.peaks.cold.process),
        (None, cold)
    );
}

#[test]
fn gpus_are_told_by_what_they_have_left() {
    let (answer, exit, said) = fit(&["--set", "batch_size=200000"]);
    let gpus = answer.unwrap().gpus;
    assert_eq!(exit, 0, "{said}");
    assert!(gpus.is_sorted_by_key(|gpu| gpu.gpu.total_bytes));
    let left: Vec<_> = gpus.iter().map(|gpu| gpu.probes[0].left.unwrap()).collect();
    let fits: Vec<_> = gpus.iter().map(|gpu| gpu.probes[0].fits).collect();
    assert_eq!(fits, left.iter().map(|left| *left >= 0).collect::<Vec<_>>(), "{said}");
    assert!(
        (gpus[0].gpu.id.as_str(), fits[0]) == ("small", false) && fits[fits.len() - 1],
        "{said}"
    );
    assert!(said.contains("the smallest is"), "{said}");

    // No size of the range fits.
    let (answer, exit, said) = fit(&["--gpu", "small", "--range", "100000..200000"]);
    let gpu = only(answer);
    assert_eq!(
        (exit, gpu.ended, gpu.largest),
        (100, SearchEnd::NothingFits, None),
        "{said}"
    );
    assert!(said.contains("not even batch_size 100000 fits"), "{said}");
}

#[test]
fn what_cannot_be_searched_is_told_before_anything_is_run() {
    for (arguments, told) in [
        (
            &["--gpu", "small", "--vary", "batchsize"][..],
            "did you mean `batch_size`",
        ),
        (&["--gpu", "small", "--range", "64..8"], "64..8 is reversed"),
        (
            &["--gpu", "small", "--range", "5..7", "--multiple-of", "4"],
            "there is no value to try in 5..7",
        ),
        (
            &["--gpu", "small", "--set", "batch_size=8"],
            "`batch_size` is both set and varied",
        ),
        (&["--gpu", "small", "--headroom", "100%"], "below 100"),
    ] {
        let (answer, exit, said) = fit(arguments);
        assert_eq!((exit, answer.is_none()), (2, true), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn advice_is_the_shortest_list_of_changes_that_makes_it_fit() {
    let advise = |batch_size: &str| fit(&["--gpu", "t4", "--advise", "--set", batch_size]);
    let (found, code, said) = advise("batch_size=1024");
    let found = found.unwrap();
    assert_eq!((code, found.gpus.len()), (0, 1), "{said}");
    assert!(found.advised && said.contains("fits without changes"), "{said}");
    // A tensor of this model is larger than a quarter of a T4.
    let (found, code, said) = advise("batch_size=1048576");
    let found = found.unwrap();
    assert_eq!(code, 0, "{said}");
    let tried: Vec<_> = found.gpus.iter().map(|gpu| gpu.what_if.to_string()).collect();
    let first = ["", "mixed-f16", "f16", "sgd", "accumulate 2"];
    assert_eq!(tried[..5], first, "{said}");
    let fits: Vec<_> = found.gpus.iter().filter(|gpu| gpu.probes[0].fits).collect();
    assert!(said.contains(&format!("fits with {}", fits[0].what_if)), "{said}");
    assert!(
        said.contains("not tried, because Burn supports neither: checkpointing by segments"),
        "{said}"
    );
    for gpu in &found.gpus {
        let probe = &gpu.probes[0];
        let missing = probe.left.is_some_and(|left| left < 0);
        assert!(
            probe.fits || missing || probe.left.is_none(),
            "{}: {probe:?}",
            gpu.what_if
        );
    }
}

/// A compiled kernel is not compiled again in a later pass or for another program, and the values stay the same.
#[test]
fn kernels_that_are_found_change_no_figure() {
    let estimate_of = |package: &str, more: &[&str]| {
        let keep = tempfile::tempdir().unwrap();
        let manifest = common::retained_loss();
        let mut all = vec![
            "estimate",
            "--manifest-path",
            manifest,
            "-p",
            package,
            "--gpu",
            "l4",
            "--keep",
        ];
        all.push(keep.path().to_str().unwrap());
        all.extend(more);
        let (report, exit, said) = common::report(&all);
        assert_eq!(exit, 0, "{said}");
        let pass = |pass| {
            let record = keep.path().join(format!("estimate/case-0/0/{pass}/driver.log"));
            let record = std::fs::read_to_string(record).unwrap();
            let calls = |function: &str| {
                let of = format!(" function={function} count=");
                let count = record
                    .lines()
                    .find_map(|line| line.split_once(&of))
                    .map(|(_, rest)| rest);
                count.map_or(0, |rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
            };
            ["nvrtcCompileProgram", "cuModuleLoadData", "cuLaunchKernel"].map(calls)
        };
        let run = report.runs.into_iter().next().unwrap();
        (
            cargo_vram::report::Run {
                seconds: 0.0,
                pass_seconds: Vec::new(),
                ..run
            },
            ["cold", "warm"].map(pass),
        )
    };
    let estimate = |more: &[&str]| estimate_of("retained-loss-before", more);
    // A fault of the compiler, even one that is never reached, makes the run compile every kernel.
    let (compiled, passes) = estimate(&["--fault", "cold:nvrtcCompileProgram:1000000:6"]);
    if common::is_burn_0_22() {
        // The compiler of Burn 0.22 is in the program, so the driver cannot count the compilations.
        let (found, _) = estimate(&[]);
        return assert_eq!(compiled, found);
    }
    assert!(
        passes
            .iter()
            .all(|[compiles, loads, _]| compiles == loads && *loads > 0),
        "{passes:?}"
    );
    estimate(&[]);
    let (found, again) = estimate(&[]);
    assert_eq!(again, passes.map(|[_, loads, launches]| [0, loads, launches]));
    assert_eq!(compiled, found);
    let (_, [cold, warm]) = estimate_of("retained-loss-after", &[]);
    assert!(
        cold[0] == 0 && cold[1] > 0 && warm[0] == 0 && warm[1] > 0,
        "{cold:?} {warm:?}"
    );
}
