//! The base's own models, built from its own sources and run as those here are.

use std::collections::BTreeSet;

use camino::Utf8Path;

use super::worktree::Worktree;
use super::{Against, BaseError};
use crate::budget::{Accepted, Key, Lock};
use crate::cli::Stopped;
use crate::cli::options::Packages;
use crate::cli::pipeline::{Asked, Prepared};
use crate::cli::source::{Source, git};
use crate::report::{BaselineFrom, Problem, Report, Skipped};
use crate::workspace::WorkspaceError;

impl Against {
    /// Builds the models of the base beside those here, in the same target folder, runs them by `run`, and takes what they
    /// need as the baseline. What is wrong with them is told in the report; what was not there yet is new.
    pub(in crate::cli) fn rebuild(
        &mut self,
        prepared: &Prepared,
        packages: &Packages,
        report: &mut Report,
        run: impl FnOnce(&Prepared, &Packages) -> Result<Report, Stopped>,
    ) -> Result<(), Stopped> {
        let Source::Workspace(here) = &prepared.source else {
            return Ok(());
        };
        self.from = BaselineFrom::Rebuilt;
        self.lock = Lock::default();
        let root = here.workspace().root();
        let Some(top) = git(root, &["rev-parse", "--show-toplevel"]) else {
            return Err(BaseError::NoGit(root.to_owned()).into());
        };
        let top = Utf8Path::new(top.trim());
        let target = here.workspace().target_directory();
        let worktree = Worktree::add(top, &self.commit, target)?;
        let manifest = packages.manifest().and_then(|here| {
            let within = here.strip_prefix(top).ok()?;
            Some(worktree.path().join(within))
        });
        let Some(manifest) = manifest.filter(|manifest| manifest.exists()) else {
            return Ok(());
        };
        let config = worktree.config();
        let packages = packages.at(&manifest, &config);
        let selection = packages.selection().map_err(miette::Report::msg)?;
        let profile = packages.build(true).profile;
        worktree.configure(target, profile.as_deref(), &BTreeSet::new())?;
        let source = match Source::at(selection, &self.revision) {
            Ok(source) => source,
            Err(WorkspaceError::UnknownPackage(..)) => return Ok(()),
            Err(error) => {
                let outside = here.workspace().outside(top);
                return Err(BaseError::Unreadable {
                    revision: self.revision.clone(),
                    why: error.to_string(),
                    help: (!outside.is_empty()).then(|| {
                        format!(
                            "{} lies outside of the repository, at a path that leads nowhere from a checkout elsewhere: name it by git, or by \
                             an absolute path; without --rebuild the base's budgets.lock is enough",
                            outside.join(", ")
                        )
                    }),
                }
                .into());
            }
        };
        if let Source::Workspace(there) = &source {
            // Before it is built: now it is known what is to be told apart.
            worktree.configure(target, profile.as_deref(), &there.workspace().local_specs())?;
        }
        let base = Prepared {
            source,
            profiles: prepared.profiles.clone(),
            budgets: self.budgets.clone(),
            budgets_path: prepared.budgets_path.clone(),
            budgets_name: prepared.budgets_name.clone(),
        };
        let was = match run(&base, &packages) {
            Ok(was) => was,
            Err(error) if is_new(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        report
            .problems
            .extend(was.problems.iter().map(|problem| self.problem(problem)));
        for accepted in self.lock.accept(&was, false) {
            if let Accepted::Refused { key, why, .. } = accepted
                && report.runs.iter().any(|run| Key::of(run) == key)
            {
                report.skipped.push(Skipped {
                    what: format!("the change since {} of {}/{}", self.revision, key.package, key.model),
                    why: format!("there, {why}"),
                });
            }
        }
        Ok(())
    }

    fn problem(&self, problem: &Problem) -> Problem {
        Problem {
            message: format!("at {}: {}", self.revision, problem.message),
            help: Some("without --rebuild, what budgets.lock says there is enough".to_owned()),
            ..problem.clone()
        }
    }
}

/// Whether nothing was declared there yet.
fn is_new(error: &Stopped) -> bool {
    matches!(error.downcast_ref(), Some(WorkspaceError::NoModels(_)))
        || matches!(error.downcast_ref(), Some(Asked::NoMatch(..)))
}
