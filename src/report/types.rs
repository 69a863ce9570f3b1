//! The types of the report. Their names are the format: renaming one needs a new version.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::peaks::{Mode, Pass, Peaks};
use super::{
    Assumption, EpochMemory, ErrorCode, GrowthExplanation, Measurement, Rule, Skipped, Spread, Status, Tuning,
    VaryingSizes, Verdict,
};
use crate::bytes::Bytes;
use crate::protocol::{BurnFeatures, SizeOrder, WhatIf};
pub use crate::protocol::{Phase, Task};
pub use crate::untrusted::{Foreign, PlainName};

/// The version of the report format that this program writes.
pub const REPORT_VERSION: u32 = 2;

/// The result of one `check`, `estimate` or `measure` over all models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The version of this format.
    #[schemars(extend("const" = REPORT_VERSION))]
    pub version: u32,
    /// The program that wrote the report.
    pub tool: Tool,
    /// The command that wrote the report; null in reports of older versions.
    #[serde(default)]
    pub command: Option<WrittenBy>,
    /// The git commit of the workspace; null if the workspace is not a git checkout.
    pub commit: Option<Foreign>,
    /// Whether the workspace had changes on top of that commit, untracked files included; null if unknown.
    pub dirty: Option<bool>,
    /// The part of the models that was run, such as `hash:1/4`; null if all selected models were run.
    pub partition: Option<Foreign>,
    /// Every selected model as `package/model`, in all parts, whether or not it was run.
    pub expected: Vec<Foreign>,
    /// The verdicts that a check of all parts must have: one entry per budget of each expected model; absent if there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_verdicts: Vec<ExpectedVerdict>,
    /// The worst status of all verdicts and errors.
    pub status: Status,
    /// One entry per model (or budget or what-if), mode and GPU.
    pub runs: Vec<Run>,
    /// The verdicts of budgets and baselines about the runs.
    pub verdicts: Vec<Verdict>,
    /// What the command skipped, and why.
    pub skipped: Vec<Skipped>,
    /// The git revision that the report is compared with; absent if the command named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Targets whose models could not be run at all.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Why the values of failed models grew; only with `check --why`, and absent if there is nothing to explain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<GrowthExplanation>,
}

/// A command that writes reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WrittenBy {
    /// `cargo vram check`, which compares its runs with budgets and baselines.
    Check,
    /// `cargo vram estimate`, which gives no verdicts.
    Estimate,
    /// `cargo vram measure`, which gives no verdicts.
    Measure,
}

impl WrittenBy {
    /// Returns the name of the subcommand, as typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Estimate => "estimate",
            Self::Measure => "measure",
        }
    }
}

/// A budget that a check must have a verdict on. A verdict that only says "no limit" counts, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ExpectedVerdict {
    /// The package that declares the model.
    pub package: PlainName,
    /// The budget's name, which is usually the model's.
    pub model: PlainName,
    /// The GPU's id, such as `l4`.
    pub gpu: PlainName,
}

/// The git revision that a report is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// The revision as the user named it, such as `origin/main`.
    pub revision: Foreign,
    /// The commit at which the checked-out branch left that revision (the merge base).
    pub commit: Foreign,
    /// The folder of the workspace within the repository, such as `model/`; absent if it is the top folder.
    #[serde(default, skip_serializing_if = "Foreign::is_empty")]
    pub folder: Foreign,
    /// Every limit that differs between that commit and the checked-out one.
    pub edited: Vec<EditedLimit>,
    /// Every dependency whose version in `Cargo.lock` differs.
    #[serde(default)]
    pub dependencies: Vec<ChangedDependency>,
}

/// A dependency whose version differs from the base's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedDependency {
    /// The name of the package.
    pub name: Foreign,
    /// The versions that only the base has, such as `0.21.0`.
    pub before: Vec<Foreign>,
    /// The versions that only the checked-out commit has.
    pub after: Vec<Foreign>,
}

/// A limit that the change under review edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditedLimit {
    /// The budget's key, `model` or `package/model`; null for a limit in `defaults`.
    pub model: Option<Foreign>,
    /// The limit as a path of keys: `reserved.fail`, `gpus.h200.live.warn`, `growth.live.ignore`.
    pub limit: Foreign,
    /// The old value as the file writes it; null if the limit is new.
    pub before: Option<Foreign>,
    /// The new value as the file writes it; null if the limit was removed.
    pub after: Option<Foreign>,
    /// The budget file, relative to the workspace root.
    pub file: Foreign,
    /// The line of the limit, from 1; null if the limit was removed.
    pub line: Option<u32>,
    /// Whether the edit permits something that was not permitted before.
    #[serde(default)]
    pub loosens: bool,
}

