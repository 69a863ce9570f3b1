//! Denies edits that loosen limits: each is a failure until somebody approves it.

use super::compare::edited_burn;
use crate::baseline::BaselineFile;
use crate::bytes::Bytes;
use crate::report::{EditedLimit, Mode, Report, Rule, Run, Skipped, Status, Verdict};
use crate::untrusted::{Foreign, PlainName};

/// The end of each message: how to get a denied edit approved.
const APPROVE: &str =
    "somebody who may loosen limits must approve it (label `vram-limits-approved` in the supplied workflow)";

/// Returns the edits that loosen a baseline: removed entries, larger values and removed values, whatever their cause, and
/// another version of Burn because of which growth would only warn.
#[must_use]
pub fn worse(before: &BaselineFile, own: &BaselineFile, report: &Report, file: &str) -> Vec<EditedLimit> {
    let worse = before.entries().filter_map(|(key, entry)| {
        // Without its entry, the model could grow without a comparison.
        let Some(own) = own.get(key) else {
            return Some(key.edit(None, [entry.peaks.warm.live, None], file, true));
        };
        if let Some(edit) = edited_burn(key, entry, own, report, file) {
            return Some(EditedLimit { loosens: true, ..edit });
        }
        let mut pairs = entry.peaks.figures().into_iter().zip(own.peaks.figures());
        // The cause does not matter: whoever approves the edit decides about it. See docs/design/edits.md.
        let is_worse = |(was, is): &(Option<Bytes>, Option<Bytes>)| match (was, is) {
            (Some(was), Some(is)) => is > was,
            (was, is) => was.is_some() && is.is_none(),
        };
        let ((pass, metric, was), (.., is)) = pairs.find(|((.., was), (.., is))| is_worse(&(*was, *is)))?;
        Some(key.edit(Some((pass, metric)), [was, is], file, true))
    });
    worse.collect()
}

/// Returns a failure per edit that loosens a limit, and per part of the base that cannot be compared.
#[must_use]
pub fn denied(edits: &[EditedLimit], unreadable: &[Skipped], report: &Report, gpu: &str) -> Vec<Verdict> {
    let verdict = |model: Option<&str>, message: String, file: Option<&str>, line: Option<u32>| {
        let is_meant = |run: &&Run| model.is_some_and(|model| *run.name() == *model || model == run.full_name());
        let run = report.runs.iter().find(is_meant);
        Verdict {
            // An edit of the defaults belongs to no package, but a verdict must name one.
            package: run.map_or_else(|| PlainName::escaped("budgets"), |run| run.package.clone()),
            model: PlainName::escaped(model.unwrap_or("defaults")),
            mode: Mode::Estimate,
            gpu: PlainName::escaped(gpu),
            gpu_number: None,
            pass: None,
            metric: None,
            rule: Rule::Edit,
            limit: None,
            limit_written: None,
            actual: None,
            baseline: None,
            allowed: None,
            status: Status::Fail,
            message: message.into(),
            file: file.map(Into::into),
            line,
            column: None,
        }
    };
    let edits = edits.iter().filter(|edit| edit.loosens).map(|edit| {
        let [before, after] = edit.raw_values();
        let message = format!(
            "this change loosens a limit in {}: {} from {before} to {after}; {APPROVE}",
            edit.file,
            edit.limit.raw(),
        );
        verdict(
            edit.model.as_ref().map(Foreign::raw),
            message,
            Some(edit.file.raw()),
            edit.line,
        )
    });
    // What cannot be compared may be looser. Letting it pass would be a way around this check.
    let unreadable = unreadable.iter().map(|skipped| {
        let message = format!(
            "{} cannot be compared with the base: {}; {APPROVE}",
            skipped.what(),
            skipped.why.raw()
        );
        verdict(None, message, None, None)
    });
    edits.chain(unreadable).collect()
}
