//! What changed between two reports: each figure, how it is judged, and what else changed that may be why.

#[cfg(unix)]
mod explained;
mod human;
mod lists;
mod markdown;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::change::{LET_BE, figure};
use super::upgrade::is_upgrade;
use super::words::phase_name;
use super::{Metric, Mode, Pass, Phase, Problem, Report, Rule, Run, Status};
use crate::bytes::Bytes;
#[cfg(unix)]
pub use explained::explain;
pub use human::human;
pub use markdown::markdown;

/// The version of this document.
pub const DIFF_VERSION: u32 = 1;

/// The difference between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Diff {
    /// The version of this format.
    #[schemars(extend("const" = DIFF_VERSION))]
    pub version: u32,
    /// The worst of all figures; an error where the newer report has problems.
    pub status: Status,
    /// What kept models of the newer report from being run: those are not among the models below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The commit of the older report.
    pub base: Option<String>,
    /// The commit of the newer report.
    pub head: Option<String>,
    /// One entry a model, mode and card; the worst first, then what changed most.
    pub models: Vec<ModelDiff>,
}

impl Diff {
    /// Whether none of the models is in both reports.
    #[must_use]
    pub fn compares_nothing(&self) -> bool {
        let is_in_one = |model: &ModelDiff| matches!(model.state, State::New | State::Removed);
        self.models.iter().all(is_in_one)
    }
}

/// One model on one card in one mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelDiff {
    /// The package that declares it.
    pub package: String,
    /// The model, or its budget's name.
    pub model: String,
    /// Estimated or measured.
    pub mode: Mode,
    /// The card's id.
    pub gpu: String,
    /// What became of it.
    pub state: State,
    /// Why the newer run is not whole: `out-of-memory`, or the code of its error.
    pub ended: Option<String>,
    /// Its figures, those that did not change among them.
    pub figures: Vec<FigureDiff>,
    /// What else changed, kind by kind: what is likelier to be the reason first, and of each kind the largest first.
    pub causes: Vec<Cause>,
}

/// What became of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is in the newer report alone.
    New,
    /// It is in the older report alone.
    Removed,
    /// A figure changed.
    Changed,
    /// No figure changed.
    Same,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FigureDiff {
    /// The pass it comes from.
    pub pass: Pass,
    /// Which figure.
    pub metric: Metric,
    /// In the older report.
    pub before: Option<Bytes>,
    /// In the newer report.
    pub after: Option<Bytes>,
    /// In bytes; less than nothing where it shrank.
    pub change: Option<i64>,
    /// The most that it may be, where there is a rule for it.
    pub limit: Option<Bytes>,
    /// What the rule says; absent where there is none.
    pub status: Option<Status>,
}

/// Something besides a figure that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cause {
    /// Of what kind it is.
    pub kind: CauseKind,
    /// Which one: a phase, an input.
    pub name: String,
    /// What it was; absent where it is new.
    pub before: Option<String>,
    /// What it is; absent where it is gone.
    pub after: Option<String>,
    /// By how many bytes, where it is memory.
    pub bytes: Option<i64>,
}

/// What may change besides figures, the likeliest reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CauseKind {
    /// An input of the model.
    Input,
    /// Burn's version.
    Burn,
    /// The card's driver.
    Driver,
    /// A layer's parameters and feature map; only explanations tell.
    Layer,
    /// The bytes or the number of parameters.
    Parameters,
    /// What is held for a category at the peak of live; only explanations tell.
    Category,
    /// The highest live value within a phase.
    Phase,
    /// The kernels that autotune chose for an operation, or what its choices rest on.
    Autotune,
}

type Key<'a> = (&'a str, &'a str, &'a str, Mode);

fn key(run: &Run) -> Key<'_> {
    (&run.package, run.name(), &run.gpu.id, run.mode)
}

