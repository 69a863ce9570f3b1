//! Passes compiled kernels of a virtual GPU on from program to program. Burn itself takes no kernel that another
//! program compiled. The tool passes on kernels between programs that have the same code for them.

use std::collections::BTreeSet;
use std::ffi::c_char;
use std::fs;
use std::path::Path;

use cubecl_environment22::bytes::Bytes;
use cubecl_environment22::persistence::{Origin, open};
use cubecl_server22::compiler::{KernelCacheKey, build_id_hash};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{find, write};

/// The beginning of the namespaces that hold compiled kernels.
pub(super) const NAMESPACES: &str = "cuda/";
/// The suffix of the files with compiled kernels.
const SUFFIX: &str = ".jsonl";

/// A kernel in the form of the database (cubecl-cuda 0.11, `compute/context.rs`).
#[derive(Serialize, Deserialize)]
struct StoredKernel {
    entrypoint_name: String,
    shared_mem_bytes: usize,
    ptx: Vec<c_char>,
    /// What the kernel does with each buffer.
    #[serde(default)]
    io: Option<Value>,
}

/// A kernel in the form of a line of a file.
#[derive(Serialize, Deserialize)]
struct KernelLine {
    /// The id, in hexadecimal, of the kernel and of everything that it was generated for.
    id: String,
    entrypoint_name: String,
    shared_mem_bytes: usize,
    ptx: String,
    io: Option<Value>,
}

/// Puts the kernels of a folder into the database, as if this program had compiled them.
pub(super) fn import(folder: &Path) {
    // Burn compares this with the kernel's. The tool has already checked that the crates with kernels are the
    // same, which is all that a virtual GPU needs. See docs/design/kernel-cache.md.
    let build_id = build_id_hash();
    let mut files = Vec::new();
    find(folder, &mut files);
    for path in files {
        let within = path.strip_prefix(folder).ok().and_then(Path::to_str);
        let Some(namespace) = within.and_then(|within| within.strip_suffix(SUFFIX)) else {
            continue;
        };
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut entries = text.lines().filter_map(|line| entry(line, build_id));
        open(namespace).insert_many(&mut entries, Origin::Local);
    }
}

/// Writes the kernels of a namespace into a folder.
pub(super) fn export(folder: &Path, namespace: &str) {
    let mut lines = BTreeSet::new();
    open(namespace).scan(&mut |key, value| lines.extend(line(key, value)));
    write(&folder.join(format!("{namespace}{SUFFIX}")), &lines);
}

/// Returns the key and the value of a line, in the form of the database.
fn entry(line: &str, build_id: u128) -> Option<(Bytes, Bytes)> {
    let line: KernelLine = serde_json::from_str(line).ok()?;
    let id = u128::from_str_radix(&line.id, 16).ok()?;
    // cubecl hands this to the driver as a C string, so it ends with a zero.
    let ptx = line.ptx.bytes().chain([0]).map(u8::cast_signed).collect();
    let compiled = StoredKernel {
        entrypoint_name: line.entrypoint_name,
        shared_mem_bytes: line.shared_mem_bytes,
        ptx,
        io: line.io,
    };
    Some((written(&KernelCacheKey { id, build_id })?, written(&compiled)?))
}

fn written(value: &impl Serialize) -> Option<Bytes> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).ok()?;
    Some(Bytes::from_bytes_vec(bytes))
}

fn line(key: &[u8], value: &[u8]) -> Option<String> {
    let key: KernelCacheKey = ciborium::from_reader(key).ok()?;
    let compiled: StoredKernel = ciborium::from_reader(value).ok()?;
    let code = compiled
        .ptx
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0);
    let line = KernelLine {
        id: format!("{:032x}", key.id),
        entrypoint_name: compiled.entrypoint_name,
        shared_mem_bytes: compiled.shared_mem_bytes,
        ptx: outline(&String::from_utf8(code.collect()).ok()?),
        io: compiled.io,
    };
    serde_json::to_string(&line).ok()
}

/// Returns the lines of a kernel's PTX that a virtual GPU reads: the GPU that it is for, its name, and what a launch
/// needs.
fn outline(ptx: &str) -> String {
    let is_read = |line: &&str| {
        let line = line.trim_start();
        let starts = [".version", ".target", ".address_size", ".maxntid", ".shared"];
        let is_block = line.matches('{').count() != line.matches('}').count();
        is_block
            || starts.iter().any(|start| line.starts_with(start))
            || [".entry", " .shared "].iter().any(|part| line.contains(part))
    };
    ptx.lines().filter(is_read).flat_map(|line| [line, "\n"]).collect()
}
