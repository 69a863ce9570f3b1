//! Finds and ends the processes that a model or a command started.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::protocol::JOB_VARIABLE;

/// How often to check whether processes have ended.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long processes have to end after SIGTERM, before SIGKILL.
pub const GRACE: Duration = Duration::from_secs(1);

/// A running process, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunningProcess {
    id: u32,
    parent: u32,
    group: u32,
    /// When it started, in clock ticks since boot. With the id, it identifies a process.
    started: u64,
}

impl RunningProcess {
    /// Reads a process. Returns `None` if it has ended, even if its parent has not collected it.
    fn read(id: u32) -> Option<Self> {
        ProcessEntry::read(id)?.running()
    }

    const fn key(&self) -> ProcessKey {
        (self.id, self.started)
    }

    fn all() -> Vec<Self> {
        ProcessEntry::all().filter_map(ProcessEntry::running).collect()
    }
}

/// A process that runs, or that has ended and that its parent has not collected yet.
struct ProcessEntry {
    process: RunningProcess,
    /// Whether its first thread has ended.
    is_dead: bool,
    /// The number of its threads; 1 after all have ended.
    threads: u64,
}

impl ProcessEntry {
    fn read(id: u32) -> Option<Self> {
        // The kernel cuts a name after 15 bytes, which may be in the middle of a character.
        let stat = std::fs::read(format!("/proc/{id}/stat")).ok()?;
        Self::parse(id, &String::from_utf8_lossy(&stat))
    }

    /// Reads all processes, also those that have ended and that their parents have not collected.
    fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(Self::read)
    }

    /// Parses `PID (name) state parent group …`.
    fn parse(id: u32, stat: &str) -> Option<Self> {
        // A name may contain parentheses and blanks.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let [parent, group] = [words.next()?, words.next()?].map(|word| word.parse().unwrap_or(0));
        // Fields 20 and 22; the group is field 5.
        let [threads, started] = [words.nth(14)?, words.nth(1)?].map(|word| word.parse().ok());
        Some(Self {
            process: RunningProcess {
                id,
                parent,
                group,
                started: started?,
            },
            is_dead: matches!(state, "Z" | "X"),
            threads: threads?,
        })
    }

    fn running(self) -> Option<RunningProcess> {
        (!self.has_ended()).then_some(self.process)
    }

    /// Whether it has ended with all its threads. The first one may end before the others, and then the process still
    /// has its children.
    const fn has_ended(&self) -> bool {
        self.is_dead && self.threads <= 1
    }
}

/// The models that run now, and the processes that this process adopted from them.
static RUNNING: Mutex<RunningModels> = Mutex::new(RunningModels {
    leaders: BTreeSet::new(),
    earlier: BTreeSet::new(),
    adopted: BTreeMap::new(),
    previous: None,
});

/// The id and the start time of a process, which identify it: an id may be used again.
type ProcessKey = (u32, u64);

struct RunningModels {
    /// The ids of the models' own processes, until nothing that they started is looked for any more.
    leaders: BTreeSet<u32>,
    /// The children that this process had before it started the first model. They are no model's.
    earlier: BTreeSet<ProcessKey>,
    /// For each process that may be adopted, the models' own processes that may have started it.
    adopted: BTreeMap<ProcessKey, BTreeSet<u32>>,
    /// Which process adopted orphans for this one before: this process itself, or none.
    previous: Option<Pid>,
}

fn running() -> MutexGuard<'static, RunningModels> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While a model has such a value, this process adopts processes whose parents have ended.
///
/// It does so only while models run: otherwise it would also adopt a server that a build started.
pub(super) struct Adoption {
    leader: u32,
}

