//! The plan: the choice for each autotune key that the warm and traced passes replay.
//!
//! Burn keeps its choices in files with one JSON line per key, which contains the outcome of every candidate. A plan
//! has the same files with cargo-vram's choices and without outcomes. Burn uses these choices and times no candidate.

mod choice;
mod distance;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::process::naming;
use crate::recording::{TuneFile, Tuned, canonical, read_folder, read_measured};
use crate::report::Autotune;
pub use choice::Known;
use choice::{Basis, choose};

/// Makes the plan from the autotune folder `from` of a cold pass, writes it into each folder of `to`, and counts its
/// choices by source.
///
/// For each key of the cold pass, takes the first of these choices that exists:
/// 1. *recorded*: the choice on the GPU for this key with the same candidates, by this run or else by another run,
///    unless that candidate failed here;
/// 2. *nearest*: the choice on the GPU for the nearest key of the same operation with the same candidates, if that
///    candidate succeeded here and did not fail on the GPU for this key;
/// 3. *assumed*: the first candidate, in Burn's order, of those that succeeded here with the fewest launches and did
///    not fail on the GPU. The cold pass runs under a clock that counts launches. So this is Burn's own choice there,
///    unless that candidate failed on the GPU.
///
/// Copies the GPU's throughput, which Burn measured before it tuned, without changes.
///
/// Adds the recorded keys that the cold pass did not have, because the chosen candidates may need operations that no
/// candidate of the cold pass needed. The counts do not include these keys.
///
/// # Errors
/// If the folders cannot be read or written.
pub fn write(from: &Path, to: &[&Path], known: Option<Known<'_>>) -> std::io::Result<Autotune> {
    let mut counts = Autotune::default();
    let mut plan: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut met: BTreeMap<(PathBuf, String), BTreeSet<String>> = BTreeMap::new();
    for file in read_folder(from).map_err(naming(from))? {
        let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
        let keys = met.entry((folder, file.module.clone())).or_default();
        let lines = plan.entry(file.path).or_default();
        // Burn was still tuning the key of an incomplete line, so skip that line.
        for tuned in file.text.lines().filter_map(Tuned::parse) {
            let choice = choose(&file.module, &tuned, known);
            match choice.basis {
                Basis::Recorded => counts.recorded += 1,
                Basis::Nearest => counts.nearest += 1,
                Basis::Assumed => counts.assumed += 1,
            }
            let kernel = tuned
                .name_of(choice.index)
                .map_or_else(|| format!("candidate {}", choice.index), str::to_owned);
            let kernels = counts.chosen.entry(file.module.clone().into()).or_default();
            *kernels.entry(kernel.into()).or_default() += 1;
            push(lines, &tuned.planned(choice.index));
            keys.insert(canonical(&tuned.key));
        }
    }
    let folders: BTreeSet<&PathBuf> = met.keys().map(|(folder, _)| folder).collect();
    for entry in known.into_iter().flat_map(choice::all) {
        for folder in &folders {
            let keys = met.get(&((*folder).clone(), entry.module.clone()));
            if !keys.is_some_and(|keys| keys.contains(&entry.text)) {
                let lines = plan.entry(TuneFile::path_in(folder, &entry.module)).or_default();
                push(lines, &entry.tuned.planned(entry.tuned.fastest));
            }
        }
    }
    // Without these files, each pass would measure again, with buffers of up to 1 GiB.
    // See docs/design/burn-0_22.md.
    for file in read_measured(from).map_err(naming(from))? {
        plan.insert(file.path, file.text);
    }
    for to in to {
        std::fs::create_dir_all(to).map_err(naming(to))?;
        for (path, text) in &plan {
            let path = to.join(path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(naming(folder))?;
            }
            std::fs::write(&path, text).map_err(naming(&path))?;
        }
    }
    Ok(counts)
}

/// Whether two cold passes made the same choice for every key that both had.
///
/// If so, a later launch that finds all its keys in one folder has the same result with the other folder: with the same
/// choices, it needs the same keys. Keys that only one pass had belong to candidates, which a later launch does not
/// try.
///
/// # Errors
/// If the folders cannot be read.
pub fn agree(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (one, other) = (chosen(one)?, chosen(other)?);
    let is_same = |(key, index)| other.get(key).is_none_or(|chosen| chosen == index);
    Ok(one.iter().all(is_same))
}

/// Returns the choice of a cold pass for each key of each file.
fn chosen(folder: &Path) -> std::io::Result<BTreeMap<(PathBuf, String), usize>> {
    let mut all = BTreeMap::new();
    for file in read_folder(folder).map_err(naming(folder))? {
        for tuned in file.text.lines().filter_map(Tuned::parse) {
            let key = (file.path.clone(), canonical(&tuned.key));
            all.insert(key, choose(&file.module, &tuned, None).index);
        }
    }
    Ok(all)
}

fn push(lines: &mut String, line: &str) {
    lines.push_str(line);
    lines.push('\n');
}

/// Counts the choices in a folder. An unreadable file or folder counts as empty.
#[must_use]
pub fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count(&entry.path()),
            _ => std::fs::read_to_string(entry.path()).map_or(0, |text| text.lines().count()),
        })
        .sum()
}

#[cfg(test)]
mod tests;
