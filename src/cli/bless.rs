//! `cargo vram bless`: accepts values as the baseline.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, with_exit_codes};
use super::interrupt::{self, Interrupted};
use super::options::{Packages, Running};
use super::terminal;
use crate::baseline::{Accepted, BaselineEntry, BaselineFile, BaselineKey};
use crate::budget;
use crate::bytes::Bytes;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::session::what_if::WhatIfs;
use crate::cli::session::{self, Context};
use crate::render;
use crate::report::change::{metric_name, signed_percent};
use crate::report::words::mode_name;
use crate::report::{ErrorCode, Mode, Report, Rule, Status};
use crate::untrusted::words;

/// Accept the current values as the baseline in budgets.lock
///
/// Estimates the models as `cargo vram check` does, and writes their values to budgets.lock, beside budgets.yaml. Later
/// checks compare with these values (`growth` in budgets.yaml).
///
/// With --report, the command runs nothing. It accepts the values of a report that a CI run wrote, including its
/// measurements.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  cargo vram bless                        accept the values of every model
  cargo vram bless -m resnet18            accept one model, and keep the others
  cargo vram bless --only-improvements    accept only models that need less
  cargo vram bless --report report.json   accept the values of a CI run's report
  cargo vram bless --check                write nothing, and fail if
                                          budgets.lock would change"))]
pub(super) struct Bless {
    /// Accept the values of this report instead of running the models (repeatable)
    #[arg(long = "report", value_name = "FILE", help_heading = "Selection")]
    reports: Vec<Utf8PathBuf>,
    #[command(flatten)]
    running: Running,
    /// Accept a model only if one of its values shrank and none grew
    #[arg(long, help_heading = "Baseline")]
    only_improvements: bool,
    /// Write nothing, and fail if budgets.lock would change
    // It stands under `Output`, so that this heading comes before `Cargo`, as in all commands.
    #[arg(long, help_heading = "Output")]
    check: bool,
    #[command(flatten)]
    packages: Packages,
}

/// The report is incomplete, because a signal stopped the command that wrote it.
#[derive(Debug, Error, Diagnostic)]
#[error("{0} is incomplete: a signal stopped the command that wrote it")]
#[diagnostic(
    code(bless::interrupted),
    help("run that command again, and pass its new report to `cargo vram bless`")
)]
pub(super) struct IncompleteReport(Utf8PathBuf);

impl ExitCoded for IncompleteReport {
    fn exit(&self) -> Exit {
        Exit::Incomplete
    }
}

