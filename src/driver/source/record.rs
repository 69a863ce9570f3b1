//! The record: one line an event, each appended by one `write`, so that a crash loses nothing.

use std::fmt::{self, Write};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use crate::abi::{Answer, CUresult, NOT_READY, SUCCESS};
use crate::config::Config;
use crate::{call, clock, context, copy, launch, libc, maps, memory, pinned, unwinding};

pub(crate) const VERSION: u32 = 1;
const LONGEST_LINE: usize = 1024;
const LONGEST_TEXT: usize = 512;

static FILE: OnceLock<File> = OnceLock::new();
static MODULES: AtomicU64 = AtomicU64::new(0);

/// A line under construction, on the stack.
pub(crate) struct Line {
    bytes: [u8; LONGEST_LINE],
    length: usize,
}

impl Line {
    pub(crate) fn new(event: &str) -> Self {
        let mut line = Self {
            bytes: [0; LONGEST_LINE],
            length: 0,
        };
        line.put(format_args!("{event} t={}", clock::real_nanoseconds()));
        line
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // A line that is full stays as it is: it ends, and the next one begins a line.
        let _ = self.write_fmt(text);
    }

    pub(crate) fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.put(format_args!(" {key}={value}"));
        self
    }

    pub(crate) fn address(mut self, key: &str, value: u64) -> Self {
        self.put(format_args!(" {key}={value:#x}"));
        self
    }

    /// A text from outside: whatever is not plain is percent-escaped; `-` where it is empty.
    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        if value.is_empty() {
            return self.with(key, '-');
        }
        self.put(format_args!(" {key}="));
        for byte in value.bytes().take(LONGEST_TEXT) {
            match byte {
                b'!'..=b'~' if byte != b'%' => self.put(format_args!("{}", char::from(byte))),
                _ => self.put(format_args!("%{byte:02X}")),
            }
        }
        self
    }

    pub(crate) fn write(self) {
        if let Some(file) = FILE.get() {
            self.write_to(file);
        }
    }

    fn write_to(mut self, file: &File) {
        self.length = self.length.min(LONGEST_LINE - 1);
        self.bytes[self.length] = b'\n';
        // SAFETY: the buffer is this line's own, and longer than the count.
        unsafe {
            libc::write(
                file.as_raw_fd(),
                self.bytes.as_ptr().cast(),
                self.length + 1,
            )
        };
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST_LINE - 1 - self.length;
        let bytes = text.as_bytes().get(..room).unwrap_or(text.as_bytes());
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        if bytes.len() < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// Opens the record and begins it, if that is still to be done: by the first `cuInit`, the first
/// forwarded call or the first injected fault.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let open = |path: &Path| OpenOptions::new().append(true).create(true).open(path).ok();
        let config = context::configured();
        let file = config.and_then(|config| Some((config, open(&config.record)?)));
        let Some((config, file)) = file else { return };
        // Before any other thread can write: the line is the first.
        first_line(config).write_to(&file);
        let _ = FILE.set(file);
        PROCESS.store(u64::from(std::process::id()), Ordering::Relaxed);
        // SAFETY: the callback lives as long as this library, whose exit handlers run before it
        // goes.
        unsafe { libc::atexit(end) };
    });
}

fn first_line(config: &Config) -> Line {
    let line = Line::new("start")
        .with("pid", std::process::id())
        .with("t", clock::real_nanoseconds())
        .with("version", VERSION);
    let Some(forward) = &config.forward else {
        return line
            .text("name", &config.name)
            .with("total", config.total)
            .with("available", config.available)
            .with("mode", "virtual");
    };
    // What the real card is, its own line says; here is what it is made to seem.
    let mut line = line.with("mode", "forward");
    if let Some(total) = forward.total {
        line = line.with("total", total);
    }
    if let Some(available) = forward.available {
        line = line.with("available", available);
    }
    line
}

static PROCESS: AtomicU64 = AtomicU64::new(0);

extern "C" fn end() {
    // A forked child that exits is not the end of the process recorded here.
    if PROCESS.load(Ordering::Relaxed) == u64::from(std::process::id()) {
        totals();
        call::write_counts();
        maps::tell_other_drivers();
        Line::new("end")
            .with("t", clock::real_nanoseconds())
            .write();
    }
}

pub(crate) fn module_loaded(ptx_bytes: usize, functions: usize) {
    MODULES.fetch_add(1, Ordering::Relaxed);
    Line::new("module")
        .with("ptx", ptx_bytes)
        .with("functions", functions)
        .write();
}

/// The counters, in one line.
pub(crate) fn totals() {
    let (reserved, peak) = memory::reserved_and_peak();
    Line::new("launches")
        .with("count", launch::count())
        .with("reads", copy::reads())
        .with("modules", MODULES.load(Ordering::Relaxed))
        .with("pinned_peak", pinned::peak())
        .with("reserved_peak", peak)
        .with("reserved", reserved)
        .with("panics", unwinding::raised())
        .write();
}

/// The code of an answer; a fault is recorded.
#[inline]
pub(crate) fn answer(function: &'static str, answer: Answer) -> CUresult {
    match answer {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if !fault.detail.is_empty() && fault.code != NOT_READY {
                error(function, fault.code, fault.detail);
            }
            fault.code
        }
    }
}

#[cold]
pub(crate) fn error(function: &str, code: CUresult, detail: &str) {
    Line::new("error")
        .with("function", function)
        .with("code", code)
        .text("detail", detail)
        .write();
}
