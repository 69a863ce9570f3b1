//! The plan: for each autotune key the choice that the warm and traced passes replay.
//!
//! Burn keeps its choices in files of JSON lines, one a key, with the outcome of every candidate. A plan is the same
//! folder with the choice we made and no outcomes; Burn takes it as it is and times nothing.

mod choice;
mod distance;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::process::naming;
use crate::recording::{TuneFile, Tuned, canonical, read_folder, read_measured};
use crate::report::Autotune;
pub use choice::Known;
use choice::{Basis, choose};

/// Makes the plan from what a cold pass tried in `from`, once in each folder of `to`, and counts what its choices rest on.
///
/// For each key that the cold pass met, the choice is the first there is of
/// 1. *recorded*: what was chosen on the card for this key with these candidates, by this run or else by another, unless
///    it failed here;
/// 2. *nearest*: what was chosen on the card for the nearest key of the same operation with the same candidates, if it
///    succeeded here and did not fail on the card for this very key;
/// 3. *assumed*: the first candidate, in Burn's own order, among those that succeeded here with the fewest launches and did
///    not fail on the card: the cold pass runs under a clock that counts launches, so but for the latter this is what Burn
///    itself chose there.
///
/// What Burn measured of the GPU's throughput before it tuned is taken over as it is.
///
/// Recorded keys that the cold pass did not meet are added: what was chosen on the card may need operations that no
/// candidate which ran here needs. They are not counted.
///
/// # Errors
/// Where the folders cannot be read or written.
pub fn write(from: &Path, to: &[&Path], known: Option<Known<'_>>) -> std::io::Result<Autotune> {
    let mut counts = Autotune::default();
    let mut plan: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut met: BTreeMap<(PathBuf, String), BTreeSet<String>> = BTreeMap::new();
    for file in read_folder(from).map_err(naming(from))? {
        let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
        let keys = met.entry((folder, file.module.clone())).or_default();
        let lines = plan.entry(file.path).or_default();
        // A line that was cut short belongs to a key that was still being tuned.
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
            let kernels = counts.chosen.entry(file.module.clone()).or_default();
            *kernels.entry(kernel).or_default() += 1;
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

/// Whether two cold passes chose the same for every key that both met. Then a later launch that found all its keys in the
/// one would come to the same with the other: it meets the same keys, one after the other, as long as it chooses the same.
/// Keys that only one met are of candidates, which a later launch does not try.
///
/// # Errors
/// Where the folders cannot be read.
pub fn agree(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (one, other) = (chosen(one)?, chosen(other)?);
    let is_same = |(key, index)| other.get(key).is_none_or(|chosen| chosen == index);
    Ok(one.iter().all(is_same))
}

/// What a cold pass chose for each key of each file.
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

/// How many choices a folder holds. What cannot be read holds none.
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
