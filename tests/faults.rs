//! A driver that fails: each function in a run of ResNet-18, at its first, a middle and its last call, in estimates and
//! in measurements. The run ends with an error that names the function, with an out of memory, or with the same values
//! if Burn recovers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cargo_vram::bytes::Bytes;
use cargo_vram::driver::error_name;
use cargo_vram::report::{Report, Run};
use cargo_vram::run::record::{CallError, Record};

use crate::common;
use crate::common::Once;
use crate::common::gpu::{GpuFolder, builtin, gpu_folder};

/// A model with its options.
type Model = &'static [&'static str];

/// The model of the whole matrix, at a size at which a pass takes about a second. It calls the same functions at any size.
const RESNET18: Model = &[
    "-m",
    "resnet18",
    "--set",
    "batch_size=2",
    "--set",
    "image_size=64",
    "--steps",
    "2",
];
/// A model that calls the same functions as ResNet-18, in a fifth of the time.
const QUICK: Model = &["-m", "sequential", "--set", "batch_size=2", "--steps", "2"];

const OUT_OF_MEMORY: i64 = 2;
const LAUNCH_FAILED: i64 = 719;
const UNKNOWN: i64 = 999;
/// CUDA's codes for: deinitialized, device unavailable, invalid device, invalid context, uncorrectable ECC error,
/// NVLink error, illegal address, time-out, illegal instruction, system not ready.
const OTHERS: [i64; 10] = [4, 46, 101, 201, 214, 220, 700, 702, 715, 802];

/// The one failure from which Burn recovers with all values unchanged. Burn 0.21 then calls `cuMemAlloc`, which
/// succeeds. Burn 0.22 frees memory and tries again.
fn tolerated() -> (&'static str, i64) {
    match common::is_burn_0_22() {
        true => ("cuMemAlloc_v2", OUT_OF_MEMORY),
        false => ("cuMemAllocAsync", OUT_OF_MEMORY),
    }
}

/// How a model runs: as an estimate or as a measurement.
enum Way {
    Estimate(Model),
    Measure(Model, GpuFolder),
}

impl Way {
    fn all(model: Model) -> [Self; 2] {
        let context = "context=200000000\nmodule_each=65536\n";
        let gpu = gpu_folder(&(builtin("l4") + context));
        [Self::Estimate(model), Self::Measure(model, gpu)]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Estimate(_) => "estimate",
            Self::Measure(..) => "measure",
        }
    }

    /// Runs the model; returns its report and the exit code.
    fn run(&self, more: &[&str]) -> (Report, i32) {
        let mut arguments = vec![self.name(), "--archive-file", archive().to_str().unwrap()];
        let (Self::Estimate(model) | Self::Measure(model, _)) = self;
        arguments.extend(*model);
        // In a first pass of Burn 0.22, LLVM compiles all kernels again, on all cores, which takes long.
        arguments.extend(["--timeout", if common::is_burn_0_22() { "600s" } else { "60s" }]);
        if matches!(self, Self::Estimate(_)) {
            arguments.extend(["--gpu", "l4"]);
        }
        arguments.extend(more);
        let (report, exit, _) = common::report_of(&arguments, |command| {
            if let Self::Measure(_, gpu) = self {
                gpu.forget();
                gpu.apply(command);
            }
        });
        (report, exit)
    }
}

