//! What can go wrong between here and GitHub.

use camino::Utf8PathBuf;
use miette::Diagnostic;
use thiserror::Error;

/// Why nothing was posted. Texts of a server are in it only without control characters, cut, and without the token.
#[derive(Debug, Error, Diagnostic)]
pub enum GithubError {
    /// There is no event.
    #[error("which pull request? {0} is not set")]
    #[diagnostic(
        code(github::no_event),
        help("run this in a workflow on pull_request or workflow_run, or name one: --repo OWNER/NAME --pr NUMBER")
    )]
    NoEvent(&'static str),
    /// The event is of another kind.
    #[error("the event {0} tells of no pull request to post to")]
    #[diagnostic(
        code(github::other_event),
        help("run this in a workflow on pull_request or workflow_run, or name one: --repo OWNER/NAME --pr NUMBER")
    )]
    OtherEvent(String),
    /// The workflow that was run was not run for a pull request.
    #[error("the workflow that this one follows was run by {0}, not by a pull request")]
    #[diagnostic(
        code(github::other_event),
        help("write `if: github.event.workflow_run.event == 'pull_request'` at the job")
    )]
    OtherRun(String),
    /// The event's file is unreadable.
    #[error("{path} cannot be read")]
    #[diagnostic(code(github::event))]
    EventFile {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The event's file is none.
    #[error("{path} is no event {name} as GitHub documents it")]
    #[diagnostic(code(github::event))]
    EventInvalid {
        /// Which.
        path: Utf8PathBuf,
        /// Of which kind it should be.
        name: String,
        /// Where it stops making sense.
        source: serde_json::Error,
    },
    /// No repository is known.
    #[error("which repository? none was named")]
    #[diagnostic(
        code(github::no_repository),
        help("pass --repo OWNER/NAME, or set GITHUB_REPOSITORY")
    )]
    NoRepository,
    /// A repository's name that is none.
    #[error("GITHUB_REPOSITORY: {0}")]
    #[diagnostic(code(github::repository))]
    Repository(String),
    /// Several pull requests have this head.
    #[error("several open pull requests have this commit as their head: {0}")]
    #[diagnostic(code(github::several_pulls), help("name one with --pr NUMBER"))]
    SeveralPulls(String),
    /// The API's address is unusable.
    #[error("{url} is no address of an API: {why}")]
    #[diagnostic(
        code(github::api_url),
        help("GitHub's is https://api.github.com, an Enterprise server's https://HOST/api/v3")
    )]
    ApiUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no token.
    #[error("the environment variable {0} has no token")]
    #[diagnostic(
        code(github::no_token),
        help("in a workflow: `env: {{ GITHUB_TOKEN: ${{{{ github.token }}}} }}`; --token-env names another variable")
    )]
    NoToken(String),
    /// A token that cannot be one.
    #[error("what is in the environment variable {0} is no token: it has characters that none has")]
    #[diagnostic(code(github::no_token))]
    TokenCharacters(String),
    /// The token is not accepted.
    #[error("GitHub does not accept the token in the environment variable {0} (401)")]
    #[diagnostic(code(github::bad_token), help("it may have expired, or be of another server"))]
    BadToken(String),
    /// The token does not suffice.
    #[error("the token in the environment variable {variable} may not {what} ({status}): {message}")]
    #[diagnostic(
        code(github::forbidden),
        help(
            "write `permissions: {{ pull-requests: write }}` at the job; in a pull request from a fork the token of \
             pull_request can only read, so comment from a workflow on workflow_run"
        )
    )]
    Forbidden {
        /// Where the token is from.
        variable: String,
        /// What was tried.
        what: &'static str,
        /// The status.
        status: u16,
        /// What GitHub said.
        message: String,
    },
    /// Nobody may comment.
    #[error("the conversation of pull request #{0} is locked")]
    #[diagnostic(code(github::locked), help("unlock it, or run the workflow without this step"))]
    Locked(u64),
    /// GitHub asks for more patience than there is time.
    #[error("GitHub limits how often it may be asked, and asks to wait {wait} s; {left} s are left")]
    #[diagnostic(
        code(github::rate_limit),
        help("run it again later, or give it more time: --timeout 30min")
    )]
    RateLimit {
        /// How long, in seconds.
        wait: u64,
        /// How long there is, in seconds.
        left: u64,
    },
    /// It did not work, several times.
    #[error("cannot {what}: {why}")]
    #[diagnostic(code(github::unreachable))]
    Unreachable {
        /// What was tried.
        what: &'static str,
        /// What went wrong the last time.
        why: String,
    },
    /// A redirect, or a link, to somewhere else.
    #[error("{what} leads to {to}, which is not {from}: not followed")]
    #[diagnostic(
        code(github::elsewhere),
        help("the token is for this host alone; is GITHUB_API_URL the address of the API itself?")
    )]
    Elsewhere {
        /// A redirect or a link.
        what: &'static str,
        /// Where it leads.
        to: String,
        /// The API's own.
        from: String,
    },
    /// Another answer.
    #[error("cannot {what}: GitHub answers {status}: {message}")]
    #[diagnostic(code(github::refused))]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The status.
        status: u16,
        /// What GitHub said.
        message: String,
    },
    /// Pages without end.
    #[error("the list of {0} has no end")]
    #[diagnostic(code(github::endless))]
    Endless(&'static str),
}

impl GithubError {
    /// Whether what was asked for is at fault, rather than the machine, the network or GitHub.
    #[must_use]
    pub const fn is_by_the_user(&self) -> bool {
        matches!(
            self,
            Self::NoEvent(_)
                | Self::OtherEvent(_)
                | Self::OtherRun(_)
                | Self::EventInvalid { .. }
                | Self::NoRepository
                | Self::Repository(_)
                | Self::SeveralPulls(_)
                | Self::ApiUrl { .. }
                | Self::NoToken(_)
                | Self::TokenCharacters(_)
        )
    }
}
