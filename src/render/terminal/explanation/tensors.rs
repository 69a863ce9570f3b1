//! The tensors that existed at the peak.

use super::categories::{legend, look, swatch};
use super::grid::{Cell, Column, Grid};
use super::paper::{Canvas, Cut, DIM, PLAIN, place};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, MemoryTimeline, SourceLocation, TensorLife};
use crate::report::Phase;
use crate::report::words::phase_name;

/// The index of the category column. If there is no room for it, a legend explains the colours.
const WHAT_FOR: usize = 4;

/// Renders the largest tensors at the peak, and the sum of the others.
pub(super) fn tensors(explanation: &Explanation, most: usize, paper: &Canvas) -> String {
    let peak = &explanation.peak;
    let mut text = paper.heading("Largest tensors at the peak", &place(peak.step, peak.phase));
    // A view of another tensor's memory takes none.
    let all: Vec<_> = resolved(explanation, &peak.tensors)
        .filter(|tensor| tensor.bytes > Bytes(0))
        .collect();
    if all.is_empty() {
        return text + &paper.prose(2, PLAIN, "no tensors");
    }
    let (shown, rest) = all.split_at(most.min(all.len()));
    let mut grid = Grid::new([
        Column::left(""),
        Column::right("bytes").close(),
        Column::left("shape").cut(Cut::Middle, 14),
        Column::left("type").expendable(4),
        Column::left("category").expendable(6),
        Column::left("module").cut(Cut::Middle, 16),
        Column::left("operation").cut(Cut::Middle, 10).expendable(1),
        Column::left("source").cut(Cut::Start, 18).expendable(2),
        Column::left("made in").expendable(3),
        Column::left("lifetime").expendable(5),
    ]);
    for tensor in shown {
        let look = look(tensor.category);
        grid.row([
            Cell::from(swatch(tensor.category, paper)).styled(look.style),
            Cell::from(paper.size(tensor.bytes)),
            Cell::from(paper.shape(&tensor.shape)),
            Cell::from(paper.name(tensor.dtype.raw())).styled(DIM),
            Cell::from(look.name).styled(look.style),
            Cell::from(module(tensor, paper)),
            Cell::from(paper.name(tensor.operation.raw())),
            Cell::from(source(tensor.source.as_ref(), paper)).styled(DIM),
            Cell::from(moment(tensor.step, tensor.phase)),
            Cell::from(lives(tensor, &explanation.timeline)).styled(DIM),
        ]);
    }
    text.push_str(&grid.draw(paper));
    if !grid.shows(WHAT_FOR, paper) {
        let seen = |category: &Category| shown.iter().any(|tensor| tensor.category == *category);
        text.push_str(&legend(Category::ALL.into_iter().filter(seen), paper));
    }
    if !rest.is_empty() {
        let sum: Bytes = rest.iter().map(|tensor| tensor.bytes).sum();
        let remark = format!("and {} more, {} in total", rest.len(), paper.size(sum));
        text.push_str(&paper.prose(2, DIM, &remark));
    }
    text
}

/// Returns the tensors with these indices. Skips an index without a tensor.
pub(super) fn resolved<'a>(explanation: &'a Explanation, indices: &'a [u32]) -> impl Iterator<Item = &'a TensorLife> {
    let tensor = |at: &u32| usize::try_from(*at).ok().and_then(|at| explanation.tensors.get(at));
    indices.iter().filter_map(tensor)
}

pub(super) fn module(tensor: &TensorLife, paper: &Canvas) -> String {
    match &tensor.module {
        Some(module) if tensor.inferred => format!("~{}", paper.name(module.raw())),
        Some(module) => paper.name(module.raw()),
        None => paper.none().to_owned(),
    }
}

pub(super) fn source(source: Option<&SourceLocation>, paper: &Canvas) -> String {
    source.map_or_else(
        || paper.none().to_owned(),
        |source| format!("{}:{}", paper.name(source.file.raw()), source.line),
    )
}

/// Formats a step and a phase: `1 forward`; before the first step, the phase alone.
fn moment(step: Option<u32>, phase: Phase) -> String {
    match step {
        Some(step) => format!("{step} {}", phase_name(phase)),
        None => phase_name(phase).to_owned(),
    }
}

/// Formats how long a tensor exists, by step and phase: `within 1 forward` or `until 1 backward`.
fn lives(tensor: &TensorLife, timeline: &MemoryTimeline) -> String {
    let Some(died) = tensor.died else {
        return "until the end".to_owned();
    };
    let border = |sample: u32| {
        let after = timeline.borders.partition_point(|border| border.sample <= sample);
        after.checked_sub(1).and_then(|at| timeline.borders.get(at))
    };
    let (born, end) = (border(tensor.born), border(died));
    match (born, end) {
        (Some(born), Some(end)) if born != end => format!("until {}", moment(end.step, end.phase)),
        (Some(within), _) => format!("within {}", moment(within.step, within.phase)),
        // A tensor that was made before the first phase has no border: use the tensor's own step and phase.
        (None, _) => format!("within {}", moment(tensor.step, tensor.phase)),
    }
}
