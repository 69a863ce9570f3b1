//! Compiled kernels, handed on from process to process: each is compiled once for a card and a program, or for all programs that
//! have the same ones, where it would be compiled in every pass anew.
//!
//! A process gets a copy to read and to add to, so that no two write to one, and two that run at once see nothing of each
//! other. On a virtual card alone: there, a compiled kernel is a name and what a launch of it needs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Result, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use camino::Utf8Path;

use super::child::End;
use super::process::{Left, naming};
use crate::driver::DriverLibrary;
use crate::folders;
use crate::gpu::{Profile, hex_digest};
use crate::workspace::Built;

/// How many programs and cards are remembered.
const REMEMBERED: usize = 128;
/// The most bytes of kernels that are lent: some twenty thousand. Then they begin anew, for models change and each process reads all.
const MOST: u64 = 16 << 20;
/// How the names of lists end, which have a line for each kernel: that of Burn 0.22's adapter, and Burn 0.21's table of contents.
/// What is beside the latter has the kernels themselves, and is only ever added to at its end.
const LISTS: [&str; 2] = ["jsonl", "log"];
/// Digits of a hash in a folder's name.
const SHORT: usize = 32;

/// Sizes in bytes of files, by their paths.
type Sizes = HashMap<PathBuf, u64>;

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
        let lent = self.lend(to).ok();
        let left = run(lent.is_some().then(|| to.to_owned()));
        let is_whole = left.as_ref().is_ok_and(|left| left.ended.end == End::Exited(0));
        let _ = match lent {
            Some(lent) if is_whole => self.take_back(to, &lent),
            _ => folders::remove(to),
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

    /// Puts what is known into the folder `to`, which is made anew. Gives the sizes of what it put there.
    fn lend(&self, to: &Path) -> Result<Sizes> {
        folders::remove(to)?;
        std::fs::create_dir_all(to)?;
        let _lock = self.lock()?;
        let known = self.folder();
        if known.exists() && sizes(&known)?.values().sum::<u64>() > MOST {
            folders::remove(&known)?;
        }
        if known.exists() {
            // What is in use is not the oldest.
            File::open(&known)?.set_modified(SystemTime::now())?;
            add(&known, to, &Sizes::new())?;
        }
        sizes(to)
    }

    /// Adds what a process made to what is known by now. Most processes find all that they need, and add nothing.
    fn take_back(&self, from: &Path, lent: &Sizes) -> Result<()> {
        if sizes(from)? == *lent {
            return folders::remove(from);
        }
        let lock = self.lock()?;
        let known = self.folder();
        // What was copied in part is never what is known.
        let new = self.all.join("new");
        folders::remove(&new)?;
        if known.exists() {
            add(&known, &new, &Sizes::new())?;
        }
        if add(from, &new, lent)? {
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

/// Adds the kernels in one folder to those in another. Says whether there were any that the other one did not have.
///
/// `lent` has the sizes that files in `from` had when a process was lent them.
fn add(from: &Path, to: &Path, lent: &Sizes) -> Result<bool> {
    std::fs::create_dir_all(to)?;
    let (mut lists, mut others, mut added) = (Vec::new(), Vec::new(), false);
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let paths = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            added |= add(&paths.0, &paths.1, lent)?;
        } else if is_list(&paths.0) {
            lists.push(paths);
        } else {
            others.push(paths);
        }
    }
    let mut listed = false;
    for (from, to) in lists {
        listed |= add_lines(&from, &to)?;
    }
    for (from, to) in others {
        let there = to.metadata().map(|file| file.len()).ok();
        let is_new = there.is_none();
        if is_new || listed {
            let lent = lent.get(&from).copied().unwrap_or(0);
            // What was lent is there, unless it was forgotten meanwhile.
            let before = if there >= Some(lent) { lent } else { 0 };
            let bytes = std::fs::read(&from)?;
            let more = usize::try_from(before).ok().and_then(|before| bytes.get(before..));
            let mut file = File::options().create(true).append(true).open(&to)?;
            file.write_all(more.unwrap_or_default())?;
        }
        listed |= is_new;
    }
    Ok(added | listed)
}

/// Adds the lines of a list to those of another where they are missing. Says whether there were any.
fn add_lines(from: &Path, to: &Path) -> Result<bool> {
    let (more, mut lines) = (std::fs::read_to_string(from)?, String::new());
    if to.exists() {
        lines = std::fs::read_to_string(to)?;
    }
    let known: HashSet<&str> = lines.lines().collect();
    let is_missing = |line: &&str| !known.contains(line);
    let missing: String = more
        .lines()
        .filter(is_missing)
        .map(|line| format!("{line}\n"))
        .collect();
    if !missing.is_empty() {
        std::fs::write(to, lines + &missing)?;
    }
    Ok(!missing.is_empty())
}

fn is_list(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| LISTS.contains(&extension))
}

