//! `cargo vram gpus --here`: describes the GPUs of this machine as entries for `budgets.yaml`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use camino::Utf8Path;
use serde::Serialize;

use super::{ListedGpu, gpu};
use crate::bytes::Bytes;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::options::{Format, OutputOptions};
use crate::cli::session;
use crate::cli::session::source::ModelSource;
use crate::cli::session::survey;
use crate::cli::terminal;
use crate::gpu::{self, GpuLimits, Libraries, Nvml, Profile, Profiles, Provenance, Sourced, Survey, SurveyedDevice};
use crate::report::LoadedLibrary;

/// The source of a context's size that was measured on this machine.
const CONTEXT_SOURCE: &str = "total minus free memory of this machine's GPU with one context and no other process";
/// The maximum by which a plausible context exceeds twice its calculated size. Published contexts take up to 36 MiB
/// more than calculated, and twice as much on the smallest GPU.
const MORE_THAN_TWICE: Bytes = Bytes(64 << 20);
/// The maximum length of a profile's id.
const LONGEST_ID: usize = 32;

/// A GPU of this machine.
#[derive(Serialize)]
struct DetectedGpu<'a> {
    ordinal: u32,
    uuid: &'a str,
    pci: Option<&'a str>,
    /// The built-in profile that describes this GPU exactly.
    built_in: Option<&'a str>,
    /// The entry for `gpu_profiles:`, if no built-in profile matches exactly.
    entry: Option<&'a DetectedProfile>,
    profile: ListedGpu<'a>,
    limits: &'a GpuLimits,
}

#[derive(Serialize)]
struct DetectedProfiles<'a> {
    driver: &'a LoadedLibrary,
    nvrtc: Option<&'a LoadedLibrary>,
    devices: Vec<DetectedGpu<'a>>,
}

/// One entry of `gpu_profiles`: the values that differ from those of the GPU in `like`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DetectedProfile {
    id: String,
    like: String,
    name: Option<String>,
    total: Bytes,
    compute_capability: Option<(u32, u32)>,
    sm_count: Option<u32>,
    shared_memory_per_block_optin: Option<Bytes>,
    /// The measured context; absent if it was not measured, or if it is the same as that of the GPU in `like`.
    context: Option<Bytes>,
    /// Notes for the user, such as values that an entry cannot express.
    remarks: Vec<String>,
}

/// A GPU of this machine with its profile, its measured context and its entry for `budgets.yaml`.
struct Described<'a> {
    device: &'a SurveyedDevice,
    profile: Profile,
    context: &'a Result<Bytes, String>,
    entry: Option<DetectedProfile>,
}

/// Prints the GPUs of this machine. If none can be used, prints the reason and what to do.
pub(super) fn run(
    profiles: &Profiles,
    archive_file: Option<&Utf8Path>,
    output: &OutputOptions,
) -> Result<Exit, CliError> {
    let source = ModelSource::here(archive_file)?;
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
        Format::Json => session::json(&document(&survey, &described))?,
        Format::Human => yaml(&survey, &described),
    };
    session::put(&text, output.message_format, output.output.as_deref())?;
    Ok(Exit::Success)
}

/// Measures a context: the GPU's total memory minus what is free while a program holds only a context. If that is
/// impossible, the error says why.
fn measured_context(program: &Path, device: &SurveyedDevice) -> Result<Bytes, String> {
    let libraries = Libraries::find();
    let nvml = Nvml::open(libraries.libnvml.as_deref()).map_err(|error| error.to_string())?;
    let processes = nvml.device(&device.uuid).ok().and_then(|gpu| gpu.processes());
    match processes.as_deref() {
        None => return Err("NVML does not list the processes that use the GPU".to_owned()),
        // Only on a GPU that nobody else uses is the memory in use that of one context.
        Some([]) => {}
        Some([one]) => return Err(format!("process {} uses the GPU", one.pid)),
        Some(several) => return Err(format!("{} processes use the GPU", several.len())),
    }
    // The seed does not matter, because the kernel's result is not checked here.
    let alone = gpu::survey(program, &libraries, Some(1), Some(&device.uuid)).map_err(|error| error.to_string())?;
    let seen = alone.context.map(|seen| seen.total.saturating_sub(seen.free));
    let calculated = Profiles::calculated_context(device);
    match seen {
        None | Some(Bytes(0)) => Err("the driver reports no memory in use".to_owned()),
        // In a container, NVML may hide other processes that use the GPU.
        Some(seen) if seen.0 > 2 * calculated.0 + MORE_THAN_TWICE.0 => Err(format!(
            "{seen} are in use with one context, but about {calculated} were expected: another process holds GPU memory"
        )),
        Some(seen) => Ok(seen),
    }
}

