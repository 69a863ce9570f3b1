//! Memory phase by phase, similar to the log of a training loop.

use anstyle::Style as Ansi;

use super::grid::{Cell, Column, Grid};
use super::paper::{BAD, Canvas, DIM, PLAIN, refusal, tied};
use crate::bytes::Bytes;
use crate::explain::{Explanation, PhaseRow};
use crate::report::Pass;
use crate::report::words::phase_name;

/// Renders every phase of every step, cold and warm.
pub(super) fn phases(explanation: &Explanation, paper: &Canvas) -> String {
    if explanation.phases.is_empty() {
        return paper.heading("Phases", "") + &paper.prose(2, PLAIN, "no phase was observed");
    }
    let mut text = String::new();
    for pass in passes(explanation) {
        let rows = of(explanation, pass);
        text.push_str(&paper.heading("Phases", told(pass)));
        let mut grid = table(&rows);
        let live = has_live(&rows);
        for rows in rows.chunk_by(|one, other| one.step == other.step) {
            step(&mut grid, rows, live, explanation, paper);
        }
        text.push_str(&grid.draw(paper));
        text.push_str(&log(&rows, paper));
    }
    text
}

/// Renders the warm pass without steps that equal the step before, and the cold pass in one line.
pub(super) fn folded(explanation: &Explanation, paper: &Canvas) -> String {
    let mut text = String::new();
    let all = passes(explanation);
    let Some(main) = all
        .iter()
        .copied()
        .find(|pass| *pass != Pass::Cold)
        .or(all.first().copied())
    else {
        return text;
    };
    text.push_str(&paper.heading("Phases", told(main)));
    let rows = of(explanation, main);
    let mut grid = table(&rows);
    let live = has_live(&rows);
    let mut before: Option<&[&PhaseRow]> = None;
    let mut same = Vec::new();
    for rows in rows.chunk_by(|one, other| one.step == other.step) {
        // After the first steps, a training repeats itself to the byte. Equal steps are named, not drawn.
        if before.is_some_and(|before| is_same(before, rows)) {
            same.extend(rows.first().and_then(|row| row.step));
            continue;
        }
        repeated(&mut grid, &mut same);
        step(&mut grid, rows, live, explanation, paper);
        before = Some(rows);
    }
    repeated(&mut grid, &mut same);
    text.push_str(&grid.draw(paper));
    text.push_str(&log(&rows, paper));
    if main != Pass::Cold {
        text.push_str(&cold(explanation, paper));
    }
    text
}

fn passes(explanation: &Explanation) -> Vec<Pass> {
    let all = [Pass::Cold, Pass::Warm, Pass::Traced];
    let seen = |pass: &Pass| explanation.phases.iter().any(|row| row.pass == *pass);
    all.into_iter().filter(seen).collect()
}

fn of(explanation: &Explanation, pass: Pass) -> Vec<&PhaseRow> {
    explanation.phases.iter().filter(|row| row.pass == pass).collect()
}

const fn told(pass: Pass) -> &'static str {
    match pass {
        Pass::Cold => "cold pass: autotune tries candidates; live memory is not observed",
        Pass::Warm | Pass::Traced => "warm pass: autotune has already chosen its kernels",
    }
}

/// Makes the columns; without live memory for a pass that does not observe it.
fn table(rows: &[&PhaseRow]) -> Grid {
    let mut columns = vec![Column::right("step"), Column::left("phase")];
    if has_live(rows) {
        columns.extend([
            Column::right("end").of("live"),
            Column::right("peak").of("live").expendable(1),
            Column::right("change").of("live").expendable(3),
        ]);
    }
    columns.extend([
        Column::right("end").of("reserved"),
        Column::right("peak").of("reserved").expendable(4),
        Column::right("change").of("reserved").expendable(2),
    ]);
    Grid::new(columns)
}

fn has_live(rows: &[&PhaseRow]) -> bool {
    rows.iter().any(|row| row.live_end.is_some() || row.live_peak.is_some())
}

