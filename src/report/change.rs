//! What became of each figure: before, after, and what the rules say of it.

use std::collections::HashMap;

use super::words::{of_card, percent};
use super::{Metric, Mode, Pass, Peaks, Report, Rule, Run, Status, Verdict};
use crate::bytes::Bytes;

/// One figure of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) run: &'a Run,
    /// Which of several cards, where it is of one alone.
    pub(crate) card: Option<u32>,
    pub(crate) pass: Pass,
    pub(crate) metric: Metric,
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Option<Bytes>,
    /// The worst of what is said of it.
    pub(crate) verdict: Option<&'a Verdict>,
    /// What is said of its distance from the baseline.
    pub(crate) growth: Option<&'a Verdict>,
    /// What is said of it by a limit that a person wrote.
    pub(crate) budget: Option<&'a Verdict>,
}

impl Change<'_> {
    /// What the figure is called.
    pub(crate) fn figure(&self) -> String {
        format!("{}{}", metric_name(self.pass, self.metric), of_card(self.card))
    }

    pub(crate) fn status(&self) -> Status {
        self.verdict.map_or(Status::Pass, |verdict| verdict.status)
    }

    pub(crate) fn is_improvement(&self) -> bool {
        // A verdict by the branch's own baseline says nothing of the distance from the base's.
        let own = |verdict: &Verdict| verdict.is_improvement() && verdict.baseline == self.before;
        self.verdict.is_some_and(own)
    }

    /// Whether it grew further than it may.
    pub(crate) fn is_regression(&self) -> bool {
        self.growth.is_some_and(|verdict| verdict.status >= Status::Warn)
    }

    /// By how many bytes it grew; 0 where it shrank.
    pub(crate) fn growth_bytes(&self) -> u64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) => after.saturating_sub(before).0,
            _ => 0,
        }
    }

    /// By how many bytes, whichever way.
    pub(crate) fn distance(&self) -> u64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.0.abs_diff(after.0),
            _ => 0,
        }
    }
}

/// What there is to know of the figures of a report, by run.
pub(crate) struct Judged<'a> {
    verdicts: HashMap<(&'a str, &'a str, Mode, &'a str), Vec<&'a Verdict>>,
}

impl<'a> Judged<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        let mut verdicts: HashMap<_, Vec<_>> = HashMap::new();
        for verdict in &report.verdicts {
            let key = (
                verdict.package.as_str(),
                verdict.model.as_str(),
                verdict.mode,
                verdict.gpu.as_str(),
            );
            verdicts.entry(key).or_default().push(verdict);
        }
        Self { verdicts }
    }

    pub(crate) fn of(&self, run: &'a Run) -> &[&'a Verdict] {
        let key = (run.package.as_str(), run.name(), run.mode, run.gpu.id.as_str());
        self.verdicts.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The figures of a run that are not what they were, and those that something is wrong with.
    pub(crate) fn changes(&self, run: &'a Run) -> Vec<Change<'a>> {
        let verdicts = self.of(run);
        let mut changes = Vec::new();
        for (pass, metric) in FIGURES {
            let before = run
                .baseline
                .as_ref()
                .and_then(|baseline| figure(&baseline.peaks, pass, metric));
            let after = figure(&run.peaks, pass, metric);
            // Drift compares with something else, and is told in its own words.
            let said = verdicts.iter().copied().filter(|verdict| {
                verdict.metric == Some(metric) && verdict.pass == Some(pass) && verdict.rule != Rule::Drift
            });
            let (of_cards, said): (Vec<_>, Vec<_>) = said.partition(|verdict| verdict.card.is_some());
            let worst = |rule: Option<Rule>| {
                let said = said.iter().copied();
                said.filter(|verdict| rule.is_none_or(|rule| verdict.rule == rule))
                    .max_by_key(|verdict| (verdict.status, verdict.is_improvement()))
            };
            let verdict = worst(None);
            // A report may have the verdict alone.
            let judged = verdict.filter(|verdict| verdict.rule == Rule::Growth);
            let change = Change {
                run,
                card: None,
                pass,
                metric,
                before: before.or_else(|| judged.and_then(|verdict| verdict.baseline)),
                after,
                verdict,
                growth: worst(Some(Rule::Growth)),
                budget: worst(Some(Rule::Budget)),
            };
            let wrong = verdict.is_some_and(|verdict| verdict.status >= Status::Warn);
            if change.distance() > 0 || wrong {
                changes.push(change);
            }
            // Of one of several cards there is a row where something is wrong with it.
            let wrong = of_cards.into_iter().filter(|verdict| verdict.status >= Status::Warn);
            changes.extend(wrong.map(|verdict| Change {
                run,
                card: verdict.card,
                pass,
                metric,
                before: None,
                after: verdict.actual,
                verdict: Some(verdict),
                growth: None,
                budget: Some(verdict).filter(|verdict| verdict.rule == Rule::Budget),
            }));
        }
        changes
    }
}

/// How far live may grow where nobody wrote anything of growth: both a percentage and these bytes must be passed.
pub(crate) const LET_BE: LetBe = LetBe {
    warn: 2,
    fail: 5,
    ignore: Bytes(16 << 20),
};

/// Percentages, and bytes that are let be whatever they are a percentage of.
pub(crate) struct LetBe {
    pub(crate) warn: u64,
    pub(crate) fail: u64,
    pub(crate) ignore: Bytes,
}

/// What became of the models of a report, in the order in which it is told.
pub(crate) struct Told<'a> {
    pub(crate) report: &'a Report,
    /// The worst first, then the largest.
    pub(crate) changed: Vec<Change<'a>>,
    /// Runs that are compared with nothing, where others are.
    pub(crate) new: Vec<&'a Run>,
    /// Runs of which no figure moved, and nothing is wrong with.
    pub(crate) unchanged: Vec<&'a Run>,
}