/// The sizes of the files in a folder.
fn sizes(folder: &Path) -> Result<Sizes> {
    let mut sizes = Sizes::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sizes.extend(self::sizes(&entry.path())?);
        } else {
            sizes.insert(entry.path(), entry.metadata()?.len());
        }
    }
    Ok(sizes)
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

    /// Those of a new program on an L4.
    fn of_a_program(folder: &Path) -> Kernels {
        std::fs::write(folder.join("vram"), "a program").unwrap();
        of(folder, "l4")
    }

    /// Has a process compile kernels, as Burn 0.21 writes them: those that it does not find.
    fn compile(folder: &Path, kernels: &[&str]) {
        std::fs::create_dir_all(folder.join("cuda")).unwrap();
        let known = read(folder).unwrap_or_default();
        let missing = kernels.iter().filter(|kernel| !known.contains(**kernel));
        for kernel in missing {
            let append = |name: &str, text: String| {
                let path = folder.join("cuda").join(name);
                let mut file = File::options().create(true).append(true).open(path).unwrap();
                file.write_all(text.as_bytes()).unwrap();
            };
            append("chunk0.cbor", format!("<{kernel}>"));
            append("toc.json.log", format!("{kernel}\n"));
        }
    }

    fn read(from: &Path) -> Option<String> {
        std::fs::read_to_string(from.join("cuda/chunk0.cbor")).ok()
    }

    #[test]
    fn what_two_made_at_once_the_next_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let l4 = of_a_program(folder);
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.join(name));
        // Two at once, neither of which sees the other's.
        let lent = [l4.lend(&first).unwrap(), l4.lend(&second).unwrap()];
        compile(&first, &["one", "two", "three"]);
        compile(&second, &["four"]);
        l4.take_back(&first, &lent[0]).unwrap();
        l4.take_back(&second, &lent[1]).unwrap();
        assert!(!first.exists() && !second.exists());
        let lent = [
            l4.lend(&first).unwrap(),
            l4.lend(&second).unwrap(),
            l4.lend(&third).unwrap(),
        ];
        let all = "<one><two><three><four>";
        assert_eq!(read(&third).as_deref(), Some(all));
        // What brings nothing new changes nothing. What was lent is not taken back twice.
        l4.take_back(&third, &lent[2]).unwrap();
        compile(&first, &["one", "five"]);
        compile(&second, &["six", "four"]);
        l4.take_back(&second, &lent[1]).unwrap();
        l4.take_back(&first, &lent[0]).unwrap();
        l4.lend(&first).unwrap();
        let all = format!("{all}<six><five>");
        assert_eq!(read(&first), Some(all.clone()));
        let toc = std::fs::read_to_string(first.join("cuda/toc.json.log")).unwrap();
        assert_eq!(toc, "one\ntwo\nthree\nfour\nsix\nfive\n");
        // A card of the same kind takes the same, another kind does not, nor does the program once it is another.
        of(folder, "l40s").lend(&second).unwrap();
        assert_eq!(read(&second), Some(all));
        of(folder, "h100-80gb").lend(&third).unwrap();
        assert_eq!(read(&third), None);
        std::fs::write(folder.join("vram"), "another program").unwrap();
        of(folder, "l4").lend(&third).unwrap();
        assert_eq!(read(&third), None);
    }

    #[test]
    fn more_than_is_worth_reading_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let l4 = of_a_program(folder);
        let lent = folder.join("lent");
        let sizes = l4.lend(&lent).unwrap();
        // The list and the kernel itself: five bytes less than the most, and then nine more.
        compile(&lent, &[&"one ".repeat(MOST as usize / 8 - 1)]);
        l4.take_back(&lent, &sizes).unwrap();
        let sizes = l4.lend(&lent).unwrap();
        assert!(read(&lent).is_some());
        compile(&lent, &["two"]);
        l4.take_back(&lent, &sizes).unwrap();
        l4.lend(&lent).unwrap();
        assert_eq!(read(&lent), None);
    }

    #[test]
    fn lists_that_two_made_at_once_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let l4 = of_a_program(folder);
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.join(name));
        let write = |to: &Path, name: &str, text: &str| {
            std::fs::create_dir_all(to.join("cuda")).unwrap();
            std::fs::write(to.join("cuda").join(name), text).unwrap();
        };
        let lent = [l4.lend(&first).unwrap(), l4.lend(&second).unwrap()];
        write(&first, "ptx.jsonl", "one\ntwo\nthree\n");
        write(&second, "ptx.jsonl", "two\nfour\n");
        write(&second, "others.jsonl", "five\n");
        l4.take_back(&first, &lent[0]).unwrap();
        l4.take_back(&second, &lent[1]).unwrap();
        let lent = l4.lend(&third).unwrap();
        let read = |name: &str| std::fs::read_to_string(third.join("cuda").join(name)).unwrap();
        assert_eq!(
            (read("ptx.jsonl"), read("others.jsonl")),
            ("one\ntwo\nthree\nfour\n".into(), "five\n".into())
        );
        // What brings nothing new changes nothing.
        l4.take_back(&third, &lent).unwrap();
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
            compile(&lent, &["one"]);
            kernels.take_back(&lent, &Sizes::new()).unwrap();
            let then = UNIX_EPOCH + std::time::Duration::from_secs(number);
            File::open(kernels.folder()).unwrap().set_modified(then).unwrap();
        }
        let known: Vec<_> = (0..REMEMBERED + 3)
            .filter(|number| all.join(number.to_string()).exists())
            .collect();
        assert_eq!(known, (3..REMEMBERED + 3).collect::<Vec<_>>());
    }
}
