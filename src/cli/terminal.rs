//! All output of the program: results go to standard output, everything else to standard error.
//!
//! [`set_up`] stores how much the program prints, once per process.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anstream::{stderr, stdout};
use indicatif::{ProgressBar, ProgressStyle};

use rustix::fs::OFlags;

use super::escaped::EscapingHandler;
use super::interrupt;
use super::options::{Color, Verbosity};
use crate::cli::error::CliError;
use crate::untrusted::{printable, without_controls};

/// The values of `-q`, `-v` and `--color`.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();
/// The number of existing [`Silence`] values.
static SILENCES: AtomicUsize = AtomicUsize::new(0);

/// Whether only problems are printed.
pub(super) fn is_quiet() -> bool {
    // Global, and not a parameter: 42 signatures had one and mostly passed it on. See docs/design/rooms.md.
    SILENCES.load(Relaxed) > 0 || VERBOSITY.get().is_some_and(|verbosity| verbosity.quiet)
}

/// Whether assumptions and times are also printed.
pub(super) fn is_verbose() -> bool {
    VERBOSITY.get().is_some_and(|verbosity| verbosity.verbose)
}

/// Hides progress and remarks until it is dropped. It is used if several runs share one progress display.
pub(super) struct Silence(());

impl Silence {
    pub(super) fn new() -> Self {
        // A count, because silences can lie within each other.
        SILENCES.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        SILENCES.fetch_sub(1, Relaxed);
    }
}

/// Applies `-q`, `-v`, `--color`, `CARGO_TERM_COLOR` and `NO_COLOR` to all output.
pub(super) fn set_up(verbosity: Verbosity) {
    let verbosity = VERBOSITY.get_or_init(|| verbosity);
    let choice = match verbosity.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    let color = colorful(&std::io::stderr());
    let width = message_width();
    let hook = miette::set_hook(Box::new(move |_| {
        let handler = miette::MietteHandlerOpts::new()
            .color(color)
            .unicode(true)
            .width(width)
            // `printable` removes all control sequences but colors.
            .terminal_links(false)
            .build();
        Box::new(EscapingHandler(handler))
    }));
    // The hook can be set once per process, and only this function sets it.
    debug_assert!(hook.is_ok());
}

/// Whether a stream is printed in color.
pub(super) fn colorful(stream: &impl anstream::stream::RawStream) -> bool {
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Auto => anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
        choice => choice != anstream::ColorChoice::Never,
    }
}

/// Returns the width of the terminal in columns, or 120 if standard output is not a terminal.
pub(super) fn width() -> usize {
    let wide = 120;
    if !std::io::stdout().is_terminal() {
        return wide;
    }
    comfy_table::Table::new().width().map_or(wide, usize::from)
}

/// Whether to wrap text at the width of the terminal. Programs that read a pipe search in whole lines, so pipes do not
/// wrap.
pub(super) fn wraps() -> bool {
    std::io::stdout().is_terminal()
}

/// Returns the width of messages on standard error: that of the terminal, but at most 100 columns for readability.
fn message_width() -> usize {
    let widest = 100;
    let mut stderr = comfy_table::Table::new();
    stderr.use_stderr();
    stderr
        .width()
        .map_or(widest, |width| usize::from(width).clamp(20, widest))
}

/// Whether a result could not be written.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes a result for people to standard output. If that fails, [`unwritten`] returns `true` from then on.
pub(super) fn show(text: &str) {
    show_document(&printable(text));
}

/// Writes a result for a program, such as JSON or Markdown, to standard output. If that fails, [`unwritten`] returns
/// `true` from then on.
pub(super) fn show_document(text: &str) {
    interrupt::wait_for_end();
    let mut stdout = stdout();
    // Standard output is buffered, so a full disk may show only when it is flushed.
    let mut put = |text: &str| stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written(is_writable().and_then(|()| put(&without_controls(text))));
}

/// Returns an error if standard output is open only for reading: the standard library would ignore what is written.
fn is_writable() -> std::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(std::io::stdout())?;
    match flags & OFlags::ACCMODE == OFlags::RDONLY {
        true => Err(std::io::Error::other("it is open for reading only")),
        false => Ok(()),
    }
}

/// Handles the result of writing to standard output: reports the first error.
pub(super) fn written(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        // A reader such as `head` may stop before the end. That is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !UNWRITTEN.swap(true, Relaxed) {
                remark(&format!(
                    "error: cannot write to standard output: {error}\n  \
                     help: if standard output is a file, check whether it is open for writing and whether its disk is full"
                ));
            }
        }
    }
}