/// Returns the profile and the entry of each GPU. `contexts` has the measured context of each, or why there is none.
fn describe<'a>(profiles: &Profiles, survey: &'a Survey, contexts: &'a [Result<Bytes, String>]) -> Vec<Described<'a>> {
    let mut described: Vec<Described<'a>> = Vec::new();
    for (device, context) in survey.devices.iter().zip(contexts) {
        let mut profile = profiles.of_device(device);
        if let Ok(bytes) = context {
            profile.context = Sourced::new(*bytes, Provenance::from_measurement(CONTEXT_SOURCE));
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
            // Equal GPUs share one entry. GPUs of the same name that differ get two.
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

/// Whether a GPU matches a profile in its L2 cache and in everything that `budgets.yaml` could change.
fn is_exactly(known: &Profile, seen: &Profile) -> bool {
    known.total.value == seen.total.value
        && known.compute_capability == seen.compute_capability
        && known.sm_count.value == seen.sm_count.value
        && known.l2_cache.value == seen.l2_cache.value
        && known.limits.shared_per_block_optin == seen.limits.shared_per_block_optin
        && is_same_context(known, seen)
}

/// Whether two contexts differ by less than 1 MiB, the precision of published readings.
fn is_same_context(known: &Profile, seen: &Profile) -> bool {
    known.context.value.0.abs_diff(seen.context.value.0) < Bytes::MIB.0
}

/// Returns the entry that turns the most similar profile into this one, with notes on what it cannot express.
fn entry(profiles: &Profiles, profile: &Profile, context: &Result<Bytes, String>) -> Option<DetectedProfile> {
    let like = profiles.most_like(profile)?;
    let (major, minor) = profile.compute_capability;
    let mut remarks = Vec::new();
    let same_capability = profile.compute_capability == like.compute_capability;
    let known = profiles.knows(profile.compute_capability);
    if !same_capability && !known {
        let (like_major, like_minor) = like.compute_capability;
        remarks.push(format!(
            "compute capability {major}.{minor} is unknown: `like: {}` sets it to {like_major}.{like_minor}",
            like.id
        ));
    }
    let shared = profile.limits.shared_per_block_optin;
    let fits = shared >= like.limits.shared_per_block && shared <= like.limits.shared_per_sm;
    let shared_differs = shared != like.limits.shared_per_block_optin;
    if shared_differs && !fits {
        remarks.push(format!(
            "a block can opt in to {shared} of shared memory, which a GPU like `{}` does not support",
            like.id
        ));
    }
    if let Err(why) = context {
        remarks.push(format!("the context was not measured: {why}"));
        if profile.context.value != like.context.value {
            remarks.push(format!(
                "the profile uses the context of `{}`, {}; the calculation ({}) gives {}",
                like.id, like.context.value, profile.context.provenance.source, profile.context.value
            ));
        }
    }
    let is_known = profiles.find(&profile.id).is_some();
    Some(DetectedProfile {
        // The built-in GPU of this name differs from this one, so its id is taken.
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

fn document<'a>(survey: &'a Survey, described: &'a [Described<'a>]) -> DetectedProfiles<'a> {
    DetectedProfiles {
        driver: &survey.libcuda,
        nvrtc: survey.libnvrtc.as_ref(),
        devices: described
            .iter()
            .map(
                |Described {
                     device, profile, entry, ..
                 }| DetectedGpu {
                    ordinal: device.ordinal,
                    uuid: &device.uuid,
                    pci: device.pci.as_deref(),
                    built_in: entry.is_none().then_some(profile.id.as_str()),
                    entry: entry.as_ref(),
                    profile: gpu(profile),
                    limits: &device.limits,
                },
            )
            .collect(),
    }
}

/// Returns the entries to paste into `budgets.yaml`. Everything else in the text is a YAML comment.
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
                let _ = writeln!(head, "#   matches a built-in GPU: `gpu: {}` is enough", profile.id);
                if let Err(why) = context {
                    let _ = writeln!(head, "#   the context was not measured: {}", comment(why));
                }
            }
            Some(entry) => {
                let _ = writeln!(head, "#   use `gpu: {}` with the entry below", entry.id);
                // Equal GPUs share one entry.
                if written.insert(entry.id.clone()) {
                    entries.push_str(&entry.yaml());
                }
            }
        }
    }
    if !entries.is_empty() {
        head.push_str(
            "# A GPU of the same name in another machine may have up to 150 MiB more or less. On Burn 0.21\n\
             # every page of the allocator differs in proportion: use the profile of the GPU that has your limits.\n\
             gpu_profiles:\n",
        );
    }
    head + &entries
}

impl DetectedProfile {
    fn yaml(&self) -> String {
        let mut text = format!("  {}:\n", self.id);
        for remark in &self.remarks {
            let _ = writeln!(text, "    # {}", comment(remark));
        }
        // To the byte: with Burn 0.21, every page of the allocator is a share of the total.
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

/// Puts a text on one line.
fn comment(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Quotes a text as a JSON string, which is valid in YAML, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(comment(text)).to_string()
}

#[cfg(test)]
mod tests;