/// Compares two reports.
#[must_use]
pub fn diff(base: &Report, head: &Report) -> Diff {
    let before: BTreeMap<_, &Run> = base.runs.iter().map(|run| (key(run), run)).collect();
    let after: BTreeMap<_, &Run> = head.runs.iter().map(|run| (key(run), run)).collect();
    let mut limits = BTreeMap::new();
    for verdict in head.verdicts.iter().filter(|verdict| verdict.rule == Rule::Growth) {
        let run: Key<'_> = (&verdict.package, &verdict.model, &verdict.gpu, verdict.mode);
        limits.insert((run, verdict.pass, verdict.metric), verdict);
    }
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let mut models: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (old, new) = (before.get(&key).copied(), after.get(&key).copied());
            let upgraded = old.zip(new).is_some_and(|(old, new)| is_upgrade(&old.burn, &new.burn));
            let judged = |figure: FigureDiff| {
                let verdict = limits.get(&(key, Some(figure.pass), Some(figure.metric)));
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
                (None, _) => State::New,
                (_, None) => State::Removed,
                (Some(old), Some(new)) if ended(old) != ended(new) => State::Changed,
                _ if figures.iter().any(|figure| figure.before != figure.after) => State::Changed,
                _ => State::Same,
            };
            let (package, model, gpu, mode) = key;
            ModelDiff {
                package: package.to_owned(),
                model: model.to_owned(),
                mode,
                gpu: gpu.to_owned(),
                state,
                ended: new.and_then(ended).map(str::to_owned),
                figures,
                causes: old.zip(new).map_or_else(Vec::new, |(old, new)| causes(old, new)),
            }
        })
        .collect();
    models.sort_by_key(|model| std::cmp::Reverse((model.status(), model.state != State::Same, model.distance())));
    Diff {
        version: DIFF_VERSION,
        status: match head.problems.is_empty() {
            true => models.iter().map(ModelDiff::status).max().unwrap_or(Status::Pass),
            false => Status::Error,
        },
        problems: head.problems.clone(),
        base: base.commit.clone(),
        head: head.commit.clone(),
        models,
    }
}