/// An archive of the zoo, built once. `FAULTS_ARCHIVE` can name an existing archive.
fn archive() -> &'static Path {
    static ARCHIVE: Once<PathBuf> = Once::new("faults", |folder| {
        if let Some(file) = std::env::var_os("FAULTS_ARCHIVE") {
            return file.into();
        }
        let file = folder.join("zoo.tar.zst");
        let output = common::output(&["archive", "-p", "zoo", "--output", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        file
    });
    ARCHIVE.get()
}

/// A run without a fault, and the number of calls of each function.
struct Whole {
    way: Way,
    run: Run,
    /// The file with autotune's choices, so that the other runs need no cold pass.
    plan: PathBuf,
    warm: BTreeMap<String, u64>,
    cold: BTreeMap<String, u64>,
    _folder: tempfile::TempDir,
}

impl Whole {
    fn of(way: Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A fault of the compiler, even one that is never reached, makes the run compile every kernel. So the number of
        // the compiler's calls does not depend on cached kernels.
        let compiles = "warm:nvrtcCompileProgram:1000000:6";
        let compiles = ["--fault", compiles];
        // Burn 0.22 compiles with LLVM inside the program, so there is no call of NVRTC.
        let compiles = if common::is_burn_0_22() { &[][..] } else { &compiles };
        let (first, exit) = way.run(&[compiles, &["--keep", folder.path().to_str().unwrap()]].concat());
        assert_eq!(exit, 0, "{:?}", first.runs);
        let case = kept(folder.path(), &way);
        let (warm, cold) = (
            record(folder.path(), &way, "warm").calls,
            record(folder.path(), &way, "cold").calls,
        );
        assert!(warm.len() > 20, "{warm:?}");
        let plan = folder.path().join("plan");
        std::fs::rename(case.join("cold-autotune"), &plan).unwrap();
        let (second, exit) = way.run(&["--plan", plan.to_str().unwrap()]);
        assert_eq!(exit, 0);
        Self {
            run: second.runs[0].clone(),
            way,
            plan,
            warm,
            cold,
            _folder: folder,
        }
    }

    /// The outcome of a run with one fault, in one word.
    fn with(&self, fault: &Fault) -> String {
        // If a pass tunes freely or its threads race, the number of calls differs from run to run, so the run may not
        // reach the last call.
        let mut fault = fault.clone();
        for _ in 0..8 {
            match self.once_with(&fault) {
                Ok(word) => return word,
                Err(calls) => fault.call = calls,
            }
        }
        panic!("{fault} was never reached");
    }

    /// Tries one run with the fault: its outcome, or the number of calls if the run did not reach the fault.
    fn once_with(&self, fault: &Fault) -> Result<String, u64> {
        let folder = tempfile::tempdir().unwrap();
        let pass = fault.to_string();
        let mut arguments = vec!["--fault", &pass, "--keep", folder.path().to_str().unwrap()];
        if fault.pass != "cold" {
            arguments.extend(["--plan", self.plan.to_str().unwrap()]);
        }
        let (report, exit) = self.way.run(&arguments);
        let record = record(folder.path(), &self.way, fault.pass);
        let told = |call: &CallError| call.detail == "injected";
        let is_reached = record.errors.iter().any(told) || !record.refusals.is_empty();
        if !is_reached {
            assert!(
                fault.pass == "cold",
                "{fault} was not reached, although the plan is the same"
            );
            return Err(record.calls.get(&fault.function).copied().unwrap_or(1));
        }
        Ok(self.word(fault, &report, exit))
    }

    fn word(&self, fault: &Fault, report: &Report, exit: i32) -> String {
        let run = &report.runs[0];
        let ended = match (&run.error, &run.oom) {
            (Some(error), _) => {
                assert_eq!(exit, 101, "{fault}: {error:?}");
                let named = error.message.raw().contains(&fault.function)
                    || fault.sticky && error.message.raw().contains("failed with");
                assert!(named, "{fault}: {error:?}");
                if let Some(name) = error_name(fault.code) {
                    let own = fault.function.starts_with("nvrtc") || error.message.raw().contains(name);
                    assert!(own, "{fault}: {error:?}");
                }
                let word = if error.message.raw().contains("did not finish") {
                    "error, after waiting"
                } else {
                    "error"
                };
                format!("{word}: {}", error.code)
            }
            (None, Some(oom)) => {
                assert_eq!((exit, fault.code), (0, OUT_OF_MEMORY), "{fault}: {oom:?}");
                assert!(
                    oom.function.as_ref().is_none_or(|told| *told == fault.function),
                    "{fault}: {oom:?}"
                );
                "out of memory".to_owned()
            }
            (None, None) => {
                let known = tolerated() == (fault.function.as_str(), fault.code);
                let candidate = fault.pass == "cold" && fault.is_of_a_candidate();
                assert!(known || candidate, "{fault} went by unnoticed");
                assert_eq!(exit, 0);
                self.same_figures(run, fault);
                "tolerated".to_owned()
            }
        };
        // A run with an error has no invented values.
        if run.error.is_some() {
            let warm = run.peaks.warm;
            assert!(fault.pass != "warm" || warm.reserved.is_none(), "{fault}: {warm:?}");
        }
        ended
    }

    /// Whether a measurement with the fault reserves about as much as one without.
    ///
    /// If threads run freely, one run in twelve reserves half as much as the others, with or without a fault. Then both
    /// runs are repeated.
    fn is_near_without(&self, fault: &Fault, run: &Run) -> bool {
        let reserved = |run: &Run| run.peaks.warm.reserved.unwrap().0;
        let near = |one: &Run, other: &Run| reserved(one).abs_diff(reserved(other)) * 20 <= reserved(other);
        let pass = fault.to_string();
        let again = |more: &[&str]| {
            let plan = ["--plan", self.plan.to_str().unwrap()];
            self.way.run(&[&plan, more].concat()).0.runs.remove(0)
        };
        near(run, &self.run) || (0..8).any(|_| near(&again(&["--fault", &pass]), &again(&[])))
    }

    fn same_figures(&self, run: &Run, fault: &Fault) {
        if fault.pass == "cold" {
            return;
        }
        let warm = run.peaks.warm;
        if common::is_burn_0_22() && fault.code == OUT_OF_MEMORY {
            // Before Burn 0.22 tries again, it also frees memory that it keeps for later launches. The report counts
            // this.
            assert_eq!(run.recovered_refusals, 1, "{fault}");
            assert!(
                warm.live.unwrap() <= self.run.peaks.warm.live.unwrap(),
                "{fault}: {warm:?}"
            );
            return;
        }
        assert_eq!(warm.live, self.run.peaks.warm.live, "{fault}");
        match &self.way {
            Way::Estimate(_) => assert_eq!(warm.reserved, self.run.peaks.warm.reserved, "{fault}"),
            Way::Measure(_, gpu) => {
                let counted = gpu.peaks();
                assert!(
                    counted.contains(&warm.reserved.unwrap()),
                    "{fault}: {warm:?}, {counted:?}"
                );
                assert!(self.is_near_without(fault, run), "{fault}: {:?}", run.peaks);
            }
        }
    }
}

/// The folder with the files of the only case.
fn kept(folder: &Path, way: &Way) -> PathBuf {
    folder.join(way.name()).join("case-0/0")
}

fn record(folder: &Path, way: &Way, pass: &str) -> Record {
    let text = std::fs::read_to_string(kept(folder, way).join(pass).join("driver.log")).unwrap();
    Record::parse(&text)
}

/// A fault to inject: a pass, a function, its call and a result code.
#[derive(Clone)]
struct Fault {
    pass: &'static str,
    function: String,
    call: u64,
    code: i64,
    sticky: bool,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            pass,
            function,
            call,
            code,
            sticky,
        } = self;
        let sticky = if *sticky { ":sticky" } else { "" };
        write!(f, "{pass}:{function}:{call}:{code}{sticky}")
    }
}

