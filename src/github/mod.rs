//! Posts one comment on one pull request with GitHub's REST API.
//!
//! `event.rs` and `pulls.rs` find the pull request, `marker.rs` identifies the comment, `client.rs` sends requests, and
//! `comments.rs` creates, updates and removes comments.

mod client;
mod comments;
mod error;
mod event;
mod marker;
mod pulls;

pub use client::{Client, Token};
pub use comments::{App, CommentPlace, Posted, post};
pub use error::GithubError;
pub use event::{Environment, HeadCommit, PullRequestEvent, Repository, Where};
pub use marker::Label;
pub use pulls::find;
