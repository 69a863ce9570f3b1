//! `cargo vram explain`: where the memory of one model goes.

use std::io::IsTerminal;

use camino::Utf8Path;
use clap::Args;
use clap::builder::ArgPredicate;

use super::card::Measuring;
use super::exit::Exit;
use super::explanation::{self, Asked};
use super::options::{Archive, Format, Inputs, LEAK_STEPS, Loudness, Output, Packages, Running};
use super::what_if::WhatIfs;
use super::{Stopped, pipeline, terminal};
use crate::explain::Activations;
use crate::report::explain::{Style, View, explain};

/// Explain where a model's memory goes: layer by layer, phase by phase, line by line
///
/// Runs the model as `estimate` does, and looks closer at its traced pass. With Burn 0.22, runs the build of `check`. With Burn 0.21,
/// builds the models with the feature `explain` of cargo-vram: the first time this takes 1–2 minutes. Without options an overview is
/// shown; options choose what is shown instead, and may be combined.
#[derive(Debug, Args)]
// There as in other commands, for whoever is used to it.
#[command(mut_arg("model", |model| model.hide(true)))]
#[command(mut_arg("gpu", |gpu| gpu.help(
    "Run on this GPU, such as `l4` (`cargo vram gpus` lists them) [default: that of budgets.yaml]"
)))]
#[command(mut_arg("steps", |steps| {
    steps
        .default_value_if("leak", ArgPredicate::Equals("true".into()), LEAK_STEPS)
        .help("Steps a pass: the second is the first with an optimizer's state; 10 with --leak")
}))]
#[command(override_usage = "cargo vram explain [OPTIONS] <MODEL>")]
#[command(after_help = "\
Examples:
  cargo vram explain resnet18                        an overview: the peak, over time, phases, largest layers and tensors
  cargo vram explain resnet18 --layers               every layer: output, parameters, bytes of both
  cargo vram explain resnet18 --depth 1              the same, module by module
  cargo vram explain resnet18 --tensors 50 --bytes   the 50 largest tensors at the peak, to the byte
  cargo vram explain resnet18 --lines                what each line of code adds and takes away
  cargo vram explain resnet18 --savings --gpu l4     what would take less memory, and what that costs
  cargo vram explain resnet18 --optimizer sgd        what another optimizer changes, and of what
  cargo vram explain resnet18 --leak                 whether live memory grows from step to step, and what of it
  cargo vram explain resnet18 --layers | grep Conv2d
  cargo vram explain resnet18 --message-format json -o resnet18.json")]
pub(super) struct Explain {
    /// The model, or package/model
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    explained: Option<String>,
    /// Every layer: output, parameters, and the bytes of both
    #[arg(long, help_heading = "What is shown")]
    layers: bool,
    /// Layers summed into their modules below this depth: 1 shows `layer1`, 2 `layer1.0`
    #[arg(long, value_name = "N", help_heading = "What is shown", value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: Option<u32>,
    /// How the layers' table counts activations such as ReLU
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "own",
        help_heading = "What is shown"
    )]
    pub(super) activations: Activations,
    /// Every phase of every step, cold and warm
    #[arg(long, help_heading = "What is shown")]
    phases: bool,
    /// So many of the largest tensors at the peak, with where they were made and how long they live; of each line, with --lines
    #[arg(long, value_name = "N", help_heading = "What is shown", value_parser = clap::value_parser!(u32).range(1..))]
    tensors: Option<u32>,
    /// What each line of the model's code adds and takes away
    #[arg(long, help_heading = "What is shown")]
    pub(super) lines: bool,
    /// Whether live memory grows from step to step, and what of it; takes 5 steps to tell, and runs 10
    #[arg(long, help_heading = "What is shown")]
    leak: bool,
    /// What would take less memory, and at what cost: some of it is run to find out. With Burn 0.21, builds the models once more with
    /// checkpointing: the first time this takes 1–2 minutes
    #[arg(long, help_heading = "What is shown")]
    pub(super) savings: bool,
    /// Sizes to the byte
    #[arg(long, help_heading = "What is shown")]
    bytes: bool,
    /// Measure on the GPU of this machine, rather than estimate
    #[arg(long, help_heading = "Measuring", conflicts_with = "gpu")]
    measure: bool,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    pub(super) running: Running,
    #[command(flatten)]
    pub(super) inputs: Inputs,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) archive: Archive,
    #[command(flatten)]
    pub(super) packages: Packages,
}

