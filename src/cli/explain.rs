//! `cargo vram explain`: shows where the memory of one model goes.

use std::io::IsTerminal;

use camino::Utf8Path;
use clap::Args;
use clap::builder::ArgPredicate;

use super::exit::Exit;
use super::options::{ArchiveOptions, Format, InputOptions, LEAK_STEPS, OutputOptions, Packages, Running};
use super::terminal;
use crate::cli::error::CliError;
use crate::cli::session;
use crate::cli::session::explanation::{self, ExplainRequest};
use crate::cli::session::real_gpu::Measuring;
use crate::cli::session::what_if::WhatIfs;
use crate::explain::Activations;
use crate::render;
use crate::render::terminal::explanation::{TerminalStyle, View};

/// Show where a model's memory goes: by layer, phase, tensor and line of code
///
/// Runs the model as `estimate` does, and reads the trace of one pass. Prints an overview, or the parts that the
/// options under `Output` choose. These options can be combined.
///
/// With Burn 0.22, the command runs the same build as `check`. With Burn 0.21, it builds the models with the feature
/// `explain` of cargo-vram, which takes 10 seconds to 2 minutes the first time.
#[derive(Debug, Args)]
// `-m MODEL` works as in other commands, but the help shows only the positional argument.
#[command(mut_arg("model", |model| model.hide(true)))]
#[command(mut_arg("gpu", |gpu| gpu
    .help("Run on this virtual GPU, such as `l4` [default: the GPU in budgets.yaml]")
    .long_help(
        "Run on this virtual GPU, such as `l4` [default: the GPU in budgets.yaml]\n\n\
         `cargo vram gpus` lists the ids."
    )
))]
#[command(mut_arg("steps", |steps| {
    steps.default_value_if("leak", ArgPredicate::Equals("true".into()), LEAK_STEPS)
}))]
#[command(override_usage = "cargo vram explain [OPTIONS] <MODEL>")]
#[command(after_long_help = "\
Examples:
  cargo vram explain resnet18
      print an overview: peak, timeline, phases, largest layers and tensors
  cargo vram explain resnet18 --layers
      print every layer: output, parameters, and the bytes of both
  cargo vram explain resnet18 --depth 1
      print the same per module
  cargo vram explain resnet18 --tensors 50 --bytes
      print the 50 largest tensors at the peak, with exact sizes
  cargo vram explain resnet18 --lines
      print how much memory each line of code adds and frees
  cargo vram explain resnet18 --savings --gpu l4
      print what would save memory, and what that costs
  cargo vram explain resnet18 --optimizer sgd
      print what another optimizer changes, and for which memory
  cargo vram explain resnet18 --leak
      print whether live memory grows from step to step, and which tensors grow
  cargo vram explain resnet18 --layers | grep Conv2d
  cargo vram explain resnet18 --message-format json -o resnet18.json")]
pub(super) struct Explain {
    /// The model, as its name or package/name
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    explained: Option<String>,
    // The inputs come first, so that the heading `What-if` is the second one.
    #[command(flatten)]
    pub(super) inputs: InputOptions,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    pub(super) running: Running,
    /// Measure on this machine's GPU instead of estimating
    #[arg(long, help_heading = "GPU", conflicts_with = "gpu")]
    measure: bool,
    #[command(flatten)]
    measuring: Measuring,
    /// Print every layer: output, parameters, and the bytes of both
    #[arg(long, help_heading = "Output")]
    layers: bool,
    /// Sum layers below this depth into their modules
    ///
    /// Depth 1 shows modules such as `layer1`, depth 2 such as `layer1.0`.
    #[arg(long, value_name = "N", help_heading = "Output", value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: Option<u32>,
    /// Choose how the table of layers counts activations such as ReLU
    #[arg(long, value_enum, value_name = "HOW", default_value = "own", help_heading = "Output")]
    pub(super) activations: Activations,
    /// Print every phase of every step, cold and warm
    #[arg(long, help_heading = "Output")]
    phases: bool,
    /// Print this many of the largest tensors at the peak
    ///
    /// The table shows where each tensor was made and how long it lives. With --lines, the number also says how many
    /// kinds of tensors are listed per line of code.
    #[arg(long, value_name = "N", help_heading = "Output", value_parser = clap::value_parser!(u32).range(1..))]
    tensors: Option<u32>,
    /// Print how much memory each line of the model's code adds and frees
    #[arg(long, help_heading = "Output")]
    pub(super) lines: bool,
    /// Print whether live memory grows from step to step, and which tensors grow
    ///
    /// Runs 10 steps, unless --steps sets another number. Detection needs at least 5 steps. A training of several epochs
    /// is compared from epoch to epoch, which needs 3 epochs.
    #[arg(long, help_heading = "Output")]
    leak: bool,
    /// Print what would save memory, and at what cost
    ///
    /// The command runs the model with some of the changes. With Burn 0.21, it also builds the models once more with
    /// checkpointing, which takes 10 seconds to 2 minutes the first time.
    #[arg(long, help_heading = "Output")]
    pub(super) savings: bool,
    /// Print exact sizes in bytes
    #[arg(long, help_heading = "Output")]
    bytes: bool,
    #[command(flatten)]
    pub(super) output: OutputOptions,
    #[command(flatten)]
    pub(super) archive: ArchiveOptions,
    #[command(flatten)]
    pub(super) packages: Packages,
}