impl Adoption {
    /// Starts a model.
    pub(super) fn spawn(command: &mut Command) -> std::io::Result<(Child, Self)> {
        // Locked until the model is known as one: a scan for another model would take it for an orphan.
        let mut running = running();
        if running.leaders.is_empty() {
            running.earlier = children_in(&RunningProcess::all()).map(RunningProcess::key).collect();
            running.previous = rustix::process::child_subreaper().unwrap_or(None);
            // If that fails, only processes that left their group and their parent and cleared their environment are
            // not found.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        let child = command.spawn();
        if let Ok(child) = &child {
            running.leaders.insert(child.id());
        }
        running.restore();
        child.map(|child| {
            let leader = child.id();
            (child, Self { leader })
        })
    }

    /// Notes the processes that the model's own process started or adopted, and those that they started, while it runs.
    /// So it is known whose they are when it has ended.
    pub(super) fn note_descendants(&self) {
        let (mut found, mut parents) = (BTreeMap::new(), vec![self.leader]);
        while let Some(parent) = parents.pop() {
            for thread in threads(parent) {
                // A kernel without this file knows only what a later scan finds.
                let children = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
                let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
                for child in ids.filter_map(RunningProcess::read) {
                    if found.insert(child.id, child).is_none() {
                        parents.push(child.id);
                    }
                }
            }
        }
        if !found.is_empty() {
            running().note(self.leader, found.values());
        }
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        let mut running = running();
        running.leaders.remove(&self.leader);
        // A process that cannot be ended stays without a model, because the id may become that of another model.
        running.adopted.values_mut().for_each(|models| {
            models.remove(&self.leader);
        });
        running.collect();
        running.restore();
    }
}

impl RunningModels {
    /// Stops adopting processes if no model runs.
    fn restore(&self) {
        if self.leaders.is_empty() {
            let _ = rustix::process::set_child_subreaper(self.previous);
        }
    }

    /// Notes that a model started these processes, unless it is known whose they are.
    fn note<'a>(&mut self, leader: u32, processes: impl Iterator<Item = &'a RunningProcess>) {
        for process in processes {
            let models = || BTreeSet::from([leader]);
            self.adopted.entry(process.key()).or_insert_with(models);
        }
    }

    /// Whether a process may be an orphan of a model: a child of this process that it did not start itself.
    fn is_orphan(&self, child: &RunningProcess, own_group: Option<u32>) -> bool {
        child.parent == std::process::id()
            // What this process starts besides models has its group.
            && own_group.is_some_and(|group| group != child.group)
            && !self.leaders.contains(&child.id)
            && !self.earlier.contains(&child.key())
    }

    /// Collects the orphans that have ended, and forgets processes that no longer exist.
    fn collect(&mut self) {
        let group = own_group();
        let mut exist = BTreeSet::new();
        for entry in ProcessEntry::all() {
            let is_orphan = self.is_orphan(&entry.process, group);
            if !(is_orphan && entry.has_ended() && collect(entry.process.id)) {
                exist.insert(entry.process.key());
            }
        }
        // A list without this process is incomplete.
        if exist.iter().any(|(id, _)| *id == std::process::id()) {
            self.adopted.retain(|process, _| exist.contains(process));
        }
    }

    /// Returns the adopted processes that a model may have started.
    ///
    /// A process is adopted when the model's own process, which adopted it first, has ended. So one that was not noted
    /// before is of a model that has ended; if several have, of any of them.
    fn adopted_from(&mut self, leader: u32, all: &[RunningProcess]) -> Vec<u32> {
        let group = own_group();
        let orphans = all.iter().filter(|process| self.is_orphan(process, group));
        // Of one with a job, or in the group of a model, the model is known.
        let orphans = orphans.filter(|child| !self.leaders.contains(&child.group) && job(child.id).is_none());
        let orphans: Vec<_> = orphans.collect();
        let mut found = Vec::new();
        for orphan in orphans {
            let models = self.adopted.entry(orphan.key()).or_insert_with(|| {
                // The first process of a container adopts all orphans of the container, also those of other programs.
                if std::process::id() == 1 {
                    return BTreeSet::new();
                }
                // Read now: when `all` was read, the model may still have run.
                let has_ended = |leader: &u32| ProcessEntry::read(*leader).is_none_or(|entry| entry.has_ended());
                self.leaders.iter().copied().filter(has_ended).collect()
            });
            if models.contains(&leader) {
                found.push(orphan.id);
            }
        }
        found
    }
}

/// Returns the running children of this process.
fn children_in(all: &[RunningProcess]) -> impl Iterator<Item = &RunningProcess> {
    all.iter().filter(|process| process.parent == std::process::id())
}

