//! `cargo vram check`: the gate.

use std::path::Path;

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, exit_codes};
use super::options::{Archive, Loudness, Output, Packages, Running};
use super::{Stopped, cases, pipeline, terminal};
use crate::budget::{self, DeclaredModel};
use crate::report::Run;
use crate::run::{Listed, code};

/// Judge models against budgets.yaml
///
/// Estimates every model with the inputs of its budget on the card that the budgets are written for, and fails where
/// a limit is exceeded or the card's memory does not suffice.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram check                         every model
  cargo vram check -m resnet18             one model
  cargo vram check --partition hash:1/4    a quarter of the models, for a matrix of jobs
  cargo vram check --message-format json -o report.json
  cargo vram check --archive-file zoo-vram.tar.zst   without Rust and without the source

", exit_codes!()))]
pub(super) struct Check {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: Output,
    /// Treat warnings as failures: a model without a budget, a card without limits
    #[arg(long)]
    deny_warnings: bool,
    /// Estimate, even where there is a GPU
    #[arg(long, conflicts_with = "measure")]
    estimate: bool,
    /// Measure on a GPU; not in this version yet
    #[arg(long)]
    measure: bool,
    /// A budget is for its own inputs: `cargo vram estimate` has this flag
    #[arg(long = "set", hide = true)]
    set: Vec<String>,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Debug, Error, Diagnostic)]
enum Refused {
    #[error("check takes no --set: a budget is for its own inputs")]
    #[diagnostic(
        code(cli::set),
        help("write the inputs into the budget (`inputs: {{ batch_size: 64 }}`), or use `cargo vram estimate --set`")
    )]
    Set,
}

/// The node by which the NVIDIA driver offers its first card.
const DEVICE_NODES: [&str; 2] = ["/dev/nvidia0", "/dev/nvidiactl"];

impl Check {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        if !self.set.is_empty() {
            return Err(Refused::Set.into());
        }
        // A card that is there and cannot be used must never turn into a silent estimate.
        let node = DEVICE_NODES.iter().find(|node| Path::new(node).exists());
        if self.measure || (node.is_some() && !self.estimate) {
            let why = node.map_or_else(
                || "--measure was given".to_owned(),
                |node| format!("there is a GPU ({node})"),
            );
            terminal::remark(&format!(
                "error: {why}, and this version of cargo-vram cannot measure yet\n  help: pass --estimate to judge an estimate"
            ));
            return Ok(Exit::Incomplete);
        }
        let prepared = pipeline::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let Some(budgets) = &prepared.budgets else {
            return Err(prepared.source.no_budgets().into());
        };
        let folder = prepared.source.scratch()?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        // Where a target could not be built or asked, a budget's model may well be in it.
        let whole = prepared.source.is_whole() && models.problems.is_empty() && self.running.model.is_empty();
        let declared: Vec<_> = models.declared.iter().map(|model| declared(model, None)).collect();
        budgets.check_models(&declared, whole)?;
        let cases = cases::cases(&prepared, &models, &self.running, &std::collections::BTreeMap::new())?;
        let runs = pipeline::estimate(&prepared, &cases, &self.running, loudness, folder.path())?;
        let mut report = pipeline::report(&prepared, &models, &self.running, runs);
        report.verdicts = budget::judge(&report.runs, budgets, &prepared.budgets_name);
        let headline = cases.first().map_or_else(String::new, |case| {
            format!(
                "no GPU here: estimated on a virtual {} ({}), judged by {}",
                case.profile.name, case.profile.total.value, prepared.budgets_name
            )
        });
        let headline = if self.estimate {
            headline.replacen("no GPU here: e", "e", 1)
        } else {
            headline
        };
        pipeline::write(&mut report, &self.output, loudness, &headline, true)?;
        // An input that a model turned out not to have is a mistake of the file: point at it there.
        let known: Vec<_> = models
            .declared
            .iter()
            .map(|model| declared_with(model, &report.runs))
            .collect();
        budgets.check_models(&known, whole)?;
        Ok(Exit::of_judged(&report, self.deny_warnings))
    }
}

fn declared(model: &Listed, inputs: Option<Vec<String>>) -> DeclaredModel {
    DeclaredModel {
        package: model.built.target.package.clone(),
        model: model.name.clone(),
        inputs,
    }
}

/// A model with the inputs it has, where a run has shown that an unknown one was set.
fn declared_with(model: &Listed, runs: &[Run]) -> DeclaredModel {
    let refused = runs.iter().find(|run| {
        run.model == model.name
            && run.package == model.built.target.package
            && run
                .error
                .as_ref()
                .is_some_and(|error| error.code == code::UNKNOWN_INPUT)
    });
    declared(model, refused.map(|run| run.inputs.keys().cloned().collect()))
}
