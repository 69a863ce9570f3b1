//! `cargo vram report`: draws explanations.

use std::path::PathBuf;

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Arg, Args};
use miette::Diagnostic;
use thiserror::Error;

use super::exit::Exit;
use super::options::{InputOptions, LEAK_STEPS, Packages, Running};
use super::{explanations, interrupt, terminal};
use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session;
use crate::cli::session::explanation::{self, ExplainRequest, Explained};
use crate::cli::session::what_if::WhatIfs;
use crate::explain::{Activations, Explanation};
use crate::render::html::{self, Arrangement};
use crate::render::{DrawnLimit, ShownExplanation};
use crate::render::{perfetto, svg};
use crate::report::Metric;

/// Draw where a model's memory goes, as an HTML page
///
/// Reads files that `cargo vram explain --message-format json` wrote, or explains models itself (--model). Writes one
/// HTML file that needs no other files and no network. It shows the memory timeline, the memory at each moment by
/// category, module and tensor, the table of layers, the phases, and the results of --savings, --lines and --leak.
///
/// Options that say how models are built and run need --model. With --model and Burn 0.21, the command builds the
/// models with the feature `explain` of cargo-vram, which takes 10 seconds to 2 minutes the first time.
#[derive(Debug, Args)]
#[command(
    after_long_help = "\
Examples:
  cargo vram report -m resnet18
      explain a model and write vram-report.html
  cargo vram report -m 'resnet*' -m vgg16 --gpu l4 --savings
      put several models on one page
  cargo vram explain resnet18 --message-format json -o resnet18.json
  cargo vram report resnet18.json -o resnet18.html
      draw an earlier explanation
  cargo vram report --compare before.json after.json
      show two explanations side by side
  cargo vram report --compare before.json -m resnet18
      compare an earlier explanation with the current model
  cargo vram report resnet18.json --limit reserved=8GiB
      draw a line at a limit
  cargo vram report resnet18.json --svg memory.svg
      draw a picture for a README
  cargo vram report resnet18.json --trace memory.trace.json
      write a trace for Perfetto or chrome://tracing

Exit codes:
  0    success
  2    a file or the command line is unusable
  101  a file cannot be read or written, or a model cannot run",
    mut_args(with_models),
    mut_arg("model", |model| model.help(
        "Explain and draw models whose name or package/name matches this glob (repeatable)"
    )),
    mut_arg("steps", |steps| steps.default_value_if("leak", "true", LEAK_STEPS)),
)]
pub(super) struct ReportCommand {
    /// The files that `cargo vram explain --message-format json` wrote
    #[arg(value_name = "FILE", required_unless_present = "model")]
    files: Vec<Utf8PathBuf>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: InputOptions,
    /// Try what would save memory, as `cargo vram explain --savings` does
    #[arg(long, help_heading = "Output")]
    savings: bool,
    /// Show how much memory each line of the model's code adds and frees
    #[arg(long, help_heading = "Output")]
    lines: bool,
    /// Show whether live memory grows from step to step
    ///
    /// Runs 10 steps, unless --steps sets another number.
    #[arg(long, help_heading = "Output")]
    leak: bool,
    /// Show two explanations side by side, the older one first
    #[arg(long, help_heading = "Output")]
    compare: bool,
    /// Draw a line at a limit, such as `reserved=8GiB` (repeatable)
    #[arg(long, value_name = "METRIC=SIZE", value_parser = limit, help_heading = "Output")]
    limit: Vec<DrawnLimit>,
    /// Draw the timeline into this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<Utf8PathBuf>,
    /// Write a trace for Perfetto and chrome://tracing to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<Utf8PathBuf>,
    /// Write the page to this file [default: vram-report.html]
    ///
    /// With --svg or --trace, the command writes a page only if this option is given.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<Utf8PathBuf>,
    #[command(flatten)]
    packages: Packages,
}

/// The options that also apply to files, without `--model`.
const DRAWING: [&str; 7] = ["files", "output", "svg", "trace", "compare", "limit", "model"];

