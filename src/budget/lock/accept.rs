//! Accepts the figures of a report.

use super::{Entry, Key, Lock};
use crate::bytes::Bytes;
use crate::report::{Peaks, Report, Run};

/// What became of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is new, or has other figures than before.
    Written {
        /// Of what.
        key: Key,
        /// What was accepted before.
        before: Option<Entry>,
    },
    /// It is as it was.
    Same(Key),
    /// Its model is gone.
    Removed(Key),
    /// The run has no figures to accept, or not those that were asked for.
    Refused {
        /// Of what.
        key: Key,
        /// Why.
        why: String,
        /// Whether the run is at fault, rather than what was asked for.
        is_wrong: bool,
    },
}

impl Lock {
    /// Accepts the figures of every run that has all of them; of improvements alone, where that is asked for.
    pub fn accept(&mut self, report: &Report, only_improvements: bool) -> Vec<Accepted> {
        let accept = |run: &Run| self.accept_run(run, &report.tool.fingerprint, only_improvements);
        report.runs.iter().map(accept).collect()
    }

    fn accept_run(&mut self, run: &Run, fingerprint: &str, only_improvements: bool) -> Accepted {
        let key = Key::of(run);
        let refused = |key, why: &str, is_wrong| Accepted::Refused {
            key,
            why: why.to_owned(),
            is_wrong,
        };
        if let Some(error) = &run.error {
            return refused(key, &format!("its run ended early (`{}`)", error.code), true);
        }
        if run.oom.is_some() {
            return refused(key, "it ran out of memory", true);
        }
        if !run.what_if.is_none() {
            return refused(key, "it is a what-if, and not what the model needs", true);
        }
        let entry = Entry::of(run, fingerprint);
        if !is_writable(&key, &entry) {
            return refused(
                key,
                "it has no warm live or reserved, or a name or number that the file cannot hold",
                true,
            );
        }
        let before = self.get(&key).cloned();
        if before.as_ref() == Some(&entry) {
            return Accepted::Same(key);
        }
        if only_improvements {
            match &before {
                None => return refused(key, "it is new, and no improvement", false),
                Some(before) if !improves(&before.peaks, &entry.peaks) => {
                    return refused(key, "it is no improvement", false);
                }
                Some(_) => {}
            }
        }
        self.insert(key.clone(), entry);
        Accepted::Written { key, before }
    }

    /// Leaves out what is of models that are no more.
    pub fn remove_gone(&mut self, is_there: impl Fn(&Key) -> bool) -> Vec<Accepted> {
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

/// Whether it has what is compared, and is read again as it was written: TOML has numbers up to 2⁶³, and a name is one line.
fn is_writable(key: &Key, entry: &Entry) -> bool {
    let names = [&key.package, &key.model, &key.gpu, &entry.burn, &entry.rests_on];
    let mut names = names.into_iter().chain(entry.inputs.keys());
    let peaks = [entry.peaks.warm, entry.peaks.cold].map(|peak| [peak.live, peak.reserved, peak.process]);
    let bytes = peaks.into_iter().flatten().flatten().map(|bytes| bytes.0);
    let mut numbers = bytes.chain(entry.inputs.values().copied()).chain(entry.parameters);
    // Without these nothing could be compared with it.
    let is_comparable = entry.peaks.warm.live.is_some() && entry.peaks.warm.reserved.is_some();
    is_comparable
        && names.all(|name| !name.contains(char::is_control))
        && numbers.all(|number| i64::try_from(number).is_ok())
}

/// Whether no figure is larger, and one is smaller.
fn improves(before: &Peaks, after: &Peaks) -> bool {
    let figures = |peaks: &Peaks| -> Vec<Option<Bytes>> {
        [peaks.warm, peaks.cold]
            .iter()
            .flat_map(|peak| [peak.live, peak.reserved, peak.process])
            .collect()
    };
    let (before, after) = (figures(before), figures(after));
    let mut pairs = before.iter().zip(&after);
    // What is no longer known did not become less.
    let is_kept = |(before, after): (&Option<Bytes>, &Option<Bytes>)| before.is_some() == after.is_some();
    pairs.clone().all(is_kept)
        && pairs.clone().all(|(before, after)| after <= before)
        && pairs.any(|(before, after)| after < before)
}
