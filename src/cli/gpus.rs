//! `cargo vram gpus`: lists the GPUs with a profile, or the GPUs of this machine.

mod detect;

use camino::Utf8PathBuf;
use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::exit::Exit;
use super::options::{Format, OutputOptions};
use crate::bytes::Bytes;
use crate::cli::error::CliError;
use crate::cli::session;
use crate::gpu::{Profile, Profiles, Sourced};

/// List the GPUs that models can be estimated for, or the GPUs of this machine
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram gpus
  cargo vram gpus --sources                print the source of each value
  cargo vram gpus --message-format json
  cargo vram gpus --here                   print profiles of this machine's
                                           GPUs, to paste into budgets.yaml
  cargo vram gpus --here -o profile.yaml   write the same to a file

To add a GPU, describe it in budgets.yaml:
  gpu_profiles:
    lab-gpu: { like: l4, total: 20 GiB }")]
pub(super) struct GpusCommand {
    /// Survey this machine's GPUs with the program in this archive, without Rust
    #[arg(long, value_name = "FILE", requires = "here", help_heading = "Selection")]
    archive_file: Option<Utf8PathBuf>,
    /// Print profiles of this machine's GPUs for budgets.yaml
    ///
    /// The values are those that the driver reports.
    #[arg(long, alias = "detect", conflicts_with = "sources", help_heading = "GPU")]
    here: bool,
    /// Print for each value whether it is published or assumed, and its source
    #[arg(long, help_heading = "Output")]
    sources: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// The text below the table: it explains the columns.
const FOOTER: &str = "\
~ assumed: not published for this GPU (--sources prints every source)
for models: the total without the context and 32 MiB for kernels (assumed)
Totals of one GPU differ between machines by up to 150 MiB. On Burn 0.21 every
page of the allocator differs in proportion, and so does the reserved memory.
`cargo vram gpus --here` prints the profile of this machine's GPU.
";

/// The text below the sources: it explains which of several readings counts.
const RULE: &str = "
Published: measured (read from such a GPU) or documented. Assumed: not found.
If a total has several readings, the one of the newest driver counts. If a
context has several readings, the highest one counts that was taken with that
total. Totals of one GPU differ between machines by up to 150 MiB.
";

#[derive(Serialize)]
struct ListedValue<T> {
    value: T,
    source: String,
    assumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// The lowest and the highest published value, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    readings: Option<(T, T)>,
}

#[derive(Serialize)]
struct ListedGpu<'a> {
    id: &'a str,
    name: &'a str,
    compute_capability: String,
    total_bytes: ListedValue<Bytes>,
    sm_count: ListedValue<u32>,
    l2_cache_bytes: ListedValue<Bytes>,
    shared_memory_per_block_optin: Bytes,
    context_bytes: ListedValue<Bytes>,
    modules_bytes: ListedValue<Bytes>,
    available_bytes: Bytes,
    largest_tensor_bytes: Bytes,
}

impl GpusCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let profiles = Profiles::builtin()?;
        if self.here {
            return detect::run(&profiles, self.archive_file.as_deref(), &self.output);
        }
        let text = match self.output.message_format {
            Format::Json => session::json(&profiles.iter().map(gpu).collect::<Vec<_>>())?,
            Format::Human if self.sources => profiles.iter().map(sources).chain([RULE.to_owned()]).collect(),
            Format::Human => table(&profiles),
        };
        session::put(&text, self.output.message_format, self.output.output.as_deref())?;
        Ok(Exit::Success)
    }
}

fn gpu(profile: &Profile) -> ListedGpu<'_> {
    ListedGpu {
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
        largest_tensor_bytes: profile.largest_tensor(),
    }
}

