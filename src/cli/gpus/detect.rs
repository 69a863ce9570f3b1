//! `cargo vram gpus --here`: the cards of this machine, as `budgets.yaml` takes them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use camino::Utf8Path;
use serde::Serialize;

use super::{Card, card};
use crate::bytes::Bytes;
use crate::cli::exit::Exit;
use crate::cli::options::{Format, Output};
use crate::cli::source::Source;
use crate::cli::{Stopped, pipeline, survey, terminal};
use crate::gpu::{self, Device, Libraries, Limits, Nvml, Profile, Profiles, Provenance, Sourced, Survey};
use crate::report::Library;

/// How a context is measured here.
const CONTEXT_SOURCE: &str = "total less free of this machine's GPU beside a context, with no other process on it";
/// What a context may take beyond twice what was calculated: published ones take up to 36 MiB more than that, and twice as much
/// on the smallest GPU.
const MORE_THAN_TWICE: Bytes = Bytes(64 << 20);
/// The longest id of a profile.
const LONGEST_ID: usize = 32;

/// A card that is here.
#[derive(Serialize)]
struct Found<'a> {
    ordinal: u32,
    uuid: &'a str,
    pci: Option<&'a str>,
    /// The built-in card that this one is exactly.
    built_in: Option<&'a str>,
    /// What goes under `gpu_profiles:` where it is not.
    entry: Option<&'a Entry>,
    profile: Card<'a>,
    limits: &'a Limits,
}

#[derive(Serialize)]
struct Document<'a> {
    driver: &'a Library,
    nvrtc: Option<&'a Library>,
    devices: Vec<Found<'a>>,
}

/// One entry of `gpu_profiles`: what differs from the card it is like.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Entry {
    id: String,
    like: String,
    name: Option<String>,
    total: Bytes,
    compute_capability: Option<(u32, u32)>,
    sm_count: Option<u32>,
    shared_memory_per_block_optin: Option<Bytes>,
    /// As it was measured here; absent where it was not, and where the card it is like has the same.
    context: Option<Bytes>,
    /// What a person should know of it.
    remarks: Vec<String>,
}

/// A card with what `budgets.yaml` takes for it.
struct Described<'a> {
    device: &'a Device,
    profile: Profile,
    context: &'a Result<Bytes, String>,
    entry: Option<Entry>,
}

/// Lists the cards. Where there is none that can be used, says why and what to do.
pub(super) fn run(profiles: &Profiles, archive_file: Option<&Utf8Path>, output: &Output) -> Result<Exit, Stopped> {
    let source = Source::here(archive_file)?;
    let built = survey::built(source.as_ref())?;
    let survey = match gpu::survey(&built.library.survey, &Libraries::find(), None, None) {
        Ok(survey) => survey,
        Err(error) => {
            terminal::complain(&error.into());
            return Ok(Exit::Incomplete);
        }
    };
    let contexts: Vec<_> = survey
        .devices
        .iter()
        .map(|device| measured_context(&built.library.survey, device))
        .collect();
    let described = describe(profiles, &survey, &contexts);
    let text = match output.message_format {
        Format::Json => pipeline::json(&document(&survey, &described))?,
        Format::Human => yaml(&survey, &described),
    };
    pipeline::put(&text, output.output.as_deref())?;
    Ok(Exit::Success)
}

/// What a context takes of a card: its total less what is free beside the context of a program that has nothing else. Or why
/// nobody knows.
fn measured_context(program: &Path, device: &Device) -> Result<Bytes, String> {
    let libraries = Libraries::find();
    let nvml = Nvml::open(libraries.libnvml.as_deref()).map_err(|error| error.to_string())?;
    let processes = nvml.device(&device.uuid).ok().and_then(|card| card.processes());
    match processes.as_deref() {
        None => return Err("NVML does not list the processes that use the GPU".to_owned()),
        Some([]) => {}
        Some([one]) => return Err(format!("process {} uses the GPU", one.pid)),
        Some(several) => return Err(format!("{} processes use the GPU", several.len())),
    }
    // Any seed will do: what the kernel computes is not looked at here.
    let alone = gpu::survey(program, &libraries, Some(1), Some(&device.uuid)).map_err(|error| error.to_string())?;
    let seen = alone.context.map(|seen| seen.total.saturating_sub(seen.free));
    let calculated = Profiles::calculated_context(device);
    match seen {
        None | Some(Bytes(0)) => Err("the driver does not count it".to_owned()),
        // In a container, NVML may leave out whoever else uses the GPU.
        Some(seen) if seen.0 > 2 * calculated.0 + MORE_THAN_TWICE.0 => Err(format!(
            "{seen} are in use beside one, where about {calculated} were expected: something else holds memory of the GPU"
        )),
        Some(seen) => Ok(seen),
    }
}