impl Baseline {
    /// Whether a user can accept another value: values of a file can be replaced, and those of another revision's own
    /// models cannot.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        self.from != BaselineFrom::Rebuilt
    }
}

impl EditedLimit {
    /// Returns the old and the new value as they are, to pass them to code that escapes them; `none` for none.
    pub(crate) fn raw_values(&self) -> [&str; 2] {
        [&self.before, &self.after].map(|value| value.as_ref().map_or("none", Foreign::raw))
    }
}

/// The values that a run is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Where the baseline comes from.
    pub from: BaselineFrom,
    /// The version of Burn that the baseline was run with.
    pub burn: Foreign,
    /// The inputs that the baseline was run with.
    pub inputs: BTreeMap<PlainName, u64>,
    /// The number of parameters, learnable and not; null if unknown.
    pub parameters: Option<u64>,
    /// The peaks of the baseline.
    pub peaks: Peaks,
    /// Other differences from this run, which are the likely cause of a changed value: `burn 0.21.0 → 0.22.0`.
    pub differs: Vec<Foreign>,
}

/// Where a baseline comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BaselineFrom {
    /// From `budgets.lock`: accepted with `cargo vram bless`.
    Lock,
    /// From the base's `budgets.lock`.
    Base,
    /// From a run: the base was built and run.
    Rebuilt,
}

/// Why the models of a target could not be run at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The name of the package.
    pub package: PlainName,
    /// The benchmark target; null if the problem is not about one target.
    pub target: Option<Foreign>,
    /// A short, stable name of the problem, such as `build-failed`.
    pub code: ErrorCode,
    /// What happened.
    pub message: Foreign,
    /// What to do about it; null if there is no advice.
    pub help: Option<Foreign>,
}

impl Problem {
    /// Returns the message and the help as they are, for an error that escapes them.
    pub(crate) fn into_raw(self) -> (String, Option<String>) {
        (self.message.into_raw(), self.help.map(Foreign::into_raw))
    }
}

/// The program that wrote a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// The name of the program: `cargo-vram`.
    pub name: Foreign,
    /// The version of the program.
    pub version: Foreign,
    /// A hash over everything that an estimate depends on besides the model: tool, driver, recordings, GPU profiles.
    pub fingerprint: Foreign,
}

/// How long a pass took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassSeconds {
    /// The pass.
    pub pass: Pass,
    /// Its wall-clock time in seconds.
    pub seconds: f64,
}

/// How many steps a pass ran until the allocator reserved nothing more. The allocator of Burn 0.22 adapts its pages to
/// what it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Settling {
    /// The number of steps that the pass ran.
    pub steps: u32,
    /// Whether the last two steps reserved nothing more.
    pub settled: bool,
}

/// Whether a value is that of a document without it. Needed by serde.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One model on one GPU in one mode, with its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The model's name in `cargo_vram::models!`.
    pub model: PlainName,
    /// The package that declares the model.
    pub package: PlainName,
    /// The name of the budget that this run belongs to; absent if it is the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<PlainName>,
    /// Whether the values are estimated or measured.
    pub mode: Mode,
    /// Training or inference; null if the model died before it reported this.
    pub task: Option<Task>,
    /// The version of Burn.
    pub burn: Foreign,
    /// The features of Burn that affect memory; absent in older reports and if the model died before it reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<BurnFeatures>,
    /// The inputs that the model asked for, with the values it got; if it died before, the inputs that it was to get.
    pub inputs: BTreeMap<PlainName, u64>,
    /// The what-if overrides applied to this run; absent if there are none.
    #[serde(default, skip_serializing_if = "WhatIf::is_none")]
    pub what_if: WhatIf,
    /// The name of a what-if: the model's or its budget's name with the overrides, such as `resnet18 [sgd, f16]`;
    /// absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<PlainName>,
    /// The GPU of the run.
    pub gpu: RunGpu,
    /// The model's parameters; null if the model died before it made them, or did not report them.
    pub parameters: Option<Parameters>,
    /// The peaks over all steps. With several GPUs, each value is from the GPU where it is highest.
    pub peaks: Peaks,
    /// The values that the peaks are compared with; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Memory per step and phase, from the observed pass. With several GPUs, each value is from the GPU where it is
    /// highest.
    pub steps: Vec<Step>,
    /// The parts of each epoch, in order; absent unless the model trains for epochs that the program runs itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochMemory>,
    /// The sizes of the model's ranges and the memory in each order of them; absent if the model has no ranges. `peaks`
    /// has the largest values of all orders, and `steps` are those of one order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub varying: Option<VaryingSizes>,
    /// The peaks and steps of each GPU; absent if the model uses one GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuShare>,
    /// The first out-of-memory failure; null if there was none.
    pub oom: Option<Oom>,
    /// The autotune choices of the run, by origin.
    pub autotune: Autotune,
    /// The recording whose autotune choices the run replays, as far as it has them; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingId>,
    /// How the run was measured; absent in an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
    /// The number of CUDA streams that held memory.
    pub streams: u32,
    /// How many steps a pass ran until two in a row reserved nothing more; absent if the number of steps was given, and
    /// with Burn 0.21.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// The number of allocations that the GPU refused and that succeeded after Burn freed memory; absent if 0. With
    /// Burn 0.21, a refusal is an out-of-memory failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recovered_refusals: u64,
    /// How often the model read values back from the GPU, apart from its loss.
    pub device_reads: u64,
    /// What these values depend on and nobody checked.
    pub assumptions: Vec<Assumption>,
    /// The smallest and largest values of the runs of which this run has the largest. Only for a model whose budget
    /// allows its runs to differ; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Spread>,
    /// Why the run is incomplete; null if it is complete.
    pub error: Option<RunError>,
    /// Wall-clock time of all passes of this run together, in seconds, without the time spent waiting for other
    /// processes. Only this value and `pass_seconds` differ between two equal runs.
    pub seconds: f64,
    /// The wall-clock time of each pass, first the cold one. `check` runs two warm passes. Their sum is `seconds`, except
    /// for rounding. Absent if no pass ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_seconds: Vec<PassSeconds>,
}