/// Returns the process group of this process.
fn own_group() -> Option<u32> {
    Some(RunningProcess::read(std::process::id())?.group)
}

/// Collects a child of this process that has ended. Returns whether it is collected.
fn collect(id: u32) -> bool {
    pid(id).is_some_and(|id| matches!(rustix::process::waitpid(Some(id), WaitOptions::NOHANG), Ok(Some(_))))
}

/// Returns the folders in `/proc` of the threads of a process.
///
/// If the first thread has ended before the others, the files of the process cannot be read or lack what belongs to all
/// threads, such as the environment. Then those of another thread have it.
pub(super) fn threads(id: u32) -> impl Iterator<Item = PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
    threads.flatten().map(|thread| thread.path())
}

/// Returns the running processes that a process started, and those that they started.
#[must_use]
pub fn descendants(of: u32) -> BTreeSet<u32> {
    descendants_in(&RunningProcess::all(), of)
}

fn descendants_in(all: &[RunningProcess], of: u32) -> BTreeSet<u32> {
    let (mut found, mut parents) = (BTreeSet::new(), vec![of]);
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|process| process.parent == parent);
        parents.extend(children.map(|child| child.id).filter(|child| found.insert(*child)));
    }
    found
}

/// Returns the running processes of the model that runs in `folder` and whose own process is `leader`, except for that
/// process.
///
/// Finds those of its process group and its descendants. Finds processes that left both by the job's file in their
/// environment, which they inherit, or because this process adopted them (`Adoption`).
#[must_use]
pub fn of_model(leader: u32, folder: &Path) -> BTreeSet<u32> {
    let all = RunningProcess::all();
    let mut found = descendants_in(&all, leader);
    let group = all.iter().filter(|process| process.group == leader);
    found.extend(group.map(|process| process.id));
    found.extend(working_in(&all, folder));
    let mut running = running();
    for orphan in running.adopted_from(leader, &all) {
        found.insert(orphan);
        found.append(&mut descendants_in(&all, orphan));
    }
    found.remove(&leader);
    // If one of these ends before those that it started, nobody else knows whose they are.
    running.note(leader, all.iter().filter(|process| found.contains(&process.id)));
    found
}

/// Returns the running processes of all models that run in `folder` or in a folder inside it.
#[must_use]
pub fn of_models_in(folder: &Path) -> BTreeSet<u32> {
    working_in(&RunningProcess::all(), folder).collect()
}

/// Returns the processes that began with a job of this folder, except for this process.
fn working_in(all: &[RunningProcess], folder: &Path) -> impl Iterator<Item = u32> {
    let others = all.iter().filter(|process| process.id != std::process::id());
    others.map(|process| process.id).filter(|id| works_in(*id, folder))
}

/// Whether a process began with a job of this folder in its environment.
fn works_in(id: u32, folder: &Path) -> bool {
    job(id).is_some_and(|job| job.starts_with(folder))
}

/// Returns the job in the environment with which a process began.
fn job(id: u32) -> Option<PathBuf> {
    let environment = match std::fs::read(format!("/proc/{id}/environ")) {
        Ok(environment) if !environment.is_empty() => environment,
        // Other users' processes cannot be models of this user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        _ => {
            let mut of_threads = threads(id).filter_map(|thread| std::fs::read(thread.join("environ")).ok());
            of_threads.find(|read| !read.is_empty())?
        }
    };
    let job = |variable: &[u8]| {
        let value = variable.strip_prefix(JOB_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        Some(std::ffi::OsStr::from_bytes(value).into())
    };
    environment.split(|byte| *byte == 0).find_map(job)
}

