//! Errors of requests to GitHub.

use camino::Utf8PathBuf;
use miette::Diagnostic;
use thiserror::Error;

/// The reason why nothing was posted. Texts from a server are shortened, without control characters and without the
/// token.
#[derive(Debug, Error, Diagnostic)]
pub enum GithubError {
    /// No event selects the pull request: the named environment variable is not set.
    #[error("no pull request selected: the environment variable {0} is not set")]
    #[diagnostic(
        code(github::no_event),
        help("run this in a workflow for `pull_request` or `workflow_run`, or pass --repo OWNER/NAME --pr NUMBER")
    )]
    NoEvent(&'static str),
    /// The workflow runs for an event without a pull request.
    #[error("the event {0} has no pull request to comment on")]
    #[diagnostic(
        code(github::other_event),
        help("run this in a workflow for `pull_request` or `workflow_run`, or pass --repo OWNER/NAME --pr NUMBER")
    )]
    OtherEvent(String),
    /// The workflow run that triggered this one was not for a pull request, or the pull request's head is gone.
    #[error("the triggering workflow run was for {0}, not for an existing pull request")]
    #[diagnostic(
        code(github::other_event),
        help("add `if: github.event.workflow_run.event == 'pull_request'` to the job")
    )]
    OtherRun(String),
    /// The event file cannot be read.
    #[error("the event file {path} cannot be read")]
    #[diagnostic(code(github::event))]
    EventFile {
        /// The path of the event file.
        path: Utf8PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The event file does not have the documented format.
    #[error("{path} is not a valid {name} event")]
    #[diagnostic(code(github::event))]
    EventInvalid {
        /// The path of the event file.
        path: Utf8PathBuf,
        /// The name of the event.
        name: String,
        /// The mistake and its position.
        source: serde_json::Error,
    },
    /// Neither an option nor the environment names the repository.
    #[error("no repository selected")]
    #[diagnostic(
        code(github::no_repository),
        help("pass --repo OWNER/NAME, or set GITHUB_REPOSITORY")
    )]
    NoRepository,
    /// `GITHUB_REPOSITORY` is not a valid repository name.
    #[error("invalid GITHUB_REPOSITORY: {0}")]
    #[diagnostic(code(github::repository))]
    Repository(String),
    /// Several pull requests have this head.
    #[error("several open pull requests have this commit as their head: {0}")]
    #[diagnostic(code(github::several_pulls), help("choose one with --pr NUMBER"))]
    SeveralPulls(String),
    /// The address of the API is not valid.
    #[error("{url} is not a valid API address: {why}")]
    #[diagnostic(
        code(github::api_url),
        help("use https://api.github.com for GitHub, or https://HOST/api/v3 for an Enterprise server")
    )]
    ApiUrl {
        /// The address.
        url: String,
        /// The reason why it is not valid.
        why: &'static str,
    },
    /// The environment variable for the token is not set, or is empty.
    #[error("the environment variable {0} contains no token")]
    #[diagnostic(
        code(github::no_token),
        help(
            "in a workflow, add `env: {{ GITHUB_TOKEN: ${{{{ github.token }}}} }}` to the step; to use another \
             variable, pass --token-env NAME"
        )
    )]
    NoToken(String),
    /// The token has characters that no token has.
    #[error("the token in the environment variable {0} has invalid characters")]
    #[diagnostic(code(github::no_token))]
    TokenCharacters(String),
    /// GitHub rejected the token.
    #[error("GitHub rejected the token in the environment variable {0} (401)")]
    #[diagnostic(
        code(github::bad_token),
        help("check that the token has not expired, and that it is for this server")
    )]
    BadToken(String),
    /// The token does not have the required permission.
    #[error("the token in the environment variable {variable} is not allowed to {what} ({status}): {message}")]
    #[diagnostic(
        code(github::forbidden),
        help(
            "add `permissions: {{ pull-requests: write }}` to the job; the token of a `pull_request` workflow for a \
             fork is read-only, so comment from a `workflow_run` workflow"
        )
    )]
    Forbidden {
        /// The environment variable of the token.
        variable: String,
        /// What the request was for.
        what: &'static str,
        /// The HTTP status.
        status: u16,
        /// GitHub's message.
        message: String,
    },
    /// The conversation of the pull request is locked.
    #[error("the conversation of pull request #{0} is locked")]
    #[diagnostic(
        code(github::locked),
        help("unlock the conversation, or skip this step in the workflow")
    )]
    Locked(u64),
    /// GitHub's rate limit requires a longer wait than the time that is left.
    #[error("GitHub limits the request rate and asks to wait {wait} s, but only {left} s are left")]
    #[diagnostic(
        code(github::rate_limit),
        help("run the command again later, or allow more time: --timeout 30min")
    )]
    RateLimit {
        /// The wait that GitHub asks for, in seconds.
        wait: u64,
        /// The time that is left, in seconds.
        left: u64,
    },
    /// A request failed in all tries.
    #[error("cannot {what}: {why}")]
    #[diagnostic(code(github::unreachable))]
    Unreachable {
        /// What the request was for.
        what: &'static str,
        /// The reason of the last failure.
        why: String,
    },
    /// A redirect or a link points to another host.
    #[error("{what} points to {to} instead of {from}, so it was not followed")]
    #[diagnostic(
        code(github::elsewhere),
        help("check that GITHUB_API_URL is the address of the API: the token is sent only to its host")
    )]
    Elsewhere {
        /// The kind of address: a redirect or a link.
        what: &'static str,
        /// The host that it points to.
        to: String,
        /// The host of the API.
        from: String,
    },
    /// GitHub answered with another error.
    #[error("cannot {what}: GitHub answered with status {status}: {message}")]
    #[diagnostic(code(github::refused))]
    Refused {
        /// What the request was for.
        what: &'static str,
        /// The HTTP status.
        status: u16,
        /// GitHub's message.
        message: String,
    },
    /// A list has too many pages.
    #[error("cannot {0}: the list has too many pages")]
    #[diagnostic(code(github::endless))]
    Endless(&'static str),
}
