//! The details of a measurement, and what the values depend on.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use super::state::{ShownReport, identity, name_of, on_gpu};
use crate::bytes::Bytes;
use crate::report::words::{counted, milliseconds};
use crate::report::{Measurement, ProcessOf, ProcessOverhead, ProcessSource, Run, Spread, SpreadPeak, Tuning};
use crate::untrusted::words;

/// Renders one line per model that ran several times: the smallest and the largest of its values.
pub(super) fn spreads(report: &ShownReport<'_>) -> String {
    let mut text = String::new();
    for run in &report.runs {
        // Only a model with `nondeterministic: allowed` has a range. Its largest values are judged.
        // See docs/design/passes.md.
        if let Some(range) = &run.range {
            let name = name_of(report, run);
            let ranges = self::spread(range);
            let _ = writeln!(
                text,
                "{name} on {} differs from run to run; the largest of {} runs counts: {ranges}",
                run.gpu.id, range.repeats
            );
        } else if let Some(spread) = run.measurement.as_ref().and_then(|measured| measured.spread.as_ref()) {
            let name = name_of(report, run);
            let _ = writeln!(
                text,
                "{name} on {}, {} measurements: {}",
                run.gpu.id,
                spread.repeats,
                self::spread(spread)
            );
        }
    }
    text
}

/// Renders notes on Burn's allocator: how many steps it needed to settle, and which refused allocations it recovered.
pub(super) fn allocator(report: &ShownReport<'_>) -> String {
    let mut text = String::new();
    let settled = report.runs.iter().filter_map(|run| run.settling);
    // One line for all runs that settled, and one per run that did not: only the latter need attention. For
    // what settling is, see docs/design/burn-0_22-memory.md.
    let steps: BTreeSet<u32> = settled
        .filter(|settling| settling.settled)
        .map(|settling| settling.steps)
        .collect();
    if let (Some(least), Some(most)) = (steps.first(), steps.last()) {
        let range = if least == most {
            format!("{least} steps")
        } else {
            format!("{least} to {most} steps")
        };
        let _ = writeln!(
            text,
            "reserved memory stopped growing within {range}: the last two added nothing"
        );
    }
    for run in &report.runs {
        let name = name_of(report, run);
        if let Some(settling) = run.settling.filter(|settling| !settling.settled) {
            let _ = writeln!(
                text,
                "{name} on {}: reserved memory still grew in one of the last two of {} steps and may grow further; use \
                 --steps to run more",
                run.gpu.id, settling.steps
            );
        }
        if run.recovered_refusals > 0 {
            let (plural, them) = if run.recovered_refusals == 1 {
                ("", "it")
            } else {
                ("s", "them")
            };
            let _ = writeln!(
                text,
                "{name} on {}: the GPU refused {} allocation{plural}; Burn freed memory and got {them}",
                run.gpu.id, run.recovered_refusals
            );
        }
    }
    text
}

fn spread(spread: &Spread) -> String {
    let passes = [("warm", &spread.warm), ("cold", &spread.cold)];
    let passes: Vec<_> = passes
        .into_iter()
        .filter_map(|(pass, peak)| ranges(peak).map(|ranges| format!("{pass} {ranges}")))
        .collect();
    if passes.is_empty() {
        return "no values".to_owned();
    }
    passes.join("; ")
}

fn ranges(peak: &SpreadPeak) -> Option<String> {
    let figures = [
        ("live", peak.live),
        ("reserved", peak.reserved),
        ("process", peak.process),
    ];
    let ranges: Vec<_> = figures
        .into_iter()
        .filter_map(|(metric, range)| range.map(|range| format!("{metric} {}", self::range(range))))
        .collect();
    (!ranges.is_empty()).then(|| ranges.join(", "))
}

/// Formats a range: `7 GiB … 7.20 GiB`. A range of equal values is one value.
fn range([least, most]: [Bytes; 2]) -> String {
    let (from, to) = (least.to_string(), most.to_string());
    if least == most {
        from
    } else if from == to {
        // Rounded, both ends look equal. A reader would take them for exact.
        format!("{from} (within {})", most.saturating_sub(least))
    } else {
        format!("{from} … {to}")
    }
}

