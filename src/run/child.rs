//! Runs one process of a model, watches its limits, and ends it if it exceeds them.

use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::processes;
use crate::bytes::Bytes;

/// How often to check whether a process has ended.
const INTERVAL: Duration = Duration::from_millis(2);
/// How long to wait for the rest of a process's standard error.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the processes that a model started may still run after it.
const OUTLIVED: Duration = Duration::from_secs(1);
/// How often to check the memory and the progress of a process.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How many bytes of a process's output to keep: the last ones, because they contain the reason of a failure.
const KEPT: usize = 16 * 1024;

/// The limits of one process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessLimits {
    /// The longest wall-clock time.
    pub timeout: Duration,
    /// The most resident memory on the host.
    pub host_memory: Bytes,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process exited with this code.
    Exited(i32),
    /// A signal ended the process.
    Signalled(i32),
    /// The tool killed the process because it exceeded its time limit.
    TimedOut {
        /// How long its threads waited for a core, added up: on an idle machine, next to nothing.
        starved: Duration,
    },
    /// The tool killed the process because it used this much host memory.
    HostMemory(Bytes),
    /// The tool killed the process because the whole command is stopping.
    Stopped,
}

/// The outcome of a process.
#[derive(Debug)]
pub struct ProcessOutcome {
    /// Why it ended.
    pub end: End,
    /// The end of its standard error.
    pub stderr: String,
    /// The most host memory that the process was seen to use.
    pub host_memory: Bytes,
    /// How long the process ran.
    pub took: Duration,
    /// Whether processes of the model still ran a second after it had ended by itself. They were ended, too.
    pub is_outlived: bool,
}

/// Runs a command to its end in its own process group. Afterwards, ends all processes that it started.
///
/// `folder` is the folder of the job in the command's environment, by which its processes are found. Calls `started`
/// with the process id. While the process runs, calls `meanwhile` every 20 ms; `Break` ends the process.
///
/// # Errors
/// If the process cannot be started or watched.
pub fn run(
    command: &mut Command,
    folder: &Path,
    limits: ProcessLimits,
    started: impl FnOnce(u32),
    mut meanwhile: impl FnMut() -> ControlFlow<()>,
) -> std::io::Result<ProcessOutcome> {
    let start = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that helper processes of the model are killed with it. It also keeps a
        // terminal's Ctrl-C from the model.
        .process_group(0);
    let (mut child, adoption) = processes::Adoption::spawn(command)?;
    started(child.id());
    // Read and discard the model's standard output: a full pipe would block the model.
    let _stdout = tail(child.stdout.take());
    let stderr = tail(child.stderr.take());
    let mut host_memory = Bytes(0);
    let mut memory_looked = start;
    let (mut took, mut is_outlived) = (None, false);
    let leader = child.id();
    let others = || processes::of_model(leader, folder);
    let end = loop {
        if let Some(status) = child.try_wait()? {
            took = Some(start.elapsed());
            is_outlived = processes::outlive(others, OUTLIVED);
            break ended(status);
        }
        let now = Instant::now();
        if now - start > limits.timeout {
            // Before the kill: `/proc` does not list the threads of a dead process.
            let starved = waited_for_cores(child.id());
            break End::TimedOut { starved };
        }
        if now - memory_looked >= MEMORY_INTERVAL {
            memory_looked = now;
            adoption.note_descendants();
            if meanwhile().is_break() {
                break End::Stopped;
            }
            // A process that is just exiting has no such line any more.
            host_memory = host_memory.max(resident(child.id()).unwrap_or_default());
            if host_memory > limits.host_memory {
                break End::HostMemory(host_memory);
            }
        }
        std::thread::sleep(INTERVAL);
    };
    let is_alone = took.is_some() && !is_outlived;
    let took = took.unwrap_or_else(|| start.elapsed());
    if !is_alone {
        // They would keep the pipes open, and the memory of a GPU.
        end_all(&mut child, folder, end);
    }
    Ok(ProcessOutcome {
        end,
        stderr: said(stderr),
        host_memory,
        took,
        is_outlived,
    })
}

