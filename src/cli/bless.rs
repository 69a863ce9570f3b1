//! `cargo vram bless`: accepts figures as the baseline.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::{Exit, exit_codes};
use super::interrupt::Interrupted;
use super::options::{Loudness, Packages, Running};
use super::what_if::WhatIfs;
use super::{Stopped, cases, pipeline, terminal};
use crate::budget::{Accepted, Entry, Key, Lock};
use crate::bytes::Bytes;
use crate::report::change::{metric_name, signed_percent};
use crate::report::human::text;
use crate::report::words::mode_name;
use crate::report::{ErrorCode, Report};

/// Accept figures as the baseline, in budgets.lock
///
/// Estimates the models as `cargo vram check` does and writes their figures into budgets.lock, beside budgets.yaml. From
/// then on `check` says how far a change is from them (`growth` in budgets.yaml). With --report, the figures are those of
/// a report that a CI run made, measurements among them.
#[derive(Debug, Args)]
#[command(after_help = concat!("\
Examples:
  cargo vram bless                         accept what every model needs now
  cargo vram bless -m resnet18             of one model, and leave the others as they are
  cargo vram bless --only-improvements     accept what became less, and nothing else
  cargo vram bless --report report.json    accept what a CI run measured
  cargo vram bless --check                 write nothing, and fail where something would be written

", exit_codes!()))]
pub(super) struct Bless {
    /// Accept the figures of this report, rather than run anything; may be given several times
    #[arg(long = "report", value_name = "FILE")]
    reports: Vec<Utf8PathBuf>,
    /// Accept only models of which no figure is larger than before, and one is smaller
    #[arg(long)]
    only_improvements: bool,
    /// Write nothing, and fail where something would be written
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    packages: Packages,
}

/// A report is of a command that was stopped.
#[derive(Debug, Error, Diagnostic)]
#[error("{0}: this report is incomplete, because a signal stopped the command that wrote it")]
#[diagnostic(
    code(bless::interrupted),
    help("run that command again, and bless the report that it then writes")
)]
pub(super) struct Incomplete(Utf8PathBuf);

impl Bless {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let prepared = pipeline::prepare(&self.packages, None, self.running.budgets.as_deref())?;
        let (path, name) = prepared.lock();
        let mut lock = Lock::load(&path, &name)?.unwrap_or_default();
        let (reports, there) = if self.reports.is_empty() {
            let (report, there) = self.estimate(&prepared, loudness)?;
            (vec![report], there)
        } else {
            let read = |path: &Utf8PathBuf| {
                let report = Report::read(path)?;
                let is_incomplete = report
                    .problems
                    .iter()
                    .any(|problem| problem.code == ErrorCode::Interrupted);
                match is_incomplete {
                    true => Err(Stopped::from(Incomplete(path.clone()))),
                    false => Ok(report),
                }
            };
            let mut reports = self.reports.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            for problem in reports.iter().flat_map(|report| &report.problems) {
                terminal::remark(&crate::report::human::problem(problem));
            }
            cases::keep_matching(&mut reports, &self.running)?;
            (reports, None)
        };
        let mut accepted = Vec::new();
        let mut exit = Exit::Success;
        for report in &reports {
            accepted.extend(lock.accept(report, self.only_improvements));
            exit = exit.or(Exit::of_errors(report));
        }
        let is_wrong = |one: &Accepted| matches!(one, Accepted::Refused { is_wrong: true, .. });
        if accepted.iter().any(is_wrong) {
            exit = exit.or(Exit::Incomplete);
        }
        if let Some(there) = there {
            // A model is the same one on whatever card.
            let is_there = |key: &Key| {
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
        terminal::show(&told(&accepted, &lock, &name, self.check, loudness));
        Ok(match self.check && changes {
            true => exit.or(Exit::OverBudget),
            false => exit,
        })
    }

    /// What `check` would judge on a machine without a GPU, and of a whole workspace all models that there are.
    fn estimate(
        &self,
        prepared: &pipeline::Prepared,
        loudness: Loudness,
    ) -> Result<(Report, Option<Vec<Key>>), Stopped> {
        let inputs = BTreeMap::new();
        let estimated = pipeline::estimate(
            prepared,
            &self.packages,
            &self.running,
            &inputs,
            &WhatIfs::default(),
            true,
            loudness,
        )?;
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
            terminal::remark(&crate::report::human::problem(problem));
        }
        let whole = prepared.source.is_whole()
            && models.problems.is_empty()
            && self.running.model.is_empty()
            && self.running.partition.is_none();
        let there = whole.then(|| report.runs.iter().map(Key::of).collect());
        Ok((report, there))
    }
}

/// All or nothing: a file that is cut short would be no baseline at all.
fn write(path: &Utf8Path, lock: &Lock) -> Result<(), pipeline::Asked> {
    let file = |source| pipeline::Asked::File {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Utf8Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(file)?;
    std::io::Write::write_all(&mut new, lock.to_string().as_bytes()).map_err(file)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(new.path(), permissions).map_err(file)?;
    new.persist(path).map_err(|error| file(error.error))?;
    Ok(())
}

/// A line an entry that changes, and what else there is in numbers.
fn told(accepted: &[Accepted], lock: &Lock, file: &str, only_checked: bool, loudness: Loudness) -> String {
    let mut text = String::new();
    let (mut same, mut written) = (0, 0);
    for one in accepted {
        match one {
            Accepted::Written { key, before } => {
                written += 1;
                let after = lock.get(key);
                text.push_str(&format!("{}: {}\n", named(key), change(before.as_ref(), after)));
            }
            Accepted::Same(_) => same += 1,
            Accepted::Removed(key) => {
                written += 1;
                text.push_str(&format!("{}: no longer there\n", named(key)));
            }
            Accepted::Refused { key, why, .. } => text.push_str(&format!("{}: not accepted: {why}\n", named(key))),
        }
    }
    if loudness.quiet {
        return text;
    }
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let verb = match only_checked {
        true => "would be written",
        false => "written",
    };
    text + &format!("{file}: {written} model{} {verb}, {same} the same\n", plural(written))
}

fn named(key: &Key) -> String {
    let mode = mode_name(key.mode);
    let name = text::named(&format!("{}/{}", key.package, key.model));
    format!("{name} ({}, {mode})", text::named(&key.gpu))
}

/// What becomes of live, or where that stays, of the first figure that does not.
fn change(before: Option<&Entry>, after: Option<&Entry>) -> String {
    let peaks = |entry: Option<&Entry>| entry.map(|entry| entry.peaks).unwrap_or_default();
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
        None => "same figures, of another estimator, Burn or inputs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Peak, Peaks};

    fn of(live: u64, reserved: u64) -> Entry {
        Entry {
            burn: String::new(),
            rests_on: String::new(),
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
            "same figures, of another estimator, Burn or inputs"
        );
        assert_eq!(change(None, Some(&of(1000, 2000))), "new, 1000 B live");
    }
}