impl Run {
    /// Returns the name in output: the what-if's name, else the budget's, else the model's.
    #[must_use]
    pub fn name(&self) -> &PlainName {
        let budget = self.budget.as_ref().unwrap_or(&self.model);
        self.label.as_ref().unwrap_or(budget)
    }

    /// Returns the order of the sizes in `steps` as an addition to a sentence, `, rising sizes`. It is empty if that is
    /// the usual order, and without ranges.
    #[must_use]
    pub fn of_order(&self) -> String {
        match self.varying.as_ref().map(|varying| varying.steps_of) {
            None | Some(SizeOrder::Largest) => String::new(),
            Some(order) => format!(", {} sizes", order.name()),
        }
    }

    /// Returns a verdict about the whole run, without a value and without a place in a file.
    #[must_use]
    pub fn verdict(&self, rule: Rule, status: Status, message: String) -> Verdict {
        Verdict {
            package: self.package.clone(),
            model: self.name().to_owned(),
            mode: self.mode,
            gpu: self.gpu.id.clone(),
            gpu_number: None,
            pass: None,
            metric: None,
            rule,
            limit: None,
            limit_written: None,
            actual: None,
            baseline: None,
            allowed: None,
            status,
            message: message.into(),
            file: None,
            line: None,
            column: None,
        }
    }

    /// Whether this is a measurement in which autotune chose the kernels itself. Another measurement may hold more or
    /// less memory.
    #[must_use]
    pub fn chose_kernels(&self) -> bool {
        let measurement = self.measurement.as_ref();
        measurement.is_some_and(|measurement| measurement.tuning == Tuning::Free)
    }

    /// Returns [`Run::name`] with its package: `zoo/resnet18-b128`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.package, self.name())
    }

    /// Whether every autotune choice was made on a GPU of this type.
    #[must_use]
    pub fn is_tuned_here(&self) -> bool {
        let elsewhere = self.recording.as_ref().filter(|recording| recording.gpu != self.gpu.id);
        self.autotune.nearest == 0 && self.autotune.assumed == 0 && elsewhere.is_none()
    }
}

/// The identity of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingId {
    /// The id of the GPU that was recorded. It is another GPU than the run's if the run's GPU is declared `like` it and
    /// has no recording.
    pub gpu: PlainName,
    /// The driver version of that GPU.
    pub driver: Foreign,
}

/// The GPU of a run: virtual or real.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunGpu {
    /// A short id in lower case, such as `l4` or `a100-80gb`.
    pub id: PlainName,
    /// The name that the driver reports.
    pub name: Foreign,
    /// The total memory in bytes, as the driver reports it.
    pub total_bytes: Bytes,
    /// The bytes left for allocations: the total memory without context and modules.
    pub available_bytes: Bytes,
    /// The version of the GPU's driver; in an estimate, `virtual` and the version of cargo-vram.
    pub driver: Foreign,
    /// The memory that a process holds before its first tensor; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ProcessOverhead>,
    /// The memory that loaded kernels take in addition; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<ProcessOverhead>,
}

/// GPU memory that does not belong to tensors, and how its size is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessOverhead {
    /// The size in bytes.
    pub bytes: Bytes,
    /// How the size is known.
    pub obtained: Obtained,
    /// The log, document or reasoning that gives the size.
    pub source: Foreign,
}

