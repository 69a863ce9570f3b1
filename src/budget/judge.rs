//! Compares runs with budgets.

#[cfg(unix)]
mod build;
mod drift;
mod growth;
mod words;

#[cfg(unix)]
pub use build::judge_build;

use super::source::{SourcePosition, Span, Spanned};
use super::types::{Budgets, GpuLimitsEntry, Limit, ModelBudget, ModelLimits};
use crate::bytes::Bytes;
use crate::report::words::{of_gpu, pass_name};
use crate::report::{
    ENOUGH_EPOCHS, ENOUGH_STEPS, GrowingEpochs, Metric, Oom, OrderMemory, Pass, Peak, Peaks, Rule, Run, Skipped,
    SkippedCheck, Status, Trend, Verdict,
};
use words::{advice, ended_early, place, qualifier};

/// Compares each run with its budget, its baseline and its estimate, and returns the verdicts.
///
/// There is one verdict per limit, per leak, per "out of memory" and per run without limits. A run with a baseline also
/// has verdicts on its growth, and a measurement has verdicts on its distance from the estimate.
///
/// `file` is the budget file, relative to the workspace root. A value is over its limit only if it is larger than the
/// limit.
///
/// A run that died can show that a limit was exceeded, but not that it was kept: in the second case the verdict is
/// [`Status::Error`]. A pass that ran out of memory has only that verdict, and verdicts on limits that it had exceeded.
///
/// Measurements and estimates have the same limits, those of their GPU. An estimated process value with an assumed
/// context size never fails: it only warns.
#[must_use]
pub fn judge(runs: &[Run], budgets: &Budgets, file: &str) -> Vec<Verdict> {
    judge_since(runs, budgets, file, None)
}

/// Same as [`judge`], for runs whose baselines may come from the base `revision`. Messages then name it.
#[must_use]
pub fn judge_since(runs: &[Run], budgets: &Budgets, file: &str, revision: Option<&str>) -> Vec<Verdict> {
    runs.iter()
        .flat_map(|run| {
            let judge = Judge {
                run,
                budgets,
                file,
                revision,
            };
            let mut verdicts = judge.verdicts();
            verdicts.extend(judge.growth());
            verdicts.extend(judge.drift(runs));
            verdicts
        })
        .collect()
}

/// Returns the skipped leak detection if any finished run had fewer than [`ENOUGH_STEPS`] steps.
#[must_use]
pub fn unjudged(runs: &[Run]) -> Option<Skipped> {
    let ended = runs.iter().filter(|run| run.error.is_none() && run.oom.is_none());
    let few_epochs = |run: &Run| !run.epochs.is_empty() && run.count_epochs() < ENOUGH_EPOCHS;
    let few_steps = |run: &Run| matches!(run.trend(), Trend::Unknown { .. });
    // Different models may need different things.
    let needs = [
        (
            ended.clone().any(|run| run.epochs.is_empty() && few_steps(run)),
            format!("`--steps {ENOUGH_STEPS}`"),
        ),
        (
            ended.clone().any(few_epochs),
            format!("`epochs: {ENOUGH_EPOCHS}` in the inputs of the budget"),
        ),
        (
            ended
                .clone()
                .any(|run| run.count_epochs() >= ENOUGH_EPOCHS && few_steps(run)),
            format!("{ENOUGH_STEPS} steps per epoch"),
        ),
    ];
    let needed: Vec<_> = needs
        .into_iter()
        .filter_map(|(is_needed, what)| is_needed.then_some(what))
        .collect();
    (!needed.is_empty()).then(|| Skipped {
        check: SkippedCheck::Leaks,
        model: None,
        why: format!("needs {}", needed.join(", and ")).into(),
    })
}

struct Judge<'a> {
    run: &'a Run,
    budgets: &'a Budgets,
    file: &'a str,
    /// The base revision, if there is one. Messages name it as the origin of its baselines.
    revision: Option<&'a str>,
}