/// `contexts`: what was measured of each card's context, or why it was not.
fn describe<'a>(profiles: &Profiles, survey: &'a Survey, contexts: &'a [Result<Bytes, String>]) -> Vec<Described<'a>> {
    let mut described: Vec<Described<'a>> = Vec::new();
    for (device, context) in survey.devices.iter().zip(contexts) {
        let mut profile = profiles.of_device(device);
        if let Ok(bytes) = context {
            profile.context = Sourced::new(*bytes, Provenance::Measured(CONTEXT_SOURCE.to_owned()));
        }
        let built_in = profiles
            .find(&profile.id)
            .is_some_and(|known| is_exactly(known, &profile));
        let mut entry = if built_in {
            None
        } else {
            entry(profiles, &profile, context)
        };
        if let Some(entry) = &mut entry {
            let others = || described.iter().filter_map(|other| other.entry.as_ref());
            // Cards of a kind are one entry; of one name and two kinds, two.
            if others().any(|other| other.id == entry.id) && !others().any(|other| other == entry) {
                let number = format!("-{}", device.ordinal);
                entry.id.truncate(LONGEST_ID - number.len());
                entry.id.push_str(&number);
            }
        }
        described.push(Described {
            device,
            profile,
            context,
            entry,
        });
    }
    described
}

/// Whether a card is what the profile says in everything that `budgets.yaml` could change, and in its caches.
fn is_exactly(known: &Profile, seen: &Profile) -> bool {
    known.total.value == seen.total.value
        && known.compute_capability == seen.compute_capability
        && known.sm_count.value == seen.sm_count.value
        && known.l2_cache.value == seen.l2_cache.value
        && known.limits.shared_per_block_optin == seen.limits.shared_per_block_optin
        && is_same_context(known, seen)
}

/// Whether two contexts differ by less than published readings, which are to the MiB, can tell.
fn is_same_context(known: &Profile, seen: &Profile) -> bool {
    known.context.value.0.abs_diff(seen.context.value.0) < Bytes::MIB.0
}

fn entry(profiles: &Profiles, profile: &Profile, context: &Result<Bytes, String>) -> Option<Entry> {
    let like = profiles.most_like(profile)?;
    let (major, minor) = profile.compute_capability;
    let mut remarks = Vec::new();
    let same_capability = profile.compute_capability == like.compute_capability;
    let known = profiles.knows(profile.compute_capability);
    if !same_capability && !known {
        let (like_major, like_minor) = like.compute_capability;
        remarks.push(format!(
            "compute capability {major}.{minor} is not known here: `like: {}` makes it {like_major}.{like_minor}",
            like.id
        ));
    }
    let shared = profile.limits.shared_per_block_optin;
    let fits = shared >= like.limits.shared_per_block && shared <= like.limits.shared_per_sm;
    let shared_differs = shared != like.limits.shared_per_block_optin;
    if shared_differs && !fits {
        remarks.push(format!(
            "a block can opt in to {shared} of shared memory, which no card like `{}` can",
            like.id
        ));
    }
    if let Err(why) = context {
        remarks.push(format!("the context was not measured: {why}"));
        if profile.context.value != like.context.value {
            remarks.push(format!(
                "the context is taken to be that of `{}`, {}; by calculation ({}) it would be {}",
                like.id,
                like.context.value,
                profile.context.provenance.text(),
                profile.context.value
            ));
        }
    }
    let is_known = profiles.find(&profile.id).is_some();
    Some(Entry {
        id: if is_known {
            profiles.free_id(&profile.id)
        } else {
            profile.id.clone()
        },
        like: like.id.clone(),
        name: Some(profile.name.clone()).filter(|name| *name != like.name),
        total: profile.total.value,
        compute_capability: Some(profile.compute_capability).filter(|_| !same_capability && known),
        sm_count: Some(profile.sm_count.value).filter(|count| *count != like.sm_count.value),
        shared_memory_per_block_optin: Some(shared).filter(|_| shared_differs && fits),
        context: context
            .as_ref()
            .ok()
            .copied()
            .filter(|_| !is_same_context(like, profile)),
        remarks,
    })
}

