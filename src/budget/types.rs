//! The types of checked and complete budgets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::problem::{BudgetError, BudgetProblem};
use super::scalar::{Percent, WrittenSize, written_size};
use super::source::{BudgetText, SourcePosition, Span, Spanned};
use crate::bytes::Bytes;
use crate::report::Metric;

/// A checked budget file.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// The GPU for the limits that stand directly in a model's entry, outside its `gpus`.
    pub gpu: Option<Spanned<String>>,
    /// The settings of models without a budget, and of models that do not set their own.
    pub defaults: Defaults,
    /// The GPUs that the file describes, by ID.
    pub gpu_profiles: BTreeMap<String, GpuProfileEntry>,
    /// The budgets, in the order of the file.
    pub models: Vec<ModelBudget>,
    pub(super) source: Arc<BudgetText>,
}

impl Budgets {
    /// Returns the line and column where a range of the file starts.
    #[must_use]
    pub fn position(&self, span: Span) -> SourcePosition {
        self.source.position(span)
    }

    /// Returns a size as the file writes it: `300 MB`.
    #[must_use]
    pub fn as_written(&self, size: Spanned<Bytes>) -> String {
        self.written_size(size).text
    }

    pub(super) fn written_size(&self, size: Spanned<Bytes>) -> WrittenSize {
        written_size(self.source.slice(size.span), size.value).unwrap_or_else(|| WrittenSize {
            text: size.value.to_string(),
            is_decimal: false,
        })
    }

    /// Makes an error that points at a range of the file, for a mistake that another module finds in a value.
    #[must_use]
    pub fn error_at(&self, span: Span, code: &'static str, message: String, help: Option<String>) -> BudgetError {
        let problem = BudgetProblem::new(code, message).at(span, "here");
        match help {
            Some(help) => problem.help(help),
            None => problem,
        }
        .alone(&self.source)
    }

    /// Returns the budgets of a model, in the order of the file. A model can have several, for different inputs.
    ///
    /// A budget that names no package matches the model in any package. [`Budgets::check_models`] reports it as
    /// ambiguous if several packages declare the model.
    #[must_use]
    pub fn for_model(&self, package: &str, model: &str) -> Vec<&ModelBudget> {
        self.models
            .iter()
            .filter(|budget| budget.is_for(package, model))
            .collect()
    }
}

/// The settings of models. A key that a model sets replaces the whole default of that key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The allowed growth over the baseline.
    pub growth: Option<Growth>,
    /// The allowed difference between estimate and measurement, in percent of the measurement.
    pub drift: Option<Limit<Percent>>,
    /// The longest time that one pass may take.
    pub timeout: Option<Spanned<Duration>>,
    /// The number of steps per pass. Leak detection needs [`ENOUGH_STEPS`](crate::report::ENOUGH_STEPS).
    pub steps: Option<Spanned<u32>>,
}

/// The allowed growth over the baseline, per metric.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Growth {
    /// The allowed growth of live memory.
    pub live: Option<GrowthLimit>,
    /// The allowed growth of reserved memory, which changes in whole pages.
    pub reserved: Option<GrowthLimit>,
    /// The allowed growth of process memory.
    pub process: Option<GrowthLimit>,
}

impl Growth {
    /// Returns the allowed growth of one metric.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<&GrowthLimit> {
        match metric {
            Metric::Live => self.live.as_ref(),
            Metric::Reserved => self.reserved.as_ref(),
            Metric::Process => self.process.as_ref(),
        }
    }
}

/// The allowed growth of one metric. Growth warns or fails only if it exceeds both the percentage and `ignore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowthLimit {
    /// The limits of growth, in percent of the baseline.
    pub limit: Limit<Percent>,
    /// Growth up to this number of bytes is allowed, whatever its percentage.
    pub ignore: Option<Spanned<Bytes>>,
}

/// A limit that warns, a limit that fails, or both. `warn` is at most `fail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit<T> {
    /// A value above this is a warning.
    pub warn: Option<Spanned<T>>,
    /// A value above this is a failure.
    pub fail: Option<Spanned<T>>,
}

/// The memory limits of one pass on one GPU.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ModelLimits {
    /// The limit of live memory: bytes of the tensors that exist.
    pub live: Option<Limit<Bytes>>,
    /// The limit of reserved memory: bytes that Burn's allocator holds from the CUDA driver.
    pub reserved: Option<Limit<Bytes>>,
    /// The limit of process memory: bytes charged to the process.
    pub process: Option<Limit<Bytes>>,
}

