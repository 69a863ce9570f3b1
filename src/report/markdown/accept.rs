//! How to accept what changed: a command to copy, so nothing stands in it that a shell would not take for a name.

use std::collections::BTreeSet;

use super::Told;
use super::page::Section;
use crate::report::change::Judged;
use crate::report::{Mode, Rule, Run, Status, Verdict};

/// Models that are named one by one; more are accepted together.
const NAMED: usize = 8;
/// A longer name is no model's.
const LONGEST: usize = 100;

pub(super) fn accept(told: &Told<'_>) -> Section {
    let judged = Judged::new(told.report);
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
    let of = |mode| -> BTreeSet<String> {
        runs.iter()
            .filter(|run| run.mode == mode)
            .map(|run| run.full_name())
            .collect()
    };
    let (estimated, measured) = (of(Mode::Estimate), of(Mode::Measure));
    let mut commands = String::new();
    if !estimated.is_empty() {
        commands.push_str(&command(&estimated, ""));
    }
    if !measured.is_empty() {
        commands.push_str(&command(&measured, " --report report.json"));
    }
    let mut verdicts = told.report.verdicts.iter();
    let over = match verdicts.any(|verdict| verdict.rule == Rule::Budget && verdict.status == Status::Fail) {
        true => "A budget is a person's word: what is over it is accepted by another limit in `budgets.yaml`.\n\n",
        false => "",
    };
    let leak = match told.report.verdicts.iter().any(is_leak) {
        true => "A leak cannot be accepted: what a step leaves behind must go.\n\n",
        false => "",
    };
    let over = format!("{over}{leak}");
    if commands.is_empty() {
        return Section::text(over);
    }
    let report = match measured.is_empty() {
        true => "",
        false => " (`report.json` is what this run wrote with `--message-format json`)",
    };
    Section::text(format!(
        "To accept it, run this and commit `budgets.lock`{report}:\n\n```sh\n{commands}```\n\n{over}"
    ))
}

/// Whether somebody is to accept it: it grew further than it may, or shrank so far, or must be as it was to the byte. What
/// is let be needs nobody; and of what no rule compared, nobody knows that.
fn is_asked(verdicts: &[&Verdict]) -> bool {
    let mut compared = verdicts
        .iter()
        .filter(|verdict| matches!(verdict.rule, Rule::Growth | Rule::Baseline))
        .peekable();
    compared.peek().is_none() || compared.any(|verdict| verdict.status >= Status::Warn || verdict.is_improvement())
}

/// Whether what grew is a leak, which fails whatever is accepted.
fn leaks(verdicts: &[&Verdict]) -> bool {
    verdicts.iter().any(|verdict| is_leak(verdict))
}

fn is_leak(verdict: &Verdict) -> bool {
    verdict.rule == Rule::Leak && verdict.status == Status::Fail
}

/// Whether the branch's own baseline has it already, though the base's has not.
fn is_accepted(told: &Told<'_>, verdicts: &[&Verdict]) -> bool {
    let growth = verdicts.iter().filter(|verdict| verdict.rule == Rule::Growth);
    let mut growth = growth.peekable();
    let is_judged = growth.peek().is_some();
    told.report.base.is_some() && is_judged && growth.all(|verdict| verdict.baseline == verdict.actual)
}

pub(in crate::report) fn command(models: &BTreeSet<String>, rest: &str) -> String {
    let named = models.len() <= NAMED && models.iter().all(|model| is_plain(model));
    let selection: String = match named {
        true => models.iter().map(|model| format!(" -m {model}")).collect(),
        false => String::new(),
    };
    format!("cargo vram bless{selection}{rest}\n")
}

/// Whether a shell takes it for one word, and `-m` for a name rather than a glob.
pub(in crate::report) fn is_plain(model: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    model.len() <= LONGEST && model.starts_with(|c: char| c.is_ascii_alphanumeric()) && model.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn a_name_that_a_shell_would_run_is_in_no_command() {
        assert!(is_plain("zoo/resnet18-b128"));
        for model in ["a/b; rm -rf ~", "a/$(b)", "a/`b`", "-m/b", "a/*", "a/b\nc", "a/'b'", ""] {
            assert!(!is_plain(model), "{model}");
        }
    }
}
