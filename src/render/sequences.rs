//! The tables of runs whose steps are not all alike: the parts of each epoch, and the orders of varying sizes. The
//! terminal and Markdown show the same rows.

use crate::bytes::Bytes;
use crate::report::words::{count, counted};
use crate::report::{EpochMemory, EpochPhase, OrderMemory, Run, VaryingSizes};

/// The most epochs, rows and inputs of a run that a table has; the JSON report has all.
const EPOCHS: usize = 6;
const ROWS: usize = 30;
const INPUTS: usize = 8;

/// A table of one run. The first column is text, and all others are numbers.
pub(super) struct RunTable<'a> {
    pub(super) run: &'a Run,
    /// What the table is about, beside the run's name; empty if the columns say it.
    pub(super) about: String,
    /// The titles of the columns after the first.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Returns the tables of all runs that have one, in the order of the runs.
pub(super) fn tables<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<RunTable<'a>> {
    runs.into_iter()
        .flat_map(|run| [epochs(run), varying(run)])
        .flatten()
        .collect()
}

fn shown(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string())
}

/// Makes the table of a training of several epochs, with one row per part of an epoch.
fn epochs(run: &Run) -> Option<RunTable<'_>> {
    let last = run.epochs.iter().map(|part| part.epoch).max()?;
    // The first epochs show what settles, and the last ones what still grows.
    let is_shown = |part: &EpochMemory| {
        let half = EPOCHS as u32 / 2;
        part.epoch <= half || part.epoch > last.saturating_sub(half)
    };
    let shown = run.epochs.iter().enumerate().filter(|(_, part)| is_shown(part));
    // Between two parts, usually nothing happens.
    let news = shown.filter(|(at, part)| {
        let before = at.checked_sub(1).map(|before| &run.epochs[before]);
        part.part != EpochPhase::Between
            || before.is_none_or(|before| part.reserved_peak > before.reserved_end || part.live_peak > before.live_peak)
    });
    Some(RunTable {
        run,
        about: String::new(),
        columns: vec![
            "steps",
            "live peak",
            "tensors at end",
            "reserved peak",
            "reserved at end",
            "streams",
        ],
        rows: news.take(ROWS).map(|(_, part)| part_row(part)).collect(),
    })
}

fn part_row(part: &EpochMemory) -> Vec<String> {
    let is_part = part.part != EpochPhase::Between;
    let of_part = |text: String| if is_part { text } else { String::new() };
    let new = match part.new_streams {
        0 => String::new(),
        new => format!(" ({new} new: {})", part.new_streams_reserved),
    };
    vec![
        format!("epoch {}, {}", part.epoch, part.part.name()),
        of_part(count(part.steps.into())),
        part.live_peak.to_string(),
        of_part(if part.is_end_seen {
            part.in_use_end.to_string()
        } else {
            "–".to_owned()
        }),
        part.reserved_peak.to_string(),
        part.reserved_end.to_string(),
        of_part(format!("{}{new}", part.streams)),
    ]
}

/// Makes the table of a model whose sizes vary, with one row per order of the sizes, and one for fragmentation.
fn varying(run: &Run) -> Option<RunTable<'_>> {
    let varying = run.varying.as_ref()?;
    let highest = varying.highest().map(|memory| memory.order);
    let orders = varying.orders.iter().take(ROWS);
    let mut rows: Vec<_> = orders
        .map(|memory| order_row(memory, varying.orders.len() > 1 && highest == Some(memory.order)))
        .collect();
    if let Some(fragmentation) = varying.fragmentation {
        let mut row = vec![String::new(); 6];
        row[0] = "fragmentation".to_owned();
        row[3] = format!("+{fragmentation}");
        rows.push(row);
    }
    Some(RunTable {
        run,
        about: inputs(varying),
        columns: vec!["steps", "live", "reserved", "last growth", "cold reserved"],
        rows,
    })
}

fn order_row(memory: &OrderMemory, is_highest: bool) -> Vec<String> {
    let mark = if is_highest { " (highest)" } else { "" };
    let last = match memory.last_growth {
        _ if !memory.is_complete => "not complete".to_owned(),
        None => "–".to_owned(),
        Some(after) if memory.still_grows() => format!("step {after}, in the last round"),
        Some(after) => format!("step {after}"),
    };
    vec![
        format!("{}{mark}", memory.order.name()),
        count(memory.steps.into()),
        shown(memory.peaks.warm.live),
        shown(memory.peaks.warm.reserved),
        last,
        shown(memory.peaks.cold.reserved),
    ]
}

/// Lists the ranges: `seq_len 16 to 512 (8 of 497 sizes)`.
fn inputs(varying: &VaryingSizes) -> String {
    let range = |(name, range): (&crate::untrusted::PlainName, &crate::protocol::SizeRange)| {
        let sizes = match range.tried == range.declared {
            true => counted(range.declared, "size"),
            false => format!("{} of {}", range.tried, counted(range.declared, "size")),
        };
        format!("{name} {} to {} ({sizes})", range.smallest, range.largest)
    };
    varying
        .inputs
        .iter()
        .take(INPUTS)
        .map(range)
        .collect::<Vec<_>>()
        .join(", ")
}
