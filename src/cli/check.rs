//! `cargo vram check`: the gate.

use std::collections::BTreeMap;

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::base::Against;
use super::card::{self, Measuring};
use super::exit::{Exit, exit_codes};
use super::options::{Archive, Loudness, Packages, ReportOutput, Running};
use super::{Stopped, cases, pipeline, terminal};
use crate::budget::{self, DeclaredModel, Lock};
use crate::gpu::{self, Profile};
use crate::protocol::WhatIf;
use crate::report::{BaselineFrom, Mode, Rule, Run};
use crate::run::{Hardware, Listed, code};

/// Judge models against budgets.yaml
///
/// Estimates every model with the inputs of its budget on the card that the budgets are written for, and fails where
/// a limit is exceeded or the card's memory does not suffice. Where there is a GPU, the models are measured on it, too:
/// judged by the limits for that card, and compared with an estimate for it (`drift`).
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram check                         every model
  cargo vram check -m resnet18             one model
  cargo vram check --partition hash:1/4    a quarter of the models, for a matrix of jobs
  cargo vram check --message-format json -o report.json
  cargo vram check --measure               on a GPU, or not at all
  cargo vram check --base origin/main      tell what a branch changes, and which limits it edits
  cargo vram check --require-baseline      where every model must have figures in budgets.lock (`cargo vram bless`)
  cargo vram check --archive-file zoo-vram.tar.zst   without Rust and without the source

", exit_codes!()))]
pub(super) struct Check {
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    output: ReportOutput,
    /// Treat warnings as failures: a model without a budget, a card without limits
    #[arg(long)]
    deny_warnings: bool,
    /// Tell what changed since this revision, and every limit that was edited since: origin/main
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Fail where a model has no baseline that it can be compared with
    #[arg(long)]
    require_baseline: bool,
    /// Fail where an estimate differs in any byte from its baseline, so that budgets.lock is never out of date
    #[arg(long)]
    exact: bool,
    /// Estimate, even where there is a GPU
    #[arg(long, conflicts_with_all = ["measure", "device", "exclusive"])]
    estimate: bool,
    /// Measure, and fail where that cannot be done
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    measuring: Measuring,
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

impl Check {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        if !self.set.is_empty() {
            return Err(Refused::Set.into());
        }
        // A card that is there and cannot be used must never turn into a silent estimate.
        let asked = self.measure || self.measuring.device.is_some() || self.measuring.exclusive;
        let measures = asked || (!self.estimate && gpu::device_node().is_some());
        let prepared = pipeline::prepare(&self.packages, self.archive.file(), self.running.budgets.as_deref())?;
        let Some(budgets) = &prepared.budgets else {
            return Err(prepared.source.no_budgets().into());
        };
        let driver = prepared.source.driver()?;
        let (lock_path, lock_name) = prepared.lock();
        // Read before anything is run, so that what is wrong with it is told at once.
        let lock = Lock::load(&lock_path, &lock_name)?.unwrap_or_default();
        let against = self
            .base
            .as_deref()
            .map(|revision| Against::read(revision, &prepared))
            .transpose()?;
        let taken = measures
            .then(|| card::take(&self.measuring, None, &driver, &prepared.profiles, loudness))
            .transpose()
            .inspect_err(|_| terminal::remark(&self.why_measured()))?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        // Where a target could not be built or asked, a budget's model may well be in it.
        let whole = prepared.source.is_whole() && models.problems.is_empty() && self.running.model.is_empty();
        let declared: Vec<_> = models.declared.iter().map(|model| declared(model, None)).collect();
        budgets.check_models(&declared, whole)?;
        let recordings = pipeline::recordings(&self.running)?;
        let declared_card = cases::declared_card(&prepared, &self.running)?;
        let of = |card: &Profile| cases::cases(&prepared, &models, &self.running, &BTreeMap::new(), card);
        let mut estimated = of(&cases::estimated(declared_card, &recordings))?;
        let mut headline = format!(
            "estimated on a virtual {} ({}), judged by {}",
            declared_card.name, declared_card.total.value, prepared.budgets_name
        );
        let mut runs = Vec::new();
        if let Some(taken) = taken {
            headline = format!("{}; {headline}", taken.headline());
            let measured = of(&cases::measured(&taken.profile, &taken.real.driver, &recordings))?;
            // What is measured is estimated, too: by the profile that estimates for this card use elsewhere.
            if taken.profile.id != declared_card.id {
                let card = prepared.profiles.find(&taken.profile.id).unwrap_or(&taken.profile);
                estimated.extend(of(&cases::estimated(card, &recordings))?);
            }
            let on = pipeline::On {
                driver: &driver,
                hardware: Hardware::Real(taken.real),
                repeat: 1,
                recordings: recordings.clone(),
                what_if: WhatIf::default(),
                trace: false,
                folder: folder.path().join("measure"),
            };
            runs.extend(pipeline::run(&measured, &self.running, on, loudness).0);
        } else if !self.estimate {
            headline = format!("no GPU here: {headline}");
        }
        let on = pipeline::On {
            driver: &driver,
            hardware: Hardware::Virtual,
            repeat: 1,
            recordings: recordings.clone(),
            what_if: WhatIf::default(),
            trace: false,
            folder: folder.path().join("estimate"),
        };
        runs.extend(pipeline::run(&estimated, &self.running, on, loudness).0);
        let mut report = pipeline::report(&prepared, &models, &self.running, runs);
        lock.compare(&mut report, BaselineFrom::Lock);
        report.verdicts = budget::judge(&report.runs, budgets, &prepared.budgets_name);
        if self.require_baseline {
            report.verdicts.extend(lock.missing(&report, &lock_name));
        }
        if self.exact {
            report.verdicts.extend(lock.inexact(&report, &lock_name));
        }
        report.skipped.extend(budget::unjudged(&report.runs));
        if let Some(against) = against {
            against.tell(&mut report, budgets, &prepared.budgets_name);
        }
        // An estimate that was made only to be compared with a measurement has its limits judged there.
        report.verdicts.retain(|verdict| {
            verdict.mode == Mode::Measure || verdict.gpu == declared_card.id || verdict.rule == Rule::Oom
        });
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

impl Check {
    /// Why a card was looked for, and how to do without.
    fn why_measured(&self) -> String {
        let why = match gpu::device_node() {
            Some(node) => format!("there is a GPU ({}), so it is measured", node.display()),
            None => "a measurement was asked for".to_owned(),
        };
        format!("{why}; --estimate judges an estimate instead\n")
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
