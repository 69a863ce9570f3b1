//! The answer of `cargo vram fit` on a terminal: a table with a bar per value or GPU, and a last line with the result.

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{Cell, Color, Table};

use crate::bytes::Bytes;
use crate::fit::{Attempt, FitAnswer, GpuFit, Probe, SearchEnd, shortest};
use crate::protocol::WhatIf;
use crate::render::terminal::report::cells::{bar, shown, tinted};
use crate::render::terminal::report::table::{lines, new_table};
use crate::render::terminal::text::{BOLD, RED};
use crate::report::change::change;
use crate::untrusted::{named, words};

/// Renders an answer, with colours as escape sequences. With `quiet`, without the table.
#[must_use]
pub fn render(fit: &FitAnswer, quiet: bool) -> String {
    let mut text = String::new();
    if !quiet {
        let _ = writeln!(text, "{}\n", headline(fit));
        let table = match fit.gpus.as_slice() {
            gpus if fit.advised => table_of_changes(gpus),
            [gpu] if fit.vary.is_some() => values(fit, gpu),
            _ if fit.vary.is_some() => matrix(fit),
            gpus => table_of_gpus(gpus),
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

fn headline(fit: &FitAnswer) -> String {
    let name = format!("{}/{}", fit.package, fit.model);
    let inputs: Vec<_> = fit
        .inputs
        .iter()
        .map(|(input, value)| format!("{}={value}", named(input)))
        .collect();
    let with = match inputs.as_slice() {
        [] => String::new(),
        inputs => format!(" with {}", inputs.join(" ")),
    };
    let free = match fit.headroom.raw() {
        "0%" => String::new(),
        headroom => format!(", {headroom} headroom"),
    };
    let name = match fit.gpus.as_slice() {
        [gpu] => gpu.what_if.of(&name),
        _ => name,
    };
    let on = match fit.gpus.as_slice() {
        [gpu] => format!(" on a virtual {} ({})", gpu.gpu.name, gpu.gpu.total_bytes),
        gpus => {
            let ids: BTreeSet<_> = gpus.iter().map(|gpu| &gpu.gpu.id).collect();
            let plural = if ids.len() == 1 { "" } else { "s" };
            format!(" on {} virtual GPU{plural}", ids.len())
        }
    };
    // The reader must know which pass is meant: a cold pass may need more than all later ones.
    let needed = if fit.warm_only {
        "process memory of the warm pass"
    } else {
        "the higher process memory of the cold and the warm pass"
    };
    format!("{name}{with}{on}{free}; `needed` is {needed}; no GPU was used")
}

/// Returns the id of a GPU, with the what-if.
fn place(gpu: &GpuFit) -> String {
    gpu.what_if.of(&gpu.gpu.id.to_string())
}

/// Makes the table of the values that were tried on one GPU.
fn values(fit: &FitAnswer, gpu: &GpuFit) -> Table {
    let input = fit.vary.as_deref().unwrap_or_default();
    let of = format!("of {}", gpu.room);
    let mut table = new_table([&named(input), "warm", "cold", "needed", &of, ""], 0..4);
    for probe in &gpu.probes {
        table.add_row([
            Cell::new(probe.value.map(|value| value.to_string()).unwrap_or_default()),
            shown(probe.peaks.warm.process),
            shown(probe.peaks.cold.process),
            shown(probe.needed),
            Cell::new(probe.needed.map(|needed| bar(needed, gpu.room)).unwrap_or_default()),
            state(probe),
        ]);
    }
    table
}

/// Makes the table of the unchanged model and each change that was tried.
fn table_of_changes(gpus: &[GpuFit]) -> Table {
    let mut table = new_table(["change", "needed", "", "left", ""], [1, 3]);
    for gpu in gpus {
        for probe in &gpu.probes {
            let what = match gpu.what_if.is_none() {
                true => "none".to_owned(),
                false => gpu.what_if.to_string(),
            };
            table.add_row([
                Cell::new(what),
                shown(probe.needed),
                Cell::new(probe.needed.map(|needed| bar(needed, gpu.room)).unwrap_or_default()),
                Cell::new(probe.left.map(change).unwrap_or_default()),
                state(probe),
            ]);
        }
    }
    table
}

/// Makes the table of all GPUs with the same inputs.
fn table_of_gpus(gpus: &[GpuFit]) -> Table {
    let mut table = new_table(["GPU", "memory", "needed", "", "left", ""], [1, 2, 4]);
    for gpu in gpus {
        for probe in &gpu.probes {
            table.add_row([
                Cell::new(place(gpu)),
                Cell::new(gpu.gpu.total_bytes.to_string()),
                shown(probe.needed),
                Cell::new(probe.needed.map(|needed| bar(needed, gpu.room)).unwrap_or_default()),
                Cell::new(probe.left.map(change).unwrap_or_default()),
                state(probe),
            ]);
        }
    }
    table
}

/// Makes the table of the largest value for each GPU.
fn matrix(fit: &FitAnswer) -> Table {
    let input = fit.vary.as_deref().unwrap_or_default();
    let largest = format!("largest {}", named(input));
    let mut table = new_table(["GPU", "memory", &largest, "needed", "", "tried"], [1, 2, 3, 5]);
    for gpu in &fit.gpus {
        let found = gpu.probes.iter().find(|probe| probe.fits && probe.value == gpu.largest);
        let needed = found.and_then(|probe| probe.needed);
        table.add_row([
            Cell::new(place(gpu)),
            Cell::new(gpu.gpu.total_bytes.to_string()),
            match gpu.largest {
                Some(value) => Cell::new(value.to_string()),
                None => tinted("none".to_owned(), Some(Color::Red)),
            },
            shown(needed),
            Cell::new(needed.map(|needed| bar(needed, gpu.room)).unwrap_or_default()),
            Cell::new(gpu.probes.len().to_string()),
        ]);
    }
    table
}

fn state(probe: &Probe) -> Cell {
    let color = if probe.fits { Color::Green } else { Color::Red };
    tinted(outcome(probe), Some(color))
}

pub(in crate::render) fn outcome(probe: &Probe) -> String {
    if let Some(error) = &probe.error {
        return format!(
            "failed to run: {}",
            words(error.raw().lines().next().unwrap_or_default())
        );
    }
    if probe.fits {
        return "fits".to_owned();
    }
    // Burn refuses such a tensor without asking the driver, so no amount of free memory would help.
    if probe.out_of_memory && probe.left.is_none() {
        return "out of memory: a tensor is too large for Burn on this GPU".to_owned();
    }
    let missing = probe.left.map(|left| Bytes(left.unsigned_abs()));
    // The run ended at its first refusal. What it would have needed later is unknown.
    let least = if probe.at_least { "at least " } else { "" };
    let missing = missing.map_or_else(String::new, |missing| format!(", {least}{missing} missing"));
    let why = if probe.out_of_memory {
        "out of memory"
    } else {
        "too little headroom"
    };
    format!("{why}{missing}")
}

/// Returns the warnings that a reader of the last line must know.
fn remarks(fit: &FitAnswer) -> String {
    let mut text = String::new();
    for gpu in &fit.gpus {
        // Reserved memory grows in leaps and sometimes falls, so "the largest" is not the whole answer then.
        // See docs/design/fit.md.
        if !gpu.not_monotonic.is_empty() {
            let values: Vec<_> = gpu.not_monotonic.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "{RED}not monotonic{RED:#} on {}: {} fits although a smaller value does not; other values were not all \
                 tried",
                gpu.gpu.id,
                values.join(", ")
            );
        }
    }
    text
}

/// Returns the result: one sentence, or one per what-if.
pub(in crate::render) fn verdict(fit: &FitAnswer) -> String {
    if fit.advised {
        return advice(fit);
    }
    // A vector and not a map, so that what-ifs stay in the order of the answer.
    let mut groups: Vec<(&WhatIf, Vec<&GpuFit>)> = Vec::new();
    for gpu in &fit.gpus {
        match groups.iter_mut().find(|(what_if, _)| **what_if == gpu.what_if) {
            Some((_, gpus)) => gpus.push(gpu),
            None => groups.push((&gpu.what_if, vec![gpu])),
        }
    }
    let told = groups.iter().map(|(what_if, gpus)| match groups.len() {
        1 => of(fit, gpus),
        _ => format!("{what_if}: {}", of(fit, gpus)),
    });
    told.collect::<Vec<_>>().join("\n")
}

/// The techniques of other frameworks that `--advise` cannot try.
const NOT_IN_BURN: &str =
    "not tried, because Burn supports neither: checkpointing by segments, and parameters that stay in host memory";

/// Returns the shortest list of changes with which the model fits, or how much memory is missing.
fn advice(fit: &FitAnswer) -> String {
    let attempts: Vec<_> = fit.gpus.iter().filter_map(Attempt::from_fit).collect();
    match shortest(&attempts) {
        // Without a change, there is no need to say what Burn lacks.
        Some(shortest) if shortest.what_if.is_none() => "fits without changes".to_owned(),
        Some(shortest) => format!("fits with {}\n{NOT_IN_BURN}", shortest.what_if),
        None => format!("{}\n{NOT_IN_BURN}", missing(fit, &attempts)),
    }
}

/// Returns how much memory is missing, with the change that needs the least.
fn missing(fit: &FitAnswer, attempts: &[Attempt]) -> String {
    // An attempt without a need has a tensor that is too large, or did not run: it is not near anything.
    let nearest = attempts.iter().filter(|attempt| attempt.needed.is_some());
    let nearest = nearest.min_by_key(|attempt| attempt.needed);
    let room = fit.gpus.first().map(|gpu| gpu.room).unwrap_or_default();
    match nearest.and_then(|nearest| Some((nearest, nearest.needed?.saturating_sub(room)))) {
        Some((nearest, missing)) if nearest.what_if.is_none() => {
            format!("does not fit: {missing} are missing, and no change that was tried needs less memory")
        }
        Some((nearest, missing)) => format!(
            "does not fit with any change that was tried: with {}, {missing} are still missing",
            nearest.what_if
        ),
        None => {
            "does not fit: one tensor is too large for Burn on this GPU, so the missing memory is unknown".to_owned()
        }
    }
}

/// Returns the result for the GPUs of one what-if.
fn of(fit: &FitAnswer, gpus: &[&GpuFit]) -> String {
    let Some(input) = &fit.vary else {
        let fitting: Vec<_> = gpus
            .iter()
            .filter(|gpu| gpu.probes.iter().any(|probe| probe.fits))
            .collect();
        return match fitting.first() {
            // GPUs are sorted by memory (`src/cli/fit.rs`), so the first that fits is the smallest.
            Some(first) => format!(
                "fits on {} of {} GPUs; the smallest is {} ({})",
                fitting.len(),
                gpus.len(),
                first.gpu.id,
                first.gpu.total_bytes
            ),
            None => format!("fits on none of {} GPUs", gpus.len()),
        };
    };
    let input = named(input);
    match gpus {
        [gpu] => one(gpu, &input),
        gpus => {
            let found = gpus.iter().filter(|gpu| gpu.largest.is_some()).count();
            format!("some {input} fits on {found} of {} GPUs", gpus.len())
        }
    }
}

/// Returns the result for one GPU.
pub(in crate::render) fn one(gpu: &GpuFit, input: &str) -> String {
    match (gpu.ended, gpu.largest, gpu.too_large) {
        (SearchEnd::EndOfRange, Some(largest), _) => {
            format!("{input} {largest} fits; it is the largest value of the range")
        }
        (_, Some(largest), Some(too_large)) if gpu.ended == SearchEnd::Found => {
            format!("{input} {largest} fits, {too_large} does not")
        }
        (_, Some(largest), Some(too_large)) => {
            format!("{input} {largest} fits, {too_large} does not; the values between fail to run")
        }
        (_, Some(largest), None) => format!("{input} {largest} fits; larger values fail to run"),
        (_, None, Some(too_large)) => format!("not even {input} {too_large} fits"),
        (_, None, None) => format!("every {input} that was tried fails to run"),
    }
}