impl Bless {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let prepared = session::prepare(&self.packages, None, self.running.budgets.as_deref())?;
        let (path, name) = prepared.lock();
        let mut lock = BaselineFile::load(&path, &name)?.unwrap_or_default();
        let (reports, there) = if self.reports.is_empty() {
            let (report, there) = self.estimate(&prepared)?;
            (vec![report], there)
        } else {
            let read = |path: &Utf8PathBuf| {
                let report = Report::read(path)?;
                let is_incomplete = report
                    .problems
                    .iter()
                    .any(|problem| problem.code == ErrorCode::Interrupted);
                match is_incomplete {
                    true => Err(CliError::from(IncompleteReport(path.clone()))),
                    false => Ok(report),
                }
            };
            let mut reports = self.reports.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            for problem in reports.iter().flat_map(|report| &report.problems) {
                terminal::remark(&render::terminal::report::problem(problem));
            }
            session::keep_matching(&mut reports, &self.running)?;
            (reports, None)
        };
        let mut accepted = Vec::new();
        let mut exit = Exit::Success;
        for report in &reports {
            accepted.extend(lock.accept(report, self.only_improvements));
            exit = exit.or(Exit::from_errors(report));
        }
        let is_wrong = |one: &Accepted| matches!(one, Accepted::Refused { is_wrong: true, .. });
        if accepted.iter().any(is_wrong) {
            exit = exit.or(Exit::Incomplete);
        }
        if let Some(there) = there {
            // An entry stays as long as its model exists, on whatever GPU the entry is.
            let is_there = |key: &BaselineKey| {
                there
                    .iter()
                    .any(|own| (&own.package, &own.model) == (&key.package, &key.model))
            };
            accepted.extend(lock.remove_gone(is_there));
        }
        let changes = accepted
            .iter()
            .any(|one| matches!(one, Accepted::Written { .. } | Accepted::Removed(_)));
        if changes && !self.check {
            write(&path, &lock)?;
        }
        let over = over_limits(&reports, &prepared);
        terminal::show(&told(&accepted, &lock, &over, &name, self.check));
        Ok(match self.check && changes {
            true => exit.or(Exit::OverBudget),
            false => exit,
        })
    }

    /// Estimates the models as `check` does on a machine without a GPU. If the whole workspace ran, also returns the
    /// keys of all its models.
    fn estimate(&self, prepared: &session::Prepared) -> Result<(Report, Option<Vec<BaselineKey>>), CliError> {
        let inputs = BTreeMap::new();
        let context = Context {
            prepared,
            packages: &self.packages,
            running: &self.running,
        };
        let estimated = session::estimate(&context, &inputs, &WhatIfs::default(), true)?;
        if let Some(signal) = estimated.signal {
            let (finished, count) = (estimated.report.runs.len(), estimated.count);
            return Err(Interrupted {
                signal,
                finished,
                count,
            }
            .into());
        }
        let (models, report) = (estimated.models, estimated.report);
        for problem in &report.problems {
            terminal::remark(&render::terminal::report::problem(problem));
        }
        // A model that was not selected, or whose target did not build, is not gone. Its entry stays.
        let whole = prepared.source.is_whole()
            && models.problems.is_empty()
            && self.running.model.is_empty()
            && self.running.partition.is_none();
        let there = whole.then(|| report.runs.iter().map(BaselineKey::from_run).collect());
        Ok((report, there))
    }
}

