//! A cache of compiled kernels, so that not every pass compiles them again.
//!
//! Programs on one GPU type share a kernel if the code that generates it is the same. Each process gets its own copy of
//! the cache, so that processes that run in parallel do not write to the same files. The cache is only for virtual
//! GPUs: there, a compiled kernel is a name and the data that a launch needs.

use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::io::{Result, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use camino::Utf8Path;

use super::child::End;
use super::process::{PassOutput, naming};
use crate::driver::DriverLibrary;
use crate::folders;
use crate::gpu::{Profile, hex_digest};
use crate::workspace::Built;

/// The maximum number of folders in the cache, one per program and GPU type.
const REMEMBERED: usize = 128;
/// The maximum size of one folder in bytes, enough for about twenty thousand kernels.
///
/// A larger folder starts again empty, because models change and each process reads all kernels.
const MOST: u64 = 16 << 20;
/// The file extensions of lists with one line per kernel: the list of Burn 0.22's adapter, and Burn 0.21's table of
/// contents.
///
/// The other files beside Burn 0.21's table contain the kernels. Burn only appends to them.
const LISTS: [&str; 2] = ["jsonl", "log"];
/// How long to wait for other tools that use the cache. Compiling all kernels also takes seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How often to try the lock of the cache, which others hold for milliseconds.
const POLL: Duration = Duration::from_millis(5);
/// The number of hash digits in a folder's name.
const SHORT: usize = 32;

/// Whether this process once waited in vain for the lock. Later attempts then do not wait: a run has many passes.
static WAITED_IN_VAIN: AtomicBool = AtomicBool::new(false);

/// The sizes of files in bytes, by path.
type FileSizes = HashMap<PathBuf, u64>;

/// The cache of compiled kernels for one program on one GPU type. Any number of processes may use it in parallel.
///
/// It is in the folder of the virtual driver that compiled the kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    /// The folder with the kernels of all programs and GPUs.
    all: PathBuf,
    /// The name of the folder of this program and GPU.
    name: String,
    longest_wait: Duration,
}

impl Kernels {
    /// Returns the cache for a program on a GPU. Programs with the same kernel code share one cache.
    ///
    /// If the kernel code is unknown, the cache is for this build of the program only.
    pub(super) fn from_program(driver: &DriverLibrary, program: &Built, gpu: &Profile) -> Result<Self> {
        // Hash the code and not the program: a changed model then compiles only its new kernels. `explain`
        // finds what `check` compiled. See docs/design/kernel-cache.md.
        let code = match &program.kernel_code {
            Some(code) => code.clone(),
            None => identity(&program.executable)?,
        };
        Ok(Self::new(driver.folder.join("kernels"), &code, gpu))
    }

    fn new(all: PathBuf, code: &str, gpu: &Profile) -> Self {
        let (major, minor) = gpu.compute_capability;
        // Burn refuses a kernel that needs too much shared memory only when it compiles the kernel, not when it finds
        // the kernel in the cache. So the amount of shared memory is part of the name.
        let shared = gpu.limits.shared_per_block_optin.0;
        let mut name = hex_digest(&format!("{code}\n{major}.{minor} {shared}"));
        name.truncate(SHORT);
        Self {
            all,
            name,
            longest_wait: LONGEST_WAIT,
        }
    }

