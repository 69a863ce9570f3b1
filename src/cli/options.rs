//! The options that several commands share.

use std::collections::BTreeMap;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Args, ValueEnum};

use crate::budget::STEPS;
use crate::report::{Partition, Pass};
use crate::run::Fault;
use crate::workspace::{BuildOptions, Selection};

/// How loud a command is.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Loudness {
    /// Only what is wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also what the figures assume, and how long they took
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colours
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        env = "CARGO_TERM_COLOR",
        default_value = "auto",
        ignore_case = true,
        hide_env_values = true
    )]
    pub(crate) color: Color,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Where the output is a terminal and `NO_COLOR` is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Packages and features, as Cargo has them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Packages {
    #[command(flatten)]
    manifest: clap_cargo::Manifest,
    #[command(flatten)]
    workspace: clap_cargo::Workspace,
    #[command(flatten)]
    features: clap_cargo::Features,
    /// Build and run for this target triple
    #[arg(long, value_name = "TRIPLE", help_heading = "Cargo")]
    target: Option<String>,
    /// Require that Cargo.lock is up to date
    #[arg(long, help_heading = "Cargo")]
    locked: bool,
    /// Do without the network
    #[arg(long, help_heading = "Cargo")]
    offline: bool,
    /// Override a value of Cargo's configuration
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Cargo")]
    config: Vec<String>,
    /// Build the models with optimizations: they start faster, and build slower
    #[arg(long, help_heading = "Cargo", conflicts_with = "cargo_profile")]
    release: bool,
    /// Build the models with this profile of Cargo
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    cargo_profile: Option<String>,
}

impl Packages {
    pub(crate) fn selection(&self) -> Result<Selection, camino::FromPathBufError> {
        let manifest_path = self
            .manifest
            .manifest_path
            .clone()
            .map(Utf8PathBuf::try_from)
            .transpose()?;
        let mut features = Vec::new();
        if self.features.all_features {
            features.push("--all-features".to_owned());
        }
        if self.features.no_default_features {
            features.push("--no-default-features".to_owned());
        }
        for feature in &self.features.features {
            features.extend(["--features".to_owned(), feature.clone()]);
        }
        let mut cargo_flags = Vec::new();
        if self.locked {
            cargo_flags.push("--locked".to_owned());
        }
        if self.offline {
            cargo_flags.push("--offline".to_owned());
        }
        for config in &self.config {
            cargo_flags.extend(["--config".to_owned(), config.clone()]);
        }
        Ok(Selection {
            manifest_path,
            packages: self.workspace.package.clone(),
            workspace: self.workspace.workspace || self.workspace.all,
            exclude: self.workspace.exclude.clone(),
            features,
            cargo_flags,
            target: self.target.clone(),
            default_members: false,
        })
    }

    /// The manifest that is meant: the one that was named, or the nearest above.
    pub(crate) fn manifest(&self) -> Option<Utf8PathBuf> {
        let here = Utf8PathBuf::try_from(std::env::current_dir().ok()?).ok()?;
        let path = match &self.manifest.manifest_path {
            Some(path) => Utf8PathBuf::try_from(path.clone()).ok()?,
            None => here
                .ancestors()
                .map(|folder| folder.join("Cargo.toml"))
                .find(|path| path.exists())?,
        };
        path.canonicalize_utf8().ok()
    }

    /// The same of another manifest, with more of Cargo's configuration.
    pub(crate) fn at(&self, manifest: &Utf8Path, config: &Utf8Path) -> Self {
        let mut other = self.clone();
        other.manifest.manifest_path = Some(manifest.into());
        other.config.push(config.to_string());
        other
    }

    /// The same, with one more feature.
    pub(crate) fn with_feature(&self, feature: &str) -> Self {
        let mut more = self.clone();
        more.features.features.push(feature.to_owned());
        more
    }

    pub(crate) fn build(&self, quiet: bool) -> BuildOptions {
        let profile = if self.release {
            Some("release".to_owned())
        } else {
            self.cargo_profile.clone()
        };
        BuildOptions { profile, quiet }
    }
}

/// Models that were built elsewhere.
#[derive(Debug, Clone, Args)]
pub(crate) struct Archive {
    /// Take the models of this file, which `cargo vram archive` wrote: nothing is built, and the workspace is not looked
    /// at
    // `PATH` is what clap-cargo calls --manifest-path.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "PATH", "workspace", "all", "exclude", "features", "all_features", "no_default_features", "target",
        "locked", "offline", "config", "release", "cargo_profile",
    ])]
    archive_file: Option<Utf8PathBuf>,
}

impl Archive {
    pub(crate) fn file(&self) -> Option<&camino::Utf8Path> {
        self.archive_file.as_deref()
    }
}

/// Steps of a pass where nobody said how many: the second is the first with an optimizer's state.
pub(crate) const DEFAULT_STEPS: u32 = 3;
/// Steps where leaks are looked for and nobody said how many: the fewest that tell, twice.
pub(crate) const LEAK_STEPS: &str = "10";

