//! The canvas that an explanation is written on: its width and characters, and how it formats sizes and foreign names.

use anstyle::{Ansi256Color, Style as Ansi};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::view::{TerminalStyle, View};
use crate::bytes::Bytes;
use crate::render::terminal::text::{BOLD, GREEN, RED, YELLOW};
use crate::report::words::{count, phase_name};
use crate::report::{Oom, Phase, Run};
use crate::untrusted::named;

pub(super) const PLAIN: Ansi = Ansi::new();
pub(super) const STRONG: Ansi = BOLD;
pub(super) const DIM: Ansi = Ansi::new().dimmed();
pub(super) const GOOD: Ansi = GREEN;
pub(super) const NOTICE: Ansi = YELLOW;
pub(super) const BAD: Ansi = RED;

/// The width for a pipe if something needs a width, in columns.
const PIPE: usize = 120;
/// A blank at which a line is never broken.
const TIE: char = '\u{a0}';
/// The extra indent of all lines of a sentence except its first.
const HANG: usize = 2;
/// The smallest width. On a narrower terminal, nothing is readable.
const LEAST: usize = 20;

/// The canvas that an explanation is written on.
pub(super) struct Canvas {
    /// The width in columns; absent for a pipe.
    pub(super) width: Option<usize>,
    /// Whether there are colours.
    pub(super) color: bool,
    /// Whether characters other than ASCII are allowed.
    pub(super) unicode: bool,
    exact: bool,
}

impl Canvas {
    pub(super) fn new(view: &View<'_>, style: &TerminalStyle) -> Self {
        Self {
            width: style.width.map(|width| width.max(LEAST)),
            color: style.color,
            unicode: style.unicode,
            exact: view.exact,
        }
    }

    /// Whether zero values may be left out: only on a terminal, and only if exact bytes were not requested.
    pub(super) const fn is_for_people(&self) -> bool {
        self.width.is_some() && !self.exact
    }

    /// Returns the width in columns, also for a pipe.
    pub(super) fn columns(&self) -> usize {
        self.width.unwrap_or(PIPE)
    }

    /// Colours a text.
    pub(super) fn paint(&self, style: Ansi, text: &str) -> String {
        if !self.color || style == PLAIN || text.is_empty() {
            return text.to_owned();
        }
        format!("{style}{text}{style:#}")
    }

    /// Returns a Unicode character, or its ASCII replacement.
    pub(super) const fn glyph(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// Renders the heading of a function. The path and the remark are cut at their start, because their ends are
    /// the most specific.
    pub(super) fn function(&self, function: &str, remark: &str) -> String {
        // A third stays for the remark, which has the file and the phase.
        let most = self.columns() * 2 / 3;
        let title = fit(&self.ascii(function), most, Cut::Start, self.unicode);
        let room = self.columns().saturating_sub(title.width() + 2);
        self.heading(&title, &fit(&self.ascii(remark), room, Cut::Start, self.unicode))
    }

    /// Returns the sign for a missing value.
    pub(super) const fn none(&self) -> &'static str {
        self.glyph("–", "-")
    }

