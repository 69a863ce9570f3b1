//! Keeps one comment per label on a pull request: finds it again, updates it in place, and never leaves a second one.
//!
//! A comment is ours if it starts with the marker and its author is the user of the token. GitHub returns that user
//! only for a person's token. For the token of a workflow or an app, the author is `github-actions[bot]`, or the app
//! that the caller names. After a comment was created, its author is known in any case. So nothing changes another
//! user's comment that has our marker, and an app that nobody named still leaves only one comment.

use serde::Deserialize;
use serde_json::json;

use super::client::{ApiAnswer, ApiRequest, Client, PER_PAGE, RequestFailure};
use super::{GithubError, Label, Repository};

/// The app that posts comments, for tokens whose user GitHub does not return. Only apps have logins that end in
/// `[bot]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App(String);

/// The end of every app's login.
const BOT: &str = "[bot]";

impl Default for App {
    /// Returns the app that posts with a workflow's own token: `github-actions[bot]`.
    fn default() -> Self {
        Self(format!("github-actions{BOT}"))
    }
}

impl std::fmt::Display for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for App {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_suffix(BOT).unwrap_or(text);
        let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        match !name.is_empty() && name.len() <= 100 && name.chars().all(allowed) {
            true => Ok(Self(format!("{name}{BOT}"))),
            false => Err("expected an app's name as in its GitHub address: my-app or my-app[bot]".to_owned()),
        }
    }
}

/// The most tries to create or update a comment that somebody removes meanwhile, or whose creation is uncertain.
const ROUNDS: u32 = 4;

/// The result of posting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// A comment was created, with this address.
    Created(String),
    /// The comment with this address was updated.
    Updated(String),
    /// The comment with this address already has the text.
    Same(String),
    /// There is nothing to say and no comment to update.
    Nothing,
}

#[derive(Debug, Clone, Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    html_url: String,
    body: Option<String>,
    /// Absent if the account was deleted.
    user: Option<User>,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    id: u64,
    login: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The author of comments that are posted with the token.
#[derive(Debug, Clone, Copy)]
enum Author<'a> {
    /// A user, by ID: a login can pass to another user.
    User(u64),
    /// An app.
    App(&'a App),
}

impl Author<'_> {
    fn is_of(self, comment: &Comment) -> bool {
        comment.user.as_ref().is_some_and(|user| match self {
            Self::User(id) => user.id == id,
            Self::App(app) => user.kind == "Bot" && user.login.eq_ignore_ascii_case(&app.0),
        })
    }
}

struct Conversation<'a> {
    client: &'a Client,
    place: CommentPlace<'a>,
}

/// The place of a comment: the pull request, the label, and the app for tokens whose user GitHub does not return.
#[derive(Debug, Clone, Copy)]
pub struct CommentPlace<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// The number of the pull request.
    pub pull: u64,
    /// The label, which tells several comments apart.
    pub label: &'a Label,
    /// The author, if the token belongs to an app or a workflow.
    pub app: &'a App,
}

/// Creates or updates the comment on the pull request.
///
/// If the body has nothing to say, it updates an existing comment but creates none.
///
/// # Errors
/// GitHub cannot be reached, or refuses a request.
pub fn post(
    client: &Client,
    place: CommentPlace<'_>,
    body: &str,
    has_something_to_say: bool,
) -> Result<Posted, GithubError> {
    let conversation = Conversation { client, place };
    let author = conversation.author()?;
    // Each round begins with a new list: comments may come and go meanwhile.
    let text = place.label.mark(body);
    for _ in 0..ROUNDS {
        let own = conversation.own(author)?;
        // Only a new comment needs a reason. An existing one would be wrong if it stayed as it is.
        let Some(first) = own.first() else {
            if !has_something_to_say {
                return Ok(Posted::Nothing);
            }
            // The connection broke, but the comment is there. The next round updates it.
            let Some(created) = conversation.create(&text, author)? else {
                continue;
            };
            match conversation.settle(created, &text)? {
                Some(posted) => return Ok(posted),
                None => continue,
            }
        };
        // Two runs may have posted at the same time, and one may have stopped before it removed its comment.
        for further in &own[1..] {
            conversation.remove(further.id)?;
        }
        if let Some(posted) = conversation.update(first, &text)? {
            return Ok(posted);
        }
    }
    Err(GithubError::Unreachable {
        what: COMMENT,
        why: "somebody removes the comment each time it is created".to_owned(),
    })
}

const COMMENT: &str = "comment on the pull request";

impl<'a> Conversation<'a> {
    fn comments(&self) -> String {
        format!("/repos/{}/issues/{}/comments", self.place.repository, self.place.pull)
    }

    fn comment(&self, id: u64) -> String {
        self.client
            .url(&format!("/repos/{}/issues/comments/{id}", self.place.repository))
    }

