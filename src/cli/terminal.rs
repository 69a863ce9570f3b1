//! Where this program writes: results to standard output, everything else to standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anstream::{stderr, stdout};
use indicatif::{ProgressBar, ProgressStyle};

use super::Stopped;
use super::options::{Color, Loudness};

/// Applies `--color`, `CARGO_TERM_COLOR` and `NO_COLOR` to everything that is written.
pub(super) fn set_up(loudness: Loudness) {
    let choice = match loudness.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    let color = colorful(&std::io::stderr());
    let width = message_width();
    let hook = miette::set_hook(Box::new(move |_| {
        Box::new(
            miette::MietteHandlerOpts::new()
                .color(color)
                .unicode(true)
                .width(width)
                .build(),
        )
    }));
    // The hook is set once a process, here.
    debug_assert!(hook.is_ok());
}

/// Whether a stream takes colours.
pub(super) fn colorful(stream: &impl anstream::stream::RawStream) -> bool {
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Auto => anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
        choice => choice != anstream::ColorChoice::Never,
    }
}

/// How wide the terminal is; a pipe takes any width.
pub(super) fn width() -> usize {
    let wide = 120;
    if !std::io::stdout().is_terminal() {
        return wide;
    }
    comfy_table::Table::new().width().map_or(wide, usize::from)
}

/// Whether text is broken into lines as wide as the terminal: a pipe is read by programs, which search in whole lines.
pub(super) fn wraps() -> bool {
    std::io::stdout().is_terminal()
}

/// How wide messages on standard error are: as the terminal, and no wider than can be read.
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

/// Writes a result to standard output. Where that fails, [`unwritten`] knows.
pub(super) fn show(text: &str) {
    let mut stdout = stdout();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Notes what came of writing to standard output.
pub(super) fn written(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        // A reader that has seen enough, such as `head`, is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !UNWRITTEN.swap(true, Relaxed) {
                remark(&format!(
                    "error: cannot write to standard output: {error}\n  help: see whether the disk that it goes to is full"
                ));
            }
        }
    }
}

/// Whether a result could not be written to standard output.
pub(super) fn unwritten() -> bool {
    UNWRITTEN.load(Relaxed)
}

