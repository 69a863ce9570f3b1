//! What is meant: budgets, checked and complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::problem::{BudgetError, Problem};
use super::scalar::{Percent, WrittenSize, written_size};
use super::source::{Position, Source, Span, Spanned};
use crate::bytes::Bytes;
use crate::report::Metric;

/// A budget file, checked.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// The card that limits at a model's top are for.
    pub gpu: Option<Spanned<String>>,
    /// What holds where a model says nothing else, and for models without a budget.
    pub defaults: Defaults,
    /// Cards that the file describes itself, by id.
    pub gpu_profiles: BTreeMap<String, GpuProfileEntry>,
    /// The budgets, in the order of the file.
    pub models: Vec<ModelBudget>,
    pub(super) source: Arc<Source>,
}

impl Budgets {
    /// Line and column of a part of the file.
    #[must_use]
    pub fn position(&self, span: Span) -> Position {
        self.source.position(span)
    }

    /// A size as the file writes it: `300 MB`.
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

    /// An error that points at a part of the file, for what another module finds wrong with a value.
    #[must_use]
    pub fn error_at(&self, span: Span, code: &'static str, message: String, help: Option<String>) -> BudgetError {
        let problem = Problem::new(code, message).at(span, "here");
        match help {
            Some(help) => problem.help(help),
            None => problem,
        }
        .alone(&self.source)
    }

    /// The budgets of a model, in the order of the file; several where it is budgeted with several inputs.
    ///
    /// A bare name is taken for any package that has such a model: [`Budgets::check_models`] finds it ambiguous first.
    #[must_use]
    pub fn for_model(&self, package: &str, model: &str) -> Vec<&ModelBudget> {
        self.models
            .iter()
            .filter(|budget| budget.is_for(package, model))
            .collect()
    }
}

/// What each model may set for itself. A key that a model sets replaces the default whole.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// How far a figure may exceed the baseline.
    pub growth: Option<Growth>,
    /// How far estimate and measurement may differ.
    pub drift: Option<Limit<Percent>>,
    /// How long one pass may take.
    pub timeout: Option<Spanned<Duration>>,
    /// How many steps one pass has. Leaks are judged from [`ENOUGH_STEPS`](crate::report::ENOUGH_STEPS) on.
    pub steps: Option<Spanned<u32>>,
}

/// How far each figure may exceed the baseline.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Growth {
    /// For live.
    pub live: Option<GrowthLimit>,
    /// For reserved, which moves in whole pages.
    pub reserved: Option<GrowthLimit>,
    /// For process.
    pub process: Option<GrowthLimit>,
}

impl Growth {
    /// The limit for one figure.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<&GrowthLimit> {
        match metric {
            Metric::Live => self.live.as_ref(),
            Metric::Reserved => self.reserved.as_ref(),
            Metric::Process => self.process.as_ref(),
        }
    }
}

/// How far one figure may exceed the baseline: both the percentage and the bytes must be passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowthLimit {
    /// In percent of the baseline.
    pub limit: Limit<Percent>,
    /// Growth up to these many bytes is let be.
    pub ignore: Option<Spanned<Bytes>>,
}

/// A value to be warned above and a value to fail above: one of them at least, the first not above the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit<T> {
    /// Above this is a warning.
    pub warn: Option<Spanned<T>>,
    /// Above this is a failure.
    pub fail: Option<Spanned<T>>,
}

/// Limits of one pass on one card.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes handed out by Burn's allocator.
    pub live: Option<Limit<Bytes>>,
    /// Bytes held from the driver.
    pub reserved: Option<Limit<Bytes>>,
    /// Bytes charged to the process.
    pub process: Option<Limit<Bytes>>,
}

impl Limits {
    /// The limit for one figure.
    #[must_use]
    pub const fn get(&self, metric: Metric) -> Option<&Limit<Bytes>> {
        match metric {
            Metric::Live => self.live.as_ref(),
            Metric::Reserved => self.reserved.as_ref(),
            Metric::Process => self.process.as_ref(),
        }
    }

    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live.is_none() && self.reserved.is_none() && self.process.is_none()
    }
}

/// Limits on one card.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CardLimits {
    /// With the plan applied.
    pub warm: Limits,
    /// Of a first launch.
    pub cold: Limits,
}

impl CardLimits {
    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.warm.is_empty() && self.cold.is_empty()
    }
}

/// One entry of `models`.
#[derive(Debug, Clone)]
pub struct ModelBudget {
    /// The name of the budget, and where it stands. The model's own name, unless `model` names another.
    pub name: Spanned<String>,
    /// The key that it stands under, which no other budget has: `resnet18`, or `package/resnet18`.
    pub key: String,
    /// The package of the model, where the file names it.
    pub package: Option<String>,
    /// The model.
    pub model: String,
    /// The inputs that the model is run with.
    pub inputs: BTreeMap<String, Spanned<u64>>,
    /// Limits on the card of [`Budgets::gpu`].
    pub limits: CardLimits,
    /// Limits on other cards, by id.
    pub gpus: BTreeMap<String, CardLimits>,
    /// Limits of each card, by its number, where the model is over several; on any kind of card.
    pub cards: BTreeMap<u32, Spanned<CardLimits>>,
    /// Where the file says that the model may do something else in each run: the largest of several is then judged.
    pub nondeterministic: Option<Span>,
    /// Where the file says that the model's work may depend on values that it reads from the GPU.
    pub data_dependent: Option<Span>,
    /// The model's own, or the defaults.
    pub settings: Defaults,
    /// Where the model is named.
    pub(super) target: Span,
}

impl ModelBudget {
    /// The model as the file names it: `resnet18`, or `package/resnet18`.
    pub(super) fn target(&self) -> String {
        match &self.package {
            Some(package) => format!("{package}/{}", self.model),
            None => self.model.clone(),
        }
    }

    /// The inputs' values alone.
    #[must_use]
    pub fn input_values(&self) -> BTreeMap<String, u64> {
        self.inputs
            .iter()
            .map(|(name, input)| (name.clone(), input.value))
            .collect()
    }

    /// Whether this is a budget of that model.
    #[must_use]
    pub fn is_for(&self, package: &str, model: &str) -> bool {
        self.model == model && self.package.as_deref().is_none_or(|own| own == package)
    }

    /// The name of this budget in a report: absent where it is the model's own.
    #[must_use]
    pub fn report_name(&self) -> Option<&str> {
        (self.name.value != self.model).then_some(self.name.value.as_str())
    }

    /// The limits on a card; absent where the file has none.
    #[must_use]
    pub fn limits_on(&self, gpu: &str, declared: Option<&str>) -> Option<&CardLimits> {
        let own = (declared == Some(gpu) && !self.limits.is_empty()).then_some(&self.limits);
        own.or_else(|| self.gpus.get(gpu)).filter(|limits| !limits.is_empty())
    }
}

/// A card described by what differs from a built-in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProfileEntry {
    /// Where its id stands.
    pub span: Span,
    /// The built-in card it is like.
    pub like: Spanned<String>,
    /// Total memory.
    pub total: Option<Spanned<Bytes>>,
    /// As the driver would name it.
    pub name: Option<Spanned<String>>,
    /// Streaming multiprocessors.
    pub sm_count: Option<Spanned<u32>>,
    /// Major and minor compute capability.
    pub compute_capability: Option<Spanned<(u32, u32)>>,
    /// Shared memory of a block, where a kernel asks for the most.
    pub shared_memory_per_block_optin: Option<Spanned<Bytes>>,
    /// What a context takes of the card.
    pub context: Option<Spanned<Bytes>>,
}
