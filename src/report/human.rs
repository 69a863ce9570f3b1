//! The report as people read it: a table, what is wrong below it, and a last line that says it all.

use std::fmt::Write;

use anstyle::{AnsiColor, Style as Ansi};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::{Metric, Oom, Pass, Phase, Problem, Report, Rule, Run, RunError, Status, Verdict};
use crate::bytes::Bytes;

/// How the report is shown.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// The first line: how the figures were obtained.
    pub headline: String,
    /// Columns of the terminal.
    pub width: usize,
    /// Only what is wrong.
    pub quiet: bool,
    /// Also what was assumed.
    pub verbose: bool,
    /// Whether the runs were judged.
    pub judged: bool,
}

/// How much of a model's own words is shown; all of them are in the JSON report.
const SHOWN: usize = 600;

/// A text that is not ours: nothing in it may steer a terminal.
fn clean(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.trim_end().chars().map(harmless).collect()
}

/// A model's own words, cut to a readable length; no line of them looks like one of ours.
fn words(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    clean(&shown).replace('\n', "\n    ")
}

const GREEN: Ansi = AnsiColor::Green.on_default();
const YELLOW: Ansi = AnsiColor::Yellow.on_default();
const RED: Ansi = AnsiColor::Red.on_default();
/// The state of a run that exceeds a limit.
const OVER: &str = "over budget";
/// Cells of the bar of used against allowed.
const BAR: u64 = 10;

/// Draws the report, with colours as escape sequences.
#[must_use]
pub fn render(report: &Report, style: &Style) -> String {
    let mut text = String::new();
    if !style.quiet && !report.runs.is_empty() {
        if !style.headline.is_empty() {
            text.push_str(&style.headline);
            text.push_str("\n\n");
        }
        text.push_str(&table(report, style));
        text.push('\n');
    }
    for problem in &report.problems {
        text.push_str(&self::problem(problem));
        text.push('\n');
    }
    for run in &report.runs {
        if let Some(error) = &run.error {
            text.push_str(&self::error(run, error));
        }
        if let Some(oom) = &run.oom {
            text.push_str(&self::oom(run, oom));
        }
    }
    for verdict in &report.verdicts {
        // An out of memory is told above, with everything that is known of it.
        // So is what kept a run from being judged.
        let told =
            verdict.status == Status::Error && report.runs.iter().any(|run| run.error.is_some() && is_of(verdict, run));
        if verdict.rule != Rule::Oom && verdict.status != Status::Pass && !told {
            text.push_str(&self::verdict(verdict));
        }
    }
    if style.verbose {
        text.push_str(&assumptions(report));
    }
    if !style.quiet {
        text.push_str(&summary(report, style));
    }
    text
}

/// A problem with a target, as an error with its help.
#[must_use]
pub fn problem(problem: &Problem) -> String {
    let mut text = format!("{RED}error{RED:#}[{}]: {}\n", problem.code, clean(&problem.message));
    if let Some(help) = &problem.help {
        let _ = writeln!(text, "  help: {help}");
    }
    text
}