fn figure<T: Copy>(sourced: &Sourced<T>) -> ListedValue<T> {
    ListedValue {
        value: sourced.value,
        source: sourced.provenance.source.clone(),
        assumed: sourced.provenance.is_assumed(),
        link: sourced.link.clone(),
        readings: sourced.readings,
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
    format!("{table}\n{FOOTER}")
}

fn marked(figure: &Sourced<Bytes>) -> String {
    let mark = if figure.provenance.is_assumed() { "~" } else { "" };
    format!("{mark}{:#}", figure.value)
}

fn sources(profile: &Profile) -> String {
    let limits = &profile.limits;
    let (cuda_major, cuda_minor) = limits.cuda;
    let mut text = format!(
        "{} ({}, compute capability {})\n",
        profile.id,
        profile.name,
        capability(profile)
    );
    let mut kinds = [("published", Vec::new()), ("assumed", Vec::new())];
    let bytes = |what: &'static str, figure: &Sourced<Bytes>| {
        (what, sourced(what, figure, size), figure.provenance.is_assumed())
    };
    for (what, lines, assumed) in [
        bytes("total", &profile.total),
        (
            "SMs",
            sourced("SMs", &profile.sm_count, |count| count.to_string()),
            profile.sm_count.provenance.is_assumed(),
        ),
        bytes("L2 cache", &profile.l2_cache),
        bytes("context", &profile.context),
        bytes("modules", &profile.modules),
    ] {
        text.push_str(&lines);
        kinds[usize::from(assumed)].1.push(what);
    }
    kinds[0].1.push("limits");
    text.push_str(&format!(
        "  limits: shared memory {} per block, {} per SM; {} threads and {} registers per SM; \
         CUDA {cuda_major}.{cuda_minor}\n      documented: {}\n",
        limits.shared_per_block_optin,
        limits.shared_per_sm,
        limits.max_threads_per_sm,
        limits.registers_per_sm,
        limits.source
    ));
    text.push_str(&format!(
        "  largest tensor on Burn 0.21: {}, a quarter of the total\n",
        size(profile.largest_tensor())
    ));
    for (kind, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        text.push_str(&format!("  {kind}: {}\n", names.join(", ")));
    }
    text
}

fn size(bytes: Bytes) -> String {
    format!("{} B ({bytes})", bytes.0)
}

/// Returns a value with its source, and the range of all published readings.
fn sourced<T: Copy>(what: &str, figure: &Sourced<T>, show: fn(T) -> String) -> String {
    let mut text = format!("  {what}: {}\n      {}\n", show(figure.value), figure.provenance);
    if let Some((lowest, highest)) = figure.readings {
        text.push_str(&format!("      readings: {} to {}\n", show(lowest), show(highest)));
    }
    if let Some(link) = &figure.link {
        text.push_str(&format!("      {link}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(id: &str) -> String {
        sources(Profiles::builtin().unwrap().find(id).unwrap())
    }

    #[test]
    fn every_value_is_said_to_be_published_or_assumed() {
        let l4 = shown("l4");
        for line in [
            "  context: 203423744 B (194 MiB)\n      measured: total 22563 MiB less 22369 MiB free",
            "      https://github.com/lateos-ai/reflex/blob/HEAD/.modal/README.md\n",
            "  largest tensor on Burn 0.21: 5914755072 B (5.51 GiB), a quarter of the total\n",
            "  published: total, SMs, L2 cache, context, limits\n",
            "  assumed: modules\n",
        ] {
            assert!(l4.contains(line), "{line}\n{l4}");
        }
        for profile in Profiles::builtin().unwrap().iter() {
            let text = sources(profile);
            let kind = |kind: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(&format!("  {kind}: ")));
                let names: Vec<_> = line.unwrap_or_default().split(", ").map(str::to_owned).collect();
                names
            };
            let (published, assumed) = (kind("published"), kind("assumed"));
            for (what, is_assumed) in [
                ("total", profile.total.provenance.is_assumed()),
                ("SMs", profile.sm_count.provenance.is_assumed()),
                ("L2 cache", profile.l2_cache.provenance.is_assumed()),
                ("context", profile.context.provenance.is_assumed()),
                ("modules", profile.modules.provenance.is_assumed()),
            ] {
                let has = |names: &[String]| names.iter().any(|name| name == what);
                assert_eq!((has(&published), has(&assumed)), (!is_assumed, is_assumed), "{text}");
            }
        }
    }

    #[test]
    fn a_range_of_readings_is_shown() {
        let text = shown("rtx-4090");
        let range = "  context: 432013312 B (412 MiB)\n";
        assert!(text.contains(range), "{text}");
        let range = "      readings: 411041792 B (392 MiB) to 432013312 B (412 MiB)\n";
        assert!(text.contains(range), "{text}");
        assert!(RULE.contains("the highest"));
        // A value with a single reading has no range.
        assert_eq!(shown("gtx-1650").matches("readings:").count(), 1);
    }

    #[test]
    fn the_table_says_that_totals_differ_and_how_to_get_ones_own() {
        let text = table(&Profiles::builtin().unwrap());
        assert!(text.contains("by up to 150 MiB. On Burn 0.21 every\npage"), "{text}");
        assert!(text.contains("`cargo vram gpus --here`"), "{text}");
        assert!(
            FOOTER
                .lines()
                .chain(RULE.lines())
                .all(|line| line.chars().count() <= 80)
        );
    }
}
