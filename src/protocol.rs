//! What the command line tool and a model's process say to each other: one job file in, one file of events out.
//!
//! Both sides compile this module, each from its own version of the crate, so it carries its own version.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of this protocol. A model that speaks another one is not run.
pub const PROTOCOL: u32 = 11;

/// The most cards that a process has: more than any machine that Burn runs on, and as many as the driver knows.
pub const MOST_CARDS: u32 = 16;

/// The environment variable that holds the path of the job file. Without it, a model's binary does nothing.
pub const JOB_VARIABLE: &str = "CARGO_VRAM_JOB";

/// What the tool asks of a model's binary.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// [`PROTOCOL`] of the tool.
    pub protocol: u32,
    /// Version of the tool.
    pub version: String,
    /// Where events go, one JSON document a line.
    pub events: PathBuf,
    /// What is to be done.
    pub action: Action,
}

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Name the declared models.
    List,
    /// Run one pass of one model.
    Run(RunJob),
}

/// One pass of one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunJob {
    /// The model's name.
    pub model: String,
    /// How many steps.
    pub steps: u32,
    /// The most steps, where more are to be run until two in a row reserve nothing more. Only Burn 0.22 needs them: its allocator
    /// adapts its pages to what it has seen.
    #[serde(default)]
    pub most_steps: Option<u32>,
    /// Inputs that differ from what the model says.
    pub inputs: BTreeMap<String, u64>,
    /// The folder of this pass's autotune choices: empty for a cold pass, the plan for the others.
    pub autotune: PathBuf,
    /// The folder of compiled kernels, to find them in and add to. Where there is none, each is compiled.
    #[serde(default)]
    pub kernels: Option<PathBuf>,
    /// Whether launches are observed.
    pub traced: bool,
    /// Where the trace goes, one [`Traced`] a line, where there is to be one. Only models that were built with the
    /// feature `explain` can write it.
    pub trace: Option<PathBuf>,
    /// Whether the trace may do without fusion's reports where fusion is not expected to run anything. A model for which
    /// that turns out wrong says so and ends.
    pub foresees: bool,
    /// Whether Burn's threads take turns, launch by launch, so that two runs agree in every byte.
    pub lockstep: bool,
    /// The model is known to have a loop written by hand: Burn's persistent pool, which is a matter of chance there, is
    /// off where threads take turns. A model that turns out to have one, and was not known to, says so and ends.
    pub free_form: bool,
    /// What of the model runs on the thread of Burn's fusion. Only Burn 0.22 needs that: uploads are then allocated in the program's
    /// order, and operations are told of with the lines that asked for them. A model that turns out to need it says so and ends.
    #[serde(default)]
    pub inside: Inside,
    /// Whether the model runs on that thread only to tell of lines: if it does nothing there for long, it says so and ends.
    #[serde(default)]
    pub watched: bool,
    /// Whether Burn frees what it keeps for later launches before the end of a phase is looked at, so that only tensors are seen.
    /// Only Burn 0.22 keeps such.
    #[serde(default)]
    pub uncached: bool,
    /// In what the pass differs from what the model says.
    #[serde(default)]
    pub what_if: WhatIf,
    /// How many cards there are.
    pub cards: u32,
    /// Milliseconds to wait between making the context and the model, so that the context can be looked at alone.
    pub settle_ms: u64,
}

/// What of a model runs on the thread of Burn's fusion.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// Nothing: Burn's own way.
    #[default]
    Nothing,
    /// Each step of a ready-made loop, but for the batch.
    Steps,
    /// All of it.
    All,
}

/// In what a pass differs from what the model says. Its names are those of the report, too.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WhatIf {
    /// Another optimizer, as Burn has it by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// The element type of floats: Burn's default for tensors that do not say another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Float>,
    /// Into how many parts each batch is taken apart, whose gradients are added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<u32>,
    /// No gradients: the step is the forward phase alone, as in validation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub infer: bool,
    /// Autodiff keeps less and computes it again; another build.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpointing: bool,
    /// Operations are not fused; another build.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_fusion: bool,
}

impl WhatIf {
    /// Whether the model is run as it is.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The name of what is run so: `resnet18 [sgd, f16]`; its own where it is run as it is.
    #[must_use]
    pub fn of(&self, name: &str) -> String {
        match self.is_none() {
            true => name.to_owned(),
            false => format!("{name} [{self}]"),
        }
    }
}

/// What is changed, in words: `sgd, f16`.
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

/// An optimizer, with Burn's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema, clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// SGD, which keeps nothing from step to step
    Sgd,
    /// SGD with momentum, which keeps one value a parameter
    SgdMomentum,
    /// Adam, which keeps two values a parameter
    Adam,
    /// AdamW, which keeps two values a parameter
    #[cfg_attr(feature = "cli", value(name = "adamw"))]
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

