//! The base of a comparison: the budgets and the baseline of another revision, or its rebuilt models.

mod rebuild;
mod worktree;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::semver::Version;
use miette::Diagnostic;
use thiserror::Error;

use self::rebuild::Checkout;
use crate::baseline::{self, BaselineFile, edits, worse};
use crate::budget::Budgets;
use crate::cli::error::{CliError, ExitCoded};
use crate::cli::exit::Exit;
use crate::cli::session::prepared::{Prepared, profiles_with};
use crate::cli::session::source::BaseFiles;
use crate::cli::session::source::ModelSource;
use crate::gpu::Profiles;
use crate::names::{near, quoted};
use crate::report::{Base, BaselineFrom, ChangedDependency, Mode, Peaks, Report, Run, Skipped, SkippedCheck};
use crate::workspace;

/// Why a base revision cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub(in crate::cli) enum BaseError {
    /// The models come from an archive, or from a folder outside of a git checkout.
    #[error("--base needs a git checkout, but {0} is not in one")]
    #[diagnostic(
        code(base::no_git),
        help(
            "run the command in a git checkout; for an archive, pass --base to `cargo vram archive`; without git, \
             compare two explanations with `cargo vram diff --why`"
        )
    )]
    NoGit(Utf8PathBuf),
    /// The name is empty or looks like an option.
    #[error("`{0}` is not a valid revision")]
    #[diagnostic(
        code(base::no_revision),
        help("name a branch, a tag or a commit, such as --base origin/main")
    )]
    NoRevision(String),
    /// The repository does not have this revision.
    #[error("there is no revision `{revision}` in this repository")]
    #[diagnostic(code(base::no_revision))]
    Unknown {
        revision: String,
        #[help]
        help: String,
    },
    /// The revision and `HEAD` have no common commit.
    #[error("`{revision}` and the checked-out commit have no commit in common")]
    #[diagnostic(code(base::no_merge_base))]
    Unrelated {
        revision: String,
        #[help]
        help: String,
    },
    /// Several tags or branches have this name.
    #[error("`{revision}` names several tags or branches, with different commits")]
    #[diagnostic(code(base::ambiguous))]
    Ambiguous {
        revision: String,
        #[help]
        help: String,
    },
    /// A file cannot be read at the base.
    #[error("cannot read {path} at {revision}: {why}")]
    #[diagnostic(
        code(base::file),
        help("keep the file inside the repository, and fetch the base with all its files (not as a partial clone)")
    )]
    File {
        path: Utf8PathBuf,
        revision: String,
        why: String,
    },
    /// The folder of the base's checkout cannot be created, locked or written to.
    #[error("cannot use {path}")]
    #[diagnostic(code(base::folder))]
    Folder { path: Utf8PathBuf, source: std::io::Error },
    /// The commit cannot be checked out.
    #[error("cannot check out {commit} to build it\n{why}")]
    #[diagnostic(code(base::checkout))]
    Checkout { commit: String, why: String },
    /// The commit's submodules cannot be checked out.
    #[error("cannot check out the submodules of the base\n{0}")]
    #[diagnostic(
        code(base::submodules),
        help(
            "make `git submodule update --init` succeed at the base, or omit --rebuild to compare with the base's \
             budgets.lock"
        )
    )]
    Submodules(String),
    /// Cargo cannot read the workspace at the base.
    #[error("cannot build {revision}\n{why}")]
    #[diagnostic(code(base::workspace))]
    Unreadable {
        revision: String,
        why: String,
        #[help]
        help: Option<String>,
    },
}

impl ExitCoded for BaseError {
    fn exit(&self) -> Exit {
        match self {
            Self::Folder { .. } => Exit::Incomplete,
            Self::NoGit(..)
            | Self::NoRevision(..)
            | Self::Unknown { .. }
            | Self::Unrelated { .. }
            | Self::Ambiguous { .. }
            | Self::File { .. }
            | Self::Checkout { .. }
            | Self::Submodules(..)
            | Self::Unreadable { .. } => Exit::Unusable,
        }
    }
}

/// The merge base: the last commit that a revision and `HEAD` have in common.
pub(in crate::cli) struct Parted {
    pub(in crate::cli) revision: String,
    pub(in crate::cli) commit: String,
    /// The path from the top of the repository to the workspace.
    prefix: String,
}

