//! The `main` of a binary that declares models.

use std::process::ExitCode;

use super::events;
use super::pass::Pass;
use crate::protocol::{Action, BurnFeatures, Event, JOB_VARIABLE, Job, PROTOCOL, Task};

/// What runs models of one version of Burn.
#[derive(Clone, Copy)]
pub struct Adapter {
    /// The feature that switches it on.
    pub(super) name: &'static str,
    /// What the program's Burn was built with.
    pub(super) features: fn() -> BurnFeatures,
}

/// A function that can be declared as a model. `Kind` is an adapter with `Train` or `Infer`, and is inferred.
pub trait Declared<Kind>: 'static {
    /// What such a model does.
    const TASK: Task;
    /// What runs it.
    const ADAPTER: Adapter;

    /// Runs one pass on the CUDA backend.
    fn run(&self, pass: Pass);
}

/// A declared model.
pub struct Entry {
    name: &'static str,
    task: Task,
    adapter: Adapter,
    run: Box<dyn Fn(Pass)>,
}

/// Makes an entry of a function; called by [`models!`](crate::models).
pub fn entry<Kind, F: Declared<Kind>>(path: &'static str, function: F) -> Entry {
    Entry {
        name: path.rsplit("::").next().unwrap_or(path).trim(),
        task: F::TASK,
        adapter: F::ADAPTER,
        run: Box::new(move |pass| function.run(pass)),
    }
}

/// Does what the job file says. Without one, this is a test binary with no tests.
pub fn main(entries: &[Entry]) -> ExitCode {
    let Some(path) = std::env::var_os(JOB_VARIABLE) else {
        return ExitCode::SUCCESS;
    };
    // The tool that waits for this process may be ended: nobody would end a model that does not end by itself.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // Nothing can be reported without a job: say nothing and fail; the tool knows what to tell people.
    let Ok(text) = std::fs::read_to_string(path) else {
        return ExitCode::FAILURE;
    };
    let Ok(job) = serde_json::from_str::<Job>(&text).or_else(|_| foreign_job(&text)) else {
        return ExitCode::FAILURE;
    };
    if events::open(&job.events).is_err() {
        return ExitCode::FAILURE;
    }
    // `models!` takes at least one, and all models of a program use the same Burn: the tool refuses two before it builds.
    let adapter = entries.first().map(|entry| entry.adapter);
    events::send(&Event::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        adapter: adapter.map_or("", |adapter| adapter.name).into(),
        features: adapter.map(|adapter| (adapter.features)()),
    });
    if job.protocol != PROTOCOL {
        return ExitCode::FAILURE;
    }
    match job.action {
        Action::List => {
            for entry in entries {
                events::send(&Event::Model {
                    name: entry.name.into(),
                    task: entry.task,
                });
            }
        }
        Action::Run(run) => {
            let Some(entry) = entries.iter().find(|entry| entry.name == run.model) else {
                return ExitCode::FAILURE;
            };
            (entry.run)(Pass::new(run));
        }
    }
    ExitCode::SUCCESS
}

/// A job of another protocol version: enough of it to answer with our own.
fn foreign_job(text: &str) -> Result<Job, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Foreign {
        protocol: u32,
        events: std::path::PathBuf,
    }
    let Foreign { protocol, events } = serde_json::from_str(text)?;
    Ok(Job {
        protocol,
        version: String::new(),
        events,
        action: Action::List,
    })
}
