//! `cargo vram gpus`: the cards there are profiles of, and those that are here.

mod detect;

use camino::Utf8PathBuf;
use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::exit::Exit;
use super::options::{Format, Output};
use super::{Stopped, pipeline};
use crate::bytes::Bytes;
use crate::gpu::{Profile, Profiles, Sourced};

/// List the cards that models can be estimated for, or those of this machine
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram gpus
  cargo vram gpus --sources                 where each figure is from
  cargo vram gpus --message-format json
  cargo vram gpus --detect                  the cards of this machine, to be pasted into budgets.yaml

A card of your own goes into budgets.yaml:
  gpu_profiles:
    lab-card: { like: l4, total: 20 GiB }")]
pub(super) struct Gpus {
    /// Show where each figure is from
    #[arg(long)]
    sources: bool,
    /// Show the cards of this machine instead, as their driver reports them, for budgets.yaml
    #[arg(long, conflicts_with = "sources")]
    detect: bool,
    /// Ask for the cards of this machine with the program in this archive: without Rust
    #[arg(long, value_name = "FILE", requires = "detect")]
    archive_file: Option<Utf8PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Figure<T> {
    value: T,
    source: String,
    assumed: bool,
}

#[derive(Serialize)]
struct Card<'a> {
    id: &'a str,
    name: &'a str,
    compute_capability: String,
    total_bytes: Figure<Bytes>,
    sm_count: Figure<u32>,
    l2_cache_bytes: Figure<Bytes>,
    shared_memory_per_block_optin: Bytes,
    context_bytes: Figure<Bytes>,
    modules_bytes: Figure<Bytes>,
    available_bytes: Bytes,
}

impl Gpus {
    pub(super) fn run(&self) -> Result<Exit, Stopped> {
        let profiles = Profiles::builtin()?;
        if self.detect {
            return detect::run(&profiles, self.archive_file.as_deref(), &self.output);
        }
        let text = match self.output.message_format {
            Format::Json => pipeline::json(&profiles.iter().map(card).collect::<Vec<_>>())?,
            Format::Human if self.sources => profiles.iter().map(sources).collect(),
            Format::Human => table(&profiles),
        };
        pipeline::put(&text, self.output.output.as_deref())?;
        Ok(Exit::Success)
    }
}

fn card(profile: &Profile) -> Card<'_> {
    Card {
        id: &profile.id,
        name: &profile.name,
        compute_capability: capability(profile),
        total_bytes: figure(&profile.total),
        sm_count: figure(&profile.sm_count),
        l2_cache_bytes: figure(&profile.l2_cache),
        shared_memory_per_block_optin: profile.limits.shared_per_block_optin,
        context_bytes: figure(&profile.context),
        modules_bytes: figure(&profile.modules),
        available_bytes: profile.available(),
    }
}

fn figure<T: Copy>(sourced: &Sourced<T>) -> Figure<T> {
    Figure {
        value: sourced.value,
        source: sourced.provenance.text().to_owned(),
        assumed: sourced.provenance.is_assumed(),
    }
}

fn capability(profile: &Profile) -> String {
    let (major, minor) = profile.compute_capability;
    format!("{major}.{minor}")
}

fn table(profiles: &Profiles) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header([
        "id",
        "name",
        "cc",
        "SMs",
        "total",
        "context",
        "for models",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for profile in profiles.iter() {
        table.add_row([
            profile.id.clone(),
            profile.name.clone(),
            capability(profile),
            profile.sm_count.value.to_string(),
            marked(&profile.total),
            marked(&profile.context),
            format!("{:#}", profile.available()),
        ]);
    }
    format!(
        "{table}\n~ assumed; what is for models leaves room for the context and for loaded kernels, which are assumed for every card\n"
    )
}

fn marked(figure: &Sourced<Bytes>) -> String {
    let mark = if figure.provenance.is_assumed() { "~" } else { "" };
    format!("{mark}{:#}", figure.value)
}

fn sources(profile: &Profile) -> String {
    let line = |what: &str, value: String, source: String| format!("  {what}: {value}\n      {source}\n");
    [
        format!(
            "{} ({}, compute capability {})\n",
            profile.id,
            profile.name,
            capability(profile)
        ),
        line(
            "total",
            profile.total.value.0.to_string(),
            profile.total.provenance.to_string(),
        ),
        line(
            "SMs",
            profile.sm_count.value.to_string(),
            profile.sm_count.provenance.to_string(),
        ),
        line(
            "L2 cache",
            profile.l2_cache.value.0.to_string(),
            profile.l2_cache.provenance.to_string(),
        ),
        line(
            "context",
            profile.context.value.0.to_string(),
            profile.context.provenance.to_string(),
        ),
        line(
            "modules",
            profile.modules.value.0.to_string(),
            profile.modules.provenance.to_string(),
        ),
    ]
    .concat()
}
