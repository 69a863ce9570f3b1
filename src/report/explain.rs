//! An explanation as people read it: where the memory goes, in tables, and drawn over time.
//!
//! Rows are one line each, and no line is wider than the terminal.

mod categories;
mod changed;
mod grid;
mod layers;
mod leak;
mod lines;
mod paper;
mod phases;
mod rows;
mod savings;
mod tensors;
mod timeline;

use crate::bytes::Bytes;
use crate::explain::{Explanation, Leak, Leaking};
use crate::protocol::Task;
use crate::report::human::text::{named, words};
use crate::report::words::{kernel_name, percent, with_features};
use crate::report::{Mode, Pass};
use paper::{BAD, DIM, NOTICE, PLAIN, Paper, STRONG, place, tied};

/// Layers and tensors that are shown where not all were asked for.
const TOP: usize = 8;

/// Reads a line of source code: the file as a [`Source`](crate::explain::Source) names it, the line from 1.
pub type SourceLine<'a> = &'a dyn Fn(&str, u32) -> Option<String>;

/// Which parts are shown. Where none is chosen, an overview.
#[derive(Clone, Copy, Default)]
pub struct View<'a> {
    /// The whole table of layers.
    pub layers: bool,
    /// Layers of modules that are deeper than this are summed into a row.
    pub depth: Option<usize>,
    /// Every phase of every step, cold and warm.
    pub phases: bool,
    /// So many of the tensors that were there at the peak.
    pub tensors: Option<usize>,
    /// What came and went, by line of source code: the largest eight kinds of tensors of each, or as many as tensors are
    /// shown.
    pub lines: bool,
    /// Live memory that grows from step to step.
    pub leak: bool,
    /// What would take less.
    pub savings: bool,
    /// Sizes to the byte.
    pub exact: bool,
    /// Only what is wrong, whatever was chosen.
    pub quiet: bool,
    /// Also what the figures rest on.
    pub verbose: bool,
    /// The package in the title, too: another one has a model of that name.
    pub package: bool,
    /// A budget of reserved bytes, drawn into the timeline.
    pub limit: Option<Bytes>,
    /// The same as its file writes it: `300 MB`.
    pub limit_written: Option<&'a str>,
    /// Where the text of source code is from; without it, only its lines' numbers are shown.
    pub source_line: Option<SourceLine<'a>>,
}

impl View<'_> {
    /// The limit, and as people are told it.
    fn drawn_limit(&self) -> Option<(Bytes, String)> {
        let limit = self.limit?;
        Some((limit, self.limit_written.map_or_else(|| limit.to_string(), named)))
    }

    const fn is_overview(&self) -> bool {
        !(self.layers
            || self.depth.is_some()
            || self.phases
            || self.tensors.is_some()
            || self.lines
            || self.leak
            || self.savings)
    }
}

/// What is written on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Columns of the terminal; none in a pipe, which takes any width.
    pub width: Option<usize>,
    /// Whether it shows colours.
    pub color: bool,
    /// Whether it shows more than ASCII.
    pub unicode: bool,
}

/// How much each step leaves, in one sentence, where memory grows with each.
pub(in crate::report) fn growth(explanation: &Explanation, leak: &Leak) -> String {
    let style = Style {
        unicode: true,
        ..Style::default()
    };
    leak::summary(explanation, leak, &Paper::new(&View::default(), &style))
}

/// Draws an explanation.
#[must_use]
pub fn explain(explanation: &Explanation, view: &View<'_>, style: &Style) -> String {
    let paper = &Paper::new(view, style);
    if view.quiet {
        let leak = match &explanation.leak {
            Leaking::Unknown { .. } if view.leak => leak::told(explanation, paper),
            _ => leak::leak(explanation, paper),
        };
        let found = wrong(explanation, paper) + &leak;
        return match found.is_empty() {
            true => found,
            false => title(explanation, view, paper) + &found,
        };
    }
    let mut text = title(explanation, view, paper);
    text.push_str(&wrong(explanation, paper));
    text.push_str(&figures(explanation, paper));
    text.push_str(&changed::changed(explanation, paper));
    if view.is_overview() {
        text.push_str(&categories::categories(explanation, paper));
        text.push_str(&timeline::drawing(explanation, view.drawn_limit().as_ref(), paper));
        text.push_str(&phases::folded(explanation, paper));
        text.push_str(&layers::largest(explanation, TOP, paper));
        text.push_str(&tensors::tensors(explanation, TOP, paper));
        text.push_str(&leak::leak(explanation, paper));
    }
    if view.layers || view.depth.is_some() {
        text.push_str(&layers::layers(explanation, view.depth, paper));
    }
    if view.phases {
        text.push_str(&timeline::timeline(explanation, view.drawn_limit().as_ref(), paper));
        text.push_str(&phases::phases(explanation, paper));
    }
    if let Some(most) = view.tensors {
        text.push_str(&tensors::tensors(explanation, most, paper));
    }
    if view.lines {
        text.push_str(&lines::lines(explanation, view.tensors, view.source_line, paper));
    }
    if view.leak {
        text.push_str(&leak::told(explanation, paper));
    }
    if view.savings {
        text.push_str(&savings::savings(explanation, paper));
    }
    if view.verbose {
        text.push_str(&assumptions(explanation, paper));
    }
    text.push_str(&hints(explanation, view, paper));
    text
}

