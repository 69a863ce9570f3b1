//! Accepts the values of a report as the new baseline.

use super::{BaselineEntry, BaselineFile, BaselineKey};
use crate::bytes::Bytes;
use crate::report::{Peaks, Report, Run};

/// The result of accepting one run, or of removing one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The entry is new or changed.
    Written {
        /// The key of the entry.
        key: BaselineKey,
        /// The entry before, if there was one.
        before: Option<BaselineEntry>,
    },
    /// The entry is unchanged.
    Same(BaselineKey),
    /// The entry was removed because its model no longer exists.
    Removed(BaselineKey),
    /// The run was not accepted: it has no usable values, or it is not an improvement.
    Refused {
        /// The key of the entry.
        key: BaselineKey,
        /// The reason.
        why: String,
        /// Whether the run is unusable. False if only `--only-improvements` excludes it.
        is_wrong: bool,
    },
}

impl BaselineFile {
    /// Accepts the values of every finished run of a report. With `only_improvements`, accepts only runs that improved.
    pub fn accept(&mut self, report: &Report, only_improvements: bool) -> Vec<Accepted> {
        let accept = |run: &Run| self.accept_run(run, report.tool.fingerprint.raw(), only_improvements);
        report.runs.iter().map(accept).collect()
    }

    fn accept_run(&mut self, run: &Run, fingerprint: &str, only_improvements: bool) -> Accepted {
        let key = BaselineKey::from_run(run);
        let refused = |key, why: &str, is_wrong| Accepted::Refused {
            key,
            why: why.to_owned(),
            is_wrong,
        };
        // The peaks of a run that ended early are only those until then, so every complete run would look
        // like growth.
        if let Some(error) = &run.error {
            return refused(key, &format!("the run ended early (`{}`)", error.code), true);
        }
        if run.oom.is_some() {
            return refused(key, "the run ran out of memory", true);
        }
        if !run.what_if.is_none() {
            return refused(
                key,
                "the run is a what-if, which does not show what the model needs",
                true,
            );
        }
        if run
            .measurement
            .as_ref()
            .is_some_and(|measurement| measurement.limit.is_some())
        {
            return refused(
                key,
                "the GPU's memory was limited, which does not show what the model needs",
                true,
            );
        }
        let entry = BaselineEntry::from_run(run, fingerprint);
        if !is_writable(&entry) {
            return refused(
                key,
                "the run has no value for warm live or reserved memory, or a name or number that the file cannot store",
                true,
            );
        }
        let before = self.get(&key).cloned();
        if before.as_ref() == Some(&entry) {
            return Accepted::Same(key);
        }
        if only_improvements {
            match &before {
                None => return refused(key, "the entry is new, so it is not an improvement", false),
                Some(before) if !improves(&before.peaks, &entry.peaks) => {
                    return refused(key, "it is not an improvement", false);
                }
                Some(_) => {}
            }
        }
        self.insert(key.clone(), entry);
        Accepted::Written { key, before }
    }

    /// Removes the entries for which `is_there` is false, and returns them.
    pub fn remove_gone(&mut self, is_there: impl Fn(&BaselineKey) -> bool) -> Vec<Accepted> {
        let mut gone = Vec::new();
        self.retain(|key| {
            let stays = is_there(key);
            if !stays {
                gone.push(Accepted::Removed(key.clone()));
            }
            stays
        });
        gone
    }
}

/// Whether an entry can be compared, and can be written and read without a change.
///
/// TOML numbers are below 2⁶³, and a text must be one line.
fn is_writable(entry: &BaselineEntry) -> bool {
    let mut names = [&entry.burn, &entry.rests_on].into_iter();
    let peaks = [entry.peaks.warm, entry.peaks.cold].map(|peak| [peak.live, peak.reserved, peak.process]);
    let bytes = peaks.into_iter().flatten().flatten().map(|bytes| bytes.0);
    let mut numbers = bytes.chain(entry.inputs.values().copied()).chain(entry.parameters);
    // Without these values, no run can be compared with the entry.
    let is_comparable = entry.peaks.warm.live.is_some() && entry.peaks.warm.reserved.is_some();
    is_comparable
        && names.all(|name| !name.raw().contains(char::is_control))
        && numbers.all(|number| i64::try_from(number).is_ok())
}

/// Whether no value is larger, and at least one is smaller.
fn improves(before: &Peaks, after: &Peaks) -> bool {
    let figures = |peaks: &Peaks| -> Vec<Option<Bytes>> {
        [peaks.warm, peaks.cold]
            .iter()
            .flat_map(|peak| [peak.live, peak.reserved, peak.process])
            .collect()
    };
    let (before, after) = (figures(before), figures(after));
    let mut pairs = before.iter().zip(&after);
    // A value that is now unknown is not an improvement.
    let is_kept = |(before, after): (&Option<Bytes>, &Option<Bytes>)| before.is_some() == after.is_some();
    pairs.clone().all(is_kept)
        && pairs.clone().all(|(before, after)| after <= before)
        && pairs.any(|(before, after)| after < before)
}
