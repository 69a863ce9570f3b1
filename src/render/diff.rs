//! What all outputs of a difference share: the rows, their words, and the lists of what else changed.

pub(super) mod lists;

use crate::report::diff::{CauseKind, FigureDiff, ModelDiff, ModelState, ReportDiff};
use crate::report::upgrade::is_upgrade;
use crate::report::{Metric, Pass, Status};
use crate::untrusted::Foreign;

/// Explains what an upgrade of Burn means for the comparison, and what to do next. Returns nothing without an upgrade.
pub(in crate::render) fn on_upgrade(diff: &ReportDiff) -> Option<String> {
    let causes = || diff.models.iter().flat_map(|model| &model.causes);
    let mut upgrades = causes().filter(|cause| cause.kind == CauseKind::Burn);
    let (before, after) = upgrades.find_map(|cause| {
        let (before, after) = (cause.before.as_ref()?, cause.after.as_ref()?);
        is_upgrade(before.raw(), after.raw()).then_some((before, after))
    })?;
    let mut text = format!(
        "Burn {before} and {after} have different allocators and kernels, so growth between them is at most a warning."
    );
    // Categories come only from explanations. If there are any, the reader already followed this advice.
    if !causes().any(|cause| cause.kind == CauseKind::Category) {
        text += " To see which categories changed, compare an explanation of each version with `cargo vram diff`.";
    }
    Some(text)
}

/// Returns the state of a value in one word; for an incomplete run, why it ended.
pub(in crate::render) fn word(model: &ModelDiff, figure: &FigureDiff) -> Foreign {
    // First, because the values of an incomplete run are no reason to call it smaller or ok.
    if let Some(ended) = &model.ended {
        return ended.clone();
    }
    let word = match (model.state, figure.status, figure.change) {
        (ModelState::New, ..) => "new",
        (ModelState::Removed, ..) => "removed",
        (_, Some(Status::Fail), _) => "regressed",
        (_, Some(Status::Warn), _) => "warning",
        (_, Some(Status::Error), _) => "not checked",
        (_, Some(Status::Pass), Some(change)) if change < 0 => "smaller",
        (_, Some(Status::Pass), _) => "ok",
        (_, None, _) => "",
    };
    word.into()
}

/// Returns the values of a model that get a row: those that changed. A model that is new, removed or incomplete gets
/// only its warm live memory.
fn shown(model: &ModelDiff) -> impl Iterator<Item = &FigureDiff> {
    let whole = matches!(model.state, ModelState::New | ModelState::Removed);
    model
        .figures
        .iter()
        .filter(move |figure| match whole || model.ended.is_some() {
            true => (figure.pass, figure.metric) == (Pass::Warm, Metric::Live),
            // The cold pass hardly ever has other live memory than the warm pass.
            false => figure.before != figure.after && (figure.pass, figure.metric) != (Pass::Cold, Metric::Live),
        })
}

/// Whether the model has a warning, a failure or an error.
pub(in crate::render) fn is_wrong(model: &ModelDiff) -> bool {
    model.status() >= Status::Warn
}

/// Returns the values to show. With `quiet`, only those with a warning, a failure or an error.
pub(in crate::render) fn rows(model: &ModelDiff, quiet: bool) -> impl Iterator<Item = &FigureDiff> {
    let is_meant = move |figure: &&FigureDiff| {
        // A model that ended early has no verdict, but it is never fine.
        !quiet || model.ended.is_some() || figure.status.is_some_and(|status| status >= Status::Warn)
    };
    shown(model).filter(is_meant)
}

/// Counts the models by state, in one line.
pub(in crate::render) fn summary(diff: &ReportDiff) -> String {
    let count = |state| diff.models.iter().filter(|model| model.state == state).count();
    let regressed = diff
        .models
        .iter()
        .filter(|model| model.status() == Status::Fail)
        .count();
    let mut parts = vec![format!(
        "{} compared",
        count(ModelState::Changed) + count(ModelState::Same)
    )];
    if !diff.problems.is_empty() {
        parts.push(format!("{} could not run", diff.problems.len()));
    }
    for (number, what) in [
        // A regressed model is a changed one, too, so these numbers need not add up to the total.
        (regressed, "regressed"),
        (count(ModelState::Changed), "changed"),
        (count(ModelState::New), "new"),
        (count(ModelState::Removed), "removed"),
        (count(ModelState::Same), "unchanged"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests;