/// Writes a remark. Where standard error takes none, nobody is left to be told.
pub(super) fn remark(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Writes what is wrong.
pub(super) fn complain(stopped: &Stopped) {
    remark(&format!("{stopped:?}"));
}

/// How often a command says what it is doing where standard error is not a terminal.
const EVERY: Duration = Duration::from_secs(30);

/// How far something is.
#[derive(Debug, Clone, Default)]
struct Position {
    /// What is being done: `building models`.
    doing: String,
    /// What is counted: `crates`.
    unit: &'static str,
    done: usize,
    /// How many there are; absent where nobody knows.
    total: Option<usize>,
    /// What is being done of it at the moment.
    detail: String,
}

impl Position {
    /// `building models: 214 of 431 crates, 2 min 10 s`.
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

/// A time that people wait for: `40 s`, `2 min 10 s`.
pub(super) fn duration(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Progress on standard error: a bar on a terminal; elsewhere a line at the start and another one every 30 seconds. Nothing with
/// `-q`.
pub(super) struct Progress {
    bar: ProgressBar,
    position: Arc<Mutex<Position>>,
    /// Writes lines, where standard error is not a terminal; absent with `-q`.
    lines: Option<Lines>,
}

/// Writes a line again and again, until it is dropped.
struct Lines {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn new(position: Arc<Mutex<Position>>, every: Duration, write: impl Fn(&str) + Send + 'static) -> Self {
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
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was said by the thread.
            let _ = thread.join();
        }
    }
}

fn locked(position: &Mutex<Position>) -> MutexGuard<'_, Position> {
    position.lock().unwrap_or_else(PoisonError::into_inner)
}

const SPINNER: &str = "{spinner} {msg} {elapsed:.dim}";
const BAR: &str = "{spinner} [{pos}/{len}] {bar:24} {msg} {elapsed:.dim}";

impl Progress {
    /// Something of unknown length.
    pub(super) fn spinner(loudness: Loudness, message: &str) -> Self {
        Self::new(loudness, ProgressBar::new_spinner(), SPINNER, message, "", None)
    }

    /// So many things, called `unit`.
    pub(super) fn bar(loudness: Loudness, count: usize, unit: &'static str, message: &str) -> Self {
        let bar = ProgressBar::new(count as u64);
        Self::new(loudness, bar, BAR, message, unit, Some(count))
    }

    fn new(
        loudness: Loudness,
        bar: ProgressBar,
        template: &str,
        message: &str,
        unit: &'static str,
        total: Option<usize>,
    ) -> Self {
        let is_seen = std::io::stderr().is_terminal();
        if loudness.quiet || !is_seen {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let position = Arc::new(Mutex::new(Position {
            doing: message.to_owned(),
            unit,
            total,
            ..Position::default()
        }));
        let lines = (!loudness.quiet && !is_seen).then(|| {
            if !message.is_empty() {
                remark(&format!("{message} …"));
            }
            Lines::new(Arc::clone(&position), EVERY, remark)
        });
        let progress = Self { bar, position, lines };
        progress.template(template);
        progress.bar.set_message(message.to_owned());
        progress.bar.enable_steady_tick(Duration::from_millis(120));
        progress
    }

    fn template(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    /// What is being done at the moment.
    pub(super) fn say(&self, detail: &str) {
        let mut position = locked(&self.position);
        detail.clone_into(&mut position.detail);
        self.bar.set_message(match detail {
            "" => position.doing.clone(),
            detail => format!("{}: {detail}", position.doing),
        });
    }

    /// What is being done at the moment, at once where standard error is not a terminal, too.
    pub(super) fn tell(&self, detail: &str) {
        self.say(detail);
        if self.lines.is_some() {
            remark(&format!("{}: {detail} …", locked(&self.position).doing));
        }
    }

    /// So many of the things are done. Until their number is known, there is no bar.
    pub(super) fn reach(&self, done: usize, total: Option<usize>, unit: &'static str) {
        let mut position = locked(&self.position);
        if let Some(total) = total.filter(|_| position.total.is_none()) {
            self.bar.set_length(total as u64);
            self.template(BAR);
        }
        (position.done, position.total, position.unit) = (done, total, unit);
        self.bar.set_position(done as u64);
    }

    /// One thing more is done.
    pub(super) fn step(&self) {
        locked(&self.position).done += 1;
        self.bar.inc(1);
    }

    /// A line that stays: above a bar, or between lines.
    pub(super) fn row(&self, text: &str) {
        match &self.lines {
            Some(_) => remark(text),
            None => self.bar.println(text),
        }
    }
}

/// Things that take long, one after the other: told as each begins, a line each where standard error is no terminal.
pub(super) struct Turns {
    progress: Progress,
    count: usize,
    begun: usize,
}

impl Turns {
    pub(super) fn new(loudness: Loudness, count: usize) -> Self {
        let bar = ProgressBar::new(count as u64);
        let template = "{spinner} [{pos}/{len}] {msg} … {elapsed:.dim}";
        Self {
            progress: Progress::new(loudness, bar, template, "", "", Some(count)),
            count,
            begun: 0,
        }
    }

    /// The next one begins.
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
        let mut position = Position {
            doing: "building models".to_owned(),
            unit: "crates",
            ..Position::default()
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
        let position = Arc::new(Mutex::new(Position {
            doing: "waiting".to_owned(),
            ..Position::default()
        }));
        let (send, written) = mpsc::channel();
        let write = move |line: &str| send.send(line.to_owned()).unwrap();
        let lines = Lines::new(Arc::clone(&position), Duration::from_millis(1), write);
        assert!(written.recv().unwrap().starts_with("waiting, 0 s"));
        "more".clone_into(&mut locked(&position).detail);
        assert!(written.iter().any(|line| line.ends_with("; more")));
        drop(lines);
        // The writer is gone, so this ends.
        let _rest: Vec<String> = written.iter().collect();
    }
}