/// Whether a result could not be written to standard output.
pub(super) fn unwritten() -> bool {
    UNWRITTEN.load(Relaxed)
}

/// Writes a remark to standard error. Ignores failures, because there is no other place to report them.
pub(super) fn remark(text: &str) {
    interrupt::wait_for_end();
    let _ = writeln!(stderr(), "{}", printable(text));
}

/// Writes an error to standard error.
pub(super) fn complain(stopped: &CliError) {
    remark(&format!("{stopped:?}"));
}

/// How long to wait for a thread before saying so.
const WAIT_NOTICE_AFTER: Duration = Duration::from_secs(5);

/// Waits for a thread, and shows that it does so if that takes long.
pub(super) fn wait_for<T>(thread: JoinHandle<T>, doing: &str) -> T {
    let began = Instant::now();
    while !thread.is_finished() && began.elapsed() < WAIT_NOTICE_AFTER {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _progress = (!thread.is_finished()).then(|| Progress::spinner(doing));
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The interval between two progress lines if standard error is not a terminal.
const EVERY: Duration = Duration::from_secs(30);

/// The progress of one activity.
#[derive(Debug, Clone, Default)]
struct ProgressState {
    /// The activity: `building models`.
    doing: String,
    /// The unit of the counts: `crates`.
    unit: &'static str,
    done: usize,
    /// The number of all units, if it is known.
    total: Option<usize>,
    /// The current part of the activity.
    detail: String,
}

impl ProgressState {
    /// Returns the progress line: `building models: 214 of 431 crates, 2 min 10 s`.
    fn line(&self, elapsed: Duration) -> String {
        let Self { doing, unit, done, .. } = self;
        let count = match self.total {
            _ if unit.is_empty() => String::new(),
            Some(total) => format!(": {done} of {total} {unit}"),
            None if *done > 0 => format!(": {done} {unit}"),
            None => String::new(),
        };
        let detail = match self.detail.as_str() {
            "" => String::new(),
            detail => format!("; {detail}"),
        };
        format!("{doing}{count}, {}{detail}", duration(elapsed))
    }
}

/// Returns a duration as text: `40 s`, `2 min 10 s`.
pub(super) fn duration(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Progress on standard error: a bar on a terminal, otherwise one line at the start and one every 30 seconds. With
/// `-q`, there is no output.
pub(super) struct Progress {
    bar: ProgressBar,
    position: Arc<Mutex<ProgressState>>,
    /// The writer of progress lines, if standard error is not a terminal and `-q` is not set.
    lines: Option<Lines>,
}

/// Writes the progress line at each interval until it is dropped.
struct Lines {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn new(position: Arc<Mutex<ProgressState>>, every: Duration, write: impl Fn(&str) + Send + 'static) -> Self {
        let (end, ended) = mpsc::channel();
        let began = Instant::now();
        let again = move || {
            while ended.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                write(&locked(&position).line(began.elapsed()));
            }
        };
        Self {
            end: Some(end),
            thread: Some(std::thread::spawn(again)),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // The thread sees that the sender is gone, and does not wait for the end of its interval.
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it has printed its panic message already.
            let _ = thread.join();
        }
    }
}

fn locked(position: &Mutex<ProgressState>) -> MutexGuard<'_, ProgressState> {
    position.lock().unwrap_or_else(PoisonError::into_inner)
}

const SPINNER: &str = "{spinner} {msg} {elapsed:.dim}";
const BAR: &str = "{spinner} [{pos}/{len}] {bar:24} {msg} {elapsed:.dim}";

impl Progress {
    /// Shows the progress of an activity of unknown length.
    pub(super) fn spinner(message: &str) -> Self {
        Self::new(ProgressBar::new_spinner(), SPINNER, message, "", None)
    }

    /// Shows the progress of `count` things; `unit` is their name.
    pub(super) fn bar(count: usize, unit: &'static str, message: &str) -> Self {
        let bar = ProgressBar::new(count as u64);
        Self::new(bar, BAR, message, unit, Some(count))
    }

    fn new(bar: ProgressBar, template: &str, message: &str, unit: &'static str, total: Option<usize>) -> Self {
        // In a log, a bar would be a line per tick. `Lines` writes one every 30 seconds instead.
        let is_seen = std::io::stderr().is_terminal();
        if is_quiet() || !is_seen {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let position = Arc::new(Mutex::new(ProgressState {
            doing: message.to_owned(),
            unit,
            total,
            ..ProgressState::default()
        }));
        let lines = (!is_quiet() && !is_seen).then(|| {
            if !message.is_empty() {
                remark(&format!("{message} …"));
            }
            Lines::new(Arc::clone(&position), EVERY, remark)
        });
        let progress = Self { bar, position, lines };
        progress.template(template);
        progress.bar.set_message(printable(message));
        progress.bar.enable_steady_tick(Duration::from_millis(120));
        progress
    }

    fn template(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    /// Sets the current part of the activity.
    pub(super) fn say(&self, detail: &str) {
        let mut position = locked(&self.position);
        detail.clone_into(&mut position.detail);
        self.bar.set_message(printable(&match detail {
            "" => position.doing.clone(),
            detail => format!("{}: {detail}", position.doing),
        }));
    }

    /// Sets the current part of the activity, and also prints it at once if standard error is not a terminal.
    pub(super) fn tell(&self, detail: &str) {
        self.say(detail);
        if self.lines.is_some() {
            remark(&format!("{}: {detail} …", locked(&self.position).doing));
        }
    }

    /// Sets how many things are done. The bar appears as soon as their total is known.
    pub(super) fn reach(&self, done: usize, total: Option<usize>, unit: &'static str) {
        let mut position = locked(&self.position);
        // Cargo's total is known only after the build has begun.
        if let Some(total) = total.filter(|_| position.total.is_none()) {
            self.bar.set_length(total as u64);
            self.template(BAR);
        }
        (position.done, position.total, position.unit) = (done, total, unit);
        self.bar.set_position(done as u64);
    }

    /// Counts one more thing as done.
    pub(super) fn step(&self) {
        locked(&self.position).done += 1;
        self.bar.inc(1);
    }

    /// Prints a permanent line, above the bar or between the progress lines.
    pub(super) fn row(&self, text: &str) {
        match &self.lines {
            Some(_) => remark(text),
            None => self.bar.println(printable(text)),
        }
    }
}

/// The progress of several long activities in a row. Each is shown when it begins: in the bar, or with one line each if
/// standard error is not a terminal.
pub(super) struct Turns {
    progress: Progress,
    count: usize,
    begun: usize,
}

impl Turns {
    pub(super) fn new(count: usize) -> Self {
        let bar = ProgressBar::new(count as u64);
        let template = "{spinner} [{pos}/{len}] {msg} … {elapsed:.dim}";
        Self {
            progress: Progress::new(bar, template, "", "", Some(count)),
            count,
            begun: 0,
        }
    }

    /// Shows that the next activity begins.
    pub(super) fn begin(&mut self, what: &str) {
        self.begun += 1;
        what.clone_into(&mut locked(&self.progress.position).doing);
        self.progress.step();
        self.progress.say("");
        if self.progress.lines.is_some() {
            remark(&format!("[{}/{}] {what} …", self.begun, self.count));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_for_how_long_it_has_been_so() {
        let mut position = ProgressState {
            doing: "building models".to_owned(),
            unit: "crates",
            ..ProgressState::default()
        };
        assert_eq!(position.line(Duration::from_secs(30)), "building models, 30 s");
        (position.done, position.total) = (214, Some(431));
        let elapsed = Duration::from_secs(130);
        assert_eq!(position.line(elapsed), "building models: 214 of 431 crates, 2 min 10 s");
        position.total = None;
        position.detail = "burn-core".to_owned();
        assert_eq!(
            position.line(elapsed),
            "building models: 214 crates, 2 min 10 s; burn-core"
        );
    }

    #[test]
    fn lines_are_written_until_they_are_dropped() {
        let position = Arc::new(Mutex::new(ProgressState {
            doing: "waiting".to_owned(),
            ..ProgressState::default()
        }));
        let (send, written) = mpsc::channel();
        let write = move |line: &str| send.send(line.to_owned()).unwrap();
        let lines = Lines::new(Arc::clone(&position), Duration::from_millis(1), write);
        assert!(written.recv().unwrap().starts_with("waiting, 0 s"));
        "more".clone_into(&mut locked(&position).detail);
        assert!(written.iter().any(|line| line.ends_with("; more")));
        drop(lines);
        // Dropping `lines` dropped the sender, so this loop ends.
        let _rest: Vec<String> = written.iter().collect();
    }
}
