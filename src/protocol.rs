//! The protocol between the command line tool and a model's process: the tool writes a job file, and the process writes
//! a file of events.
//!
//! The tool and the model each compile this module from their own version of the crate. So the protocol has its own
//! version, [`PROTOCOL`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of this protocol. The tool does not run models that were built with another version.
// Raise it with every change to a type of this file that the other side must know.
// See docs/design/processes.md.
pub const PROTOCOL: u32 = 18;

/// The largest number of GPUs in one process. It is the limit of the driver library, and more than any machine that
/// Burn runs on has.
// `MAX_DEVICES` in `src/driver/source/config.rs` has the same value. The driver library uses no crate, so it
// cannot import this one.
pub const MOST_GPUS: u32 = 16;

/// The number of steps in which each size of a range is run once: [`RunJob::sizes`].
pub const ROUND_STEPS: u32 = 8;

/// The smallest number of steps of a model with ranges: two rounds. Only the second shows whether the first reserved
/// all that the sizes need.
pub const LEAST_STEPS_OF_SIZES: u32 = 2 * ROUND_STEPS;

/// The environment variable with the path of the job file. Without it, a model's binary does nothing and succeeds.
pub const JOB_VARIABLE: &str = "CARGO_VRAM_JOB";

/// A job that the tool gives to a model's binary.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The tool's [`PROTOCOL`].
    pub protocol: u32,
    /// The tool's version.
    pub version: String,
    /// The file for the events: one JSON document per line.
    pub events: PathBuf,
    /// The action to perform.
    pub action: Action,
}

/// The action that a job asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Send one [`ProbeEvent::Model`] per declared model.
    List,
    /// Run one pass of one model.
    Run(RunJob),
}

/// The settings of one pass of one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunJob {
    /// The model's name.
    pub model: String,
    /// The number of steps. With `most_steps`, this is the smallest number.
    pub steps: u32,
    /// The largest number of steps, if steps run until two in a row reserve no more memory. Only Burn 0.22 needs this,
    /// because its allocator adapts its pages to earlier requests.
    #[serde(default)]
    pub most_steps: Option<u32>,
    /// Values of the model's inputs, by name. They replace the defaults in the model's code.
    pub inputs: BTreeMap<String, u64>,
    /// The folder of this pass's autotune choices. It is empty for a cold pass; other passes replay the choices in it.
    pub autotune: PathBuf,
    /// The folder of compiled kernels: the pass reads kernels from it and adds new ones. If absent, the pass compiles
    /// every kernel.
    #[serde(default)]
    pub kernels: Option<PathBuf>,
    /// Whether the pass observes launches: it counts them and samples the allocator around each.
    pub traced: bool,
    /// The file for the trace, one [`Traced`] per line; absent for a pass without a trace. With Burn 0.21, only models
    /// that were built with the feature `explain` can write it.
    pub trace: Option<PathBuf>,
    /// Whether the trace may skip fusion's reports while fusion is not expected to run anything. If fusion then runs
    /// something, the process sends [`ProbeEvent::Unforeseen`] and ends.
    pub foresees: bool,
    /// Whether Burn's threads take turns at each launch, so that two runs agree in every byte.
    // Without turns, three warm passes of DenseNet-201 spanned 1.2 % of reserved memory.
    // See docs/design/threads.md.
    pub lockstep: bool,
    /// Whether the model is known to have a hand-written loop. With `lockstep`, Burn 0.21's persistent pool is then
    /// off, because chance decides what such a loop puts into it. With `lockstep` but without this flag, a model with
    /// such a loop sends [`ProbeEvent::FreeForm`] and ends.
    // Only the model knows whether its loop is hand-written, and only once it runs. So the tool starts
    // without this flag, and starts the pass again with it. See docs/design/persistent-pool.md.
    pub free_form: bool,
    /// Which part of the model runs on the thread of Burn's fusion. Only Burn 0.22 needs this: uploads are then
    /// allocated in program order, and each operation is reported with the line that asked for it. If a model turns out
    /// to need this, the process sends [`ProbeEvent::Uploads`] and ends.
    #[serde(default)]
    pub inside: Inside,
    /// Whether the model runs on that thread only to report lines. If it then does nothing for too long, the process
    /// sends [`ProbeEvent::Stuck`] and ends.
    #[serde(default)]
    pub watched: bool,
    /// Whether Burn frees its cache for later launches before the allocator is sampled at the end of a phase, so that
    /// the sample contains only tensors. Only Burn 0.22 has this cache.
    #[serde(default)]
    // Not in every pass: pages go with the cache, so reserved memory would differ.
    // See docs/design/burn-0_22-memory.md.
    pub uncached: bool,
    /// The what-if overrides of the pass.
    #[serde(default)]
    pub what_if: WhatIf,
    /// The order in which the steps have the sizes of the model's ranges.
    #[serde(default)]
    pub sizes: SizeOrder,
    /// The number of GPUs that the process has.
    pub gpus: u32,
    /// Milliseconds to wait after the CUDA contexts exist and before the model is built, so that the tool can measure
    /// the contexts alone.
    pub settle_ms: u64,
}

