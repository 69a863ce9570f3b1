//! The commands that accept the new values. Users copy them into a shell, so they contain only plain names.

use std::collections::BTreeSet;

use super::page::Section;
use crate::render::commands::bless;
use crate::report::change::{ChangeSummary, Judged};
use crate::report::{Baseline, Mode, Rule, Run, Status, Verdict};

pub(super) fn accept(told: &ChangeSummary<'_>) -> Section {
    let judged = Judged::new(told.report);
    // `changed` also has values that did not move but are over a budget, and `bless` does not help those.
    // Nor does it accept a leak or an incomplete run: see docs/design/leaks.md.
    let moved = told
        .changed
        .iter()
        .filter(|change| change.distance() > 0 && is_asked(judged.of(change.run)))
        .filter(|change| !is_accepted(told, judged.of(change.run)))
        .map(|change| change.run);
    let runs: Vec<&Run> = moved
        .chain(told.new.iter().copied())
        .filter(|run| run.error.is_none() && run.oom.is_none() && !leaks(judged.of(run)))
        .collect();
    let is_replaceable = |run: &Run| run.baseline.as_ref().is_none_or(Baseline::is_replaceable);
    let of_revision: Vec<&Run> = runs.iter().copied().filter(|run| !is_replaceable(run)).collect();
    let runs: Vec<&Run> = runs
        .into_iter()
        .filter(|run| is_replaceable(run) || is_outdated(judged.of(run)))
        .collect();
    let of = |mode| -> BTreeSet<String> {
        runs.iter()
            .filter(|run| run.mode == mode)
            .map(|run| run.full_name())
            .collect()
    };
    let (estimated, measured) = (of(Mode::Estimate), of(Mode::Measure));
    let mut commands = String::new();
    if !estimated.is_empty() {
        commands.push_str(&bless(&estimated, ""));
    }
    // `bless` itself only estimates. It takes measurements from the report of a CI run.
    if !measured.is_empty() {
        commands.push_str(&bless(&measured, " --report report.json"));
    }
    // A budget stands in `budgets.yaml`, which a person edits. No command raises it.
    let mut verdicts = told.report.verdicts.iter();
    let over = match verdicts.any(|verdict| verdict.rule == Rule::Budget && verdict.status == Status::Fail) {
        true => "To accept a model that is over its budget, raise its limit in `budgets.yaml`.\n\n",
        false => "",
    };
    let leak = match told.report.verdicts.iter().any(is_leak) {
        true => "A leak cannot be accepted: change the model so that steps leave no memory behind.\n\n",
        false => "",
    };
    let fails = |verdict: &&Verdict| verdict.rule == Rule::Growth && verdict.status == Status::Fail;
    let grown = match of_revision.iter().any(|run| judged.of(run).iter().any(fails)) {
        true => "To allow growth since the base, edit `growth` in `budgets.yaml`.\n\n",
        false => "",
    };
    let over = format!("{grown}{over}{leak}");
    if commands.is_empty() {
        return Section::from_text(over);
    }
    let what = if commands.lines().count() == 1 {
        "this"
    } else {
        "all of these"
    };
    let report = match measured.is_empty() {
        true => "",
        false => " (`report.json` is the report that this run wrote with `--message-format json`)",
    };
    Section::from_text(format!(
        "To accept the new values, run {what} and commit `budgets.lock`{report}:\n\n```sh\n{commands}```\n\n{over}"
    ))
}

/// Whether a user should accept the run's new values.
///
/// That is the case if its growth or baseline verdict is a warning, a failure or an improvement. Growth within the
/// allowed growth needs no acceptance. A run without such verdicts is offered, too, because no rule compared it.
fn is_asked(verdicts: &[&Verdict]) -> bool {
    let mut compared = verdicts
        .iter()
        .filter(|verdict| matches!(verdict.rule, Rule::Growth | Rule::Baseline))
        .peekable();
    compared.peek().is_none() || compared.any(|verdict| verdict.status >= Status::Warn || verdict.is_improvement())
}

/// Whether the baseline file lacks the run's values.
fn is_outdated(verdicts: &[&Verdict]) -> bool {
    let mut baselines = verdicts.iter().filter(|verdict| verdict.rule == Rule::Baseline);
    baselines.any(|verdict| verdict.status >= Status::Warn)
}

/// Whether the run has a leak, which fails whatever the baseline is.
fn leaks(verdicts: &[&Verdict]) -> bool {
    verdicts.iter().any(|verdict| is_leak(verdict))
}

fn is_leak(verdict: &Verdict) -> bool {
    verdict.rule == Rule::Leak && verdict.status == Status::Fail
}

/// Whether the branch's own baseline already contains the run's values, although the baseline of the base does not.
fn is_accepted(told: &ChangeSummary<'_>, verdicts: &[&Verdict]) -> bool {
    let growth = verdicts.iter().filter(|verdict| verdict.rule == Rule::Growth);
    let mut growth = growth.peekable();
    let is_judged = growth.peek().is_some();
    // Against a base, a change is judged by its own baseline and shown beside that of the base.
    // See docs/design/base.md.
    told.report.base.is_some() && is_judged && growth.all(|verdict| verdict.baseline == verdict.actual)
}