/// The element type of floats that a model is run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema, clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Float {
    /// Single precision
    F32,
    /// Half precision
    F16,
    /// Half precision with the range of single precision
    Bf16,
    /// Mixed precision: parameters and the optimizer's state in f32, each step in f16
    MixedF16,
    /// Mixed precision: parameters and the optimizer's state in f32, each step in bf16
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

    /// Whether parameters are f32 and the tensors of a step are not.
    #[must_use]
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::MixedF16 | Self::MixedBf16)
    }
}

/// The features of Burn that decide how much memory a model needs, as the model's program was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct BurnFeatures {
    /// Whether operations are fused.
    pub fusion: bool,
    /// Whether kernels are chosen by trying them.
    pub autotune: bool,
}

/// `with fusion, without autotune`
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

/// What a model does in its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Forward, backward, optimizer.
    Train,
    /// Forward alone, without autodiff.
    Infer,
}

/// A part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before the model is made.
    Context,
    /// The model is made and moved to the device.
    Model,
    /// The step's inputs are made.
    Batch,
    /// From inputs to loss.
    Forward,
    /// From loss to gradients.
    Backward,
    /// Gradients applied to parameters.
    Optimizer,
}

/// What a model's process says, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// Always first.
    Hello {
        /// [`PROTOCOL`] of the models.
        protocol: u32,
        /// Version of the `cargo-vram` crate that the models link.
        version: String,
        /// The adapter: which Burn it was written for.
        adapter: String,
        /// With which of its features that decide memory Burn was built.
        #[serde(default)]
        features: Option<BurnFeatures>,
    },
    /// A declared model.
    Model {
        /// Its name.
        name: String,
        /// What it does.
        task: Task,
    },
    /// The model asked for its inputs.
    Inputs {
        /// Every input with the value it got.
        values: BTreeMap<String, u64>,
    },
    /// An input was set that the model does not have.
    UnknownInput {
        /// The input that was set.
        name: String,
        /// The inputs there are, with the values they got.
        known: BTreeMap<String, u64>,
    },
    /// The model's parameters.
    Parameters {
        /// Learnable and buffers.
        count: u64,
        /// Those that receive a gradient.
        learnable: u64,
        /// Logical bytes of `count`.
        bytes: u64,
    },
    /// It cannot be run as it was asked to: what was asked for has no place in a loop like the model's.
    Impossible {
        /// Why.
        why: String,
    },
    /// The model is over more cards than there are.
    Cards {
        /// So many.
        needed: u32,
    },
    /// The step is written by hand and does not fork the model to the device.
    FreeForm,
    /// The model uploads tensors, in an order of chance beside its operations.
    Uploads,
    /// Fusion ran something where nothing was expected to run, so the trace would have a hole.
    Unforeseen,
    /// The model runs on the thread of fusion, and did nothing for long: another thread of the program's may wait for that one.
    Stuck,
    /// A phase began on the device's thread.
    Phase {
        /// Of which card.
        card: u32,
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// The step, absent before the first.
        step: Option<u32>,
        /// Which phase.
        phase: Phase,
    },
    /// What was seen in one phase; the last one for a card, a step and a phase counts.
    Seen {
        /// On which card.
        card: u32,
        /// The step, absent before the first.
        step: Option<u32>,
        /// Which phase.
        phase: Phase,
        /// Highest live bytes.
        live_peak: u64,
        /// Live bytes at its end.
        live_end: u64,
        /// The bytes that were asked for, of those live at its end: without padding.
        in_use_end: u64,
        /// Kernels launched within it.
        launches: u64,
        /// A hash over the names of these kernels.
        kernels: u64,
    },
    /// Something panicked.
    Panic {
        /// Of which card the thread is; absent for the program's own.
        card: Option<u32>,
        /// The thread's name.
        thread: String,
        /// The message.
        message: String,
        /// File and line.
        location: String,
        /// The step that the device's thread was at.
        step: Option<u32>,
        /// The phase that the device's thread was at.
        phase: Phase,
        /// The kernel that was being launched, where launches are observed.
        kernel: Option<String>,
        /// Live bytes before that launch, where launches are observed.
        live: Option<u64>,
        /// Inside an autotune candidate, where a failure is no error.
        tuning: bool,
    },
    /// Burn could not do an operation and went on without it, with tensors that were never made (Burn 0.22).
    Failed {
        /// On which card.
        card: Option<u32>,
        /// When, in nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// Burn's message.
        message: String,
        /// The step that the device's thread was at.
        step: Option<u32>,
        /// The phase that the device's thread was at.
        phase: Phase,
        /// The kernel that was launched last, where launches are observed.
        kernel: Option<String>,
        /// Live bytes before that launch, where launches are observed.
        live: Option<u64>,
        /// Inside an autotune candidate or a measurement of the GPU's throughput, where a failure is no error.
        tuning: bool,
    },
    /// Everything that was asked for was done.
    Done {
        /// Steps completed.
        steps: u32,
        /// Values read back by this library itself: the loss, once a step.
        own_reads: u64,
        /// Samples that Burn's allocator refused to give.
        missed_samples: u64,
        /// Streams that held device memory.
        streams: u32,
        /// Refused allocations for which Burn freed memory and tried once more. Only Burn 0.22 does that.
        #[serde(default)]
        retried: Option<u64>,
        /// Whether two steps in a row reserved nothing more, where steps were run until they do.
        #[serde(default)]
        settled: Option<bool>,
    },
}