fn table(report: &Report, style: &Style) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    // Where there are to be no colours, they are taken out when the text is written.
    table.enforce_styling();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(style.width).unwrap_or(u16::MAX));
    let limit = if style.judged { "limit" } else { "card" };
    table.set_header(["model", "inputs", "live", "reserved", "", limit, "cold", ""]);
    for at in [2, 3, 5, 6] {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for run in &report.runs {
        table.add_row(row(report, run));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

fn row(report: &Report, run: &Run) -> Vec<Cell> {
    let shown = |bytes: Option<Bytes>| Cell::new(bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()));
    let warm = report
        .verdicts
        .iter()
        .filter(|verdict| is_of(verdict, run) && verdict.pass == Some(Pass::Warm));
    let limit = warm
        .clone()
        .find(|verdict| verdict.metric == Some(Metric::Reserved))
        .and_then(|verdict| verdict.limit);
    let allowed = limit.unwrap_or(run.gpu.available_bytes);
    let reserved = run.peaks.warm.reserved;
    let (word, color) = state(report, run);
    let inputs: Vec<_> = run
        .inputs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    vec![
        Cell::new(name_of(report, run)).add_attribute(Attribute::Bold),
        Cell::new(inputs.join(" ")),
        shown(run.peaks.warm.live),
        shown(reserved),
        Cell::new(reserved.map(|bytes| bar(bytes, allowed)).unwrap_or_default()).fg(color),
        match limit {
            Some(limit) => Cell::new(limit.to_string()),
            None => Cell::new(format!("card {allowed}")),
        },
        shown(run.peaks.cold.reserved),
        Cell::new(match culprit(report, run) {
            Some(culprit) if word == OVER => format!("{word}: {culprit}"),
            _ => word.to_owned(),
        })
        .fg(color),
    ]
}

/// The name of a run: bare where it is the only one of that name.
fn name_of(report: &Report, run: &Run) -> String {
    let bare = |run: &Run| run.budget.as_ref().unwrap_or(&run.model).clone();
    let name = bare(run);
    let alone = report
        .runs
        .iter()
        .all(|other| bare(other) != name || other.package == run.package);
    if alone { name } else { identity(run) }
}

/// The figure that is over its limit, where it is another than the one that the row draws.
fn culprit(report: &Report, run: &Run) -> Option<String> {
    let own = report.verdicts.iter().filter(|verdict| is_of(verdict, run));
    let mut failed = own.filter(|verdict| verdict.status == Status::Fail);
    let drawn = |verdict: &Verdict| verdict.metric == Some(Metric::Reserved) && verdict.pass == Some(Pass::Warm);
    if failed.clone().any(drawn) {
        return None;
    }
    let verdict = failed.next()?;
    let metric = match verdict.metric? {
        Metric::Live => "live",
        Metric::Reserved => "reserved",
        Metric::Process => "process",
    };
    Some(if verdict.pass == Some(Pass::Cold) {
        format!("cold {metric}")
    } else {
        metric.to_owned()
    })
}

/// The state of a run in a word.
fn state(report: &Report, run: &Run) -> (&'static str, Color) {
    if run.error.is_some() {
        return ("error", Color::Red);
    }
    if run.oom.is_some() {
        return ("out of memory", Color::Red);
    }
    let worst = report
        .verdicts
        .iter()
        .filter(|verdict| is_of(verdict, run))
        .map(|verdict| verdict.status)
        .max();
    match worst {
        Some(Status::Fail) => (OVER, Color::Red),
        Some(Status::Error) => ("error", Color::Red),
        Some(Status::Warn) => ("warning", Color::Yellow),
        Some(Status::Pass) => ("ok", Color::Green),
        None => ("", Color::Reset),
    }
}

fn is_of(verdict: &Verdict, run: &Run) -> bool {
    verdict.package == run.package
        && &verdict.model == run.budget.as_ref().unwrap_or(&run.model)
        && verdict.mode == run.mode
        && verdict.gpu == run.gpu.id
}

/// Used against allowed: `████░░░░░░  42 %`. More than allowed fills it.
fn bar(used: Bytes, allowed: Bytes) -> String {
    let allowed = u128::from(allowed.0.max(1));
    let percent = u128::from(used.0) * 100 / allowed;
    // Full only where nothing is left, empty only where nothing is used.
    let full = (u128::from(used.0) * u128::from(BAR) / allowed).clamp(u128::from(used.0 > 0), u128::from(BAR));
    let full = usize::try_from(full).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - full;
    format!("{}{} {percent:>3} %", "█".repeat(full), "░".repeat(empty))
}

fn identity(run: &Run) -> String {
    format!("{}/{}", run.package, run.budget.as_ref().unwrap_or(&run.model))
}

fn error(run: &Run, error: &RunError) -> String {
    let mut text = format!(
        "{RED}error{RED:#}[{}]: {}: {}\n",
        error.code,
        identity(run),
        words(&error.message)
    );
    if let Some(help) = &error.help {
        let _ = writeln!(text, "  help: {help}");
    }
    text
}

fn oom(run: &Run, oom: &Oom) -> String {
    let place = match (oom.step, oom.phase) {
        (Some(step), Some(phase)) => format!("in step {step}, {}", name(phase)),
        (None, Some(phase)) => format!("before the first step, {}", name(phase)),
        (step, None) => step.map_or_else(String::new, |step| format!("in step {step}")),
    };
    let pass = match oom.pass {
        Pass::Cold => "cold (first launch)",
        Pass::Warm => "warm",
        Pass::Traced => "traced",
    };
    let mut text = format!(
        "{RED}out of memory{RED:#}: {} on {} {place} ({pass} pass)\n",
        identity(run),
        run.gpu.id
    );
    let _ = writeln!(
        text,
        "  asked {}, held {}, left {} of {}",
        oom.requested, oom.reserved, oom.available, run.gpu.available_bytes
    );
    if oom.requested <= oom.available {
        let page = Bytes(run.gpu.total_bytes.0 / 4);
        let _ = writeln!(
            text,
            "  Burn's allocator gives no tensor more than a quarter of the card, {page}"
        );
    }
    if let Some(kernel) = &oom.kernel {
        let _ = writeln!(text, "  at kernel {}", words(kernel));
    }
    text
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Context => "context",
        Phase::Model => "model",
        Phase::Batch => "batch",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
    }
}