fn document<'a>(survey: &'a Survey, described: &'a [Described<'a>]) -> Document<'a> {
    Document {
        driver: &survey.libcuda,
        nvrtc: survey.libnvrtc.as_ref(),
        devices: described
            .iter()
            .map(
                |Described {
                     device, profile, entry, ..
                 }| Found {
                    ordinal: device.ordinal,
                    uuid: &device.uuid,
                    pci: device.pci.as_deref(),
                    built_in: entry.is_none().then_some(profile.id.as_str()),
                    entry: entry.as_ref(),
                    profile: card(profile),
                    limits: &device.limits,
                },
            )
            .collect(),
    }
}

/// The entries, to be pasted into `budgets.yaml`; everything else is a comment.
fn yaml(survey: &Survey, described: &[Described<'_>]) -> String {
    let mut head = format!("# driver for CUDA {}", survey.libcuda.version);
    if let Some(nvrtc) = &survey.libnvrtc {
        let _ = write!(head, ", NVRTC {}", nvrtc.version);
    }
    head.push('\n');
    let mut entries = String::new();
    let mut written = BTreeSet::new();
    for Described {
        device,
        profile,
        context,
        entry,
    } in described
    {
        let (major, minor) = device.compute_capability;
        let _ = writeln!(
            head,
            "# device {}: {}, {}, {:#}, compute capability {major}.{minor}",
            device.ordinal,
            comment(&device.name),
            device.uuid,
            device.total
        );
        match entry {
            None => {
                let _ = writeln!(head, "#   is the built-in card: `gpu: {}` is enough", profile.id);
                if let Err(why) = context {
                    let _ = writeln!(head, "#   the context was not measured: {}", comment(why));
                }
            }
            Some(entry) => {
                let _ = writeln!(head, "#   `gpu: {}`, with the entry below", entry.id);
                // Several cards of a kind are one entry.
                if written.insert(entry.id.clone()) {
                    entries.push_str(&entry.yaml());
                }
            }
        }
    }
    if !entries.is_empty() {
        head.push_str(
            "# Another machine's GPU of the same name may have up to 150 MiB more or less. On Burn 0.21\n\
             # every page of the allocator differs in proportion: take the profile of the one that decides.\n\
             gpu_profiles:\n",
        );
    }
    head + &entries
}

impl Entry {
    fn yaml(&self) -> String {
        let mut text = format!("  {}:\n", self.id);
        for remark in &self.remarks {
            let _ = writeln!(text, "    # {}", comment(remark));
        }
        let size = |bytes: Bytes| format!("{} B", bytes.0);
        let lines = [
            ("like", Some(self.like.clone())),
            ("name", self.name.as_deref().map(quoted)),
            ("total", Some(size(self.total))),
            (
                "compute_capability",
                self.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
            ),
            ("sm_count", self.sm_count.map(|count| count.to_string())),
            (
                "shared_memory_per_block_optin",
                self.shared_memory_per_block_optin.map(size),
            ),
            ("context", self.context.map(size)),
        ];
        for (key, value) in lines {
            if let Some(value) = value {
                let _ = writeln!(text, "    {key}: {value}");
            }
        }
        text
    }
}

/// A text on one line.
fn comment(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A text in double quotes, in which YAML and JSON are the same.
fn quoted(text: &str) -> String {
    serde_json::Value::from(comment(text)).to_string()
}

#[cfg(test)]
mod tests;
