//! What would take less: the model, run with each change.

use super::explanation::Stage;
use super::terminal::Turns;
use super::what_if::announce_build;
use super::{Stopped, cases};
use crate::bytes::Bytes;
use crate::explain::{Category, Certainty, Explanation, Saving, Tensor};
use crate::protocol::{Float, Optimizer, Phase, Task, WhatIf};
use crate::report::Run;
use crate::run::Case;
use crate::workspace::CHECKPOINTING;

/// What that is called.
const CHECKPOINTED: &str = "checkpointing (balanced)";
/// The change with which a model is only looked at.
const NO_GRADIENTS: &str = "no-gradients";

/// A change to try.
struct Change {
    code: &'static str,
    change: String,
    cost: &'static str,
    case: Case,
}

/// Runs every change that applies to this model.
pub(super) fn run(stage: &Stage<'_>, case: &Case, now: &Explanation) -> Result<Vec<Saving>, Stopped> {
    let mut savings = Vec::new();
    let changes = changes(case, &now.run);
    let is_possible = stage.prepared.source.checkpoints(&case.model.built.target);
    let checkpoints = now.run.task == Some(Task::Train) && is_possible;
    let mut turns = Turns::new(stage.loudness, changes.len() + usize::from(checkpoints));
    for change in changes {
        turns.begin(&change.change);
        let run = stage.run(&change.case, None)?;
        savings.push(saving(&change, &run, now));
    }
    if checkpoints {
        turns.begin(CHECKPOINTED);
        savings.push(checkpointing(stage, case, now)?);
    }
    // The largest first, and what could not be told last; after those for training what is none.
    savings.sort_by_key(|saving| (saving.code == NO_GRADIENTS, std::cmp::Reverse(saving.saved_live)));
    Ok(savings)
}

fn changes(case: &Case, run: &Run) -> Vec<Change> {
    let trains = run.task == Some(Task::Train);
    let plain = |code, change: &str, cost, what_if| Change {
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
        // Halves of small numbers are other models.
        if *value < 2 {
            continue;
        }
        let mut smaller = case.clone();
        smaller.inputs.insert(name.clone(), value / 2);
        let (code, cost) = match (name.as_str(), trains) {
            ("batch_size", true) => (
                "smaller-batch",
                "two steps for each of the optimizer, whose gradients are added up",
            ),
            ("batch_size", false) => ("smaller-batch", "twice as many batches"),
            _ => ("smaller-input", "what the model sees"),
        };
        changes.push(Change {
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
            "it may converge more slowly",
            stateless,
        ));
        let validation = WhatIf {
            infer: true,
            ..WhatIf::default()
        };
        changes.push(plain(
            NO_GRADIENTS,
            "validation without gradients",
            "no training: for validation only",
            validation,
        ));
    }
    changes
}

/// The most that a category holds.
fn most(now: &Explanation, category: Category) -> Bytes {
    let samples = now.timeline.of(category).iter().zip(0_u32..);
    samples
        .max_by_key(|(bytes, _)| **bytes)
        .map_or(Bytes(0), |(_, sample)| held(now, category, sample))
}

/// What a category holds when the last step goes forward, with nothing of the step's own there yet.
fn kept(now: &Explanation, category: Category) -> Bytes {
    let borders = &now.timeline.borders;
    let forward = borders.iter().rfind(|border| border.phase == Phase::Forward);
    forward.map_or(Bytes(0), |border| held(now, category, border.sample))
}

/// The memory of a category's tensors at a moment, alignment included.
fn held(now: &Explanation, category: Category, sample: u32) -> Bytes {
    let is_there = |tensor: &&Tensor| {
        tensor.category == category && tensor.born <= sample && tensor.died.is_none_or(|died| died > sample)
    };
    now.tensors.iter().filter(is_there).map(|tensor| tensor.bytes).sum()
}

fn saving(change: &Change, run: &Run, now: &Explanation) -> Saving {
    let mut saving = told(change.code, &change.change, change.cost, run, now);
    if saving.certainty == Certainty::Unknown {
        return saving;
    }
    // What stays beside it, that such a run does not have.
    let beside = match change.code {
        "smaller-batch" if run.task == Some(Task::Train) => Some((
            most(now, Category::Gradient),
            "gradients added up, which stay from one half to the other",
        )),
        NO_GRADIENTS => Some((
            kept(now, Category::OptimizerState),
            "the optimizer's state, which stays",
        )),
        _ => None,
    };
    if let Some((bytes, what)) = beside.filter(|(bytes, _)| *bytes > Bytes(0)) {
        saving.live = saving.live.map(|live| live + bytes);
        saving.saved_live = saving.live.map(|live| now.peak.live.less(live));
        (saving.reserved, saving.saved_reserved) = (None, None);
        saving.certainty = Certainty::Timeline;
        saving.note = Some(format!("a run with it, and {bytes} of {what}"));
    }
    saving
}

fn checkpointing(stage: &Stage<'_>, case: &Case, now: &Explanation) -> Result<Saving, Stopped> {
    let (change, cost) = (CHECKPOINTED, "forward is computed again in part");
    let model = if case.model.built.target.explains_in_every_build() {
        case.model.clone()
    } else {
        announce_build(&stage.prepared.source, &[CHECKPOINTING], stage.loudness);
        let models = stage.models(&stage.asked.packages.with_feature(CHECKPOINTING))?;
        let Some(model) = cases::same(&case.model, &models) else {
            let problem = models.problems.first();
            let why = problem.map_or("it is not declared when built so", |problem| &problem.message);
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
        code: code.to_owned(),
        change: change.to_owned(),
        live: None,
        reserved: None,
        saved_live: None,
        saved_reserved: None,
        cost: cost.to_owned(),
        certainty: Certainty::Unknown,
        note: Some(why.to_owned()),
    }
}

fn told(code: &str, change: &str, cost: &str, run: &Run, now: &Explanation) -> Saving {
    let peak = &run.peaks.warm;
    let (Some(live), Some(reserved), None, None) = (peak.live, peak.reserved, &run.error, &run.oom) else {
        let why = match (&run.error, &run.oom) {
            (Some(error), _) => error.message.clone(),
            (None, Some(_)) => "it runs out of memory all the same".to_owned(),
            (None, None) => "it has no figures".to_owned(),
        };
        return unknown(code, change, cost, &why);
    };
    Saving {
        code: code.to_owned(),
        change: change.to_owned(),
        live: Some(live),
        reserved: Some(reserved),
        saved_live: Some(now.peak.live.less(live)),
        saved_reserved: now.run.peaks.warm.reserved.map(|before| before.less(reserved)),
        cost: cost.to_owned(),
        certainty: Certainty::Run,
        note: None,
    }
}
