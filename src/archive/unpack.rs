//! Unpacks an archive: completely, or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest, Sha256};

use super::error::{ArchiveError, ArchiveRefusal, io};
use super::machine::Machine;
use super::manifest::{ArchiveManifest, ArchivedFile, BASELINE, BUDGETS, DRIVER, MANIFEST, MOST_MANIFEST, WORKSPACE};
use super::pack::hex;
use super::tar::TarEntries;
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::folders;
use crate::workspace::{Built, DeclaredTarget};

/// The first bytes of every zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// An unpacked archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The manifest of the archive.
    pub manifest: ArchiveManifest,
    /// The virtual CUDA driver of the archive.
    pub driver: DriverLibrary,
    folder: Utf8PathBuf,
}

impl Unpacked {
    /// Returns the folder that replaces the workspace's folder.
    #[must_use]
    pub fn root(&self) -> Utf8PathBuf {
        self.folder.join(WORKSPACE)
    }

    /// Returns the path of the budget file, if there is one.
    #[must_use]
    pub fn budgets(&self) -> Option<Utf8PathBuf> {
        self.file(BUDGETS)
    }

    /// Returns the path of the baseline file, if there is one.
    #[must_use]
    pub fn baseline(&self) -> Option<Utf8PathBuf> {
        self.file(BASELINE)
    }

    fn file(&self, path: &str) -> Option<Utf8PathBuf> {
        let is_there = self.manifest.files.iter().any(|file| file.path == path);
        is_there.then(|| self.folder.join(path))
    }

    /// Returns the targets, in the form in which a build returns them.
    #[must_use]
    pub fn built(&self) -> Vec<Built> {
        let targets = self.manifest.targets.iter();
        targets
            .map(|target| Built {
                target: DeclaredTarget {
                    package: target.package.clone(),
                    package_id: target.package.to_string(),
                    folder: self.folder.join(target.work_folder()),
                    name: target.name.as_str().into(),
                    option: target.kind.option(),
                    burn: target.burn.as_str().into(),
                },
                executable: self.folder.join(&target.executable),
                is_local: false,
                // The hash of kernel code needs the sources. The
                // program itself is the key of its kernels instead.
                // See docs/design/kernel-cache.md.
                kernel_code: None,
                kernel_compiler: target.kernel_compiler,
            })
            .collect()
    }
}

/// Unpacks an archive into an empty folder. Removes all unpacked files if it refuses the archive.
///
/// # Errors
/// The file is not an archive, is damaged, or is not for this machine and this tool. Also if the archive's files are
/// not exactly those of its manifest, or if the folder is not empty or cannot be written to.
pub fn unpack(file: &Path, into: &Utf8Path) -> Result<Unpacked, ArchiveError> {
    fs::create_dir_all(into).map_err(io("create", into.as_ref()))?;
    let mut there = fs::read_dir(into).map_err(io("read", into.as_ref()))?;
    if there.next().is_some() {
        return Err(ArchiveError::NotEmpty(into.into()));
    }
    // Dropping the temporary folder removes everything that was not moved out of it.
    let scratch = tempfile::Builder::new()
        // Inside of `into`: moving the finished files is then
        // a rename, which cannot stop halfway through a file.
        .prefix(".unpacking-")
        .tempdir_in(into)
        .map_err(io("write to", into.as_ref()))?;
    let manifest = extract(file, scratch.path()).map_err(|failed| match failed {
        UnpackFailure::Refused(why) => ArchiveError::Refused {
            file: file.to_owned(),
            why: Box::new(why),
        },
        UnpackFailure::Stopped(error) => error,
    })?;
    // An archive has only plain files, so the links of the driver are made here.
    let folder = scratch.path().join(DRIVER);
    DriverLibrary::link(&folder).map_err(io("make links in", &folder))?;
    for target in &manifest.targets {
        // Models run in the folder of their package, of which the archive has no files.
        let folder = scratch.path().join(target.work_folder());
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
    }
    for entry in fs::read_dir(&scratch).map_err(io("read", scratch.path()))? {
        let entry = entry.map_err(io("read", scratch.path()))?;
        let to = into.as_std_path().join(entry.file_name());
        fs::rename(entry.path(), &to).map_err(io("write", &to))?;
    }
    // Opened where the files are now, because the driver remembers its paths.
    let driver = DriverLibrary::open(into.join(DRIVER).as_ref()).ok_or_else(|| ArchiveError::Refused {
        file: file.to_owned(),
        why: Box::new(ArchiveRefusal::Missing(DRIVER.to_owned())),
    })?;
    Ok(Unpacked {
        manifest,
        driver,
        folder: into.to_owned(),
    })
}

/// The reason why unpacking failed: the archive is refused, or the machine cannot unpack it.
enum UnpackFailure {
    Refused(ArchiveRefusal),
    Stopped(ArchiveError),
}

impl From<ArchiveRefusal> for UnpackFailure {
    fn from(why: ArchiveRefusal) -> Self {
        Self::Refused(why)
    }
}

impl From<ArchiveError> for UnpackFailure {
    fn from(error: ArchiveError) -> Self {
        Self::Stopped(error)
    }
}