impl Parted {
    /// Finds the merge base in the repository that contains the folder `root`.
    pub(in crate::cli) fn find(revision: &str, root: &Utf8Path) -> Result<Self, CliError> {
        // The name comes from the command line. Git must never take it for an option.
        if revision.is_empty() || revision.starts_with('-') {
            return Err(BaseError::NoRevision(revision.to_owned()).into());
        }
        let git =
            |arguments: &[&str]| crate::cli::session::git::git(root, arguments).map(|text| text.trim().to_owned());
        // This also shows whether there is a repository at all.
        let Some(prefix) = git(&["rev-parse", "--show-prefix"]) else {
            return Err(BaseError::NoGit(root.to_owned()).into());
        };
        // A checkout in CI often has one commit only. It then lacks the revision, or the merge base.
        let is_shallow = git(&["rev-parse", "--is-shallow-repository"]).as_deref() == Some("true");
        let help = |otherwise: &str| match is_shallow {
            true => "fetch the whole history: this is a shallow clone (`fetch-depth: 0` in actions/checkout, or \
                     `git fetch --unshallow`)"
                .to_owned(),
            false => otherwise.to_owned(),
        };
        // Git prefers a tag to a branch of the same name. Someone who may push tags may not be allowed to push to the
        // branch, so an ambiguous name is an error.
        let commit_of = |name: &str| {
            git(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &format!("{name}^{{commit}}"),
            ])
        };
        let kinds = ["refs/tags/", "refs/heads/", "refs/remotes/"];
        let meant = kinds.map(|kind| commit_of(&format!("{kind}{revision}")));
        let mut commits: Vec<&String> = meant.iter().flatten().collect();
        commits.dedup();
        if commits.len() > 1 {
            return Err(BaseError::Ambiguous {
                revision: revision.to_owned(),
                help: format!(
                    "delete the tag, or pass the full name, such as refs/heads/{revision} or refs/remotes/{revision}"
                ),
            }
            .into());
        }
        let named = format!("{revision}^{{commit}}");
        if git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &named]).is_none() {
            return Err(BaseError::Unknown {
                revision: revision.to_owned(),
                help: help(&revisions(revision, git)),
            }
            .into());
        }
        // What the other branch did since both parted is not part of this change. See docs/design/base.md.
        let Some(commit) = git(&["merge-base", "--", revision, "HEAD"]) else {
            return Err(BaseError::Unrelated {
                revision: revision.to_owned(),
                help: help("name a branch that the checked-out one started from"),
            }
            .into());
        };
        Ok(Self {
            revision: revision.to_owned(),
            commit,
            prefix,
        })
    }

    /// Returns the content of a file at the merge base; `None` if the file did not exist there.
    ///
    /// # Errors
    ///
    /// Fails if the file is outside of the repository, or if git cannot return it. A partial clone may lack the files
    /// of a commit.
    pub(in crate::cli) fn file(&self, root: &Utf8Path, path: &Utf8Path) -> Result<Option<String>, BaseError> {
        let error = |why: &str| BaseError::File {
            path: path.to_owned(),
            revision: self.revision.clone(),
            why: why.to_owned(),
        };
        // The path may contain `..` or links. The file may no longer exist, so only its folder is canonicalized.
        let folder = path.parent().filter(|folder| !folder.as_str().is_empty());
        let folder = folder.unwrap_or(Utf8Path::new("."));
        let folder = folder
            .canonicalize_utf8()
            .map_err(|source| error(&source.to_string()))?;
        let root = root.canonicalize_utf8().map_err(|source| error(&source.to_string()))?;
        let top = match self.prefix.is_empty() {
            true => root.as_path(),
            false => root
                .ancestors()
                .nth(Utf8Path::new(&self.prefix).components().count())
                .unwrap_or(&root),
        };
        let name = path.file_name().ok_or_else(|| error("the path has no file name"))?;
        let within = folder.strip_prefix(top);
        let within = within.map_err(|_| error("it is outside of the repository"))?.join(name);
        let git = |arguments: &[&str]| crate::cli::session::git::git_or_why(top, arguments).map_err(|why| error(&why));
        // `cat-file` fails in the same way for a missing file and for an object that a partial clone lacks.
        let listed = git(&[
            // Otherwise git takes `*` and a leading `:` in a path for a pattern.
            "--literal-pathspecs",
            "ls-tree",
            "--full-tree",
            &self.commit,
            "--",
            within.as_str(),
        ])?;
        if listed.trim().is_empty() {
            return Ok(None);
        }
        git(&["cat-file", "blob", &format!("{}:{within}", self.commit)]).map(Some)
    }
}

