//! Where a model's memory goes: layers, categories, phases, tensors, lines, leaks and savings, from a trace.

mod blocks;
mod calls;
mod categories;
mod changed;
mod check;
mod layers;
mod lines;
mod links;
mod memory;
mod phases;
mod refused;
#[cfg(test)]
pub(crate) mod sample;
mod savings;
mod trace;
mod types;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

pub use changed::changed;
pub use check::{MOST_BYTES, Unsound};
pub use types::*;

use self::calls::Calls;
use self::categories::Origin;
use self::layers::{Modules, Row};
use self::memory::{Life, Memory};
use self::trace::Trace;
use crate::bytes::Bytes;
use crate::report::words::phase_name;
use crate::report::{ENOUGH_STEPS, Outside, Phase, Run, Step, Tool, Trend};
use crate::run::record::Record;

/// What an explanation is made of.
#[derive(Debug)]
pub struct Ingredients<'a> {
    /// Which program.
    pub tool: Tool,
    /// The commit that was checked out.
    pub commit: Option<String>,
    /// The run, as a report has it.
    pub run: Run,
    /// The trace of its traced pass.
    pub trace: &'a Path,
    /// The driver's record of that pass.
    pub record: &'a Record,
    /// The phases of its cold pass.
    pub cold: &'a [Step],
    /// The folder of the user's own code.
    pub root: &'a Path,
    /// How the layer table counts activations.
    pub activations: Activations,
    /// Whether lines are wanted.
    pub lines: bool,
    /// Whether savings are, as far as the timeline tells of them.
    pub savings: bool,
}

/// Explains a run.
///
/// # Errors
///
/// The trace cannot be read.
pub fn explain(mut of: Ingredients<'_>) -> std::io::Result<Explanation> {
    let trace = Trace::read(of.trace)?;
    let memory = Memory::of(&trace);
    let origins = categories::with_aliases(&memory, categories::origins(&trace));
    let gradients = categories::becoming_gradients(&trace);
    let categories = categories::categories(&trace, &memory, &origins, &gradients);
    let modules = Modules::of(&trace);
    let mut calls = Calls::new(&trace, of.root);
    let first = trace.operations.iter().filter_map(|operation| operation.at.0).min();
    let rows = layers::rows(&trace, &modules, &mut calls, first.unwrap_or(0));
    let layers = layers::table(&trace, &rows, &modules, &memory, &origins, of.activations);
    let timeline = timeline(&trace, &memory, &categories, &origins, of.record);
    let places = Places::of(&trace, &modules, &rows, &mut calls, &origins, &gradients);
    let tensors: Vec<Tensor> = memory
        .tensors
        .iter()
        .zip(&categories)
        .map(|(life, category)| tensor(life, *category, &memory, &origins, &places))
        .collect();
    let mut totals = layers::totals(&layers, of.run.inputs.get("batch_size").copied());
    if let Some(parameters) = of.run.parameters {
        // Those that no layer of the first step uses count, too.
        totals.parameters = parameters.count;
        totals.learnable = parameters.learnable;
        totals.not_learnable = parameters.count - parameters.learnable;
        totals.parameter_bytes = parameters.bytes;
        totals.total_bytes = parameters.bytes + totals.feature_bytes;
    }
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
        commit: of.commit,
        commit_date: None,
        dirty: None,
        partial: partial(&of.run, &trace),
        activations: of.activations,
        totals,
        layers,
        peak,
        changed: Vec::new(),
        phases: phases::phases(&of.run, of.cold),
        leak: leak(&of.run, &tensors, &memory),
        tensors,
        timeline,
        lines,
        texts: Vec::new(),
        savings,
        assumptions: assumptions(&trace, &of.run),
        run: of.run,
    })
}