    /// Returns the author of comments. GitHub refuses this request with 403 (some servers: 404) for apps and workflows.
    fn author(&self) -> Result<Author<'a>, GithubError> {
        let what = "find the user of the token";
        let url = self.client.url("/user");
        let answer = self
            .client
            .ask(what, ApiRequest::Get(&[]), &url)
            .map_err(|failure| certain(what, failure))?;
        // GitHub does not say which app it is. So the caller names it. See docs/design/comments.md.
        if matches!(answer.status, 403 | 404) {
            return Ok(Author::App(self.place.app));
        }
        if !answer.is_success() {
            return Err(self.client.refusal(what, &answer));
        }
        let user: User = self.read(what, &answer)?;
        Ok(Author::User(user.id))
    }

    /// Returns our comments with this label, the oldest first.
    fn own(&self, author: Author<'_>) -> Result<Vec<Comment>, GithubError> {
        let query = [("per_page", PER_PAGE)];
        let all = self.client.list("read the comments", &self.comments(), &query)?;
        let mut own: Vec<Comment> = all
            .into_iter()
            .filter(|comment: &Comment| {
                author.is_of(comment) && self.place.label.is_in(comment.body.as_deref().unwrap_or(""))
            })
            .collect();
        // Two runs at the same time must keep the same comment. Later comments have larger ids.
        own.sort_by_key(|comment| comment.id);
        own.dedup_by_key(|comment| comment.id);
        Ok(own)
    }

    /// Creates the comment. If the connection breaks, it is unknown whether GitHub created the comment.
    ///
    /// So it looks for one of our comments before another try, and returns `None` if there is one.
    fn create(&self, text: &str, author: Author<'_>) -> Result<Option<Comment>, GithubError> {
        let url = self.client.url(&self.comments());
        let body = json!({ "body": text });
        let mut tried = 0;
        loop {
            tried += 1;
            match self.client.ask(COMMENT, ApiRequest::Post(&body), &url) {
                Ok(answer) if answer.is_success() => return self.read(COMMENT, &answer).map(Some),
                Ok(answer) => return Err(self.refusal(&answer)),
                Err(RequestFailure::Certain(error)) => return Err(error),
                Err(RequestFailure::Uncertain(why)) if tried >= ROUNDS || !self.client.pause(tried) => {
                    return Err(GithubError::Unreachable { what: COMMENT, why });
                }
                Err(RequestFailure::Uncertain(_)) => {}
            }
            if !self.own(author)?.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Looks for a comment that another run created at the same time. The older of two comments stays: whoever created
    /// the newer one removes it and updates the older one. Returns `None` if the older one is gone meanwhile.
    fn settle(&self, created: Comment, text: &str) -> Result<Option<Posted>, GithubError> {
        let Some(user) = &created.user else {
            return Ok(Some(Posted::Created(created.html_url)));
        };
        // GitHub's answer names the author. So even the token
        // of an app that nobody named leaves only one comment.
        let own = self.own(Author::User(user.id))?;
        match own.first() {
            Some(oldest) if oldest.id < created.id => {
                self.remove(created.id)?;
                self.update(oldest, text)
            }
            _ => Ok(Some(Posted::Created(created.html_url))),
        }
    }

    /// Updates a comment. Returns `None` if it is gone.
    fn update(&self, comment: &Comment, text: &str) -> Result<Option<Posted>, GithubError> {
        // A request that changes nothing is not sent: a second
        // run with the same report leaves the comment alone.
        if is_same(comment.body.as_deref().unwrap_or(""), text) {
            return Ok(Some(Posted::Same(comment.html_url.clone())));
        }
        let body = json!({ "body": text });
        let answer = self.ask(ApiRequest::Patch(&body), &self.comment(comment.id))?;
        match answer.status {
            // Somebody deleted it since it was listed. `post` then creates a new one.
            404 | 410 => Ok(None),
            _ if answer.is_success() => Ok(Some(Posted::Updated(comment.html_url.clone()))),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn remove(&self, id: u64) -> Result<(), GithubError> {
        let answer = self.ask(ApiRequest::Delete, &self.comment(id))?;
        // The comment is gone already, which is the goal.
        if answer.is_success() || matches!(answer.status, 404 | 410) {
            return Ok(());
        }
        Err(self.refusal(&answer))
    }

    fn ask(&self, ask: ApiRequest<'_>, url: &str) -> Result<ApiAnswer, GithubError> {
        self.client
            .ask(COMMENT, ask, url)
            .map_err(|failure| certain(COMMENT, failure))
    }

    fn refusal(&self, answer: &ApiAnswer) -> GithubError {
        if matches!(answer.status, 403 | 422 | 423) && answer.message().to_ascii_lowercase().contains("is locked") {
            return GithubError::Locked(self.place.pull);
        }
        self.client.refusal(COMMENT, answer)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, what: &'static str, answer: &ApiAnswer) -> Result<T, GithubError> {
        answer.json().map_err(|error| GithubError::Unreachable {
            what,
            why: format!(
                "GitHub's answer has an unexpected format: {}",
                self.client.shown(&error.to_string())
            ),
        })
    }
}

fn certain(what: &'static str, failure: RequestFailure) -> GithubError {
    match failure {
        RequestFailure::Certain(error) => error,
        RequestFailure::Uncertain(why) => GithubError::Unreachable { what, why },
    }
}

/// Whether a comment has the text. GitHub keeps a browser's CR LF, and removes white space at the end.
fn is_same(there: &str, text: &str) -> bool {
    let lines = |text: &str| text.trim_end().replace("\r\n", "\n");
    lines(there) == lines(text)
}
