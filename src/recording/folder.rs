//! The files of a recording on disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::RecordingError;

pub(super) const REPORT: &str = "report.json";
pub(super) const CHOICES: &str = "autotune.jsonl";
pub(super) const GPU: &str = "gpu.json";

/// The maximum size of a file in bytes. A recording of the whole zoo takes about a twentieth of it.
const MAX_FILE: u64 = 256 << 20;

/// The texts of the three files of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Texts {
    pub(super) report: String,
    pub(super) choices: String,
    pub(super) gpu: String,
}

/// Reads the files of a recording.
pub(super) fn read(folder: &Path) -> Result<Texts, RecordingError> {
    Ok(Texts {
        report: read_file(&folder.join(REPORT))?,
        choices: read_file(&folder.join(CHOICES))?,
        gpu: read_file(&folder.join(GPU))?,
    })
}

fn read_file(path: &Path) -> Result<String, RecordingError> {
    let failed = |source| io_error("read", path, source);
    // Check this first: to open a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::new();
    // Read one byte more than the limit. The size in the metadata may change in the meantime.
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(RecordingError::TooLarge {
            path: path.to_owned(),
            limit: MAX_FILE,
        });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let lines = error
            .as_bytes()
            .iter()
            .take(valid)
            .filter(|byte| **byte == b'\n')
            .count();
        RecordingError::Damaged {
            path: path.to_owned(),
            line: lines + 1,
            what: "this line is not valid UTF-8".to_owned(),
        }
    })
}

/// Writes the files of a recording. Writes the report last, because it names the runs that count.
pub(super) fn write(folder: &Path, texts: &Texts) -> Result<(), RecordingError> {
    std::fs::create_dir_all(folder).map_err(|source| io_error("create", folder, source))?;
    for (name, text) in [(CHOICES, &texts.choices), (GPU, &texts.gpu), (REPORT, &texts.report)] {
        let path = folder.join(name);
        // A rename replaces the file at once, so a crash leaves the old text or the new one.
        let unfinished = folder.join(format!(".{name}.unfinished"));
        std::fs::write(&unfinished, text)
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .map_err(|source| io_error("write", &path, source))?;
    }
    Ok(())
}

/// Lists the recordings in a folder: GPU, driver and path. Ignores files, and folders whose name starts with a dot.
pub(super) fn list(dir: &Path) -> Result<Vec<(String, String, PathBuf)>, RecordingError> {
    let mut found = Vec::new();
    for (gpu, path) in folders(dir)? {
        // Not ignored: a misspelled folder would silently take its choices away from all estimates.
        if !is_gpu(&gpu) {
            return Err(misnamed(
                path,
                format!("`{}` is not a valid GPU id", gpu.escape_debug()),
            ));
        }
        for (driver, path) in folders(&path)? {
            if !is_driver(&driver) {
                let what = format!("`{}` is not a valid driver version", driver.escape_debug());
                return Err(misnamed(path, what));
            }
            found.push((gpu.clone(), driver, path));
        }
    }
    Ok(found)
}

fn folders(dir: &Path) -> Result<Vec<(String, PathBuf)>, RecordingError> {
    let failed = |source| io_error("read", dir, source);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') {
            folders.push((name, path));
        }
    }
    // `read_dir` has no order, but the first error must be the same on every machine.
    folders.sort();
    Ok(folders)
}

/// Whether a name has the form of a GPU profile's id, which is safe in a file name.
pub(super) fn is_gpu(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=32).contains(&name.len()) && name.chars().all(plain)
}

/// Whether a name consists of numbers with points between them, such as `580.82.07`.
pub(super) fn is_driver(name: &str) -> bool {
    // Short enough that sorting by number never fails to parse a part.
    let number = |part: &str| (1..=9).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
    name.len() <= 32 && name.split('.').all(number)
}

pub(super) fn misnamed(path: PathBuf, what: String) -> RecordingError {
    RecordingError::Folder { path, what }
}

pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> RecordingError {
    RecordingError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