impl Explain {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let running = Running {
            model: self.models(),
            ..self.running.clone()
        };
        let asked = ExplainRequest {
            running: &running,
            inputs: self.inputs.values(),
            activations: self.activations,
            lines: self.lines,
            savings: self.savings,
            measuring: self.measure.then_some(&self.measuring),
            what_ifs: self.what_ifs.clone(),
            packages: &self.packages,
        };
        let explanation = explanation::one(&asked, self.archive.file())?;
        let root = explanation.root.clone();
        let source_line = move |file: &str, line: u32| source_line(&root, file, line);
        let view = View {
            limit: explanation.limit.as_ref().map(|(limit, _)| *limit),
            limit_written: explanation.limit.as_ref().map(|(_, written)| written.as_str()),
            package: explanation.is_ambiguous,
            source_line: Some(&source_line),
            quiet: terminal::is_quiet(),
            verbose: terminal::is_verbose(),
            ..self.view()
        };
        let shown = render::terminal::explanation::render(&explanation.explanation, &view, &style());
        let text = match (self.output.message_format, &self.output.output) {
            (Format::Json, _) => explanation.json()?,
            (Format::Human, None) => shown.clone(),
            (Format::Human, Some(_)) => {
                let file = TerminalStyle {
                    width: None,
                    color: false,
                    unicode: true,
                };
                // `-q` shortens what the terminal shows, not what somebody keeps.
                let whole = View { quiet: false, ..view };
                render::terminal::explanation::render(&explanation.explanation, &whole, &file)
            }
        };
        if self.output.output.is_some() {
            terminal::show(&shown);
        }
        session::put(&text, self.output.message_format, self.output.output.as_deref())?;
        let run = &explanation.explanation.run;
        // A failed run is explained up to its error. That is still not a success.
        Ok(if run.error.is_some() {
            Exit::Incomplete
        } else {
            Exit::Success
        })
    }

    /// Returns the model from the positional argument or from `-m`.
    fn models(&self) -> Vec<String> {
        self.running.model.iter().chain(&self.explained).cloned().collect()
    }

    /// Returns which parts of the explanation to print.
    fn view(&self) -> View<'static> {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        View {
            layers: self.layers,
            depth: self.depth.map(number),
            phases: self.phases,
            tensors: self.tensors.map(number),
            lines: self.lines,
            leak: self.leak,
            savings: self.savings,
            exact: self.bytes,
            ..View::default()
        }
    }
}

/// Returns a line of the user's source code, as an explanation names it.
fn source_line(root: &Utf8Path, file: &str, line: u32) -> Option<String> {
    let path = root.join(file);
    // The tool never writes a path with `..`, so such a path could be an attempt to read other files.
    let inside = !Utf8Path::new(file).components().any(|part| part.as_str() == "..");
    let text = std::fs::read_to_string(path).ok().filter(|_| inside)?;
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    text.lines().nth(index).map(|line| line.trim().to_owned())
}

/// Returns the width, colors and characters that standard output supports.
fn style() -> TerminalStyle {
    let stdout = std::io::stdout();
    TerminalStyle {
        width: stdout.is_terminal().then(terminal::width),
        color: terminal::colorful(&stdout),
        // Programs read pipes, and they understand UTF-8.
        unicode: !stdout.is_terminal() || is_utf8(|name| std::env::var(name).ok()),
    }
}

/// Whether the terminal supports UTF-8, by the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set. If none is set, as
/// in a container, the terminal nearly always supports it.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().filter_map(variable).find(|value| !value.is_empty());
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        explain: Explain,
    }

    fn parsed(arguments: &[&str]) -> Explain {
        let all = ["explain"].iter().chain(arguments);
        Program::try_parse_from(all).unwrap().explain
    }

    fn view(arguments: &[&str]) -> View<'static> {
        parsed(&[&["resnet18"], arguments].concat()).view()
    }

    #[test]
    fn options_choose_what_is_shown() {
        let overview = view(&[]);
        assert!(!overview.layers && overview.tensors.is_none());
        assert_eq!(view(&["--depth", "2", "--tensors", "50"]).depth, Some(2));
        assert_eq!(view(&["--depth", "2", "--tensors", "50"]).tensors, Some(50));
        assert!(view(&["--lines", "--savings", "--bytes"]).exact);
        for wrong in [
            vec!["explain"],
            vec!["explain", "m", "--depth", "0"],
            vec!["explain", "m", "--tensors", "0"],
            vec!["explain", "m", "--model", "n"],
            vec!["explain", "m", "--activations", "none"],
        ] {
            assert!(Program::try_parse_from(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_model_is_named_as_an_argument_and_as_with_other_commands() {
        assert_eq!(parsed(&["resnet18"]).models(), ["resnet18"]);
        assert_eq!(parsed(&["-m", "resnet18"]).models(), ["resnet18"]);
        let nothing = Program::try_parse_from(["explain"]).unwrap_err().to_string();
        assert!(nothing.contains("<MODEL>"), "{nothing}");
        assert!(
            nothing.contains("Usage: cargo vram explain [OPTIONS] <MODEL>"),
            "{nothing}"
        );
    }

    #[test]
    fn a_leak_is_looked_for_in_enough_steps_unless_others_are_asked_for() {
        let steps = |arguments: &[&str]| parsed(&[&["resnet18"], arguments].concat()).running.steps;
        assert_eq!(steps(&[]), None);
        assert_eq!(steps(&["--leak"]), Some(10));
        assert_eq!(steps(&["--leak", "--steps", "3"]), Some(3));
        assert_eq!(steps(&["--steps", "7"]), Some(7));
    }

    #[test]
    fn the_locale_tells_whether_there_is_more_than_ascii() {
        let told = |set: &[(&str, &str)]| {
            is_utf8(|name| {
                let found = set.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(told(&[("LANG", "en_US.UTF-8")]));
        assert!(told(&[("LANG", "C"), ("LC_ALL", "C.utf8")]));
        assert!(told(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "")]));
        assert!(!told(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "POSIX")]));
        assert!(!told(&[("LANG", "C")]));
        assert!(told(&[]));
    }
}
