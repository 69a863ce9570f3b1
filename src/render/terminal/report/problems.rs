//! The problems below the table.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use super::state::{ShownReport, identity, on_gpu};
use super::style::ReportStyle;
use crate::render::refused;
use crate::render::terminal::text::{GREEN, RED, YELLOW};
use crate::report::change::{key_of_run, key_of_verdict};
use crate::report::words::{failure, phase_name};
use crate::report::{ErrorCode, Foreign, Oom, OtherProcess, Pass, Problem, Rule, Run, RunError, Status, Verdict};
use crate::untrusted::{named, words};

/// The most other processes that are listed per GPU.
const TOLD: usize = 10;

/// Renders a problem with a target as an error with its help.
#[must_use]
pub fn problem(problem: &Problem) -> String {
    let mut text = format!(
        "{RED}error{RED:#}[{}]: {}\n",
        problem.code,
        problem.message.on_terminal()
    );
    help(&mut text, problem.help.as_ref().map(Foreign::raw));
    text
}

/// Renders all problems of the report, then the improvements.
pub(super) fn problems(report: &ShownReport<'_>, style: &ReportStyle) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        text.push_str(&self::problem(problem));
        text.push('\n');
    }
    for run in &report.runs {
        let is_located = |error: &&RunError| {
            error.code == ErrorCode::UnknownInput && style.located_inputs.contains(&run.full_name())
        };
        if let Some(error) = run.error.as_ref().filter(|error| !is_located(error)) {
            text.push_str(&self::error(report, run, error));
        }
        if let Some(oom) = &run.oom {
            text.push_str(&self::oom(run, oom));
        }
    }
    text.push_str(&others(report));
    let failed = report.runs.iter().filter(|run| run.error.is_some());
    let told: HashSet<_> = failed.map(key_of_run).collect();
    for verdict in &report.verdicts {
        // The loop over the runs has already printed errors and out of memory, with more details.
        let told = verdict.status == Status::Error && told.contains(&key_of_verdict(verdict));
        if verdict.rule != Rule::Oom && verdict.status != Status::Pass && !told {
            text.push_str(&self::verdict(report, verdict));
        }
    }
    for verdict in report.verdicts.iter().filter(|verdict| verdict.is_improvement()) {
        let name = name(report, verdict);
        let _ = writeln!(
            text,
            "{GREEN}improved{GREEN:#}: {name}: {}",
            verdict.message.on_terminal()
        );
    }
    text
}

fn help(text: &mut String, help: Option<&str>) {
    if let Some(help) = help {
        let _ = writeln!(text, "  help: {}", words(help));
    }
}

/// Returns the model of a verdict and, if the report has several GPUs, the GPU.
fn name(report: &ShownReport<'_>, verdict: &Verdict) -> String {
    let name = format!("{}/{}", verdict.package, verdict.model);
    name + &on_gpu(report, &verdict.gpu)
}

fn error(report: &ShownReport<'_>, run: &Run, error: &RunError) -> String {
    let mut text = format!(
        "{RED}error{RED:#}[{}]: {}{}: {}\n",
        error.code,
        identity(run),
        on_gpu(report, &run.gpu.id),
        error.message.on_terminal()
    );
    help(&mut text, error.help.as_ref().map(Foreign::raw));
    text
}

fn oom(run: &Run, oom: &Oom) -> String {
    let place = match (oom.step, oom.phase) {
        (Some(step), Some(phase)) => format!("in step {step}, {}", phase_name(phase)),
        (None, Some(phase)) => format!("before the first step, {}", phase_name(phase)),
        (step, None) => step.map_or_else(String::new, |step| format!("in step {step}")),
    };
    let pass = match oom.pass {
        Pass::Cold => "cold",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    };
    let mut text = format!(
        "{RED}out of memory{RED:#}: {} on {} {place} ({pass} pass{})\n",
        identity(run),
        run.gpu.id,
        run.of_order()
    );
    for line in refused::refusal(run, oom) {
        let _ = writeln!(text, "  {line}");
    }
    help(&mut text, refused::advice(run, oom).as_deref());
    text
}

/// Renders a warning for each other process on a GPU, once for all runs that saw it, the largest first.
fn others(report: &ShownReport<'_>) -> String {
    let mut gpus: BTreeMap<&Foreign, (&Foreign, BTreeMap<u32, &OtherProcess>)> = BTreeMap::new();
    for run in &report.runs {
        let Some(measurement) = &run.measurement else { continue };
        for other in &measurement.others {
            let (_, seen) = gpus
                .entry(&measurement.uuid)
                .or_insert_with(|| (&run.gpu.name, BTreeMap::new()));
            // Several runs may have seen the same process. One warning with its highest value is enough.
            let most = seen.entry(other.pid).or_insert(other);
            if other.bytes > most.bytes {
                *most = other;
            }
        }
    }
    let mut text = String::new();
    for (uuid, (gpu, seen)) in gpus {
        let mut seen: Vec<_> = seen.into_values().collect();
        seen.sort_by_key(|other| std::cmp::Reverse(other.bytes));
        let gpu = format!("{gpu} ({uuid})");
        for other in seen.iter().take(TOLD) {
            let name = other.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            let held = other
                .bytes
                .map_or_else(|| "an unknown amount of memory".to_owned(), |bytes| bytes.to_string());
            let _ = writeln!(
                text,
                "{YELLOW}warning{YELLOW:#}: another process on {gpu}: {}{name} held {held}",
                other.pid
            );
        }
        let more = seen.len().saturating_sub(TOLD);
        if more > 0 {
            let processes = if more == 1 { "process" } else { "processes" };
            let _ = writeln!(text, "{YELLOW}warning{YELLOW:#}: and {more} more {processes} on {gpu}");
        }
    }
    text
}

fn verdict(report: &ShownReport<'_>, verdict: &Verdict) -> String {
    let failed = failure(verdict.rule);
    let word = match verdict.status {
        Status::Pass => return String::new(),
        Status::Warn => format!("{YELLOW}warning{YELLOW:#}"),
        Status::Fail => format!("{RED}{failed}{RED:#}"),
        Status::Error => format!("{RED}error{RED:#}"),
    };
    let name = name(report, verdict);
    let mut text = format!("{word}: {name}: {}\n", verdict.message.on_terminal());
    if let (Some(file), Some(line), Some(column)) = (&verdict.file, verdict.line, verdict.column) {
        let _ = writeln!(text, "  at {}:{line}:{column}", named(file.raw()));
    }
    text
}