    /// Returns the separator between the parts of a line.
    pub(super) const fn dot(&self) -> &'static str {
        self.glyph(" · ", " | ")
    }

    /// Formats a name from outside: cleaned and on one line.
    pub(super) fn name(&self, text: &str) -> String {
        self.ascii(&named(text))
    }

    /// Replaces characters that the terminal cannot show. The text must be clean already.
    pub(super) fn ascii(&self, text: &str) -> String {
        if self.unicode || text.is_ascii() {
            return text.to_owned();
        }
        text.chars()
            .map(|c| match c {
                '…' => '~',
                '×' => 'x',
                '–' | '—' | '−' => '-',
                '“' | '”' => '"',
                '’' | '‘' => '\'',
                '\u{a0}' => ' ',
                c if c.is_ascii() => c,
                _ => '?',
            })
            .collect()
    }

    /// Formats a size; to the byte if that was requested.
    pub(super) fn size(&self, bytes: Bytes) -> String {
        match (self.exact, self.width) {
            (false, _) => bytes.to_string(),
            (true, Some(_)) => count(bytes.0),
            // A program reads the output of a pipe: no grouping of digits.
            (true, None) => bytes.0.to_string(),
        }
    }

    /// Formats a size that may be unknown.
    pub(super) fn known(&self, bytes: Option<Bytes>) -> String {
        bytes.map_or_else(|| self.none().to_owned(), |bytes| self.size(bytes))
    }

    /// Formats a change of a size: `+12 MiB`, `-3 MiB`, `0 B`.
    pub(super) fn change(&self, change: i64) -> String {
        let size = self.size(Bytes(change.unsigned_abs()));
        match change {
            0 => size,
            1.. => format!("+{size}"),
            _ => format!("-{size}"),
        }
    }

    /// Formats a shape: `32×64×112×112`; without dimensions, `scalar`.
    pub(super) fn shape(&self, shape: &[u64]) -> String {
        if shape.is_empty() {
            return "scalar".to_owned();
        }
        let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
        extents.join(self.glyph("×", "x"))
    }

    /// Breaks a clean text between words into indented lines.
    ///
    /// All lines except the first are indented further, so that no line of a foreign text looks like a line of this
    /// tool.
    pub(super) fn wrapped(&self, indent: usize, text: &str) -> Vec<String> {
        let room = self
            .width
            // A pipe has no width, so lines stay whole: a program searches in lines.
            .map_or(usize::MAX, |width| width.saturating_sub(indent + HANG).max(1));
        let mut lines = vec![String::new()];
        for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
            // Untie only now: before the split, a tied blank must not look like a place to break.
            let word = self.ascii(&word.replace(TIE, " "));
            let word = fit(&word, room, Cut::End, self.unicode);
            let Some(line) = lines.last_mut() else { break };
            if !line.is_empty() && line.width() + 1 + word.width() > room {
                lines.push(word);
                continue;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        // A separator is not needed at the start or the end of a line.
        let dot = self.dot().trim();
        let bare = |(at, line): (usize, &String)| {
            let line = line.trim_end_matches(dot);
            let line = if at > 0 { line.trim_start_matches(dot) } else { line };
            line.trim().to_owned()
        };
        let lines = lines.iter().enumerate().map(bare).filter(|line| !line.is_empty());
        let put_in = |(at, line): (usize, String)| {
            let blanks = " ".repeat(indent + if at > 0 { HANG } else { 0 });
            format!("{blanks}{line}")
        };
        lines.enumerate().map(put_in).collect()
    }

    /// Breaks a text as [`wrapped`](Self::wrapped) does, and colours the lines.
    pub(super) fn prose(&self, indent: usize, style: Ansi, text: &str) -> String {
        let lines = self.wrapped(indent, text);
        lines.iter().map(|line| self.paint(style, line) + "\n").collect()
    }

    /// Renders the heading of a section, with a remark on the same line if there is room.
    pub(super) fn heading(&self, title: &str, remark: &str) -> String {
        let title = fit(&self.ascii(title), self.columns(), Cut::End, self.unicode);
        let remark = self.ascii(remark);
        if title.width() + 2 + remark.width() > self.columns() {
            return format!("\n{}\n{}", self.paint(STRONG, &title), self.prose(2, DIM, &remark));
        }
        let gap = if remark.is_empty() { "" } else { "  " };
        format!("\n{}{gap}{}\n", self.paint(STRONG, &title), self.paint(DIM, &remark))
    }
}

/// Ties words so that they stay on one line.
pub(super) fn tied(text: &str) -> String {
    text.replace(' ', &TIE.to_string())
}

/// The place at which a text that is too long is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Cut at the end: the start is kept.
    End,
    /// Cut at the start: the end is kept.
    Start,
    /// Cut in the middle: both ends are kept.
    Middle,
}

/// Cuts a text to at most `room` columns, with an ellipsis at the cut.
pub(super) fn fit(text: &str, room: usize, cut: Cut, unicode: bool) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(1) else {
        return String::new();
    };
    let ellipsis = if unicode { '…' } else { '~' };
    let (front, back) = match cut {
        Cut::End => (room, 0),
        Cut::Start => (0, room),
        // An odd column goes to the end, which is the most specific part of a path.
        Cut::Middle => (room / 2, room - room / 2),
    };
    let mut shown = taken(text.chars(), front);
    let end = taken(text.chars().rev(), back);
    shown.push(ellipsis);
    shown.extend(end.chars().rev());
    // Combining marks near the cut may join other characters and change the width.
    if shown.width() > room + 1 {
        String::from(ellipsis)
    } else {
        shown
    }
}

fn taken(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect()
}

/// Formats a step and a phase: `step 1, backward`.
pub(super) fn place(step: Option<u32>, phase: Phase) -> String {
    match step {
        Some(step) => format!("step {step}, {}", phase_name(phase)),
        None => format!("{}, before the first step", phase_name(phase)),
    }
}

/// Describes where a run ran out of memory, and the failed allocation.
pub(super) fn refusal(run: &Run, oom: &Oom) -> Vec<String> {
    let place = match (oom.step, oom.phase) {
        (step, Some(phase)) => format!(" in {}", place(step, phase)),
        (Some(step), None) => format!(" in step {step}"),
        (None, None) => String::new(),
    };
    let pass = crate::report::words::pass_name(oom.pass);
    let mut lines = vec![format!("out of memory{place} ({pass} pass)")];
    lines.extend(crate::render::refused::refusal(run, oom));
    lines
}

/// Returns a colour of the palette of 256, which nearly all terminals have.
pub(super) const fn shade(number: u8) -> Ansi {
    Ansi::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(number))))
}
