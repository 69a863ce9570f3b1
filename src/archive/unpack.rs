//! Reads an archive: all of it, or nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest, Sha256};

use super::error::{ArchiveError, Refusal, io};
use super::machine::Machine;
use super::manifest::{BASELINE, BUDGETS, DRIVER, File, MANIFEST, MOST_MANIFEST, Manifest, WORKSPACE};
use super::pack::hex;
use super::tar::Entries;
use crate::driver::DriverLibrary;
use crate::workspace::{Built, DeclaredTarget};

/// How every zstd frame begins.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// An archive that was unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// What it says of itself.
    pub manifest: Manifest,
    /// The driver.
    pub driver: DriverLibrary,
    folder: Utf8PathBuf,
}

impl Unpacked {
    /// The folder that stands for the workspace's.
    #[must_use]
    pub fn root(&self) -> Utf8PathBuf {
        self.folder.join(WORKSPACE)
    }

    /// The file of budgets, where there is one.
    #[must_use]
    pub fn budgets(&self) -> Option<Utf8PathBuf> {
        self.file(BUDGETS)
    }

    /// The baseline, where there is one.
    #[must_use]
    pub fn baseline(&self) -> Option<Utf8PathBuf> {
        self.file(BASELINE)
    }

    fn file(&self, path: &str) -> Option<Utf8PathBuf> {
        let is_there = self.manifest.files.iter().any(|file| file.path == path);
        is_there.then(|| self.folder.join(path))
    }

    /// The targets, as if they had just been built.
    #[must_use]
    pub fn built(&self) -> Vec<Built> {
        let targets = self.manifest.targets.iter();
        targets
            .map(|target| Built {
                target: DeclaredTarget {
                    package: target.package.clone(),
                    package_id: target.package.clone(),
                    folder: self.folder.join(target.work_folder()),
                    name: target.name.clone(),
                    option: target.kind.option(),
                    burn: target.burn.clone(),
                },
                executable: self.folder.join(&target.executable),
                kernel_code: None,
                kernel_compiler: target.kernel_compiler,
            })
            .collect()
    }
}

/// Unpacks an archive into an empty folder. Where it is refused, nothing of it is left there.
///
/// # Errors
/// Where the archive is none, is damaged, is not for this machine and this tool, holds more or less than it says or
/// what no archive of ours holds; or where the folder cannot be written to.
pub fn unpack(file: &Path, into: &Utf8Path) -> Result<Unpacked, ArchiveError> {
    fs::create_dir_all(into).map_err(io("create", into.as_ref()))?;
    let mut there = fs::read_dir(into).map_err(io("read", into.as_ref()))?;
    if there.next().is_some() {
        return Err(ArchiveError::NotEmpty(into.into()));
    }
    // What is not moved out of it goes with it.
    let scratch = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(into)
        .map_err(io("write to", into.as_ref()))?;
    let manifest = extract(file, scratch.path()).map_err(|failed| match failed {
        Failed::Refused(why) => ArchiveError::Refused {
            file: file.to_owned(),
            why: Box::new(why),
        },
        Failed::Stopped(error) => error,
    })?;
    let folder = scratch.path().join(DRIVER);
    DriverLibrary::link(&folder).map_err(io("make links in", &folder))?;
    for target in &manifest.targets {
        let folder = scratch.path().join(target.work_folder());
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
    }
    for entry in fs::read_dir(&scratch).map_err(io("read", scratch.path()))? {
        let entry = entry.map_err(io("read", scratch.path()))?;
        let to = into.as_std_path().join(entry.file_name());
        fs::rename(entry.path(), &to).map_err(io("write", &to))?;
    }
    let driver = DriverLibrary::open(into.join(DRIVER).as_ref()).ok_or_else(|| ArchiveError::Refused {
        file: file.to_owned(),
        why: Box::new(Refusal::Missing(DRIVER.to_owned())),
    })?;
    Ok(Unpacked {
        manifest,
        driver,
        folder: into.to_owned(),
    })
}

/// Why nothing came of it: the archive's fault, or the machine's.
enum Failed {
    Refused(Refusal),
    Stopped(ArchiveError),
}

impl From<Refusal> for Failed {
    fn from(why: Refusal) -> Self {
        Self::Refused(why)
    }
}

impl From<ArchiveError> for Failed {
    fn from(error: ArchiveError) -> Self {
        Self::Stopped(error)
    }
}

fn extract(path: &Path, into: &Path) -> Result<Manifest, Failed> {
    let mut file = fs::File::open(path).map_err(Refusal::Open)?;
    is_zstd(&mut file)?;
    let broken = |error: std::io::Error| Refusal::Damaged(error.to_string());
    let decoder = zstd::Decoder::new(file).map_err(broken)?.single_frame();
    let mut entries = Entries::new(decoder);
    let manifest = manifest(&mut entries)?;
    let mut left: BTreeMap<&str, &File> = manifest.files.iter().map(|file| (file.path.as_str(), file)).collect();
    while let Some(entry) = entries.next()? {
        let Some(file) = left.remove(entry.path.as_str()) else {
            let known = entry.path == MANIFEST || manifest.files.iter().any(|file| file.path == entry.path);
            return Err(if known {
                Refusal::Duplicate(entry.path)
            } else {
                Refusal::Unlisted(entry.path)
            }
            .into());
        };
        if entry.bytes != file.bytes {
            return Err(Refusal::Size {
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
        return Err(Refusal::Missing(path.to_owned()).into());
    }
    let mut rest = entries.into_inner().finish();
    if !rest.fill_buf().map_err(broken)?.is_empty() {
        return Err(Refusal::Trailing.into());
    }
    Ok(manifest)
}

fn is_zstd(file: &mut fs::File) -> Result<(), Refusal> {
    let mut start = Vec::new();
    Read::by_ref(file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .and_then(|_| file.rewind())
        .map_err(Refusal::Open)?;
    match start.as_slice() {
        [] => Err(Refusal::Empty),
        start if start == MAGIC => Ok(()),
        start if MAGIC.starts_with(start) => Err(Refusal::CutShort),
        _ => Err(Refusal::NotZstd),
    }
}

fn manifest(entries: &mut Entries<impl Read>) -> Result<Manifest, Refusal> {
    let first = entries.next()?.filter(|entry| entry.path == MANIFEST);
    let first = first.ok_or(Refusal::NoManifest)?;
    if first.bytes > MOST_MANIFEST {
        return Err(Refusal::ManifestSize(first.bytes));
    }
    first.expect(false)?;
    let mut text = Vec::new();
    entries.contents(first.bytes, |piece| {
        text.extend_from_slice(piece);
        Ok::<_, Refusal>(())
    })?;
    Manifest::read(&text, &Machine::here())
}

fn extract_file(entries: &mut Entries<impl Read>, file: &File, to: &Path) -> Result<(), Failed> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(if file.executable { 0o755 } else { 0o644 })
        .open(to)
        .map_err(io("create", to))?;
    let mut hash = Sha256::new();
    entries.contents(file.bytes, |piece| {
        hash.update(piece);
        out.write_all(piece).map_err(io("write", to)).map_err(Failed::from)
    })?;
    if hex(&hash.finalize()) != file.sha256 {
        return Err(Refusal::Changed(file.path.clone()).into());
    }
    Ok(())
}