/// Writes the file as a whole or not at all, because a truncated file is not a usable baseline.
fn write(path: &Utf8Path, lock: &BaselineFile) -> Result<(), session::SelectionError> {
    let file = |source| session::SelectionError::File {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Utf8Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(file)?;
    std::io::Write::write_all(&mut new, lock.to_string().as_bytes()).map_err(file)?;
    // A temporary file is for its owner alone, but this one is committed and read by others.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(new.path(), permissions).map_err(file)?;
    interrupt::wait_for_end();
    new.persist(path).map_err(|error| file(error.error))?;
    Ok(())
}

/// Returns the values that are over their limit in the budgets, by the entry that they belong to.
fn over_limits(reports: &[Report], prepared: &session::Prepared) -> BTreeMap<BaselineKey, Vec<String>> {
    let mut over: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let Some(budgets) = &prepared.budgets else {
        return over;
    };
    let declared = budgets.gpu.as_ref().map(|gpu| gpu.value.as_str());
    for report in reports {
        for verdict in budget::judge(&report.runs, budgets, &prepared.budgets_name) {
            let key = BaselineKey {
                package: verdict.package,
                model: verdict.model,
                gpu: verdict.gpu,
                mode: verdict.mode,
            };
            let measured = BaselineKey {
                mode: Mode::Measure,
                ..key.clone()
            };
            // On a GPU that was measured, `check` judges the measurement, and the estimate only for the budgets' GPU.
            let is_judged = key.mode == Mode::Measure
                || declared == Some(key.gpu.as_str())
                || report.runs.iter().all(|run| BaselineKey::from_run(run) != measured);
            if verdict.rule == Rule::Budget && verdict.status == Status::Fail && is_judged {
                let place = verdict.file.zip(verdict.line);
                let place = place.map_or_else(String::new, |(file, line)| format!(" in {file}:{line}"));
                over.entry(key)
                    .or_default()
                    .push(words(&(verdict.message.into_raw() + &place)));
            }
        }
    }
    over
}

/// Returns one line per entry that changes or is refused, one per accepted value over its limit in `over`, and a line
/// with the counts.
fn told(
    accepted: &[Accepted],
    lock: &BaselineFile,
    over: &BTreeMap<BaselineKey, Vec<String>>,
    file: &str,
    only_checked: bool,
) -> String {
    let mut text = String::new();
    let (mut same, mut written) = (0, 0);
    let accepts = if only_checked { "would be accepted" } else { "accepted" };
    for one in accepted {
        match one {
            Accepted::Written { key, before } => {
                written += 1;
                let after = lock.get(key);
                text.push_str(&format!("{}: {}\n", entry_name(key), change(before.as_ref(), after)));
            }
            Accepted::Same(_) => same += 1,
            Accepted::Removed(key) => {
                written += 1;
                text.push_str(&format!(
                    "{}: removed, because the model no longer exists\n",
                    entry_name(key)
                ));
            }
            Accepted::Refused { key, why, .. } => {
                text.push_str(&format!("{}: not accepted: {}\n", entry_name(key), words(why)));
            }
        }
        if let Accepted::Written { key, .. } | Accepted::Same(key) = one {
            for value in over.get(key).into_iter().flatten() {
                let name = entry_name(key);
                text.push_str(&format!("{name}: {accepts}, but {value}; the next check fails\n"));
            }
        }
    }
    if terminal::is_quiet() {
        return text;
    }
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let verb = match only_checked {
        true => "would be written",
        false => "written",
    };
    text + &format!("{file}: {written} model{} {verb}, {same} unchanged\n", plural(written))
}

fn entry_name(key: &BaselineKey) -> String {
    let mode = mode_name(key.mode);
    let name = key.full_name();
    format!("{name} ({}, {mode})", key.gpu)
}

/// Returns the change of live memory or, if it is unchanged, of the first value that changed.
fn change(before: Option<&BaselineEntry>, after: Option<&BaselineEntry>) -> String {
    let peaks = |entry: Option<&BaselineEntry>| entry.map(|entry| entry.peaks).unwrap_or_default();
    let known = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
    if before.is_none() {
        return format!("new, {} live", known(after.and_then(|after| after.peaks.warm.live)));
    }
    match peaks(before).first_other(&peaks(after)) {
        Some((pass, metric, before, after)) => {
            let name = metric_name(pass, metric);
            let share = match (before, after) {
                (Some(before), Some(after)) => signed_percent(before, after).map(|share| format!(" ({share})")),
                _ => None,
            };
            format!(
                "{name} {} → {}{}",
                known(before),
                known(after),
                share.unwrap_or_default()
            )
        }
        None => "same values, but another estimator, driver, Burn version, parameter count or inputs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Peak, Peaks};
    use crate::untrusted::Foreign;

    fn of(live: u64, reserved: u64) -> BaselineEntry {
        BaselineEntry {
            burn: Foreign::default(),
            rests_on: Foreign::default(),
            inputs: BTreeMap::new(),
            parameters: None,
            peaks: Peaks {
                warm: Peak {
                    live: Some(Bytes(live)),
                    reserved: Some(Bytes(reserved)),
                    process: None,
                },
                cold: Peak::default(),
            },
        }
    }

    #[test]
    fn a_change_has_the_sign_that_it_has_elsewhere() {
        let told = |after| change(Some(&of(1000, 2000)), Some(&after));
        assert_eq!(told(of(750, 2000)), "live 1000 B → 750 B (−25 %)");
        assert_eq!(told(of(1000, 2500)), "reserved 1.95 KiB → 2.44 KiB (+25 %)");
        assert_eq!(
            told(of(1000, 2000)),
            "same values, but another estimator, driver, Burn version, parameter count or inputs"
        );
        assert_eq!(change(None, Some(&of(1000, 2000))), "new, 1000 B live");
    }
}
