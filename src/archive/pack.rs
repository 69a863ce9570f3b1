//! Makes an archive.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use camino::Utf8Path;
use sha2::{Digest, Sha256};

use super::elf::{self, ElfFacts};
use super::error::{ArchiveError, io};
use super::manifest::{
    ArchiveManifest, ArchivedBase, ArchivedFile, ArchivedModel, ArchivedTarget, BASE_BASELINE, BASE_BUDGETS, BASELINE,
    BUDGETS, DRIVER, FORMAT, FileKind, MANIFEST, MODELS, MOST_BYTES, path_problem,
};
use super::tar::{BLOCK, header, padded};
use crate::bytes::Bytes;
use crate::driver::{self, DriverLibrary};
use crate::protocol::PROTOCOL;
use crate::run::Listed;
use crate::untrusted::PlainName;

/// The compression level of zstd. The zoo's archive has 12.9 MB after 3 s at this level; level 19 takes 55 s for 11.1
/// MB.
const LEVEL: i32 = 12;

/// The content of an archive to make.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The folder of the workspace.
    pub root: &'a Utf8Path,
    /// The built models.
    pub models: &'a [Listed],
    /// The virtual CUDA driver of the models.
    pub driver: &'a DriverLibrary,
    /// The budget file, if there is one.
    pub budgets: Option<&'a Utf8Path>,
    /// The baseline file, if there is one.
    pub baseline: Option<&'a Utf8Path>,
    /// The base revision, with its budget file and its baseline file.
    pub base: Option<(&'a ArchivedBase, Option<&'a Path>, Option<&'a Path>)>,
    /// The commit that the models were built from.
    pub commit: Option<&'a str>,
    /// Whether the work tree had changes since that commit; absent if unknown.
    pub dirty: Option<bool>,
    /// Whether the models are all models of the workspace.
    pub whole: bool,
}

/// A finished archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedArchive {
    /// The manifest of the archive.
    pub manifest: ArchiveManifest,
    /// The length of the archive file.
    pub bytes: Bytes,
}

/// Makes an archive and writes it to `to`. Replaces an existing file only if everything succeeded.
///
/// # Errors
/// There is no model, a program is for another kind of machine than the others, a path or size is not allowed in an
/// archive, or a file cannot be read or written.
pub fn pack(contents: &Contents<'_>, to: &Path) -> Result<PackedArchive, ArchiveError> {
    let (targets, mut sources) = targets(contents)?;
    for file in driver::FILES {
        sources.insert(
            format!("{DRIVER}/{file}"),
            PackedSource::program(contents.driver.folder.join(file)),
        );
    }
    for (path, file) in [(BUDGETS, contents.budgets), (BASELINE, contents.baseline)] {
        sources.extend(file.map(|file| (path.to_owned(), PackedSource::data(file.as_std_path().to_owned()))));
    }
    if let Some((_, budgets, baseline)) = contents.base {
        for (path, file) in [(BASE_BUDGETS, budgets), (BASE_BASELINE, baseline)] {
            sources.extend(file.map(|file| (path.to_owned(), PackedSource::data(file.to_owned()))));
        }
    }
    // The manifest comes first in the file, so every file is read once for it, and once more to be packed.
    let (files, facts) = describe(&sources)?;
    let manifest = ArchiveManifest {
        format: FORMAT,
        tool: env!("CARGO_PKG_VERSION").into(),
        driver: driver::fingerprint().into(),
        protocol: PROTOCOL,
        target: facts.target.into(),
        glibc: facts.needed,
        commit: contents.commit.map(PlainName::escaped),
        dirty: contents.dirty,
        whole: contents.whole,
        budgets: contents
            .budgets
            .map(|path| PlainName::escaped(&shown(contents.root, path))),
        base: contents.base.map(|(base, ..)| base.clone()),
        targets,
        files,
    };
    // The reader's own limit.
    if manifest.total() > MOST_BYTES {
        return Err(ArchiveError::TooLarge(manifest.total()));
    }
    write(&manifest, &sources, to)
}

/// The source of a file in the archive.
struct PackedSource {
    path: PathBuf,
    program: bool,
}

