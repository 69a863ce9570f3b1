//! The types of an explanation. Their names are the format: renaming one needs a new version.
//!
//! A moment is a *sample*: an index into [`MemoryTimeline`], which has one sample before and one after each launch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::report::{Assumption, Growing, GrowthExplanation, GrowthInterval, Pass, Phase, Run, Tool};
use crate::untrusted::Foreign;

/// The version of the explanation format that this program writes.
pub const EXPLANATION_VERSION: u32 = 3;

/// Where the memory of one model goes, layer by layer and moment by moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The version of this format.
    #[schemars(extend("const" = EXPLANATION_VERSION))]
    pub version: u32,
    /// The program that wrote the explanation.
    pub tool: Tool,
    /// The git commit of the workspace; null if the workspace is not a git checkout.
    pub commit: Option<Foreign>,
    /// When that commit was made, by the committer's clock: `2026-11-23T18:04:05+01:00`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_date: Option<Foreign>,
    /// Whether the workspace had changes on top of that commit; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
    /// The explained run, as in a report.
    pub run: Run,
    /// Why the explanation covers less than the whole run; null if it covers all of it.
    pub partial: Option<Foreign>,
    /// How the layer table counts activations.
    pub activations: Activations,
    /// The sums over all layers.
    pub totals: Totals,
    /// The operations of the first step's forward phase that make a feature map, in order.
    pub layers: Vec<Layer>,
    /// The first moment with the most live memory.
    pub peak: PeakMoment,
    /// For a what-if: the bytes of each category at the peak of the model as it is, and at this run's peak. Absent for
    /// other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// Why the run's memory grew since the base. Only in the documents that `check --why` writes for the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrowthExplanation>,
    /// Every phase of every step, by pass.
    pub phases: Vec<PhaseRow>,
    /// Every tensor that held memory, in the order in which they came.
    pub tensors: Vec<TensorLife>,
    /// Memory over time.
    pub timeline: MemoryTimeline,
    /// The memory that came and went per source line of the user's code; empty unless requested with `--lines`.
    pub lines: Vec<SourceLineMemory>,
    /// The user's lines that led to tensors, the innermost first: one list per stack. Absent if no line is known, and in
    /// documents of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Vec<SourceLocation>>,
    /// The text of the lines of `stacks` and `lines` when the model was explained, by file and line. Lines that the
    /// workspace does not have are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<LineText>,
    /// Whether live memory grows from step to step.
    pub leak: Leaking,
    /// Changes that would need less memory; empty unless requested with `--savings`.
    pub savings: Vec<Saving>,
    /// What the attribution depends on and nobody checked, in addition to the assumptions of the run.
    pub assumptions: Vec<Assumption>,
}

/// The bytes of one category for the model as it is and for a what-if, each at its own peak of live memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// The category.
    pub category: Category,
    /// The bytes for the model as it is.
    pub before: Bytes,
    /// The bytes for the what-if.
    pub after: Bytes,
}

/// How the layer table counts activation layers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Activations {
    /// Give each activation a row with its own feature map
    #[default]
    Own,
    /// Leave activations out, as part of the layer before
    Fused,
    /// Give each activation a row with 0 bytes, because it works in its input's memory
    InPlace,
}

/// The sums over all layers. Bytes are without padding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// The input `batch_size`; null if the model has none.
    pub batch_size: Option<u64>,
    /// The number of parameters, learnable and not.
    pub parameters: u64,
    /// The number of parameters that receive a gradient; 0 in inference.
    pub learnable: u64,
    /// The number of parameters that receive none: running statistics, and in inference all parameters.
    pub not_learnable: u64,
    /// Bytes of all parameters.
    pub parameter_bytes: Bytes,
    /// Bytes of all feature maps, inputs included.
    pub feature_bytes: Bytes,
    /// Bytes of the inputs, which are part of `feature_bytes`.
    pub input_bytes: Bytes,
    /// Bytes of the feature maps without inputs, counted twice: once forward, once as gradients.
    pub forward_backward_bytes: Bytes,
    /// Bytes of parameters and feature maps.
    pub total_bytes: Bytes,
}