impl Judge<'_> {
    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = self.run.oom.iter().map(|oom| self.out_of_memory(oom)).collect();
        verdicts.extend(self.leak());
        verdicts.extend(self.leaks_by_size());
        verdicts.extend(self.growing_epochs());
        match self.budget() {
            Some(budget) => self.limits(budget, &mut verdicts),
            None => verdicts.push(Verdict {
                file: Some(self.file.into()),
                ..self.verdict(
                    Rule::Budget,
                    Status::Warn,
                    format!("`{}` has no budget in {}", self.name(), self.file),
                )
            }),
        }
        verdicts
    }

    /// Returns a failure per metric that grows from epoch to epoch. No budget can allow that.
    fn growing_epochs(&self) -> Vec<Verdict> {
        let failure = |growing: GrowingEpochs| {
            let mut message = growing.summary();
            // Pools of threads hold no tensor at the end.
            if growing.metric == Metric::Live {
                message += &self.to_see_tensors("");
            }
            Verdict {
                pass: Some(Pass::Traced),
                metric: Some(growing.metric),
                actual: growing.ends.last().copied(),
                ..self.verdict(Rule::Leak, Status::Fail, message)
            }
        };
        self.run.growing_epochs().into_iter().map(failure).collect()
    }

    /// Names the command that lists the tensors of a leak.
    fn to_see_tensors(&self, options: &str) -> String {
        let (name, package) = (self.name(), &self.run.package);
        format!("; to see the tensors, run `cargo vram explain {name} -p {package} --leak{options}`")
    }

    /// Returns a failure if live memory grows from step to step. No budget can allow a leak.
    fn leak(&self) -> Option<Verdict> {
        let Trend::Growing(growing) = self.run.trend() else {
            return None;
        };
        let last = growing.steps.last().copied()?;
        let mut message = growing.summary(&of_gpu(growing.gpu_number), |bytes| bytes.to_string());
        let of_order = self.run.of_order();
        message += &of_order;
        // `cargo vram explain` supports models on one GPU only, and only the largest sizes.
        if growing.gpu_number.is_none() && of_order.is_empty() {
            let steps = match self.run.epochs.is_empty() {
                true => format!(" --steps {}", growing.steps.len()),
                // The data decides how many steps an epoch has.
                false => String::new(),
            };
            message += &self.to_see_tensors(&steps);
        }
        Some(Verdict {
            gpu_number: growing.gpu_number,
            pass: Some(Pass::Traced),
            metric: Some(Metric::Live),
            actual: Some(last),
            ..self.verdict(Rule::Leak, Status::Fail, message)
        })
    }

    /// Returns a failure per order in which live memory grows from one round of the sizes to the next.
    fn leaks_by_size(&self) -> Vec<Verdict> {
        let orders = self.run.varying.iter().flat_map(|varying| &varying.orders);
        let failure = |order: &OrderMemory| {
            let least = order.leak_per_round?;
            let message = format!(
                "with {} sizes, live memory grows by at least {least} from each step to the step with the same size \
                 one round later",
                order.order.name()
            );
            Some(Verdict {
                pass: Some(Pass::Traced),
                metric: Some(Metric::Live),
                ..self.verdict(Rule::Leak, Status::Fail, message)
            })
        };
        orders.filter_map(failure).collect()
    }

    fn budget(&self) -> Option<&ModelBudget> {
        let run = self.run;
        // A model may have several budgets with different inputs. The run has the name of the one that it ran
        // for.
        self.budgets
            .for_model(&run.package, &run.model)
            .into_iter()
            .find(|budget| budget.name.value == self.name())
    }

    /// Returns the name of the run's budget.
    fn name(&self) -> &str {
        self.run.name()
    }

    fn limits(&self, budget: &ModelBudget, verdicts: &mut Vec<Verdict>) {
        let gpu = &self.run.gpu.id;
        let declared = self.budgets.gpu.as_ref().map(|gpu| gpu.value.as_str());
        verdicts.extend(
            budget
                .numbered_gpus
                .iter()
                .flat_map(|(gpu, limits)| self.gpu(*gpu, limits)),
        );
        // Limits of another GPU do not apply, so without its own limits a run is reported as unchecked.
        let Some(limits) = budget.limits_on(gpu, declared) else {
            if !budget.numbered_gpus.is_empty() {
                verdicts.extend(self.unjudged_gpus(budget));
                return;
            }
            let message = format!(
                "`{}` has no limits for the GPU `{gpu}`, so it was not checked",
                self.name()
            );
            verdicts.push(self.written_at(budget.name.span, self.verdict(Rule::Budget, Status::Warn, message)));
            return;
        };
        verdicts.extend(self.figures(None, limits, &self.run.peaks));
    }

    /// Compares one of several GPUs with its limits.
    fn gpu(&self, gpu: u32, limits: &Spanned<GpuLimitsEntry>) -> Vec<Verdict> {
        if let Some(on) = self.run.gpus.iter().find(|on| on.gpu_number == gpu) {
            return self.figures(Some(gpu), &limits.value, &on.peaks);
        }
        // A model on one GPU has no list of GPUs: its values are those of GPU 0.
        if gpu == 0 && self.run.gpus.is_empty() {
            return self.figures(None, &limits.value, &self.run.peaks);
        }
        let message = match self.unfinished() {
            Some(why) => format!("GPU {gpu} cannot be checked: {why}"),
            None => format!(
                "the budget has limits for GPU {gpu}, but the model runs on {}",
                match self.run.gpus.len() {
                    0 | 1 => "one GPU, which is GPU 0".to_owned(),
                    several => format!("{several} GPUs, numbered from 0"),
                }
            ),
        };
        // A limit that applies to no GPU must not pass silently.
        let verdict = Verdict {
            gpu_number: Some(gpu),
            ..self.verdict(Rule::Budget, Status::Error, message)
        };
        vec![self.written_at(limits.span, verdict)]
    }

    /// Returns a warning per GPU that has no limits in the budget.
    fn unjudged_gpus(&self, budget: &ModelBudget) -> Vec<Verdict> {
        let is_judged = |gpu: &u32| {
            budget
                .numbered_gpus
                .get(gpu)
                .is_some_and(|limits| !limits.value.is_empty())
        };
        let numbers: Vec<u32> = match self.run.gpus.as_slice() {
            [] => vec![0],
            gpus => gpus.iter().map(|on| on.gpu_number).collect(),
        };
        let warn = |gpu: u32| {
            let message = format!(
                "`{}` has no limits for GPU {gpu}, so GPU {gpu} was not checked",
                self.name()
            );
            let verdict = Verdict {
                gpu_number: Some(gpu),
                ..self.verdict(Rule::Budget, Status::Warn, message)
            };
            self.written_at(budget.name.span, verdict)
        };
        numbers.into_iter().filter(|gpu| !is_judged(gpu)).map(warn).collect()
    }

    /// Compares the peaks of a GPU with its limits. Without `gpu`, the peaks are those of the GPU that holds the most.
    fn figures(&self, gpu: Option<u32>, limits: &GpuLimitsEntry, peaks: &Peaks) -> Vec<Verdict> {
        let passes = [
            (Pass::Warm, &limits.warm, &peaks.warm),
            (Pass::Cold, &limits.cold, &peaks.cold),
        ];
        let verdicts = passes.into_iter().flat_map(|(pass, limits, peak)| {
            let metrics = Metric::ALL.into_iter();
            metrics.filter_map(move |metric| self.limit(gpu, (pass, metric), limits, peak))
        });
        verdicts.collect()
    }

    fn limit(
        &self,
        gpu: Option<u32>,
        (pass, metric): (Pass, Metric),
        limits: &ModelLimits,
        peak: &Peak,
    ) -> Option<Verdict> {
        let limit = limits.get(metric)?;
        // The limit to report if no limit is exceeded.
        let last = limit.fail.or(limit.warn)?;
        let of = of_gpu(gpu);
        let figure = format!(
            "{} {} memory{of}{}",
            pass_name(pass),
            metric.name(),
            qualifier(self.run, metric)
        );
        let actual = peak.get(metric);
        let (status, decided, message) = match actual {
            Some(actual) => match over(limit, actual) {
                Some((status, decided)) => {
                    let (status, message) = self.exceeded(metric, &figure, actual, status, decided);
                    (status, decided, message)
                }
                // The out-of-memory verdict stands for this pass.
                None if self.ended_in(pass) => return None,
                // The peak of a run that died is only a lower bound: it can exceed a limit, but not prove
                // that it was kept.
                None => match self.unfinished() {
                    Some(why) => (
                        Status::Error,
                        last,
                        format!("{figure} cannot be checked: {why} after a peak of {actual}"),
                    ),
                    None => (
                        Status::Pass,
                        last,
                        format!(
                            "{figure} is {actual}, within its limit of {}",
                            self.budgets.as_written(last)
                        ),
                    ),
                },
            },
            // A pass without values after an out of memory needs no second verdict.
            None if self.run.oom.is_some() => return None,
            None => {
                let why = self
                    .unfinished()
                    .unwrap_or_else(|| "the run has no value for it".to_owned());
                (Status::Error, last, format!("{figure} cannot be checked: {why}"))
            }
        };
        let verdict = Verdict {
            gpu_number: gpu,
            pass: Some(pass),
            metric: Some(metric),
            limit: Some(decided.value),
            limit_written: Some(self.budgets.as_written(decided).into()),
            actual,
            ..self.verdict(Rule::Budget, status, message)
        };
        Some(self.written_at(decided.span, verdict))
    }

    /// Returns the status and message of an exceeded limit. It only warns if the process value has an assumed context.
    fn exceeded(
        &self,
        metric: Metric,
        figure: &str,
        actual: Bytes,
        status: Status,
        limit: Spanned<Bytes>,
    ) -> (Status, String) {
        let kind = if status == Status::Warn {
            "warning limit"
        } else {
            "limit"
        };
        let by = actual.saturating_sub(limit.value);
        let written = self.budgets.written_size(limit);
        // For a decimal limit, show both units: binary as in the table, and decimal to compare with the limit.
        let (actual, by) = match written.is_decimal {
            true => (format!("{actual} ({})", actual.decimal()), by.decimal()),
            false => (actual.to_string(), by.to_string()),
        };
        let message = format!("{figure} is {actual}, {by} over its {kind} of {}", written.text);
        match advice(self.run).filter(|_| metric == Metric::Process && status == Status::Fail) {
            Some(advice) => (Status::Warn, format!("{message}; {advice}")),
            None => (status, message),
        }
    }

    fn ended_in(&self, pass: Pass) -> bool {
        self.run.oom.as_ref().is_some_and(|oom| oom.pass == pass)
    }

    fn unfinished(&self) -> Option<String> {
        ended_early(self.run).map(|why| format!("the {why}"))
    }

    fn out_of_memory(&self, oom: &Oom) -> Verdict {
        let Oom {
            requested,
            reserved,
            available,
            function,
            tensor,
            ..
        } = oom;
        let wanted = match (requested, function) {
            (Some(requested), _) => format!("the model requested {requested}"),
            (None, Some(function)) => format!("{function} failed"),
            (None, None) => "an allocation failed".to_owned(),
        };
        // Burn never asks the driver for such a tensor, so the GPU may have room. Without this rule, the
        // message would contradict itself.
        let rule = tensor.as_ref().map_or_else(String::new, |tensor| {
            format!(
                "; Burn allocates at most {} for one tensor, a quarter of the GPU's memory",
                tensor.largest
            )
        });
        let which = oom.gpu_number.map_or_else(String::new, |gpu| format!("GPU {gpu}, "));
        let message = format!(
            "out of memory on {which}`{}` {}{}: {wanted}, with {reserved} reserved and {available} free{rule}",
            self.run.gpu.id,
            place(oom),
            self.run.of_order(),
        );
        Verdict {
            gpu_number: oom.gpu_number,
            pass: Some(oom.pass),
            limit: Some(self.run.gpu.available_bytes),
            actual: requested
                .and_then(|requested| reserved.0.checked_add(requested.0))
                .map(Bytes),
            ..self.verdict(Rule::Oom, Status::Fail, message)
        }
    }

    fn written_at(&self, span: Span, verdict: Verdict) -> Verdict {
        let SourcePosition { line, column } = self.budgets.position(span);
        Verdict {
            file: Some(self.file.into()),
            line: Some(line),
            column: Some(column),
            ..verdict
        }
    }

    fn verdict(&self, rule: Rule, status: Status, message: String) -> Verdict {
        self.run.verdict(rule, status, message)
    }
}

/// Returns the most severe limit that a value exceeds.
fn over(limit: &Limit<Bytes>, actual: Bytes) -> Option<(Status, Spanned<Bytes>)> {
    let exceeded = |limit: Option<Spanned<Bytes>>| limit.filter(|limit| actual > limit.value);
    exceeded(limit.fail)
        .map(|fail| (Status::Fail, fail))
        .or_else(|| exceeded(limit.warn).map(|warn| (Status::Warn, warn)))
}

#[cfg(test)]
pub(super) mod tests;
