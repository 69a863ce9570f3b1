//! Burn's database, which holds autotune's choices, the GPU's throughput, and compiled kernels. Before a pass, the
//! tool's files go in; after it, what the pass found comes out. The database is in memory, because Burn reads all of a
//! database to list what is in it, and the code of a kernel is 40 KB.
//!
//! A namespace such as `autotune/0.11.3/cuda-0/matmul` is a file `autotune/0.11.3/cuda-0/matmul.json.log`, with one
//! JSON document per line: `{"key":{"key":…,"checksum":…},"value":{"fastest_index":…,"results":[…]}}`. In the database,
//! key and value are CBOR. The throughput that Burn measures before it first tunes is a file `….jsonl`, which the tool
//! passes on without reading it.
//!
//! Of a compiled kernel for a virtual GPU, the files have what a launch needs, and not the code.
//!
//! (cubecl-runtime 0.11, `tune/tune_cache.rs` and `throughput/cache.rs`; cubecl-environment 0.11, `persistence`.)

mod kernels;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cubecl_environment22::bytes::Bytes;
use cubecl_environment22::persistence::{MemoryStorage, Origin, open};
use serde_json::{Value, json};

/// What a pass finds: the beginning of the namespaces, and the suffix of their files.
const FOUND: [(&str, &str); 2] = [("autotune/", ".json.log"), ("throughput/", ".jsonl")];

/// Puts the content of the files into the database. It skips lines that it cannot read. Burn then makes that choice
/// itself, and the tool counts such choices; or Burn compiles that kernel.
pub(super) fn import(folder: &Path, kernels: Option<&Path>) {
    if let Some(kernels) = kernels {
        kernels::import(kernels);
    }
    let mut files = Vec::new();
    find(folder, &mut files);
    for path in files {
        let Some(namespace) = namespace(folder, &path) else {
            continue;
        };
        let storage = open(&namespace);
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            if let Some((key, value)) = parsed(line) {
                // As if this process had found it. So the tool's plans have one form for both versions of
                // Burn. See docs/design/burn-0_22.md.
                storage.insert(&key, Bytes::from_bytes_vec(value), Origin::Local);
            }
        }
    }
}

/// Writes the content of the database to files. What cannot be written is missing, and the tool counts that.
pub(super) fn export(folder: &Path, kernels: Option<&Path>) {
    // Kernels have a folder of their own: they are passed on between runs, and choices belong to one pass.
    export_kernels(kernels);
    for summary in MemoryStorage::namespaces() {
        let namespace = &summary.namespace;
        let Some((_, suffix)) = FOUND.iter().find(|(start, _)| namespace.starts_with(start)) else {
            continue;
        };
        // Sort the lines: the order of a database is random, and two runs must agree in every byte.
        let mut lines = BTreeSet::new();
        open(namespace).scan(&mut |key, value| {
            let json = |bytes: &[u8]| ciborium::from_reader::<Value, _>(bytes).ok();
            if let (Some(key), Some(value)) = (json(key), json(value)) {
                lines.insert(json!({ "key": key, "value": value }).to_string());
            }
        });
        write(&folder.join(format!("{namespace}{suffix}")), &lines);
    }
}

/// Writes only the compiled kernels, which an abandoned pass leaves to the next one.
pub(super) fn export_kernels(folder: Option<&Path>) {
    let Some(folder) = folder else { return };
    for summary in MemoryStorage::namespaces() {
        if summary.namespace.starts_with(kernels::NAMESPACES) {
            kernels::export(folder, &summary.namespace);
        }
    }
}

fn write(path: &Path, lines: &BTreeSet<String>) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let _ = path.parent().map(fs::create_dir_all);
    let _ = fs::write(path, text);
}

/// Returns the key and the value of a line, in the form of the database.
fn parsed(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let entry: Value = serde_json::from_str(line).ok()?;
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).ok()?;
        Some(bytes)
    };
    Some((bytes(entry.get("key")?)?, bytes(entry.get("value")?)?))
}

fn namespace(folder: &Path, path: &Path) -> Option<String> {
    let within = path.strip_prefix(folder).ok()?.to_str()?;
    let found = FOUND.iter().find(|(start, _)| within.starts_with(start))?;
    within.strip_suffix(found.1).map(str::to_owned)
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find(&path, files),
            Ok(_) => files.push(path),
            Err(_) => {}
        }
    }
}
