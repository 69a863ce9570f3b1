//! The options that several commands share.
//!
//! Every command's help has the same headings in the same order: Selection, What-if, GPU, Run, Baseline, Output, Cargo.
//! Clap prints headings in the order in which their first options are defined, so the order of fields matters.

use std::collections::BTreeMap;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use clap::{Args, ValueEnum};

use crate::budget::STEPS;
use crate::cli::error::NotUtf8;
use crate::report::{Partition, Pass};
use crate::run::InjectedFault;
use crate::workspace::{BuildOptions, Selection};

/// The options that say how much a command prints.
// Clap appends these options to every command. Their explicit order puts them at the end of the heading `Output`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Verbosity {
    /// Print only problems
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Output",
        display_order = 100
    )]
    pub(crate) quiet: bool,
    /// Also print assumptions and times
    #[arg(short, long, global = true, help_heading = "Output", display_order = 101)]
    pub(crate) verbose: bool,
    /// Choose when to print in color
    #[arg(
        long,
        global = true,
        help_heading = "Output",
        display_order = 102,
        value_enum,
        value_name = "WHEN",
        env = "CARGO_TERM_COLOR",
        default_value = "auto",
        ignore_case = true,
        hide_env_values = true
    )]
    pub(crate) color: Color,
}

/// When a command prints in color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Use colors if the output is a terminal and `NO_COLOR` is not set
    Auto,
    /// Always use colors
    Always,
    /// Never use colors
    Never,
}

/// Cargo's options: the packages, their features and how to build them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Packages {
    // In a command, `next_help_heading` applies to all later options that name no heading. So all others name theirs.
    #[command(flatten, next_help_heading = "Selection")]
    workspace: clap_cargo::Workspace,
    #[command(flatten, next_help_heading = "Cargo")]
    manifest: clap_cargo::Manifest,
    #[command(flatten, next_help_heading = "Cargo")]
    features: clap_cargo::Features,
    /// Build and run the models for this target triple
    #[arg(long, value_name = "TRIPLE", help_heading = "Cargo")]
    target: Option<String>,
    /// Require that Cargo.lock is up to date
    #[arg(long, help_heading = "Cargo")]
    locked: bool,
    /// Run without accessing the network
    #[arg(long, help_heading = "Cargo")]
    offline: bool,
    /// Override a Cargo configuration value
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Cargo")]
    config: Vec<String>,
    /// Build the models with optimizations
    ///
    /// Optimized models take longer to build and less time to start.
    #[arg(long, help_heading = "Cargo", conflicts_with = "cargo_profile")]
    release: bool,
    /// Build the models with this Cargo profile
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    cargo_profile: Option<String>,
}

impl Packages {
    /// Returns the packages, features and flags for Cargo.
    ///
    /// # Errors
    ///
    /// The path of the manifest is not UTF-8.
    pub(crate) fn selection(&self) -> Result<Selection, NotUtf8> {
        let manifest_path = self
            .manifest
            .manifest_path
            .clone()
            .map(Utf8PathBuf::try_from)
            .transpose()
            .map_err(NotUtf8)?;
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
            // Only `init` follows them: with a changed
            // `default-members`, a model could leave a check unnoticed.
            default_members: false,
        })
    }

    /// Returns the manifest of `--manifest-path`, or the nearest `Cargo.toml` in this folder and the folders above it.
    pub(crate) fn manifest(&self) -> Option<Utf8PathBuf> {
        let here = Utf8PathBuf::try_from(std::env::current_dir().ok()?).ok()?;
        // As Cargo finds it. `--rebuild` needs the path to find the same manifest in the base's checkout.
        let path = match &self.manifest.manifest_path {
            Some(path) => Utf8PathBuf::try_from(path.clone()).ok()?,
            None => here
                .ancestors()
                .map(|folder| folder.join("Cargo.toml"))
                .find(|path| path.exists())?,
        };
        path.canonicalize_utf8().ok()
    }

    /// Returns these options for another manifest, with one more file of Cargo's configuration.
    pub(crate) fn at(&self, manifest: &Utf8Path, config: &Utf8Path) -> Self {
        let mut other = self.clone();
        other.manifest.manifest_path = Some(manifest.into());
        other.config.push(config.to_string());
        other
    }

    /// Returns these options with one more feature.
    pub(crate) fn with_feature(&self, feature: &str) -> Self {
        let mut more = self.clone();
        more.features.features.push(feature.to_owned());
        more
    }

    /// Returns how to build the models.
    pub(crate) fn build(&self, quiet: bool) -> BuildOptions {
        let profile = if self.release {
            Some("release".to_owned())
        } else {
            self.cargo_profile.clone()
        };
        BuildOptions { profile, quiet }
    }
}

