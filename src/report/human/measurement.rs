//! How a run was measured, and what its figures rest on.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use super::state::{identity, name_of, on_gpu};
use super::text::{named, words};
use crate::bytes::Bytes;
use crate::report::words::milliseconds;
use crate::report::{
    Measurement, Obtained, Outside, ProcessOf, ProcessSource, Report, Run, Spread, SpreadPeak, Tuning,
};

/// A line for each model that was run several times: the least and the most of its figures.
pub(super) fn spreads(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        if let Some(range) = &run.range {
            let name = name_of(report, run);
            let ranges = self::spread(range);
            let _ = writeln!(
                text,
                "{name} on {} differs from run to run; the largest of {} is judged: {ranges}",
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

/// How Burn's allocator fared, where that is worth a line: how many steps it took to settle, and what it got over.
pub(super) fn allocator(report: &Report) -> String {
    let mut text = String::new();
    let settled = report.runs.iter().filter_map(|run| run.settling);
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
            "reserved stopped growing within {range}: two in a row added nothing"
        );
    }
    for run in &report.runs {
        let name = name_of(report, run);
        if let Some(settling) = run.settling.filter(|settling| !settling.settled) {
            let _ = writeln!(
                text,
                "{name} on {}: reserved still grew in one of the last two of {} steps, so it may grow further; --steps runs more",
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
        return "no figures".to_owned();
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

/// `7 GiB … 7.20 GiB`; one figure where all are equal to the byte.
fn range([least, most]: [Bytes; 2]) -> String {
    let (from, to) = (least.to_string(), most.to_string());
    if least == most {
        from
    } else if from == to {
        format!("{from} (within {})", most.saturating_sub(least))
    } else {
        format!("{from} … {to}")
    }
}

/// Everything that is known of how the figures came about.
pub(super) fn details(report: &Report) -> String {
    let mut text = String::new();
    let mut told = BTreeSet::new();
    for run in &report.runs {
        let autotune = &run.autotune;
        let _ = writeln!(
            text,
            "{}{}: {} s; autotune choices: {} recorded{}, {} nearest, {} assumed; {} streams, {} device reads",
            identity(run),
            on_gpu(report, &run.gpu.id),
            run.seconds,
            autotune.recorded,
            recorded_on(run),
            autotune.nearest,
            autotune.assumed,
            run.streams,
            run.device_reads,
        );
        if let Some(measurement) = &run.measurement {
            for line in measured(run, measurement) {
                let _ = writeln!(text, "  {line}");
            }
        }
        told.extend(&run.assumptions);
    }
    for assumption in told {
        let _ = writeln!(text, "assumed: {}", words(assumption));
    }
    text
}

/// Where what was recorded was recorded.
fn recorded_on(run: &Run) -> String {
    run.recording.as_ref().map_or_else(String::new, |recording| {
        format!(" on {} with driver {}", named(&recording.gpu), named(&recording.driver))
    })
}

fn measured(run: &Run, measurement: &Measurement) -> Vec<String> {
    let library =
        |library: &crate::report::Library| format!("{} from {}", named(&library.version), named(&library.path));
    let proof = &measurement.proof;
    let proved = if proof.computed == proof.expected {
        format!("a kernel computed {} from {}, as it should", proof.computed, proof.seed)
    } else {
        format!(
            "a kernel computed {} from {} and should have computed {}",
            proof.computed, proof.seed, proof.expected
        )
    };
    let mut lines = vec![
        format!("measured on {}, {}", named(&run.gpu.name), named(&measurement.uuid)),
        format!("driver: {}", library(&measurement.libcuda)),
        format!("NVRTC: {}", library(&measurement.libnvrtc)),
        format!("host: {} cores", measurement.cores),
        format!("proof: {proved}"),
        format!("process: {}", process(measurement.process.as_ref())),
    ];
    lines.extend(measurement.idle.map(|idle| format!("held before it began: {idle}")));
    lines.extend(outside("context", run.gpu.context.as_ref()));
    lines.extend(outside("modules", run.gpu.modules.as_ref()));
    lines.push(match measurement.others.len() {
        0 => "other processes: none seen".to_owned(),
        number => format!("other processes: {number}, see the warnings"),
    });
    if let Some(limit) = measurement.limit {
        lines.push(format!("the card was made smaller: {limit} in all"));
    }
    lines.push(match measurement.tuning {
        Tuning::Free => "autotune: timed in the cold pass; another measurement may choose otherwise".to_owned(),
        Tuning::Replayed => "autotune: the choices of a recording".to_owned(),
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
        ProcessOf::Process => "as NVML accounts for it",
        ProcessOf::Device => "the whole device less what it held before, since NVML shows no processes here",
    };
    let time = |micros| milliseconds(Duration::from_micros(micros));
    format!(
        "{of}; {} looks in the warm pass, one every {}, at most {} apart: a lower bound",
        source.looks,
        time(source.interval_us),
        time(source.longest_gap_us)
    )
}

fn outside(what: &str, outside: Option<&Outside>) -> Option<String> {
    outside.map(|outside| {
        let obtained = match outside.obtained {
            Obtained::Measured => "measured",
            Obtained::Documented => "documented",
            Obtained::Assumed => "assumed",
        };
        format!("{what}: {}, {obtained}: {}", outside.bytes, words(&outside.source))
    })
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
