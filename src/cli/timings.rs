//! `--timings`: prints how long the parts of a command took. Reports do not contain these times, because they differ
//! from run to run.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::terminal;

/// A timed part of a command.
struct TimedPart {
    what: String,
    took: Duration,
    /// Whether it belongs to a longer part, which comes after it in the list.
    is_within: bool,
}

static PARTS: Mutex<Vec<TimedPart>> = Mutex::new(Vec::new());
static WANTED: AtomicBool = AtomicBool::new(false);

/// Makes [`print()`] print the times.
pub(super) fn want() {
    WANTED.store(true, Relaxed);
}

/// Stores the duration of a part.
fn note(what: &str, took: Duration, is_within: bool) {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner).push(TimedPart {
        what: what.to_owned(),
        took,
        is_within,
    });
}

/// Calls a function and stores how long it took.
pub(super) fn timed<R>(what: &str, act: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = act();
    note(what, began.elapsed(), false);
    result
}

/// Stores the duration of a part of the current part.
pub(super) fn within(what: &str, took: Duration) {
    note(what, took, true);
}

/// Prints the times if the user asked for them. `whole` is the time of the whole command.
pub(super) fn print(whole: Duration) {
    if WANTED.load(Relaxed) {
        let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        terminal::remark(&table(&parts, whole));
    }
}

fn table(parts: &[TimedPart], whole: Duration) -> String {
    let mut rows: Vec<(String, Duration)> = Vec::new();
    // A part ends after its own parts, but it is listed above them.
    let mut within: Vec<(String, Duration)> = Vec::new();
    for part in parts {
        match part.is_within {
            true => within.push((format!("    {}", part.what), part.took)),
            false => {
                rows.push((format!("  {}", part.what), part.took));
                rows.append(&mut within);
            }
        }
    }
    rows.append(&mut within);
    rows.push(("  total".to_owned(), whole));
    let width = rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    let mut text = "times (passes run in parallel, so their sum can exceed the total):".to_owned();
    for (what, took) in rows {
        text.push_str(&format!("\n{what:width$} {:>9.2} s", took.as_secs_f64()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_a_part_stands_below_it() {
        let part = |what: &str, millis, is_within| TimedPart {
            what: what.to_owned(),
            took: Duration::from_millis(millis),
            is_within,
        };
        let parts = [
            part("building the models", 61_250, false),
            part("zoo/vgg16, cold pass", 900, true),
            part("zoo/vgg16, warm pass", 800, true),
            part("estimating", 1000, false),
        ];
        let expected = [
            "times (passes run in parallel, so their sum can exceed the total):",
            "  building the models        61.25 s",
            "  estimating                  1.00 s",
            "    zoo/vgg16, cold pass      0.90 s",
            "    zoo/vgg16, warm pass      0.80 s",
            "  total                      63.00 s",
        ];
        assert_eq!(
            table(&parts, Duration::from_secs(63)).lines().collect::<Vec<_>>(),
            expected
        );
    }
}
