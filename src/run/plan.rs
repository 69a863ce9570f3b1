//! The plan: for each autotune key the choice that the warm and traced passes replay.
//!
//! Burn keeps its choices in files of JSON lines, one a key, with the outcome of every candidate. A plan is the same
//! folder with the choice we made and no outcomes; Burn takes it as it is and times nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::report::Autotune;

/// Makes the plan in `to` from what a cold pass tried in `from`, and counts what its choices rest on.
///
/// Without a recording of the card, the choice is the first candidate, in Burn's own order, among those that
/// succeeded with the fewest launches: the cold pass runs under a clock that counts launches, so this is what Burn
/// itself chose there.
///
/// # Errors
/// Where the folders cannot be read or written.
pub fn write(from: &Path, to: &Path) -> std::io::Result<Autotune> {
    let mut counts = Autotune::default();
    copy(from, to, &mut counts)?;
    Ok(counts)
}

fn copy(from: &Path, to: &Path, counts: &mut Autotune) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    if !from.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, counts)?;
        } else {
            let text = std::fs::read_to_string(entry.path())?;
            let mut plan = String::new();
            // A line that was cut short belongs to a key that was still being tuned.
            for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let chosen = json!({
                    "key": line["key"],
                    "value": { "fastest_index": line["value"]["fastest_index"], "results": [] },
                });
                plan.push_str(&chosen.to_string());
                plan.push('\n');
                counts.assumed += 1;
            }
            std::fs::write(target, plan)?;
        }
    }
    Ok(())
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
