//! `cargo vram report`: explanations as pictures.

use std::fs::File;
use std::io::Read;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use serde::Deserialize;
use thiserror::Error;

use super::exit::Exit;
use super::explanation::{self, Asked};
use super::options::{Inputs, Loudness, Packages, Running};
use super::{Stopped, pipeline, terminal};
use crate::bytes::Bytes;
use crate::explain::{Activations, EXPLANATION_VERSION, Explanation, Unsound};
use crate::report::html::{self, Arrangement};
use crate::report::{Limit, Metric, Shown, perfetto, svg};

/// The largest file that is read.
const MOST: Bytes = Bytes(256 << 20);

/// Draw where memory goes, as a page to look at
///
/// Reads what `cargo vram explain --message-format json` wrote, and draws one HTML file that needs nothing else and
/// connects to nothing: the memory timeline, what is held at any moment, by category, module and tensor, the layer
/// table, phases, leaks and savings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram explain resnet18 --message-format json -o resnet18.json
  cargo vram report resnet18.json                            ./vram-report.html
  cargo vram report -m resnet18 -m vgg16 --gpu l4            the same in one go, of two models
  cargo vram report resnet18.json vgg16.json -o models.html  several models, to choose from
  cargo vram report --compare before.json after.json         side by side
  cargo vram report resnet18.json --limit reserved=8GiB      with a line at a limit
  cargo vram report resnet18.json --svg memory.svg           a picture for a README
  cargo vram report resnet18.json --trace memory.trace.json  for Perfetto or chrome://tracing

Exit codes: 0, or 2 where a file cannot be used, or 101 where one cannot be read or written.")]
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
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
pub(super) enum Unreadable {
    #[error("{path}: is larger than {MOST}")]
    #[diagnostic(code(report::too_large), help("explain fewer steps: `cargo vram explain --steps 3`"))]
    TooLarge { path: Utf8PathBuf },
    #[error("{path}: this is no explanation")]
    #[diagnostic(
        code(report::no_explanation),
        help("report reads what `cargo vram explain --message-format json -o FILE` wrote")
    )]
    Json {
        path: Utf8PathBuf,
        source: serde_json::Error,
    },
    #[error("{path}: this is not UTF-8")]
    #[diagnostic(
        code(report::no_explanation),
        help("report reads what `cargo vram explain --message-format json -o FILE` wrote")
    )]
    Text { path: Utf8PathBuf },
    #[error("{path} cannot be drawn")]
    #[diagnostic(code(report::unsound))]
    Unsound {
        path: Utf8PathBuf,
        source: Unsound,
        #[help]
        help: Option<String>,
    },
    #[error("--compare takes two explanations, and there {}", there(*count))]
    #[diagnostic(code(report::compare), help("cargo vram report --compare before.json after.json"))]
    Compare { count: usize },
}

fn there(count: usize) -> String {
    match count {
        1 => "is one".to_owned(),
        count => format!("are {count}"),
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
        let mut all = Vec::new();
        for path in &self.files {
            let name = path.file_name().unwrap_or(path.as_str());
            all.extend(read(path)?.into_iter().map(|explanation| Drawn {
                name: name.to_owned(),
                explanation,
                limits: self.limit.clone(),
            }));
        }
        for model in &self.running.model {
            all.push(self.explained(model, loudness)?);
        }
        if self.compare && all.len() != 2 {
            Err(Unreadable::Compare { count: all.len() })?;
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
        let mut write = |path: &Utf8Path, text: &str| {
            written.push(format!("{path}: {}", Bytes(text.len() as u64)));
            std::fs::write(path, text).map_err(|source| pipeline::Asked::File {
                path: path.to_owned(),
                source,
            })
        };
        if let Some(path) = &self.svg {
            write(path, &svg::svg(&shown))?;
        }
        if let Some(path) = &self.trace {
            write(path, &perfetto::trace(&shown, true))?;
        }
        let default = (self.svg.is_none() && self.trace.is_none()).then(|| "vram-report.html".into());
        if let Some(path) = self.output.clone().or(default) {
            let arrangement = if self.compare {
                Arrangement::Compared
            } else {
                Arrangement::Apart
            };
            write(&path, &html::html(&shown, arrangement))?;
        }
        if !loudness.quiet {
            terminal::show(&(written.join("\n") + "\n"));
        }
        Ok(Exit::Success)
    }
}

impl Report {
    /// Explains a model here and now, with the limit of its budget.
    fn explained(&self, model: &str, loudness: Loudness) -> Result<Drawn, Stopped> {
        let mut running = self.running.clone();
        running.model = vec![model.to_owned()];
        let asked = Asked {
            running: &running,
            inputs: self.inputs.values(),
            activations: Activations::default(),
            lines: true,
            savings: false,
            measuring: None,
            packages: &self.packages,
        };
        let explained = explanation::one(&asked, None, loudness)?;
        let own = explained.limit.map(|bytes| Limit {
            label: "budgets.yaml".to_owned(),
            metric: Metric::Reserved,
            bytes,
        });
        Ok(Drawn {
            name: model.to_owned(),
            explanation: explained.explanation,
            limits: self.limit.iter().cloned().chain(own).collect(),
        })
    }
}

/// The part of an explanation that tells whether the rest can be read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads the explanations of a file, which nobody vouches for: one, or a list of them.
fn read(path: &Utf8Path) -> Result<Vec<Explanation>, Stopped> {
    let text = text(path)?;
    let json = |source| Unreadable::Json {
        path: path.to_owned(),
        source,
    };
    let many = text.trim_start().starts_with('[');
    let versions: Vec<Versioned> = if many {
        serde_json::from_str(&text).map_err(json)?
    } else {
        vec![serde_json::from_str(&text).map_err(json)?]
    };
    let unsound = |source: Unsound| Unreadable::Unsound {
        path: path.to_owned(),
        help: Diagnostic::help(&source).map(|help| help.to_string()),
        source,
    };
    // Another version may well have other parts: told before they are looked for.
    if let Some(Versioned { version }) = versions.iter().find(|each| each.version != EXPLANATION_VERSION) {
        Err(unsound(Unsound::Version { found: *version }))?;
    }
    let explanations: Vec<Explanation> = if many {
        serde_json::from_str(&text).map_err(json)?
    } else {
        vec![serde_json::from_str(&text).map_err(json)?]
    };
    for explanation in &explanations {
        explanation.check().map_err(unsound)?;
    }
    Ok(explanations)
}

fn text(path: &Utf8Path) -> Result<String, Stopped> {
    let failed = |source| pipeline::Asked::File {
        path: path.to_owned(),
        source,
    };
    // Asked first, because opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")).into());
    }
    let mut bytes = Vec::new();
    // One byte past the limit tells, without trusting a size that may change meanwhile.
    File::open(path)
        .and_then(|file| file.take(MOST.0 + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MOST.0 {
        Err(Unreadable::TooLarge { path: path.to_owned() })?;
    }
    Ok(String::from_utf8(bytes).map_err(|_| Unreadable::Text { path: path.to_owned() })?)
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
