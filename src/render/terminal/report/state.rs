//! The names and the states of runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Deref;

use comfy_table::Color;

use crate::report::change::Judged;
use crate::report::words::{failure, of_gpu};
use crate::report::{Metric, Pass, Report, Rule, Run, Status, Verdict};
use crate::untrusted::{PlainName, named};

/// A report that is being rendered, with what many rows look up. Without it, a row would search all runs and verdicts,
/// and thousands of models would take minutes.
pub(super) struct ShownReport<'a> {
    report: &'a Report,
    judged: Judged<'a>,
    /// The names of runs that several packages have.
    shared_names: HashSet<&'a PlainName>,
    /// The id of the runs' GPU; `None` if there are several.
    only_gpu: Option<&'a str>,
    /// Whether there are both estimates and measurements.
    pub(super) has_both_modes: bool,
}

impl<'a> ShownReport<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        let mut packages: HashMap<&PlainName, &PlainName> = HashMap::new();
        let mut shared_names = HashSet::new();
        for run in &report.runs {
            if *packages.entry(run.name()).or_insert(&run.package) != &run.package {
                shared_names.insert(run.name());
            }
        }
        let first = report.runs.first().map(|run| run.gpu.id.as_str());
        let is_only = |gpu: &&str| report.runs.iter().all(|run| run.gpu.id == *gpu);
        Self {
            report,
            judged: Judged::new(report),
            shared_names,
            only_gpu: first.filter(is_only),
            has_both_modes: report.runs.windows(2).any(|pair| pair[0].mode != pair[1].mode),
        }
    }
}

impl Deref for ShownReport<'_> {
    type Target = Report;

    fn deref(&self) -> &Report {
        self.report
    }
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunState {
    /// The run was not checked: it has no verdict.
    Unjudged,
    /// All verdicts of the run pass.
    Ok,
    /// The worst verdict is a warning.
    Warning,
    /// The run fails by this rule.
    Failed(Rule),
    /// The run is incomplete, or could not be checked.
    Error,
}

impl RunState {
    /// All states, in the order of the summary line.
    // `Rule::Build` is missing, because it only warns (`src/budget/judge/build.rs`).
    pub(super) const ALL: [Self; 11] = [
        Self::Unjudged,
        Self::Ok,
        Self::Warning,
        Self::Failed(Rule::Budget),
        Self::Failed(Rule::Drift),
        Self::Failed(Rule::Growth),
        Self::Failed(Rule::Baseline),
        Self::Failed(Rule::Edit),
        Self::Failed(Rule::Leak),
        Self::Failed(Rule::Oom),
        Self::Error,
    ];

    pub(super) fn from_run(report: &ShownReport<'_>, run: &Run) -> Self {
        // Before the verdicts: the values of an incomplete run are not its result.
        if run.error.is_some() {
            return Self::Error;
        }
        if run.oom.is_some() {
            return Self::Failed(Rule::Oom);
        }
        match verdicts(report, run).map(|verdict| verdict.status).max() {
            // There is a failed verdict, so there is a decisive one. The fallback is never used.
            Some(Status::Fail) => Self::Failed(decisive(report, run).map_or(Rule::Budget, |verdict| verdict.rule)),
            Some(Status::Error) => Self::Error,
            Some(Status::Warn) => Self::Warning,
            Some(Status::Pass) => Self::Ok,
            None => Self::Unjudged,
        }
    }

    /// Returns the state that one verdict alone gives.
    pub(super) const fn from_verdict(verdict: &Verdict) -> Self {
        match verdict.status {
            Status::Fail => Self::Failed(verdict.rule),
            Status::Error => Self::Error,
            Status::Warn => Self::Warning,
            Status::Pass => Self::Ok,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Unjudged => "",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed(rule) => failure(rule),
            Self::Error => "error",
        }
    }

    /// Returns the words after the number of runs in this state; nothing for a state that is not counted.
    const fn counted(self) -> Option<&'static str> {
        match self {
            Self::Unjudged => None,
            Self::Ok => Some("within budget"),
            Self::Warning => Some("with warnings"),
            Self::Failed(Rule::Drift) => Some("differing from the estimate"),
            Self::Error => Some("incomplete"),
            other => Some(other.word()),
        }
    }

    pub(super) const fn color(self) -> Option<Color> {
        match self {
            Self::Unjudged => None,
            Self::Ok => Some(Color::Green),
            Self::Warning => Some(Color::Yellow),
            _ => Some(Color::Red),
        }
    }
}

/// Returns the numbers of runs by what is wrong with them, in the order of the summary line.
///
/// A run counts once, with every rule by which it fails: `1 over budget and regressed`. `more` is a number of further
/// failures by one rule.
pub(super) fn counts(report: &ShownReport<'_>, more: (Rule, usize)) -> Vec<(RunState, usize, String)> {
    let mut counts = Vec::new();
    for state in RunState::ALL {
        let runs = report.runs.iter();
        let mut numbers: BTreeMap<Vec<RunState>, usize> = BTreeMap::new();
        for run in runs.filter(|run| RunState::from_run(report, run) == state) {
            let states = match failed_rules(report, run) {
                rules if rules.is_empty() => vec![state],
                rules => rules.into_iter().map(RunState::Failed).collect(),
            };
            *numbers.entry(states).or_default() += 1;
        }
        if state == RunState::Failed(more.0) && more.1 > 0 {
            *numbers.entry(vec![state]).or_default() += more.1;
        }
        for (states, number) in numbers {
            let words: Vec<_> = states.into_iter().filter_map(RunState::counted).collect();
            if let Some((last, before)) = words.split_last() {
                let words = match before {
                    [] => (*last).to_owned(),
                    before => format!("{} and {last}", before.join(", ")),
                };
                counts.push((state, number, words));
            }
        }
    }
    counts
}

