//! The report's types. Their names are the format: renaming one is a new version.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ErrorCode;
use crate::bytes::Bytes;
use crate::protocol::{BurnFeatures, WhatIf};
pub use crate::protocol::{Phase, Task};

/// The version of the report format that this program writes.
pub const REPORT_VERSION: u32 = 1;

/// The outcome of one invocation over all models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The version of this format.
    #[schemars(extend("const" = REPORT_VERSION))]
    pub version: u32,
    /// Which program made the report.
    pub tool: Tool,
    /// The command that wrote it; absent in what an older version wrote.
    #[serde(default)]
    pub command: Option<WrittenBy>,
    /// The commit that was checked out, where the workspace is a git checkout.
    pub commit: Option<String>,
    /// Whether there were changes on top of that commit, files that git does not know among them; absent where nobody could
    /// tell.
    pub dirty: Option<bool>,
    /// The part of the models that was run, as `hash:1/4`.
    pub partition: Option<String>,
    /// `package/model` of every selected model, run or not.
    pub expected: Vec<String>,
    /// What a check of all parts must have judged: one entry a budget of each expected model, whatever the partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_verdicts: Vec<ExpectedVerdict>,
    /// The worst of all verdicts and errors.
    pub status: Status,
    /// One entry a model, mode and card.
    pub runs: Vec<Run>,
    /// What the budgets say about the runs.
    pub verdicts: Vec<Verdict>,
    /// What was not done, and why.
    pub skipped: Vec<Skipped>,
    /// The revision that this is compared with, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Targets that never came as far as a model.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// A command that writes reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WrittenBy {
    /// `cargo vram check`: its runs are judged.
    Check,
    /// `cargo vram estimate`: nothing is judged.
    Estimate,
    /// `cargo vram measure`: nothing is judged.
    Measure,
}

impl WrittenBy {
    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Estimate => "estimate",
            Self::Measure => "measure",
        }
    }
}

/// A budget that a check has a verdict on, even if it is only that there is no limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ExpectedVerdict {
    /// The package that declares the model.
    pub package: String,
    /// The budget's name, which is mostly the model's.
    pub model: String,
    /// The card's id.
    pub gpu: String,
}

/// The revision that a report is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// As it was named: `origin/main`.
    pub revision: String,
    /// The commit of it that this one parted from.
    pub commit: String,
    /// Every limit that differs between the two.
    pub edited: Vec<EditedLimit>,
    /// Every dependency that Cargo.lock pins differently.
    #[serde(default)]
    pub dependencies: Vec<ChangedDependency>,
}

/// A dependency that is another one than at the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedDependency {
    /// The package.
    pub name: String,
    /// Its versions that are only at the base: `0.21.0`.
    pub before: Vec<String>,
    /// Its versions that are only here.
    pub after: Vec<String>,
}

/// A limit that a change edits itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditedLimit {
    /// The key of the budget, `model` or `package/model`; absent for what stands in `defaults`.
    pub model: Option<String>,
    /// Which limit, as a path of keys: `reserved.fail`, `gpus.h200.live.warn`, `growth.live.ignore`.
    pub limit: String,
    /// What it was, as the file had it; absent where it is new.
    pub before: Option<String>,
    /// What it is; absent where it was removed.
    pub after: Option<String>,
    /// The budget file, relative to the workspace root.
    pub file: String,
    /// Its line, from 1; absent where it was removed.
    pub line: Option<u32>,
    /// Whether it lets through what was not let through before.
    #[serde(default)]
    pub loosens: bool,
}

/// What a run is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Where it is from.
    pub from: BaselineFrom,
    /// The Burn that it was run with.
    pub burn: String,
    /// The inputs it was run with.
    pub inputs: BTreeMap<String, u64>,
    /// Parameters, learnable and not, where that is known.
    pub parameters: Option<u64>,
    /// Its peaks.
    pub peaks: Peaks,
    /// In what it differs otherwise, which is the likely cause of another figure: `burn 0.21.0 → 0.22.0`.
    pub differs: Vec<String>,
}

/// Where a baseline is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BaselineFrom {
    /// From budgets.lock: accepted by `cargo vram bless`.
    Lock,
    /// From budgets.lock as it is at the base.
    Base,
    /// The base was built and run.
    Rebuilt,
}

/// Why the models of a target could not be run at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The package.
    pub package: String,
    /// The target, where it came as far as one.
    pub target: Option<String>,
    /// A short, stable name: `build-failed`.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Which program made the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// `cargo-vram`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// A hash over everything that an estimate depends on besides the model: tool, driver, recordings, profiles.
    pub fingerprint: String,
}

