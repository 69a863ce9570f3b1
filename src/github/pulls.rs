//! Finds a pull request by its head. A `workflow_run` event lists the pull request only if it comes from the same
//! repository.

use serde::Deserialize;

use super::client::{Client, PER_PAGE};
use super::event::several;
use super::{GithubError, PullRequestEvent, Where};

#[derive(Deserialize)]
struct Pull {
    number: u64,
    head: BranchSide,
}

#[derive(Deserialize)]
struct BranchSide {
    sha: String,
    /// Absent if the fork was deleted.
    repo: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    id: u64,
}

/// Returns the number of the open pull request.
///
/// Returns `None` if it was closed, or if it has a newer commit, whose own workflow will comment.
///
/// # Errors
/// The request failed, or several pull requests match.
pub fn find(client: &Client, place: &Where) -> Result<Option<u64>, GithubError> {
    let head = match &place.event {
        PullRequestEvent::Pull(number) => return Ok(Some(*number)),
        PullRequestEvent::Head(head) => head,
    };
    let path = format!("/repos/{}/pulls", place.repository);
    let name = format!("{}:{}", head.owner.raw(), head.branch.raw());
    let query = [("state", "open"), ("head", name.as_str()), ("per_page", PER_PAGE)];
    let mut pulls: Vec<Pull> = client.list("read the open pull requests", &path, &query)?;
    // The query has only owner and branch. Only this commit of this repository is the one that was checked.
    pulls.retain(|pull| {
        pull.head.sha == head.commit && pull.head.repo.as_ref().is_some_and(|repo| repo.id == head.repository)
    });
    match &pulls[..] {
        [] => Ok(None),
        [pull] => Ok(Some(pull.number)),
        _ => Err(several(pulls.iter().map(|pull| pull.number))),
    }
}
