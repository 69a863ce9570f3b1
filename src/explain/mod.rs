//! Explanations: where a model's memory goes, found from a trace. Layers, categories, phases, tensors, lines, leaks and
//! savings.

mod blocks;
mod calls;
mod categories;
mod changed;
mod compare;
mod held;
mod layers;
mod lines;
mod links;
mod memory;
mod phases;
mod refused;
#[cfg(test)]
pub(crate) mod sample;
mod savings;
mod sources;
mod trace;
mod types;
mod validate;

use std::collections::{HashMap, HashSet};
use std::path::Path;

pub use changed::changed;
pub use compare::add_causes;
pub use held::MemoryHolders;
pub use types::*;
pub use validate::{MOST_BYTES, Unsound};

use self::calls::Calls;
use self::categories::CategoryOrigin;
use self::layers::Modules;
use self::memory::{Life, MemoryHistory};
use self::sources::TensorSources;
use self::trace::{ReadTrace, bare};
use crate::bytes::Bytes;
use crate::report::words::phase_name;
use crate::report::{
    Assumption, ENOUGH_EPOCHS, ENOUGH_STEPS, EpochMemory, EpochPhase, Growing, GrowthInterval, Phase, ProcessOverhead,
    Run, Step, Tool, Trend,
};
use crate::run::record::Record;
use crate::untrusted::Foreign;

/// The input of [`explain`].
#[derive(Debug)]
pub struct ExplainInput<'a> {
    /// The program that explains.
    pub tool: Tool,
    /// The git commit that was checked out.
    pub commit: Option<String>,
    /// The run, as in a report.
    pub run: Run,
    /// The trace of the run's observed pass.
    pub trace: &'a Path,
    /// The driver's record of that pass.
    pub record: &'a Record,
    /// The phases of the run's cold pass.
    pub cold: &'a [Step],
    /// The folder of the user's own code.
    pub root: &'a Path,
    /// How the layer table counts activations.
    pub activations: Activations,
    /// Whether to include source lines.
    pub lines: bool,
    /// Whether to include the savings that the timeline alone shows.
    pub savings: bool,
}

/// Explains a run from its trace.
///
/// # Errors
///
/// Returns an error if the trace cannot be read.
pub fn explain(mut of: ExplainInput<'_>) -> std::io::Result<Explanation> {
    let trace = ReadTrace::read(of.trace)?;
    // When each tensor has memory and which operation made it decide everything below: categories, layers,
    // lines and savings.
    let memory = MemoryHistory::from_trace(&trace);
    let origins = categories::with_aliases(&memory, categories::origins(&trace));
    let gradients = categories::becoming_gradients(&trace);
    let categories = categories::categories(&trace, &memory, &origins, &gradients);
    let modules = Modules::from_trace(&trace);
    let mut calls = Calls::new(&trace, of.root);
    let first = trace.operations.iter().filter_map(|operation| operation.at.0).min();
    // A run that died before its first step has no step number. Its table is empty.
    let rows = layers::rows(&trace, &modules, &mut calls, first.unwrap_or(0));
    let layers = layers::table(&trace, &rows, &modules, &memory, &origins, of.activations);
    let timeline = timeline(&trace, &memory, &categories, &origins, of.record);
    let places = TensorSources::new(&trace, &modules, &rows, &mut calls, &origins, &gradients);
    let tensors: Vec<TensorLife> = memory
        .tensors
        .iter()
        .zip(&categories)
        .map(|(life, category)| tensor(life, *category, &memory, &origins, &places))
        .collect();
    let mut totals = layers::totals(&layers, of.run.inputs.get("batch_size").copied());
    if let Some(parameters) = of.run.parameters {
        // Parameters that no layer of the first step uses count, too.
        totals.parameters = parameters.count;
        totals.learnable = parameters.learnable;
        totals.not_learnable = parameters.count - parameters.learnable;
        totals.parameter_bytes = parameters.bytes;
        totals.total_bytes = parameters.bytes + totals.feature_bytes;
    }
    // A refused tensor never gets memory, so the report knows only its size. The trace knows the rest.
    refused::name(&mut of.run, &trace, &origins, &places, &mut calls);
    let peak = peak(&of.run, &memory, &timeline, &tensors);
    let lines = if of.lines {
        lines::lines(&trace, &memory, &origins, &mut calls)
    } else {
        Vec::new()
    };
    let savings = if of.savings {
        savings::savings(&trace, &memory, &tensors, &peak, &layers)
    } else {
        Vec::new()
    };
    Ok(Explanation {
        version: EXPLANATION_VERSION,
        tool: of.tool,
        commit: of.commit.map(Into::into),
        // The command adds these and the lines' texts: nothing in this folder asks git or reads sources.
        commit_date: None,
        dirty: None,
        partial: partial(&of.run, &trace).map(Into::into),
        activations: of.activations,
        totals,
        layers,
        peak,
        changed: Vec::new(),
        growth: None,
        phases: phases::phases(&of.run, of.cold),
        leak: leak(&of.run, &tensors, &memory),
        tensors,
        timeline,
        lines,
        stacks: places.stacks,
        texts: Vec::new(),
        savings,
        assumptions: assumptions(&trace, &of.run),
        run: of.run,
    })
}