/// Which models, on which card, and how they are run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Running {
    /// Only models whose name, or package/name, matches this glob; may be given several times
    #[arg(short, long, value_name = "GLOB")]
    pub(crate) model: Vec<String>,
    /// Run on these GPUs, such as `l4` or `l4,h200` (`cargo vram gpus` lists them) [default: that of budgets.yaml]
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) gpu: Vec<String>,
    /// The file of budgets, instead of budgets.yaml at the workspace root
    #[arg(long, value_name = "FILE")]
    pub(crate) budgets: Option<Utf8PathBuf>,
    /// Steps of each pass, instead of those of budgets.yaml, or 3; at least 3 over several GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(*STEPS.start())..=i64::from(*STEPS.end())))]
    pub(crate) steps: Option<u32>,
    /// How long one pass of a model may take, such as `90s` or `10min`; budgets.yaml may say otherwise for a model
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// The host's memory that one process may use
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = size)]
    pub(crate) host_memory: crate::bytes::Bytes,
    /// Processes at once; by default one a core
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Only one part of the models, such as `hash:1/4`: each model is always in the same part
    #[arg(long, value_name = "hash:K/N", value_parser = partition)]
    pub(crate) partition: Option<Partition>,
    /// Let a call of the CUDA driver fail, to see what becomes of it: `warm:cuLaunchKernel:17:719`, and `:sticky`
    /// where everything fails from then on
    #[arg(long, value_name = "PASS:FUNCTION:CALL:CODE", value_parser = fault, hide = true)]
    pub(crate) fault: Option<Fault>,
    /// Replay the choices of autotune in this folder, and leave the cold pass out
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) plan: Option<std::path::PathBuf>,
    /// Replay what autotune chose on real cards, from the recordings in this folder (`measure --record` writes them)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) recordings: Option<Utf8PathBuf>,
    /// Keep each process's files in this folder: what it was told, what it said, and the driver's record of every
    /// allocation; for a bug report
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<Utf8PathBuf>,
    /// Print where the time went, on standard error: build, each pass of each model, output
    #[arg(long)]
    pub(crate) timings: bool,
}

impl Running {
    /// Estimates at once: so many as were asked for, or one a core.
    pub(crate) fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// What the output looks like, and where it goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// What the output looks like
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human")]
    pub(crate) message_format: Format,
    /// Write the output to a file; people are then shown the table all the same
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<Utf8PathBuf>,
}

/// What the output looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table.
    Human,
    /// A JSON document.
    Json,
}

/// What a report looks like, and where it goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportOutput {
    /// What the output looks like
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human")]
    pub(crate) message_format: ReportFormat,
    /// Write the output to a file; people are then shown the table all the same
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<Utf8PathBuf>,
}

/// What a report looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// A table
    Human,
    /// The report, as `cargo vram schema` describes it
    Json,
    /// Markdown, for a comment on a pull request or the summary of a step
    Markdown,
    /// Annotations of GitHub's workflows
    Github,
    /// JUnit XML
    Junit,
}

/// Inputs that are set on the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Inputs {
    /// Set an input of the models, such as `batch_size=64`; may be given several times
    #[arg(long = "set", value_name = "INPUT=VALUE", value_parser = input)]
    set: Vec<(String, u64)>,
}

impl Inputs {
    pub(crate) fn values(&self) -> BTreeMap<String, u64> {
        self.set.iter().cloned().collect()
    }
}

fn input(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected INPUT=VALUE, such as batch_size=64")?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| format!("`{value}` is not a whole number of 0 or more"))?;
    Ok((name.trim().to_owned(), value))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    crate::budget::parse_duration(text)
        .ok_or_else(|| "expected a time with its unit, such as 90s, 10min or 1h".to_owned())
}

pub(super) fn size(text: &str) -> Result<crate::bytes::Bytes, String> {
    crate::budget::parse_size(text).ok_or_else(|| "expected a size with its unit, such as 8GiB".to_owned())
}

fn fault(text: &str) -> Result<Fault, String> {
    let (pass, call) = text
        .split_once(':')
        .ok_or("expected PASS:FUNCTION:CALL:CODE, such as warm:cuLaunchKernel:17:719")?;
    let pass = match pass {
        "cold" => Pass::Cold,
        "warm" => Pass::Warm,
        "traced" => Pass::Traced,
        _ => return Err(format!("`{pass}` is no pass: expected cold, warm or traced")),
    };
    Ok(Fault {
        pass,
        call: call.to_owned(),
    })
}

fn partition(text: &str) -> Result<Partition, String> {
    Partition::parse(text).ok_or_else(|| "expected hash:K/N with K from 1 to N, such as hash:1/4".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        running: Running,
    }

    #[test]
    fn several_gpus_are_named_with_commas_or_one_after_the_other() {
        let named = |arguments: &[&str]| {
            let all = ["program"].iter().chain(arguments);
            <Program as clap::Parser>::try_parse_from(all).unwrap().running.gpu
        };
        assert_eq!(named(&["--gpu", "l4,h100-80gb", "--gpu=t4"]), ["l4", "h100-80gb", "t4"]);
        assert!(named(&[]).is_empty());
    }

    #[test]
    fn an_input_is_a_name_and_a_whole_number() {
        assert_eq!(input("batch_size=64"), Ok(("batch_size".to_owned(), 64)));
        assert!(input("batch_size").is_err());
        assert!(input("batch_size=-1").is_err());
        assert!(input("batch_size=1.5").is_err());
    }
}
