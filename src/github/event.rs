//! Which pull request a workflow was started for. Its event says so; a report never does, for anybody may have written it.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::GithubError;

/// GitHub cuts an event at 25 MB.
const MOST_BYTES: u64 = 32 << 20;

/// `owner/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

impl FromStr for Repository {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 100 && part.chars().all(allowed);
        match text.split_once('/') {
            Some((owner, name)) if is_part(owner) && is_part(name) => Ok(Self(text.to_owned())),
            _ => Err("a repository is OWNER/NAME".to_owned()),
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a workflow has in its environment.
#[derive(Debug, Default, Clone)]
pub struct Environment {
    /// `GITHUB_EVENT_NAME`
    pub name: Option<String>,
    /// `GITHUB_EVENT_PATH`
    pub path: Option<Utf8PathBuf>,
    /// `GITHUB_REPOSITORY`
    pub repository: Option<String>,
}

impl Environment {
    /// That of this process. What is set and empty is not set.
    #[must_use]
    pub fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            name: variable("GITHUB_EVENT_NAME"),
            path: variable("GITHUB_EVENT_PATH").map(Utf8PathBuf::from),
            repository: variable("GITHUB_REPOSITORY"),
        }
    }

    /// The repository of the workflow.
    ///
    /// # Errors
    /// There is none, or its name is none.
    pub fn repository(&self) -> Result<Repository, GithubError> {
        let name = self.repository.as_deref().ok_or(GithubError::NoRepository)?;
        name.parse().map_err(GithubError::Repository)
    }
}

/// Where to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// The repository of the pull request, not of its head.
    pub repository: Repository,
    /// Which one.
    pub event: Event,
}

/// How the pull request is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// By its number.
    Pull(u64),
    /// By its head: that of a workflow that another one follows.
    Head(Head),
}

/// The head of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The owner of its repository.
    pub owner: String,
    /// The number of its repository.
    pub repository: u64,
    /// Its branch.
    pub branch: String,
    /// Its commit.
    pub commit: String,
}

#[derive(Deserialize)]
struct PullRequestEvent {
    pull_request: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
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
    /// As the workflow's event says.
    ///
    /// # Errors
    /// There is no event, or it tells of no pull request.
    pub fn of_event(environment: &Environment) -> Result<Self, GithubError> {
        let name = environment.name.as_deref();
        let name = name.ok_or(GithubError::NoEvent("GITHUB_EVENT_NAME"))?;
        let path = environment.path.as_deref();
        let path = path.ok_or(GithubError::NoEvent("GITHUB_EVENT_PATH"))?;
        let event = match name {
            "pull_request" => {
                let PullRequestEvent { pull_request } = read(path, name)?;
                Event::Pull(pull_request.number)
            }
            "workflow_run" => of_run(read(path, name)?)?,
            other => return Err(GithubError::OtherEvent(harmless(other))),
        };
        Ok(Self {
            repository: environment.repository()?,
            event,
        })
    }
}

/// The pull requests that the event itself names are those of branches of this repository, and of others that have the same
/// branch: only one that is for this repository and has this head is meant. Of a fork there are none.
fn of_run(event: WorkflowRunEvent) -> Result<Event, GithubError> {
    let run = event.workflow_run;
    if run.event != "pull_request" {
        return Err(GithubError::OtherRun(harmless(&run.event)));
    }
    let is_meant = |pull: &&RunPull| pull.base.repo.id == event.repository.id && pull.head.sha == run.head_sha;
    let meant: Vec<_> = run.pull_requests.iter().filter(is_meant).collect();
    if let [pull] = meant[..] {
        return Ok(Event::Pull(pull.number));
    }
    if meant.len() > 1 {
        return Err(several(meant.iter().map(|pull| pull.number)));
    }
    let (Some(branch), Some(repository)) = (run.head_branch, run.head_repository) else {
        return Err(GithubError::OtherRun("a head that is no longer there".to_owned()));
    };
    Ok(Event::Head(Head {
        owner: repository.owner.login,
        repository: repository.id,
        branch,
        commit: run.head_sha,
    }))
}

/// Which of them is meant nobody can tell.
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
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|source| GithubError::EventInvalid {
        path: path.to_owned(),
        name: name.to_owned(),
        source,
    })
}

/// A text of somebody else, in a line of a message: nothing that moves a cursor or turns a line around.
pub(super) fn harmless(text: &str) -> String {
    const LONGEST: usize = 200;
    let shown = |character: char| match character {
        ' '..='~' => character,
        _ if character.is_alphanumeric() => character,
        _ => ' ',
    };
    let mut line: String = text.chars().take(LONGEST).map(shown).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