/// The order in which steps have the sizes of a model's ranges. The steps run in rounds: after [`ROUND_STEPS`] steps,
/// the sizes begin again.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SizeOrder {
    /// Each step has the smallest sizes.
    Smallest,
    /// Each step has the largest sizes.
    #[default]
    Largest,
    /// From the smallest sizes to the largest.
    Rising,
    /// From the largest sizes to the smallest.
    Falling,
    /// In a shuffled order, which is the same in every run and another one in each round.
    Shuffled,
}

impl SizeOrder {
    /// All orders, as they are shown.
    pub const ALL: [Self; 5] = [
        Self::Smallest,
        Self::Largest,
        Self::Rising,
        Self::Falling,
        Self::Shuffled,
    ];

    /// Returns the name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smallest => "smallest",
            Self::Largest => "largest",
            Self::Rising => "rising",
            Self::Falling => "falling",
            Self::Shuffled => "shuffled",
        }
    }

    /// Whether the size changes from step to step.
    #[must_use]
    pub const fn varies(self) -> bool {
        !matches!(self, Self::Smallest | Self::Largest)
    }
}

/// The sizes of an input that has another size in each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct SizeRange {
    /// The smallest size.
    pub smallest: u64,
    /// The largest size.
    pub largest: u64,
    /// The number of sizes that the model declares.
    pub declared: u64,
    /// The number of these sizes that steps were run with.
    pub tried: u64,
}

/// The part of a model that runs on the thread of Burn's fusion.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// Nothing, as in Burn itself.
    #[default]
    Nothing,
    /// Each step of a ready-made loop, except for the batch.
    Steps,
    /// The whole model.
    All,
}

/// What-if overrides: settings that replace the model's own. Reports use the same names.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(default)]
// Reports contain this type, so a setting that is off stays out of the JSON.
pub struct WhatIf {
    /// The optimizer that replaces the model's own, with Burn's default settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// The default element type of float tensors. Tensors that name another type keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Float>,
    /// The number of parts that each batch is split into. The gradients of the parts are added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    // Parts of one batch, not several batches: the training stays the same. See docs/design/what-if.md.
    pub accumulate: Option<u32>,
    /// Whether each step runs only the batch and forward phases, without gradients, as in validation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub infer: bool,
    /// Whether autodiff uses checkpointing: it keeps fewer activations and computes them again. With Burn 0.21, this
    /// needs another build.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpointing: bool,
    /// Whether operations run without fusion. With Burn 0.21, this needs another build; Burn 0.22 does not support it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_fusion: bool,
}