/// Makes an option require `--model`, if it says how models are built or run.
fn with_models(option: Arg) -> Arg {
    if DRAWING.contains(&option.get_id().as_str()) {
        return option;
    }
    // For a file that was written before, such an option would silently do nothing.
    option.requires("model")
}

#[derive(Debug, Error, Diagnostic)]
enum ReportError {
    #[error("--compare needs two explanations, but there {}", there(*count))]
    #[diagnostic(
        code(report::compare),
        help("name two, such as `cargo vram report --compare before.json after.json`")
    )]
    Compare { count: usize },
    #[error("{path} is an input: {what} would overwrite it")]
    #[diagnostic(code(report::overwrites), help("choose another file for {what}"))]
    Overwrites { path: Utf8PathBuf, what: &'static str },
    #[error("{path}: {what} and {other} would be written to the same file")]
    #[diagnostic(code(report::overwrites), help("choose different files for them"))]
    Twice {
        path: Utf8PathBuf,
        what: &'static str,
        other: &'static str,
    },
}

impl ExitCoded for ReportError {
    fn exit(&self) -> Exit {
        match self {
            Self::Compare { .. } | Self::Overwrites { .. } | Self::Twice { .. } => Exit::Unusable,
        }
    }
}

fn there(count: usize) -> String {
    match count {
        1 => "is one".to_owned(),
        count => format!("are {count}"),
    }
}

/// An output of the command.
#[derive(Debug, Clone, Copy)]
enum Picture {
    Svg,
    Trace,
    Page,
}

impl Picture {
    /// Returns the name for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Svg => "the picture (--svg)",
            Self::Trace => "the trace (--trace)",
            Self::Page => "the page (--output)",
        }
    }
}

/// An explanation with its name and the limits to draw.
struct Drawn {
    name: String,
    explanation: Explanation,
    limits: Vec<DrawnLimit>,
}

impl ReportCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let pictures = self.pictures();
        // Before the models run, so that a mistake costs no minutes.
        self.refuse_overwriting(&pictures)?;
        let mut all = Vec::new();
        for path in &self.files {
            let name = path.file_name().unwrap_or(path.as_str());
            all.extend(explanations::read(path)?.into_iter().map(|explanation| Drawn {
                name: name.to_owned(),
                explanation,
                limits: self.limit.clone(),
            }));
        }
        if !self.running.model.is_empty() {
            all.extend(self.explained()?);
        }
        // Counted here, because one file may have several
        // explanations, and one glob may match several models.
        if self.compare && all.len() != 2 {
            Err(ReportError::Compare { count: all.len() })?;
        }
        let shown: Vec<_> = all
            .iter()
            .map(|drawn| ShownExplanation {
                name: (all.len() > 1).then_some(drawn.name.as_str()),
                explanation: &drawn.explanation,
                limits: &drawn.limits,
            })
            .collect();
        let mut written = Vec::new();
        for (picture, path) in &pictures {
            let text = match picture {
                Picture::Svg => svg::svg(&shown),
                Picture::Trace => perfetto::trace(&shown, true),
                Picture::Page => html::html(&shown, self.arrangement()),
            };
            written.push(format!("{path}: {}", Bytes(text.len() as u64)));
            interrupt::wait_for_end();
            std::fs::write(path, text).map_err(|source| session::SelectionError::File {
                path: path.clone(),
                source,
            })?;
        }
        if !terminal::is_quiet() {
            terminal::show(&(written.join("\n") + "\n"));
        }
        Ok(Exit::Success)
    }

    /// Returns what to draw, and the file of each.
    fn pictures(&self) -> Vec<(Picture, Utf8PathBuf)> {
        let default = (self.svg.is_none() && self.trace.is_none()).then(|| "vram-report.html".into());
        let asked = [
            (Picture::Svg, self.svg.clone()),
            (Picture::Trace, self.trace.clone()),
            (Picture::Page, self.output.clone().or(default)),
        ];
        asked
            .into_iter()
            .filter_map(|(picture, path)| Some((picture, path?)))
            .collect()
    }

    /// Returns an error if an output would overwrite an input or another output.
    ///
    /// # Errors
    ///
    /// Two of the paths are the same file.
    fn refuse_overwriting(&self, pictures: &[(Picture, Utf8PathBuf)]) -> Result<(), ReportError> {
        for (at, (picture, path)) in pictures.iter().enumerate() {
            let what = picture.name();
            let same = |other: &Utf8PathBuf| place(other) == place(path);
            if self.files.iter().any(same) {
                return Err(ReportError::Overwrites {
                    path: path.clone(),
                    what,
                });
            }
            if let Some((other, _)) = pictures.iter().take(at).find(|(_, other)| same(other)) {
                return Err(ReportError::Twice {
                    path: path.clone(),
                    what,
                    other: other.name(),
                });
            }
        }
        Ok(())
    }

    fn arrangement(&self) -> Arrangement {
        if self.compare {
            Arrangement::Compared
        } else {
            Arrangement::Apart
        }
    }

    /// Explains the selected models, each with the limit of its budget.
    fn explained(&self) -> Result<Vec<Drawn>, CliError> {
        let asked = ExplainRequest {
            what_ifs: WhatIfs::default(),
            running: &self.running,
            inputs: self.inputs.values(),
            activations: Activations::default(),
            lines: self.lines,
            savings: self.savings,
            measuring: None,
            packages: &self.packages,
        };
        let drawn = |Explained { explanation, limit, .. }: Explained| {
            let own = limit.map(|(bytes, _)| DrawnLimit {
                label: "budgets.yaml".to_owned(),
                metric: Metric::Reserved,
                bytes,
            });
            let run = &explanation.run;
            Drawn {
                name: run.full_name(),
                explanation,
                limits: self.limit.iter().cloned().chain(own).collect(),
            }
        };
        Ok(explanation::all(&asked)?.into_iter().map(drawn).collect())
    }
}