/// Renders how the values of each run were obtained, and the assumptions.
pub(super) fn details(report: &ShownReport<'_>) -> String {
    let mut text = String::new();
    let mut told = BTreeSet::new();
    for run in &report.runs {
        let autotune = &run.autotune;
        let _ = writeln!(
            text,
            "{}{}: {} s; autotune choices: {} recorded{}, {} nearest, {} assumed; {}, {}",
            identity(run),
            on_gpu(report, &run.gpu.id),
            run.seconds,
            autotune.recorded,
            recorded_on(run),
            autotune.nearest,
            autotune.assumed,
            counted(run.streams.into(), "stream"),
            counted(run.device_reads, "device read"),
        );
        if let Some(measurement) = &run.measurement {
            for line in measured(run, measurement) {
                let _ = writeln!(text, "  {line}");
            }
        }
        // Most runs share their assumptions, so each is printed once, below all runs.
        told.extend(run.assumptions.iter().map(ToString::to_string));
    }
    for assumption in told {
        let _ = writeln!(text, "assumed: {}", words(&assumption));
    }
    text
}

/// Returns the GPU and the driver of the recording that a run replays.
fn recorded_on(run: &Run) -> String {
    run.recording.as_ref().map_or_else(String::new, |recording| {
        format!(" on {} with driver {}", recording.gpu, recording.driver)
    })
}

fn measured(run: &Run, measurement: &Measurement) -> Vec<String> {
    let library = |library: &crate::report::LoadedLibrary| format!("{} from {}", library.version, library.path);
    let proof = &measurement.proof;
    let proved = if proof.computed == proof.expected {
        format!("a kernel computed {} from {}, as expected", proof.computed, proof.seed)
    } else {
        format!(
            "a kernel computed {} from {}, but the expected result is {}",
            proof.computed, proof.seed, proof.expected
        )
    };
    let mut lines = vec![
        format!(
            "measured on {}, {}",
            run.gpu.name.to_string(),
            measurement.uuid.to_string()
        ),
        format!("driver: {}", library(&measurement.libcuda)),
        format!("NVRTC: {}", library(&measurement.libnvrtc)),
        format!("host: {}", counted(measurement.cores.into(), "core")),
        format!("proof: {proved}"),
        format!("process: {}", process(measurement.process.as_ref())),
    ];
    lines.extend(
        measurement
            .idle
            .map(|idle| format!("GPU memory in use before the run: {idle}")),
    );
    lines.extend(outside("context", run.gpu.context.as_ref()));
    lines.extend(outside("modules", run.gpu.modules.as_ref()));
    lines.push(match measurement.others.len() {
        0 => "other processes: none seen".to_owned(),
        number => format!("other processes: {number}, see the warnings"),
    });
    if let Some(limit) = measurement.limit {
        lines.push(format!("GPU memory was limited to {limit}"));
    }
    lines.push(match measurement.tuning {
        // Times differ from run to run, so the kernels and their workspaces may, too.
        Tuning::Free => "autotune: timed kernels in the cold pass; another measurement may choose others".to_owned(),
        Tuning::Replayed => "autotune: replayed the choices of a recording".to_owned(),
    });
    if let Some(spread) = &measurement.spread {
        lines.push(format!(
            "spread of {} measurements: {}",
            spread.repeats,
            self::spread(spread)
        ));
    }
    lines
}

fn process(source: Option<&ProcessSource>) -> String {
    let Some(source) = source else {
        return "could not be read".to_owned();
    };
    let of = match source.of {
        ProcessOf::Process => "the value that NVML reports for the process",
        ProcessOf::Device => "the whole GPU minus what it held before, because NVML shows no processes here",
    };
    let time = |micros| milliseconds(Duration::from_micros(micros));
    format!(
        "{of}; polled {} times in the warm pass, every {} and at most {} apart, so the peak is a lower bound",
        source.looks,
        time(source.interval_us),
        time(source.longest_gap_us)
    )
}

fn outside(what: &str, outside: Option<&ProcessOverhead>) -> Option<String> {
    let told = |outside: &ProcessOverhead| {
        let ProcessOverhead {
            bytes,
            obtained,
            source,
        } = outside;
        format!("{what}: {bytes}, {obtained}: {}", source.on_terminal())
    };
    outside.map(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_never_hides_that_its_ends_differ() {
        assert_eq!(range([Bytes::GIB, Bytes::GIB]), "1 GiB");
        assert_eq!(range([Bytes::GIB, Bytes((1 << 30) + 12)]), "1 GiB (within 12 B)");
        assert_eq!(range([Bytes::GIB, Bytes(3 << 29)]), "1 GiB … 1.50 GiB");
    }
}
