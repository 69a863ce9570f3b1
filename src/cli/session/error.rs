//! Errors in the selection of models and GPUs, and in the files of a command.

use std::path::Path;

use camino::Utf8PathBuf;
use miette::Diagnostic;
use thiserror::Error;

use crate::cli::error::ExitCoded;
use crate::cli::exit::Exit;

/// Why a command cannot use its options or files.
#[derive(Debug, Error, Diagnostic)]
pub(in crate::cli) enum SelectionError {
    /// Neither `--gpu` nor `budgets.yaml` names a GPU.
    #[error("no GPU selected")]
    #[diagnostic(
        code(cli::no_gpu),
        help("pass --gpu l4 (`cargo vram gpus` lists the GPUs), or write `gpu: l4` in budgets.yaml")
    )]
    NoGpu,
    /// A glob of `-m` matches no model.
    #[error("no model matches {0}")]
    #[diagnostic(code(cli::no_match))]
    NoMatch(String, #[help] String),
    /// A glob is invalid.
    #[error(transparent)]
    #[diagnostic(
        code(cli::glob),
        help("write a name in which `*` stands for any text, such as -m 'resnet*'")
    )]
    Glob(#[from] globset::Error),
    /// The budgets file does not exist.
    #[error("{0} does not exist")]
    #[diagnostic(
        code(cli::no_budgets),
        help("run `cargo vram init` to write budgets.yaml, or name another file with --budgets")
    )]
    NoBudgets(Utf8PathBuf),
    /// The archive contains no budgets file.
    #[error("the archive {0} contains no budgets")]
    #[diagnostic(
        code(cli::no_budgets),
        help("name a budgets file with --budgets, or write budgets.yaml before you run `cargo vram archive`")
    )]
    NoBudgetsInArchive(Utf8PathBuf),
    /// A file or folder cannot be used.
    #[error("cannot use {path}")]
    #[diagnostic(code(cli::file), help("{}", advice(source)))]
    File {
        /// The path of the file or folder.
        path: Utf8PathBuf,
        /// The error that the system reports.
        source: std::io::Error,
    },
}

/// Says what to check after an error of the system.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "check the path: no file or folder is there",
        _ => "check that the path exists, that you may read and write it, and that the disk is not full",
    }
}

impl ExitCoded for SelectionError {
    fn exit(&self) -> Exit {
        match self {
            Self::File { .. } => Exit::Incomplete,
            Self::NoGpu | Self::NoMatch(..) | Self::Glob(_) | Self::NoBudgets(_) | Self::NoBudgetsInArchive(_) => {
                Exit::Unusable
            }
        }
    }
}

/// `--gpu` names several GPUs for a command that takes one.
#[derive(Debug, Error, Diagnostic)]
#[error("--gpu names {} GPUs ({}), but this command takes only one", .0.len(), .0.join(", "))]
#[diagnostic(
    code(cli::several_gpus),
    help("run the command once per GPU, or use `cargo vram estimate` or `cargo vram check`, which take several")
)]
pub(in crate::cli) struct SeveralGpus(pub(in crate::cli) Vec<String>);

impl ExitCoded for SeveralGpus {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }
}

/// Adds the path of a file or folder to an I/O error.
pub(in crate::cli) fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> SelectionError + use<> {
    let path = Utf8PathBuf::from(path.to_string_lossy().into_owned());
    move |source| SelectionError::File { path, source }
}
