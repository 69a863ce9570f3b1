//! `--timings`: where the time of a command went. It is printed, and stands in no report: it differs from run to run.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::terminal;

/// A part of a command that was timed.
struct Part {
    what: String,
    took: Duration,
    /// Whether it is a part of the part that ended after it.
    is_within: bool,
}

static PARTS: Mutex<Vec<Part>> = Mutex::new(Vec::new());
static WANTED: AtomicBool = AtomicBool::new(false);

/// The command is to print them.
pub(super) fn want() {
    WANTED.store(true, Relaxed);
}

/// Notes a part that took so long.
fn note(what: &str, took: Duration, is_within: bool) {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner).push(Part {
        what: what.to_owned(),
        took,
        is_within,
    });
}

/// Does something, and notes how long it took.
pub(super) fn timed<R>(what: &str, act: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = act();
    note(what, began.elapsed(), false);
    result
}

/// Notes a part of the part that goes on.
pub(super) fn within(what: &str, took: Duration) {
    note(what, took, true);
}

/// Prints them, if that was asked for.
pub(super) fn print(whole: Duration) {
    if WANTED.load(Relaxed) {
        let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        terminal::remark(&table(&parts, whole));
    }
}

fn table(parts: &[Part], whole: Duration) -> String {
    let mut rows: Vec<(String, Duration)> = Vec::new();
    // A part ends after what is within it, and stands above it.
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
    rows.push(("  the whole command".to_owned(), whole));
    let width = rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    let mut text = "where the time went (passes run in parallel, so they can add up to more):".to_owned();
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
        let part = |what: &str, millis, is_within| Part {
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
            "where the time went (passes run in parallel, so they can add up to more):",
            "  building the models        61.25 s",
            "  estimating                  1.00 s",
            "    zoo/vgg16, cold pass      0.90 s",
            "    zoo/vgg16, warm pass      0.80 s",
            "  the whole command          63.00 s",
        ];
        assert_eq!(
            table(&parts, Duration::from_secs(63)).lines().collect::<Vec<_>>(),
            expected
        );
    }
}