impl PackedSource {
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

/// The sources by their paths in the archive, which is also the order of its entries.
type Sources = BTreeMap<String, PackedSource>;

/// Returns the targets of the models, in the order of the models, and their executables.
fn targets(contents: &Contents<'_>) -> Result<(Vec<ArchivedTarget>, Sources), ArchiveError> {
    let mut targets: Vec<ArchivedTarget> = Vec::new();
    let mut sources = Sources::new();
    let mut last = None;
    for listed in contents.models {
        let (built, target) = (&listed.built, &listed.built.target);
        // The models of one executable follow each other. It is packed once.
        if last.replace(&built.executable) != Some(&built.executable) {
            // The number separates targets with the same name.
            let executable = format!("{MODELS}{}/{}", targets.len(), target.name.raw());
            sources.insert(
                executable.clone(),
                PackedSource::program(built.executable.clone().into()),
            );
            targets.push(ArchivedTarget {
                package: target.package.clone(),
                folder: folder(contents.root, &target.folder, &target.package),
                name: PlainName::escaped(target.name.raw()),
                kind: FileKind::from_option(target.option).unwrap_or(FileKind::Bench),
                burn: PlainName::escaped(target.burn.raw()),
                kernel_compiler: built.kernel_compiler,
                executable,
                models: Vec::new(),
            });
        }
        if let Some(target) = targets.last_mut() {
            target.models.push(ArchivedModel {
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

/// Returns a package's folder relative to the workspace's folder.
///
/// A folder outside the workspace, or with a path that is not portable, becomes `elsewhere/PACKAGE`.
fn folder(root: &Utf8Path, folder: &Utf8Path, package: &str) -> String {
    match folder.strip_prefix(root).map(Utf8Path::as_str) {
        Ok("") => String::new(),
        Ok(below) if path_problem(&ArchivedTarget::work_folder_of(below)).is_none() => below.to_owned(),
        _ => format!("elsewhere/{package}"),
    }
}

/// Returns a path as messages show it: relative to the workspace, or only the file name.
fn shown(root: &Utf8Path, path: &Utf8Path) -> String {
    let below = path.strip_prefix(root).ok();
    below
        .or(path.file_name().map(Utf8Path::new))
        .unwrap_or(path)
        .to_string()
}

/// Returns every file with its hash, and the target and glibc that all programs together need.
fn describe(sources: &Sources) -> Result<(Vec<ArchivedFile>, ElfFacts), ArchiveError> {
    let mut files = Vec::new();
    let mut together: Option<ElfFacts> = None;
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
        files.push(ArchivedFile {
            path: path.clone(),
            bytes: Bytes(data.len() as u64),
            sha256: hex(&Sha256::digest(&data)),
            executable: source.program,
        });
    }
    Ok((files, together.ok_or(ArchiveError::NoModels)?))
}

fn write(manifest: &ArchiveManifest, sources: &Sources, to: &Path) -> Result<PackedArchive, ArchiveError> {
    let failed = || io("write", to);
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // A temporary file in the same folder can be renamed to `to`. It gets the permissions of any new file.
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
        // `TarEntries::end` relies on this: the manifest has the hashes of the files, but none of itself.
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(Some(tar_size))?;
        Ok(encoder)
    });
    let mut builder = ::tar::Builder::new(encoder.map_err(failed())?);
    let mut append = |path: &str, data: &[u8], program| {
        let header = header(path, Bytes(data.len() as u64), program).ok_or_else(|| name(path, "it is too long"))?;
        builder.append(&header, data).map_err(failed())
    };
    // First, so that the reader knows every length and hash before the bytes come.
    append(MANIFEST, &first, false)?;
    for (file, (path, source)) in manifest.files.iter().zip(sources) {
        // The reader's own rule: what it would refuse on the other machine is refused here.
        if let Some(why) = path_problem(path) {
            return Err(name(path, why));
        }
        // Read the file again, because the files of many models do not fit into memory.
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
    Ok(PackedArchive {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_runs_in_its_own_folder_if_an_archive_may_have_its_path() {
        let in_workspace = |below: &str| folder(Utf8Path::new("/w"), &Utf8Path::new("/w").join(below), "p");
        assert_eq!(in_workspace(""), "");
        assert_eq!(in_workspace("a/b"), "a/b");
        assert_eq!(in_workspace("a:b"), "elsewhere/p");
        assert_eq!(folder(Utf8Path::new("/w"), Utf8Path::new("/x"), "p"), "elsewhere/p");
        // The whole path in the archive counts, which is 10 bytes longer.
        for (bytes, is_kept) in [(245, true), (246, false), (255, false)] {
            let name = "n".repeat(bytes);
            assert_eq!(in_workspace(&name) == name, is_kept, "{bytes}");
        }
    }
}