/// The option that names an archive of built models.
#[derive(Debug, Clone, Args)]
pub(crate) struct ArchiveOptions {
    /// Use the built models of this archive instead of the workspace
    ///
    /// `cargo vram archive` writes such a file. Nothing is built, and the workspace is not read.
    // `PATH` is the id that clap-cargo gives to --manifest-path.
    #[arg(long, value_name = "FILE", help_heading = "Selection", conflicts_with_all = [
        "PATH", "workspace", "all", "exclude", "features", "all_features", "no_default_features", "target",
        "locked", "offline", "config", "release", "cargo_profile",
    ])]
    archive_file: Option<Utf8PathBuf>,
}

impl ArchiveOptions {
    /// Returns the path of the archive, if the command line names one.
    pub(crate) fn file(&self) -> Option<&camino::Utf8Path> {
        self.archive_file.as_deref()
    }
}

/// The default number of steps per pass. The second step is the first one with an optimizer's state.
pub(crate) const DEFAULT_STEPS: u32 = 3;
/// The default number of steps for leak detection: twice the 5 steps that it needs.
pub(crate) const LEAK_STEPS: &str = "10";

/// The options that select models and GPUs, and say how the models run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Running {
    /// Select models whose name or package/name matches this glob (repeatable)
    // It stands first under its heading, even if a command defines other options before this struct.
    #[arg(short, long, value_name = "GLOB", help_heading = "Selection", display_order = 0)]
    pub(crate) model: Vec<String>,
    /// Read the budgets from this file [default: budgets.yaml at the workspace root]
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(crate) budgets: Option<Utf8PathBuf>,
    /// Select one part of the models, such as `hash:1/4`
    ///
    /// Each model is always in the same part.
    #[arg(long, value_name = "hash:K/N", value_parser = partition, help_heading = "Selection")]
    pub(crate) partition: Option<Partition>,
    /// Run on these virtual GPUs, such as `l4,h200` [default: the GPU in budgets.yaml]
    ///
    /// `cargo vram gpus` lists the ids.
    #[arg(long, value_name = "ID", value_delimiter = ',', help_heading = "GPU")]
    pub(crate) gpu: Vec<String>,
    /// Replay the autotune choices of the recordings in this folder
    ///
    /// The recordings are from real GPUs: `cargo vram measure --record FOLDER` writes them.
    #[arg(long, value_name = "FOLDER", help_heading = "GPU")]
    pub(crate) recordings: Option<Utf8PathBuf>,
    /// Run this many steps per pass [default: from budgets.yaml, or 3]
    ///
    /// The second step is the first one with an optimizer's state. A model over several GPUs runs at least 3 steps.
    /// Without this option and `steps` in budgets.yaml, a model for Burn 0.22 runs 3 to 20 steps.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(i64::from(*STEPS.start())..=i64::from(*STEPS.end())),
        help_heading = "Run"
    )]
    pub(crate) steps: Option<u32>,
    /// Limit the time per pass, such as `90s` [default: from budgets.yaml, or 10min]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Run")]
    pub(crate) timeout: Option<Duration>,
    /// Limit the host memory of each process
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = size, help_heading = "Run")]
    pub(crate) host_memory: crate::bytes::Bytes,
    /// Number of models to run in parallel [default: number of cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Run")]
    pub(crate) jobs: Option<u32>,
    /// Make one call of the CUDA driver fail, such as `warm:cuLaunchKernel:17:719`
    ///
    /// With `:sticky` at the end, every later call fails, too.
    #[arg(long, value_name = "PASS:FUNCTION:CALL:CODE", value_parser = fault, hide = true, help_heading = "Run")]
    pub(crate) fault: Option<InjectedFault>,
    /// Replay the autotune choices in this folder, and skip the cold pass
    #[arg(long, value_name = "FOLDER", hide = true, help_heading = "Run")]
    pub(crate) plan: Option<std::path::PathBuf>,
    /// Keep job files, events and driver logs in this folder, for a bug report
    #[arg(long, value_name = "FOLDER", help_heading = "Run")]
    pub(crate) keep: Option<Utf8PathBuf>,
    /// Print to stderr how long the build, each pass and the output took
    #[arg(long, help_heading = "Run")]
    pub(crate) timings: bool,
}