/// How many revisions of a kind are named.
const NAMED: usize = 5;

/// Lists revisions instead of an unknown one: the one with the most similar name, and the latest of each kind.
fn revisions(asked: &str, git: impl Fn(&[&str]) -> Option<String>) -> String {
    let of = |kind: &str| -> Vec<String> {
        let arguments = [
            "for-each-ref",
            "--sort=-committerdate",
            "--format=%(refname:strip=2)",
            kind,
        ];
        let all = git(&arguments).unwrap_or_default();
        // `origin/HEAD` only points to another branch of the remote.
        let names = all.lines().filter(|name| !name.ends_with("/HEAD"));
        names.map(str::to_owned).collect()
    };
    let kinds = [
        ("local branches", of("refs/heads")),
        ("remote branches", of("refs/remotes")),
        ("tags", of("refs/tags")),
    ];
    let all = || kinds.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
    // A user who writes `origin/main` most likely means `main`, or `main` of another remote.
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let namesake = all().find(|name| last(name) == last(asked));
    let nearest = match namesake {
        Some(name) => Some(format!("did you mean {}?", quoted(name))),
        None => near(asked, all()),
    };
    let listed = kinds.iter().map(|(kind, names)| {
        let mut shown: Vec<_> = names.iter().take(NAMED).map(|name| quoted(name)).collect();
        let more = names.len().saturating_sub(NAMED);
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        match shown.is_empty() {
            true => format!("{kind}: none"),
            false => format!("{kind}: {}", shown.join(", ")),
        }
    });
    let mut lines: Vec<_> = nearest.into_iter().chain(listed).collect();
    if let Some((remote, _)) = asked.split_once('/') {
        let remotes = git(&["remote"]).unwrap_or_default();
        lines.push(match remotes.lines().any(|name| name == remote) {
            true => format!("run `git fetch` to get the current branches of {}", quoted(remote)),
            false if remotes.trim().is_empty() => "this repository has no remote".to_owned(),
            false => {
                let names: Vec<_> = remotes.lines().map(quoted).collect();
                format!("there is no remote {}; remotes: {}", quoted(remote), names.join(", "))
            }
        });
    }
    lines.join("\n")
}

/// The base revision of a check, with its budgets, baseline and dependencies.
pub(in crate::cli) struct BaseRevision {
    revision: String,
    commit: String,
    /// The baseline: from the base's file, or from its rebuilt models.
    lock: BaselineFile,
    from: BaselineFrom,
    budgets: Option<Budgets>,
    /// The comparisons that are skipped because a file of the base cannot be read.
    unreadable: Vec<Skipped>,
    /// Set if the base has no budgets: edits of limits are then not compared.
    no_budgets: Option<Skipped>,
    dependencies: Vec<ChangedDependency>,
    /// The folder of the workspace within the repository, such as `model/`; empty for the top.
    folder: String,
    /// The base's checkout; `None` until its models are built, or if it has no such workspace.
    checkout: Option<Checkout>,
}

impl BaseRevision {
    /// Reads the budgets and the baseline at the merge base of `HEAD` and the revision.
    ///
    /// Ignores the baseline file if `rebuilds` is set, because the rebuilt models then provide the baseline.
    pub(in crate::cli) fn read(revision: &str, prepared: &Prepared, rebuilds: bool) -> Result<Self, CliError> {
        let root = prepared.source.root();
        if !matches!(prepared.source, ModelSource::Workspace(_)) {
            return Err(BaseError::NoGit(root.to_owned()).into());
        }
        let parted = Parted::find(revision, root)?;
        let files = BaseFiles {
            budgets: parted.file(root, &prepared.budgets_path)?,
            lock: parted.file(root, &prepared.lock().0)?.filter(|_| !rebuilds),
        };
        // Changed versions of dependencies are only shown. They
        // can explain growth that the change did not cause.
        let pinned = root.join("Cargo.lock");
        let dependencies = parted
            .file(root, &pinned)?
            .zip(std::fs::read_to_string(&pinned).ok())
            .map(|(before, after)| workspace::changed_dependencies(&before, &after));
        let base = Self::from_files(parted.revision, parted.commit, &files, dependencies, prepared)?;
        Ok(Self {
            folder: parted.prefix,
            ..base
        })
    }

