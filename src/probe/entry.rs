//! The `main` of a binary that declares models.

use std::process::ExitCode;

use super::events;
use super::pass::ProbePass;
use crate::protocol::{Action, BurnFeatures, JOB_VARIABLE, Job, PROTOCOL, ProbeEvent, Task};

/// The code that runs models of one version of Burn.
#[derive(Clone, Copy)]
pub struct Adapter {
    /// The feature of this crate that enables it.
    pub(super) name: &'static str,
    /// Returns the features that the program's Burn was built with.
    pub(super) features: fn() -> BurnFeatures,
}

/// A function that [`models!`](crate::models) can declare as a model. The compiler infers `Kind`: the adapter, and
/// `Train` or `Infer`.
pub trait Declared<Kind>: 'static {
    /// Whether such a model trains or infers.
    const TASK: Task;
    /// The adapter that runs such a model.
    const ADAPTER: Adapter;

    /// Runs one pass on the CUDA backend.
    fn run(&self, pass: ProbePass);
}

/// A declared model.
pub struct ModelEntry {
    name: &'static str,
    task: Task,
    adapter: Adapter,
    run: Box<dyn Fn(ProbePass)>,
}

/// Makes the entry of a model from its function. [`models!`](crate::models) calls this.
///
/// The model's name is the last segment of `path`.
pub fn entry<Kind, F: Declared<Kind>>(path: &'static str, function: F) -> ModelEntry {
    ModelEntry {
        // rustc does not promise how `stringify!` spaces a path, hence `trim`.
        name: path.rsplit("::").next().unwrap_or(path).trim(),
        task: F::TASK,
        adapter: F::ADAPTER,
        run: Box::new(move |pass| function.run(pass)),
    }
}

/// Performs the job in the file that the environment variable [`JOB_VARIABLE`] names. Without that variable, it does
/// nothing and succeeds, like a test binary with no tests.
///
/// `folder` is the folder of the package that the program is built from. The tool refuses a program of another checkout.
///
/// The exit code is a failure if the job cannot be read, the file of events cannot be opened, the job has another
/// protocol version, or its model is not declared.
pub fn main(folder: &str, entries: &[ModelEntry]) -> ExitCode {
    let Some(path) = std::env::var_os(JOB_VARIABLE) else {
        return ExitCode::SUCCESS;
    };
    // If the tool is killed, the kernel kills this process too. Otherwise a model that hangs would run forever.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // What the model starts stays among its descendants, so that the tool finds all of it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // Without a job there is no file to report to: fail silently. The tool explains the failure to the user.
    let Ok(text) = std::fs::read_to_string(path) else {
        return ExitCode::FAILURE;
    };
    let Ok(job) = serde_json::from_str::<Job>(&text).or_else(|_| foreign_job(&text)) else {
        return ExitCode::FAILURE;
    };
    if events::open(&job.events).is_err() {
        return ExitCode::FAILURE;
    }
    // `models!` takes at least one model. All models of a program use the same Burn, because the tool refuses two
    // before it builds.
    let adapter = entries.first().map(|entry| entry.adapter);
    // Before the check of the protocol: the tool reads both versions from this event and names them to the
    // user.
    events::send(&ProbeEvent::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        adapter: adapter.map_or("", |adapter| adapter.name).into(),
        features: adapter.map(|adapter| (adapter.features)()),
        folder: folder.into(),
    });
    if job.protocol != PROTOCOL {
        return ExitCode::FAILURE;
    }
    match job.action {
        Action::List => {
            for entry in entries {
                let model = ProbeEvent::Model {
                    name: entry.name.into(),
                    task: entry.task,
                };
                // The end of a list of models has no event of its own. The exit code tells whether it is complete.
                if events::try_send(&model).is_err() {
                    return ExitCode::FAILURE;
                }
            }
        }
        Action::Run(run) => {
            let Some(entry) = entries.iter().find(|entry| entry.name == run.model) else {
                return ExitCode::FAILURE;
            };
            (entry.run)(ProbePass::new(run));
        }
    }
    ExitCode::SUCCESS
}

/// Reads enough of a job of another protocol version to answer with our own version.
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