fn step(grid: &mut Grid, rows: &[&PhaseRow], live: bool, explanation: &Explanation, paper: &Canvas) {
    for (at, row) in rows.iter().enumerate() {
        let style = if row.failed { BAD } else { PLAIN };
        let plain = |text: String| Cell::from(text).styled(style);
        let number = row
            .step
            .filter(|_| at == 0)
            .map_or_else(String::new, |step| step.to_string());
        let name = match row.failed {
            true => format!("{} {}", phase_name(row.phase), paper.glyph("✗", "x")),
            false => phase_name(row.phase).to_owned(),
        };
        // Unchanged values are dimmed, so that the changes stand out.
        let moved = |change: Option<i64>| match change {
            _ if row.failed => BAD,
            Some(0) | None => DIM,
            Some(_) => PLAIN,
        };
        let change = |change: Option<i64>| {
            let text = change.map_or_else(|| paper.none().to_owned(), |change| paper.change(change));
            Cell::from(text).styled(moved(change))
        };
        let known = |bytes: Option<Bytes>| plain(paper.known(bytes));
        let mut cells = vec![plain(number), plain(name)];
        if live {
            cells.extend([known(row.live_end), known(row.live_peak), change(row.live_change)]);
        }
        cells.extend([
            known(Some(row.reserved_end)),
            known(Some(row.reserved_peak)),
            change(Some(row.reserved_change)),
        ]);
        grid.row(cells);
        if row.failed {
            for line in failure(explanation, row) {
                grid.remark(line, BAD);
            }
        }
    }
}

/// Returns why the run ended in a phase.
fn failure(explanation: &Explanation, row: &PhaseRow) -> Vec<String> {
    let run = &explanation.run;
    // The run names one pass. The warm and the traced pass run the same work, so the out of memory of one explains the
    // other.
    let is_its = |pass: Pass| (pass == Pass::Cold) == (row.pass == Pass::Cold);
    if let Some(oom) = run.oom.as_ref().filter(|oom| is_its(oom.pass)) {
        return refusal(run, oom);
    }
    if let Some(error) = &run.error {
        return vec![error.message.on_terminal()];
    }
    // The out of memory is that of another pass, but this one ended in the same way.
    if run.oom.is_some() {
        return vec!["out of memory here too".to_owned()];
    }
    vec!["the run ended here".to_owned()]
}

fn is_same(before: &[&PhaseRow], rows: &[&PhaseRow]) -> bool {
    let figures = |row: &PhaseRow| {
        (
            row.phase,
            row.live_end,
            row.live_peak,
            row.reserved_end,
            row.reserved_peak,
            row.failed,
        )
    };
    before.len() == rows.len()
        && before
            .iter()
            .zip(rows)
            .all(|(one, other)| figures(one) == figures(other))
}

fn repeated(grid: &mut Grid, steps: &mut Vec<u32>) {
    let text = match (steps.as_slice(), steps.last()) {
        ([step], _) => format!("step {step}: identical to the byte"),
        ([first, ..], Some(last)) => format!("steps {first} to {last}: identical to the byte"),
        _ => return,
    };
    grid.remark(text, DIM);
    steps.clear();
}

/// Renders reserved memory at the end of each phase of the first and the last step, in MiB, one line per step.
fn log(rows: &[&PhaseRow], paper: &Canvas) -> String {
    let steps: Vec<_> = rows.chunk_by(|one, other| one.step == other.step).collect();
    let mut text = String::new();
    let last = steps
        .iter()
        .rev()
        .find(|rows| rows.first().is_some_and(|row| row.step.is_some()));
    let first = steps
        .iter()
        .find(|rows| rows.first().is_some_and(|row| row.step.is_some()));
    let mut told: Vec<&[&PhaseRow]> = Vec::new();
    told.extend(first.copied());
    if first != last {
        told.extend(last.copied());
    }
    for rows in told {
        let parts: Vec<_> = rows
            .iter()
            .map(|row| tied(&format!("{} {}", phase_name(row.phase), mebibytes(row.reserved_end))))
            .collect();
        let step = rows.first().and_then(|row| row.step).unwrap_or(0);
        let line = format!(
            "step {step}, reserved after each phase in MiB: {}",
            parts.join(paper.dot())
        );
        text.push_str(&paper.prose(2, DIM, &line));
    }
    text
}

const fn mebibytes(bytes: Bytes) -> u64 {
    bytes.0.saturating_add(1 << 19) >> 20
}

fn cold(explanation: &Explanation, paper: &Canvas) -> String {
    let rows = of(explanation, Pass::Cold);
    // Reversed, because `max_by_key` returns the last of equals, and the first phase with the peak is wanted.
    let Some(most) = rows.iter().rev().max_by_key(|row| row.reserved_peak) else {
        return String::new();
    };
    let failed = rows.iter().find(|row| row.failed);
    let style: Ansi = if failed.is_some() { BAD } else { DIM };
    let mut text = paper.prose(
        2,
        style,
        &format!(
            "cold pass, with autotune: {} reserved at most, in {}",
            paper.size(most.reserved_peak),
            super::place(most.step, most.phase)
        ),
    );
    for line in failed.map(|row| failure(explanation, row)).unwrap_or_default() {
        text.push_str(&paper.prose(4, BAD, &line));
    }
    text
}
