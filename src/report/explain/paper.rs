//! What everything is written on: how wide it is, which characters it takes, and how figures and foreign names look on
//! it.

use anstyle::{Ansi256Color, Style as Ansi};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Style, View};
use crate::bytes::Bytes;
use crate::report::human::text::{BOLD, GREEN, RED, YELLOW, named};
use crate::report::words::{count, phase_name};
use crate::report::{Oom, Phase, Run};

pub(super) const PLAIN: Ansi = Ansi::new();
pub(super) const STRONG: Ansi = BOLD;
pub(super) const DIM: Ansi = Ansi::new().dimmed();
pub(super) const GOOD: Ansi = GREEN;
pub(super) const NOTICE: Ansi = YELLOW;
pub(super) const BAD: Ansi = RED;

/// Columns that a pipe takes, where something must be fitted to a width.
const PIPE: usize = 120;
/// A blank at which no line is broken.
const TIE: char = '\u{a0}';
/// How far the second line of a sentence is put in.
const HANG: usize = 2;
/// Less than this is a terminal that nothing can be read on.
const LEAST: usize = 20;

/// What everything is written on.
pub(super) struct Paper {
    /// Columns; none in a pipe.
    pub(super) width: Option<usize>,
    /// Whether there are colours.
    pub(super) color: bool,
    /// Whether it takes more than ASCII.
    pub(super) unicode: bool,
    exact: bool,
}

impl Paper {
    pub(super) fn new(view: &View<'_>, style: &Style) -> Self {
        Self {
            width: style.width.map(|width| width.max(LEAST)),
            color: style.color,
            unicode: style.unicode,
            exact: view.exact,
        }
    }

    /// Whether what is of no interest may be left out: neither a program reads it, nor was every byte asked for.
    pub(super) const fn is_for_people(&self) -> bool {
        self.width.is_some() && !self.exact
    }

    /// Columns, also where the paper itself has no end.
    pub(super) fn columns(&self) -> usize {
        self.width.unwrap_or(PIPE)
    }

    /// A text of ours in a colour.
    pub(super) fn paint(&self, style: Ansi, text: &str) -> String {
        if !self.color || style == PLAIN || text.is_empty() {
            return text.to_owned();
        }
        format!("{style}{text}{style:#}")
    }

    /// A character, or what stands for it where there is only ASCII.
    pub(super) const fn glyph(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// The heading of what a function did. Of its path, its file and the moment, what comes last tells the most.
    pub(super) fn function(&self, function: &str, remark: &str) -> String {
        let most = self.columns() * 2 / 3;
        let title = fit(&self.ascii(function), most, Cut::Start, self.unicode);
        let room = self.columns().saturating_sub(title.width() + 2);
        self.heading(&title, &fit(&self.ascii(remark), room, Cut::Start, self.unicode))
    }

    /// What stands where there is no figure.
    pub(super) const fn none(&self) -> &'static str {
        self.glyph("–", "-")
    }

    /// What stands between the parts of a line.
    pub(super) const fn dot(&self) -> &'static str {
        self.glyph(" · ", " | ")
    }

    /// A name that is not ours, on one line and harmless.
    pub(super) fn name(&self, text: &str) -> String {
        self.ascii(&named(text))
    }

    /// A text that is harmless already, in the characters there are.
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

    /// A size, to the byte where that was asked for.
    pub(super) fn size(&self, bytes: Bytes) -> String {
        match (self.exact, self.width) {
            (false, _) => bytes.to_string(),
            (true, Some(_)) => count(bytes.0),
            // A program reads bytes in one piece.
            (true, None) => bytes.0.to_string(),
        }
    }

    /// A size that may be unknown.
    pub(super) fn known(&self, bytes: Option<Bytes>) -> String {
        bytes.map_or_else(|| self.none().to_owned(), |bytes| self.size(bytes))
    }

    /// A change of a size: `+12 MiB`, `-3 MiB`, `0 B`.
    pub(super) fn change(&self, change: i64) -> String {
        let size = self.size(Bytes(change.unsigned_abs()));
        match change {
            0 => size,
            1.. => format!("+{size}"),
            _ => format!("-{size}"),
        }
    }

    /// `32×64×112×112`; a scalar has no extent.
    pub(super) fn shape(&self, shape: &[u64]) -> String {
        if shape.is_empty() {
            return "scalar".to_owned();
        }
        let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
        extents.join(self.glyph("×", "x"))
    }

    /// Words of ours, or made harmless, broken into lines between them, each begun with blanks: all but the first with
    /// some more, so that none of them looks like one of ours.
    pub(super) fn wrapped(&self, indent: usize, text: &str) -> Vec<String> {
        let room = self
            .width
            .map_or(usize::MAX, |width| width.saturating_sub(indent + HANG).max(1));
        let mut lines = vec![String::new()];
        for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
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
        // What stands between two parts is not needed where a line ends between them.
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

    /// The same, in a colour and ready to be written.
    pub(super) fn prose(&self, indent: usize, style: Ansi, text: &str) -> String {
        let lines = self.wrapped(indent, text);
        lines.iter().map(|line| self.paint(style, line) + "\n").collect()
    }

    /// The heading of a section, and what it is of.
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

/// Words that stay on one line.
pub(super) fn tied(text: &str) -> String {
    text.replace(' ', &TIE.to_string())
}

/// Where a text that is too long is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// What comes first is kept.
    End,
    /// What comes last is kept.
    Start,
    /// Both ends are kept.
    Middle,
}

/// A text in at most so many columns, with an ellipsis where something was left out.
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
        Cut::Middle => (room / 2, room - room / 2),
    };
    let mut shown = taken(text.chars(), front);
    let end = taken(text.chars().rev(), back);
    shown.push(ellipsis);
    shown.extend(end.chars().rev());
    // Marks on top of the characters around the cut join what they were not made for.
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

/// A moment in words: `step 1, backward`.
pub(super) fn place(step: Option<u32>, phase: Phase) -> String {
    match step {
        Some(step) => format!("step {step}, {}", phase_name(phase)),
        None => format!("{}, before the first step", phase_name(phase)),
    }
}

/// What an out of memory was, and where.
pub(super) fn refusal(run: &Run, oom: &Oom) -> Vec<String> {
    let place = match (oom.step, oom.phase) {
        (step, Some(phase)) => format!(" in {}", place(step, phase)),
        (Some(step), None) => format!(" in step {step}"),
        (None, None) => String::new(),
    };
    let pass = crate::report::words::pass_name(oom.pass);
    let mut lines = vec![format!("out of memory{place} ({pass} pass)")];
    lines.extend(crate::report::human::problems::refusal(run, oom));
    lines
}

/// A colour of the 256 that nearly all terminals have.
pub(super) const fn shade(number: u8) -> Ansi {
    Ansi::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(number))))
}
