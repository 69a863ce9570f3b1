//! `cargo vram comment`: posts a report as a comment on a pull request.

use std::time::Duration;

use camino::Utf8PathBuf;
use clap::Args;

use super::exit::Exit;
use super::options::{self};
use super::terminal;
use crate::cli::error::CliError;
use crate::github::{
    self, App, Client, CommentPlace, Environment, Label, Posted, PullRequestEvent, Repository, Token, Where,
};
use crate::render::markdown::{self, Markdown};
use crate::report::Report;
use crate::report::change::ChangeSummary;

/// Post a report as a comment on a pull request
///
/// Reads the report of a check and posts it on the pull request that started the workflow. Later runs update the same
/// comment.
///
/// The report may come from somebody who is not trusted. The command reads no other file of the pull request and runs
/// nothing. Without --pr, the pull request is the one of the workflow's own event (pull_request or workflow_run).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram comment --report report.json
      post with the token in GITHUB_TOKEN
  cargo vram comment --report report.json --on-change-only
      create no comment if nothing changed
  cargo vram comment --report l4.json --label l4
      keep one comment per GPU
  cargo vram comment --report report.json --dry-run
      print the comment and post nothing
  cargo vram comment --no-report --artifact-url URL
      replace an outdated comment after a run that wrote no report
  cargo vram comment --report report.json --repo tracel-ai/models --pr 12

Exit codes:
  0    the comment is posted, or there is nothing to report
  101  could not complete: the report cannot be opened, GitHub cannot be reached
       or refuses the request, or the conversation is locked
  2    unusable command line, environment or report; nothing was posted")]
pub(super) struct CommentCommand {
    /// Post this report of `cargo vram check --message-format json -o FILE`
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "no_report",
        help_heading = "Selection"
    )]
    report: Option<Utf8PathBuf>,
    /// Update an existing comment to say that the run wrote no report
    #[arg(long, conflicts_with_all = ["report", "on_change_only"], help_heading = "Selection")]
    no_report: bool,
    /// Post to this pull request instead of the one of the workflow's event
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..), help_heading = "GitHub")]
    pr: Option<u64>,
    /// Set the repository of --pr [default: the variable GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/NAME", requires = "pr", help_heading = "GitHub")]
    repo: Option<Repository>,
    /// Use this label, so that a pull request can have several comments
    #[arg(long, value_name = "LABEL", default_value = "default", help_heading = "GitHub")]
    label: Label,
    /// Read the token from this environment variable
    #[arg(long, value_name = "NAME", default_value = "GITHUB_TOKEN", help_heading = "GitHub")]
    token_env: String,
    /// Name the app that owns the token, such as my-app
    ///
    /// This is only needed if the token is neither a workflow's own nor a person's.
    #[arg(long, value_name = "NAME", default_value_t, help_heading = "GitHub")]
    app: App,
    /// Use this GitHub API
    ///
    /// The API of a GitHub Enterprise server is https://HOST/api/v3.
    #[arg(
        long,
        value_name = "URL",
        env = "GITHUB_API_URL",
        default_value = API,
        hide_env_values = true,
        help_heading = "GitHub"
    )]
    api_url: String,
    /// Limit the time of all requests together
    #[arg(long, value_name = "TIME", value_parser = options::duration, default_value = "5min", help_heading = "Run")]
    timeout: Duration,
    /// Create a comment only if something changed; always update an existing one
    #[arg(long, help_heading = "Output")]
    on_change_only: bool,
    /// Print the comment and where it would be posted, without network and token
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// Link to the whole report at this URL
    #[arg(long, value_name = "URL", value_parser = link, help_heading = "Output")]
    artifact_url: Option<String>,
}

const API: &str = "https://api.github.com";

