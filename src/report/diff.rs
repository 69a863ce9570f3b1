//! The difference between two reports: each value with its status, and other changes that may explain it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::change::{LET_BE, figure, key_of_run, key_of_verdict};
use super::upgrade::is_upgrade;
use super::words::phase_name;
use super::{GrowthExplanation, Metric, Mode, Pass, Phase, Problem, Report, Rule, Run, Status};
use crate::bytes::Bytes;
use crate::untrusted::{Foreign, PlainName};

/// The version of the diff format that this program writes.
pub const DIFF_VERSION: u32 = 1;

/// The difference between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReportDiff {
    /// The version of this format.
    #[schemars(extend("const" = DIFF_VERSION))]
    pub version: u32,
    /// The worst status of all models; `error` if the newer report has problems.
    pub status: Status,
    /// Problems that kept models of the newer report from running; absent if there are none. These models are not in
    /// `models`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The git commit of the older report; null if unknown.
    pub base: Option<Foreign>,
    /// The git commit of the newer report; null if unknown.
    pub head: Option<Foreign>,
    /// One entry per model, mode and GPU: the worst status first, then changed models, then the largest difference.
    pub models: Vec<ModelDiff>,
    /// Why live memory grew; only with `--why`, and absent if nothing grew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<GrowthExplanation>,
}

impl ReportDiff {
    /// Whether no model is in both reports.
    #[must_use]
    pub fn compares_nothing(&self) -> bool {
        let is_in_one = |model: &ModelDiff| matches!(model.state, ModelState::New | ModelState::Removed);
        self.models.iter().all(is_in_one)
    }
}

/// One model on one GPU in one mode (estimate or measurement).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelDiff {
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name, or its budget's name if that differs. For a what-if, the name includes the overrides.
    pub model: PlainName,
    /// Whether the values are estimated or measured.
    pub mode: Mode,
    /// The GPU's id, such as `l4`.
    pub gpu: PlainName,
    /// How the model changed.
    pub state: ModelState,
    /// Why the newer run is incomplete: `out-of-memory` or an error code; null if it is complete, or if the newer
    /// report does not have it.
    pub ended: Option<Foreign>,
    /// The values of the model, unchanged ones included.
    pub figures: Vec<FigureDiff>,
    /// Other changes that may explain the differences: the likeliest kind first, and within a kind the largest change
    /// first.
    pub causes: Vec<Cause>,
}

/// How a model changed between two reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelState {
    /// Only the newer report has the model.
    New,
    /// Only the older report has the model.
    Removed,
    /// A value changed, or the run ended differently.
    Changed,
    /// No value changed.
    Same,
}

/// One value in both reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FigureDiff {
    /// The pass that the value is from.
    pub pass: Pass,
    /// The kind of value.
    pub metric: Metric,
    /// The value in the older report, in bytes; null if unknown.
    pub before: Option<Bytes>,
    /// The value in the newer report, in bytes; null if unknown.
    pub after: Option<Bytes>,
    /// The difference in bytes, negative if the value shrank; null if one value is unknown.
    pub change: Option<i64>,
    /// The highest allowed value in bytes; null if no growth rule applies.
    pub limit: Option<Bytes>,
    /// The status by the growth rule; null if no rule applies.
    pub status: Option<Status>,
}

/// A change besides the values, which may explain a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cause {
    /// The kind of change.
    pub kind: CauseKind,
    /// What changed: for example the name of a phase or an input.
    pub name: Foreign,
    /// The old state as text; null if it is new.
    pub before: Option<Foreign>,
    /// The new state as text; null if it was removed.
    pub after: Option<Foreign>,
    /// The difference in bytes if memory changed; otherwise null.
    pub bytes: Option<i64>,
}

/// The kinds of causes, the likeliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CauseKind {
    /// An input of the model, such as `batch_size`.
    Input,
    /// The version of Burn.
    Burn,
    /// The version of the GPU's driver, for measurements.
    Driver,
    /// The bytes of a layer's parameters and feature map. Only explanations have them.
    Layer,
    /// The bytes or the number of the parameters.
    Parameters,
    /// The bytes of a category at the peak of live memory. Only explanations have them.
    Category,
    /// The highest live memory within a phase.
    Phase,
    /// The kernels that autotune chose for an operation, or the number of choices that were recorded, nearest or
    /// assumed.
    Autotune,
}

