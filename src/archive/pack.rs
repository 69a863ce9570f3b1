//! Writes an archive.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use camino::Utf8Path;
use sha2::{Digest, Sha256};

use super::elf::{self, Facts};
use super::error::{ArchiveError, io};
use super::manifest::{
    BASE_BASELINE, BASE_BUDGETS, BASELINE, BUDGETS, Base, DRIVER, FORMAT, File, Kind, MANIFEST, MODELS, MOST_BYTES,
    Manifest, Model, Target, path_problem,
};
use super::tar::{BLOCK, header, padded};
use crate::bytes::Bytes;
use crate::driver::{self, DriverLibrary};
use crate::protocol::PROTOCOL;
use crate::run::Listed;

/// How hard zstd tries. The zoo's archive has 12.9 MB in 3 s at this level; at 19 it would have 11.1 MB in 55 s.
const LEVEL: i32 = 12;

/// What goes into an archive.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The workspace's folder.
    pub root: &'a Utf8Path,
    /// The models, built.
    pub models: &'a [Listed],
    /// The driver that they run on.
    pub driver: &'a DriverLibrary,
    /// The file of budgets.
    pub budgets: Option<&'a Utf8Path>,
    /// The baseline.
    pub baseline: Option<&'a Utf8Path>,
    /// The base, with the files of its budgets and its baseline.
    pub base: Option<(&'a Base, Option<&'a Path>, Option<&'a Path>)>,
    /// The commit that the models were built from.
    pub commit: Option<&'a str>,
    /// Whether there were changes on top of that commit.
    pub dirty: Option<bool>,
    /// Whether nothing of the workspace was left out.
    pub whole: bool,
}

/// An archive that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Its length.
    pub bytes: Bytes,
}

/// Writes an archive. A file that is there is replaced, once all is well.
///
/// # Errors
/// Where there is no model, a program is for another machine than the rest, or a file cannot be read or written.
pub fn pack(contents: &Contents<'_>, to: &Path) -> Result<Packed, ArchiveError> {
    let (targets, mut sources) = targets(contents)?;
    for file in driver::FILES {
        sources.insert(
            format!("{DRIVER}/{file}"),
            Source::program(contents.driver.folder.join(file)),
        );
    }
    for (path, file) in [(BUDGETS, contents.budgets), (BASELINE, contents.baseline)] {
        sources.extend(file.map(|file| (path.to_owned(), Source::data(file.as_std_path().to_owned()))));
    }
    if let Some((_, budgets, baseline)) = contents.base {
        for (path, file) in [(BASE_BUDGETS, budgets), (BASE_BASELINE, baseline)] {
            sources.extend(file.map(|file| (path.to_owned(), Source::data(file.to_owned()))));
        }
    }
    let (files, facts) = describe(&sources)?;
    let manifest = Manifest {
        format: FORMAT,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        driver: driver::fingerprint(),
        protocol: PROTOCOL,
        target: facts.target.to_owned(),
        glibc: facts.needed,
        commit: contents.commit.map(str::to_owned),
        dirty: contents.dirty,
        whole: contents.whole,
        budgets: contents.budgets.map(|path| shown(contents.root, path)),
        base: contents.base.map(|(base, ..)| base.clone()),
        targets,
        files,
    };
    if manifest.total() > MOST_BYTES {
        return Err(ArchiveError::TooLarge(manifest.total()));
    }
    write(&manifest, &sources, to)
}

/// What a file of the archive is made from.
struct Source {
    path: PathBuf,
    program: bool,
}

impl Source {
    fn program(path: PathBuf) -> Self {
        Self { path, program: true }
    }

    fn data(path: PathBuf) -> Self {
        Self { path, program: false }
    }

    fn read(&self) -> Result<Vec<u8>, ArchiveError> {
        let data = fs::read(&self.path).map_err(io("read", &self.path))?;
        Ok(if self.program {
            elf::strip(&data).into_owned()
        } else {
            data
        })
    }
}

/// By their paths in the archive, and so in its order.
type Sources = BTreeMap<String, Source>;

