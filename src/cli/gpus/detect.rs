//! `cargo vram gpus --detect`: the cards of this machine, as `budgets.yaml` takes them.

use std::collections::BTreeSet;
use std::fmt::Write;

use camino::Utf8Path;
use serde::Serialize;

use super::{Card, card};
use crate::bytes::Bytes;
use crate::cli::exit::Exit;
use crate::cli::options::{Format, Output};
use crate::cli::source::Source;
use crate::cli::{Stopped, pipeline, survey, terminal};
use crate::gpu::{self, Device, Libraries, Limits, Profile, Profiles, Survey};
use crate::report::Library;

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
    /// What a person should know of it.
    remarks: Vec<String>,
}

/// A card with what `budgets.yaml` takes for it.
struct Described<'a> {
    device: &'a Device,
    profile: Profile,
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
    let described = describe(profiles, &survey);
    let text = match output.message_format {
        Format::Json => pipeline::json(&document(&survey, &described))?,
        Format::Human => yaml(&survey, &described),
    };
    pipeline::put(&text, output.output.as_deref())?;
    Ok(Exit::Success)
}

fn describe<'a>(profiles: &Profiles, survey: &'a Survey) -> Vec<Described<'a>> {
    let mut described: Vec<Described<'a>> = Vec::new();
    for device in &survey.devices {
        let profile = profiles.of_device(device);
        let built_in = profiles
            .find(&profile.id)
            .is_some_and(|known| is_exactly(known, &profile));
        let mut entry = if built_in { None } else { entry(profiles, &profile) };
        if let Some(entry) = &mut entry {
            let others = || described.iter().filter_map(|other| other.entry.as_ref());
            // Cards of a kind are one entry; of one name and two kinds, two.
            if others().any(|other| other.id == entry.id) && !others().any(|other| other == entry) {
                let number = format!("-{}", device.ordinal);
                entry.id.truncate(LONGEST_ID - number.len());
                entry.id.push_str(&number);
            }
        }
        described.push(Described { device, profile, entry });
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
}

fn entry(profiles: &Profiles, profile: &Profile) -> Option<Entry> {
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
    if profile.context.value != like.context.value {
        remarks.push(format!(
            "the context is taken to be that of `{}`, {}; by calculation ({}) it would be {}",
            like.id,
            like.context.value,
            profile.context.provenance.text(),
            profile.context.value
        ));
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
        remarks,
    })
}

fn document<'a>(survey: &'a Survey, described: &'a [Described<'a>]) -> Document<'a> {
    Document {
        driver: &survey.libcuda,
        nvrtc: survey.libnvrtc.as_ref(),
        devices: described
            .iter()
            .map(|Described { device, profile, entry }| Found {
                ordinal: device.ordinal,
                uuid: &device.uuid,
                pci: device.pci.as_deref(),
                built_in: entry.is_none().then_some(profile.id.as_str()),
                entry: entry.as_ref(),
                profile: card(profile),
                limits: &device.limits,
            })
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
    for Described { device, profile, entry } in described {
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
        head.push_str("gpu_profiles:\n");
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
