//! Lists the models that the built targets declare.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::checkout;
use super::child::{End, ProcessLimits};
use super::outcome::end_of_stderr;
use super::process::{self, Meanwhile, PassOutput};
use super::slots::JobSlots;
use crate::bytes::Bytes;
use crate::protocol::{Action, PROTOCOL, ProbeEvent, Task};
use crate::report::{ErrorCode, Problem};
use crate::untrusted::PlainName;
use crate::workspace::Built;

/// A declared model and its built target.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The model's name.
    pub name: PlainName,
    /// The task of the model: training or inference.
    pub task: Task,
    /// The built target that declares the model.
    pub built: Built,
}

/// The limits of a process that only lists its models.
const LIMITS: ProcessLimits = ProcessLimits {
    timeout: Duration::from_secs(10),
    host_memory: Bytes(1 << 30),
};

/// Lists the models of all targets, and the problems of targets that do not answer.
///
/// Runs each target in its own process, with files in `folder`. Runs as many processes in parallel as there are cores.
#[must_use]
pub fn list(targets: &[Built], folder: &Path) -> (Vec<Listed>, Vec<Problem>) {
    let mut models: Vec<Listed> = Vec::new();
    let mut problems = Vec::new();
    for answer in answers(targets, folder) {
        match answer {
            Ok(found) => models.extend(found),
            Err(problem) => problems.push(*problem),
        }
    }
    // Budgets cannot distinguish two models with one name in a package, so neither of them runs.
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
            message: format!("{package} declares the model `{name}` more than once").into(),
            help: Some("rename one of them: budgets and reports identify a model by package/model".into()),
        });
    }
    models.retain(|model| !twice.contains(&(model.built.target.package.clone(), model.name.clone())));
    (models, problems)
}

/// The models of one target, or why it does not list them.
type ListAnswer = Result<Vec<Listed>, Box<Problem>>;

