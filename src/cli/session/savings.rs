//! Finds out which changes save memory, by running the model with each change.

use super::cases;
use super::explanation::Stage;
use super::source::built_on_demand;
use crate::bytes::Bytes;
use crate::cli::error::CliError;
use crate::cli::terminal::{self, Turns};
use crate::explain::{Category, Certainty, Explanation, Saving, TensorLife};
use crate::protocol::{Float, Optimizer, Phase, Task, WhatIf};
use crate::report::Run;
use crate::run::Case;
use crate::workspace::CHECKPOINTING;

/// The name of the change to checkpointing.
const CHECKPOINTED: &str = "checkpointing (balanced)";
/// The code of the change that only validates a model.
const NO_GRADIENTS: &str = "no-gradients";

/// A change to try.
struct TriedChange {
    code: &'static str,
    change: String,
    cost: &'static str,
    case: Case,
}

/// Runs the model with every change that applies to it.
pub(in crate::cli) fn run(stage: &Stage<'_>, case: &Case, now: &Explanation) -> Result<Vec<Saving>, CliError> {
    let mut savings = Vec::new();
    let changes = changes(case, &now.run);
    // An archive has only the builds that somebody packed.
    let is_possible = stage.prepared.source.checkpoints(&case.model.built.target);
    let checkpoints = now.run.task == Some(Task::Train) && is_possible;
    let mut turns = Turns::new(changes.len() + usize::from(checkpoints));
    for change in changes {
        turns.begin(&change.change);
        let run = stage.run(&change.case, None)?;
        savings.push(saving(&change, &run, now));
    }
    if checkpoints {
        turns.begin(CHECKPOINTED);
        savings.push(checkpointing(stage, case, now)?);
    }
    // The largest saving comes first, unknown savings last. Validation comes after all of them: it does not train.
    savings.sort_by_key(|saving| (saving.code == NO_GRADIENTS, std::cmp::Reverse(saving.saved_live)));
    Ok(savings)
}

fn changes(case: &Case, run: &Run) -> Vec<TriedChange> {
    let trains = run.task == Some(Task::Train);
    let plain = |code, change: &str, cost, what_if| TriedChange {
        code,
        change: change.to_owned(),
        cost,
        case: Case {
            what_if,
            ..case.clone()
        },
    };
    let mut changes = Vec::new();
    for (name, value) in &run.inputs {
        // The model does not know a name in which a character was replaced.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            continue;
        }
        // Half of 0 or 1 is 0, which is not a smaller input.
        if *value < 2 {
            continue;
        }
        let mut smaller = case.clone();
        smaller.inputs.insert(name.to_string(), value / 2);
        let (code, cost) = match (name.as_str(), trains) {
            ("batch_size", true) => (
                "smaller-batch",
                "two batches per optimizer step, with their gradients added up",
            ),
            ("batch_size", false) => ("smaller-batch", "twice as many batches"),
            _ => ("smaller-input", "the model gets smaller inputs"),
        };
        changes.push(TriedChange {
            code,
            change: format!("{name} {} instead of {value}", value / 2),
            cost,
            case: smaller,
        });
    }
    let floats = |dtype| WhatIf {
        dtype: Some(dtype),
        ..WhatIf::default()
    };
    changes.push(plain(
        "half-precision",
        "half precision (f16)",
        "precision; losses may need scaling",
        floats(Float::F16),
    ));
    if trains {
        changes.push(plain(
            "mixed-precision",
            "mixed precision (f16)",
            "losses may need scaling",
            floats(Float::MixedF16),
        ));
        let stateless = WhatIf {
            optimizer: Some(Optimizer::Sgd),
            ..WhatIf::default()
        };
        changes.push(plain(
            "stateless-optimizer",
            "SGD without momentum",
            "the model may converge more slowly",
            stateless,
        ));
        let validation = WhatIf {
            infer: true,
            ..WhatIf::default()
        };
        changes.push(plain(
            NO_GRADIENTS,
            "validation without gradients",
            "the model is only validated, not trained",
            validation,
        ));
    }
    changes
}

/// Returns the most memory that a category holds at any time.
fn most(now: &Explanation, category: Category) -> Bytes {
    let samples = now.timeline.of(category).iter().zip(0_u32..);
    samples
        .max_by_key(|(bytes, _)| **bytes)
        .map_or(Bytes(0), |(_, sample)| held(now, category, sample))
}

