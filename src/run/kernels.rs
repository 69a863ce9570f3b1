//! Compiled kernels, handed on from process to process: each is compiled once for a card and a program, or for all programs that
//! have the same ones, where it would be compiled in every pass anew.
//!
//! A process gets a copy to read and to add to, so that no two write to one, and two that run at once see nothing of each
//! other. On a virtual card alone: there, a compiled kernel is a name and what a launch of it needs.

use std::collections::HashSet;
use std::fs::File;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use camino::Utf8Path;

use super::child::End;
use super::process::{Left, naming};
use crate::driver::DriverLibrary;
use crate::folders;
use crate::gpu::{Profile, hex_digest};
use crate::workspace::Built;

/// How many programs and cards are remembered, each with some hundred kilobytes.
const REMEMBERED: usize = 128;
/// How the name of a list of kernels ends, which Burn 0.22's adapter writes. Burn 0.21's own files are none.
const LIST: &str = "jsonl";
/// Digits of a hash in a folder's name.
const SHORT: usize = 32;

/// The compiled kernels of one program on one card, beside the driver that compiled them. Any number of processes may use
/// them at once.
#[derive(Debug)]
pub(super) struct Kernels {
    /// That of all programs and cards.
    all: PathBuf,
    name: String,
}

impl Kernels {
    /// Those of a program, as it is now, on a card and those like it. Programs whose kernels are the same have them in common.
    pub(super) fn of(driver: &DriverLibrary, program: &Built, card: &Profile) -> Result<Self> {
        let code = match &program.kernel_code {
            Some(code) => code.clone(),
            None => identity(&program.executable)?,
        };
        Ok(Self::new(driver.folder.join("kernels"), &code, card))
    }

    fn new(all: PathBuf, code: &str, card: &Profile) -> Self {
        let (major, minor) = card.compute_capability;
        // A kernel that needs more shared memory is refused when it is compiled, and not when it is found.
        let shared = card.limits.shared_per_block_optin.0;
        let mut name = hex_digest(&format!("{code}\n{major}.{minor} {shared}"));
        name.truncate(SHORT);
        Self { all, name }
    }

    /// Has a process run with a copy of what is known in the folder `to`, and takes back what it made of it. A process that
    /// did not end well may have been writing; and where files cannot be had, as on a full disk, kernels are compiled.
    pub(super) fn around(&self, to: &Path, run: impl FnOnce(Option<PathBuf>) -> Result<Left>) -> Result<Left> {
        let lent = self.lend(to).is_ok();
        let left = run(lent.then(|| to.to_owned()));
        let is_whole = left.as_ref().is_ok_and(|left| left.ended.end == End::Exited(0));
        let _ = match lent && is_whole {
            true => self.take_back(to),
            false => folders::remove(to),
        };
        left
    }

    fn folder(&self) -> PathBuf {
        self.all.join(&self.name)
    }

    /// The right to read and write, until it is dropped.
    fn lock(&self) -> Result<File> {
        std::fs::create_dir_all(&self.all)?;
        let path = self.all.join("lock");
        let file = File::create(&path)?;
        file.lock()?;
        Ok(file)
    }

    /// Puts what is known into the folder `to`, which is made anew.
    fn lend(&self, to: &Path) -> Result<()> {
        folders::remove(to)?;
        let _lock = self.lock()?;
        let known = self.folder();
        if !known.exists() {
            return std::fs::create_dir_all(to);
        }
        // What is in use is not the oldest.
        File::open(&known)?.set_modified(SystemTime::now())?;
        copy(&known, to)
    }

    /// Takes what a process made of what it was lent: all of it where the files are lists of kernels, or else where it is more
    /// than what is known by now.
    fn take_back(&self, from: &Path) -> Result<()> {
        let lock = self.lock()?;
        let known = self.folder();
        let is_more = size(from)? > size(&known)?;
        let (most, rest) = if is_more {
            (from, known.as_path())
        } else {
            (known.as_path(), from)
        };
        // What was copied in part is never what is known.
        let new = self.all.join("new");
        folders::remove(&new)?;
        if most.exists() {
            copy(most, &new)?;
        }
        if add_lists(rest, &new)? || is_more {
            folders::remove(&known)?;
            std::fs::rename(&new, &known)?;
            self.forget()?;
        }
        folders::remove(&new)?;
        drop(lock);
        folders::remove(from)
    }

    /// Forgets the oldest where there are too many.
    fn forget(&self) -> Result<()> {
        let mut known: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&self.all)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                known.push((metadata.modified()?, entry.path()));
            }
        }
        known.sort();
        let too_many = known.len().saturating_sub(REMEMBERED);
        known[..too_many].iter().try_for_each(|(_, path)| folders::remove(path))
    }
}

