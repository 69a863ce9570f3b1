//! `cargo vram report`: explanations as pictures.

use std::path::PathBuf;

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Arg, Args};
use miette::Diagnostic;
use thiserror::Error;

use super::exit::Exit;
use super::explanation::{self, Asked, Explained};
use super::options::{Inputs, LEAK_STEPS, Loudness, Packages, Running};
use super::what_if::WhatIfs;
use super::{Stopped, explanations, pipeline, terminal};
use crate::bytes::Bytes;
use crate::explain::{Activations, Explanation};
use crate::report::html::{self, Arrangement};
use crate::report::{Limit, Metric, Shown, perfetto, svg};

/// Draw where memory goes, as a page to look at
///
/// Reads what `cargo vram explain --message-format json` wrote, or explains models itself (--model), and draws one HTML
/// file that needs nothing else and connects to nothing: the memory timeline, what is held at any moment, by category,
/// module and tensor, the layer table and phases; and what --savings, --lines and --leak were asked for. With --model and Burn 0.21, it
/// builds the models with the feature `explain` of cargo-vram: the first time this takes 1–2 minutes.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  cargo vram report -m resnet18                              ./vram-report.html
  cargo vram report -m 'resnet*' -m vgg16 --gpu l4 --savings several models, to choose from
  cargo vram explain resnet18 --message-format json -o resnet18.json
  cargo vram report resnet18.json -o resnet18.html           what was explained before
  cargo vram report --compare before.json after.json         side by side
  cargo vram report --compare before.json -m resnet18        what it was before, and what it is now
  cargo vram report resnet18.json --limit reserved=8GiB      with a line at a limit
  cargo vram report resnet18.json --svg memory.svg           a picture for a README
  cargo vram report resnet18.json --trace memory.trace.json  for Perfetto or chrome://tracing

Exit codes: 0, or 2 where a file cannot be used, or 101 where one cannot be read or written, or a model cannot be run.",
    mut_args(with_models),
    mut_arg("model", |model| model.help(
        "Explain models whose name, or package/name, matches this glob, and draw them; may be given several times"
    )),
    mut_arg("steps", |steps| steps.default_value_if("leak", "true", LEAK_STEPS)),
)]
pub(super) struct Report {
    /// What `cargo vram explain --message-format json` wrote
    #[arg(value_name = "FILE", required_unless_present = "model")]
    files: Vec<Utf8PathBuf>,
    /// The page to write; by default vram-report.html, unless --svg or --trace is asked for
    #[arg(short, long, value_name = "FILE")]
    output: Option<Utf8PathBuf>,
    /// Write the timeline as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<Utf8PathBuf>,
    /// Write a trace for Perfetto and chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<Utf8PathBuf>,
    /// Show two explanations side by side, the first being what it was before
    #[arg(long)]
    compare: bool,
    /// Draw a line at a limit, such as `reserved=8GiB`; may be given several times
    #[arg(long, value_name = "METRIC=SIZE", value_parser = limit)]
    limit: Vec<Limit>,
    /// Try what would take less memory, as `cargo vram explain --savings` does
    #[arg(long)]
    savings: bool,
    /// Tell what each line of the model's code adds and takes away
    #[arg(long)]
    lines: bool,
    /// Run 10 steps, unless --steps says otherwise, and tell whether live memory grows with each
    #[arg(long)]
    leak: bool,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    packages: Packages,
}

/// Options that are there for files, too.
const DRAWING: [&str; 7] = ["files", "output", "svg", "trace", "compare", "limit", "model"];

/// Refuses an option that says how models are run where none is.
fn with_models(option: Arg) -> Arg {
    if DRAWING.contains(&option.get_id().as_str()) {
        return option;
    }
    let option = option.requires("model");
    if option.get_help_heading().is_some() {
        return option;
    }
    option.help_heading("How models are run (with --model)")
}

#[derive(Debug, Error, Diagnostic)]
enum Refused {
    #[error("--compare takes two explanations, and there {}", there(*count))]
    #[diagnostic(code(report::compare), help("cargo vram report --compare before.json after.json"))]
    Compare { count: usize },
    #[error("{path}: {what} would be written over what is read")]
    #[diagnostic(code(report::overwrites), help("name another file for {what}"))]
    Overwrites { path: Utf8PathBuf, what: &'static str },
    #[error("{path}: {what} and {other} would be written to one file")]
    #[diagnostic(code(report::overwrites), help("name a file of its own for each"))]
    Twice {
        path: Utf8PathBuf,
        what: &'static str,
        other: &'static str,
    },
}

fn there(count: usize) -> String {
    match count {
        1 => "is one".to_owned(),
        count => format!("are {count}"),
    }
}

/// What can be drawn.
#[derive(Debug, Clone, Copy)]
enum Picture {
    Svg,
    Trace,
    Page,
}

impl Picture {
    /// As people are told of it.
    fn name(self) -> &'static str {
        match self {
            Self::Svg => "the picture (--svg)",
            Self::Trace => "the trace (--trace)",
            Self::Page => "the page (--output)",
        }
    }
}

/// An explanation, and where it is from.
struct Drawn {
    name: String,
    explanation: Explanation,
    limits: Vec<Limit>,
}

impl Report {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let pictures = self.pictures();
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
            all.extend(self.explained(loudness)?);
        }
        if self.compare && all.len() != 2 {
            Err(Refused::Compare { count: all.len() })?;
        }
        let shown: Vec<_> = all
            .iter()
            .map(|drawn| Shown {
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
            std::fs::write(path, text).map_err(|source| pipeline::Asked::File {
                path: path.clone(),
                source,
            })?;
        }
        if !loudness.quiet {
            terminal::show(&(written.join("\n") + "\n"));
        }
        Ok(Exit::Success)
    }

    /// What is drawn, and into which file.
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

    /// Nothing is written over a file that is read, nor over what was just written.
    fn refuse_overwriting(&self, pictures: &[(Picture, Utf8PathBuf)]) -> Result<(), Refused> {
        for (at, (picture, path)) in pictures.iter().enumerate() {
            let what = picture.name();
            let same = |other: &Utf8PathBuf| place(other) == place(path);
            if self.files.iter().any(same) {
                return Err(Refused::Overwrites {
                    path: path.clone(),
                    what,
                });
            }
            if let Some((other, _)) = pictures.iter().take(at).find(|(_, other)| same(other)) {
                return Err(Refused::Twice {
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

    /// Explains models here and now, each with the limit of its budget.
    fn explained(&self, loudness: Loudness) -> Result<Vec<Drawn>, Stopped> {
        let asked = Asked {
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
            let own = limit.map(|(bytes, _)| Limit {
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
        Ok(explanation::all(&asked, loudness)?.into_iter().map(drawn).collect())
    }
}

/// Where a path leads, whether or not there is a file yet.
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

fn limit(text: &str) -> Result<Limit, String> {
    let expected = || "expected live, reserved or process and a size, such as reserved=8GiB".to_owned();
    let (metric, size) = text.split_once('=').ok_or_else(expected)?;
    let metric = match metric.trim() {
        "live" => Metric::Live,
        "reserved" => Metric::Reserved,
        "process" => Metric::Process,
        _ => return Err(expected()),
    };
    Ok(Limit {
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
        report: Report,
    }

    fn parsed(arguments: &[&str]) -> Result<Report, clap::Error> {
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