    /// Returns the base that an archive contains; `None` if it contains none.
    pub(in crate::cli) fn brought(prepared: &Prepared) -> Result<Option<Self>, CliError> {
        let Some((base, files)) = prepared.source.base() else {
            return Ok(None);
        };
        // An archive has the limits of its base, but not its `Cargo.lock`.
        Self::from_files(
            base.revision.to_string(),
            base.commit.to_string(),
            &files,
            None,
            prepared,
        )
        .map(Some)
    }

    fn from_files(
        revision: String,
        commit: String,
        files: &BaseFiles,
        dependencies: Option<Vec<ChangedDependency>>,
        prepared: &Prepared,
    ) -> Result<Self, CliError> {
        let (_, lock_name) = prepared.lock();
        let shown = |name: &str| format!("{name} at {revision}");
        let lock = files.lock.as_ref();
        let lock = lock
            .map(|text| BaselineFile::parse(text.as_bytes(), &shown(&lock_name)))
            .transpose();
        // Only the built-in GPU profiles are known here: the base's budgets file describes its own additional ones.
        let builtin = Profiles::builtin()?;
        let known: Vec<_> = builtin.ids().collect();
        let budgets = files.budgets.as_ref();
        let budgets = budgets
            .map(|text| Budgets::parse(text.as_bytes(), &shown(&prepared.budgets_name), &known))
            .transpose();
        // If these files are broken at the base, a change that repairs them must not fail.
        let unreadable = [
            (SkippedCheck::Edits, budgets.as_ref().err().map(ToString::to_string)),
            (
                SkippedCheck::GrowthSinceBase,
                lock.as_ref().err().map(ToString::to_string),
            ),
        ];
        let skipped = |check, why| Skipped {
            check,
            model: None,
            why,
        };
        let unreadable = unreadable
            .into_iter()
            .filter_map(|(check, why)| why.map(|why| skipped(check, why.into())));
        let no_budgets = files.budgets.is_none().then(|| {
            let why = format!("there is no {} at {revision}", prepared.budgets_name);
            skipped(SkippedCheck::Edits, why.into())
        });
        Ok(Self {
            revision,
            commit,
            lock: lock.ok().flatten().unwrap_or_default(),
            from: BaselineFrom::Base,
            budgets: budgets.unwrap_or_default(),
            unreadable: unreadable.collect(),
            no_budgets,
            dependencies: dependencies.unwrap_or_default(),
            folder: String::new(),
            checkout: None,
        })
    }

    /// Returns the revision as the user named it.
    pub(in crate::cli) fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the merge base.
    pub(in crate::cli) fn commit(&self) -> &str {
        &self.commit
    }

    /// Returns the peaks of a run at the base; `None` if its baseline has no values of this estimator.
    pub(in crate::cli) fn peaks(&self, run: &Run, fingerprint: &str) -> Option<&Peaks> {
        let entry = self.lock.entry_for(run, fingerprint).ok()??;
        Some(&entry.peaks)
    }

    /// Returns the values of the base's own models if they were run.
    ///
    /// Growth is then judged against these values, and not against the baseline file.
    pub(in crate::cli) fn rebuilt(&self) -> Option<&BaselineFile> {
        (self.from == BaselineFrom::Rebuilt).then_some(&self.lock)
    }