impl<'a> Told<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        let judged = Judged::new(report);
        // A base without a baseline has nothing that a model could be new to.
        let compared = report.runs.iter().any(|run| run.baseline.is_some());
        let mut told = Self {
            report,
            changed: Vec::new(),
            new: Vec::new(),
            unchanged: Vec::new(),
        };
        for run in &report.runs {
            let changes = judged.changes(run);
            match () {
                () if !changes.is_empty() => told.changed.extend(changes),
                () if run.error.is_some() || run.oom.is_some() => {}
                () if compared && run.baseline.is_none() => told.new.push(run),
                () => told.unchanged.push(run),
            }
        }
        told.changed
            .sort_by_key(|change| std::cmp::Reverse((change.status(), change.is_improvement(), change.distance())));
        told
    }

    /// The worst that the report says of anything.
    pub(crate) fn worst(&self) -> Status {
        let verdicts = self.report.verdicts.iter().map(|verdict| verdict.status).max();
        verdicts.unwrap_or(Status::Pass).max(self.report.status)
    }

    /// Whether somebody should look: something is not as it should be, a figure moved, a limit was edited, a model is new.
    pub(crate) fn is_news(&self) -> bool {
        let Report {
            base,
            runs,
            verdicts,
            problems,
            ..
        } = self.report;
        self.worst() != Status::Pass
            || !problems.is_empty()
            || runs.iter().any(|run| run.error.is_some() || run.oom.is_some())
            || base.as_ref().is_some_and(|base| !base.edited.is_empty())
            || !self.changed.is_empty()
            || !self.new.is_empty()
            || verdicts.iter().any(Verdict::is_improvement)
    }
}

/// The figures that are compared. What a first launch costs depends on who wins autotune, and is never judged for growth.
const FIGURES: [(Pass, Metric); 5] = [
    (Pass::Warm, Metric::Live),
    (Pass::Warm, Metric::Reserved),
    (Pass::Warm, Metric::Process),
    (Pass::Cold, Metric::Reserved),
    (Pass::Cold, Metric::Process),
];

pub(crate) const fn figure(peaks: &Peaks, pass: Pass, metric: Metric) -> Option<Bytes> {
    let peak = match pass {
        Pass::Cold => peaks.cold,
        Pass::Warm | Pass::Traced => peaks.warm,
    };
    peak.get(metric)
}

/// A figure's name: `live`, `cold reserved`.
pub(crate) const fn metric_name(pass: Pass, metric: Metric) -> &'static str {
    match (pass, metric) {
        (Pass::Cold, Metric::Live) => "cold live",
        (Pass::Cold, Metric::Reserved) => "cold reserved",
        (Pass::Cold, Metric::Process) => "cold process",
        (_, metric) => metric.name(),
    }
}

/// A difference in bytes with its sign: `+223 MiB`.
pub(crate) fn signed(before: Bytes, after: Bytes) -> String {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => return "0 B".to_owned(),
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", Bytes(before.0.abs_diff(after.0)))
}

/// The same of a difference that is computed already.
pub(crate) fn change(bytes: i64) -> String {
    let size = Bytes(bytes.unsigned_abs());
    match bytes < 0 {
        true => signed(size, Bytes(0)),
        false => signed(Bytes(0), size),
    }
}

/// A difference in percent with its sign; nothing where there was nothing.
pub(crate) fn signed_percent(before: Bytes, after: Bytes) -> Option<String> {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    percent(Bytes(before.0.abs_diff(after.0)), before).map(|percent| format!("{sign}{percent}"))
}
