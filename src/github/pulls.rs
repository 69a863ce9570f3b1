//! Finds a pull request by its head: GitHub names it in the event of a workflow only where it is of the same repository.

use serde::Deserialize;

use super::client::{Client, PER_PAGE};
use super::event::several;
use super::{Event, GithubError, Where};

#[derive(Deserialize)]
struct Pull {
    number: u64,
    head: Side,
}

#[derive(Deserialize)]
struct Side {
    sha: String,
    /// Absent where the fork was deleted.
    repo: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    id: u64,
}

/// The number of the pull request; `None` where it was closed or has a newer commit by now, whose own workflow will tell.
///
/// # Errors
/// GitHub does not tell, or there are several.
pub fn find(client: &Client, place: &Where) -> Result<Option<u64>, GithubError> {
    let head = match &place.event {
        Event::Pull(number) => return Ok(Some(*number)),
        Event::Head(head) => head,
    };
    let path = format!("/repos/{}/pulls", place.repository);
    let name = format!("{}:{}", head.owner, head.branch);
    let query = [("state", "open"), ("head", name.as_str()), ("per_page", PER_PAGE)];
    let mut pulls: Vec<Pull> = client.list("read the open pull requests", &path, &query)?;
    pulls.retain(|pull| {
        pull.head.sha == head.commit && pull.head.repo.as_ref().is_some_and(|repo| repo.id == head.repository)
    });
    match &pulls[..] {
        [] => Ok(None),
        [pull] => Ok(Some(pull.number)),
        _ => Err(several(pulls.iter().map(|pull| pull.number))),
    }
}
