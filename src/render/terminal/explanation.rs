//! An explanation on a terminal: tables of what uses the memory, and a drawing of memory over time.
//!
//! Each row is one line, and no line is wider than the terminal.

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
mod view;

use crate::explain::{Explanation, Leak, Leaking};
use crate::protocol::Task;
use crate::report::words::{kernel_name, percent, with_features};
use crate::report::{Mode, Pass};
use crate::untrusted::{Foreign, words};
use paper::{BAD, Canvas, DIM, NOTICE, PLAIN, STRONG, place, tied};
pub use view::{SourceLine, TerminalStyle, View};

/// The most layers, tensors and source lines that a table of the largest ones shows.
const TOP: usize = 8;

/// Describes a leak in one sentence: how much memory each step leaves.
pub(in crate::render) fn growth(explanation: &Explanation, leak: &Leak) -> String {
    let style = TerminalStyle {
        unicode: true,
        ..TerminalStyle::default()
    };
    // The sentence is for formats without columns, so the canvas has no width.
    leak::summary(explanation, leak, &Canvas::new(&View::default(), &style))
}

/// Renders an explanation.
#[must_use]
pub fn render(explanation: &Explanation, view: &View<'_>, style: &TerminalStyle) -> String {
    let paper = &Canvas::new(view, style);
    if view.quiet {
        let leak = match &explanation.leak {
            // Too few steps are a problem only for a user who asked for leaks. See docs/design/leaks.md.
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

/// Renders the title: the model, its task and inputs, the GPU and Burn.
fn title(explanation: &Explanation, view: &View<'_>, paper: &Canvas) -> String {
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
    of.push(tied(&format!("{how} {}", paper.name(run.gpu.name.raw()))));
    if run.features.is_some() {
        of.push(tied(&format!(
            "Burn {}{}",
            paper.name(run.burn.raw()),
            with_features(run)
        )));
    }
    let name = paper.name(run.name());
    let name = if view.package {
        format!("{}/{name}", paper.name(&run.package))
    } else {
        name
    };
    // Wrap first and paint then: escape sequences would count as columns.
    let lines = paper.wrapped(0, &format!("{}{}{}", tied(&name), paper.dot(), of.join(paper.dot())));
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        match line.strip_prefix(&name) {
            // A name that is cut to the width of the terminal is not found, and stays plain.
            Some(rest) if at == 0 => text.push_str(&format!("{}{rest}\n", paper.paint(STRONG, &name))),
            _ => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

/// Renders the peaks of live, reserved and process memory, and where live memory peaks.
fn figures(explanation: &Explanation, paper: &Canvas) -> String {
    let (run, peak) = (&explanation.run, &explanation.peak);
    let at = peak
        .kernel
        .as_ref()
        .map(Foreign::raw)
        .map_or_else(String::new, |kernel| {
            format!(", at {}", paper.name(kernel_name(kernel)))
        });
    // An incomplete run may have no peaks: then use the values of the phases that ran.
    let seen = explanation.phases.iter().filter(|row| row.pass != Pass::Cold);
    let seen = seen.map(|row| row.reserved_peak).max().unwrap_or(peak.reserved);
    let warm = &run.peaks.warm;
    let process = warm
        .process
        .unwrap_or(peak.process + seen.saturating_sub(peak.reserved));
    let gpu = run.gpu.total_bytes;
    let share = percent(process, gpu).map_or_else(String::new, |share| {
        format!(", {} of {}", tied(&share), tied(&paper.size(gpu)))
    });
    let figures = [
        tied(&format!("{} live", paper.size(warm.live.unwrap_or(peak.live)))),
        tied(&format!("{} reserved", paper.size(warm.reserved.unwrap_or(seen)))),
        tied(&format!("{} process", paper.size(process))) + &share,
    ];
    let place = format!("live memory peaks in {}{at}", place(peak.step, peak.phase));
    paper.prose(0, STRONG, &figures.join(paper.dot())) + &paper.prose(0, DIM, &place)
}

/// Renders why the explanation is incomplete, and the error that ended the run.
fn wrong(explanation: &Explanation, paper: &Canvas) -> String {
    let mut text = String::new();
    if let Some(partial) = &explanation.partial {
        text.push_str(&paper.prose(0, NOTICE, &format!("incomplete run: {}", partial.on_terminal())));
    }
    if let Some(oom) = &explanation.run.oom {
        let lines = paper::refusal(&explanation.run, oom);
        text.push_str(&paper.prose(0, BAD, &lines.join(paper.dot())));
    }
    if let Some(error) = &explanation.run.error {
        let message = format!(
            "error[{}]: {}",
            paper.name(error.code.as_str()),
            error.message.on_terminal()
        );
        text.push_str(&paper.prose(0, BAD, &message));
        if let Some(help) = &error.help {
            text.push_str(&paper.prose(2, PLAIN, &format!("help: {}", help.on_terminal())));
        }
    }
    text
}

fn assumptions(explanation: &Explanation, paper: &Canvas) -> String {
    let all: Vec<_> = explanation
        .assumptions
        .iter()
        .chain(&explanation.run.assumptions)
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = paper.heading("Assumptions", "");
    for assumption in all {
        text.push_str(&paper.prose(2, PLAIN, &format!("- {}", words(&assumption.to_string()))));
    }
    text
}

/// Renders the options that show more.
fn hints(explanation: &Explanation, view: &View<'_>, paper: &Canvas) -> String {
    let mut hints = Vec::new();
    if view.is_overview() {
        let rows = |number: usize, of: &str| format!("{number} {of}{}", if number == 1 { "" } else { "s" });
        hints.push(format!(
            "--layers: all {}, --depth 1: sums per module",
            rows(explanation.layers.len(), "layer")
        ));
        hints.push("--phases: cold and warm pass".to_owned());
        hints.push(format!(
            "--tensors N: more of {}",
            rows(explanation.peak.tensors.len(), "tensor")
        ));
        hints.push("--lines: memory by source line".to_owned());
        hints.push("--savings: changes that save memory".to_owned());
    }
    let assumed = explanation.assumptions.len() + explanation.run.assumptions.len();
    if !view.verbose && assumed > 0 {
        hints.push("--verbose: assumptions".to_owned());
    }
    // Without a terminal, a program reads the output and needs no hints.
    if hints.is_empty() || paper.width.is_none() {
        return String::new();
    }
    format!("\n{}", paper.prose(0, DIM, &hints.join(paper.dot())))
}

#[cfg(test)]
mod tests;
