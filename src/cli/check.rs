//! `cargo vram check`: the gate.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::base::Against;
use super::card::{self, Measuring, Taken};
use super::exit::{Exit, exit_codes};
use super::options::{Archive, Loudness, Packages, ReportOutput, Running};
use super::pipeline::{self, Models, Prepared};
use super::terminal::Progress;
use super::{Stopped, cases, terminal, timings};
use crate::budget::{self, DeclaredModel, Lock};
use crate::driver::DriverLibrary;
use crate::gpu::{self, Profile};
use crate::recording::Recordings;
use crate::report::{BaselineFrom, ErrorCode, ExpectedVerdict, Mode, Report, Rule, Run, Skipped, Status, WrittenBy};
use crate::run::{Hardware, Listed};

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
  cargo vram check --gpu l4,h200           every model on two GPUs, each judged by its own limits
  cargo vram check --partition hash:1/4    a quarter of the models, for a matrix of jobs
  cargo vram check --message-format json -o report.json
  cargo vram check --measure               on a GPU, or not at all
  cargo vram check --base origin/main      tell what a branch changes, and which limits it edits
  cargo vram check --base origin/main --rebuild      the same without any budgets.lock
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
    /// Build and run the models as they are at the base, and judge growth by that rather than by budgets.lock
    #[arg(long, requires = "base")]
    rebuild: bool,
    /// Fail where a change loosens its own limits: raised or removed limits, larger GPU profiles, a worse accepted baseline. Needs
    /// --base, or an archive that was packed with it
    #[arg(long)]
    deny_edits: bool,
    /// Fail where a model has no baseline that it can be compared with
    #[arg(long)]
    require_baseline: bool,
    /// Fail where an estimate differs in any byte from its baseline, so that budgets.lock is never out of date
    #[arg(long)]
    exact: bool,
    /// Run a model whose budget says `nondeterministic: allowed` this often, and judge the largest
    #[arg(long, value_name = "N", default_value_t = pipeline::REPEAT, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
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
    /// Figures are accepted by `cargo vram bless`
    #[arg(long, hide = true)]
    bless: bool,
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
    #[error("check takes no --bless: it judges models, and accepts nothing")]
    #[diagnostic(
        code(cli::bless),
        help(
            "run `cargo vram bless` to accept what the models need now as the baseline, or `cargo vram bless -m MODEL` for one of them"
        )
    )]
    Bless,
    #[error("--deny-edits needs the limits of the base to compare with")]
    #[diagnostic(
        code(cli::deny_edits),
        help(
            "name it with --base origin/main; an archive has it where it was made with `cargo vram archive --base origin/main`"
        )
    )]
    NoBase,
}