/// What tells a program from all others, and from what it was before it was built anew.
fn identity(executable: &Utf8Path) -> Result<String> {
    let file = std::fs::metadata(executable).map_err(naming(executable.as_std_path()))?;
    let built = file.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{executable}\n{} {}", file.len(), built.as_nanos()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            std::fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Adds the lines of a folder's lists of kernels, a kernel a line, to those of another where they are missing. Says whether there were
/// any.
fn add_lists(from: &Path, to: &Path) -> Result<bool> {
    let mut added = false;
    if !from.exists() {
        return Ok(false);
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            added |= add_lists(&from, &to)?;
        } else if from.extension().is_some_and(|extension| extension == LIST) {
            let (more, mut lines) = (std::fs::read_to_string(&from)?, String::new());
            if to.exists() {
                lines = std::fs::read_to_string(&to)?;
            }
            let known: HashSet<&str> = lines.lines().collect();
            let missing: String = more
                .lines()
                .filter(|line| !known.contains(line))
                .map(|line| format!("{line}\n"))
                .collect();
            if !missing.is_empty() {
                std::fs::create_dir_all(to.parent().unwrap_or(&to))?;
                std::fs::write(&to, lines + &missing)?;
                added = true;
            }
        }
    }
    Ok(added)
}

/// The bytes of all files, where there are any.
fn size(folder: &Path) -> Result<u64> {
    if !folder.exists() {
        return Ok(0);
    }
    std::fs::read_dir(folder)?.try_fold(0, |all, entry| {
        let entry = entry?;
        Ok(all
            + match entry.file_type()?.is_dir() {
                true => size(&entry.path())?,
                false => entry.metadata()?.len(),
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Profiles;

    fn of(folder: &Path, card: &str) -> Kernels {
        let profiles = Profiles::builtin().unwrap();
        let program = Utf8Path::from_path(folder).unwrap().join("vram");
        let code = identity(&program).unwrap();
        Kernels::new(folder.join("kernels"), &code, profiles.find(card).unwrap())
    }

    fn write(to: &Path, text: &str) {
        std::fs::create_dir_all(to.join("cuda")).unwrap();
        std::fs::write(to.join("cuda/chunk"), text).unwrap();
    }

    fn read(from: &Path) -> Option<String> {
        std::fs::read_to_string(from.join("cuda/chunk")).ok()
    }

    #[test]
    fn what_one_made_the_next_one_finds_and_the_most_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("vram"), "a program").unwrap();
        let l4 = of(folder, "l4");
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.join(name));
        // Two at once, neither of which sees the other's.
        l4.lend(&first).unwrap();
        l4.lend(&second).unwrap();
        write(&first, "one two three");
        write(&second, "two");
        l4.take_back(&first).unwrap();
        l4.take_back(&second).unwrap();
        assert!(!first.exists() && !second.exists());
        l4.lend(&third).unwrap();
        assert_eq!(read(&third).as_deref(), Some("one two three"));
        write(&third, "one two three four");
        l4.take_back(&third).unwrap();
        l4.lend(&first).unwrap();
        assert_eq!(read(&first).as_deref(), Some("one two three four"));
        // A card of the same kind takes the same, another kind does not, nor does the program once it is another.
        of(folder, "l40s").lend(&second).unwrap();
        assert_eq!(read(&second).as_deref(), Some("one two three four"));
        of(folder, "h100-80gb").lend(&third).unwrap();
        assert_eq!(read(&third), None);
        std::fs::write(folder.join("vram"), "another program").unwrap();
        of(folder, "l4").lend(&third).unwrap();
        assert_eq!(read(&third), None);
    }

    #[test]
    fn lists_that_two_made_at_once_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("vram"), "a program").unwrap();
        let l4 = of(folder, "l4");
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.join(name));
        let write = |to: &Path, name: &str, text: &str| {
            std::fs::create_dir_all(to.join("cuda")).unwrap();
            std::fs::write(to.join("cuda").join(name), text).unwrap();
        };
        l4.lend(&first).unwrap();
        l4.lend(&second).unwrap();
        write(&first, "ptx.jsonl", "one\ntwo\nthree\n");
        write(&second, "ptx.jsonl", "two\nfour\n");
        write(&second, "others.jsonl", "five\n");
        l4.take_back(&first).unwrap();
        l4.take_back(&second).unwrap();
        l4.lend(&third).unwrap();
        let read = |name: &str| std::fs::read_to_string(third.join("cuda").join(name)).unwrap();
        assert_eq!(
            (read("ptx.jsonl"), read("others.jsonl")),
            ("one\ntwo\nthree\nfour\n".into(), "five\n".into())
        );
        // What brings nothing new changes nothing.
        l4.take_back(&third).unwrap();
        l4.lend(&first).unwrap();
        let text = std::fs::read_to_string(first.join("cuda/ptx.jsonl")).unwrap();
        assert_eq!(text, "one\ntwo\nthree\nfour\n");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (all, lent) = (folder.path().join("kernels"), folder.path().join("lent"));
        for number in 0..REMEMBERED as u64 + 3 {
            let kernels = Kernels {
                all: all.clone(),
                name: number.to_string(),
            };
            write(&lent, "one");
            kernels.take_back(&lent).unwrap();
            let then = UNIX_EPOCH + std::time::Duration::from_secs(number);
            File::open(kernels.folder()).unwrap().set_modified(then).unwrap();
        }
        let known: Vec<_> = (0..REMEMBERED + 3)
            .filter(|number| all.join(number.to_string()).exists())
            .collect();
        assert_eq!(known, (3..REMEMBERED + 3).collect::<Vec<_>>());
    }
}
