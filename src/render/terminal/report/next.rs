//! The next steps after a failed check: how to inspect it, and how to accept the new values.

use std::collections::{BTreeSet, HashSet};

use super::state::{ShownReport, verdicts};
use crate::render::commands::{bless, is_plain};
use crate::render::terminal::text::BOLD;
use crate::report::change::key_of_run;
use crate::report::words::counted;
use crate::report::{Mode, Rule, Run, SkippedCheck, Status, Verdict};
use crate::untrusted::named;

/// The most models, and the most places in a file, that are listed.
const NAMED: usize = 3;

/// Renders commands for the user to copy. Returns nothing if nothing failed.
pub(super) fn steps(report: &ShownReport<'_>) -> String {
    let failed: Vec<_> = report
        .verdicts
        .iter()
        .filter(|verdict| verdict.status == Status::Fail)
        .collect();
    let mut steps = look(report);
    steps.extend(accept(report, &failed));
    if steps.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{BOLD}next steps{BOLD:#}\n");
    let mut before = "";
    for (what, step) in &steps {
        // Steps of one kind have its name only in the first line.
        let shown = if *what == before {
            String::new()
        } else {
            format!("{what}:")
        };
        text.push_str(&format!("  {shown:<8} {step}\n"));
        before = what;
    }
    text
}

type NextStep = (&'static str, String);

fn look(report: &ShownReport<'_>) -> Vec<NextStep> {
    let is_of_memory = |rule: Rule| matches!(rule, Rule::Budget | Rule::Growth | Rule::Drift | Rule::Oom | Rule::Leak);
    let of = |wanted: &dyn Fn(Rule) -> bool| runs(report, wanted);
    let mut steps = Vec::new();
    let (explained, more) = first(&of(&is_of_memory), |run| {
        format!("cargo vram explain {}", run.full_name())
    });
    steps.extend(explained.into_iter().map(|command| ("inspect", command)));
    steps.extend(more.map(|more| ("inspect", more)));
    // Only an out of memory asks what fits. What is over a budget does fit, but is not allowed to.
    let (fitted, _) = first(&of(&|rule| rule == Rule::Oom), |run| {
        format!("cargo vram fit {} --gpu {} --advise", run.full_name(), run.gpu.id)
    });
    steps.extend(fitted.into_iter().map(|command| ("inspect", command)));
    // A report with the lines that grew needs no other command to find them, and one that has none although the command
    // looked for them would have none again.
    let has_looked = report
        .skipped
        .iter()
        .any(|skipped| skipped.check == SkippedCheck::GrowthCauses);
    if !of(&|rule| rule == Rule::Growth).is_empty() && report.growth.is_empty() && !has_looked {
        steps.push(("inspect", name_the_lines(report)));
    }
    steps
}

/// Returns the command that names the source lines that made a model grow.
fn name_the_lines(report: &ShownReport<'_>) -> String {
    let base = report.base.as_ref().map(|base| base.revision.raw());
    let (base, since) = match base.filter(|base| is_plain(base)) {
        Some(base) => (base, String::new()),
        None => (
            "REV",
            ", where REV is a branch or commit from before the growth".to_owned(),
        ),
    };
    format!("cargo vram check --base {base} --why (names the lines that need more memory{since})")
}

fn accept(report: &ShownReport<'_>, failed: &[&Verdict]) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let grown = runs(report, &|rule| rule == Rule::Growth);
    let (of_revision, of_file): (Vec<&Run>, Vec<&Run>) = grown.into_iter().partition(|run| is_of_revision(run));
    // Whatever growth is judged by, the rule `baseline` is about the file.
    let outdated = runs(report, &|rule| rule == Rule::Baseline);
    let leaks = runs(report, &|rule| rule == Rule::Leak);
    let leaking: HashSet<_> = leaks.into_iter().map(key_of_run).collect();
    // `bless` itself only estimates, so it takes measurements from a report. A leak fails whatever the
    // baseline is, so no command accepts it: see docs/design/leaks.md.
    for (mode, rest) in [(Mode::Estimate, ""), (Mode::Measure, " --report FILE")] {
        let of = of_file.iter().chain(&outdated);
        let of = of.filter(|run| run.mode == mode && !leaking.contains(&key_of_run(run)));
        let models: BTreeSet<String> = of.map(|run| run.full_name()).collect();
        if !models.is_empty() {
            let command = bless(&models, rest);
            steps.push(("accept", format!("{} (then commit budgets.lock)", command.trim_end())));
        }
    }
    // After a merge, the models of the base have the new values.
    if !of_revision.is_empty() {
        let step = "to allow growth since the base, edit `growth` in budgets.yaml (`bless` does not change it)";
        steps.push(("accept", step.to_owned()));
    }
    let places: BTreeSet<_> = failed
        .iter()
        .filter(|verdict| verdict.rule == Rule::Budget)
        .filter_map(|verdict| Some((named(verdict.file.as_ref()?.raw()), verdict.line?)))
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
        let and = if steps.is_empty() { "" } else { "and " };
        steps.push(("accept", format!("{and}raise the limit at {}", shown.join(", "))));
    }
    steps
}

/// Whether the run is compared with the models of another revision.
fn is_of_revision(run: &Run) -> bool {
    run.baseline.as_ref().is_some_and(|baseline| !baseline.is_replaceable())
}

/// Returns the runs that fail by a wanted rule, each once.
fn runs<'a>(report: &'a ShownReport<'a>, wanted: &dyn Fn(Rule) -> bool) -> Vec<&'a Run> {
    let fails = |run: &&'a Run| {
        let mut failed = verdicts(report, run).filter(|verdict| verdict.status == Status::Fail);
        failed.any(|verdict| wanted(verdict.rule))
    };
    report.runs.iter().filter(fails).collect()
}

/// Returns a command for each of the first models, and a line that counts the others. A model gets no command if its
/// name is not plain, because a shell could interpret the name.
fn first(runs: &[&Run], command: impl Fn(&Run) -> String) -> (Vec<String>, Option<String>) {
    let (mut commands, mut seen) = (Vec::new(), BTreeSet::new());
    for run in runs
        .iter()
        .filter(|run| is_plain(&run.full_name()) && is_plain(&run.gpu.id))
    {
        let command = command(run);
        if seen.insert(command.clone()) {
            commands.push(command);
        }
    }
    let more = commands.len().saturating_sub(NAMED);
    commands.truncate(NAMED);
    (
        commands,
        (more > 0).then(|| format!("and {}", counted(more as u64, "more model"))),
    )
}
