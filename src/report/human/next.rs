//! What to do about a check that failed: how to look, and how to accept.

use std::collections::BTreeSet;

use super::text::{BOLD, named};
use crate::report::markdown::accept::{command, is_plain};
use crate::report::{Mode, Report, Rule, Run, Status, Verdict};

/// Models, or places in a file, that are named one by one.
const NAMED: usize = 3;

/// Commands to copy, below everything; nothing where nothing failed.
pub(super) fn steps(report: &Report) -> String {
    let failed: Vec<_> = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.status == Status::Fail)
        .collect();
    let mut steps = look(report, &failed);
    steps.extend(accept(report, &failed));
    if steps.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{BOLD}next steps{BOLD:#}\n");
    let mut before = "";
    for (what, step) in &steps {
        let shown = if *what == before { "" } else { what };
        text.push_str(&format!("  {shown:<7} {step}\n"));
        before = what;
    }
    text
}

type Step = (&'static str, String);

fn look(report: &Report, failed: &[&Verdict]) -> Vec<Step> {
    let is_of_memory = |rule: Rule| matches!(rule, Rule::Budget | Rule::Growth | Rule::Drift | Rule::Oom | Rule::Leak);
    let of = |wanted: &dyn Fn(Rule) -> bool| runs(report, failed, wanted);
    let mut steps = Vec::new();
    let (explained, more) = first(&of(&is_of_memory), |run| {
        format!("cargo vram explain {}", run.full_name())
    });
    steps.extend(explained.into_iter().map(|command| ("look", command)));
    steps.extend(more.map(|more| ("look", more)));
    let (fitted, _) = first(&of(&|rule| rule == Rule::Oom), |run| {
        format!("cargo vram fit {} --gpu {} --advise", run.full_name(), run.gpu.id)
    });
    steps.extend(fitted.into_iter().map(|command| ("look", command)));
    if !of(&|rule| rule == Rule::Growth).is_empty() {
        let diff = "cargo vram diff BEFORE.json AFTER.json (of both sides, by --message-format json -o FILE)";
        steps.push(("look", diff.to_owned()));
    }
    steps
}

fn accept(report: &Report, failed: &[&Verdict]) -> Vec<Step> {
    let mut steps = Vec::new();
    let grown = runs(report, failed, &|rule| matches!(rule, Rule::Growth | Rule::Baseline));
    let leaks = runs(report, failed, &|rule| rule == Rule::Leak);
    for (mode, rest) in [(Mode::Estimate, ""), (Mode::Measure, " --report FILE")] {
        let of = grown.iter().filter(|run| run.mode == mode && !leaks.contains(run));
        let models: BTreeSet<String> = of.map(|run| run.full_name()).collect();
        if !models.is_empty() {
            let command = command(&models, rest);
            steps.push(("accept", format!("{} (and commit budgets.lock)", command.trim_end())));
        }
    }
    let places: BTreeSet<_> = failed
        .iter()
        .filter(|verdict| verdict.rule == Rule::Budget)
        .filter_map(|verdict| Some((named(verdict.file.as_deref()?), verdict.line?)))
        .collect();
    if !places.is_empty() {
        let mut shown: Vec<_> = places
            .iter()
            .take(NAMED)
            .map(|(file, line)| format!("{file}:{line}"))
            .collect();
        let more = places.len().saturating_sub(NAMED);
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        steps.push(("accept", format!("raise the limit at {}", shown.join(", "))));
    }
    steps
}

/// The runs that fail by a rule, each once.
fn runs<'a>(report: &'a Report, failed: &[&Verdict], wanted: &dyn Fn(Rule) -> bool) -> Vec<&'a Run> {
    let fails = |run: &&Run| {
        let mut own = failed.iter().filter(|verdict| super::state::is_of(verdict, run));
        own.any(|verdict| wanted(verdict.rule))
    };
    report.runs.iter().filter(fails).collect()
}

/// A command for each of the first, and how many there are besides. A name that a shell would run stands in none.
fn first(runs: &[&Run], command: impl Fn(&Run) -> String) -> (Vec<String>, Option<String>) {
    let mut commands: Vec<String> = Vec::new();
    for run in runs
        .iter()
        .filter(|run| is_plain(&run.full_name()) && is_plain(&run.gpu.id))
    {
        let command = command(run);
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    let more = commands.len().saturating_sub(NAMED);
    commands.truncate(NAMED);
    (
        commands,
        (more > 0).then(|| format!("and {more} more models in the same way")),
    )
}
