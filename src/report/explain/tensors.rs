//! The tensors that were there at the peak.

use super::categories::{legend, look, swatch};
use super::grid::{Cell, Column, Grid};
use super::paper::{Cut, DIM, PLAIN, Paper, place};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, Source, Tensor, Timeline};
use crate::report::Phase;
use crate::report::words::phase_name;

/// The column that the colour stands for, too.
const WHAT_FOR: usize = 4;

/// The largest of them, and what the others add up to.
pub(super) fn tensors(explanation: &Explanation, most: usize, paper: &Paper) -> String {
    let peak = &explanation.peak;
    let mut text = paper.heading("Largest tensors at the peak", &place(peak.step, peak.phase));
    // A view of another tensor's memory takes none.
    let all: Vec<_> = resolved(explanation, &peak.tensors)
        .filter(|tensor| tensor.bytes > Bytes(0))
        .collect();
    if all.is_empty() {
        return text + &paper.prose(2, PLAIN, "there was none");
    }
    let (shown, rest) = all.split_at(most.min(all.len()));
    let mut grid = Grid::new([
        Column::left(""),
        Column::right("bytes").close(),
        Column::left("shape").cut(Cut::Middle, 14),
        Column::left("type").expendable(4),
        Column::left("what for").expendable(6),
        Column::left("module").cut(Cut::Middle, 16),
        Column::left("operation").cut(Cut::Middle, 10).expendable(1),
        Column::left("source").cut(Cut::Start, 18).expendable(2),
        Column::left("made in").expendable(3),
        Column::left("lives").expendable(5),
    ]);
    for tensor in shown {
        let look = look(tensor.category);
        grid.row([
            Cell::from(swatch(tensor.category, paper)).styled(look.style),
            Cell::from(paper.size(tensor.bytes)),
            Cell::from(paper.shape(&tensor.shape)),
            Cell::from(paper.name(&tensor.dtype)).styled(DIM),
            Cell::from(look.name).styled(look.style),
            Cell::from(module(tensor, paper)),
            Cell::from(paper.name(&tensor.operation)),
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
        let remark = format!("and {} more, {} together", rest.len(), paper.size(sum));
        text.push_str(&paper.prose(2, DIM, &remark));
    }
    text
}

/// Tensors by their indices, those that there are.
pub(super) fn resolved<'a>(explanation: &'a Explanation, indices: &'a [u32]) -> impl Iterator<Item = &'a Tensor> {
    let tensor = |at: &u32| usize::try_from(*at).ok().and_then(|at| explanation.tensors.get(at));
    indices.iter().filter_map(tensor)
}

pub(super) fn module(tensor: &Tensor, paper: &Paper) -> String {
    match &tensor.module {
        Some(module) if tensor.inferred => format!("~{}", paper.name(module)),
        Some(module) => paper.name(module),
        None => paper.none().to_owned(),
    }
}

pub(super) fn source(source: Option<&Source>, paper: &Paper) -> String {
    source.map_or_else(
        || paper.none().to_owned(),
        |source| format!("{}:{}", paper.name(&source.file), source.line),
    )
}

/// `1 forward`; a phase alone before the first step.
fn moment(step: Option<u32>, phase: Phase) -> String {
    match step {
        Some(step) => format!("{step} {}", phase_name(phase)),
        None => phase_name(phase).to_owned(),
    }
}

/// How long, by step and phase: `within 1 forward`, or `to 1 backward`.
fn lives(tensor: &Tensor, timeline: &Timeline) -> String {
    let Some(died) = tensor.died else {
        return "to the end".to_owned();
    };
    let border = |sample: u32| {
        let after = timeline.borders.partition_point(|border| border.sample <= sample);
        after.checked_sub(1).and_then(|at| timeline.borders.get(at))
    };
    let (born, end) = (border(tensor.born), border(died));
    match (born, end) {
        (Some(born), Some(end)) if born != end => format!("to {}", moment(end.step, end.phase)),
        (Some(within), _) => format!("within {}", moment(within.step, within.phase)),
        // Before the first phase there is no step either.
        (None, _) => format!("within {}", moment(tensor.step, tensor.phase)),
    }
}
