//! Asks the built targets for the models they declare.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::child::{End, Limits};
use super::process;
use super::process::Meanwhile;
use crate::bytes::Bytes;
use crate::protocol::{Action, Event, PROTOCOL, Task};
use crate::report::{ErrorCode, Problem};
use crate::workspace::Built;

/// A declared model, and the binary that runs it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it does.
    pub task: Task,
    /// Where it is declared.
    pub built: Built,
}

/// Naming its models is all a binary has to do here.
const LIMITS: Limits = Limits {
    timeout: Duration::from_secs(10),
    host_memory: Bytes(1 << 30),
};

/// Asks every target, each in a process of its own with files in `folder`.
#[must_use]
pub fn list(targets: &[Built], folder: &Path) -> (Vec<Listed>, Vec<Problem>) {
    let mut models: Vec<Listed> = Vec::new();
    let mut problems = Vec::new();
    for (number, built) in targets.iter().enumerate() {
        match ask(built, &folder.join(format!("list-{number}"))) {
            Ok(found) => models.extend(found),
            Err(problem) => problems.push(*problem),
        }
    }
    // Two models of one name in a package could not be told apart in budgets: neither is run.
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<_> = models
        .iter()
        .map(|model| (model.built.target.package.clone(), model.name.clone()))
        .filter(|identity| !seen.insert(identity.clone()))
        .collect();
    for (package, name) in &twice {
        problems.push(Problem {
            package: package.clone(),
            target: None,
            code: ErrorCode::DuplicateModel,
            message: format!("{package} declares the model `{name}` more than once"),
            help: Some("rename one: a model is known as package/model in budgets and reports".into()),
        });
    }
    models.retain(|model| !twice.contains(&(model.built.target.package.clone(), model.name.clone())));
    (models, problems)
}

fn ask(built: &Built, folder: &Path) -> Result<Vec<Listed>, Box<Problem>> {
    let problem = |code: ErrorCode, message: String, help: &str| {
        Box::new(Problem {
            package: built.target.package.clone(),
            target: Some(built.target.name.clone()),
            code,
            message,
            help: Some(help.into()),
        })
    };
    let left = process::run(
        &built.executable,
        &built.target.folder,
        folder,
        Action::List,
        None,
        LIMITS,
        Meanwhile::NOTHING,
    )
    .map_err(|error| problem(ErrorCode::NotStarted, error.to_string(), "build the target again"))?;
    let hello = left.events.iter().find_map(|event| match event {
        Event::Hello { protocol, version, .. } => Some((*protocol, version)),
        _ => None,
    });
    match hello {
        None => Err(problem(
            ErrorCode::NoAnswer,
            match left.ended.end {
                End::TimedOut => format!(
                    "`{}` of {} did not name its models in time",
                    built.target.name, built.target.package
                ),
                _ => format!(
                    "`{}` of {} does not answer as a target of `cargo_vram::models!`",
                    built.target.name, built.target.package
                ),
            },
            "its `main` must be the one that `cargo_vram::models!` writes, with `harness = false` for the target in Cargo.toml",
        )),
        Some((protocol, version)) if protocol != PROTOCOL => Err(problem(
            ErrorCode::ProbeVersion,
            format!(
                "{} links cargo-vram {version} (protocol {protocol}); this tool is {} (protocol {PROTOCOL})",
                built.target.package,
                env!("CARGO_PKG_VERSION"),
            ),
            &match version == env!("CARGO_PKG_VERSION") {
                true => "both were built from sources of one version that are not the same: build this tool from those that the models depend on".to_owned(),
                false => format!("make them agree: `cargo update -p cargo-vram`, or `cargo install cargo-vram@{version}`"),
            },
        )),
        Some(_) => Ok(left
            .events
            .into_iter()
            .filter_map(|event| match event {
                Event::Model { name, task } => Some(Listed {
                    name,
                    task,
                    built: built.clone(),
                }),
                _ => None,
            })
            .collect()),
    }
}