impl ModelDiff {
    /// The worst of its figures.
    #[must_use]
    pub fn status(&self) -> Status {
        let judged = self.figures.iter().filter_map(|figure| figure.status);
        let ended = self.ended.as_deref().map(|ended| match ended {
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

/// What an upgrade of Burn means for a comparison, and what to do next; nothing where Burn is the same.
fn on_upgrade(diff: &Diff) -> Option<String> {
    let causes = || diff.models.iter().flat_map(|model| &model.causes);
    let mut upgrades = causes().filter(|cause| cause.kind == CauseKind::Burn);
    let (before, after) = upgrades.find_map(|cause| {
        let (before, after) = (cause.before.as_deref()?, cause.after.as_deref()?);
        is_upgrade(before, after).then_some((before, after))
    })?;
    let mut text = format!(
        "Burn {before} and {after} have different allocators and kernels, so growth between them is a warning at most."
    );
    if !causes().any(|cause| cause.kind == CauseKind::Category) {
        text += " To see which categories moved, compare an explanation of each with `cargo vram diff`.";
    }
    Some(text)
}

/// As an ending that is none of an error's codes.
const OUT_OF_MEMORY: &str = "out-of-memory";

/// Why a run is not whole.
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

/// As growth is judged where nobody wrote anything: live alone.
fn plainly(figure: FigureDiff) -> FigureDiff {
    let (Some(before), Some(after)) = (figure.before, figure.after) else {
        return figure;
    };
    if (figure.pass, figure.metric) != (Pass::Warm, Metric::Live) {
        return figure;
    }
    let allowed = |percent: u64| {
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

/// Growth that is Burn's: worth a look, and no failure of the model's.
fn unjudged(figure: FigureDiff) -> FigureDiff {
    FigureDiff {
        status: figure.status.map(|status| status.min(Status::Warn)),
        ..figure
    }
}

fn causes(old: &Run, new: &Run) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut differs = |kind, name: &str, before: Option<String>, after: Option<String>| {
        if before != after {
            causes.push(Cause {
                kind,
                name: name.to_owned(),
                before,
                after,
                bytes: None,
            });
        }
    };
    let names: BTreeSet<_> = old.inputs.keys().chain(new.inputs.keys()).collect();
    for name in names {
        let of = |run: &Run| run.inputs.get(name).map(ToString::to_string);
        differs(CauseKind::Input, name, of(old), of(new));
    }
    differs(CauseKind::Burn, "burn", Some(old.burn.clone()), Some(new.burn.clone()));
    if new.mode == Mode::Measure {
        let of = |run: &Run| Some(run.gpu.driver.clone());
        differs(CauseKind::Driver, "driver", of(old), of(new));
    }
    let count = |run: &Run| run.parameters.map(|parameters| parameters.count.to_string());
    differs(CauseKind::Parameters, "parameters", count(old), count(new));
    type Choices = fn(&Run) -> u32;
    let choices: [(&str, Choices); 3] = [
        ("recorded", |run| run.autotune.recorded),
        ("nearest", |run| run.autotune.nearest),
        ("assumed", |run| run.autotune.assumed),
    ];
    for (name, of) in choices {
        differs(
            CauseKind::Autotune,
            name,
            Some(of(old).to_string()),
            Some(of(new).to_string()),
        );
    }
    let (before, after) = (&old.autotune.chosen, &new.autotune.chosen);
    for operation in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (before.get(operation), after.get(operation));
        differs(CauseKind::Autotune, operation, kernels(old, new), kernels(new, old));
    }
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

/// The kernels that were chosen otherwise elsewhere, and for how many keys each.
fn kernels(chosen: Option<&BTreeMap<String, u32>>, elsewhere: Option<&BTreeMap<String, u32>>) -> Option<String> {
    let same = |kernel: &String, keys: &u32| elsewhere.and_then(|elsewhere| elsewhere.get(kernel)) == Some(keys);
    let kernels = chosen?.iter().filter(|(kernel, keys)| !same(kernel, keys));
    let told: Vec<_> = kernels.map(|(kernel, keys)| format!("{kernel} ×{keys}")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Memory that changed.
fn memory(kind: CauseKind, name: &str, before: Option<Bytes>, after: Option<Bytes>) -> Cause {
    Cause {
        kind,
        name: name.to_owned(),
        before: before.map(|bytes| bytes.to_string()),
        after: after.map(|bytes| bytes.to_string()),
        bytes: Some(after.unwrap_or_default().less(before.unwrap_or_default())),
    }
}

/// Kind by kind, and of each kind what changed most.
fn order(causes: &mut [Cause]) {
    causes.sort_by_key(|cause| (cause.kind, std::cmp::Reverse(cause.bytes.map(i64::unsigned_abs))));
}

/// The highest live value within each phase, over all steps of the pass that observes phases.
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

/// How a figure stands, in a word; of a run that is not whole, why.
fn word<'a>(model: &'a ModelDiff, figure: &FigureDiff) -> &'a str {
    match model.state {
        _ if model.ended.is_some() => return model.ended.as_deref().unwrap_or_default(),
        State::New => return "new",
        State::Removed => return "removed",
        State::Changed | State::Same => {}
    }
    match (figure.status, figure.change) {
        (Some(Status::Fail), _) => "regressed",
        (Some(Status::Warn), _) => "warning",
        (Some(Status::Error), _) => "not judged",
        (Some(Status::Pass), Some(change)) if change < 0 => "less",
        (Some(Status::Pass), _) => "ok",
        (None, _) => "",
    }
}

/// The figures of a model that are worth a line: those that changed and, where it is new or gone, live.
fn shown(model: &ModelDiff) -> impl Iterator<Item = &FigureDiff> {
    let whole = matches!(model.state, State::New | State::Removed);
    model
        .figures
        .iter()
        .filter(move |figure| match whole || model.ended.is_some() {
            true => (figure.pass, figure.metric) == (Pass::Warm, Metric::Live),
            // Live is hardly ever another when cold.
            false => figure.before != figure.after && (figure.pass, figure.metric) != (Pass::Cold, Metric::Live),
        })
}

/// Whether somebody should look at it.
fn is_wrong(model: &ModelDiff) -> bool {
    model.status() >= Status::Warn
}

/// The figures that are shown; where only problems are, those that a rule objects to.
fn rows(model: &ModelDiff, quiet: bool) -> impl Iterator<Item = &FigureDiff> {
    let is_meant = move |figure: &&FigureDiff| {
        !quiet || model.ended.is_some() || figure.status.is_some_and(|status| status >= Status::Warn)
    };
    shown(model).filter(is_meant)
}

#[cfg(test)]
mod tests;
