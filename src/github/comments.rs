//! One comment a label on a pull request: found again, written anew in place, and never more than one.
//!
//! A comment is ours where its author is the token's own and it begins with the marker. Who the token's own is, GitHub tells
//! a person's token; that of a workflow or of an app may not ask. For those it is `github-actions[bot]`, as workflows post by,
//! or the app that the caller names; and after a comment was made its author is known whoever that is. So a stranger's comment
//! with our marker in it is never touched, and an app that nobody named still leaves one comment.

use serde::Deserialize;
use serde_json::json;

use super::client::{Answer, Ask, Client, Failure, PER_PAGE};
use super::{GithubError, Label, Repository};

/// The app that comments are posted as, where that is not the token's to tell. Nobody else may have a login that ends so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App(String);

/// What the logins of apps end with.
const BOT: &str = "[bot]";

impl Default for App {
    /// Whom a workflow's own token posts as.
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
            false => Err("expected an app's name as its address has it: my-app or my-app[bot]".to_owned()),
        }
    }
}

/// How often a comment is made anew that somebody removes meanwhile, or that may not have arrived.
const ROUNDS: u32 = 4;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// A comment was made; its address.
    Created(String),
    /// The comment was written anew; its address.
    Updated(String),
    /// It says that already; its address.
    Same(String),
    /// There is nothing to say, and no comment.
    Nothing,
}

#[derive(Debug, Clone, Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    html_url: String,
    body: Option<String>,
    /// Absent where the account was deleted.
    user: Option<User>,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    id: u64,
    login: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Whom the token posts as.
#[derive(Debug, Clone, Copy)]
enum Author<'a> {
    /// This user, by number: a login can change hands.
    User(u64),
    /// This app.
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
    place: Place<'a>,
}

/// Which comment is meant: on which pull request, and whose it is where the token does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// The pull request's number.
    pub pull: u64,
    /// Which of several comments.
    pub label: &'a Label,
    /// Who posts, where the token is an app's.
    pub app: &'a App,
}

