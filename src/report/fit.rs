//! What fits, as people read it: a table with a bar for each value or card, and a last line that says it.

mod chart;

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, Table};

use super::change::change;
use super::human::cells::{bar, shown, tinted};
use super::human::table::lines;
use super::human::text::{BOLD, RED, named, words};
use crate::bytes::Bytes;
use crate::fit::{Attempt, CardFit, Ended, Fit, Probe, shortest};
use crate::protocol::WhatIf;
pub use chart::svg;

/// Draws an answer, with colours as escape sequences.
#[must_use]
pub fn human(fit: &Fit, quiet: bool) -> String {
    let mut text = String::new();
    if !quiet {
        let _ = writeln!(text, "{}\n", headline(fit));
        let table = match fit.cards.as_slice() {
            cards if fit.advised => table_of_changes(cards),
            [card] if fit.vary.is_some() => values(fit, card),
            _ if fit.vary.is_some() => matrix(fit),
            cards => table_of_cards(cards),
        };
        for line in lines(&table) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    text.push_str(&remarks(fit));
    let _ = writeln!(text, "{BOLD}{}{BOLD:#}", verdict(fit));
    text
}

fn headline(fit: &Fit) -> String {
    let name = named(&format!("{}/{}", fit.package, fit.model));
    let inputs: Vec<_> = fit
        .inputs
        .iter()
        .map(|(input, value)| format!("{}={value}", named(input)))
        .collect();
    let with = match inputs.as_slice() {
        [] => String::new(),
        inputs => format!(" with {}", inputs.join(" ")),
    };
    let free = match fit.headroom.as_str() {
        "0%" => String::new(),
        headroom => format!(", {headroom} kept free"),
    };
    let name = match fit.cards.as_slice() {
        [card] => card.what_if.of(&name),
        _ => name,
    };
    let on = match fit.cards.as_slice() {
        [card] => format!(" on a virtual {} ({})", named(&card.gpu.name), card.gpu.total_bytes),
        cards => {
            let ids: BTreeSet<_> = cards.iter().map(|card| &card.gpu.id).collect();
            let plural = if ids.len() == 1 { "" } else { "s" };
            format!(" on {} virtual card{plural}", ids.len())
        }
    };
    let passes = if fit.warm_only { "warm" } else { "cold and warm" };
    format!("{name}{with}{on}{free}; what a process holds, {passes}; no GPU was used")
}

/// A card, and what is otherwise on it.
fn place(card: &CardFit) -> String {
    card.what_if.of(&named(&card.gpu.id))
}

fn new_table<const N: usize>(header: [&str; N], left: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.enforce_styling();
    table.set_header(header);
    for at in (0..N).filter(|at| !left.contains(at)) {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The values that were tried on one card.
fn values(fit: &Fit, card: &CardFit) -> Table {
    let input = fit.vary.as_deref().unwrap_or_default();
    let of = format!("of {}", card.room);
    let mut table = new_table([&named(input), "warm", "cold", "needed", &of, ""], &[4, 5]);
    for probe in &card.probes {
        table.add_row([
            Cell::new(probe.value.map(|value| value.to_string()).unwrap_or_default()),
            shown(probe.peaks.warm.process),
            shown(probe.peaks.cold.process),
            shown(probe.needed),
            Cell::new(probe.needed.map(|needed| bar(needed, card.room)).unwrap_or_default()),
            state(probe),
        ]);
    }
    table
}

/// The model as it is, and each change that was tried.
fn table_of_changes(cards: &[CardFit]) -> Table {
    let mut table = new_table(["change", "needed", "", "left", ""], &[0, 2, 4]);
    for card in cards {
        for probe in &card.probes {
            let what = match card.what_if.is_none() {
                true => "as it is".to_owned(),
                false => card.what_if.to_string(),
            };
            table.add_row([
                Cell::new(what),
                shown(probe.needed),
                Cell::new(probe.needed.map(|needed| bar(needed, card.room)).unwrap_or_default()),
                Cell::new(probe.left.map(change).unwrap_or_default()),
                state(probe),
            ]);
        }
    }
    table
}

/// Every card with the same inputs.
fn table_of_cards(cards: &[CardFit]) -> Table {
    let mut table = new_table(["card", "memory", "needed", "", "left", ""], &[0, 3, 5]);
    for card in cards {
        for probe in &card.probes {
            table.add_row([
                Cell::new(place(card)),
                Cell::new(card.gpu.total_bytes.to_string()),
                shown(probe.needed),
                Cell::new(probe.needed.map(|needed| bar(needed, card.room)).unwrap_or_default()),
                Cell::new(probe.left.map(change).unwrap_or_default()),
                state(probe),
            ]);
        }
    }
    table
}

/// The largest value of every card.
fn matrix(fit: &Fit) -> Table {
    let input = fit.vary.as_deref().unwrap_or_default();
    let largest = format!("largest {}", named(input));
    let mut table = new_table(["card", "memory", &largest, "needed", "", "tried"], &[0, 4]);
    for card in &fit.cards {
        let found = card
            .probes
            .iter()
            .find(|probe| probe.fits && probe.value == card.largest);
        let needed = found.and_then(|probe| probe.needed);
        table.add_row([
            Cell::new(place(card)),
            Cell::new(card.gpu.total_bytes.to_string()),
            match card.largest {
                Some(value) => Cell::new(value.to_string()),
                None => tinted("none".to_owned(), Some(Color::Red)),
            },
            shown(needed),
            Cell::new(needed.map(|needed| bar(needed, card.room)).unwrap_or_default()),
            Cell::new(card.probes.len().to_string()),
        ]);
    }
    table
}

fn state(probe: &Probe) -> Cell {
    let color = if probe.fits { Color::Green } else { Color::Red };
    tinted(outcome(probe), Some(color))
}

fn outcome(probe: &Probe) -> String {
    if let Some(error) = &probe.error {
        return format!("cannot be run: {}", words(error.lines().next().unwrap_or_default()));
    }
    if probe.fits {
        return "fits".to_owned();
    }
    if probe.out_of_memory && probe.left.is_none() {
        return "out of memory: a tensor is more than Burn takes of the card at once".to_owned();
    }
    let missing = probe.left.map(|left| Bytes(left.unsigned_abs()));
    let least = if probe.at_least { "at least " } else { "" };
    let missing = missing.map_or_else(String::new, |missing| format!(", {least}{missing} too much"));
    let why = if probe.out_of_memory {
        "out of memory"
    } else {
        "no headroom left"
    };
    format!("{why}{missing}")
}

/// What a reader of the last line must know beside it.
fn remarks(fit: &Fit) -> String {
    let mut text = String::new();
    for card in &fit.cards {
        if !card.not_monotonic.is_empty() {
            let values: Vec<_> = card.not_monotonic.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "{RED}not monotonic{RED:#} on {}: {} fits, though a smaller value does not; values between were not all tried",
                named(&card.gpu.id),
                values.join(", ")
            );
        }
    }
    text
}

/// What it comes to, in a sentence.
fn verdict(fit: &Fit) -> String {
    if fit.advised {
        return advice(fit);
    }
    let mut groups: Vec<(&WhatIf, Vec<&CardFit>)> = Vec::new();
    for card in &fit.cards {
        match groups.iter_mut().find(|(what_if, _)| **what_if == card.what_if) {
            Some((_, cards)) => cards.push(card),
            None => groups.push((&card.what_if, vec![card])),
        }
    }
    let told = groups.iter().map(|(what_if, cards)| match groups.len() {
        1 => of(fit, cards),
        _ => format!("{what_if}: {}", of(fit, cards)),
    });
    told.collect::<Vec<_>>().join("\n")
}

/// What people know from other frameworks, and `--advise` cannot try.
const NOT_IN_BURN: &str =
    "not tried, since Burn has neither: checkpointing by segments, and parameters that stay in host memory";

/// The shortest list of changes with which it fits, or by how much it does not.
fn advice(fit: &Fit) -> String {
    let attempts: Vec<_> = fit.cards.iter().filter_map(Attempt::of).collect();
    match shortest(&attempts) {
        Some(shortest) if shortest.what_if.is_none() => "fits as it is".to_owned(),
        Some(shortest) => format!("fits with {}\n{NOT_IN_BURN}", shortest.what_if),
        None => format!("{}\n{NOT_IN_BURN}", missing(fit, &attempts)),
    }
}

/// By how much it does not fit.
fn missing(fit: &Fit, attempts: &[Attempt]) -> String {
    let nearest = attempts.iter().filter(|attempt| attempt.needed.is_some());
    let nearest = nearest.min_by_key(|attempt| attempt.needed);
    let room = fit.cards.first().map(|card| card.room).unwrap_or_default();
    match nearest.and_then(|nearest| Some((nearest, nearest.needed?.saturating_sub(room)))) {
        Some((nearest, missing)) if nearest.what_if.is_none() => {
            format!("does not fit: {missing} are missing, and nothing that was tried needs less")
        }
        Some((nearest, missing)) => format!(
            "nothing that was tried makes it fit: with {} still {missing} are missing",
            nearest.what_if
        ),
        None => {
            "does not fit, and nobody knows by how much: a single tensor is more than Burn takes of the card".to_owned()
        }
    }
}

/// What it comes to on some cards.
fn of(fit: &Fit, cards: &[&CardFit]) -> String {
    let Some(input) = &fit.vary else {
        let fitting: Vec<_> = cards
            .iter()
            .filter(|card| card.probes.iter().any(|probe| probe.fits))
            .collect();
        return match fitting.first() {
            Some(first) => format!(
                "fits on {} of {} cards; the smallest is {} ({})",
                fitting.len(),
                cards.len(),
                named(&first.gpu.id),
                first.gpu.total_bytes
            ),
            None => format!("fits on none of {} cards", cards.len()),
        };
    };
    let input = named(input);
    match cards {
        [card] => one(card, &input),
        cards => {
            let found = cards.iter().filter(|card| card.largest.is_some()).count();
            format!("{found} of {} cards take some {input}", cards.len())
        }
    }
}

/// What it comes to on one card.
fn one(card: &CardFit, input: &str) -> String {
    match (card.ended, card.largest, card.too_large) {
        (Ended::EndOfRange, Some(largest), _) => {
            format!("{input} {largest} fits, and is the largest of the range")
        }
        (_, Some(largest), Some(too_large)) if card.ended == Ended::Found => {
            format!("{input} {largest} fits, {too_large} does not")
        }
        (_, Some(largest), Some(too_large)) => {
            format!("{input} {largest} fits, {too_large} does not; those between cannot be run")
        }
        (_, Some(largest), None) => format!("{input} {largest} fits; larger ones cannot be run"),
        (_, None, Some(too_large)) => format!("not even {input} {too_large} fits"),
        (_, None, None) => format!("{input} cannot be run with any value that was tried"),
    }
}