/// The state of a report or of a verdict, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Within budget.
    Pass,
    /// Within budget, with something to look at.
    Warn,
    /// Over budget, regressed, leaking or out of memory.
    Fail,
    /// It could not be told.
    Error,
}

/// How the figures of a run were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// On a virtual GPU.
    Estimate,
    /// On a real GPU.
    Measure,
}

/// Which run of the step a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// With an empty autotune cache.
    Cold,
    /// With the plan applied, nothing sampled.
    Warm,
    /// With the plan applied, sampled at every launch.
    Traced,
}

/// How long the allocator took until it needed nothing more: that of Burn 0.22 adapts its pages to what it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Settling {
    /// The steps that a pass ran.
    pub steps: u32,
    /// Whether the last two reserved nothing more.
    pub settled: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One model on one card in one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The model's name, as in `cargo_vram::models!`.
    pub model: String,
    /// The package that declares it.
    pub package: String,
    /// The name of the budget this run belongs to, where it is not the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Estimated or measured.
    pub mode: Mode,
    /// Training or inference; absent where the model died before it said so.
    pub task: Option<Task>,
    /// Burn's version.
    pub burn: String,
    /// With which features Burn was built; absent in older reports, and where the model died before it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<BurnFeatures>,
    /// The inputs that the model asked for, with the values it got.
    pub inputs: BTreeMap<String, u64>,
    /// In what it was run otherwise than the model says; absent where it was run as it is.
    #[serde(default, skip_serializing_if = "WhatIf::is_none")]
    pub what_if: WhatIf,
    /// The name of a what-if: the model's or its budget's, and what is otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The card.
    pub gpu: Gpu,
    /// The model's parameters; absent where the model died before they were made or made none known.
    pub parameters: Option<Parameters>,
    /// The peaks over all steps; of several cards, of the one that holds the most, figure by figure.
    pub peaks: Peaks,
    /// What they are compared with, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Phase by phase, of the passes that observe phases; of several cards, what the one holds that holds more.
    pub steps: Vec<Step>,
    /// The same for each card, where the model is over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<OnCard>,
    /// The first out of memory, if there was one.
    pub oom: Option<Oom>,
    /// The plan's choices.
    pub autotune: Autotune,
    /// The recording that the plan replays, as far as it has the keys; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingId>,
    /// How it was measured; absent in an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
    /// How many CUDA streams held memory.
    pub streams: u32,
    /// How many steps a pass ran until two in a row reserved nothing more; absent where their number was given, and with Burn 0.21.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// How many allocations the GPU refused that Burn then got, after it freed memory. With Burn 0.21 a refusal is an out of memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recovered_refusals: u64,
    /// How often the model read values back from the device, other than its loss.
    pub device_reads: u64,
    /// What these figures assume, in sentences.
    pub assumptions: Vec<String>,
    /// How far the runs lie apart that this one is the largest of: of a model whose budget allows it to differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Spread>,
    /// Why the run is incomplete, if it is.
    pub error: Option<RunError>,
    /// Wall-clock seconds of all its own passes together, without waiting for others: the one figure that differs between
    /// two runs.
    pub seconds: f64,
}

impl Run {
    /// What people call it: its budget's name, which is mostly its model's; of a what-if, with what is otherwise.
    #[must_use]
    pub fn name(&self) -> &str {
        let budget = self.budget.as_ref().unwrap_or(&self.model);
        self.label.as_ref().unwrap_or(budget)
    }

    /// Whether it is the other one as it is, which runs it otherwise.
    #[must_use]
    pub fn is_origin_of(&self, other: &Self) -> bool {
        self.what_if.is_none()
            && !other.what_if.is_none()
            && (&self.package, &self.model, &self.budget) == (&other.package, &other.model, &other.budget)
            && (&self.gpu.id, self.mode) == (&other.gpu.id, other.mode)
    }

    /// Whether it is a measurement whose kernels autotune chose there and then: another one may hold more or less.
    #[must_use]
    pub fn chose_kernels(&self) -> bool {
        let measurement = self.measurement.as_ref();
        measurement.is_some_and(|measurement| measurement.tuning == Tuning::Free)
    }

    /// [`Run::name`] with its package: `zoo/resnet18-b128`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.package, self.name())
    }

    /// Whether every choice of autotune was made on a card of this very kind.
    #[must_use]
    pub fn is_tuned_here(&self) -> bool {
        let elsewhere = self.recording.as_ref().filter(|recording| recording.gpu != self.gpu.id);
        self.autotune.nearest == 0 && self.autotune.assumed == 0 && elsewhere.is_none()
    }
}