impl Running {
    /// Returns the number of models to run in parallel: `--jobs`, or the number of cores.
    pub(crate) fn jobs(&self) -> usize {
        // That many cases may run a process at once; the others wait. See docs/design/processes.md.
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// The format of the output and the file that it goes to.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Set the output format
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "human",
        help_heading = "Output"
    )]
    pub(crate) message_format: Format,
    /// Write the output to this file
    ///
    /// The table is still printed to the terminal.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<Utf8PathBuf>,
}

/// The format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    Human,
    /// A JSON document
    Json,
}

/// The format of a report and the file that it goes to.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportOutput {
    /// Set the output format
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "human",
        help_heading = "Output"
    )]
    pub(crate) message_format: ReportFormat,
    /// Write the output to this file
    ///
    /// The table is still printed to the terminal.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<Utf8PathBuf>,
}

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// A table
    Human,
    /// The report as JSON (`cargo vram schema` prints its schema)
    Json,
    /// Markdown for a pull request comment or a workflow summary
    Markdown,
    /// Annotations for GitHub workflows
    Github,
    /// JUnit XML
    Junit,
}

/// The inputs that the command line sets.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InputOptions {
    /// Set an input of the models, such as `batch_size=64` (repeatable)
    #[arg(long = "set", value_name = "INPUT=VALUE", value_parser = input, help_heading = "Selection")]
    set: Vec<(String, u64)>,
    /// Set the input `epochs` of models that train for epochs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Selection")]
    epochs: Option<u64>,
    /// Limit the items that an epoch reads from each dataset: the input `items`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Selection")]
    items: Option<u64>,
}

impl InputOptions {
    /// Returns the inputs by name. For an input that is set twice, the last value counts.
    pub(crate) fn values(&self) -> BTreeMap<String, u64> {
        let own = [("epochs", self.epochs), ("items", self.items)];
        let own = own
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.set.iter().cloned().chain(own).collect()
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
        .ok_or_else(|| "expected a time with a unit, such as 90s, 10min or 1h".to_owned())
}

pub(super) fn size(text: &str) -> Result<crate::bytes::Bytes, String> {
    crate::budget::parse_size(text).ok_or_else(|| "expected a size with a unit, such as 8GiB".to_owned())
}

fn fault(text: &str) -> Result<InjectedFault, String> {
    let (pass, call) = text
        .split_once(':')
        .ok_or("expected PASS:FUNCTION:CALL:CODE, such as warm:cuLaunchKernel:17:719")?;
    let pass = match pass {
        "cold" => Pass::Cold,
        "warm" => Pass::Warm,
        "traced" => Pass::Traced,
        _ => return Err(format!("`{pass}` is not a pass: expected cold, warm or traced")),
    };
    Ok(InjectedFault {
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