impl WhatIf {
    /// Whether there are no overrides.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the options that set these overrides: `--optimizer sgd --dtype f16`.
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn options(&self) -> String {
        let flag = |is_set: bool, option: &str| is_set.then(|| option.to_owned());
        let options = [
            self.optimizer
                .map(|optimizer| format!("--optimizer {}", optimizer.name())),
            self.dtype.map(|dtype| format!("--dtype {}", dtype.name())),
            self.accumulate.map(|parts| format!("--accumulate {parts}")),
            flag(self.infer, "--infer"),
            flag(self.checkpointing, "--checkpointing"),
            flag(self.no_fusion, "--no-fusion"),
        ];
        options.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Returns the name of a model with these overrides, for example `resnet18 [sgd, f16]`. Without overrides, it is
    /// `name`.
    #[must_use]
    pub fn of(&self, name: &str) -> String {
        match self.is_none() {
            true => name.to_owned(),
            false => format!("{name} [{self}]"),
        }
    }
}

/// Lists the overrides, for example `sgd, f16`.
impl std::fmt::Display for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flag = |is_set: bool, word: &str| is_set.then(|| word.to_owned());
        let words = [
            self.optimizer.map(|optimizer| optimizer.name().to_owned()),
            self.dtype.map(|dtype| dtype.name().to_owned()),
            self.accumulate.map(|parts| format!("accumulate {parts}")),
            flag(self.infer, "infer"),
            flag(self.checkpointing, "checkpointing"),
            flag(self.no_fusion, "no fusion"),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}

/// An optimizer with Burn's default settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema, clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
// `clap` shows the variants' comments as help texts, so they have no full stop.
pub enum Optimizer {
    /// SGD: keeps no state from step to step
    Sgd,
    /// SGD with momentum: keeps one value per parameter
    SgdMomentum,
    /// Adam: keeps two values per parameter
    Adam,
    /// AdamW: keeps two values per parameter
    #[cfg_attr(feature = "cli", value(name = "adamw"))]
    // `kebab-case` would make this `adam-w`.
    #[serde(rename = "adamw")]
    AdamW,
}

impl Optimizer {
    const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::SgdMomentum => "sgd-momentum",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
        }
    }
}

/// The default element type of float tensors in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema, clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Float {
    /// Single precision
    F32,
    /// Half precision
    F16,
    /// Half precision with the range of single precision (bfloat16)
    Bf16,
    /// Mixed precision: parameters and optimizer state in f32, each step in f16
    MixedF16,
    /// Mixed precision: parameters and optimizer state in f32, each step in bf16
    MixedBf16,
}

impl Float {
    const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::MixedF16 => "mixed-f16",
            Self::MixedBf16 => "mixed-bf16",
        }
    }

    /// Whether parameters are f32 while the tensors of a step are f16 or bf16.
    #[must_use]
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::MixedF16 | Self::MixedBf16)
    }
}

/// Burn's features that affect how much memory a model needs, as the model's program was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct BurnFeatures {
    /// Whether Burn fuses operations.
    pub fusion: bool,
    /// Whether Burn chooses kernels by trying candidates (autotune).
    pub autotune: bool,
}

/// Names the features, for example `with fusion, without autotune`.
impl std::fmt::Display for BurnFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.fusion, self.autotune) {
            (true, true) => "with fusion and autotune",
            (true, false) => "with fusion, without autotune",
            (false, true) => "without fusion, with autotune",
            (false, false) => "without fusion and autotune",
        })
    }
}

/// The work of a model in each step: training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Forward, backward and optimizer.
    Train,
    /// Only forward, without autodiff.
    Infer,
}

/// A phase of a pass: `context` and `model` before the first step, the others in each step.
///
/// In a hand-written loop, `Step::phase` marks the phases `Forward`, `Backward` and `Optimizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
// The variants are in program order. Timelines sort by it.
pub enum Phase {
    /// Before the model is built. Only the CUDA contexts exist.
    Context,
    /// The model is built and moved to the GPU.
    Model,
    /// The inputs of the step are made.
    Batch,
    /// From the inputs to the loss, or to the output of an inference.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// The optimizer applies the gradients to the parameters.
    Optimizer,
    /// A step of a training of several epochs, from the batch to the next: forward, backward and optimizer.
    Training,
    /// A step of the validation of an epoch.
    Validation,
    /// Between the last batch of a training or validation and the next part of the epoch: metrics and checkpoints.
    Between,
}

/// A part of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EpochPart {
    /// The model is trained on the training data.
    Training,
    /// The model is evaluated on the validation data.
    Validation,
}