/// Which recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingId {
    /// The card that was measured. Not the run's own where that is declared to be like it and has no recording.
    pub gpu: String,
    /// The version of its driver.
    pub driver: String,
}

/// The card a run was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// Short and lower case: `l4`, `a100-80gb`.
    pub id: String,
    /// As the driver names it.
    pub name: String,
    /// As the driver reports it.
    pub total_bytes: Bytes,
    /// What is left of it after context and modules.
    pub available_bytes: Bytes,
    /// The driver's version, or the virtual driver's.
    pub driver: String,
    /// What a process holds before its first tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Outside>,
    /// What loaded kernels take besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Outside>,
}

/// Memory of the card that is no tensor's, and how its size is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outside {
    /// How much.
    pub bytes: Bytes,
    /// How it is known.
    pub obtained: Obtained,
    /// By which log, document or reasoning.
    pub source: String,
}

/// How a figure is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Obtained {
    /// Read from a card.
    Measured,
    /// Stated by a document or a person.
    Documented,
    /// Neither.
    Assumed,
}

/// How a measurement was made. Absent in an estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The card's own id: `GPU-…`, or `MIG-…`.
    pub uuid: String,
    /// The CUDA driver that ran it.
    pub libcuda: Library,
    /// The compiler of its kernels.
    pub libnvrtc: Library,
    /// How many of the host's cores the model's process could use: which parameters win the race for Burn's persistent pool
    /// may depend on it.
    pub cores: u32,
    /// What a kernel computed on the card, to show that there is one.
    pub proof: Proof,
    /// Where `process` is from; absent where it could not be read at all.
    pub process: Option<ProcessSource>,
    /// Held by the card before the model's process began, by others and by the driver itself.
    pub idle: Option<Bytes>,
    /// Other processes on the card, before or during the passes.
    pub others: Vec<OtherProcess>,
    /// The card was made smaller than it is, to this total.
    pub limit: Option<Bytes>,
    /// Where the choices of autotune are from.
    pub tuning: Tuning,
    /// How far the figures of freely tuned repetitions lie apart.
    pub spread: Option<Spread>,
}

/// A library that a measurement went through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Library {
    /// The file, with links followed.
    pub path: String,
    /// The version it says it has: `13.0`.
    pub version: String,
}

/// A number that only something that runs kernels can know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// What the kernel was given.
    pub seed: u64,
    /// What the host computed from it.
    pub expected: u64,
    /// What the kernel computed from it.
    pub computed: u64,
}

/// How the memory charged to the process was read: by polling, so that peaks between two looks are missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSource {
    /// Of what.
    pub of: ProcessOf,
    /// Aimed-at time between two looks, in microseconds.
    pub interval_us: u64,
    /// The longest that there was between two looks of the warm pass.
    pub longest_gap_us: u64,
    /// Looks in the warm pass.
    pub looks: u64,
}

/// What the figure is the memory of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessOf {
    /// The process, as NVML accounts for it.
    Process,
    /// The whole device, less what it held before: NVML shows no processes here.
    Device,
}

/// Another process on the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherProcess {
    /// Its id.
    pub pid: u32,
    /// Its name, where it can be read.
    pub name: Option<String>,
    /// What it holds, where the driver says.
    pub bytes: Option<Bytes>,
}

impl fmt::Display for OtherProcess {
    /// `python (pid 4711, 2 GiB)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("a process");
        match self.bytes {
            Some(bytes) => write!(f, "{name} (pid {}, {bytes})", self.pid),
            None => write!(f, "{name} (pid {})", self.pid),
        }
    }
}

/// Where the choices of autotune are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tuning {
    /// Timed in the cold pass: another measurement may choose otherwise.
    Free,
    /// Those of a recording.
    Replayed,
}

/// The least and the most of several runs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// How many.
    pub repeats: u32,
    /// Of the warm pass.
    pub warm: SpreadPeak,
    /// Of the cold pass.
    pub cold: SpreadPeak,
}

/// The least and the most of each figure.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadPeak {
    /// Bytes handed out by Burn's allocator.
    pub live: Option<[Bytes; 2]>,
    /// Bytes held from the driver.
    pub reserved: Option<[Bytes; 2]>,
    /// Bytes charged to the process.
    pub process: Option<[Bytes; 2]>,
}

/// What a model consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parameters {
    /// Learnable and buffers.
    pub count: u64,
    /// Those that receive a gradient.
    pub learnable: u64,
    /// Logical bytes of `count`.
    pub bytes: Bytes,
}