/// Ends processes: SIGTERM, and SIGKILL for those that still run after `grace`.
///
/// Calls `find` again until it returns nothing and those that it returned before have ended, because processes may
/// start others meanwhile. Gives up after five seconds: a process that hangs in the kernel cannot be killed.
pub fn end(mut find: impl FnMut() -> BTreeSet<u32>, grace: Duration) {
    let began = Instant::now();
    // With the start times, because an id may be used again.
    let mut asked: BTreeMap<u32, u64> = BTreeMap::new();
    loop {
        let found: Vec<_> = find().into_iter().filter_map(RunningProcess::read).collect();
        // A process may not be found again: if its parent ended first, it is no descendant any more.
        asked.retain(|id, started| RunningProcess::read(*id).is_some_and(|process| process.started == *started));
        let waited = began.elapsed();
        if (found.is_empty() && asked.is_empty()) || waited > grace + Duration::from_secs(5) {
            return;
        }
        for process in found {
            if asked.insert(process.id, process.started).is_none() && waited < grace {
                send(process.id, Signal::TERM);
            }
        }
        if waited >= grace {
            asked.keys().for_each(|id| send(*id, Signal::KILL));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Kills a whole process group at once, which a scan of all processes cannot do.
pub(super) fn kill_group(leader: u32) {
    if let Some(leader) = pid(leader) {
        // This fails if the group has no process any more.
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
}

/// Waits until `find` returns nothing. Returns whether it still returns something after `patience`.
pub(super) fn outlive(mut find: impl FnMut() -> BTreeSet<u32>, patience: Duration) -> bool {
    let began = Instant::now();
    while !find().is_empty() {
        if began.elapsed() > patience {
            return true;
        }
        std::thread::sleep(INTERVAL);
    }
    false
}

fn send(id: u32, signal: Signal) {
    if let Some(id) = pid(id) {
        // This fails if the process has just ended.
        let _ = rustix::process::kill_process(id, signal);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let running = |stat: &str| ProcessEntry::parse(7, stat).and_then(ProcessEntry::running);
        let parsed = running("7 (a) S 1 (b)) S 5 6 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 10");
        let expected = RunningProcess {
            id: 7,
            parent: 5,
            group: 6,
            started: 987,
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(
            running("7 (dead) Z 5 6 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 10"),
            None
        );
        assert_eq!(running("7 (cut"), None);
        // Its first thread has ended, and another one runs.
        let threads = running("7 (main) Z 5 6 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 987 10");
        assert_eq!(threads, Some(expected));
        // `ä` has two bytes, and the kernel keeps only the first.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("aaaaaaaaaaaaaaä");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut sleep = Command::new(program).arg0("sleep").arg("30").spawn().unwrap();
        let name = std::fs::read(format!("/proc/{}/comm", sleep.id())).unwrap();
        assert!(std::str::from_utf8(&name).is_err(), "{name:?}");
        let read = RunningProcess::read(sleep.id());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(read.unwrap().parent, std::process::id());
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let script = "import ctypes, threading, time\n\
                      threading.Thread(target=time.sleep, args=(30,)).start()\n\
                      ctypes.CDLL(None).pthread_exit(None)";
        let mut python = Command::new("python3");
        python
            .args(["-c", script])
            .env(JOB_VARIABLE, folder.path().join("case-0/job.json"));
        let Ok(mut python) = python.spawn() else {
            eprintln!("skipped: python3 is not installed");
            return;
        };
        let began = Instant::now();
        let is_dead = || ProcessEntry::read(python.id()).is_some_and(|entry| entry.is_dead);
        while !is_dead() {
            assert!(began.elapsed() < Duration::from_secs(60), "its first thread still runs");
            std::thread::sleep(INTERVAL);
        }
        assert_eq!(of_models_in(folder.path()), BTreeSet::from([python.id()]));
        end(|| of_models_in(folder.path()), Duration::ZERO);
        assert!(!python.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_left_its_group_and_its_parent_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("case-0/job.json");
        // `setsid` starts a new group, and the shell ends at once, so that init becomes the parent.
        let script = "setsid sh -c 'trap \"\" TERM; exec sleep 30' & sleep 0.3";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .env(JOB_VARIABLE, &job)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let leader = shell.id();
        assert!(descendants(std::process::id()).contains(&leader));
        shell.wait().unwrap();
        let left = || of_model(leader, folder.path());
        assert_eq!(left().len(), 1);
        assert!(of_model(leader, &folder.path().join("case-1")).is_empty());
        assert_eq!(of_models_in(folder.path()), left());
        end(left, Duration::from_millis(100));
        assert_eq!(left(), BTreeSet::new());
    }
}