impl CommentCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        // The report must not choose where its links lead, so the repository is that of the pull request.
        let files = self
            .place()
            .ok()
            .map(|place| format!("{}/{}/blob", server(), place.repository));
        let markdown = Markdown {
            most: markdown::COMMENT,
            artifact: self.artifact_url.as_deref(),
            files: files.as_deref(),
        };
        let (body, says_something) = match &self.report {
            // Not news: it only replaces an older comment that no longer holds. See docs/design/comments.md.
            None => (markdown::without_report(&markdown), false),
            Some(report) => {
                let report = Report::read(report)?;
                let says_something = !self.on_change_only || ChangeSummary::new(&report).is_news();
                (markdown::render(&report, &markdown), says_something)
            }
        };
        // Before the token is read: a dry run needs neither token nor network.
        if self.dry_run {
            terminal::show_document(&format!("{}\n", self.label.mark(&body).trim_end()));
            terminal::remark(&self.plan(says_something));
            return Ok(Exit::Success);
        }
        // Everything local first: without a pull request or a token, GitHub is not asked at all.
        let place = self.place()?;
        let token = Token::from_environment(&self.token_env)?;
        // clap takes an empty GITHUB_API_URL for a value.
        let api = if self.api_url.is_empty() { API } else { &self.api_url };
        let client = Client::new(api, token, self.timeout)?;
        let told = match github::find(&client, &place)? {
            None => "nothing posted: the pull request was closed, or has a newer commit".to_owned(),
            Some(pull) => {
                let place = CommentPlace {
                    repository: &place.repository,
                    pull,
                    label: &self.label,
                    app: &self.app,
                };
                let posted = github::post(&client, place, &body, says_something)?;
                told(&posted, pull)
            }
        };
        if !terminal::is_quiet() {
            terminal::remark(&told);
        }
        Ok(Exit::Success)
    }

    /// Returns the pull request of the command line or of the workflow's event. The report cannot influence it.
    fn place(&self) -> Result<Where, github::GithubError> {
        let environment = Environment::from_process();
        let Some(number) = self.pr else {
            return Where::from_event(&environment);
        };
        let repository = match &self.repo {
            Some(repository) => repository.clone(),
            None => environment.repository()?,
        };
        Ok(Where {
            repository,
            event: PullRequestEvent::Pull(number),
        })
    }

    /// Returns what the command would do without `--dry-run`.
    fn plan(&self, says_something: bool) -> String {
        let place = match self.place() {
            Err(error) => return format!("would not be posted: {error}"),
            Ok(place) => place,
        };
        let pull = match &place.event {
            PullRequestEvent::Pull(number) => format!("pull request #{number} of {}", place.repository),
            PullRequestEvent::Head(head) => format!(
                "the open pull request of {} with the head branch `{}` of `{}` at commit `{}`",
                place.repository, head.branch, head.owner, head.commit
            ),
        };
        let label = &self.label;
        match says_something {
            true => format!("would be posted to {pull}; an existing comment with the label {label} would be updated"),
            false => {
                format!("nothing to report: would only update an existing comment with the label {label} on {pull}")
            }
        }
    }
}

/// Returns the address of the GitHub server, without a slash at its end.
fn server() -> String {
    let own = std::env::var("GITHUB_SERVER_URL").unwrap_or_default();
    match link(&own) {
        Ok(url) => url.trim_end_matches('/').to_owned(),
        Err(_) => "https://github.com".to_owned(),
    }
}

fn told(posted: &Posted, pull: u64) -> String {
    // The server sent this address, and a terminal would act on control characters in it.
    let url = |url: &str| match url.starts_with("https://") && url.chars().all(|character| character.is_ascii_graphic())
    {
        true => format!(": {url}"),
        false => String::new(),
    };
    match posted {
        Posted::Created(address) => format!("commented on #{pull}{}", url(address)),
        Posted::Updated(address) => format!("updated the comment on #{pull}{}", url(address)),
        Posted::Same(address) => format!("the comment on #{pull} is up to date{}", url(address)),
        Posted::Nothing => format!("nothing to report on #{pull}"),
    }
}

/// Parses a URL without characters that could end a Markdown or HTML link.
fn link(text: &str) -> Result<String, String> {
    let allowed = |character: char| character.is_ascii_graphic() && !"<>()[]\"'`|\\".contains(character);
    match text.starts_with("https://") && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("expected an https:// URL without brackets, quotes, `|` and `\\`".to_owned()),
    }
}