fn verdict(verdict: &Verdict) -> String {
    let word = match verdict.status {
        Status::Pass => return String::new(),
        Status::Warn => format!("{YELLOW}warning{YELLOW:#}"),
        Status::Fail => format!("{RED}over budget{RED:#}"),
        Status::Error => format!("{RED}error{RED:#}"),
    };
    let mut text = format!("{word}: {}/{}: {}\n", verdict.package, verdict.model, verdict.message);
    if let (Some(file), Some(line), Some(column)) = (&verdict.file, verdict.line, verdict.column) {
        let _ = writeln!(text, "  at {file}:{line}:{column}");
    }
    text
}

fn assumptions(report: &Report) -> String {
    let mut text = String::new();
    let mut told = std::collections::BTreeSet::new();
    for run in &report.runs {
        let autotune = run.autotune;
        let _ = writeln!(
            text,
            "{}: {} s; autotune choices: {} recorded, {} nearest, {} assumed; {} streams, {} device reads",
            identity(run),
            run.seconds,
            autotune.recorded,
            autotune.nearest,
            autotune.assumed,
            run.streams,
            run.device_reads,
        );
        told.extend(&run.assumptions);
    }
    for assumption in told {
        let _ = writeln!(text, "assumed: {assumption}");
    }
    text
}

fn summary(report: &Report, style: &Style) -> String {
    let count = |wanted: &str| report.runs.iter().filter(|run| state(report, run).0 == wanted).count();
    let runs = report.runs.len();
    let plural = if runs == 1 { "" } else { "s" };
    let mut parts = vec![format!("{runs} run{plural}")];
    let states = [
        ("ok", "within budget", GREEN),
        ("warning", "with warnings", YELLOW),
        ("over budget", "over budget", RED),
        ("out of memory", "out of memory", RED),
        ("error", "incomplete", RED),
    ];
    for (state, words, color) in states {
        let number = count(state);
        if number > 0 {
            parts.push(format!("{color}{number} {words}{color:#}"));
        }
    }
    if !report.problems.is_empty() {
        parts.push(format!("{RED}{} not run{RED:#}", report.problems.len()));
    }
    if !style.verbose && report.runs.iter().any(|run| !run.assumptions.is_empty()) {
        parts.push("--verbose shows what is assumed".to_owned());
    }
    parts.join(" · ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_words_cannot_steer_a_terminal_or_pose_as_ours() {
        let hostile = "\u{1b}[2J\u{1b}]0;x\u{7}\n::error::gone\r\n";
        let shown = words(hostile);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        assert!(shown.lines().skip(1).all(|line| line.starts_with("    ")), "{shown:?}");
        assert!(words(&"x".repeat(10_000)).chars().count() <= SHOWN + 1);
    }

    #[test]
    fn the_bar_is_full_only_where_nothing_is_left() {
        assert_eq!(bar(Bytes(0), Bytes(100)), "░░░░░░░░░░   0 %");
        assert_eq!(bar(Bytes(1), Bytes(1000)), "█░░░░░░░░░   0 %");
        assert_eq!(bar(Bytes(999), Bytes(1000)), "█████████░  99 %");
        assert_eq!(bar(Bytes(3000), Bytes(1000)), "██████████ 300 %");
    }
}