/// Returns what a category holds when the forward phase of the last step begins.
fn kept(now: &Explanation, category: Category) -> Bytes {
    let borders = &now.timeline.borders;
    let forward = borders.iter().rfind(|border| border.phase == Phase::Forward);
    forward.map_or(Bytes(0), |border| held(now, category, border.sample))
}

/// Returns the memory of a category's tensors at a sample, including alignment.
fn held(now: &Explanation, category: Category, sample: u32) -> Bytes {
    let is_there = |tensor: &&TensorLife| {
        tensor.category == category && tensor.born <= sample && tensor.died.is_none_or(|died| died > sample)
    };
    now.tensors.iter().filter(is_there).map(|tensor| tensor.bytes).sum()
}

fn saving(change: &TriedChange, run: &Run, now: &Explanation) -> Saving {
    let mut saving = told(change.code, &change.change, change.cost, run, now);
    if saving.certainty == Certainty::Unknown {
        return saving;
    }
    // Real use of the change needs more memory than this run, because it keeps tensors that the run does not have.
    let beside = match change.code {
        "smaller-batch" if run.task == Some(Task::Train) => Some((
            most(now, Category::Gradient),
            "added-up gradients, which stay from one half to the next",
        )),
        NO_GRADIENTS => Some((kept(now, Category::OptimizerState), "optimizer state, which stays")),
        _ => None,
    };
    if let Some((bytes, what)) = beside.filter(|(bytes, _)| *bytes > Bytes(0)) {
        saving.live = saving.live.map(|live| live + bytes);
        saving.saved_live = saving.live.map(|live| now.peak.live.less(live));
        // Nobody has run both together, so how the allocator would place them is not known.
        // See docs/design/what-if.md.
        (saving.reserved, saving.saved_reserved) = (None, None);
        saving.certainty = Certainty::Timeline;
        saving.note = Some(format!("a run with this change, plus {bytes} of {what}").into());
    }
    saving
}

fn checkpointing(stage: &Stage<'_>, case: &Case, now: &Explanation) -> Result<Saving, CliError> {
    let (change, cost) = (CHECKPOINTED, "backward computes parts of forward again");
    // With Burn 0.21, checkpointing is another type.
    let model = if case.model.built.target.explains_in_every_build() {
        case.model.clone()
    } else {
        // The build itself is silent, and it takes minutes the first time.
        if !terminal::is_quiet() {
            terminal::remark(&built_on_demand(&[CHECKPOINTING]));
        }
        let models = stage.models(&stage.asked.packages.with_feature(CHECKPOINTING))?;
        let Some(model) = cases::same(&case.model, &models) else {
            let problem = models.problems.first();
            let why = problem.map_or("this build does not declare the model", |problem| problem.message.raw());
            return Ok(unknown("checkpointing", change, cost, why));
        };
        model
    };
    let checkpointed = Case {
        what_if: WhatIf {
            checkpointing: true,
            ..WhatIf::default()
        },
        model,
        ..case.clone()
    };
    let run = stage.run(&checkpointed, None)?;
    Ok(told("checkpointing", change, cost, &run, now))
}

fn unknown(code: &str, change: &str, cost: &str, why: &str) -> Saving {
    Saving {
        code: code.into(),
        change: change.into(),
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: cost.into(),
        certainty: Certainty::Unknown,
        note: Some(why.into()),
    }
}

fn told(code: &str, change: &str, cost: &str, run: &Run, now: &Explanation) -> Saving {
    let peak = &run.peaks.warm;
    let (Some(live), Some(reserved), None, None) = (peak.live, peak.reserved, &run.error, &run.oom) else {
        let why = match (&run.error, &run.oom) {
            (Some(error), _) => error.message.clone(),
            (None, Some(_)) => "the model still runs out of memory".into(),
            (None, None) => "the run has no live or reserved value".into(),
        };
        return unknown(code, change, cost, why.raw());
    };
    Saving {
        code: code.into(),
        change: change.into(),
        live: Some(live),
        reserved: Some(reserved),
        saved_live: Some(now.peak.live.less(live)),
        saved_reserved: now.run.peaks.warm.reserved.map(|before| before.less(reserved)),
        cost: cost.into(),
        certainty: Certainty::Run,
        note: None,
    }
}