/// One row of the layer table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// The module's path, such as `layer1.0.conv1`. For an operation that is not a module: the path of the module
    /// around it and the operation, such as `layer1.0.add`.
    pub path: Foreign,
    /// Whether the path was inferred from neighbouring layers, because the operation has no parameters.
    pub inferred: bool,
    /// The kind of layer: `Conv2d`, `Relu`, `flatten`; `input` for a tensor of the batch.
    pub kind: Foreign,
    /// Whether the layer is an activation.
    pub activation: bool,
    /// The shape of the output, batch dimension included.
    pub output: Vec<u64>,
    /// The element type of the output, such as `f32`.
    pub dtype: Foreign,
    /// The number of parameters, learnable and not; 0 if an earlier row already counts them.
    pub parameters: u64,
    /// The number of parameters that receive a gradient.
    pub learnable: u64,
    /// Bytes of all parameters, without padding.
    pub parameter_bytes: Bytes,
    /// Bytes of the output, without padding; 0 if it counts elsewhere (see [`Activations`]).
    pub feature_bytes: Bytes,
    /// Whether Burn gave the output no memory of its own: it is written over the input, is a view of it, or is never
    /// written, because it is fused into the next operation.
    pub shares_memory: bool,
    /// The user's line that asked for the layer; null if unknown.
    pub source: Option<SourceLocation>,
}

/// A place in source code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SourceLocation {
    /// The file, relative to the workspace root if it is inside the workspace.
    pub file: Foreign,
    /// The line, from 1.
    pub line: u32,
    /// The function, such as `resnet::ResNet<B>::forward`.
    pub function: Foreign,
}

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Learnable parameters.
    Parameter,
    /// Parameters that receive no gradient, and other tensors that the model phase made to stay.
    Buffer,
    /// Gradients of parameters.
    Gradient,
    /// Tensors that the optimizer keeps from step to step.
    OptimizerState,
    /// Tensors that the forward phase makes.
    Activation,
    /// Tensors that the backward phase makes on the way to the parameters' gradients.
    ActivationGradient,
    /// Tensors of the batch.
    Input,
    /// Memory that is held only within an operation, or within a phase but for no layer.
    Workspace,
    /// Padding: live bytes minus the bytes of the tensors' elements, because rows and tensors are rounded up.
    Alignment,
    /// Live bytes of unknown use.
    Unattributed,
    /// Reserved bytes minus live bytes.
    Fragmentation,
    /// Memory that the process holds before its first tensor.
    Context,
    /// Memory that loaded kernels take.
    Modules,
}

impl Category {
    /// The categories of live memory, from the bottom of a stacked drawing to its top. Lasting memory comes first, so
    /// that it lies flat.
    pub(crate) const STACK: [Self; 10] = [
        Self::Parameter,
        Self::Buffer,
        Self::OptimizerState,
        Self::Gradient,
        Self::Input,
        Self::Activation,
        Self::ActivationGradient,
        Self::Workspace,
        Self::Alignment,
        Self::Unattributed,
    ];

    /// The categories on top of live memory in that drawing.
    pub(crate) const ABOVE: [Self; 3] = [Self::Fragmentation, Self::Context, Self::Modules];

    /// Returns the name in output.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Parameter => "parameters",
            Self::Buffer => "buffers",
            Self::Gradient => "gradients",
            Self::OptimizerState => "optimizer state",
            Self::Activation => "activations",
            Self::ActivationGradient => "activation gradients",
            Self::Input => "inputs",
            Self::Workspace => "workspace",
            Self::Alignment => "alignment",
            Self::Unattributed => "unattributed",
            Self::Fragmentation => "fragmentation",
            Self::Context => "context",
            Self::Modules => "modules",
        }
    }

    /// All categories in the order of output: those of live memory first.
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

    /// Whether the category is part of live memory.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Fragmentation | Self::Context | Self::Modules)
    }
}

/// The bytes of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CategoryBytes {
    /// The category.
    pub category: Category,
    /// The bytes. Padding of tensors counts only for `alignment`.
    pub bytes: Bytes,
}

