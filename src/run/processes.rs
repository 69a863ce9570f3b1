//! Finds and ends the processes that a model or a command started.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

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
        Self::parse(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses `PID (name) state parent group …`.
    fn parse(id: u32, stat: &str) -> Option<Self> {
        // A name may contain parentheses and blanks.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let [parent, group] = [words.next()?, words.next()?].map(|word| word.parse().unwrap_or(0));
        // Field 22; the group is field 5.
        let started = words.nth(16)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self {
            id,
            parent,
            group,
            started,
        })
    }

    fn all() -> Vec<Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(Self::read).collect()
    }
}

/// The adopted processes, and how many models run now.
static ADOPTED: Mutex<AdoptedProcesses> = Mutex::new(AdoptedProcesses {
    models: 0,
    by_model: BTreeMap::new(),
});

struct AdoptedProcesses {
    models: usize,
    /// The model of each process, by the process's id and start time.
    by_model: BTreeMap<(u32, u64), u32>,
}

fn adopted() -> MutexGuard<'static, AdoptedProcesses> {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While a value exists, a process whose parents have ended becomes a child of this process.
///
/// Only while models run: otherwise this process would also adopt a server that a build started.
pub(super) struct Adoption(());

impl Adoption {
    pub(super) fn new() -> Self {
        let mut adopted = adopted();
        adopted.models += 1;
        // Without it, only processes that cleared their environment and left their parents are not found.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        Self(())
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        let mut adopted = adopted();
        adopted.models -= 1;
        if adopted.models == 0 {
            let _ = rustix::process::set_child_subreaper(None);
        }
    }
}

/// Returns the running processes that this process adopted since a model ended: the model's own process had adopted
/// them before.
fn adopted_of(all: &[RunningProcess], leader: u32) -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let group = all.iter().find(|process| process.id == own).map(|own| own.group);
    // What this process starts itself has its group, or a job in its environment.
    let is_adopted = move |process: &&RunningProcess| {
        process.parent == own && Some(process.group) != group && is_without_job(process.id)
    };
    let mut adopted = adopted();
    let is_of_model = move |process: &&RunningProcess| {
        let model = adopted.by_model.entry((process.id, process.started));
        *model.or_insert(leader) == leader
    };
    all.iter()
        .filter(is_adopted)
        .filter(is_of_model)
        .map(|process| process.id)
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
/// environment, which they inherit, or because this process adopted them ([`Adoption`]).
#[must_use]
pub fn of_model(leader: u32, folder: &Path) -> BTreeSet<u32> {
    let all = RunningProcess::all();
    let mut found = descendants_in(&all, leader);
    let group = all.iter().filter(|process| process.group == leader);
    found.extend(group.map(|process| process.id));
    found.extend(working_in(&all, folder));
    for orphan in adopted_of(&all, leader) {
        found.insert(orphan);
        found.append(&mut descendants_in(&all, orphan));
    }
    found.remove(&leader);
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
    job(id).is_some_and(|job| Path::new(std::ffi::OsStr::from_bytes(&job)).starts_with(folder))
}

/// Returns the job in the environment with which a process began.
fn job(id: u32) -> Option<Vec<u8>> {
    // Other users' processes cannot be read, and cannot be models of this user.
    let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
    let value = |variable: &[u8]| {
        Some(
            variable
                .strip_prefix(JOB_VARIABLE.as_bytes())?
                .strip_prefix(b"=")?
                .to_owned(),
        )
    };
    environment.split(|byte| *byte == 0).find_map(value)
}

/// Whether a process runs another program than this one, and began without a job.
fn is_without_job(id: u32) -> bool {
    // First the program: a model that was just started still runs this program, without the job.
    let program = |id: &str| std::fs::read_link(format!("/proc/{id}/exe")).ok();
    program(&id.to_string()) != program("self") && job(id).is_none()
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
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let parsed = RunningProcess::parse(7, "7 (a) S 1 (b)) S 5 6 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 10");
        let expected = RunningProcess {
            id: 7,
            parent: 5,
            group: 6,
            started: 987,
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(
            RunningProcess::parse(7, "7 (dead) Z 5 6 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 10"),
            None
        );
        assert_eq!(RunningProcess::parse(7, "7 (cut"), None);
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
