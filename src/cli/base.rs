//! What a change is compared with: the budgets and the baseline of another revision, or its models themselves.

mod rebuild;
mod worktree;

use camino::{Utf8Path, Utf8PathBuf};
use miette::Diagnostic;
use thiserror::Error;

use super::Stopped;
use super::pipeline::Prepared;
use super::source::Source;
use crate::budget::{self, Budgets, Lock, edits, worse};
use crate::gpu::Profiles;
use crate::names::{near, quoted};
use crate::report::{Base, BaselineFrom, ChangedDependency, Report, Skipped};
use crate::workspace;

/// Why there is no base.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum BaseError {
    /// Nothing is known of revisions here.
    #[error("--base needs a git checkout: {0} is none")]
    #[diagnostic(
        code(base::no_git),
        help("an archive has no revisions: use --base where it is built")
    )]
    NoGit(Utf8PathBuf),
    /// It looks like an option.
    #[error("`{0}` is no revision")]
    #[diagnostic(
        code(base::no_revision),
        help("name a branch, a tag or a commit: --base origin/main")
    )]
    NoRevision(String),
    /// There is no such revision.
    #[error("there is no revision `{revision}` here")]
    #[diagnostic(code(base::no_revision))]
    Unknown {
        revision: String,
        #[help]
        help: String,
    },
    /// The two have no commit in common.
    #[error("`{revision}` and what is checked out have no commit in common")]
    #[diagnostic(code(base::no_merge_base))]
    Unrelated {
        revision: String,
        #[help]
        help: String,
    },
    /// A tag and a branch have the same name.
    #[error("{revision} is a tag and a branch, of different commits")]
    #[diagnostic(code(base::ambiguous))]
    Ambiguous {
        revision: String,
        #[help]
        help: String,
    },
    /// A file of the base cannot be had.
    #[error("cannot read {path} at {revision}: {why}")]
    #[diagnostic(
        code(base::file),
        help("keep the file inside the repository, and fetch the base with its files (no partial clone)")
    )]
    File {
        path: Utf8PathBuf,
        revision: String,
        why: String,
    },
    /// There is no room for a checkout of its own.
    #[error("cannot use {path}")]
    #[diagnostic(code(base::folder))]
    Folder { path: Utf8PathBuf, source: std::io::Error },
    /// The commit cannot be checked out.
    #[error("{commit} cannot be checked out to be rebuilt\n{why}")]
    #[diagnostic(code(base::checkout))]
    Checkout { commit: String, why: String },
    /// The commit's submodules cannot be had.
    #[error("the base's submodules cannot be checked out\n{0}")]
    #[diagnostic(
        code(base::submodules),
        help(
            "--rebuild needs them, as `git submodule update --init` gets them; without --rebuild the base's budgets.lock is enough"
        )
    )]
    Submodules(String),
    /// What is checked out there is no workspace.
    #[error("{revision} cannot be rebuilt\n{why}")]
    #[diagnostic(code(base::workspace))]
    Unreadable {
        revision: String,
        why: String,
        #[help]
        help: Option<String>,
    },
}

impl BaseError {
    /// Whether the machine is at fault, rather than what was asked for.
    pub(super) const fn is_by_the_machine(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }
}

/// The commit that a revision and what is checked out have in common.
pub(super) struct Parted {
    pub(super) revision: String,
    pub(super) commit: String,
    /// The path from the repository's top to the workspace.
    prefix: String,
}

/// What the base says of limits, as texts; absent where there is no such file.
#[derive(Debug, Default)]
pub(super) struct BaseFiles {
    pub(super) budgets: Option<String>,
    pub(super) lock: Option<String>,
}

impl Parted {
    /// Finds it in the repository that a folder is in.
    pub(super) fn find(revision: &str, root: &Utf8Path) -> Result<Self, Stopped> {
        // It comes from the command line, and never must be taken for an option of git's.
        if revision.is_empty() || revision.starts_with('-') {
            return Err(BaseError::NoRevision(revision.to_owned()).into());
        }
        let git = |arguments: &[&str]| super::source::git(root, arguments).map(|text| text.trim().to_owned());
        let Some(prefix) = git(&["rev-parse", "--show-prefix"]) else {
            return Err(BaseError::NoGit(root.to_owned()).into());
        };
        let is_shallow = git(&["rev-parse", "--is-shallow-repository"]).as_deref() == Some("true");
        let help = |otherwise: &str| {
            match is_shallow {
            true => "this is a shallow clone: fetch its history (`fetch-depth: 0` of actions/checkout, or `git fetch --unshallow`)".to_owned(),
            false => otherwise.to_owned(),
        }
        };
        // Git takes a tag before a branch of that name, and who may push a tag need not be who may push to the branch.
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
                    "delete the tag, or write the whole name: refs/remotes/{revision}, refs/heads/{revision}"
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
        let Some(commit) = git(&["merge-base", "--", revision, "HEAD"]) else {
            return Err(BaseError::Unrelated {
                revision: revision.to_owned(),
                help: help("name a branch that this one parted from"),
            }
            .into());
        };
        Ok(Self {
            revision: revision.to_owned(),
            commit,
            prefix,
        })
    }