/// The moment of the peak, and what was held then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeakMoment {
    /// The sample, as an index into the timeline.
    pub sample: u32,
    /// The step, from 0; null before the first step.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// The kernel that is launched; null if unknown.
    pub kernel: Option<Foreign>,
    /// Live bytes: the sum of all categories except fragmentation, context and modules.
    pub live: Bytes,
    /// Reserved bytes: live memory and fragmentation.
    pub reserved: Bytes,
    /// Process bytes: reserved, context and modules.
    pub process: Bytes,
    /// The bytes of every category, in the order of [`Category`].
    pub categories: Vec<CategoryBytes>,
    /// The tensors that existed, as indices into `tensors`, the largest first.
    pub tensors: Vec<u32>,
}

/// One phase of one step in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRow {
    /// The pass: `cold`, or `traced` for the observed pass.
    pub pass: Pass,
    /// The step, from 0; null before the first step.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// Live memory at the end of the phase, in bytes; null in the cold pass, which does not observe it.
    pub live_end: Option<Bytes>,
    /// The highest live memory within the phase, in bytes; null in the cold pass.
    pub live_peak: Option<Bytes>,
    /// Live memory at the end of the phase minus that at the end of the phase before, in bytes; null in the cold pass.
    pub live_change: Option<i64>,
    /// Reserved memory at the end of the phase, in bytes.
    pub reserved_end: Bytes,
    /// The highest reserved memory within the phase, in bytes.
    pub reserved_peak: Bytes,
    /// Reserved memory at the end of the phase minus that at the end of the phase before, in bytes.
    pub reserved_change: i64,
    /// Whether the run ended in this phase, out of memory or with an error.
    pub failed: bool,
}

/// A tensor that held memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorLife {
    /// Burn's number of the tensor.
    pub id: u64,
    /// The shape; empty if unknown.
    pub shape: Vec<u64>,
    /// The element type, such as `f32`; empty if unknown.
    pub dtype: Foreign,
    /// The bytes of its memory, padding included; 0 if it shares the memory of another tensor that exists.
    pub bytes: Bytes,
    /// The bytes of its elements.
    pub logical: Bytes,
    /// The category of the tensor.
    pub category: Category,
    /// The path of the module that it belongs to; null if unknown.
    pub module: Option<Foreign>,
    /// Whether the module was inferred from neighbouring operations.
    pub inferred: bool,
    /// The operation that made it, such as `conv2d`; empty if unknown.
    pub operation: Foreign,
    /// The user's line that asked for that operation; null if unknown.
    pub source: Option<SourceLocation>,
    /// The user's lines that led to that operation, as an index into `stacks`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
    /// The step that it was made in, from 0; null before the first step.
    pub step: Option<u32>,
    /// The phase that it was made in.
    pub phase: Phase,
    /// The first sample that sees it.
    pub born: u32,
    /// The first sample that no longer sees it; null if it exists to the end.
    pub died: Option<u32>,
    /// The tensor whose memory it shares, as an index into `tensors`; null if it has its own memory.
    pub shares: Option<u32>,
}

/// Memory over time, in columns. `live`, `reserved`, `kernel` and each category have one entry per sample.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryTimeline {
    /// Live memory in bytes.
    pub live: Vec<Bytes>,
    /// Reserved memory in bytes.
    pub reserved: Vec<Bytes>,
    /// The kernel that is launched, as an index into `kernels`.
    pub kernel: Vec<u32>,
    /// The names of the kernels. An empty name stands for an unknown kernel.
    pub kernels: Vec<Foreign>,
    /// The beginnings of the phases.
    pub borders: Vec<Border>,
    /// The categories of live memory. At each sample, they add up to `live`.
    pub categories: Vec<Series>,
}

impl MemoryTimeline {
    /// Returns the bytes of a category, one entry per sample; empty if the timeline does not have the category.
    #[must_use]
    pub fn of(&self, category: Category) -> &[Bytes] {
        let series = self.categories.iter().find(|series| series.category == category);
        series.map_or(&[], |series| &series.bytes)
    }

    /// Whether the category has bytes at any sample.
    #[must_use]
    pub fn holds(&self, category: Category) -> bool {
        self.of(category).iter().any(|bytes| bytes.0 > 0)
    }
}

/// Where a phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Border {
    /// The first sample of the phase.
    pub sample: u32,
    /// The step, from 0; null before the first step.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
}

/// One category over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The category.
    pub category: Category,
    /// Bytes, one entry per sample.
    pub bytes: Vec<Bytes>,
}

