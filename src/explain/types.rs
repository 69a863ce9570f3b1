//! The types of an explanation. Their names are the format: renaming one is a new version.
//!
//! Moments are told by *sample*: an index into [`Timeline`], which has one sample before and one after each launch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::report::{Growing, Pass, Phase, Run, Tool};

/// The version of the format that this program writes.
pub const EXPLANATION_VERSION: u32 = 2;

/// Where the memory of one model goes, layer by layer and moment by moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The version of this format.
    #[schemars(extend("const" = EXPLANATION_VERSION))]
    pub version: u32,
    /// Which program made it.
    pub tool: Tool,
    /// The commit that was checked out, where the workspace is a git checkout.
    pub commit: Option<String>,
    /// When that commit was made, by its committer's clock: `2026-11-23T18:04:05+01:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_date: Option<String>,
    /// Whether there were changes on top of that commit; absent where nobody could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
    /// The run that is explained, as a report has it.
    pub run: Run,
    /// Why it is of less than the whole run, where the model died on its way.
    pub partial: Option<String>,
    /// How the layer table counts activations.
    pub activations: Activations,
    /// What the layers add up to.
    pub totals: Totals,
    /// The operations of the first step's forward phase that make a feature map, in their order.
    pub layers: Vec<Layer>,
    /// The moment with the most live bytes.
    pub peak: Moment,
    /// Of a what-if: what is held for what at the peak of the model as it is, and at this one's. Empty of a model as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// Every phase of every step, by pass.
    pub phases: Vec<PhaseRow>,
    /// Every tensor that held memory, in the order in which they came.
    pub tensors: Vec<Tensor>,
    /// Memory over time.
    pub timeline: Timeline,
    /// What came and went, by source line of the user's code; empty unless asked for.
    pub lines: Vec<Line>,
    /// The text of these lines, as it was when the model was explained, by file and line; empty unless lines were asked for,
    /// and without those that the workspace does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<LineText>,
    /// Whether live memory grows from step to step.
    pub leak: Leaking,
    /// What would take less; empty unless asked for.
    pub savings: Vec<Saving>,
    /// What the attribution rests on, besides what the run's figures do, in sentences.
    pub assumptions: Vec<String>,
}

/// A category of a model as it is, and of a what-if, each at its own peak of live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// What the memory is held for.
    pub category: Category,
    /// As the model is.
    pub before: Bytes,
    /// With what is otherwise.
    pub after: Bytes,
}

/// How activation layers count in the layer table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Activations {
    /// Each is a row with a feature map of its own.
    #[default]
    Own,
    /// Each is inside the layer before it.
    Fused,
    /// Each is a row, and works in its input's memory: it counts nothing.
    InPlace,
}

/// What the layers add up to. Bytes are logical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// The input `batch_size`, where the model has one.
    pub batch_size: Option<u64>,
    /// Parameters, learnable and not.
    pub parameters: u64,
    /// Those that receive a gradient: in inference none.
    pub learnable: u64,
    /// Those that do not: running statistics, and in inference all.
    pub not_learnable: u64,
    /// Bytes of all parameters.
    pub parameter_bytes: Bytes,
    /// Bytes of the feature maps, inputs included.
    pub feature_bytes: Bytes,
    /// Of these, the inputs.
    pub input_bytes: Bytes,
    /// Bytes of the feature maps that layers make, twice: once forward, once as gradients.
    pub forward_backward_bytes: Bytes,
    /// Parameters and feature maps.
    pub total_bytes: Bytes,
}

/// One row of the layer table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// The module's path: `layer1.0.conv1`; for what is no module, that of the module it happens in, and the
    /// operation: `layer1.0.add`.
    pub path: String,
    /// The path was inferred from its neighbours, for the operation has no parameters.
    pub inferred: bool,
    /// What it is: `Conv2d`, `Relu`, `flatten`; `input` for what the batch consists of.
    pub kind: String,
    /// Whether it is an activation.
    pub activation: bool,
    /// The output's shape, batch included.
    pub output: Vec<u64>,
    /// The output's element type: `f32`.
    pub dtype: String,
    /// Parameters, learnable and not.
    pub parameters: u64,
    /// Those that receive a gradient.
    pub learnable: u64,
    /// Bytes of all parameters, logical.
    pub parameter_bytes: Bytes,
    /// Bytes of the output, logical; 0 where it counts elsewhere (see [`Activations`]).
    pub feature_bytes: Bytes,
    /// Burn gave the output no memory of its own: it is written over the input, looked at in another shape, or never
    /// written at all, since it is fused into what comes next.
    pub shares_memory: bool,
    /// Where the user's code asked for it.
    pub source: Option<Source>,
}

