//! What a run is called, and how it stands.

use comfy_table::Color;

use super::text::named;
use crate::report::words::{failure, of_card};
use crate::report::{Metric, Pass, Report, Rule, Run, Status, Verdict};

/// How a run stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It was not judged.
    Unjudged,
    /// Nothing is wrong.
    Ok,
    /// Something should be looked at.
    Warning,
    /// It fails by this rule.
    Failed(Rule),
    /// It is incomplete.
    Error,
}

impl State {
    /// In the order in which they are counted.
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

    pub(super) fn of(report: &Report, run: &Run) -> Self {
        if run.error.is_some() {
            return Self::Error;
        }
        if run.oom.is_some() {
            return Self::Failed(Rule::Oom);
        }
        match verdicts(report, run).map(|verdict| verdict.status).max() {
            Some(Status::Fail) => Self::Failed(decisive(report, run).map_or(Rule::Budget, |verdict| verdict.rule)),
            Some(Status::Error) => Self::Error,
            Some(Status::Warn) => Self::Warning,
            Some(Status::Pass) => Self::Ok,
            None => Self::Unjudged,
        }
    }

    /// As one verdict has it.
    pub(super) const fn by(verdict: &Verdict) -> Self {
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

    /// As a number of runs is said to be it; nothing for those that are not counted.
    pub(super) const fn counted(self) -> Option<&'static str> {
        match self {
            Self::Unjudged => None,
            Self::Ok => Some("within budget"),
            Self::Warning => Some("with warnings"),
            Self::Failed(Rule::Drift) => Some("apart from the estimate"),
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

/// What failed, in a few words: the state and, where it is not the figure alone that the row draws, which figures.
pub(super) fn told(report: &Report, run: &Run) -> String {
    let state = State::of(report, run);
    let word = state.word();
    let State::Failed(decisive) = state else {
        return word.to_owned();
    };
    if decisive == Rule::Oom {
        return word.to_owned();
    }
    // The rule that stands for all comes first.
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

/// The figure of a verdict: `reserved`, `cold reserved`, `live of card 1`.
pub(super) fn figure(verdict: &Verdict) -> Option<String> {
    let metric = verdict.metric?.name();
    let of = of_card(verdict.card);
    Some(match verdict.pass {
        Some(Pass::Cold) => format!("cold {metric}{of}"),
        _ => format!("{metric}{of}"),
    })
}

/// The verdict on what the row of a run draws, or that of one of its cards: warm reserved, against its limit.
pub(super) fn drawn<'a>(report: &'a Report, run: &'a Run, card: Option<u32>) -> Option<&'a Verdict> {
    verdicts(report, run).find(|verdict| verdict.card == card && is_of_row(verdict))
}

/// Whether a verdict is on what a run's own row draws.
pub(super) fn is_drawn(verdict: &Verdict) -> bool {
    verdict.card.is_none() && is_of_row(verdict)
}

fn is_of_row(verdict: &Verdict) -> bool {
    let is_reserved = verdict.metric == Some(Metric::Reserved) && verdict.pass == Some(Pass::Warm);
    is_reserved && verdict.rule == Rule::Budget
}

/// The failure that stands for all of a run's: of the figure that is drawn, else of a limit, else any.
fn decisive<'a>(report: &'a Report, run: &'a Run) -> Option<&'a Verdict> {
    let failed: Vec<_> = verdicts(report, run)
        .filter(|verdict| verdict.status == Status::Fail)
        .collect();
    let first = |wanted: &dyn Fn(&Verdict) -> bool| failed.iter().copied().find(|verdict| wanted(verdict));
    first(&is_drawn)
        .or_else(|| first(&|verdict| verdict.rule == Rule::Budget))
        .or_else(|| first(&|_| true))
}

pub(super) fn verdicts<'a>(report: &'a Report, run: &'a Run) -> impl Iterator<Item = &'a Verdict> {
    report.verdicts.iter().filter(|verdict| is_of(verdict, run))
}

pub(super) fn is_of(verdict: &Verdict, run: &Run) -> bool {
    verdict.package == run.package
        && verdict.model == run.name()
        && verdict.mode == run.mode
        && verdict.gpu == run.gpu.id
}

/// The name of a run: bare where it is the only one of that name.
pub(super) fn name_of(report: &Report, run: &Run) -> String {
    let alone = report
        .runs
        .iter()
        .all(|other| other.name() != run.name() || other.package == run.package);
    if alone { named(run.name()) } else { identity(run) }
}

/// The name of a run with its package.
pub(super) fn identity(run: &Run) -> String {
    named(&run.full_name())
}

/// ` on l4`, where the report is of several GPUs and a name alone means several runs.
pub(super) fn on_gpu(report: &Report, gpu: &str) -> String {
    let is_alone = report.runs.iter().all(|run| run.gpu.id == gpu);
    if is_alone {
        String::new()
    } else {
        format!(" on {}", named(gpu))
    }
}

/// The inputs, as on a command line.
pub(super) fn inputs(run: &Run) -> String {
    let inputs: Vec<_> = run
        .inputs
        .iter()
        .map(|(name, value)| format!("{}={value}", named(name)))
        .collect();
    inputs.join(" ")
}