/// How memory changed while one line of the user's code ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceLineMemory {
    /// The line.
    pub source: SourceLocation,
    /// The user's lines that called the function of this line, the innermost first; absent if there are none, and in
    /// older documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<SourceLocation>,
    /// The step, from 0; null before the first step.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// The bytes of all tensors after the line.
    pub live: Bytes,
    /// The bytes of the tensors that came minus those of the tensors that went.
    pub change: i64,
    /// Tensors that came, as indices into `tensors`.
    pub came: Vec<u32>,
    /// Tensors that went, as indices into `tensors`.
    pub went: Vec<u32>,
}

/// The text of a line of the user's code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LineText {
    /// The file, relative to the workspace root.
    pub file: Foreign,
    /// The line, from 1.
    pub line: u32,
    /// The text of the line, without its indentation.
    pub text: Foreign,
}

/// Whether live memory grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Leaking {
    /// Too few steps were run for leak detection.
    Unknown {
        /// What `seen` and `needed` count: steps, or epochs; absent for steps.
        #[serde(default, skip_serializing_if = "crate::report::is_default")]
        interval: GrowthInterval,
        /// The number of completed steps or epochs.
        seen: u32,
        /// The number of steps or epochs that leak detection needs.
        needed: u32,
    },
    /// Live memory does not keep growing.
    No {
        /// What was compared: steps, or epochs; absent for steps.
        #[serde(default, skip_serializing_if = "crate::report::is_default")]
        interval: GrowthInterval,
    },
    /// Live memory keeps growing.
    Yes(Leak),
}

impl Leaking {
    /// Returns the leak, if there is one, to add to it.
    pub(crate) const fn found_mut(&mut self) -> Option<&mut Leak> {
        match self {
            Self::Yes(leak) => Some(leak),
            Self::Unknown { .. } | Self::No { .. } => None,
        }
    }

    /// Returns the leak, if there is one.
    #[must_use]
    pub const fn found(&self) -> Option<&Leak> {
        match self {
            Self::Yes(leak) => Some(leak),
            Self::Unknown { .. } | Self::No { .. } => None,
        }
    }
}

/// Live memory that grows from step to step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// How much memory grows.
    #[serde(flatten)]
    pub growing: Growing,
    /// Tensors that outlived the step or epoch that made them, as indices into `tensors`, the largest first.
    pub tensors: Vec<u32>,
    /// The lines that most likely keep them; absent if none is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keepers: Vec<TensorKeeper>,
}

/// A line that most likely keeps tensors, for example by putting them into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorKeeper {
    /// The file, relative to the workspace root.
    pub file: Foreign,
    /// The line, from 1.
    pub line: u32,
    /// The text of the line, without its indentation.
    pub text: Foreign,
    /// The tensors, as indices into `tensors`.
    pub tensors: Vec<u32>,
}

/// A change that would need less memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Saving {
    /// A short, stable name of the change, such as `smaller-batch`.
    pub code: Foreign,
    /// What to change, in words.
    pub change: Foreign,
    /// The peak of live memory with the change (warm pass), in bytes; null if unknown.
    pub live: Option<Bytes>,
    /// The peak of reserved memory with the change (warm pass), in bytes; null if unknown, for example if only live
    /// memory can be computed.
    pub reserved: Option<Bytes>,
    /// The live bytes that the change saves at the peak, negative if it needs more; null if unknown.
    pub saved_live: Option<i64>,
    /// The reserved bytes that the change saves, negative if it needs more; null if unknown.
    pub saved_reserved: Option<i64>,
    /// What the change costs, in words; empty if it costs nothing.
    pub cost: Foreign,
    /// How the values were obtained.
    pub certainty: Certainty,
    /// Details in words, for example which tensor is held and where it was made, or why the values are unknown; null if
    /// there are none.
    pub note: Option<Foreign>,
}

impl Saving {
    /// Whether the model was run with the change and needed as much memory as without it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.certainty == Certainty::Run && self.saved_live == Some(0) && matches!(self.saved_reserved, None | Some(0))
    }
}

/// How the values of a [`Saving`] were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The model was run with the change.
    Run,
    /// Computed from the timeline, and from a run with the change if there is one. Reserved memory is unknown.
    Timeline,
    /// Already saved: there is nothing to change.
    Already,
    /// Unknown. The note says why.
    Unknown,
}