/// What the attribution rests on.
fn assumptions(trace: &Trace, run: &Run) -> Vec<String> {
    let mut list = Vec::new();
    if trace.belongs.is_empty() {
        list.push(
            "the model's parameters are not known: a loop written by hand tells them with `step.model(&model)`; until then they \
             count as what the phase they are made in makes"
                .to_owned(),
        );
    }
    if run.features.is_some_and(|features| !features.fusion) {
        list.push(
            "without fusion, an explained model has tensors of another type: one that chooses its kernels by a tensor's `TypeId` may \
             choose others than in an estimate"
                .to_owned(),
        );
    }
    if trace.operations.is_empty() {
        list.push("the model asked Burn for no operation".to_owned());
    }
    if trace.addresses.values().flatten().all(|symbol| symbol.line.is_none()) {
        list.push("the program has no line numbers: build it with `debug = \"line-tables-only\"`".to_owned());
    }
    list
}

/// Why it is of less than the whole run.
fn partial(run: &Run, trace: &Trace) -> Option<String> {
    if let Some(oom) = &run.oom {
        let place = oom.phase.map_or_else(String::new, |phase| {
            let phase = phase_name(phase);
            oom.step
                .map_or_else(|| format!(" in {phase}"), |step| format!(" in {phase} of step {step}"))
        });
        return Some(format!(
            "the model ran out of memory{place}: what follows is what was seen until then"
        ));
    }
    if let Some(error) = &run.error {
        return Some(format!("{}: what follows is what was seen until then", error.message));
    }
    trace
        .is_damaged
        .then(|| "lines of the trace make no sense: they were left out".to_owned())
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn timeline(
    trace: &Trace,
    memory: &Memory,
    categories: &[Category],
    origins: &HashMap<u64, Origin<'_>>,
    record: &Record,
) -> Timeline {
    let mut kernels: Vec<String> = trace.kernels.values().cloned().collect();
    let unnamed = number(kernels.len());
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
    Timeline {
        live: memory.samples.iter().map(|sample| Bytes(sample.live)).collect(),
        reserved: memory
            .samples
            .iter()
            .map(|sample| record.card(0).at(sample.time))
            .collect(),
        kernel: memory
            .samples
            .iter()
            .map(|sample| sample.kernel.unwrap_or(unnamed))
            .collect(),
        kernels,
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

/// Which module each tensor belongs to, and who asked for it.
struct Places {
    /// By tensor: the module's path, and whether it was inferred.
    modules: HashMap<u64, (String, bool)>,
    /// By tensor.
    sources: HashMap<u64, Source>,
}

impl Places {
    fn of(
        trace: &Trace,
        modules: &Modules,
        rows: &[Row],
        calls: &mut Calls<'_>,
        origins: &HashMap<u64, Origin<'_>>,
        gradients: &HashMap<u64, u64>,
    ) -> Self {
        let mut known: HashMap<u64, (String, bool)> = HashMap::new();
        let own = trace.belongs.keys().map(|tensor| (tensor, tensor));
        for (tensor, named) in own.chain(gradients) {
            let belongs = &trace.belongs[named];
            known.insert(*tensor, (layers::parent(&belongs.path).to_owned(), false));
        }
        let steps: BTreeSet<u32> = trace.operations.iter().filter_map(|operation| operation.at.0).collect();
        let mut note = |rows: &[Row]| {
            for row in rows {
                for made in row
                    .operations
                    .iter()
                    .flat_map(|index| &trace.operations[*index].outputs)
                {
                    known.entry(made.id).or_insert_with(|| (row.path.clone(), row.inferred));
                }
            }
        };
        // Those of the first step are here already.
        note(rows);
        for step in steps.into_iter().skip(1) {
            note(&layers::rows(trace, modules, calls, step));
        }
        // What is made of a tensor belongs where that one does, if nothing else is known.
        for operation in &trace.operations {
            let given = operation.inputs.iter().find_map(|input| known.get(input).cloned());
            if let Some((path, _)) = given {
                for made in &operation.outputs {
                    known.entry(made.id).or_insert_with(|| (path.clone(), true));
                }
            }
        }
        let sources = origins
            .iter()
            .filter_map(|(tensor, origin)| Some((*tensor, calls.of(origin.operation).source?)))
            .collect();
        Self {
            modules: known,
            sources,
        }
    }
}

fn tensor(
    life: &Life,
    category: Category,
    memory: &Memory,
    origins: &HashMap<u64, Origin<'_>>,
    places: &Places,
) -> Tensor {
    let origin = origins.get(&life.id);
    let bytes = memory.pieces[life.piece].bytes;
    let place = places.modules.get(&life.id);
    let (step, phase) = origin.map_or((None, Phase::Context), |origin| origin.operation.at);
    let has_module = !matches!(category, Category::Input | Category::Unattributed);
    Tensor {
        id: life.id,
        shape: origin.map(|origin| origin.made.shape.clone()).unwrap_or_default(),
        dtype: origin.map(|origin| origin.made.dtype.clone()).unwrap_or_default(),
        bytes: Bytes(match life.shares.is_none() || (memory.blocks && life.takes_over) {
            true => bytes,
            false => 0,
        }),
        logical: Bytes(origin.map_or(bytes, |origin| origin.made.bytes)),
        category,
        module: place
            .filter(|_| has_module)
            .map(|(path, _)| path.clone())
            .filter(|path| !path.is_empty()),
        inferred: place.is_some_and(|(_, inferred)| *inferred),
        operation: origin
            .map(|origin| bare(&origin.operation.name).to_owned())
            .unwrap_or_default(),
        source: places.sources.get(&life.id).cloned(),
        step,
        phase,
        born: number(life.born),
        died: died(life, memory).map(number),
        shares: life.shares.map(number),
    }
}

/// When a tensor's memory is seen no more, for it or for whoever has it next.
fn died(life: &Life, memory: &Memory) -> Option<usize> {
    let piece = &memory.pieces[life.piece];
    let is_last = piece
        .holders
        .last()
        .is_some_and(|(_, holders)| holders.iter().any(|holder| memory.tensors[*holder].id == life.id));
    if is_last { piece.died } else { life.died }
}

/// Burn's name of an operation without the kind of tensor.
fn bare(name: &str) -> &str {
    let kinds = ["float_", "int_", "bool_", "q_"];
    kinds.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}

/// The moment with the most live bytes: the first of them.
fn peak(run: &Run, memory: &Memory, timeline: &Timeline, tensors: &[Tensor]) -> Moment {
    let most = timeline.live.iter().max().copied().unwrap_or_default();
    let sample = timeline.live.iter().position(|live| *live == most).unwrap_or(0);
    let (step, phase) = memory
        .samples
        .get(sample)
        .map_or((None, Phase::Context), |sample| sample.at);
    let reserved = timeline.reserved.get(sample).copied().unwrap_or_default();
    let outside = |outside: &Option<Outside>| outside.as_ref().map_or(Bytes(0), |one| one.bytes);
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
    Moment {
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

/// The tensors that are there at a sample, the largest first.
fn at(memory: &Memory, tensors: &[Tensor], sample: usize) -> Vec<u32> {
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
            std::cmp::Reverse(tensors[*tensor].bytes.max(tensors[*tensor].logical)),
            *tensor,
        )
    });
    there.into_iter().map(number).collect()
}

/// What is left of each step, where live memory grows with each.
fn leak(run: &Run, tensors: &[Tensor], memory: &Memory) -> Leaking {
    let growing = match run.trend() {
        Trend::Unknown { steps } => {
            return Leaking::Unknown {
                seen: steps,
                needed: ENOUGH_STEPS,
            };
        }
        Trend::Steady => return Leaking::No,
        Trend::Growing(growing) => growing,
    };
    let last = u32::try_from(growing.steps.len() - 1).ok();
    let mut left: Vec<usize> = (0..tensors.len())
        .filter(|index| {
            let tensor = &tensors[*index];
            let is_meant_to_go = matches!(
                tensor.category,
                Category::Activation | Category::ActivationGradient | Category::Input | Category::Gradient
            );
            // It outlived the step that it was made in.
            let next = tensor.step.map(|step| step + 1);
            is_meant_to_go
                && tensor.step < last
                && memory.tensors[*index].gone_steps.is_none_or(|gone| Some(gone) > next)
        })
        .collect();
    left.sort_by_key(|index| (std::cmp::Reverse(tensors[*index].bytes), *index));
    Leaking::Yes(Leak {
        growing,
        tensors: left.into_iter().map(number).collect(),
    })
}
