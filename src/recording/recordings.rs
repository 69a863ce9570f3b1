//! A set of recordings: those that are embedded in this program, or a user's own.

use std::path::Path;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::error::RecordingError;
use super::folder::{self, CHOICES, GPU, REPORT, Texts};
use super::gpu_recording::Recording;

/// The recordings that are embedded in this program.
///
/// A new folder is embedded only when this file is compiled again. A test fails if that did not happen.
pub(super) static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/fixtures/recordings");

/// Recordings of any number of GPUs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recordings {
    /// The recordings, sorted by GPU, and by driver from old to new.
    all: Vec<Recording>,
}

impl Recordings {
    /// Returns the recordings that are embedded in this program.
    ///
    /// # Errors
    /// If a recording is damaged, which a test excludes.
    pub fn builtin() -> Result<Self, RecordingError> {
        embedded()
            .map(|(gpu, driver, texts)| {
                let folder = Path::new("fixtures/recordings").join(gpu).join(driver);
                Recording::parse(&texts?, &folder, gpu, driver)
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self::new)
    }

    /// Loads a user's own recordings from a folder.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged. The error names the file and, if it is damaged, the line.
    pub fn load(dir: &Path) -> Result<Self, RecordingError> {
        folder::list(dir)?
            .into_iter()
            .map(|(gpu, driver, path)| Recording::parse(&folder::read(&path)?, &path, &gpu, &driver))
            .collect::<Result<Vec<_>, _>>()
            .map(Self::new)
    }

    fn new(mut all: Vec<Recording>) -> Self {
        all.sort_by(|one, other| (one.gpu(), age(one.driver())).cmp(&(other.gpu(), age(other.driver()))));
        Self { all }
    }

    /// Adds the recordings of `others` for GPUs that have no recording here.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        // Whole GPUs only: a built-in recording with a newer driver would hide the user's own.
        let added = others
            .all
            .into_iter()
            .filter(|other| self.for_gpu(other.gpu()).is_none());
        let added: Vec<_> = added.collect();
        self.all.extend(added);
        Self::new(self.all)
    }

    /// Returns the recording of a GPU with the newest driver.
    #[must_use]
    pub fn for_gpu(&self, gpu: &str) -> Option<&Recording> {
        self.all.iter().rfind(|recording| recording.gpu() == gpu)
    }

    /// Returns the recording of a GPU with one driver.
    #[must_use]
    pub fn for_driver(&self, gpu: &str, driver: &str) -> Option<&Recording> {
        self.all
            .iter()
            .find(|recording| (recording.gpu(), recording.driver()) == (gpu, driver))
    }

    /// Returns the recording that an estimate for a GPU replays: the GPU's own, or else that of the GPU `like`.
    #[must_use]
    pub fn for_estimate(&self, gpu: &str, like: Option<&str>) -> Option<&Recording> {
        // Never by the driver of this machine: estimates would differ from machine to machine.
        // See docs/design/autotune-plan.md.
        self.for_gpu(gpu).or_else(|| self.for_gpu(like?))
    }

    /// Iterates over the recordings for a measurement: first that of the installed driver, then that of the newest
    /// driver.
    pub fn for_measurement(&self, gpu: &str, driver: &str) -> impl Iterator<Item = &Recording> {
        self.for_driver(gpu, driver).into_iter().chain(self.for_gpu(gpu))
    }

    /// Iterates over all recordings by GPU, and by driver from old to new.
    pub fn iter(&self) -> impl Iterator<Item = &Recording> {
        self.all.iter()
    }

    /// Returns a hash over all recordings. The tool does not compare two estimates with different recordings.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        digest(self.all.iter().map(|recording| {
            let (gpu, driver) = (recording.gpu().to_owned(), recording.driver().to_owned());
            (gpu, driver, recording.digest().to_owned())
        }))
    }
}

/// Returns [`Recordings::fingerprint`] of the embedded recordings, without parsing them.
#[must_use]
pub fn fingerprint() -> String {
    digest(
        embedded().filter_map(|(gpu, driver, texts)| Some((gpu.to_owned(), driver.to_owned(), texts.ok()?.digest()))),
    )
}

fn digest(all: impl Iterator<Item = (String, String, String)>) -> String {
    let mut all: Vec<_> = all.collect();
    // Embedded recordings come in another order than loaded ones, but need the same fingerprint.
    all.sort();
    let mut hash = Sha256::new();
    for (gpu, driver, digest) in all {
        hash.update(format!("{gpu}/{driver} {digest}\n"));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Splits a driver version into its numbers, for sorting.
fn age(driver: &str) -> Vec<u64> {
    // As text, 1000 would be older than 580.
    driver.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// Iterates over the embedded recordings: GPU, driver and files.
fn embedded() -> impl Iterator<Item = (&'static str, &'static str, Result<Texts, RecordingError>)> {
    let name = |dir: &Dir<'static>| {
        dir.path()
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    };
    EMBEDDED.dirs().flat_map(move |gpu| {
        gpu.dirs().map(move |driver| {
            let text = |file: &str| {
                let path = driver.path().join(file);
                let missing = || folder::io_error("read", &path, std::io::ErrorKind::NotFound.into());
                let found = EMBEDDED.get_file(&path).and_then(|file| file.contents_utf8());
                found.map(str::to_owned).ok_or_else(missing)
            };
            let texts = text(REPORT).and_then(|report| {
                Ok(Texts {
                    report,
                    choices: text(CHOICES)?,
                    gpu: text(GPU)?,
                })
            });
            (name(gpu), name(driver), texts)
        })
    })
}
