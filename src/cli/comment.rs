//! `cargo vram comment`: the report on its pull request.

use std::time::Duration;

use camino::Utf8PathBuf;
use clap::Args;

use super::exit::Exit;
use super::options::{self, Loudness};
use super::{Stopped, terminal};
use crate::github::{self, App, Client, Environment, Event, Label, Place, Posted, Repository, Token, Where};
use crate::report::Report;
use crate::report::change::Told;
use crate::report::markdown::{self, Markdown};

/// Comment on a pull request with what a report says
///
/// Reads the report of a check and puts it on the pull request that the workflow was started for, as one comment that is
/// written anew in place. The report may be anybody's: nothing else is read, nothing is run, and the pull request is the one
/// of the workflow's own event (pull_request or workflow_run).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram comment --report report.json                   by the token in GITHUB_TOKEN
  cargo vram comment --report report.json --on-change-only  no comment where nothing changed
  cargo vram comment --report l4.json --label l4            one comment a card
  cargo vram comment --report report.json --dry-run         show it, and post nothing
  cargo vram comment --no-report --artifact-url URL         a run wrote none: no comment goes on saying what was before
  cargo vram comment --report report.json --repo tracel-ai/models --pr 12

Exit codes:
  0    the comment is there, or there is nothing to say
  101  could not complete: the report cannot be opened, GitHub is out of reach or refuses, or the conversation is locked
  2    command line, environment or report unusable; nothing was posted")]
pub(super) struct Comment {
    /// What `cargo vram check --message-format json -o FILE` wrote
    #[arg(long, value_name = "FILE", required_unless_present = "no_report")]
    report: Option<Utf8PathBuf>,
    /// There is none: where there is a comment already, it is to say so
    #[arg(long, conflicts_with_all = ["report", "on_change_only"])]
    no_report: bool,
    /// Which of several comments on one pull request this is
    #[arg(long, value_name = "LABEL", default_value = "default")]
    label: Label,
    /// Make no comment where there is nothing to say; one that is there is kept up to date
    #[arg(long)]
    on_change_only: bool,
    /// Show the comment and what would be done with it, without network and token
    #[arg(long)]
    dry_run: bool,
    /// Where the whole report is to be had, for a link
    #[arg(long, value_name = "URL", value_parser = link)]
    artifact_url: Option<String>,
    /// Post to this pull request, rather than to that of the workflow's event
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pr: Option<u64>,
    /// The repository of --pr; by default GITHUB_REPOSITORY
    #[arg(long, value_name = "OWNER/NAME", requires = "pr")]
    repo: Option<Repository>,
    /// The environment variable that has the token
    #[arg(long, value_name = "NAME", default_value = "GITHUB_TOKEN")]
    token_env: String,
    /// The app whose token it is, if it is neither a workflow's own nor a person's: my-app
    #[arg(long, value_name = "NAME", default_value_t)]
    app: App,
    /// The API; an Enterprise server's is https://HOST/api/v3
    #[arg(long, value_name = "URL", env = "GITHUB_API_URL", default_value = API, hide_env_values = true)]
    api_url: String,
    /// The longest that all of it may take
    #[arg(long, value_name = "TIME", value_parser = options::duration, default_value = "5min")]
    timeout: Duration,
}

const API: &str = "https://api.github.com";

impl Comment {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let markdown = Markdown {
            most: markdown::COMMENT,
            artifact: self.artifact_url.as_deref(),
        };
        let (body, says_something) = match &self.report {
            None => (markdown::without_report(&markdown), false),
            Some(report) => {
                let report = Report::read(report)?;
                let says_something = !self.on_change_only || Told::new(&report).is_news();
                (markdown::render(&report, &markdown), says_something)
            }
        };
        if self.dry_run {
            terminal::show(&format!("{}\n", self.label.mark(&body).trim_end()));
            terminal::remark(&self.plan(says_something));
            return Ok(Exit::Success);
        }
        let place = self.place()?;
        let token = Token::from_environment(&self.token_env)?;
        let api = if self.api_url.is_empty() { API } else { &self.api_url };
        let client = Client::new(api, token, self.timeout)?;
        let told = match github::find(&client, &place)? {
            None => "nothing posted: no open pull request has this commit as its head any more".to_owned(),
            Some(pull) => {
                let place = Place {
                    repository: &place.repository,
                    pull,
                    label: &self.label,
                    app: &self.app,
                };
                let posted = github::post(&client, place, &body, says_something)?;
                told(&posted, pull)
            }
        };
        if !loudness.quiet {
            terminal::remark(&told);
        }
        Ok(Exit::Success)
    }

    /// Of the command line or of the workflow's event, and of nothing that the report says.
    fn place(&self) -> Result<Where, github::GithubError> {
        let environment = Environment::of_this_process();
        let Some(number) = self.pr else {
            return Where::of_event(&environment);
        };
        let repository = match &self.repo {
            Some(repository) => repository.clone(),
            None => environment.repository()?,
        };
        Ok(Where {
            repository,
            event: Event::Pull(number),
        })
    }

    fn plan(&self, says_something: bool) -> String {
        let place = match self.place() {
            Err(error) => return format!("would be posted nowhere: {error}"),
            Ok(place) => place,
        };
        let pull = match &place.event {
            Event::Pull(number) => format!("pull request #{number} of {}", place.repository),
            Event::Head(head) => format!(
                "the open pull request of {} whose head is {:?} of {:?} at {:?}",
                place.repository, head.branch, head.owner, head.commit
            ),
        };
        let label = &self.label;
        match says_something {
            true => format!("would be posted to {pull}, in place of the comment {label} where there is one"),
            false => format!("nothing to say: would be posted to {pull} only where there is a comment {label} already"),
        }
    }
}

fn told(posted: &Posted, pull: u64) -> String {
    let url = |url: &str| match url.starts_with("https://") && url.chars().all(|character| character.is_ascii_graphic())
    {
        true => format!(": {url}"),
        false => String::new(),
    };
    match posted {
        Posted::Created(address) => format!("commented on #{pull}{}", url(address)),
        Posted::Updated(address) => format!("updated the comment on #{pull}{}", url(address)),
        Posted::Same(address) => format!("the comment on #{pull} says that already{}", url(address)),
        Posted::Nothing => format!("nothing to say on #{pull}"),
    }
}

/// An address that cannot end the link it stands in.
fn link(text: &str) -> Result<String, String> {
    let allowed = |character: char| character.is_ascii_graphic() && !"<>()[]\"'`|\\".contains(character);
    match text.starts_with("https://") && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("expected an https:// URL without brackets and quotes".to_owned()),
    }
}