/// What a training of several epochs has seen of the program's threads, besides its own and Burn's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherThreads {
    /// There were none, or nobody looked.
    None,
    /// The training waited until they were idle.
    Idle,
    /// Some were busy for so long that the training did not wait for them.
    Busy,
}

/// The memory of one of the allocator's streams: each has its own pools. A thread of the program has its own stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMemory {
    /// The number of the stream.
    pub stream: u64,
    /// The requested bytes of its tensors, without padding.
    pub in_use: u64,
    /// The bytes that its pools hold.
    pub reserved: u64,
}

/// An event that a model's process writes. The file has the events in the order in which the process sent them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum ProbeEvent {
    /// The first event of every process.
    Hello {
        /// The models' [`PROTOCOL`].
        protocol: u32,
        /// The version of the `cargo-vram` crate that the models link.
        version: String,
        /// The adapter for the models' version of Burn, for example `burn-0_21`.
        adapter: String,
        /// Burn's features that affect memory, as the models were built.
        #[serde(default)]
        // The default lets the tool read this event from a version without the field, and name that version.
        features: Option<BurnFeatures>,
        /// The folder of the package that the program was built from.
        #[serde(default)]
        folder: String,
    },
    /// A declared model.
    Model {
        /// The model's name.
        name: String,
        /// Whether the model trains or infers.
        task: Task,
    },
    /// The model has asked for all of its inputs.
    Inputs {
        /// Each input with its value.
        values: BTreeMap<String, u64>,
    },
    /// The model has ranges, and the job has fewer steps than [`LEAST_STEPS_OF_SIZES`]. The pass ends.
    MoreSteps,
    /// The model has inputs that have another size in each step.
    Ranges {
        /// Each of them with its sizes.
        inputs: BTreeMap<String, SizeRange>,
    },
    /// The job sets an input that the model does not have.
    UnknownInput {
        /// The name of that input.
        name: String,
        /// The model's inputs with their values.
        known: BTreeMap<String, u64>,
    },
    /// The size of the model's parameters and buffers.
    Parameters {
        /// The number of values in parameters and buffers.
        count: u64,
        /// The number of values that receive a gradient.
        learnable: u64,
        /// The bytes of these `count` values, without the allocator's padding.
        bytes: u64,
    },
    /// The model cannot run as the job asks.
    Impossible {
        /// The reason. Reports show it to the user.
        why: String,
    },
    /// The model needs more GPUs than the process has.
    Gpus {
        /// The number of GPUs that the model needs.
        needed: u32,
    },
    /// The model has a hand-written loop: it called `Run::device` or `Run::steps`.
    FreeForm,
    /// The model trains for several epochs. The program runs the loop.
    Training {
        /// The number of epochs.
        epochs: u32,
        /// Whether the program makes its own data loaders, so that the probe sees the epochs only by the log of Burn's
        /// learner.
        is_logged: bool,
    },
    /// A part of an epoch ended.
    EpochEnd {
        /// The number of the epoch, from 1.
        epoch: u32,
        /// The part.
        part: EpochPart,
        /// When it began, in nanoseconds of `CLOCK_MONOTONIC`.
        began: u64,
        /// When it ended.
        time: u64,
        /// The first step of the part. Steps count on from part to part.
        first_step: u32,
        /// The number of its steps.
        steps: u32,
        /// Whether the loop took all batches of the loader.
        is_complete: bool,
        /// Whether the part ended now, and not some time before.
        is_end_seen: bool,
        /// The program's line that passed the data loader to the probe: `benches/vram.rs:46`.
        loader: String,
        /// Whether the loader's batches are on a backend with autodiff.
        is_tracked: bool,
        /// What is known about the program's other threads.
        threads: OtherThreads,
        /// The streams that have been used so far. Empty if the pass does not observe launches.
        streams: Vec<StreamMemory>,
    },
    /// The training never iterated over a data loader that the program passed to the probe.
    UnreadLoader {
        /// The program's line that passed it: `benches/vram.rs:46`.
        loader: String,
    },
    /// Burn's learner logged that it stopped because of an error.
    LearnerFailed {
        /// Its reason.
        why: String,
    },
    /// The model uploads tensors, and chance decides the order of these allocations among those of its operations. The
    /// tool runs the pass again with [`Inside::All`].
    Uploads,
    /// Fusion ran something while nothing was expected to run, so the trace would have a gap.
    Unforeseen,
    /// The model runs on the thread of fusion and did nothing for too long. Another thread of the program may wait for
    /// that thread.
    Stuck,
    /// A GPU reached a phase.
    Phase {
        /// The GPU's number, from 0.
        gpu: u32,
        /// The time, in nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// The step, from 0; absent before the first step.
        step: Option<u32>,
        /// The phase.
        phase: Phase,
    },
    /// The observations in one phase. If there are several for one GPU, step and phase, the last one counts.
    Seen {
        /// The GPU's number, from 0.
        gpu: u32,
        /// The step, from 0; absent before the first step.
        step: Option<u32>,
        /// The phase.
        phase: Phase,
        /// The highest live memory, in bytes.
        live_peak: u64,
        /// The live memory at the end of the phase, in bytes.
        live_end: u64,
        /// The requested bytes of the live memory at the end of the phase, without padding.
        in_use_end: u64,
        /// The number of kernels launched in the phase.
        launches: u64,
        /// A hash of the names of these kernels, which does not depend on their order.
        kernels: u64,
    },
    /// A thread of the process panicked.
    Panic {
        /// The GPU that the thread belongs to; absent for the program's own threads.
        gpu: Option<u32>,
        /// The thread's name.
        thread: String,
        /// The panic's message.
        message: String,
        /// The panic's place in the source: file, line and column.
        location: String,
        /// The step that the GPU was at; absent before the first step.
        step: Option<u32>,
        /// The phase that the GPU was at.
        phase: Phase,
        /// The kernel that was being launched, if the pass observes launches.
        kernel: Option<String>,
        /// The live bytes at the last sample before, if the pass observes launches.
        live: Option<u64>,
        /// Whether this happened inside an autotune candidate or a measurement of the GPU's throughput, where a failure
        /// is not an error.
        tuning: bool,
    },
    /// An operation failed, and Burn went on without the tensors that it makes (Burn 0.22).
    Failed {
        /// The GPU, if it is known.
        gpu: Option<u32>,
        /// The time, in nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// Burn's message.
        message: String,
        /// The step that the GPU was at; absent before the first step.
        step: Option<u32>,
        /// The phase that the GPU was at.
        phase: Phase,
        /// The kernel that was launched last, if the pass observes launches.
        kernel: Option<String>,
        /// The live bytes at the last sample before, if the pass observes launches.
        live: Option<u64>,
        /// Whether this happened inside an autotune candidate or a measurement of the GPU's throughput, where a failure
        /// is not an error.
        tuning: bool,
    },
    /// The pass ran to its end.
    Done {
        /// The number of completed steps.
        steps: u32,
        /// The number of values that this library itself read back from the GPU: the losses.
        own_reads: u64,
        /// The number of samples that could not be taken.
        missed_samples: u64,
        /// The largest number of streams that held memory on one GPU at once.
        streams: u32,
        /// The number of refused allocations for which Burn freed memory and tried again. Only Burn 0.22 does that.
        #[serde(default)]
        retried: Option<u64>,
        /// Whether the last two steps reserved no more memory; absent if the number of steps was fixed.
        #[serde(default)]
        settled: Option<bool>,
    },
}