impl Fault {
    /// Whether the fault can be that of an autotune candidate, so that autotune chooses another.
    fn is_of_a_candidate(&self) -> bool {
        let call = CallError {
            time: 0,
            reserved: Bytes(0),
            function: self.function.clone(),
            code: self.code,
            detail: String::new(),
        };
        call.is_of_a_candidate() || call.is_out_of_memory()
    }
}

/// Whether a function reports errors by a result code. Some return no code or only texts.
fn is_told(function: &str) -> bool {
    !function.starts_with("cuGetError") && !function.contains("GetProcAddress")
}

/// The faults to try: at the first, a middle and the last call of each function.
fn faults(whole: &Whole, everything: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (pass, calls) in [("warm", &whole.warm), ("cold", &whole.cold)] {
        for (function, count) in calls.iter().filter(|(function, _)| is_told(function)) {
            let mut places = vec![1, count.div_ceil(2), *count];
            places.dedup();
            let mut codes = vec![(LAUNCH_FAILED, false), (UNKNOWN, true), (OUT_OF_MEMORY, false)];
            let mut elsewhere = OTHERS.map(|code| (code, false)).to_vec();
            if function.starts_with("nvrtc") {
                // NVRTC has its own codes: 1 is out of memory, 11 is an internal error.
                codes = vec![(1, false), (11, false)];
                elsewhere.clear();
            } else if pass == "cold" {
                elsewhere = codes.split_off(1);
            }
            if !everything {
                // One fault per function: the GPU is lost in the middle of the run.
                places = vec![count.div_ceil(2)];
                codes.retain(|(_, sticky)| *sticky);
                if pass == "cold" {
                    continue;
                }
            }
            // Try the codes that decide the outcome at every place, and all others at the middle call.
            let everywhere = places.iter().flat_map(|call| codes.iter().map(|code| (*call, *code)));
            let elsewhere = elsewhere
                .iter()
                .filter(|_| everything)
                .map(|code| (count.div_ceil(2), *code));
            faults.extend(everywhere.chain(elsewhere).map(|(call, (code, sticky))| Fault {
                pass,
                function: function.clone(),
                call,
                code,
                sticky,
            }));
        }
    }
    faults
}

