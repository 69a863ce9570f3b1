//! `cargo vram doctor`: what is here, and what is missing.

use std::path::Path;
use std::process::Command;

use clap::Args;

use super::exit::Exit;
use super::options::{Loudness, Packages};
use super::{Stopped, pipeline, terminal};
use crate::workspace;

/// Tell what is here, and what to do about what is missing
#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    packages: Packages,
}

enum Finding {
    Pass(String),
    Warn(String, String),
    Fail(String, String),
}

use Finding::{Fail, Pass, Warn};

impl Doctor {
    pub(super) fn run(&self, _: Loudness) -> Result<Exit, Stopped> {
        let mut findings = vec![host(), program("rustc", "RUSTC"), program("cargo", "CARGO"), gpu()];
        match pipeline::prepare(&self.packages, None, None) {
            Ok(prepared) => {
                findings.push(Pass(format!("workspace: {}", prepared.source.root())));
                findings.push(match &prepared.budgets {
                    Some(budgets) => Pass(format!("{}: {} budgets", prepared.budgets_name, budgets.models.len())),
                    None => Warn(
                        format!("{} does not exist", prepared.budgets_name),
                        "`cargo vram init` writes a first one".to_owned(),
                    ),
                });
                let workspace = prepared.source.workspace();
                let (targets, problems) = workspace.map(workspace::declared_targets).unwrap_or_default();
                for target in &targets {
                    findings.push(Pass(format!(
                        "{}: target `{}`, Burn {}",
                        target.package, target.name, target.burn
                    )));
                }
                if targets.is_empty() && problems.is_empty() {
                    findings.push(Warn(
                        "no models are declared".to_owned(),
                        "`cargo vram init` declares one".to_owned(),
                    ));
                }
                for problem in problems {
                    findings.push(Fail(problem.message, problem.help.unwrap_or_default()));
                }
                findings.push(match prepared.source.driver() {
                    Ok(driver) => Pass(format!("virtual driver: {}", driver.library.display())),
                    Err(error) => Fail(format!("virtual driver: {error}"), help(&*error)),
                });
            }
            Err(error) => findings.push(Fail(error.to_string(), help(&*error))),
        }
        let failed = findings.iter().any(|finding| matches!(finding, Fail(..)));
        terminal::show(&findings.iter().map(line).collect::<String>());
        Ok(if failed { Exit::Incomplete } else { Exit::Success })
    }
}

fn help(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    error.help().map(|help| help.to_string()).unwrap_or_default()
}

fn line(finding: &Finding) -> String {
    match finding {
        Pass(what) => format!("pass  {what}\n"),
        Warn(what, fix) => format!("warn  {what}\n      help: {fix}\n"),
        Fail(what, fix) => format!("fail  {what}\n      help: {fix}\n"),
    }
}

fn host() -> Finding {
    let host = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let supported = cfg!(all(
        target_os = "linux",
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ));
    if supported {
        Pass(format!("host: {host} with glibc"))
    } else {
        Fail(
            format!("host: {host}"),
            "models run on Linux with glibc, x86-64 or aarch64".to_owned(),
        )
    }
}

fn program(name: &str, variable: &str) -> Finding {
    let program = std::env::var(variable).unwrap_or_else(|_| name.to_owned());
    match Command::new(&program).arg("--version").output() {
        Ok(output) if output.status.success() => Pass(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Fail(
            format!("`{program}` does not run"),
            "install Rust, or put it on PATH".to_owned(),
        ),
    }
}

fn gpu() -> Finding {
    if Path::new("/dev/nvidiactl").exists() {
        Warn(
            "GPU: an NVIDIA driver is here".to_owned(),
            "this version of cargo-vram only estimates: `cargo vram check --estimate`".to_owned(),
        )
    } else {
        Pass("GPU: none, and none is needed to estimate".to_owned())
    }
}