/// The targets that the models are of, in the models' order, and their executables.
fn targets(contents: &Contents<'_>) -> Result<(Vec<Target>, Sources), ArchiveError> {
    let mut targets: Vec<Target> = Vec::new();
    let mut sources = Sources::new();
    let mut last = None;
    for listed in contents.models {
        let (built, target) = (&listed.built, &listed.built.target);
        if last.replace(&built.executable) != Some(&built.executable) {
            // The number keeps targets of one name apart.
            let executable = format!("{MODELS}{}/{}", targets.len(), target.name);
            sources.insert(executable.clone(), Source::program(built.executable.clone().into()));
            targets.push(Target {
                package: target.package.clone(),
                folder: folder(contents.root, &target.folder, &target.package),
                name: target.name.clone(),
                kind: Kind::of_option(target.option).unwrap_or(Kind::Bench),
                burn: target.burn.clone(),
                kernel_compiler: built.kernel_compiler,
                executable,
                models: Vec::new(),
            });
        }
        if let Some(target) = targets.last_mut() {
            target.models.push(Model {
                name: listed.name.clone(),
                task: listed.task,
            });
        }
    }
    if targets.is_empty() {
        return Err(ArchiveError::NoModels);
    }
    Ok((targets, sources))
}

/// A package's folder below the workspace's. One that is elsewhere, or is called oddly, gets a place of its own.
fn folder(root: &Utf8Path, folder: &Utf8Path, package: &str) -> String {
    match folder.strip_prefix(root).map(Utf8Path::as_str) {
        Ok("") => String::new(),
        Ok(below) if path_problem(below).is_none() => below.to_owned(),
        _ => format!("elsewhere/{package}"),
    }
}

/// What people are shown of a file's path.
fn shown(root: &Utf8Path, path: &Utf8Path) -> String {
    let below = path.strip_prefix(root).ok();
    below
        .or(path.file_name().map(Utf8Path::new))
        .unwrap_or(path)
        .to_string()
}

/// Every file with its hash, and what the programs need between them.
fn describe(sources: &Sources) -> Result<(Vec<File>, Facts), ArchiveError> {
    let mut files = Vec::new();
    let mut together: Option<Facts> = None;
    for (path, source) in sources {
        let data = source.read()?;
        if source.program {
            let facts = elf::facts(&data).ok_or_else(|| ArchiveError::NotAProgram(source.path.clone()))?;
            let before = together.get_or_insert(facts);
            if before.target != facts.target {
                return Err(ArchiveError::TwoTargets {
                    path: source.path.clone(),
                    other: facts.target.to_owned(),
                    target: before.target.to_owned(),
                });
            }
            before.needed = before.needed.max(facts.needed);
        }
        files.push(File {
            path: path.clone(),
            bytes: Bytes(data.len() as u64),
            sha256: hex(&Sha256::digest(&data)),
            executable: source.program,
        });
    }
    Ok((files, together.ok_or(ArchiveError::NoModels)?))
}

fn write(manifest: &Manifest, sources: &Sources, to: &Path) -> Result<Packed, ArchiveError> {
    let failed = || io("write", to);
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Beside it, so that it can be moved there; with the rights that any new file has.
    let scratch = tempfile::Builder::new()
        .prefix(".vram-archive-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(failed())?;
    let mut first = serde_json::to_vec_pretty(manifest).map_err(|error| failed()(error.into()))?;
    first.push(b'\n');
    let first_size = Bytes(first.len() as u64);
    let sizes = manifest.files.iter().map(|file| file.bytes).chain([first_size]);
    let tar_size: u64 = sizes.map(|bytes| BLOCK as u64 + padded(bytes)).sum::<u64>() + 2 * BLOCK as u64;
    let encoder = zstd::Encoder::new(BufWriter::new(scratch.as_file()), LEVEL).and_then(|mut encoder| {
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(Some(tar_size))?;
        Ok(encoder)
    });
    let mut builder = ::tar::Builder::new(encoder.map_err(failed())?);
    let mut append = |path: &str, data: &[u8], program| {
        let header = header(path, Bytes(data.len() as u64), program).ok_or_else(|| name(path, "it is too long"))?;
        builder.append(&header, data).map_err(failed())
    };
    append(MANIFEST, &first, false)?;
    for (file, (path, source)) in manifest.files.iter().zip(sources) {
        if let Some(why) = path_problem(path) {
            return Err(name(path, why));
        }
        // Read again rather than kept: the files of many models do not fit into memory.
        let data = source.read()?;
        if hex(&Sha256::digest(&data)) != file.sha256 {
            return Err(ArchiveError::InUse(source.path.clone()));
        }
        append(path, &data, file.executable)?;
    }
    let encoder = builder.into_inner().map_err(failed())?;
    let mut writer = encoder.finish().map_err(failed())?;
    writer.flush().map_err(failed())?;
    drop(writer);
    let bytes = scratch.as_file().metadata().map_err(failed())?.len();
    scratch.persist(to).map_err(|error| failed()(error.error))?;
    Ok(Packed {
        manifest: manifest.clone(),
        bytes: Bytes(bytes),
    })
}

fn name(path: &str, why: &'static str) -> ArchiveError {
    ArchiveError::Name {
        path: path.to_owned(),
        why,
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