/// How a value is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Obtained {
    /// Measured on a GPU.
    Measured,
    /// Stated by a document or a person.
    Documented,
    /// Neither measured nor documented.
    Assumed,
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Documented => "documented",
            Self::Assumed => "assumed",
        })
    }
}

/// The size of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parameters {
    /// The number of parameters, learnable parameters and buffers together.
    pub count: u64,
    /// The number of parameters that receive a gradient.
    pub learnable: u64,
    /// The bytes of all parameters and buffers, without padding.
    pub bytes: Bytes,
}

/// The memory of one of the GPUs that a model uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuShare {
    /// The number of the GPU, from 0.
    pub gpu_number: u32,
    /// The peaks over all steps on this GPU.
    pub peaks: Peaks,
    /// Memory per step and phase on this GPU, from the observed pass.
    pub steps: Vec<Step>,
}

/// One step of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The number of the step, from 0. What happens before the first step belongs to step 0.
    pub step: u32,
    /// The pass that the step belongs to.
    pub pass: Pass,
    /// The phases in order of time.
    pub phases: Vec<PhasePeaks>,
}

impl Step {
    /// Returns the live memory in bytes at the end of the step, by which leaks are found: without the allocator's padding
    /// where that is known. Returns `None` if the step has no phase.
    pub(crate) fn in_use_end(&self) -> Option<Bytes> {
        let last = self.phases.last()?;
        // By live memory with padding, ResNet-18 leaked. See docs/design/leaks.md.
        Some(last.in_use_end.unwrap_or(last.live_end))
    }
}

/// Memory within one phase of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhasePeaks {
    /// The phase.
    pub phase: Phase,
    /// The highest live memory within the phase, in bytes.
    pub live_peak: Bytes,
    /// Live memory at the end of the phase, in bytes.
    pub live_end: Bytes,
    /// Live memory at the end of the phase without padding, in bytes: the sizes that were requested from the allocator.
    /// Leak detection uses it. If it would grow from step to step, it leaves out what Burn 0.22 keeps for later
    /// launches. Absent if live memory was not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_end: Option<Bytes>,
    /// The highest reserved memory within the phase, in bytes.
    pub reserved_peak: Bytes,
    /// Reserved memory at the end of the phase, in bytes.
    pub reserved_end: Bytes,
}

/// An allocation that the GPU could not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Oom {
    /// The pass that ran out of memory.
    pub pass: Pass,
    /// The number of the GPU, from 0; absent if the model uses one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_number: Option<u32>,
    /// The step, from 0; null if the model was still being made.
    pub step: Option<u32>,
    /// The phase; null if unknown.
    pub phase: Option<Phase>,
    /// The kernel that needed the memory or, if that is unknown, the kernel launched before; null if neither is known.
    pub kernel: Option<Foreign>,
    /// The requested bytes; null if the driver had no room for something of its own, such as a kernel, and does not
    /// report its size.
    pub requested: Option<Bytes>,
    /// The driver function that had no room; absent if an allocation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Foreign>,
    /// The bytes reserved from the driver at that moment.
    pub reserved: Bytes,
    /// The live bytes among the reserved ones; absent if no pass that observes live memory ran out of memory at that
    /// moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Bytes>,
    /// The bytes that were still available.
    pub available: Bytes,
    /// The tensor, if it is larger than any that Burn's allocator supports on this GPU, so that Burn never asked the
    /// driver; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<RefusedTensor>,
}

/// A tensor that is too large for any page of Burn's allocator. Only explanations know more about it than its size.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedTensor {
    /// The largest tensor in bytes that the allocator supports on this GPU: with Burn 0.21, a quarter of the GPU's
    /// total memory.
    pub largest: Bytes,
    /// The shape of the tensor; absent if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<u64>,
    /// The element type, such as `f32`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Foreign>,
    /// The operation that makes the tensor, such as `conv2d`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Foreign>,
    /// The path of the module that the tensor belongs to; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<Foreign>,
    /// The file of the user's code that asks for the tensor, relative to the workspace root; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Foreign>,
    /// The line in that file, from 1; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// The autotune choices of a run, by origin.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Autotune {
    /// The number of choices recorded on this GPU, or on the GPU that the run's `recording` names.
    pub recorded: u32,
    /// The number of choices taken from the nearest recorded key.
    pub nearest: u32,
    /// The number of choices without a recording, taken from the documented order of candidates.
    pub assumed: u32,
    /// The chosen kernels per tuned operation: Burn's name of the operation, then the kernel, then the number of keys
    /// for which it was chosen. Absent if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chosen: BTreeMap<Foreign, BTreeMap<Foreign, u32>>,
}

/// Why a run is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    /// A short, stable name of the error, such as `model-panicked`.
    pub code: ErrorCode,
    /// What happened.
    pub message: Foreign,
    /// What to do about it; null if there is no advice.
    pub help: Option<Foreign>,
}