/// Compares an older report (`base`) with a newer one (`head`).
#[must_use]
pub fn diff(base: &Report, head: &Report) -> ReportDiff {
    let before: BTreeMap<_, &Run> = base.runs.iter().map(|run| (key_of_run(run), run)).collect();
    let after: BTreeMap<_, &Run> = head.runs.iter().map(|run| (key_of_run(run), run)).collect();
    let mut limits = BTreeMap::new();
    for verdict in head.verdicts.iter().filter(|verdict| verdict.rule == Rule::Growth) {
        limits.insert((key_of_verdict(verdict), verdict.pass, verdict.metric), verdict);
    }
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let mut models: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (old, new) = (before.get(&key).copied(), after.get(&key).copied());
            let upgraded = old
                .zip(new)
                .is_some_and(|(old, new)| is_upgrade(old.burn.raw(), new.burn.raw()));
            let judged = |figure: FigureDiff| {
                let verdict = limits.get(&(key, Some(figure.pass), Some(figure.metric)));
                // The newer report may have been compared with another baseline than the older report.
                match verdict.filter(|verdict| verdict.baseline == figure.before && verdict.actual == figure.after) {
                    Some(verdict) => FigureDiff {
                        limit: verdict.limit,
                        status: Some(verdict.status),
                        ..figure
                    },
                    None if upgraded => unjudged(plainly(figure)),
                    None => plainly(figure),
                }
            };
            let figures: Vec<_> = figures(old, new).map(judged).collect();
            let state = match (old, new) {
                (None, _) => ModelState::New,
                (_, None) => ModelState::Removed,
                (Some(old), Some(new)) if ended(old) != ended(new) => ModelState::Changed,
                _ if figures.iter().any(|figure| figure.before != figure.after) => ModelState::Changed,
                _ => ModelState::Same,
            };
            let (package, model, gpu, mode) = key;
            ModelDiff {
                package: package.clone(),
                model: model.clone(),
                mode,
                gpu: gpu.clone(),
                state,
                ended: new.and_then(ended).map(Foreign::from),
                figures,
                causes: old.zip(new).map_or_else(Vec::new, |(old, new)| causes(old, new)),
            }
        })
        .collect();
    models.sort_by_key(|model| std::cmp::Reverse((model.status(), model.state != ModelState::Same, model.distance())));
    ReportDiff {
        version: DIFF_VERSION,
        // Models that could not run are not in `models`, so only the status can fail for them.
        status: match head.problems.is_empty() {
            true => models.iter().map(ModelDiff::status).max().unwrap_or(Status::Pass),
            false => Status::Error,
        },
        problems: head.problems.clone(),
        base: base.commit.clone(),
        head: head.commit.clone(),
        models,
        growth: Vec::new(),
    }
}

impl ModelDiff {
    /// Returns the worst status of the model's values and of the way its run ended.
    #[must_use]
    pub fn status(&self) -> Status {
        let judged = self.figures.iter().filter_map(|figure| figure.status);
        let ended = self.ended.as_ref().map(|ended| match ended.raw() {
            OUT_OF_MEMORY => Status::Fail,
            _ => Status::Error,
        });
        judged.chain(ended).max().unwrap_or(Status::Pass)
    }

    fn distance(&self) -> u64 {
        let changes = self.figures.iter().filter_map(|figure| figure.change);
        changes.map(i64::unsigned_abs).max().unwrap_or(0)
    }
}

/// The value of `ended` for a run that ran out of memory, which is not an error code.
const OUT_OF_MEMORY: &str = "out-of-memory";

/// Returns why a run is incomplete; `None` if it is complete.
fn ended(run: &Run) -> Option<&str> {
    let error = run.error.as_ref().map(|error| error.code.as_str());
    error.or_else(|| run.oom.as_ref().map(|_| OUT_OF_MEMORY))
}

fn figures<'a>(old: Option<&'a Run>, new: Option<&'a Run>) -> impl Iterator<Item = FigureDiff> + use<'a> {
    let all = [Pass::Warm, Pass::Cold]
        .into_iter()
        .flat_map(|pass| Metric::ALL.map(|metric| (pass, metric)));
    all.filter_map(move |(pass, metric)| {
        let of = |run: Option<&Run>| run.and_then(|run| figure(&run.peaks, pass, metric));
        let (before, after) = (of(old), of(new));
        (before.is_some() || after.is_some()).then(|| FigureDiff {
            pass,
            metric,
            before,
            after,
            change: before.zip(after).map(|(before, after)| after.less(before)),
            limit: None,
            status: None,
        })
    })
}

/// Applies the default growth limits, which judge only warm live memory.
fn plainly(figure: FigureDiff) -> FigureDiff {
    let (Some(before), Some(after)) = (figure.before, figure.after) else {
        return figure;
    };
    if (figure.pass, figure.metric) != (Pass::Warm, Metric::Live) {
        return figure;
    }
    let allowed = |percent: u64| {
        // A report is an untrusted file, and its largest values times 5 exceed 64 bits.
        let part = u128::from(before.0) * u128::from(percent) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX).max(LET_BE.ignore.0);
        Bytes(before.0.saturating_add(part))
    };
    let (status, limit) = match () {
        () if after > allowed(LET_BE.fail) => (Status::Fail, allowed(LET_BE.fail)),
        () if after > allowed(LET_BE.warn) => (Status::Warn, allowed(LET_BE.warn)),
        () => (Status::Pass, allowed(LET_BE.fail)),
    };
    FigureDiff {
        limit: Some(limit),
        status: Some(status),
        ..figure
    }
}