    /// Runs a process with a copy of the cache in the folder `to`, and then adds its new kernels to the cache.
    ///
    /// Ignores the kernels of a process that did not exit with code 0, because it may have stopped while it wrote. If
    /// the copy fails, for example because the disk is full, the process compiles all kernels itself.
    pub(super) fn around(
        &self,
        to: &Path,
        run: impl FnOnce(Option<PathBuf>) -> Result<PassOutput>,
    ) -> Result<PassOutput> {
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

    /// Locks the cache for reading and writing, until the file is dropped.
    fn lock(&self) -> Result<File> {
        std::fs::create_dir_all(&self.all)?;
        let path = self.all.join("lock");
        let file = File::create(&path)?;
        // Linux frees the lock if this tool dies, so an old lock file blocks nobody. A stopped tool, or one on a slow
        // network disk, may hold the lock for long. Then skip the cache: a user must not wait without a message.
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock)
                    if began.elapsed() < self.longest_wait && !WAITED_IN_VAIN.load(Ordering::Relaxed) =>
                {
                    std::thread::sleep(POLL);
                }
                Err(error) => {
                    WAITED_IN_VAIN.store(true, Ordering::Relaxed);
                    return Err(error.into());
                }
            }
        }
    }

    /// Copies the cache into the folder `to`, which it empties first. Returns the sizes of the copied files.
    fn lend(&self, to: &Path) -> Result<FileSizes> {
        folders::remove(to)?;
        std::fs::create_dir_all(to)?;
        let _lock = self.lock()?;
        let known = self.folder();
        if known.exists() && sizes(&known)?.values().sum::<u64>() > MOST {
            folders::remove(&known)?;
        }
        if known.exists() {
            // `forget` deletes the oldest folders, so mark this one as used now.
            File::open(&known)?.set_modified(SystemTime::now())?;
            add(&known, to, &FileSizes::new())?;
        }
        sizes(to)
    }

    /// Adds the new kernels of a process to the cache. Most processes find all kernels that they need, and add nothing.
    fn take_back(&self, from: &Path, lent: &FileSizes) -> Result<()> {
        // Burn only appends, so equal sizes mean no new kernel. This needs no lock.
        if sizes(from)? == *lent {
            return folders::remove(from);
        }
        let lock = self.lock()?;
        let known = self.folder();
        // Write into a new folder and rename it, so that the cache is never a partial copy.
        let new = self.all.join("new");
        folders::remove(&new)?;
        if known.exists() {
            add(&known, &new, &FileSizes::new())?;
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

    /// Deletes the oldest folders if there are more than [`REMEMBERED`].
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

/// Returns a text that identifies a build of a program: its path, size and modification time.
fn identity(executable: &Utf8Path) -> Result<String> {
    let file = std::fs::metadata(executable).map_err(naming(executable.as_std_path()))?;
    // Nothing else shows a change: local code changes without a new version.
    let built = file.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{executable}\n{} {}", file.len(), built.as_nanos()))
}

/// Adds the kernels in `from` to those in `to`. Returns whether `from` had any new kernels.
///
/// `lent` contains the sizes that the files in `from` had before the process ran.
fn add(from: &Path, to: &Path, lent: &FileSizes) -> Result<bool> {
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
    // Lists first: the bytes of the other files are new only if a list has a new line for them.
    let mut listed = false;
    for (from, to) in lists {
        listed |= add_lines(&from, &to)?;
    }
    for (from, to) in others {
        let there = to.metadata().map(|file| file.len()).ok();
        let is_new = there.is_none();
        if is_new || listed {
            let lent = lent.get(&from).copied().unwrap_or(0);
            // Append only what the process added. If the cache was deleted in the meantime, append the whole file.
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

/// Adds the lines that are missing in the list `to` from the list `from`. Returns whether any were missing.
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

/// Returns the sizes of all files in a folder and its subfolders.
fn sizes(folder: &Path) -> Result<FileSizes> {
    let mut sizes = FileSizes::new();
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

    fn of(folder: &Path, gpu: &str) -> Kernels {
        let profiles = Profiles::builtin().unwrap();
        let program = Utf8Path::from_path(folder).unwrap().join("vram");
        let code = identity(&program).unwrap();
        Kernels::new(folder.join("kernels"), &code, profiles.find(gpu).unwrap())
    }

    /// Creates a program and returns its kernel cache for an L4.
    fn of_a_program(folder: &Path) -> Kernels {
        std::fs::write(folder.join("vram"), "a program").unwrap();
        of(folder, "l4")
    }

    /// Writes kernels that are not in the folder yet, as a process with Burn 0.21 does.
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
    fn a_tool_that_keeps_the_lock_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let kernels = Kernels {
            longest_wait: Duration::from_millis(20),
            ..of_a_program(folder.path())
        };
        let to = folder.path().join("copy");
        let held = kernels.lock().unwrap();
        let error = kernels.lend(&to).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        // The second attempt does not wait: it would take half a minute.
        let patient = Kernels {
            longest_wait: Duration::from_secs(30),
            ..of_a_program(folder.path())
        };
        let began = Instant::now();
        patient.lend(&to).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(held);
        kernels.lend(&to).unwrap();
    }

    #[test]
    fn what_two_made_at_once_the_next_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let l4 = of_a_program(folder);
        let [first, second, third] = ["first", "second", "third"].map(|name| folder.join(name));
        // Two processes in parallel: neither sees the kernels of the other.
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
        // A process without new kernels changes nothing. Copied kernels are not added a second time.
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
        // A GPU with the same capabilities shares the cache. A different GPU and a changed program do not.
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
        // List and kernel together are five bytes under the maximum, then four bytes over it.
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
        // A process without new kernels changes nothing.
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
                longest_wait: LONGEST_WAIT,
            };
            compile(&lent, &["one"]);
            kernels.take_back(&lent, &FileSizes::new()).unwrap();
            let then = UNIX_EPOCH + std::time::Duration::from_secs(number);
            File::open(kernels.folder()).unwrap().set_modified(then).unwrap();
        }
        let known: Vec<_> = (0..REMEMBERED + 3)
            .filter(|number| all.join(number.to_string()).exists())
            .collect();
        assert_eq!(known, (3..REMEMBERED + 3).collect::<Vec<_>>());
    }
}
