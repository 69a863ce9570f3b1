//! Checks the host, Rust, and the virtual driver that this program builds with Rust.

use std::path::Path;
use std::process::Command;

use super::finding::Finding::{self, Fail, Pass};
use super::finding::{DoctorCheck, help, said};
use crate::cli::error::CliError;
use crate::cli::session::source::ModelSource;
use crate::cli::session::survey::DriverForSurvey;
use crate::workspace;

pub(super) fn checks(source: Option<&ModelSource>, built: &Result<DriverForSurvey, CliError>) -> Vec<DoctorCheck> {
    let host = host().of("host");
    if let Some(ModelSource::Archive(_)) = source {
        let not_needed = |name: &'static str| Pass(format!("{name}: not needed with an archive")).of(name);
        let driver = Pass("virtual driver: from the archive".to_owned()).of("virtual-driver");
        return vec![host, not_needed("rustc"), not_needed("cargo"), driver];
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    vec![
        host,
        program(&workspace::rustc()).of("rustc"),
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
            "use Linux with glibc on x86-64 or aarch64: models run only there".to_owned(),
        )
    }
}

fn program(program: &Path) -> Finding {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Pass(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Fail(
            format!("cannot run `{}`", program.display()),
            "install Rust, or add it to PATH".to_owned(),
        ),
    }
}

fn driver(built: &Result<DriverForSurvey, CliError>) -> Finding {
    match built {
        Ok(built) => Pass(format!("virtual driver: {}", built.library.library.display())),
        Err(error) => Fail(
            format!("virtual driver: {}", said(error.diagnostic())),
            help(error.diagnostic()),
        ),
    }
}