/// One of the cards that a model is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnCard {
    /// Which, from 0.
    pub card: u32,
    /// The peaks over all steps.
    pub peaks: Peaks,
    /// Phase by phase, of the pass that observes phases.
    pub steps: Vec<Step>,
}

/// The highest values of each pass.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peaks {
    /// Plan applied: what is judged.
    pub warm: Peak,
    /// First launch, empty autotune cache.
    pub cold: Peak,
}

/// The highest values of one pass. A figure that was not obtained is absent, never zero.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Bytes handed out by Burn's allocator.
    pub live: Option<Bytes>,
    /// Bytes held from the driver.
    pub reserved: Option<Bytes>,
    /// Bytes charged to the process: reserved, context and modules.
    pub process: Option<Bytes>,
}

impl Peaks {
    /// Of two cards, what the one holds that holds more, figure by figure; nothing where that is not known of both.
    #[must_use]
    pub fn fullest(self, other: Self) -> Self {
        let more = |one: Option<Bytes>, other: Option<Bytes>| Some(one?.max(other?));
        let peak = |one: Peak, other: Peak| Peak {
            live: more(one.live, other.live),
            reserved: more(one.reserved, other.reserved),
            process: more(one.process, other.process),
        };
        Self {
            warm: peak(self.warm, other.warm),
            cold: peak(self.cold, other.cold),
        }
    }

    /// Every figure, in the order in which they are told.
    #[must_use]
    pub fn figures(&self) -> Vec<(Pass, Metric, Option<Bytes>)> {
        let passes = [(Pass::Warm, &self.warm), (Pass::Cold, &self.cold)];
        let all = passes
            .into_iter()
            .flat_map(|(pass, peak)| Metric::ALL.map(|metric| (pass, metric, peak.get(metric))));
        all.collect()
    }

    /// The first figure that is another in `after`: which, and both.
    #[must_use]
    pub fn first_other(&self, after: &Self) -> Option<(Pass, Metric, Option<Bytes>, Option<Bytes>)> {
        let pairs = self.figures().into_iter().zip(after.figures());
        let mut pairs = pairs.map(|((pass, metric, before), (.., after))| (pass, metric, before, after));
        pairs.find(|(.., before, after)| before != after)
    }
}

impl Peak {
    /// The larger of two, figure by figure; one that is known of one alone is that.
    #[must_use]
    pub fn largest(self, other: Self) -> Self {
        Self {
            live: self.live.max(other.live),
            reserved: self.reserved.max(other.reserved),
            process: self.process.max(other.process),
        }
    }

    /// One figure.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<Bytes> {
        match metric {
            Metric::Live => self.live,
            Metric::Reserved => self.reserved,
            Metric::Process => self.process,
        }
    }
}

/// One step of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Counted from 0.
    pub step: u32,
    /// The pass it belongs to.
    pub pass: Pass,
    /// In order of time.
    pub phases: Vec<PhasePeaks>,
}

/// Memory within one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhasePeaks {
    /// Which phase.
    pub phase: Phase,
    /// The highest live value within it.
    pub live_peak: Bytes,
    /// Live at its end.
    pub live_end: Bytes,
    /// What was asked for of the allocator and is live at its end, without padding: by this leaks are judged. Where it would grow
    /// from step to step, it is without what Burn 0.22 keeps for later launches. Absent where live was not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_end: Option<Bytes>,
    /// The highest reserved value within it.
    pub reserved_peak: Bytes,
    /// Reserved at its end.
    pub reserved_end: Bytes,
}

/// An allocation that the card could not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Oom {
    /// The pass it happened in.
    pub pass: Pass,
    /// The card, where the model is over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<u32>,
    /// The step, from 0; absent while the model was being made.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Option<Phase>,
    /// The kernel that wanted the memory or, where unknown, the last one launched before.
    pub kernel: Option<String>,
    /// Bytes asked for; absent where the driver had no room for something of its own, a kernel say, and does not tell
    /// how much that is.
    pub requested: Option<Bytes>,
    /// The driver's function that had no room; absent where it was an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Bytes held from the driver at that moment.
    pub reserved: Bytes,
    /// Of these, bytes of live tensors; absent where no pass that observes live memory ran out at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Bytes>,
    /// Bytes that were left.
    pub available: Bytes,
    /// The tensor, where it is larger than any that Burn's allocator gives on this GPU: the driver was never asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<RefusedTensor>,
}

