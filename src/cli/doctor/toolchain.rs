//! The host, Rust, and what this program builds with it.

use std::path::Path;
use std::process::Command;

use super::Finding::{self, Fail, Pass};
use super::{Check, help, said};
use crate::cli::Stopped;
use crate::cli::source::Source;
use crate::cli::survey::{self, Built};

pub(super) fn checks(source: Option<&Source>, built: &Result<Built, Stopped>) -> Vec<Check> {
    let host = host().of("host");
    if let Some(Source::Archive(_)) = source {
        let not_needed = |name: &'static str| Pass(format!("{name}: not needed: an archive")).of(name);
        let driver = Pass("virtual driver: that of the archive".to_owned()).of("virtual-driver");
        return vec![host, not_needed("rustc"), not_needed("cargo"), driver];
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    vec![
        host,
        program(&survey::rustc()).of("rustc"),
        program(Path::new(&cargo)).of("cargo"),
        driver(built).of("virtual-driver"),
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

fn program(program: &Path) -> Finding {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Pass(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Fail(
            format!("`{}` does not run", program.display()),
            "install Rust, or put it on PATH".to_owned(),
        ),
    }
}

fn driver(built: &Result<Built, Stopped>) -> Finding {
    match built {
        Ok(built) => Pass(format!("virtual driver: {}", built.library.library.display())),
        Err(error) => Fail(format!("virtual driver: {}", said(&**error)), help(&**error)),
    }
}