/// Returns what the attribution depends on and nobody checked.
fn assumptions(trace: &ReadTrace, run: &Run) -> Vec<Assumption> {
    let holds = [
        (trace.belongs.is_empty(), Assumption::UnknownParameters),
        (
            // `Observed` wraps Burn's tensors only without fusion. See docs/design/explanations.md.
            run.features.is_some_and(|features| !features.fusion),
            Assumption::OtherTensorType,
        ),
        (trace.operations.is_empty(), Assumption::NoOperation),
        (
            trace.addresses.values().flatten().all(|symbol| symbol.line.is_none()),
            Assumption::NoLineNumbers,
        ),
    ];
    let holds = holds.into_iter().filter(|(holds, _)| *holds);
    holds.map(|(_, assumption)| assumption).collect()
}

/// Returns why the explanation covers less than the whole run; `None` if it covers all of it.
fn partial(run: &Run, trace: &ReadTrace) -> Option<String> {
    if let Some(oom) = &run.oom {
        let place = oom.phase.map_or_else(String::new, |phase| {
            let phase = phase_name(phase);
            oom.step.map_or_else(
                || format!(" in the {phase} phase"),
                |step| format!(" in the {phase} phase of step {step}"),
            )
        });
        return Some(format!(
            "the model ran out of memory{place}: this explanation covers the run until then"
        ));
    }
    if let Some(error) = &run.error {
        return Some(format!(
            "this explanation covers the run until its error: {}",
            error.message.raw()
        ));
    }
    trace
        .is_damaged
        .then(|| "some lines of the trace are damaged and were skipped".to_owned())
}