impl ModelLimits {
    /// Returns the limit of one metric.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<&Limit<Bytes>> {
        match metric {
            Metric::Live => self.live.as_ref(),
            Metric::Reserved => self.reserved.as_ref(),
            Metric::Process => self.process.as_ref(),
        }
    }

    /// Whether there is no limit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live.is_none() && self.reserved.is_none() && self.process.is_none()
    }
}

/// The memory limits of all passes on one GPU.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GpuLimitsEntry {
    /// The limits of the warm pass.
    pub warm: ModelLimits,
    /// The limits of the cold pass.
    pub cold: ModelLimits,
}

impl GpuLimitsEntry {
    /// Whether there is no limit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.warm.is_empty() && self.cold.is_empty()
    }
}

/// The budget of one model: one entry of `models`.
#[derive(Debug, Clone)]
pub struct ModelBudget {
    /// The name of the budget, with its position: the model's name, or the entry's key if the entry has `model`.
    pub name: Spanned<String>,
    /// The unique key of the entry: `resnet18` or `package/resnet18`.
    pub key: String,
    /// The package of the model, if the file names it.
    pub package: Option<String>,
    /// The name of the model, without its package.
    pub model: String,
    /// The inputs of the model's run, with the positions of their names.
    pub inputs: BTreeMap<String, Spanned<u64>>,
    /// The limits on the GPU of [`Budgets::gpu`].
    pub limits: GpuLimitsEntry,
    /// The limits on other GPUs, by GPU ID.
    pub gpus: BTreeMap<String, GpuLimitsEntry>,
    /// The limits per GPU number, for a model that runs on several GPUs. They apply to every GPU type.
    pub numbered_gpus: BTreeMap<u32, Spanned<GpuLimitsEntry>>,
    /// The position of `nondeterministic: allowed`: the model may differ from run to run, and the largest run counts.
    pub nondeterministic: Option<Span>,
    /// The position of `control_flow: data-dependent`: the model's work may depend on values that it reads from the
    /// GPU.
    pub data_dependent: Option<Span>,
    /// The model's settings, with the defaults for keys that it does not set.
    pub settings: Defaults,
    /// The position of the model's name: the value of `model`, or the entry's key.
    pub(super) target: Span,
}

impl ModelBudget {
    /// Returns the model as the file names it: `resnet18` or `package/resnet18`.
    pub(super) fn target(&self) -> String {
        match &self.package {
            Some(package) => format!("{package}/{}", self.model),
            None => self.model.clone(),
        }
    }

    /// Returns the values of the inputs, without positions.
    #[must_use]
    pub fn input_values(&self) -> BTreeMap<String, u64> {
        self.inputs
            .iter()
            .map(|(name, input)| (name.clone(), input.value))
            .collect()
    }

    /// Whether this budget is for the given model.
    #[must_use]
    pub fn is_for(&self, package: &str, model: &str) -> bool {
        self.model == model && self.package.as_deref().is_none_or(|own| own == package)
    }

    /// Returns the name of this budget in a report; `None` if it is the model's name.
    #[must_use]
    pub fn report_name(&self) -> Option<&str> {
        (self.name.value != self.model).then_some(self.name.value.as_str())
    }

    /// Returns the limits on `gpu`; `None` if the file has none. `declared` is the ID of [`Budgets::gpu`].
    #[must_use]
    pub fn limits_on(&self, gpu: &str, declared: Option<&str>) -> Option<&GpuLimitsEntry> {
        let own = (declared == Some(gpu) && !self.limits.is_empty()).then_some(&self.limits);
        // An empty entry counts as none: the run must be reported as unchecked, not as passed.
        own.or_else(|| self.gpus.get(gpu)).filter(|limits| !limits.is_empty())
    }
}

/// A GPU profile: a built-in GPU with changed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProfileEntry {
    /// The position of its ID.
    pub span: Span,
    /// The built-in GPU that provides the other values.
    pub like: Spanned<String>,
    /// The total memory.
    pub total: Option<Spanned<Bytes>>,
    /// The name that the CUDA driver reports.
    pub name: Option<Spanned<String>>,
    /// The number of streaming multiprocessors.
    pub sm_count: Option<Spanned<u32>>,
    /// The compute capability: major and minor version.
    pub compute_capability: Option<Spanned<(u32, u32)>>,
    /// The most shared memory per block that a kernel can opt in to.
    pub shared_memory_per_block_optin: Option<Spanned<Bytes>>,
    /// The memory that one CUDA context takes.
    pub context: Option<Spanned<Bytes>>,
}