/// Returns the absolute path without links, even if the file does not exist yet.
fn place(path: &Utf8Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_str().is_empty());
    let in_folder = || {
        let folder = folder.unwrap_or(Utf8Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize()
        .ok()
        .or_else(in_folder)
        .unwrap_or_else(|| path.into())
}

fn limit(text: &str) -> Result<DrawnLimit, String> {
    let expected = || "expected live, reserved or process and a size, such as reserved=8GiB".to_owned();
    let (metric, size) = text.split_once('=').ok_or_else(expected)?;
    let metric = match metric.trim() {
        "live" => Metric::Live,
        "reserved" => Metric::Reserved,
        "process" => Metric::Process,
        _ => return Err(expected()),
    };
    Ok(DrawnLimit {
        label: "--limit".to_owned(),
        metric,
        bytes: super::options::size(size.trim())?,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        report: ReportCommand,
    }

    fn parsed(arguments: &[&str]) -> Result<ReportCommand, clap::Error> {
        let all = ["report"].iter().chain(arguments);
        Program::try_parse_from(all).map(|program| program.report)
    }

    #[test]
    fn options_that_say_how_models_are_run_need_one() {
        let running = [
            &["--savings"][..],
            &["--lines"],
            &["--leak"],
            &["--gpu", "l4"],
            &["--steps", "5"],
            &["--set", "batch_size=8"],
            &["--package", "zoo"],
            &["--release"],
        ];
        for option in running {
            let with = |first: &[&str]| parsed(&[first, option].concat());
            assert!(with(&["a.json"]).is_err(), "{option:?}");
            assert!(with(&["-m", "a"]).is_ok(), "{option:?}");
            assert!(with(&["a.json", "-m", "a"]).is_ok(), "{option:?}");
        }
        let drawing = [
            "a.json",
            "--compare",
            "--svg",
            "a",
            "--trace",
            "b",
            "-o",
            "c",
            "--limit",
            "live=1GiB",
        ];
        assert!(parsed(&drawing).is_ok());
    }

    #[test]
    fn leaks_are_looked_for_in_ten_steps_unless_somebody_says_how_many() {
        let steps = |arguments: &[&str]| parsed(arguments).unwrap().running.steps;
        assert_eq!(steps(&["-m", "a"]), None);
        assert_eq!(steps(&["-m", "a", "--leak"]), Some(10));
        assert_eq!(steps(&["-m", "a", "--leak", "--steps", "6"]), Some(6));
    }
}