/// Returns the rules by which a run fails. The decisive one comes first.
///
/// The values of a run out of memory are incomplete, so it fails by no other rule.
fn failed_rules(report: &ShownReport<'_>, run: &Run) -> Vec<Rule> {
    let RunState::Failed(decisive) = RunState::from_run(report, run) else {
        return Vec::new();
    };
    let mut rules = BTreeSet::new();
    if decisive != Rule::Oom {
        let failed = verdicts(report, run).filter(|verdict| verdict.status == Status::Fail);
        rules.extend(failed.map(|verdict| verdict.rule));
        rules.remove(&decisive);
    }
    std::iter::once(decisive).chain(rules).collect()
}

/// Returns what failed, in a few words: each rule and the metrics that failed by it.
///
/// A rule has no metrics if its only failure is the limit on the value that the row draws.
pub(super) fn told(report: &ShownReport<'_>, run: &Run) -> String {
    let state = RunState::from_run(report, run);
    let word = state.word();
    let RunState::Failed(decisive) = state else {
        return word.to_owned();
    };
    // The values of a run out of memory are incomplete, so no other rule is named.
    if decisive == Rule::Oom {
        return word.to_owned();
    }
    // The decisive rule comes first.
    let mut failed: Vec<_> = verdicts(report, run)
        .filter(|verdict| verdict.status == Status::Fail)
        .collect();
    failed.sort_by_key(|verdict| (verdict.rule != decisive, verdict.rule));
    let mut told: Vec<String> = Vec::new();
    for rules in failed.chunk_by(|one, other| one.rule == other.rule) {
        let Some(first) = rules.first() else { continue };
        let word = failure(first.rule);
        let figures: Vec<_> = rules.iter().filter_map(|verdict| figure(verdict)).collect();
        told.push(match rules {
            [only] if is_drawn(only) => word.to_owned(),
            _ if figures.is_empty() => word.to_owned(),
            _ => format!("{word}: {}", figures.join(", ")),
        });
    }
    told.dedup();
    told.join("; ")
}

/// Returns the metric of a verdict: `reserved`, `cold reserved`, `live on GPU 1`.
pub(super) fn figure(verdict: &Verdict) -> Option<String> {
    let metric = verdict.metric?.name();
    let of = of_gpu(verdict.gpu_number);
    Some(match verdict.pass {
        Some(Pass::Cold) => format!("cold {metric}{of}"),
        _ => format!("{metric}{of}"),
    })
}

/// Returns the verdict on the value that a row draws: warm reserved memory of the run or of one of its GPUs, and its
/// budget.
pub(super) fn drawn<'a>(report: &'a ShownReport<'a>, run: &'a Run, gpu: Option<u32>) -> Option<&'a Verdict> {
    verdicts(report, run).find(|verdict| verdict.gpu_number == gpu && is_of_row(verdict))
}

/// Whether a verdict is on the value that the row of a run draws.
pub(super) fn is_drawn(verdict: &Verdict) -> bool {
    verdict.gpu_number.is_none() && is_of_row(verdict)
}

fn is_of_row(verdict: &Verdict) -> bool {
    let is_reserved = verdict.metric == Some(Metric::Reserved) && verdict.pass == Some(Pass::Warm);
    // Growth has a limit on reserved memory, too, but the row shows how full the budget is.
    is_reserved && verdict.rule == Rule::Budget
}

/// Returns the failure that gives a run its state: that of the drawn value, else that of a budget, else any.
fn decisive<'a>(report: &'a ShownReport<'a>, run: &'a Run) -> Option<&'a Verdict> {
    let failed: Vec<_> = verdicts(report, run)
        .filter(|verdict| verdict.status == Status::Fail)
        .collect();
    let first = |wanted: &dyn Fn(&Verdict) -> bool| failed.iter().copied().find(|verdict| wanted(verdict));
    first(&is_drawn)
        .or_else(|| first(&|verdict| verdict.rule == Rule::Budget))
        .or_else(|| first(&|_| true))
}

pub(super) fn verdicts<'a>(report: &'a ShownReport<'a>, run: &'a Run) -> impl Iterator<Item = &'a Verdict> {
    report.judged.of(run).iter().copied()
}

/// Returns the name of a run. The name has the package only if several packages have a run with this name.
pub(super) fn name_of(report: &ShownReport<'_>, run: &Run) -> String {
    let alone = !report.shared_names.contains(run.name());
    if alone { run.name().to_string() } else { identity(run) }
}

/// Returns what the runs of one budget share, on every GPU and in both modes: package, model, and the budget's name.
pub(super) fn budget_of(run: &Run) -> (&str, &str, Option<&str>) {
    (&run.package, &run.model, run.budget.as_deref())
}

/// Returns the name of a run with its package.
pub(super) fn identity(run: &Run) -> String {
    run.full_name()
}

/// Returns ` on l4` if the report has several GPUs, because a name alone could then mean several runs.
pub(super) fn on_gpu(report: &ShownReport<'_>, gpu: &str) -> String {
    let is_alone = report.runs.is_empty() || report.only_gpu == Some(gpu);
    if is_alone {
        String::new()
    } else {
        format!(" on {}", named(gpu))
    }
}

/// Returns the inputs as on a command line: `batch_size=32 image_size=224`.
pub(super) fn inputs(run: &Run) -> String {
    let inputs: Vec<_> = run
        .inputs
        .iter()
        .map(|(name, value)| format!("{}={value}", named(name)))
        .collect();
    inputs.join(" ")
}