fn number(index: usize) -> u32 {
    // The format has `u32` indices. `Explanation::check` refuses a timeline that needs larger ones.
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn timeline(
    trace: &ReadTrace,
    memory: &MemoryHistory,
    categories: &[Category],
    origins: &HashMap<u64, CategoryOrigin<'_>>,
    record: &Record,
) -> MemoryTimeline {
    // The trace numbers kernels from 0 without gaps, so a kernel's number is its index in this list.
    let mut kernels: Vec<String> = trace.kernels.values().cloned().collect();
    let unnamed = number(kernels.len());
    // Every entry of the column `kernel` must be a valid index, so an unknown kernel has an (empty) name.
    if memory.samples.iter().any(|sample| sample.kernel.is_none()) {
        kernels.push(String::new());
    }
    let mut borders: Vec<Border> = Vec::new();
    for (index, sample) in memory.samples.iter().enumerate() {
        let (step, phase) = sample.at;
        let same = |last: &Border| (last.step, last.phase) == (step, phase);
        if !borders.last().is_some_and(same) {
            borders.push(Border {
                sample: number(index),
                step,
                phase,
            });
        }
    }
    MemoryTimeline {
        live: memory.samples.iter().map(|sample| Bytes(sample.live)).collect(),
        reserved: memory
            .samples
            .iter()
            // Reserved memory never comes from Burn's account. GPU 0, because explanations cover one GPU
            // only.
            .map(|sample| record.gpu(0).at(sample.time))
            .collect(),
        kernel: memory
            .samples
            .iter()
            .map(|sample| sample.kernel.unwrap_or(unnamed))
            .collect(),
        kernels: kernels.into_iter().map(Into::into).collect(),
        borders,
        categories: categories::over_time(memory, categories, origins)
            .into_iter()
            .map(|(category, bytes)| Series {
                category,
                bytes: bytes.into_iter().map(Bytes).collect(),
            })
            .collect(),
    }
}

fn tensor(
    life: &Life,
    category: Category,
    memory: &MemoryHistory,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
    places: &TensorSources,
) -> TensorLife {
    let origin = origins.get(&life.id);
    let bytes = memory.pieces[life.piece].bytes;
    let place = places.modules.get(&life.id);
    let (step, phase) = origin.map_or((None, Phase::Context), |origin| origin.operation.at);
    // The batch is made outside of the model. A module could only come from a wrong inference.
    let has_module = !matches!(category, Category::Input | Category::Unattributed);
    TensorLife {
        id: life.id,
        shape: origin.map(|origin| origin.made.shape.clone()).unwrap_or_default(),
        dtype: origin
            .map(|origin| origin.made.dtype.clone())
            .unwrap_or_default()
            .into(),
        // Shared memory counts once, or the tensors would add up to more than live memory. If blocks show
        // that the other tensor is gone, the memory is this tensor's alone.
        bytes: Bytes(match life.shares.is_none() || (memory.blocks && life.takes_over) {
            true => bytes,
            false => 0,
        }),
        logical: Bytes(origin.map_or(bytes, |origin| origin.made.bytes)),
        category,
        module: place
            .filter(|_| has_module)
            .map(|(path, _)| path.as_str().into())
            .filter(|path: &Foreign| !path.is_empty()),
        inferred: place.is_some_and(|(_, inferred)| *inferred),
        operation: origin
            .map(|origin| bare(&origin.operation.name).into())
            .unwrap_or_default(),
        source: places.source(life.id).cloned(),
        stack: places.stack_of.get(&life.id).copied().map(number),
        step,
        phase,
        born: number(life.born),
        died: died(life, memory).map(number),
        shares: life.shares.map(number),
    }
}

/// Returns the first sample that no longer sees a tensor's memory. For the last tensor of a piece of memory, this is
/// the end of the piece.
fn died(life: &Life, memory: &MemoryHistory) -> Option<usize> {
    let piece = &memory.pieces[life.piece];
    let is_last = piece
        .holders
        .last()
        .is_some_and(|(_, holders)| holders.iter().any(|holder| memory.tensors[*holder].id == life.id));
    // The last tensor may be gone before its memory is: a freed piece lives until a sum shows that it is
    // gone.
    if is_last { piece.died } else { life.died }
}

/// Returns the first moment with the most live bytes.
fn peak(run: &Run, memory: &MemoryHistory, timeline: &MemoryTimeline, tensors: &[TensorLife]) -> PeakMoment {
    let most = timeline.live.iter().max().copied().unwrap_or_default();
    let sample = timeline.live.iter().position(|live| *live == most).unwrap_or(0);
    let (step, phase) = memory
        .samples
        .get(sample)
        .map_or((None, Phase::Context), |sample| sample.at);
    let reserved = timeline.reserved.get(sample).copied().unwrap_or_default();
    let outside = |outside: &Option<ProcessOverhead>| outside.as_ref().map_or(Bytes(0), |one| one.bytes);
    let (context, modules) = (outside(&run.gpu.context), outside(&run.gpu.modules));
    let mut categories: Vec<CategoryBytes> = timeline
        .categories
        .iter()
        .map(|series| CategoryBytes {
            category: series.category,
            bytes: series.bytes.get(sample).copied().unwrap_or_default(),
        })
        .collect();
    categories.extend([
        CategoryBytes {
            category: Category::Fragmentation,
            // Two different accounts: reserved memory is the driver's, live memory is Burn's.
            bytes: reserved.saturating_sub(most),
        },
        CategoryBytes {
            category: Category::Context,
            bytes: context,
        },
        CategoryBytes {
            category: Category::Modules,
            bytes: modules,
        },
    ]);
    PeakMoment {
        sample: number(sample),
        step,
        phase,
        kernel: memory
            .samples
            .get(sample)
            .and_then(|sample| timeline.kernels.get(sample.kernel? as usize).cloned()),
        live: most,
        reserved,
        process: reserved + context + modules,
        categories,
        tensors: at(memory, tensors, sample),
    }
}

/// Returns the tensors that exist at a sample, the largest first.
fn at(memory: &MemoryHistory, tensors: &[TensorLife], sample: usize) -> Vec<u32> {
    let mut there: Vec<usize> = Vec::new();
    for piece in &memory.pieces {
        if piece.born > sample || piece.died.is_some_and(|died| died <= sample) {
            continue;
        }
        let holders = piece.holders.iter().rev().find(|(from, _)| *from <= sample);
        there.extend(holders.iter().flat_map(|(_, holders)| holders));
    }
    there.sort_by_key(|tensor| {
        (
            // A tensor that shares memory has 0 bytes, so its elements decide.
            std::cmp::Reverse(tensors[*tensor].bytes.max(tensors[*tensor].logical)),
            *tensor,
        )
    });
    there.into_iter().map(number).collect()
}

/// Finds the tensors that each step leaves behind, if live memory grows from step to step.
fn leak(run: &Run, tensors: &[TensorLife], memory: &MemoryHistory) -> Leaking {
    let yes = |growing, tensors| {
        Leaking::Yes(Leak {
            growing,
            tensors,
            // Only the caller can read the sources.
            keepers: Vec::new(),
        })
    };
    if let Some(growing) = run.leak_by_epoch() {
        return yes(growing, left_by_epochs(run, tensors, memory));
    }
    let epochs = run.count_epochs();
    match run.trend() {
        Trend::Growing(growing) => {
            let left = left_by_steps(&growing, tensors, memory);
            yes(growing, left)
        }
        _ if (1..ENOUGH_EPOCHS).contains(&epochs) => Leaking::Unknown {
            interval: GrowthInterval::Epoch,
            seen: number(epochs),
            needed: number(ENOUGH_EPOCHS),
        },
        // Epochs were compared. A short one has too few steps to compare those, too.
        _ if epochs > 0 => Leaking::No {
            interval: GrowthInterval::Epoch,
        },
        Trend::Unknown { steps } => Leaking::Unknown {
            interval: GrowthInterval::Step,
            seen: steps,
            needed: ENOUGH_STEPS,
        },
        Trend::Steady => Leaking::No {
            interval: GrowthInterval::Step,
        },
    }
}

/// Finds the tensors that a step leaves behind.
fn left_by_steps(growing: &Growing, tensors: &[TensorLife], memory: &MemoryHistory) -> Vec<u32> {
    // Tensors of the last step are no evidence: there was no next step that they could outlive.
    let last = growing.first_step.saturating_add(number(growing.steps.len() - 1));
    let is_left = |index: &usize| {
        let tensor = &tensors[*index];
        // Parameters, buffers and optimizer state are meant to stay.
        let is_meant_to_go = matches!(
            tensor.category,
            Category::Activation | Category::ActivationGradient | Category::Input | Category::Gradient
        );
        // The tensor outlived the step that made it.
        let outlives = |step: u32| {
            let gone = memory.tensors[*index].gone_steps;
            (growing.first_step..last).contains(&step) && gone.is_none_or(|gone| gone > step + 1)
        };
        is_meant_to_go && tensor.step.is_some_and(outlives)
    };
    largest_first((0..tensors.len()).filter(is_left).collect(), tensors)
}

/// Finds the tensors that an epoch leaves behind: they exist beyond the end of the next epoch.
///
/// The first epoch also makes what is meant to stay, so its tensors are not listed. The last epoch shows nothing. What the
/// one before it made may be replaced after the last step, as the best copy of a network is. So it is listed only if an
/// earlier epoch left a tensor of the same kind.
fn left_by_epochs(run: &Run, tensors: &[TensorLife], memory: &MemoryHistory) -> Vec<u32> {
    let parts = || run.epochs.iter().filter(|part| part.part != EpochPhase::Between);
    let end = |part: &EpochMemory| part.first_step.saturating_add(part.steps);
    let epoch_of = |step: u32| {
        let part = parts().find(|part| (part.first_step..end(part)).contains(&step));
        part.map(|part| part.epoch)
    };
    let last = parts().map(|part| part.epoch).max().unwrap_or_default();
    let all_steps = parts().map(end).max().unwrap_or_default();
    let made_in = |index: usize| tensors[index].step.and_then(epoch_of);
    // By the last step that was done before the tensor was gone.
    let outlives_next = |index: usize, epoch: u32| {
        let gone = memory.tensors[index].gone_steps;
        gone.is_none_or(|steps| epoch_of(steps.saturating_sub(1)).is_none_or(|gone| gone > epoch + 1))
    };
    let stays_to_the_end = |index: usize| memory.tensors[index].gone_steps.is_none_or(|steps| steps >= all_steps);
    let kind = |index: usize| {
        let tensor = &tensors[index];
        (
            tensor.bytes,
            &tensor.shape,
            &tensor.dtype,
            &tensor.operation,
            &tensor.source,
        )
    };
    let certain: Vec<usize> = (0..tensors.len())
        .filter(|index| made_in(*index).is_some_and(|epoch| epoch + 1 < last && outlives_next(*index, epoch)))
        .collect();
    let left_before: HashSet<_> = certain.iter().map(|index| kind(*index)).collect();
    let is_probable = |index: &usize| {
        made_in(*index) == last.checked_sub(1) && stays_to_the_end(*index) && left_before.contains(&kind(*index))
    };
    let listed = certain.iter().copied().filter(|index| made_in(*index) >= Some(2));
    largest_first(listed.chain((0..tensors.len()).filter(is_probable)).collect(), tensors)
}

fn largest_first(mut indices: Vec<usize>, tensors: &[TensorLife]) -> Vec<u32> {
    indices.sort_by_key(|index| (std::cmp::Reverse(tensors[*index].bytes), *index));
    indices.into_iter().map(number).collect()
}
