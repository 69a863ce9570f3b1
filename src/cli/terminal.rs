//! Where this program writes: results to standard output, everything else to standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

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

/// Progress on standard error: none where quiet was asked for and, but for what is told in lines, where that is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    /// Whether what matters is told in lines.
    in_lines: bool,
}

impl Progress {
    /// Something of unknown length.
    pub(super) fn spinner(loudness: Loudness, message: &str) -> Self {
        Self::new(
            loudness,
            ProgressBar::new_spinner(),
            "{spinner} {msg} {elapsed:.dim}",
            message,
        )
    }

    /// So many things.
    pub(super) fn bar(loudness: Loudness, count: usize, message: &str) -> Self {
        let bar = ProgressBar::new(count as u64);
        Self::new(
            loudness,
            bar,
            "{spinner} [{pos}/{len}] {bar:24} {msg} {elapsed:.dim}",
            message,
        )
    }

    fn new(loudness: Loudness, bar: ProgressBar, template: &str, message: &str) -> Self {
        let is_seen = std::io::stderr().is_terminal();
        if loudness.quiet || !is_seen {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            bar,
            in_lines: !loudness.quiet && !is_seen,
        }
    }

    /// What is being done.
    pub(super) fn say(&self, message: &str) {
        self.bar.set_message(message.to_owned());
    }

    /// What is being done, in a line where standard error is no terminal.
    pub(super) fn tell(&self, message: &str) {
        self.say(message);
        if self.in_lines {
            remark(&format!("{message} …"));
        }
    }

    /// One thing more is done.
    pub(super) fn step(&self, message: &str) {
        self.say(message);
        self.bar.inc(1);
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
        Self {
            progress: Progress::new(loudness, bar, "{spinner} [{pos}/{len}] {msg} … {elapsed:.dim}", ""),
            count,
            begun: 0,
        }
    }

    /// The next one begins.
    pub(super) fn begin(&mut self, what: &str) {
        self.begun += 1;
        self.progress.step(what);
        if self.progress.in_lines {
            remark(&format!("[{}/{}] {what} …", self.begun, self.count));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
