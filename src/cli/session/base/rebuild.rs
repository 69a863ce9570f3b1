//! Builds the base's models from its own sources, and runs them like the models here.

use std::collections::BTreeSet;

use camino::Utf8Path;

use super::worktree::Worktree;
use super::{BaseError, BaseRevision};
use crate::baseline::{Accepted, BaselineFile, BaselineKey};
use crate::cli::error::CliError;
use crate::cli::options::Packages;
use crate::cli::session::context::Context;
use crate::cli::session::error::SelectionError;
use crate::cli::session::git::git;
use crate::cli::session::prepared::Prepared;
use crate::cli::session::source::{ModelSource, WorkspaceSource};
use crate::report::{BaselineFrom, Problem, Report, Skipped, SkippedCheck};
use crate::workspace::WorkspaceError;

/// What helps if the base cannot be rebuilt.
const WITHOUT_REBUILD: &str = "omit --rebuild to compare with the base's budgets.lock";

/// A checkout of the base, and the package options that build it.
pub(super) struct Checkout {
    worktree: Worktree,
    /// The options of this command, for the checkout's manifest.
    packages: Packages,
}

impl BaseRevision {
    /// Builds the base's models in the same target folder, runs them with `run`, and uses their values as baseline.
    ///
    /// Adds their problems to the report. Models that the base does not have yet get no baseline.
    pub(in crate::cli) fn rebuild(
        &mut self,
        context: &Context<'_>,
        report: &mut Report,
        run: impl FnOnce(&Context<'_>) -> Result<Report, CliError>,
    ) -> Result<(), CliError> {
        // From here on, every early `Ok` means that the base
        // has no such models, and so no values to compare with.
        self.from = BaselineFrom::Rebuilt;
        self.lock = BaselineFile::default();
        self.check_out(context)?;
        let Some((base, packages)) = self.prepared(context, None)? else {
            return Ok(());
        };
        let mut was = match run(&Context {
            prepared: &base,
            packages: &packages,
            ..*context
        }) {
            Ok(was) => was,
            Err(error) if is_new(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Both sides run on the same GPUs, with the same driver and recordings. The fingerprint of the base has other
        // GPU profiles if its budgets.yaml has, and no run depends on those.
        was.tool.fingerprint.clone_from(&report.tool.fingerprint);
        let of_base = was.problems.iter().map(|problem| self.problem(problem));
        report.problems.extend(of_base);
        let is_compared = |key: &BaselineKey| report.runs.iter().any(|run| BaselineKey::from_run(run) == *key);
        // On a busy machine, a model of the base may run into a limit that the same model here does not. Without its
        // value, growth would pass.
        let by_chance = was.runs.iter().filter_map(|run| {
            let error = run.error.as_ref().filter(|error| error.code.may_be_chance())?;
            is_compared(&BaselineKey::from_run(run)).then(|| {
                self.problem(&Problem {
                    package: run.package.clone(),
                    target: Some(run.model.as_str().into()),
                    code: error.code.clone(),
                    message: format!("{}: {}", run.full_name(), error.message.raw()).into(),
                    help: None,
                })
            })
        });
        report.problems.extend(by_chance);
        for accepted in self.lock.accept(&was, false) {
            if let Accepted::Refused { key, why, .. } = accepted
                && is_compared(&key)
            {
                report.skipped.push(Skipped {
                    check: SkippedCheck::GrowthSinceBase,
                    model: Some(key.full_name().into()),
                    why: format!("at {}, {why}", self.revision).into(),
                });
            }
        }
        Ok(())
    }

    /// Checks the base out, unless that was done before or the base has no such workspace.
    pub(in crate::cli) fn check_out(&mut self, context: &Context<'_>) -> Result<(), CliError> {
        let &Context { prepared, packages, .. } = context;
        let (ModelSource::Workspace(here), None) = (&prepared.source, &self.checkout) else {
            return Ok(());
        };
        let root = here.workspace().root();
        let Some(top) = git(root, &["rev-parse", "--show-toplevel"]) else {
            return Err(BaseError::NoGit(root.to_owned()).into());
        };
        let top = Utf8Path::new(top.trim());
        let worktree = Worktree::add(top, &self.commit, here.workspace().target_directory())?;
        let manifest = packages.manifest().and_then(|here| {
            let within = here.strip_prefix(top).ok()?;
            Some(worktree.path().join(within))
        });
        let Some(manifest) = manifest.filter(|manifest| manifest.exists()) else {
            return Ok(());
        };
        // Cargo runs in the folder of the command, not in the checkout. There, it would read the project's
        // configuration twice, which changes the flags of every crate.
        // See docs/design/base.md.
        let packages = packages.at(&manifest, &worktree.config());
        self.checkout = Some(Checkout { worktree, packages });
        Ok(())
    }

    /// Reads the workspace of the base's checkout, with one more feature if `feature` names one; `None` if the base was
    /// not checked out, or has no such workspace or packages.
    pub(in crate::cli) fn prepared(
        &self,
        context: &Context<'_>,
        feature: Option<&str>,
    ) -> Result<Option<(Prepared, Packages)>, CliError> {
        let prepared = context.prepared;
        let (Some(Checkout { worktree, packages }), ModelSource::Workspace(here)) = (&self.checkout, &prepared.source)
        else {
            return Ok(None);
        };
        let packages = match feature {
            Some(feature) => packages.with_feature(feature),
            None => packages.clone(),
        };
        let target = here.workspace().target_directory();
        let selection = packages.selection()?;
        let profile = packages.build(true).profile;
        // Without packages at first: only Cargo can list them, and that needs the target folder already.
        worktree.configure(target, profile.as_deref(), &BTreeSet::new())?;
        let source = match ModelSource::at(selection, &self.revision) {
            Ok(source) => source,
            Err(WorkspaceError::UnknownPackage(..)) => return Ok(None),
            Err(error) => return Err(self.unreadable(here, &error).into()),
        };
        if let ModelSource::Workspace(there) = &source {
            // The packages are known only now. Before it builds them, Cargo must distinguish them from those here. A
            // package outside of the checkout is the same for both, so it is built once.
            let packages = there.workspace().local_specs(worktree.path());
            worktree.configure(target, profile.as_deref(), &packages)?;
        }
        let base = Prepared {
            source,
            // Both sides run on the same GPUs. A changed profile is an edit, and not growth of a model.
            profiles: prepared.profiles.clone(),
            budgets: self.budgets.clone(),
            budgets_path: prepared.budgets_path.clone(),
            budgets_name: prepared.budgets_name.clone(),
        };
        Ok(Some((base, packages)))
    }

    /// Returns the error for a base that Cargo cannot read.
    fn unreadable(&self, here: &WorkspaceSource, error: &WorkspaceError) -> BaseError {
        let why = error.to_string();
        // Cargo's own words. Another workspace that is around the checkout is around the target folder, too.
        let is_within_another = why.contains("believes it's in a workspace when it's not");
        let help = if is_within_another {
            let target = here.workspace().target_directory();
            Some(format!(
                "the base is checked out in the target folder {target}, which is within another Cargo workspace: set \
                 CARGO_TARGET_DIR to a folder outside of that workspace; or {WITHOUT_REBUILD}"
            ))
        } else {
            // The checkout has only what is in the repository.
            // To copy more would test what no revision has.
            let top = git(here.workspace().root(), &["rev-parse", "--show-toplevel"]).unwrap_or_default();
            let outside = here.workspace().outside(Utf8Path::new(top.trim()));
            (!outside.is_empty()).then(|| {
                format!(
                    "depend on `{}` by git or by an absolute path: a relative path out of the repository does not exist \
                     in the base's checkout; or {WITHOUT_REBUILD}",
                    outside.join("`, `")
                )
            })
        };
        BaseError::Unreadable {
            revision: self.revision.clone(),
            why,
            help,
        }
    }

    fn problem(&self, problem: &Problem) -> Problem {
        Problem {
            message: format!("at {}: {}", self.revision, problem.message.raw()).into(),
            help: Some(WITHOUT_REBUILD.into()),
            ..problem.clone()
        }
    }
}

/// Whether the base declares none of the models yet.
fn is_new(error: &CliError) -> bool {
    matches!(error.downcast_ref(), Some(WorkspaceError::NoModels(_)))
        || matches!(error.downcast_ref(), Some(SelectionError::NoMatch(..)))
}
