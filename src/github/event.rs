//! Finds the pull request that a workflow runs for. It reads the event and never the report, because anybody may have
//! written the report.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::GithubError;
use crate::untrusted::{Foreign, named};

/// The most bytes to read of an event. GitHub limits events to 25 MB.
const MOST_BYTES: u64 = 32 << 20;

/// The name of a repository: `owner/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

impl FromStr for Repository {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        // The name becomes part of an address, where `..` would lead to another one.
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 100 && part.chars().all(allowed);
        match text.split_once('/') {
            Some((owner, name)) if is_part(owner) && is_part(name) => Ok(Self(text.to_owned())),
            _ => Err("expected OWNER/NAME".to_owned()),
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The environment variables of a workflow.
#[derive(Debug, Default, Clone)]
pub struct Environment {
    /// The value of `GITHUB_EVENT_NAME`.
    pub name: Option<String>,
    /// The value of `GITHUB_EVENT_PATH`.
    pub path: Option<Utf8PathBuf>,
    /// The value of `GITHUB_REPOSITORY`.
    pub repository: Option<String>,
}

impl Environment {
    /// Reads the environment of this process. An empty variable counts as not set.
    #[must_use]
    pub fn from_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            name: variable("GITHUB_EVENT_NAME"),
            path: variable("GITHUB_EVENT_PATH").map(Utf8PathBuf::from),
            repository: variable("GITHUB_REPOSITORY"),
        }
    }

    /// Returns the repository of the workflow.
    ///
    /// # Errors
    /// `GITHUB_REPOSITORY` is not set or not valid.
    pub fn repository(&self) -> Result<Repository, GithubError> {
        let name = self.repository.as_deref().ok_or(GithubError::NoRepository)?;
        name.parse().map_err(GithubError::Repository)
    }
}

/// The repository and pull request to comment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// The repository that has the pull request, which may not be the one of its head.
    pub repository: Repository,
    /// The pull request.
    pub event: PullRequestEvent,
}

/// The pull request, by number or by head commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullRequestEvent {
    /// The number of the pull request.
    Pull(u64),
    /// The head of the pull request: what is known of the run that triggered a `workflow_run` workflow.
    Head(HeadCommit),
}

/// The head commit of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadCommit {
    /// The owner of the head's repository.
    pub owner: Foreign,
    /// The ID of the head's repository.
    pub repository: u64,
    /// The branch.
    pub branch: Foreign,
    /// The commit hash.
    pub commit: Foreign,
}

#[derive(Deserialize)]
struct PullRequestPayload {
    pull_request: EventNumber,
}

#[derive(Deserialize)]
struct EventNumber {
    number: u64,
}

#[derive(Deserialize)]
struct WorkflowRunEvent {
    workflow_run: WorkflowRun,
    repository: Identified,
}

#[derive(Deserialize)]
struct WorkflowRun {
    event: String,
    head_sha: String,
    head_branch: Option<String>,
    head_repository: Option<HeadRepository>,
    #[serde(default)]
    pull_requests: Vec<RunPull>,
}

#[derive(Deserialize)]
struct HeadRepository {
    id: u64,
    owner: Owner,
}

#[derive(Deserialize)]
struct Owner {
    login: String,
}

#[derive(Deserialize)]
struct RunPull {
    number: u64,
    head: RunSide,
    base: RunSide,
}

#[derive(Deserialize)]
struct RunSide {
    sha: String,
    repo: Identified,
}

#[derive(Deserialize)]
struct Identified {
    id: u64,
}

impl Where {
    /// Reads the place to comment on from the workflow's event.
    ///
    /// # Errors
    /// There is no event, or it has no pull request.
    pub fn from_event(environment: &Environment) -> Result<Self, GithubError> {
        let name = environment.name.as_deref();
        let name = name.ok_or(GithubError::NoEvent("GITHUB_EVENT_NAME"))?;
        let path = environment.path.as_deref();
        let path = path.ok_or(GithubError::NoEvent("GITHUB_EVENT_PATH"))?;
        let event = match name {
            "pull_request" => {
                let PullRequestPayload { pull_request } = read(path, name)?;
                PullRequestEvent::Pull(pull_request.number)
            }
            // The token of a fork's own run can only read, so a
            // workflow of the main branch comments after it.
            // See docs/design/workflows.md.
            "workflow_run" => of_run(read(path, name)?)?,
            other => return Err(GithubError::OtherEvent(named(other))),
        };
        Ok(Self {
            repository: environment.repository()?,
            event,
        })
    }
}

/// Returns the pull request of a `workflow_run` event.
///
/// The event lists pull requests of this repository's branches, and of other repositories with the same branch. Only a
/// pull request to this repository counts whose head has the commit and the repository of the run. For a fork, the list
/// is empty, so the head identifies the pull request.
fn of_run(event: WorkflowRunEvent) -> Result<PullRequestEvent, GithubError> {
    let run = event.workflow_run;
    if run.event != "pull_request" {
        return Err(GithubError::OtherRun(format!("the event {}", named(&run.event))));
    }
    // The numbers of other repositories mean other pull requests here.
    let is_meant = |pull: &&RunPull| {
        // A fork may contain the same commit as a branch of this repository.
        let from = run.head_repository.as_ref().map(|repository| repository.id);
        pull.base.repo.id == event.repository.id && pull.head.sha == run.head_sha && Some(pull.head.repo.id) == from
    };
    let meant: Vec<_> = run.pull_requests.iter().filter(is_meant).collect();
    if let [pull] = meant[..] {
        return Ok(PullRequestEvent::Pull(pull.number));
    }
    if meant.len() > 1 {
        return Err(several(meant.iter().map(|pull| pull.number)));
    }
    // For a fork, the event names no pull request. Its head is what GitHub can be asked for.
    let (Some(branch), Some(repository)) = (run.head_branch, run.head_repository) else {
        return Err(GithubError::OtherRun(
            "a branch or repository that no longer exists".to_owned(),
        ));
    };
    Ok(PullRequestEvent::Head(HeadCommit {
        owner: repository.owner.login.into(),
        repository: repository.id,
        branch: branch.into(),
        commit: run.head_sha.into(),
    }))
}

/// Makes the error for several matching pull requests, from their numbers.
pub(super) fn several(numbers: impl Iterator<Item = u64>) -> GithubError {
    let numbers: Vec<_> = numbers.map(|number| format!("#{number}")).collect();
    GithubError::SeveralPulls(numbers.join(", "))
}

fn read<T: DeserializeOwned>(path: &Utf8Path, name: &str) -> Result<T, GithubError> {
    let io = |source| GithubError::EventFile {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    // A longer event is cut, and is then not valid JSON.
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|source| GithubError::EventInvalid {
        path: path.to_owned(),
        name: name.to_owned(),
        source,
    })
}