/// A place in source code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// The file, relative to the workspace root where it is in there.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function: `resnet::ResNet<B>::forward`.
    pub function: String,
}

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Learnable parameters.
    Parameter,
    /// Parameters that receive no gradient.
    Buffer,
    /// Gradients of parameters.
    Gradient,
    /// What the optimizer keeps from step to step.
    OptimizerState,
    /// What forward makes.
    Activation,
    /// What backward makes on its way to the parameters' gradients.
    ActivationGradient,
    /// The batch.
    Input,
    /// What is held within an operation, or within a phase for no layer.
    Workspace,
    /// Live bytes less logical bytes: rows and tensors are rounded up.
    Alignment,
    /// Live bytes of which it is not known what they are for.
    Unattributed,
    /// Reserved bytes less live bytes.
    Fragmentation,
    /// What the process holds before its first tensor.
    Context,
    /// What loaded kernels take.
    Modules,
}

impl Category {
    /// All, in the order in which they are told: what is a part of live first.
    pub const ALL: [Self; 13] = [
        Self::Parameter,
        Self::Buffer,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::ActivationGradient,
        Self::Input,
        Self::Workspace,
        Self::Alignment,
        Self::Unattributed,
        Self::Fragmentation,
        Self::Context,
        Self::Modules,
    ];

    /// Whether it is a part of live bytes, and not of what the process holds besides.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Fragmentation | Self::Context | Self::Modules)
    }
}

/// How much is held for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CategoryBytes {
    /// For what.
    pub category: Category,
    /// How much; logical bytes of the tensors, `alignment` apart.
    pub bytes: Bytes,
}

/// A moment, and what was held at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Which sample of the timeline.
    pub sample: u32,
    /// The step, from 0; absent before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// The kernel that is launched.
    pub kernel: Option<String>,
    /// Live bytes: all categories but fragmentation, context and modules.
    pub live: Bytes,
    /// Reserved bytes: live and fragmentation.
    pub reserved: Bytes,
    /// Reserved, context and modules.
    pub process: Bytes,
    /// What they consist of. All categories are there, in the order of [`Category`].
    pub categories: Vec<CategoryBytes>,
    /// The tensors that were there, as indices into `tensors`, the largest first.
    pub tensors: Vec<u32>,
}

/// One phase of one step in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRow {
    /// Which pass: cold, and traced, which is the warm one looked at.
    pub pass: Pass,
    /// The step, from 0; absent before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// Live at its end; absent in the cold pass, where it is not observed.
    pub live_end: Option<Bytes>,
    /// The most live.
    pub live_peak: Option<Bytes>,
    /// Live at its end, less that at the end of the phase before.
    pub live_change: Option<i64>,
    /// Reserved at its end.
    pub reserved_end: Bytes,
    /// The most reserved.
    pub reserved_peak: Bytes,
    /// Reserved at its end, less that at the end of the phase before.
    pub reserved_change: i64,
    /// The run ended in it, for lack of memory or by an error.
    pub failed: bool,
}

/// A tensor that held memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tensor {
    /// Burn's number of it.
    pub id: u64,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type: `f32`.
    pub dtype: String,
    /// Bytes of its memory, rounding included. 0 where it shares that of another tensor which is there.
    pub bytes: Bytes,
    /// Its elements' bytes.
    pub logical: Bytes,
    /// What it is for.
    pub category: Category,
    /// The module it belongs to.
    pub module: Option<String>,
    /// The module was inferred from its neighbours.
    pub inferred: bool,
    /// The operation that made it: `conv2d`.
    pub operation: String,
    /// Where the user's code asked for that.
    pub source: Option<Source>,
    /// The step it was made in; absent before the first.
    pub step: Option<u32>,
    /// The phase it was made in.
    pub phase: Phase,
    /// The first sample that saw it.
    pub born: u32,
    /// The first sample that saw it no more; absent where it was there to the end.
    pub died: Option<u32>,
    /// The tensor whose memory it shares, as an index into `tensors`.
    pub shares: Option<u32>,
}