impl Check {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        if !self.set.is_empty() {
            return Err(Refused::Set.into());
        }
        if self.bless {
            return Err(Refused::Bless.into());
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
        let mut against = self
            .base
            .as_deref()
            .map(|revision| Against::read(revision, &prepared, self.rebuild))
            .transpose()?;
        if against.is_none() {
            against = Against::brought(&prepared)?;
        }
        if self.deny_edits && against.is_none() {
            return Err(Refused::NoBase.into());
        }
        // Before the models are built: a GPU that is misspelt need not wait for that.
        let declared_cards = cases::declared_cards(&prepared, &self.running)?;
        let taken = measures
            .then(|| card::take(&self.measuring, None, &driver, &prepared.profiles, loudness))
            .transpose()
            .inspect_err(|_| terminal::remark(&self.why_measured()))?;
        let folder = prepared.source.scratch(self.running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &self.packages, Some(&self.running), loudness, folder.path())?;
        // Where a target could not be built or asked, a budget's model may well be in it.
        // Whatever of it is to be run, all that is declared is known.
        let knows_all = prepared.source.is_whole() && models.problems.is_empty();
        let whole = knows_all && self.running.model.is_empty();
        let declared: Vec<_> = models.declared.iter().map(|model| declared(model, None)).collect();
        budgets.check_models(&declared, knows_all)?;
        let recordings = pipeline::recordings(&self.running)?;
        let cards = Cards {
            declared: declared_cards.iter().map(|&card| card.clone()).collect(),
            taken,
            estimates: self.estimate,
            recordings,
            driver,
            repeat: self.repeat,
        };
        let headline = cards.headline(&prepared.budgets_name);
        let runs = cards.run(&prepared, &models, &self.running, folder.path(), loudness)?;
        let mut report = pipeline::report(Some(WrittenBy::Check), &prepared, &models, &self.running, runs);
        report.expected_verdicts = self.expected_verdicts(&prepared, &models, &cards.declared)?;
        set_aside(&mut report);
        if let Some(against) = against.as_mut().filter(|_| self.rebuild) {
            let folder = folder.path().join("base");
            let run = |base: &Prepared, packages: &Packages| {
                let models = pipeline::models(base, packages, Some(&self.running), loudness, &folder)?;
                let runs = cards.run(base, &models, &self.running, &folder, loudness)?;
                Ok(pipeline::report(None, base, &models, &self.running, runs))
            };
            against.rebuild(&prepared, &self.packages, &mut report, run)?;
        }
        match against.as_ref().and_then(Against::rebuilt) {
            Some(base) => base.compare(&mut report, BaselineFrom::Rebuilt),
            None => lock.compare(&mut report, BaselineFrom::Lock),
        }
        let revision = against.as_ref().map(Against::revision);
        report.verdicts = budget::judge_since(&report.runs, budgets, &prepared.budgets_name, revision);
        if self.require_baseline {
            // A baseline without a value that is to be compared is none.
            let incomplete = report
                .verdicts
                .iter_mut()
                .filter(|verdict| verdict.rule == Rule::Baseline);
            incomplete.for_each(|verdict| verdict.status = Status::Fail);
            report.verdicts.extend(lock.missing(&report, &lock_name));
        }
        // A part of the models shows nothing of the others.
        let of_all = whole && self.running.partition.is_none();
        if self.exact {
            report.verdicts.extend(lock.inexact(&report, &lock_name, of_all));
        }
        let progress = Progress::spinner(loudness, "reading how the workspace's binaries are built");
        let deployed = timings::timed("reading how the binaries are built", || prepared.source.deployed());
        drop(progress);
        match deployed {
            Ok(deployed) => report.verdicts.extend(budget::judge_build(&report.runs, &deployed)),
            Err(error) => report.skipped.push(Skipped {
                what: "whether the models are built as the workspace's binaries are".to_owned(),
                why: error.to_string().replace('\n', " "),
            }),
        }
        report.skipped.extend(budget::unjudged(&report.runs));
        // With --exact they fail.
        if of_all && !self.exact {
            let gone = lock.gone(&report).map(|key| Skipped {
                what: format!("{lock_name} of {}/{}", key.package, key.model),
                why: "there is no such model: `cargo vram bless` leaves it out".to_owned(),
            });
            let gone: Vec<_> = gone.collect();
            report.skipped.extend(gone);
        }
        if let Some(against) = against {
            // An edit is denied once, whatever the number of GPUs.
            let first = cards.declared.first().map(|card| card.id.as_str());
            let denies = first.filter(|_| self.deny_edits);
            let (own, own_lock) = ((budgets, prepared.budgets_name.as_str()), (&lock, lock_name.as_str()));
            against.tell(&mut report, own, own_lock, of_all, denies);
        }
        // An estimate that was made only to be compared with a measurement has its limits judged there.
        report.verdicts.retain(|verdict| {
            verdict.mode == Mode::Measure
                || cards.declared.iter().any(|card| card.id == verdict.gpu)
                || matches!(verdict.rule, Rule::Oom | Rule::Edit)
        });
        pipeline::write(&mut report, &self.output, loudness, &headline, true, &prepared.source)?;
        // An input that a model turned out not to have is a mistake of the file: point at it there.
        let known: Vec<_> = models
            .declared
            .iter()
            .map(|model| declared_with(model, &report.runs))
            .collect();
        budgets.check_models(&known, knows_all)?;
        Ok(pipeline::exit_of_judged(&report, self.deny_warnings))
    }
}

