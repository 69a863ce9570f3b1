//! Edits that a change may not make by itself: each is a failure, until somebody approves them.

use super::lock::{Key, Lock};
use crate::bytes::Bytes;
use crate::report::change::metric_name;
use crate::report::words::count;
use crate::report::{EditedLimit, Mode, Report, Rule, Run, Skipped, Status, Verdict};

/// What to do about a denied edit.
const APPROVE: &str =
    "a person who may loosen limits must approve it (the label `vram-limits-approved` in the supplied workflow)";

/// Baselines that let more through than before: entries that are gone, and values that are larger, however they came to be.
#[must_use]
pub fn worse(before: &Lock, own: &Lock, file: &str) -> Vec<EditedLimit> {
    let edit = |key: &Key, limit: String, was: Option<Bytes>, is: Option<Bytes>| EditedLimit {
        model: Some(key.model.clone()),
        limit,
        before: was.map(|bytes| format!("{} B", count(bytes.0))),
        after: is.map(|bytes| format!("{} B", count(bytes.0))),
        file: file.to_owned(),
        line: None,
        loosens: true,
    };
    let worse = before.entries().filter_map(|(key, entry)| {
        let Some(own) = own.get(key) else {
            return Some(edit(
                key,
                format!("baseline on {}", key.gpu),
                entry.peaks.warm.live,
                None,
            ));
        };
        let mut pairs = entry.peaks.figures().into_iter().zip(own.peaks.figures());
        let is_worse = |(was, is): &(Option<Bytes>, Option<Bytes>)| match (was, is) {
            (Some(was), Some(is)) => is > was,
            (was, is) => was.is_some() && is.is_none(),
        };
        let (before, after) = pairs.find(|((.., was), (.., is))| is_worse(&(*was, *is)))?;
        let limit = format!("baseline on {}, {}", key.gpu, metric_name(before.0, before.1));
        Some(edit(key, limit, before.2, after.2))
    });
    worse.collect()
}

/// A failure for each edit that lets more through, and for each file of the base that cannot be compared with.
#[must_use]
pub fn denied(edits: &[EditedLimit], unreadable: &[Skipped], report: &Report, gpu: &str) -> Vec<Verdict> {
    let verdict = |model: Option<&str>, message: String, file: Option<&str>, line: Option<u32>| {
        let is_meant = |run: &&Run| model.is_some_and(|model| model == run.name() || model == run.full_name());
        let run = report.runs.iter().find(is_meant);
        Verdict {
            package: run.map_or_else(|| "budgets".to_owned(), |run| run.package.clone()),
            model: model.unwrap_or("defaults").to_owned(),
            mode: Mode::Estimate,
            gpu: gpu.to_owned(),
            card: None,
            pass: None,
            metric: None,
            rule: Rule::Edit,
            limit: None,
            limit_written: None,
            actual: None,
            baseline: None,
            allowed: None,
            status: Status::Fail,
            message,
            file: file.map(str::to_owned),
            line,
            column: None,
        }
    };
    let none = || "none".to_owned();
    let edits = edits.iter().filter(|edit| edit.loosens).map(|edit| {
        let message = format!(
            "this change edits its own limit in {}: {} from {} to {}; {APPROVE}",
            edit.file,
            edit.limit,
            edit.before.clone().unwrap_or_else(none),
            edit.after.clone().unwrap_or_else(none),
        );
        verdict(edit.model.as_deref(), message, Some(&edit.file), edit.line)
    });
    let unreadable = unreadable.iter().map(|skipped| {
        let message = format!(
            "{} cannot be compared with the base: {}; {APPROVE}",
            skipped.what, skipped.why
        );
        verdict(None, message, None, None)
    });
    edits.chain(unreadable).collect()
}