/// Tries all faults, two at a time, and returns their outcomes.
fn try_all(whole: &Whole, faults: Vec<Fault>) -> Vec<(String, String)> {
    let left = Mutex::new(faults.into_iter());
    let ended = Mutex::new(Vec::new());
    let next = || left.lock().unwrap().next();
    // Only one measurement at a time can use a GPU.
    let threads = if matches!(whole.way, Way::Estimate(_)) { 2 } else { 1 };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(fault) = next() {
                    let word = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| whole.with(&fault)));
                    let word = word.unwrap_or_else(|panic| {
                        let said = panic.downcast_ref::<String>().cloned();
                        format!("WRONG: {}", said.unwrap_or_default())
                    });
                    let fault = format!("{} {fault}", whole.way.name());
                    keep(&fault, &word);
                    ended.lock().unwrap().push((fault, word));
                }
            });
        }
    });
    ended.into_inner().unwrap()
}

/// Appends the outcome of a fault to the file in `FAULTS`, for people.
fn keep(fault: &str, word: &str) {
    let Some(file) = std::env::var_os("FAULTS") else { return };
    let mut file = File::options().append(true).create(true).open(file).unwrap();
    writeln!(file, "{fault}\t{word}").unwrap();
}

fn judge(ended: &[(String, String)]) {
    let wrong: Vec<_> = ended.iter().filter(|(_, word)| word.starts_with("WRONG")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_gpu_that_falls_off_the_bus_is_told_by_the_function_that_found_it_gone() {
    for way in Way::all(QUICK) {
        let whole = Whole::of(way);
        let faults = faults(&whole, false);
        assert!(faults.len() > 15);
        judge(&try_all(&whole, faults));
    }
}

#[test]
fn one_allocation_that_fails_is_got_over() {
    for way in Way::all(QUICK) {
        let whole = Whole::of(way);
        let (function, code) = tolerated();
        let fault = Fault {
            pass: "warm",
            function: function.to_owned(),
            call: 2,
            code,
            sticky: false,
        };
        assert_eq!(whole.with(&fault), "tolerated");
    }
}

/// The whole matrix: hundreds of runs, which take most of an hour. `FAULTS=FILE` writes the outcome of each to a file;
/// `FAULTS_OF=measure:warm` tries only these.
#[test]
#[ignore = "takes most of an hour: run by hand when the driver, the probe or Burn's version changes"]
fn every_fault_at_every_place_is_told_or_got_over() {
    let of = std::env::var("FAULTS_OF").unwrap_or_default();
    let is_meant = |part: &str| of.is_empty() || of.split(':').any(|word| word == part);
    let mut all = Vec::new();
    for way in Way::all(RESNET18) {
        if is_meant(way.name()) {
            let whole = Whole::of(way);
            let mut faults = faults(&whole, true);
            faults.retain(|fault| is_meant(fault.pass));
            all.extend(try_all(&whole, faults));
        }
    }
    judge(&all);
}