/// A tensor that is too large for any page of Burn's allocator. Only explanations know more of it than its bytes.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedTensor {
    /// The most bytes that the allocator gives one tensor on this GPU: on Burn 0.21 a quarter of its total memory.
    pub largest: Bytes,
    /// Its shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<u64>,
    /// Its element type: `f32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The operation that makes it: `conv2d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The module it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The file of the user's code that asks for it, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// The choices of the plan, and how many rest on what.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Autotune {
    /// Recorded on this card, or on the one that the run's `recording` names.
    pub recorded: u32,
    /// Taken from the nearest key recorded there.
    pub nearest: u32,
    /// Taken from the documented order.
    pub assumed: u32,
    /// For each operation that is tuned, by Burn's name for it, the kernels that were chosen, and for how many keys each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chosen: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Why a run is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    /// A short, stable name: `model-panicked`.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A figure that a budget can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Bytes handed out by Burn's allocator.
    Live,
    /// Bytes held from the driver.
    Reserved,
    /// Bytes charged to the process.
    Process,
}

impl Metric {
    /// All of them, from the innermost to the outermost.
    pub const ALL: [Self; 3] = [Self::Live, Self::Reserved, Self::Process];

    /// As files and people name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reserved => "reserved",
            Self::Process => "process",
        }
    }
}

/// Why a verdict was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// A limit that a person wrote, or the lack of one.
    Budget,
    /// More than the baseline.
    Growth,
    /// A baseline is demanded, and there is none, or another one.
    Baseline,
    /// Estimate and measurement disagree.
    Drift,
    /// The card's memory did not suffice.
    Oom,
    /// Live memory grows from step to step.
    Leak,
    /// A change loosens its own limits.
    Edit,
    /// The models are built with other features of Burn than the workspace's binaries.
    Build,
}

/// What one rule says of one figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The package that declares the model.
    pub package: String,
    /// The model, or the budget's name where it stands for a model with other inputs.
    pub model: String,
    /// Estimated or measured.
    pub mode: Mode,
    /// The card's id.
    pub gpu: String,
    /// Which of several cards the figure is of; absent where it is of the one that holds the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<u32>,
    /// The pass the figure comes from.
    pub pass: Option<Pass>,
    /// Which figure.
    pub metric: Option<Metric>,
    /// Which rule.
    pub rule: Rule,
    /// The limit that decided, in bytes; of drift, how many bytes of difference it allows.
    pub limit: Option<Bytes>,
    /// The limit as the file of budgets writes it: `300 MB`; absent where it is none of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_written: Option<String>,
    /// The figure, in bytes; of drift, the measured one.
    pub actual: Option<Bytes>,
    /// The figure it is compared with, in bytes: the baseline's or, of drift, the estimated one.
    pub baseline: Option<Bytes>,
    /// What the limit of growth is made of; absent for other rules, and in what an older version wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedGrowth>,
    /// Pass, warn or fail.
    pub status: Status,
    /// A sentence for people.
    pub message: String,
    /// The budget file, relative to the workspace root.
    pub file: Option<String>,
    /// Line of the limit, from 1.
    pub line: Option<u32>,
    /// Column of the limit, from 1.
    pub column: Option<u32>,
}

impl Verdict {
    /// What a rule says of a run as a whole: of no figure, and of no place in a file.
    #[must_use]
    pub fn of(run: &Run, rule: Rule, status: Status, message: String) -> Self {
        Self {
            package: run.package.clone(),
            model: run.name().to_owned(),
            mode: run.mode,
            gpu: run.gpu.id.clone(),
            card: None,
            pass: None,
            metric: None,
            rule,
            limit: None,
            limit_written: None,
            actual: None,
            baseline: None,
            allowed: None,
            status,
            message,
            file: None,
            line: None,
            column: None,
        }
    }

    /// Whether the figure shrank by more than it may grow.
    #[must_use]
    pub fn is_improvement(&self) -> bool {
        let (Some(before), Some(after), Some(limit)) = (self.baseline, self.actual, self.limit) else {
            return false;
        };
        self.rule == Rule::Growth && before.saturating_sub(after) > limit.saturating_sub(before)
    }
}

/// How far a figure may grow from its baseline: by the larger of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AllowedGrowth {
    /// A part of the baseline, in millionths: 5 % is 50,000.
    pub parts_per_million: u64,
    /// In bytes, whatever part of the baseline that is.
    pub at_least: Bytes,
}

impl fmt::Display for AllowedGrowth {
    /// `5 %, at least 16 MiB`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.parts_per_million / 10_000, self.parts_per_million % 10_000);
        write!(f, "{whole}")?;
        if part > 0 {
            write!(f, ".{}", format!("{part:04}").trim_end_matches('0'))?;
        }
        f.write_str(" %")?;
        match self.at_least {
            Bytes(0) => Ok(()),
            bytes => write!(f, ", at least {bytes}"),
        }
    }
}

/// Something that was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}