/// A model over several cards is estimated, and is not measured: that is told, and nothing fails by it.
fn set_aside(report: &mut Report) {
    let is_of_several = |run: &Run| {
        let code = run.error.as_ref().map(|error| &error.code);
        run.mode == Mode::Measure && code == Some(&ErrorCode::TooFewGpus)
    };
    let (several, runs) = std::mem::take(&mut report.runs).into_iter().partition(is_of_several);
    report.runs = runs;
    let several: Vec<Run> = several;
    report.skipped.extend(several.iter().map(|run| Skipped {
        what: format!("the measurement of {}", run.full_name()),
        why: "it is over several cards, and real cards are measured one at a time".to_owned(),
    }));
}

/// The cards that models are judged on.
struct Cards {
    /// Those that were asked for, or the one that the budgets are written for.
    declared: Vec<Profile>,
    /// The one of this machine, where it is measured.
    taken: Option<Taken>,
    /// Whether no other was wanted.
    estimates: bool,
    recordings: Recordings,
    driver: DriverLibrary,
    /// How often a model is run that may differ from run to run.
    repeat: u32,
}

impl Cards {
    /// The first line of what people are shown.
    fn headline(&self, budgets: &str) -> String {
        let estimated = format!(
            "estimated on {}, judged by {budgets}",
            cases::virtual_cards(&self.declared)
        );
        match &self.taken {
            Some(taken) => format!("{}; {estimated}", taken.headline()),
            None if self.estimates => estimated,
            None => format!("no GPU here: {estimated}"),
        }
    }

    /// Measures the models on the card that is here, and estimates them on the virtual ones.
    fn run(
        &self,
        prepared: &Prepared,
        models: &Models,
        running: &Running,
        folder: &Path,
        loudness: Loudness,
    ) -> Result<Vec<Run>, Stopped> {
        let of = |cards: &[Profile]| {
            let mut cases = cases::cases_on(prepared, models, running, &BTreeMap::new(), cards.iter())?;
            let differing = cases.iter_mut().filter(|case| case.allowed.nondeterministic);
            differing.for_each(|case| case.repeat = self.repeat);
            Ok::<_, Stopped>(cases)
        };
        let on = |hardware: Hardware, name: &str| pipeline::On {
            verified: true,
            ..pipeline::On::new(&self.driver, hardware, self.recordings.clone(), folder.join(name))
        };
        let declared = self.declared.iter();
        let declared: Vec<_> = declared.map(|card| cases::estimated(card, &self.recordings)).collect();
        let mut estimated = of(&declared)?;
        let mut runs = Vec::new();
        if let Some(taken) = &self.taken {
            let measured = cases::measured(&taken.profile, &taken.real.driver, &self.recordings);
            let measured = of(&[measured])?;
            // What is measured is estimated, too: by the profile that estimates for this card use elsewhere.
            if self.declared.iter().all(|card| card.id != taken.profile.id) {
                let card = prepared.profiles.find(&taken.profile.id).unwrap_or(&taken.profile);
                estimated.extend(of(&[cases::estimated(card, &self.recordings)])?);
            }
            let on = on(Hardware::Real(taken.real.clone()), "measure");
            runs.extend(pipeline::run(&measured, running, on, loudness)?.runs);
        }
        let on = on(Hardware::Virtual, "estimate");
        runs.extend(pipeline::run(&estimated, running, on, loudness)?.runs);
        Ok(runs)
    }
}

impl Check {
    /// What all parts of this check together have verdicts on.
    fn expected_verdicts(
        &self,
        prepared: &Prepared,
        models: &Models,
        cards: &[Profile],
    ) -> Result<Vec<ExpectedVerdict>, Stopped> {
        let is_expected = |model: &&Listed| models.expected.contains(&cases::identity(model));
        let all = Models {
            expected: Vec::new(),
            selected: models.declared.iter().filter(is_expected).cloned().collect(),
            declared: Vec::new(),
            problems: Vec::new(),
        };
        let cases = cases::cases_on(prepared, &all, &self.running, &BTreeMap::new(), cards.iter())?;
        let expected = cases.iter().map(|case| ExpectedVerdict {
            package: case.model.built.target.package.clone(),
            model: case.name().to_owned(),
            gpu: case.profile.id.clone(),
        });
        Ok(expected.collect())
    }

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
                .is_some_and(|error| error.code == ErrorCode::UnknownInput)
    });
    declared(model, refused.map(|run| run.inputs.keys().cloned().collect()))
}
