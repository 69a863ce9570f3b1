//! The host, Rust, and what this program builds with it.

use std::process::Command;

use super::Finding::{self, Fail, Pass};
use super::help;
use crate::cli::Stopped;
use crate::cli::survey::Built;

pub(super) fn findings(built: &Result<Built, Stopped>) -> Vec<Finding> {
    vec![
        host(),
        program("rustc", "RUSTC"),
        program("cargo", "CARGO"),
        driver(built),
    ]
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

fn driver(built: &Result<Built, Stopped>) -> Finding {
    match built {
        Ok(built) => Pass(format!("virtual driver: {}", built.library.library.display())),
        Err(error) => Fail(format!("virtual driver: {error}"), help(&**error)),
    }
}