    /// A file as it was there; nothing where there was none.
    ///
    /// # Errors
    ///
    /// A file outside of the repository, or one that git does not hand out: a commit that lacks its files, as in a partial clone.
    pub(super) fn file(&self, root: &Utf8Path, path: &Utf8Path) -> Result<Option<String>, BaseError> {
        let error = |why: &str| BaseError::File {
            path: path.to_owned(),
            revision: self.revision.clone(),
            why: why.to_owned(),
        };
        // The folder may be written with `..`, or be a link. The file itself need not be there any more.
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
        let name = path.file_name().ok_or_else(|| error("it has no name"))?;
        let within = folder.strip_prefix(top);
        let within = within.map_err(|_| error("it is outside of the repository"))?.join(name);
        let git = |arguments: &[&str]| super::source::git_or_why(top, arguments).map_err(|why| error(&why));
        let listed = git(&[
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

/// Revisions of a kind that are named one by one.
const NAMED: usize = 5;

/// Which revisions there are instead of one that there is not: the nearest, and the latest of each kind.
fn revisions(asked: &str, git: impl Fn(&[&str]) -> Option<String>) -> String {
    let of = |kind: &str| -> Vec<String> {
        let arguments = [
            "for-each-ref",
            "--sort=-committerdate",
            "--format=%(refname:strip=2)",
            kind,
        ];
        let all = git(&arguments).unwrap_or_default();
        // Where a remote's branches begin is no branch of its own.
        let names = all.lines().filter(|name| !name.ends_with("/HEAD"));
        names.map(str::to_owned).collect()
    };
    let kinds = [
        ("local branches", of("refs/heads")),
        ("remote branches", of("refs/remotes")),
        ("tags", of("refs/tags")),
    ];
    let all = || kinds.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
    // `origin/main` is most likely `main`, or that of another remote.
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
            true => format!("run `git fetch` to get the branches that {} has now", quoted(remote)),
            false if remotes.trim().is_empty() => "this repository has no remote".to_owned(),
            false => {
                let names: Vec<_> = remotes.lines().map(quoted).collect();
                format!("there is no remote {}; remotes: {}", quoted(remote), names.join(", "))
            }
        });
    }
    lines.join("\n")
}

/// Another revision, as far as a check needs it.
pub(super) struct Against {
    revision: String,
    commit: String,
    /// Its file of the baseline, or what was made of its own models.
    lock: Lock,
    from: BaselineFrom,
    budgets: Option<Budgets>,
    /// What cannot be told, since its files cannot be read.
    unreadable: Vec<Skipped>,
    /// That there were no budgets, so that none is edited.
    no_budgets: Option<Skipped>,
    dependencies: Vec<ChangedDependency>,
}

impl Against {
    /// Reads budgets and baseline of the commit that this one and the revision have in common.
    /// A file of the baseline is not looked at where the base is to be rebuilt.
    pub(super) fn read(revision: &str, prepared: &Prepared, rebuilds: bool) -> Result<Self, Stopped> {
        let root = prepared.source.root();
        if !matches!(prepared.source, Source::Workspace(_)) {
            return Err(BaseError::NoGit(root.to_owned()).into());
        }
        let parted = Parted::find(revision, root)?;
        let files = BaseFiles {
            budgets: parted.file(root, &prepared.budgets_path)?,
            lock: parted.file(root, &prepared.lock().0)?.filter(|_| !rebuilds),
        };
        let pinned = root.join("Cargo.lock");
        let dependencies = parted
            .file(root, &pinned)?
            .zip(std::fs::read_to_string(&pinned).ok())
            .map(|(before, after)| workspace::changed_dependencies(&before, &after));
        Self::of(parted.revision, parted.commit, &files, dependencies, prepared)
    }

    /// The base that an archive brings; nothing where it brings none.
    pub(super) fn brought(prepared: &Prepared) -> Result<Option<Self>, Stopped> {
        let Some((base, files)) = prepared.source.base() else {
            return Ok(None);
        };
        Self::of(base.revision, base.commit, &files, None, prepared).map(Some)
    }