/// One line of a trace. A process that dies leaves what it had written until then.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "t")]
pub enum Traced {
    /// Always first.
    Start {
        /// The folder of this library's own source, which is none of the user's.
        home: String,
        /// What sizes are rounded up to.
        alignment: u64,
        /// Whether each [`Traced::Ran`] is one block of operations, and everything up to the next one is of that block.
        #[serde(default)]
        blocks: bool,
    },
    /// The program asked for an operation.
    Operation {
        /// As Burn's backends name it: `float_add`.
        name: String,
        /// The tensors it was given.
        inputs: Vec<u64>,
        /// The tensors it makes, now or later.
        outputs: Vec<Made>,
        /// From where, as a number of a [`Traced::Stack`].
        stack: u32,
    },
    /// A call: the innermost frame first.
    Stack {
        /// Its number.
        stack: u32,
        /// Its frames.
        frames: Vec<Frame>,
    },
    /// What is at an address; several where functions were inlined, the innermost first.
    Address {
        /// The address.
        address: u64,
        /// Its names.
        symbols: Vec<Symbol>,
    },
    /// The program goes on to a phase: operations that follow belong to it.
    Marked {
        /// The step, absent before the first.
        step: Option<u32>,
        /// Which phase.
        phase: Phase,
    },
    /// The device goes on to a phase: samples that follow belong to it.
    Reached {
        /// The step, absent before the first.
        step: Option<u32>,
        /// Which phase.
        phase: Phase,
    },
    /// The name of a kernel.
    Kernel {
        /// Its number.
        kernel: u32,
        /// Its name.
        name: String,
    },
    /// Burn's allocator was looked at.
    Sample {
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// Live bytes.
        live: u64,
        /// The kernel being launched.
        kernel: Option<u32>,
    },
    /// Burn's allocator handed out a piece of memory.
    Allocated {
        /// Its number.
        memory: u64,
        /// Its size, as it was asked for.
        bytes: u64,
    },
    /// Fusion's tensors were looked at.
    Look {
        /// After this operation was with fusion, whether done or not.
        after: u64,
        /// After so many steps.
        steps: u32,
        /// Tensors that have memory now.
        came: Vec<Held>,
        /// Tensors that have none any more.
        gone: Vec<u64>,
    },
    /// Fusion runs operations, at once or one: what follows is launched for them, or for those of the next such line.
    Ran {
        /// Tensors that get memory, of their own or of one that is freed.
        made: Vec<u64>,
        /// Tensors that are freed afterwards.
        freed: Vec<u64>,
        /// Of those made, what there is to know of such as no operation was told of: Burn makes them on its own way.
        inner: Vec<Made>,
    },
    /// A module of the model, or a parameter of one.
    Module {
        /// `layer1.0.conv1`
        path: String,
        /// The type of the module that it is a field of.
        parent: String,
    },
    /// A tensor is a parameter, or a parameter's gradient.
    Belongs {
        /// The tensor.
        tensor: u64,
        /// The parameter's path.
        path: String,
        /// Whether the parameter receives a gradient.
        learnable: bool,
        /// Whether it is the gradient.
        gradient: bool,
    },
}

/// A tensor that an operation makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    /// Its number.
    pub id: u64,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: String,
    /// Its elements' bytes.
    pub bytes: u64,
}

/// A tensor and its memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Held {
    /// The tensor.
    pub tensor: u64,
    /// The piece of memory.
    pub memory: u64,
}

/// A frame of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Where it goes on.
    pub address: u64,
    /// Where its stack is: two calls of one function have two.
    pub stack: u64,
}

/// A place in the program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Symbol {
    /// The function.
    pub function: String,
    /// The file, where debug information has it.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}
