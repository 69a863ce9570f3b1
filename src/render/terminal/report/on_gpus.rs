//! The table of models that run on several GPUs, with one row per GPU.

use comfy_table::Cell;

use super::cells::{bar, limited, shown, tinted};
use super::state::{self, RunState, ShownReport, on_gpu};
use super::table::{lines, new_table};
use crate::protocol::MOST_GPUS;
use crate::report::{GpuShare, Run};

/// Renders one row per GPU for every model that runs on several GPUs.
pub(super) fn on_gpus(report: &ShownReport<'_>, judged: bool) -> String {
    let rows: Vec<_> = report.runs.iter().flat_map(|run| rows(report, run)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let limit = if judged { "limit" } else { "GPU" };
    let mut table = new_table(
        ["by GPU", "live", "reserved", "", limit, "process", "cold reserved"],
        [1, 2, 4, 5, 6],
    );
    table.add_rows(rows);
    let table: String = lines(&table).into_iter().map(|line| format!("{line}\n")).collect();
    format!("\n{table}\n")
}

fn rows(report: &ShownReport<'_>, run: &Run) -> Vec<Vec<Cell>> {
    let room = run.gpu.available_bytes;
    let row = |gpu: &GpuShare| {
        let warm = gpu.peaks.warm;
        let judged = state::drawn(report, run, Some(gpu.gpu_number));
        let limit = judged.and_then(|verdict| verdict.limit);
        let allowed = limit.unwrap_or(room);
        let used = warm.reserved.map(|bytes| bar(bytes, allowed)).unwrap_or_default();
        vec![
            Cell::new(format!(
                "{}{} GPU {}",
                run.full_name(),
                on_gpu(report, &run.gpu.id),
                gpu.gpu_number
            )),
            shown(warm.live),
            shown(warm.reserved),
            tinted(used, judged.and_then(|verdict| RunState::from_verdict(verdict).color())),
            limited(judged, room),
            shown(warm.process),
            shown(gpu.peaks.cold.reserved),
        ]
    };
    // No run has more GPUs, but a report from elsewhere may claim so.
    run.gpus.iter().take(MOST_GPUS as usize).map(row).collect()
}