    /// Adds the base to a judged report: the values of its runs at the base, and every limit that was edited since.
    ///
    /// A limit counts as edited if it changed in the budgets, or by hand in the baseline file. If `denies` names a GPU,
    /// each edit that allows more memory is a failure for that GPU. So is each part of the base that cannot be
    /// compared.
    pub(in crate::cli) fn tell(
        self,
        report: &mut Report,
        (budgets, file): (&Budgets, &str),
        (own_lock, lock_file): (&BaselineFile, &str),
        of_all: bool,
        denies: Option<&str>,
    ) {
        let settles = |model: Option<&str>| {
            let is_of = |run: &&Run| model.is_none_or(|model| *run.name() == *model || run.full_name() == model);
            let mut runs = report.runs.iter().filter(is_of);
            runs.any(|run| may_settle(run.burn.raw()))
        };
        let edited = self
            .budgets
            .as_ref()
            .map(|before| budgets.edited(before, file, &settles));
        let mut edited = edited.unwrap_or_default();
        if self.from == BaselineFrom::Base {
            edited.extend(edits(&self.lock, own_lock, report, lock_file));
        }
        // A model that was renamed or moved to another package is not compared with its old baseline.
        let gone = self.lock.gone(report).filter(|_| of_all).map(|key| Skipped {
            check: SkippedCheck::GrowthSinceBase,
            model: Some(key.full_name().into()),
            why: format!(
                "{} has a baseline for this model, but the model no longer exists",
                self.revision
            )
            .into(),
        });
        let gone: Vec<_> = gone.collect();
        // What cannot be compared is denied, too. Otherwise a renamed
        // model, or a base without limits, would allow anything.
        // See docs/design/edits.md.
        if let Some(gpu) = denies {
            let mut denied = edited.clone();
            if self.from == BaselineFrom::Base {
                // A larger accepted value is an edit, whatever its cause.
                denied.extend(worse(&self.lock, own_lock, report, lock_file));
            }
            let mut unknown = self.unreadable.clone();
            unknown.extend(self.no_budgets.clone());
            unknown.extend(gone.clone());
            unknown.extend(
                self.budgets
                    .as_ref()
                    .and_then(|before| on_other_profile(before, budgets, report)),
            );
            if self.from == BaselineFrom::Base {
                unknown.extend(own_lock.incomparable(&self.lock, report));
            }
            let denied = baseline::denied(&denied, &unknown, report, gpu);
            report.verdicts.extend(denied);
        }
        report.skipped.extend(self.unreadable);
        report.skipped.extend(self.no_budgets);
        if self.from == BaselineFrom::Rebuilt {
            report.skipped.extend(gone);
        }
        report.base = Some(Base {
            folder: self.folder.into(),
            revision: self.revision.into(),
            commit: self.commit.into(),
            edited,
            dependencies: self.dependencies,
        });
        if self.from == BaselineFrom::Base {
            // Only shown: the verdicts were made before.
            self.lock.compare(report, self.from);
        }
    }
}

/// Whether models for this version of Burn run steps until their memory settles, unless budgets.yaml has `steps`.
fn may_settle(burn: &str) -> bool {
    Version::parse(burn).is_ok_and(|version| (version.major, version.minor) >= (0, 22))
}

/// Returns the check that is skipped if this machine's GPU has another profile than with the budgets of the base. Limits
/// and values of the base are for the GPU under another id.
fn on_other_profile(before: &Budgets, own: &Budgets, report: &Report) -> Option<Skipped> {
    let (before, own) = (profiles_with(before).ok()?, profiles_with(own).ok()?);
    let mut measured = report.runs.iter().filter(|run| run.mode == Mode::Measure);
    measured.find_map(|run| {
        let of = |profiles: &Profiles| {
            let profile = profiles.find_by_name(run.gpu.name.raw(), run.gpu.total_bytes);
            profile.map_or_else(|| "none".to_owned(), |profile| profile.id.clone())
        };
        let (was, is) = (of(&before), of(&own));
        (was != is).then(|| Skipped {
            check: SkippedCheck::Growth,
            model: None,
            why: format!("the measured GPU has the profile `{is}`, and at the base `{was}`").into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::revisions;

    /// Returns the help for an unknown revision in a repository with these branches.
    fn told(asked: &str, local: &str, remote: &str, remotes: &str) -> String {
        revisions(asked, |arguments| {
            let answer = match arguments {
                ["remote"] => remotes,
                [.., "refs/heads"] => local,
                [.., "refs/remotes"] => remote,
                _ => "",
            };
            Some(answer.to_owned())
        })
    }

    #[test]
    fn a_revision_that_there_is_not_is_answered_with_those_that_there_are() {
        assert_eq!(
            told("origin/main", "topic\nmain\n", "", ""),
            "did you mean `main`?\nlocal branches: `topic`, `main`\nremote branches: none\ntags: none\nthis repository has no remote"
        );
        let upstream = told("origin/main", "topic\n", "upstream/HEAD\nupstream/main\n", "upstream\n");
        assert!(upstream.starts_with("did you mean `upstream/main`?\n"), "{upstream}");
        assert!(upstream.contains("\nremote branches: `upstream/main`\n"), "{upstream}");
        assert!(
            upstream.ends_with("there is no remote `origin`; remotes: `upstream`"),
            "{upstream}"
        );
        let fetched = told("origin/new", "", "origin/main\n", "origin\n");
        assert!(
            fetched.ends_with("run `git fetch` to get the current branches of `origin`"),
            "{fetched}"
        );
        let many: String = (0..9).map(|at| format!("branch-{at}\n")).collect();
        assert!(told("x", &many, "", "").contains("`branch-4`, 4 more\n"));
        // A name must not send control characters to the terminal.
        assert!(!told("x", "\u{1b}[2J\n", "", "").contains('\u{1b}'));
    }
}