/// Asks all targets, and returns their answers in the order of the targets.
fn answers(targets: &[Built], folder: &Path) -> Vec<ListAnswer> {
    let slots = JobSlots::new(std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        let asked = targets.iter().enumerate().map(|(number, built)| {
            let (slots, folder) = (&slots, folder.join(format!("list-{number}")));
            scope.spawn(move || {
                let _slot = slots.take();
                ask(built, &folder)
            })
        });
        // All of them start before the first answer is waited for.
        let asked: Vec<_> = asked.collect();
        let answer = |asked: std::thread::ScopedJoinHandle<'_, ListAnswer>| {
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Returns why a list of models is not complete.
fn incomplete(left: &PassOutput) -> String {
    match left.ended.end {
        End::Exited(0) => "a line of its answer cannot be read".to_owned(),
        End::Exited(code) => format!("it exited with code {code}{}", end_of_stderr(&left.ended.stderr)),
        End::Signalled(signal) => format!("signal {signal} ended it{}", end_of_stderr(&left.ended.stderr)),
        End::TimedOut { .. } => format!("it took longer than {} s", LIMITS.timeout.as_secs()),
        End::HostMemory(_) => format!("it used more than {} of host memory", LIMITS.host_memory),
        End::Stopped => "the command was stopped".to_owned(),
    }
}

fn ask(built: &Built, folder: &Path) -> ListAnswer {
    let problem = |code: ErrorCode, message: String, help: &str| {
        Box::new(Problem {
            package: built.target.package.clone(),
            target: Some(built.target.name.clone()),
            code,
            message: message.into(),
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
    .map_err(|error| {
        let message = format!(
            "cannot run `{}` of {}: {error}",
            built.target.name, built.target.package
        );
        problem(ErrorCode::NotStarted, message, "build the target again")
    })?;
    let hello = left.events.iter().find_map(|event| match event {
        ProbeEvent::Hello { protocol, version, .. } => Some((*protocol, version)),
        _ => None,
    });
    match hello {
        None => Err(problem(
            ErrorCode::NoAnswer,
            match left.ended.end {
                End::TimedOut { .. } => format!(
                    "`{}` of {} did not list its models within {} s",
                    built.target.name,
                    built.target.package,
                    LIMITS.timeout.as_secs()
                ),
                _ => format!(
                    "`{}` of {} does not answer like a target of `cargo_vram::models!`",
                    built.target.name, built.target.package
                ),
            },
            "use the `main` that `cargo_vram::models!` writes, and set `harness = false` for the target in Cargo.toml",
        )),
        // Compare protocols, not versions: a path dependency may have other sources with the same version.
        Some((protocol, version)) if protocol != PROTOCOL => Err(problem(
            ErrorCode::ProbeVersion,
            format!(
                "{} links cargo-vram {version} (protocol {protocol}), but this tool is cargo-vram {} (protocol \
                 {PROTOCOL})",
                built.target.package,
                env!("CARGO_PKG_VERSION"),
            ),
            &match version == env!("CARGO_PKG_VERSION") {
                true => {
                    "build this tool from the same sources that the models depend on: the versions are equal, but the \
                     sources differ"
                        .to_owned()
                }
                false => format!(
                    "make the versions equal: run `cargo update -p cargo-vram` or `cargo install cargo-vram@{version}`"
                ),
            },
        )),
        Some(_) => match checkout::other(built, &left.events) {
            Some((message, help)) => Err(problem(ErrorCode::OtherCheckout, message, &help)),
            // A model that is missing in the list would not be checked.
            None if left.ended.end != End::Exited(0) || left.damaged => Err(problem(
                ErrorCode::NoAnswer,
                format!(
                    "`{}` of {} did not list its models to the end: {}",
                    built.target.name,
                    built.target.package,
                    incomplete(&left)
                ),
                "run the command again; if it fails again, look at the memory and the disk of this machine",
            )),
            None => {
                let models = left.events.into_iter().filter_map(|event| match event {
                    ProbeEvent::Model { name, task } => Some((name, task)),
                    _ => None,
                });
                let listed = models.map(|(name, task)| {
                    let name = PlainName::parse(name).map_err(|error| {
                        let message = format!("a model of {}: {error}", built.target.package);
                        problem(ErrorCode::NoAnswer, message, "rename the model's function")
                    })?;
                    Ok(Listed {
                        name,
                        task,
                        built: built.clone(),
                    })
                });
                listed.collect()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::workspace::{DeclaredTarget, KernelCompiler};

    /// The answer of a program that lists a model and then does `end`.
    fn answer(end: &str) -> ListAnswer {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("vram");
        let hello = ProbeEvent::Hello {
            protocol: PROTOCOL,
            version: String::new(),
            adapter: String::new(),
            features: None,
            folder: String::new(),
        };
        let model = ProbeEvent::Model {
            name: "first".to_owned(),
            task: Task::Train,
        };
        let [hello, model] = [hello, model].map(|event| serde_json::to_string(&event).unwrap());
        let script = format!(
            "#!/bin/sh\n\
             events=$(sed -n 's/.*\"events\": *\"\\([^\"]*\\)\".*/\\1/p' \"$CARGO_VRAM_JOB\")\n\
             echo '{hello}' >> \"$events\"\necho '{model}' >> \"$events\"\n{end}\n"
        );
        std::fs::write(&executable, script).unwrap();
        std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o755)).unwrap();
        let built = Built {
            target: DeclaredTarget {
                package: "p".into(),
                package_id: "p".to_owned(),
                folder: folder.path().to_str().unwrap().into(),
                name: "vram".into(),
                option: "--bench",
                burn: "0.21.0".into(),
            },
            executable: executable.to_str().unwrap().into(),
            is_local: false,
            kernel_code: None,
            kernel_compiler: KernelCompiler::Nvrtc,
        };
        ask(&built, &folder.path().join("list"))
    }

    #[test]
    fn a_list_of_models_that_breaks_off_is_refused() {
        let whole = answer("exit 0").unwrap();
        assert_eq!(
            whole.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(),
            ["first"]
        );
        for (end, told) in [
            (
                "echo gone >&2; exit 3",
                "it exited with code 3; last line of stderr: gone",
            ),
            ("kill -9 $$", "signal 9 ended it"),
            (
                "echo '{\"model\"' >> \"$events\"",
                "a line of its answer cannot be read",
            ),
        ] {
            let problem = answer(end).unwrap_err();
            let expected = format!("`vram` of p did not list its models to the end: {told}");
            assert_eq!(
                (problem.code, problem.message.raw()),
                (ErrorCode::NoAnswer, expected.as_str())
            );
        }
    }
}
