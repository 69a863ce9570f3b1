//! The table of phases: every phase of every step, from the cold and the observed pass.

use super::types::PhaseRow;
use crate::bytes::Bytes;
use crate::report::{Pass, Phase, Run, Step};

/// Returns the rows of a run: first those of its cold pass, then those of its observed pass.
pub(super) fn phases(run: &Run, cold: &[Step]) -> Vec<PhaseRow> {
    let mut rows = of(run, Pass::Cold, cold);
    rows.extend(of(run, Pass::Traced, &run.steps));
    rows
}

fn of(run: &Run, pass: Pass, steps: &[Step]) -> Vec<PhaseRow> {
    let is_observed = pass == Pass::Traced;
    let (mut live, mut reserved) = (Bytes(0), Bytes(0));
    let mut rows = Vec::new();
    for step in steps {
        for phase in &step.phases {
            // A report counts what happens before the first step as step 0.
            let is_before = matches!(phase.phase, Phase::Context | Phase::Model);
            let number = (!is_before).then_some(step.step);
            rows.push(PhaseRow {
                pass,
                step: number,
                phase: phase.phase,
                // The cold pass does not observe live memory, and 0 would look like a value.
                live_end: is_observed.then_some(phase.live_end),
                live_peak: is_observed.then_some(phase.live_peak),
                live_change: is_observed.then(|| phase.live_end.less(live)),
                reserved_end: phase.reserved_end,
                reserved_peak: phase.reserved_peak,
                reserved_change: phase.reserved_end.less(reserved),
                failed: run.oom.as_ref().is_some_and(|oom| {
                    // In an estimate, the observed pass is the warm pass.
                    let same_pass = oom.pass == pass || (is_observed && oom.pass == Pass::Warm);
                    same_pass && oom.step == number && oom.phase == Some(phase.phase)
                }),
            });
            (live, reserved) = (phase.live_end, phase.reserved_end);
        }
    }
    let peak = if is_observed {
        run.peaks.warm.live
    } else {
        run.peaks.cold.reserved
    };
    let has_died = peak.is_none() && (run.oom.is_some() || run.error.is_some());
    if has_died
        && !rows.iter().any(|row| row.failed)
        && let Some(last) = rows.last_mut()
    {
        // The run ended in the phase that was seen last.
        last.failed = true;
    }
    rows
}