/// Puts the comment on the pull request. What has nothing to say makes none, and keeps one that is there up to date.
///
/// # Errors
/// GitHub cannot be reached, or refuses.
pub fn post(client: &Client, place: Place<'_>, body: &str, has_something_to_say: bool) -> Result<Posted, GithubError> {
    let conversation = Conversation { client, place };
    let author = conversation.author()?;
    let text = place.label.mark(body);
    for _ in 0..ROUNDS {
        let own = conversation.own(author)?;
        let Some(first) = own.first() else {
            if !has_something_to_say {
                return Ok(Posted::Nothing);
            }
            let Some(created) = conversation.create(&text, author)? else {
                continue;
            };
            match conversation.settle(created, &text)? {
                Some(posted) => return Ok(posted),
                None => continue,
            }
        };
        // Two posters at once, one of which did not come to its end.
        for further in &own[1..] {
            conversation.remove(further.id)?;
        }
        if let Some(posted) = conversation.update(first, &text)? {
            return Ok(posted);
        }
    }
    Err(GithubError::Unreachable {
        what: COMMENT,
        why: "it is removed as often as it is made".to_owned(),
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

    /// GitHub refuses this question to apps, workflows among them: 403, and by some servers 404.
    fn author(&self) -> Result<Author<'a>, GithubError> {
        let what = "ask who the token is of";
        let url = self.client.url("/user");
        let answer = self
            .client
            .ask(what, Ask::Get(&[]), &url)
            .map_err(|failure| certain(what, failure))?;
        if matches!(answer.status, 403 | 404) {
            return Ok(Author::App(self.place.app));
        }
        if !answer.is_success() {
            return Err(self.client.refusal(what, &answer));
        }
        let user: User = self.read(what, &answer)?;
        Ok(Author::User(user.id))
    }

    /// The comments that are ours, the oldest first.
    fn own(&self, author: Author<'_>) -> Result<Vec<Comment>, GithubError> {
        let query = [("per_page", PER_PAGE)];
        let all = self.client.list("read the comments", &self.comments(), &query)?;
        let mut own: Vec<Comment> = all
            .into_iter()
            .filter(|comment: &Comment| {
                author.is_of(comment) && self.place.label.is_in(comment.body.as_deref().unwrap_or(""))
            })
            .collect();
        own.sort_by_key(|comment| comment.id);
        own.dedup_by_key(|comment| comment.id);
        Ok(own)
    }

    /// Makes the comment. Where the connection breaks nobody knows whether it was made, so it is looked for before
    /// another try; `None` where it was found, or somebody else's of ours.
    fn create(&self, text: &str, author: Author<'_>) -> Result<Option<Comment>, GithubError> {
        let url = self.client.url(&self.comments());
        let body = json!({ "body": text });
        let mut tried = 0;
        loop {
            tried += 1;
            match self.client.ask(COMMENT, Ask::Post(&body), &url) {
                Ok(answer) if answer.is_success() => return self.read(COMMENT, &answer).map(Some),
                Ok(answer) => return Err(self.refusal(&answer)),
                Err(Failure::Certain(error)) => return Err(error),
                Err(Failure::Uncertain(why)) if tried >= ROUNDS || !self.client.pause(tried) => {
                    return Err(GithubError::Unreachable { what: COMMENT, why });
                }
                Err(Failure::Uncertain(_)) => {}
            }
            if !self.own(author)?.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Looks once more: somebody may have done the same at the same time. Of two comments the older one stays, and who made
    /// the newer one removes it. `None` where the older one is gone meanwhile.
    fn settle(&self, created: Comment, text: &str) -> Result<Option<Posted>, GithubError> {
        let Some(user) = &created.user else {
            return Ok(Some(Posted::Created(created.html_url)));
        };
        let own = self.own(Author::User(user.id))?;
        match own.first() {
            Some(oldest) if oldest.id < created.id => {
                self.remove(created.id)?;
                self.update(oldest, text)
            }
            _ => Ok(Some(Posted::Created(created.html_url))),
        }
    }

    /// Writes a comment anew; `None` where it is gone.
    fn update(&self, comment: &Comment, text: &str) -> Result<Option<Posted>, GithubError> {
        if is_same(comment.body.as_deref().unwrap_or(""), text) {
            return Ok(Some(Posted::Same(comment.html_url.clone())));
        }
        let body = json!({ "body": text });
        let answer = self.ask(Ask::Patch(&body), &self.comment(comment.id))?;
        match answer.status {
            404 | 410 => Ok(None),
            _ if answer.is_success() => Ok(Some(Posted::Updated(comment.html_url.clone()))),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn remove(&self, id: u64) -> Result<(), GithubError> {
        let answer = self.ask(Ask::Delete, &self.comment(id))?;
        // Gone is what it should be.
        if answer.is_success() || matches!(answer.status, 404 | 410) {
            return Ok(());
        }
        Err(self.refusal(&answer))
    }

    fn ask(&self, ask: Ask<'_>, url: &str) -> Result<Answer, GithubError> {
        self.client
            .ask(COMMENT, ask, url)
            .map_err(|failure| certain(COMMENT, failure))
    }

    fn refusal(&self, answer: &Answer) -> GithubError {
        if matches!(answer.status, 403 | 422 | 423) && answer.message().to_ascii_lowercase().contains("is locked") {
            return GithubError::Locked(self.place.pull);
        }
        self.client.refusal(COMMENT, answer)
    }

    fn read<T: serde::de::DeserializeOwned>(&self, what: &'static str, answer: &Answer) -> Result<T, GithubError> {
        answer.json().map_err(|error| GithubError::Unreachable {
            what,
            why: format!(
                "the answer is not what GitHub documents: {}",
                self.client.shown(&error.to_string())
            ),
        })
    }
}

fn certain(what: &'static str, failure: Failure) -> GithubError {
    match failure {
        Failure::Certain(error) => error,
        Failure::Uncertain(why) => GithubError::Unreachable { what, why },
    }
}

/// GitHub keeps line ends as a browser sends them, and no white space at the end.
fn is_same(there: &str, text: &str) -> bool {
    let lines = |text: &str| text.trim_end().replace("\r\n", "\n");
    lines(there) == lines(text)
}