/// One line of a trace. If the process dies, the lines that it had written remain.
#[derive(Debug, Clone, Serialize, Deserialize)]
// `probe/trace/line.rs` writes the frequent variants by hand. A changed field must change there, too.
#[serde(rename_all = "kebab-case", tag = "t")]
pub enum Traced {
    /// The first line.
    Start {
        /// The source folder of this library. Code in it is not the user's.
        home: String,
        /// The allocator rounds sizes up to a multiple of this, in bytes.
        alignment: u64,
        /// Whether each [`Traced::Ran`] is one block of operations. All lines up to the next `Ran` then belong to that
        /// block.
        #[serde(default)]
        blocks: bool,
    },
    /// The program asked for an operation.
    Operation {
        /// The operation's name in Burn's backends, for example `float_add`.
        name: String,
        /// The numbers of the input tensors.
        inputs: Vec<u64>,
        /// The tensors that the operation makes, now or later.
        outputs: Vec<Made>,
        /// The number of the [`Traced::Stack`] that asked for it.
        stack: u32,
    },
    /// A call stack.
    Stack {
        /// The stack's number.
        stack: u32,
        /// The frames, the innermost first.
        frames: Vec<Frame>,
    },
    /// The code at an address.
    Address {
        /// The address.
        address: u64,
        /// The functions at the address. If functions were inlined, there are several, the innermost first.
        symbols: Vec<SourceSymbol>,
    },
    /// The program entered a phase. The operations that follow belong to it.
    Marked {
        /// The step, from 0; absent before the first step.
        step: Option<u32>,
        /// The phase.
        phase: Phase,
    },
    /// The GPU reached a phase. The samples that follow belong to it.
    Reached {
        /// The step, from 0; absent before the first step.
        step: Option<u32>,
        /// The phase.
        phase: Phase,
    },
    /// The name of a kernel.
    Kernel {
        /// The kernel's number.
        kernel: u32,
        /// The kernel's name.
        name: String,
    },
    /// A sample of Burn's allocator.
    Sample {
        /// The time, in nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// The live memory, in bytes.
        live: u64,
        /// The number of the kernel being launched.
        kernel: Option<u32>,
    },
    /// Burn's allocator handed out a piece of memory.
    Allocated {
        /// The number of the piece.
        memory: u64,
        /// The requested size, in bytes.
        bytes: u64,
    },
    /// A look: which tensors got or lost memory since the last look.
    Look {
        /// The number of operations that the program had asked for, whether Burn had run them or not.
        after: u64,
        /// The number of completed steps.
        steps: u32,
        /// Tensors that have memory now and had none at the last look.
        came: Vec<HeldTensor>,
        /// The numbers of tensors that had memory at the last look and have none now.
        gone: Vec<u64>,
    },
    /// Fusion runs one operation, or several as a block. The launches that follow are for these, or for those of the
    /// next such line.
    Ran {
        /// The numbers of tensors that get memory: new memory, or that of a freed tensor.
        made: Vec<u64>,
        /// The numbers of tensors that are freed afterwards.
        freed: Vec<u64>,
        /// Details of those made tensors that no [`Traced::Operation`] lists, because Burn makes them internally.
        inner: Vec<Made>,
    },
    /// A module of the model, or a parameter of one.
    Module {
        /// The path of fields in the model, for example `layer1.0.conv1`.
        path: String,
        /// The type of the module that it is a field of.
        parent: String,
    },
    /// A tensor is a parameter or buffer, or a parameter's gradient.
    Belongs {
        /// The tensor's number.
        tensor: u64,
        /// The parameter's path.
        path: String,
        /// Whether the parameter receives a gradient.
        learnable: bool,
        /// Whether the tensor is the gradient.
        gradient: bool,
    },
}

/// A tensor that an operation makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    /// The tensor's number.
    pub id: u64,
    /// The length of each dimension, in elements.
    pub shape: Vec<u64>,
    /// The element type, for example `f32`.
    pub dtype: String,
    /// The bytes of all elements, without padding.
    pub bytes: u64,
}

/// A tensor and the piece of memory that it has.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct HeldTensor {
    /// The tensor's number.
    pub tensor: u64,
    /// The number of the piece of memory.
    pub memory: u64,
}

/// A frame of a call stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The address of the next instruction.
    pub address: u64,
    /// The stack pointer, which differs between two calls of one function.
    pub stack: u64,
}

/// A function in the program, and the place in its source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceSymbol {
    /// The function.
    pub function: String,
    /// The source file, if debug information names it.
    pub file: Option<String>,
    /// The line, if debug information names it.
    pub line: Option<u32>,
}