fn extract(path: &Path, into: &Path) -> Result<ArchiveManifest, UnpackFailure> {
    let mut file = fs::File::open(path).map_err(ArchiveRefusal::Open)?;
    is_zstd(&mut file)?;
    let packed = file.metadata().map_err(ArchiveRefusal::Open)?.len();
    let broken = |error: std::io::Error| ArchiveRefusal::Damaged(error.to_string());
    // By default, zstd reads on into the next frame. What it has would count as part of this archive.
    // See docs/design/archives.md.
    let decoder = zstd::Decoder::new(file).map_err(broken)?.single_frame();
    let mut entries = TarEntries::new(decoder);
    let manifest = manifest(&mut entries)?;
    manifest.check_ratio(Bytes(packed))?;
    has_space(path, into, manifest.total())?;
    let mut left: BTreeMap<&str, &ArchivedFile> =
        manifest.files.iter().map(|file| (file.path.as_str(), file)).collect();
    while let Some(entry) = entries.next()? {
        let Some(file) = left.remove(entry.path.as_str()) else {
            let known = entry.path == MANIFEST || manifest.files.iter().any(|file| file.path == entry.path);
            return Err(if known {
                ArchiveRefusal::Duplicate(entry.path)
            } else {
                ArchiveRefusal::Unlisted(entry.path)
            }
            .into());
        };
        // The manifest's sizes were checked, and nothing larger is written.
        if entry.bytes != file.bytes {
            return Err(ArchiveRefusal::Size {
                path: entry.path,
                actual: entry.bytes,
                expected: file.bytes,
            }
            .into());
        }
        entry.expect(file.executable)?;
        extract_file(&mut entries, file, &into.join(&file.path))?;
    }
    entries.end()?;
    if let Some(path) = left.into_keys().next() {
        return Err(ArchiveRefusal::Missing(path.to_owned()).into());
    }
    // Bytes behind the frame have no hash and no checksum.
    let mut rest = entries.into_inner().finish();
    if !rest.fill_buf().map_err(broken)?.is_empty() {
        return Err(ArchiveRefusal::Trailing.into());
    }
    Ok(manifest)
}

/// Checks that a folder has space for the files of an archive.
fn has_space(archive: &Path, folder: &Path, needed: Bytes) -> Result<(), ArchiveError> {
    match folders::free_space(folder).map(Bytes) {
        Some(free) if needed > free => Err(ArchiveError::DiskFull {
            file: archive.to_owned(),
            folder: folder.to_owned(),
            needed,
            free,
        }),
        _ => Ok(()),
    }
}

fn is_zstd(file: &mut fs::File) -> Result<(), ArchiveRefusal> {
    let mut start = Vec::new();
    Read::by_ref(file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .and_then(|_| file.rewind())
        .map_err(ArchiveRefusal::Open)?;
    match start.as_slice() {
        // An empty or a cut file is a failed copy, which needs another help than a wrong file.
        [] => Err(ArchiveRefusal::Empty),
        start if start == MAGIC => Ok(()),
        start if MAGIC.starts_with(start) => Err(ArchiveRefusal::CutShort),
        _ => Err(ArchiveRefusal::NotZstd),
    }
}

fn manifest(entries: &mut TarEntries<impl Read>) -> Result<ArchiveManifest, ArchiveRefusal> {
    let first = entries.next()?.filter(|entry| entry.path == MANIFEST);
    let first = first.ok_or(ArchiveRefusal::NoManifest)?;
    // The manifest is read into memory, so its size is checked first.
    if first.bytes > MOST_MANIFEST {
        return Err(ArchiveRefusal::ManifestSize(first.bytes));
    }
    first.expect(false)?;
    let mut text = Vec::new();
    entries.contents(first.bytes, |piece| {
        text.extend_from_slice(piece);
        Ok::<_, ArchiveRefusal>(())
    })?;
    ArchiveManifest::read(&text, &Machine::here())
}

fn extract_file(entries: &mut TarEntries<impl Read>, file: &ArchivedFile, to: &Path) -> Result<(), UnpackFailure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    let mut out = fs::OpenOptions::new()
        .write(true)
        // An entry must not write through a link, or over another entry.
        .create_new(true)
        .mode(if file.executable { 0o755 } else { 0o644 })
        .open(to)
        .map_err(io("create", to))?;
    let mut hash = Sha256::new();
    entries.contents(file.bytes, |piece| {
        hash.update(piece);
        out.write_all(piece)
            .map_err(io("write", to))
            .map_err(UnpackFailure::from)
    })?;
    if hex(&hash.finalize()) != file.sha256 {
        return Err(ArchiveRefusal::Changed(file.path.clone()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_space_is_named_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Path::new("models.tar.zst");
        has_space(archive, folder.path(), Bytes(1)).unwrap();
        let full = has_space(archive, folder.path(), Bytes(u64::MAX)).unwrap_err();
        let text = full.to_string();
        assert!(text.starts_with("cannot unpack models.tar.zst to /"), "{text}");
    }
}