/// Memory over time, column by column: each of them but `borders` and `kernels` has one entry a sample.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Live bytes.
    pub live: Vec<Bytes>,
    /// Reserved bytes.
    pub reserved: Vec<Bytes>,
    /// The kernel, as an index into `kernels`.
    pub kernel: Vec<u32>,
    /// The names of kernels.
    pub kernels: Vec<String>,
    /// Where phases begin.
    pub borders: Vec<Border>,
    /// What live consists of; at each sample these add up to it.
    pub categories: Vec<Series>,
}

impl Timeline {
    /// What is held for a category, one entry a sample; nothing where the category is not there.
    #[must_use]
    pub fn of(&self, category: Category) -> &[Bytes] {
        let series = self.categories.iter().find(|series| series.category == category);
        series.map_or(&[], |series| &series.bytes)
    }

    /// Whether anything is ever held for it.
    #[must_use]
    pub fn holds(&self, category: Category) -> bool {
        self.of(category).iter().any(|bytes| bytes.0 > 0)
    }
}

/// Where a phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Border {
    /// The first sample in it.
    pub sample: u32,
    /// The step, from 0; absent before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
}

/// One category over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Which.
    pub category: Category,
    /// Bytes, one entry a sample.
    pub bytes: Vec<Bytes>,
}

/// What changed while one line of the user's code ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The line.
    pub source: Source,
    /// The lines of the user's own code that called its function, the innermost first; absent in older documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Source>,
    /// The step, from 0; absent before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// Bytes of all tensors after it.
    pub live: Bytes,
    /// Less those before it.
    pub change: i64,
    /// Tensors that came, as indices into `tensors`.
    pub came: Vec<u32>,
    /// Tensors that went.
    pub went: Vec<u32>,
}

/// What a line of the user's code says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LineText {
    /// The file, relative to the workspace root.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Its text, without what it is indented by.
    pub text: String,
}

/// Whether live memory grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Leaking {
    /// Too few steps were run to tell.
    Unknown {
        /// Steps that were run to their end.
        seen: u32,
        /// Steps that it takes.
        needed: u32,
    },
    /// It does not.
    No,
    /// It does.
    Yes(Leak),
}

impl Leaking {
    /// What grows, where something does.
    #[must_use]
    pub const fn found(&self) -> Option<&Leak> {
        match self {
            Self::Yes(leak) => Some(leak),
            Self::Unknown { .. } | Self::No => None,
        }
    }
}

/// Live memory that grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// How much it grows.
    #[serde(flatten)]
    pub growing: Growing,
    /// Tensors made in one step that are still there at the end, as indices into `tensors`, the largest first.
    pub tensors: Vec<u32>,
}

/// A change that would take less memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Saving {
    /// A short, stable name: `smaller-batch`.
    pub code: String,
    /// What to change, in words.
    pub change: String,
    /// Peaks of the warm pass with it; absent where it could not be told.
    pub live: Option<Bytes>,
    /// Reserved with it; absent where only live can be told.
    pub reserved: Option<Bytes>,
    /// Live bytes saved at the peak; negative where it takes more.
    pub saved_live: Option<i64>,
    /// Reserved bytes saved.
    pub saved_reserved: Option<i64>,
    /// What it costs, in words; empty where it costs nothing.
    pub cost: String,
    /// How the figure was obtained.
    pub certainty: Certainty,
    /// More on it: which tensor, held by whom since when; or why it could not be told.
    pub note: Option<String>,
}

impl Saving {
    /// Whether the model was run with it, and held as much as without.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.certainty == Certainty::Run && self.saved_live == Some(0) && matches!(self.saved_reserved, None | Some(0))
    }
}

/// How the figure of a [`Saving`] was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The model was run with the change.
    Run,
    /// Computed from the timeline, of a run with the change where there is one: reserved is not told.
    Timeline,
    /// It is no change to make but what is saved already.
    Already,
    /// It could not be told; the note says why.
    Unknown,
}
