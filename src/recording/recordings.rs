//! All recordings: those that come with this program, or a user's own.

use std::path::Path;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::error::RecordingError;
use super::folder::{self, CARD, CHOICES, REPORT, Texts};
use super::one::Recording;

/// The recordings that come with this program. A folder that was added is seen once this file is compiled anew; a test
/// tells when it was not.
pub(super) static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/fixtures/recordings");

/// Recordings of any number of cards.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recordings {
    /// Sorted by card, and by driver from old to new.
    all: Vec<Recording>,
}

impl Recordings {
    /// The recordings that come with this program.
    ///
    /// # Errors
    /// Where they are damaged, which a test rules out.
    pub fn builtin() -> Result<Self, RecordingError> {
        embedded()
            .map(|(gpu, driver, texts)| {
                let folder = Path::new("fixtures/recordings").join(gpu).join(driver);
                Recording::parse(&texts?, &folder, gpu, driver)
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self::new)
    }

    /// A user's own recordings.
    ///
    /// # Errors
    /// Where a file cannot be read or is not what was written; the error names file and line.
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

    /// The same recordings, and those of `others` for cards of which there are none here.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        let added = others
            .all
            .into_iter()
            .filter(|other| self.for_gpu(other.gpu()).is_none());
        let added: Vec<_> = added.collect();
        self.all.extend(added);
        Self::new(self.all)
    }

    /// The recording of a card; of several drivers, that of the newest.
    #[must_use]
    pub fn for_gpu(&self, gpu: &str) -> Option<&Recording> {
        self.all.iter().rfind(|recording| recording.gpu() == gpu)
    }

    /// The recording of a card with one driver.
    #[must_use]
    pub fn for_driver(&self, gpu: &str, driver: &str) -> Option<&Recording> {
        self.all
            .iter()
            .find(|recording| (recording.gpu(), recording.driver()) == (gpu, driver))
    }

    /// The recording that an estimate for a card replays: the card's own or, where there is none, that of the card which it
    /// was said to be like.
    #[must_use]
    pub fn for_estimate(&self, gpu: &str, like: Option<&str>) -> Option<&Recording> {
        self.for_gpu(gpu).or_else(|| self.for_gpu(like?))
    }

    /// The recordings of a card that is measured, in the order in which they serve: that of the driver which is here, then
    /// that of the newest.
    pub fn for_measurement(&self, gpu: &str, driver: &str) -> impl Iterator<Item = &Recording> {
        self.for_driver(gpu, driver).into_iter().chain(self.for_gpu(gpu))
    }

    /// All of them, by card, and by driver from old to new.
    pub fn iter(&self) -> impl Iterator<Item = &Recording> {
        self.all.iter()
    }

    /// A hash over all of them. Two estimates with other recordings are not compared.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        digest(self.all.iter().map(|recording| {
            let (gpu, driver) = (recording.gpu().to_owned(), recording.driver().to_owned());
            (gpu, driver, recording.digest().to_owned())
        }))
    }
}

/// [`Recordings::fingerprint`] of the recordings that come with this program, without reading them.
#[must_use]
pub fn fingerprint() -> String {
    digest(
        embedded().filter_map(|(gpu, driver, texts)| Some((gpu.to_owned(), driver.to_owned(), texts.ok()?.digest()))),
    )
}

fn digest(all: impl Iterator<Item = (String, String, String)>) -> String {
    let mut all: Vec<_> = all.collect();
    all.sort();
    let mut hash = Sha256::new();
    for (gpu, driver, digest) in all {
        hash.update(format!("{gpu}/{driver} {digest}\n"));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The number of a driver's version, part by part.
fn age(driver: &str) -> Vec<u64> {
    driver.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// Card, driver and files of each embedded recording.
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
                    card: text(CARD)?,
                })
            });
            (name(gpu), name(driver), texts)
        })
    })
}