impl Explain {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let running = Running {
            model: self.models(),
            ..self.running.clone()
        };
        let asked = Asked {
            running: &running,
            inputs: self.inputs.values(),
            activations: self.activations,
            lines: self.lines,
            savings: self.savings,
            measuring: self.measure.then_some(&self.measuring),
            what_ifs: self.what_ifs.clone(),
            packages: &self.packages,
        };
        let explanation = explanation::one(&asked, self.archive.file(), loudness)?;
        let root = explanation.root.clone();
        let source_line = move |file: &str, line: u32| source_line(&root, file, line);
        let view = View {
            limit: explanation.limit.as_ref().map(|(limit, _)| *limit),
            limit_written: explanation.limit.as_ref().map(|(_, written)| written.as_str()),
            package: explanation.is_ambiguous,
            source_line: Some(&source_line),
            ..self.view(loudness)
        };
        let shown = explain(&explanation.explanation, &view, &style());
        let text = match (self.output.message_format, &self.output.output) {
            (Format::Json, _) => explanation.json()?,
            (Format::Human, None) => shown.clone(),
            (Format::Human, Some(_)) => {
                let file = Style {
                    width: None,
                    color: false,
                    unicode: true,
                };
                let whole = View { quiet: false, ..view };
                explain(&explanation.explanation, &whole, &file)
            }
        };
        if self.output.output.is_some() {
            terminal::show(&shown);
        }
        pipeline::put(&text, self.output.output.as_deref())?;
        let run = &explanation.explanation.run;
        Ok(if run.error.is_some() {
            Exit::Incomplete
        } else {
            Exit::Success
        })
    }

    /// The model that is meant, by either way to name it.
    fn models(&self) -> Vec<String> {
        self.running.model.iter().chain(&self.explained).cloned().collect()
    }

    /// What is shown of an explanation.
    fn view(&self, loudness: Loudness) -> View<'static> {
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
            quiet: loudness.quiet,
            verbose: loudness.verbose,
            ..View::default()
        }
    }
}

/// A line of a file of the user's own, as an explanation names it.
fn source_line(root: &Utf8Path, file: &str, line: u32) -> Option<String> {
    let path = root.join(file);
    // A name with `..` in it is none that the tool wrote.
    let inside = !Utf8Path::new(file).components().any(|part| part.as_str() == "..");
    let text = std::fs::read_to_string(path).ok().filter(|_| inside)?;
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    text.lines().nth(index).map(|line| line.trim().to_owned())
}

/// What standard output shows.
fn style() -> Style {
    let stdout = std::io::stdout();
    Style {
        width: stdout.is_terminal().then(terminal::width),
        color: terminal::colorful(&stdout),
        // A pipe is read by programs, and they take UTF-8.
        unicode: !stdout.is_terminal() || is_utf8(|name| std::env::var(name).ok()),
    }
}

/// Whether the terminal takes UTF-8: the first of these variables that is set tells. Where none is, as in a container, it
/// nearly always does.
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
    use crate::cli::options::Color;

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
        let loudness = Loudness {
            quiet: false,
            verbose: true,
            color: Color::Auto,
        };
        parsed(&[&["resnet18"], arguments].concat()).view(loudness)
    }

    #[test]
    fn options_choose_what_is_shown() {
        let overview = view(&[]);
        assert!(!overview.layers && overview.tensors.is_none() && overview.verbose);
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
