//! One process of a model: started, watched, and ended when it does not end by itself.

use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;

/// How often a running process is looked at.
const INTERVAL: Duration = Duration::from_millis(2);
/// How long a process is waited for that was told to end, and for what it still had to say.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often its memory is, and how far it is.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How much of what a process says is kept: the end of it, where the reason is.
const KEPT: usize = 16 * 1024;

/// What a process may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Wall-clock time.
    pub timeout: Duration,
    /// Resident memory of the host.
    pub host_memory: Bytes,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It was ended for taking too long.
    TimedOut,
    /// It was ended for using this much of the host's memory.
    HostMemory(Bytes),
    /// It was ended because the whole command is.
    Stopped,
}

/// What is left of a process.
#[derive(Debug)]
pub struct Ended {
    /// Why it ended.
    pub end: End,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// The most of the host's memory it was seen to use.
    pub host_memory: Bytes,
    /// How long it ran.
    pub took: Duration,
}

/// Runs a command to its end, in a process group of its own, which is ended with it. `started` is told its id;
/// `meanwhile` is called again and again while it runs, and may end it.
///
/// # Errors
/// Where it cannot be started or watched.
pub fn run(
    command: &mut Command,
    limits: Limits,
    started: impl FnOnce(u32),
    mut meanwhile: impl FnMut() -> ControlFlow<()>,
) -> std::io::Result<Ended> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    started(child.id());
    // Standard output belongs to the model; it is read, so that the model never waits, and let go.
    let _stdout = tail(child.stdout.take());
    let stderr = tail(child.stderr.take());
    let mut host_memory = Bytes(0);
    let mut memory_looked = start;
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break ended(status);
        }
        let now = Instant::now();
        if now - start > limits.timeout {
            kill(&mut child);
            break End::TimedOut;
        }
        if now - memory_looked >= MEMORY_INTERVAL {
            memory_looked = now;
            if meanwhile().is_break() {
                kill(&mut child);
                break End::Stopped;
            }
            host_memory = host_memory.max(resident(child.id()).unwrap_or_default());
            if host_memory > limits.host_memory {
                kill(&mut child);
                break End::HostMemory(host_memory);
            }
        }
        std::thread::sleep(INTERVAL);
    };
    // Children of the model's own would keep the pipes open.
    kill_group(child.id());
    Ok(Ended {
        end,
        stderr: said(stderr),
        host_memory,
        took: start.elapsed(),
    })
}

/// What a process said, unless something that outlived it keeps the pipe open.
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

fn kill(child: &mut Child) {
    kill_group(child.id());
    let _ = child.kill();
    // A process that hangs in a GPU's kernel module cannot be ended: it is left behind.
    let killed = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && killed.elapsed() < PATIENCE {
        std::thread::sleep(INTERVAL);
    }
}

fn kill_group(leader: u32) {
    let pid = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // Nobody is left of the group, most of the time.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
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
            if kept.len() > 4 * KEPT {
                kept.drain(..kept.len() - KEPT);
            }
        }
        kept.drain(..kept.len().saturating_sub(KEPT));
        String::from_utf8_lossy(&kept).into_owned()
    })
}

/// The highest resident memory of a process so far, from the kernel's own account.
fn resident(pid: u32) -> Option<Bytes> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}