/// What it is of.
fn title(explanation: &Explanation, view: &View<'_>, paper: &Paper) -> String {
    let run = &explanation.run;
    let mut of = Vec::new();
    of.extend(run.task.map(|task| match task {
        Task::Train => "training".to_owned(),
        Task::Infer => "inference".to_owned(),
    }));
    if !run.inputs.is_empty() {
        let inputs: Vec<_> = run
            .inputs
            .iter()
            .map(|(name, value)| format!("{}={value}", paper.name(name)))
            .collect();
        of.push(tied(&inputs.join(" ")));
    }
    let how = match run.mode {
        Mode::Estimate => "estimated for",
        Mode::Measure => "measured on",
    };
    of.push(tied(&format!("{how} {}", paper.name(&run.gpu.name))));
    if run.features.is_some() {
        of.push(tied(&format!("Burn {}{}", paper.name(&run.burn), with_features(run))));
    }
    let name = paper.name(run.name());
    let name = if view.package {
        format!("{}/{name}", paper.name(&run.package))
    } else {
        name
    };
    let lines = paper.wrapped(0, &format!("{}{}{}", tied(&name), paper.dot(), of.join(paper.dot())));
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        match line.strip_prefix(&name) {
            Some(rest) if at == 0 => text.push_str(&format!("{}{rest}\n", paper.paint(STRONG, &name))),
            _ => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

/// Its three peaks.
fn figures(explanation: &Explanation, paper: &Paper) -> String {
    let (run, peak) = (&explanation.run, &explanation.peak);
    let at = peak.kernel.as_deref().map_or_else(String::new, |kernel| {
        format!(", at {}", paper.name(kernel_name(kernel)))
    });
    // Of a run that was cut short, only what was seen is known.
    let seen = explanation.phases.iter().filter(|row| row.pass != Pass::Cold);
    let seen = seen.map(|row| row.reserved_peak).max().unwrap_or(peak.reserved);
    let warm = &run.peaks.warm;
    let process = warm
        .process
        .unwrap_or(peak.process + seen.saturating_sub(peak.reserved));
    let card = run.gpu.total_bytes;
    let share = percent(process, card).map_or_else(String::new, |share| {
        format!(", {} of {}", tied(&share), tied(&paper.size(card)))
    });
    let figures = [
        tied(&format!("{} live", paper.size(warm.live.unwrap_or(peak.live)))),
        tied(&format!("{} reserved", paper.size(warm.reserved.unwrap_or(seen)))),
        tied(&format!("{} process", paper.size(process))) + &share,
    ];
    let place = format!("live is highest in {}{at}", place(peak.step, peak.phase));
    paper.prose(0, STRONG, &figures.join(paper.dot())) + &paper.prose(0, DIM, &place)
}

/// Why it is not of a whole run, and what the run ended by.
fn wrong(explanation: &Explanation, paper: &Paper) -> String {
    let mut text = String::new();
    if let Some(partial) = &explanation.partial {
        text.push_str(&paper.prose(0, NOTICE, &format!("partial: {}", words(partial))));
    }
    if let Some(oom) = &explanation.run.oom {
        let lines = paper::refusal(&explanation.run, oom);
        text.push_str(&paper.prose(0, BAD, &lines.join(paper.dot())));
    }
    if let Some(error) = &explanation.run.error {
        let message = format!("error[{}]: {}", paper.name(error.code.as_str()), words(&error.message));
        text.push_str(&paper.prose(0, BAD, &message));
        if let Some(help) = &error.help {
            text.push_str(&paper.prose(2, PLAIN, &format!("help: {}", words(help))));
        }
    }
    text
}

fn assumptions(explanation: &Explanation, paper: &Paper) -> String {
    let all: Vec<_> = explanation
        .assumptions
        .iter()
        .chain(&explanation.run.assumptions)
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = paper.heading("What this rests on", "");
    for assumption in all {
        text.push_str(&paper.prose(2, PLAIN, &format!("- {}", words(assumption))));
    }
    text
}

/// How to see more, below everything.
fn hints(explanation: &Explanation, view: &View<'_>, paper: &Paper) -> String {
    let mut hints = Vec::new();
    if view.is_overview() {
        let rows = |number: usize, of: &str| format!("{number} {of}{}", if number == 1 { "" } else { "s" });
        hints.push(format!(
            "--layers shows all {}, --depth 1 their modules",
            rows(explanation.layers.len(), "layer")
        ));
        hints.push("--phases cold and warm".to_owned());
        hints.push(format!(
            "--tensors N more of {}",
            rows(explanation.peak.tensors.len(), "tensor")
        ));
        hints.push("--lines what each line of code adds".to_owned());
        hints.push("--savings what would take less".to_owned());
    }
    let assumed = explanation.assumptions.len() + explanation.run.assumptions.len();
    if !view.verbose && assumed > 0 {
        hints.push("--verbose what this rests on".to_owned());
    }
    // A program asks for what it wants.
    if hints.is_empty() || paper.width.is_none() {
        return String::new();
    }
    format!("\n{}", paper.prose(0, DIM, &hints.join(paper.dot())))
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