/// Returns the standard error of a process, or an empty string if another process keeps the pipe open.
fn said(stderr: JoinHandle<String>) -> String {
    let asked = Instant::now();
    while !stderr.is_finished() && asked.elapsed() < PATIENCE {
        std::thread::sleep(INTERVAL);
    }
    if stderr.is_finished() {
        stderr.join().unwrap_or_default()
    } else {
        String::new()
    }
}

fn ended(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or(0)),
    }
}

/// Ends a process, unless it has ended, and all processes that it started.
fn end_all(child: &mut Child, folder: &Path, why: End) {
    let grace = match why {
        // It takes the memory of other programs as long as it runs, so it is killed before others are looked for.
        End::HostMemory(_) => {
            processes::kill_group(child.id());
            Duration::ZERO
        }
        _ => processes::GRACE,
    };
    let leader = child.id();
    let running = || {
        let mut all = processes::of_model(leader, folder);
        if matches!(child.try_wait(), Ok(None)) {
            all.insert(leader);
        }
        all
    };
    processes::end(running, grace);
    // If `/proc` cannot be read, nothing was found to be ended. A process that hangs in the kernel stays.
    if matches!(child.try_wait(), Ok(None)) {
        processes::kill_group(leader);
        let _ = child.kill();
        let asked = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < processes::GRACE {
            std::thread::sleep(INTERVAL);
        }
    }
}

fn tail(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 64 * 1024];
        let Some(mut pipe) = pipe else {
            return String::new();
        };
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            kept.extend_from_slice(&buffer[..count]);
            // Trim rarely, because each trim moves all bytes that are kept.
            if kept.len() > 4 * KEPT {
                kept.drain(..kept.len() - KEPT);
            }
        }
        kept.drain(..kept.len().saturating_sub(KEPT));
        // The first kept byte may be in the middle of a character.
        String::from_utf8_lossy(&kept).into_owned()
    })
}

/// Reads how long the threads of a running process were ready but had no core, added up, from the kernel's scheduler statistics. It
/// is 0 if the kernel keeps none.
fn waited_for_cores(pid: u32) -> Duration {
    let waited = processes::threads(pid).filter_map(|thread| {
        // Three numbers: nanoseconds on a core, nanoseconds of waiting for one, and time slices.
        let statistics = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        statistics.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    // Threads that ended are missing. That is enough for the hint in the message.
    // See docs/design/priority.md.
    Duration::from_nanos(waited.sum())
}

/// Reads the highest resident memory of a process so far (`VmHWM` in `/proc/PID/status`).
fn resident(pid: u32) -> Option<Bytes> {
    let read = |folder: PathBuf| {
        let status = std::fs::read(folder.join("status")).ok()?;
        // The name of the process need not be text.
        let status = String::from_utf8_lossy(&status);
        // Not `VmRSS`: the kernel keeps the peak, so a short peak between two looks counts, too.
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Bytes(kib.saturating_mul(1024)))
    };
    read(format!("/proc/{pid}").into()).or_else(|| processes::threads(pid).find_map(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script for half a second, and returns for how long its process waited for a core.
    fn starved(program: &mut Command) -> Duration {
        let limits = ProcessLimits {
            timeout: Duration::from_millis(500),
            host_memory: Bytes::GIB,
        };
        let outcome = run(
            program,
            Path::new("/nonexistent"),
            limits,
            |_| (),
            || ControlFlow::Continue(()),
        )
        .unwrap();
        match outcome.end {
            End::TimedOut { starved } => starved,
            end => panic!("{end:?}"),
        }
    }

    #[test]
    fn a_process_that_others_keep_from_running_is_told_from_one_that_waits() {
        assert!(starved(Command::new("sleep").arg("60")) < Duration::from_millis(250));
        // Five loops on one core: each runs a fifth of the time. Only the first one is the process that is watched.
        let loops = "for _ in 1 2 3 4; do (while :; do :; done) & done; while :; do :; done";
        let crowded = starved(Command::new("taskset").args(["--cpu-list", "0", "sh", "-c", loops]));
        assert!(crowded > Duration::from_millis(250), "{crowded:?}");
    }
}