    fn of(
        revision: String,
        commit: String,
        files: &BaseFiles,
        dependencies: Option<Vec<ChangedDependency>>,
        prepared: &Prepared,
    ) -> Result<Self, Stopped> {
        let (_, lock_name) = prepared.lock();
        let shown = |name: &str| format!("{name} at {revision}");
        let lock = files.lock.as_ref();
        let lock = lock
            .map(|text| Lock::parse(text.as_bytes(), &shown(&lock_name)))
            .transpose();
        // Without the GPUs that this side's file describes: that one describes its own.
        let builtin = Profiles::builtin()?;
        let known: Vec<_> = builtin.ids().collect();
        let budgets = files.budgets.as_ref();
        let budgets = budgets
            .map(|text| Budgets::parse(text.as_bytes(), &shown(&prepared.budgets_name), &known))
            .transpose();
        // A change that mends them is not to fail for what they were.
        let unreadable = [
            ("edits of limits", budgets.as_ref().err().map(ToString::to_string)),
            (
                "the change since the base",
                lock.as_ref().err().map(ToString::to_string),
            ),
        ];
        let skipped = |what: &str, why: String| Skipped {
            what: what.to_owned(),
            why,
        };
        let unreadable = unreadable
            .into_iter()
            .filter_map(|(what, why)| why.map(|why| skipped(what, why)));
        let no_budgets = files.budgets.is_none().then(|| {
            let why = format!("there is no {} at {revision}", prepared.budgets_name);
            skipped("edits of limits", why)
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
        })
    }

    /// The revision as it was named.
    pub(super) fn revision(&self) -> &str {
        &self.revision
    }

    /// What the base's own models turned out to need, where they were run: then growth is judged by that, rather than by
    /// what is written down.
    pub(super) fn rebuilt(&self) -> Option<&Lock> {
        (self.from == BaselineFrom::Rebuilt).then_some(&self.lock)
    }

    /// Puts into a report, once it is judged, what its runs were at the base, and every limit that was edited since, in the
    /// file of budgets and by hand in that of the baseline. Where edits are denied, for this GPU, those that let more through are
    /// failures.
    pub(super) fn tell(
        self,
        report: &mut Report,
        (budgets, file): (&Budgets, &str),
        (own_lock, lock_file): (&Lock, &str),
        of_all: bool,
        denies: Option<&str>,
    ) {
        let edited = self.budgets.map(|before| budgets.edited(&before, file));
        let mut edited = edited.unwrap_or_default();
        if self.from == BaselineFrom::Base {
            edited.extend(edits(&self.lock, own_lock, report, lock_file));
        }
        // A model that has another name, or is in another package, is compared with nothing.
        let gone = self.lock.gone(report).filter(|_| of_all).map(|key| Skipped {
            what: format!("growth of {}/{}", key.package, key.model),
            why: format!("{} knows it, and there is no such model any more", self.revision),
        });
        let gone: Vec<_> = gone.collect();
        if let Some(gpu) = denies {
            let mut denied = edited.clone();
            if self.from == BaselineFrom::Base {
                denied.extend(worse(&self.lock, own_lock, lock_file));
            }
            let mut unknown = self.unreadable.clone();
            unknown.extend(self.no_budgets.clone());
            unknown.extend(gone.clone());
            if self.from == BaselineFrom::Base {
                unknown.extend(own_lock.incomparable(&self.lock, report));
            }
            let denied = budget::denied(&denied, &unknown, report, gpu);
            report.verdicts.extend(denied);
        }
        report.skipped.extend(self.unreadable);
        report.skipped.extend(self.no_budgets);
        if self.from == BaselineFrom::Rebuilt {
            report.skipped.extend(gone);
        }
        report.base = Some(Base {
            revision: self.revision,
            commit: self.commit,
            edited,
            dependencies: self.dependencies,
        });
        if self.from == BaselineFrom::Base {
            self.lock.compare(report, self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::revisions;

    /// What is said of a revision that there is not, in a repository with these branches.
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
            fetched.ends_with("run `git fetch` to get the branches that `origin` has now"),
            "{fetched}"
        );
        let many: String = (0..9).map(|at| format!("branch-{at}\n")).collect();
        assert!(told("x", &many, "", "").contains("`branch-4`, 4 more\n"));
        // A name can steer no terminal.
        assert!(!told("x", "\u{1b}[2J\n", "", "").contains('\u{1b}'));
    }
}