/// Turns a failure into a warning: after an upgrade of Burn, growth says nothing about the model.
fn unjudged(figure: FigureDiff) -> FigureDiff {
    FigureDiff {
        status: figure.status.map(|status| status.min(Status::Warn)),
        ..figure
    }
}

fn causes(old: &Run, new: &Run) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut differs = |kind, name: &str, before: Option<Foreign>, after: Option<Foreign>| {
        if before != after {
            causes.push(Cause {
                kind,
                name: name.into(),
                before,
                after,
                bytes: None,
            });
        }
    };
    let names: BTreeSet<_> = old.inputs.keys().chain(new.inputs.keys()).collect();
    for name in names {
        let of = |run: &Run| run.inputs.get(name).map(text);
        differs(CauseKind::Input, name, of(old), of(new));
    }
    differs(CauseKind::Burn, "burn", Some(old.burn.clone()), Some(new.burn.clone()));
    // An estimate's driver is `virtual` with the tool's version, which says nothing about the model.
    if new.mode == Mode::Measure {
        let of = |run: &Run| Some(run.gpu.driver.clone());
        differs(CauseKind::Driver, "driver", of(old), of(new));
    }
    let count = |run: &Run| run.parameters.map(|parameters| text(&parameters.count));
    differs(CauseKind::Parameters, "parameters", count(old), count(new));
    type Choices = fn(&Run) -> u32;
    let choices: [(&str, Choices); 3] = [
        ("recorded", |run| run.autotune.recorded),
        ("nearest", |run| run.autotune.nearest),
        ("assumed", |run| run.autotune.assumed),
    ];
    for (name, of) in choices {
        differs(CauseKind::Autotune, name, Some(text(&of(old))), Some(text(&of(new))));
    }
    let (before, after) = (&old.autotune.chosen, &new.autotune.chosen);
    for operation in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (before.get(operation), after.get(operation));
        differs(
            CauseKind::Autotune,
            operation.raw(),
            kernels(old, new),
            kernels(new, old),
        );
    }
    // Another element type changes the bytes of the parameters, but not their number.
    let parameters = |run: &Run| run.parameters.map(|parameters| parameters.bytes);
    let mut memory = vec![(
        CauseKind::Parameters,
        "parameters, in bytes",
        parameters(old),
        parameters(new),
    )];
    let (before, after) = (phases(old), phases(new));
    let all: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for phase in all {
        let of = |phases: &BTreeMap<&'static str, Bytes>| phases.get(*phase).copied();
        memory.push((CauseKind::Phase, phase, of(&before), of(&after)));
    }
    let memory = memory.into_iter().filter(|(.., before, after)| before != after);
    causes.extend(memory.map(|(kind, name, before, after)| self::memory(kind, name, before, after)));
    order(&mut causes);
    causes
}

fn text(value: &impl ToString) -> Foreign {
    value.to_string().into()
}

/// Returns the kernels whose number of autotune keys differs from the other report, with that number: `Matmul ×3`.
fn kernels(chosen: Option<&BTreeMap<Foreign, u32>>, elsewhere: Option<&BTreeMap<Foreign, u32>>) -> Option<Foreign> {
    let same = |kernel: &Foreign, keys: &u32| elsewhere.and_then(|elsewhere| elsewhere.get(kernel)) == Some(keys);
    let kernels = chosen?.iter().filter(|(kernel, keys)| !same(kernel, keys));
    let told: Vec<_> = kernels
        .map(|(kernel, keys)| format!("{} ×{keys}", kernel.raw()))
        .collect();
    (!told.is_empty()).then(|| told.join(", ").into())
}

/// Creates a cause for memory that changed.
pub(crate) fn memory(kind: CauseKind, name: &str, before: Option<Bytes>, after: Option<Bytes>) -> Cause {
    Cause {
        kind,
        name: name.into(),
        before: before.map(|bytes| text(&bytes)),
        after: after.map(|bytes| text(&bytes)),
        bytes: Some(after.unwrap_or_default().less(before.unwrap_or_default())),
    }
}

/// Sorts causes by kind, and within a kind by the largest change in bytes.
pub(crate) fn order(causes: &mut [Cause]) {
    causes.sort_by_key(|cause| (cause.kind, std::cmp::Reverse(cause.bytes.map(i64::unsigned_abs))));
}

/// Returns the highest live memory of each phase, over all steps of the observed pass.
fn phases(run: &Run) -> BTreeMap<&'static str, Bytes> {
    let mut phases = BTreeMap::new();
    let steps = run.steps.iter().filter(|step| step.pass == Pass::Traced);
    for seen in steps.flat_map(|step| &step.phases) {
        let name: fn(Phase) -> &'static str = phase_name;
        let most: &mut Bytes = phases.entry(name(seen.phase)).or_default();
        *most = (*most).max(seen.live_peak);
    }
    phases
}
