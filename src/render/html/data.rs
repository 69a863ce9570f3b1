//! The data of an explanation that a page contains: with cleaned texts and packed columns.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use super::pack::{PackedColumn, ascending, changes};
use crate::explain::{Category, Explanation, Leaking, SourceLineMemory, SourceLocation};
use crate::growth::growth_between;
use crate::render::palette::{self, Swatch};
use crate::render::picture::{ShownExplanation, out_of_memory, thinned};
use crate::render::savings;
use crate::render::terminal::explanation;
use crate::report::change::{figure, metric_name};
use crate::report::words::kernel_name;
use crate::report::{Assumption, GrowthRow};
use crate::untrusted::{Foreign, clean, named};

/// The most samples that a page contains in full. With more samples, it contains the lowest and the highest of each
/// group.
pub(super) const MOST_SAMPLES: usize = 150_000;
/// The most tensors that a page contains. With more, the page keeps the tensors of the peak first, then the largest.
pub(super) const MOST_TENSORS: usize = 40_000;
/// The most rows per table.
const MOST_ROWS: usize = 5_000;
/// The most characters that are shown of a text.
const MOST_TEXT: usize = 2_000;

/// Collects all data that a page shows.
pub(super) fn page(shown: &[ShownExplanation<'_>], compare: bool) -> Value {
    let swatch = |swatch: Swatch| {
        json!({
            "key": swatch.key,
            "label": swatch.label,
            "color": swatch.color,
            "meaning": swatch.meaning,
        })
    };
    let categories = Category::STACK.into_iter().chain(Category::ABOVE);
    json!({
        "compare": compare,
        "growth": growth(shown, compare),
        "categories": categories.map(|each| swatch(palette::category(each))).collect::<Vec<_>>(),
        "stack": Category::STACK.len(),
        "phases": palette::PHASES.map(|each| swatch(palette::phase(each))),
        "models": shown.iter().map(model).collect::<Vec<_>>(),
    })
}

/// Returns why live memory grew between two compared explanations; null if it did not grow.
fn growth(shown: &[ShownExplanation<'_>], compare: bool) -> Value {
    let [before, after] = shown else { return Value::Null };
    // A check knows the change's diff, so it knows the lines better.
    let of_check = after.explanation.growth.as_ref().filter(|growth| {
        let value = figure(&before.explanation.run.peaks, growth.pass, growth.metric);
        value == Some(growth.before)
    });
    let explained = of_check
        .cloned()
        .or_else(|| growth_between(before.explanation, after.explanation))
        .filter(|_| compare);
    let Some(growth) = explained else { return Value::Null };
    let row = |row: &GrowthRow<'_>| {
        json!({
            "change": row.change,
            "what": named(row.what.raw()),
            "place": row.place.map(|place| format!("{}:{}{}", named(place.file.raw()), place.line, place.remark())),
            "text": row.place.and_then(|place| place.text.as_ref().map(Foreign::raw)).map(named),
        })
    };
    let rows: Vec<_> = growth.rows(MOST_ROWS).iter().map(row).collect();
    let value = metric_name(growth.pass, growth.metric);
    json!({ "value": value, "growth": growth.growth(), "rows": rows })
}

fn model(shown: &ShownExplanation<'_>) -> Value {
    let Explanation {
        tool,
        commit,
        commit_date,
        dirty,
        run,
        partial,
        activations,
        totals,
        layers,
        peak,
        phases,
        lines,
        texts,
        leak,
        savings: all_savings,
        assumptions,
        ..
    } = shown.explanation;
    let mut left_out = Vec::new();
    let tensors = kept_tensors(shown.explanation, &mut left_out);
    let index = |tensor: &u32| tensors.new.get(tensor).copied();
    let indices = |all: &[u32]| all.iter().filter_map(index).collect::<Vec<_>>();
    // A file may have any number of rows. What is left out is counted, so that nobody takes the rest for all.
    let mut row_limit = |what: &str, count: usize| {
        if count > MOST_ROWS {
            left_out.push(format!("{} of {count} {what}", count - MOST_ROWS));
        }
        MOST_ROWS
    };
    let layers = &layers[..layers.len().min(row_limit("layers", layers.len()))];
    let phases = &phases[..phases.len().min(row_limit("phases", phases.len()))];
    let lines = &lines[..lines.len().min(row_limit("lines", lines.len()))];
    let text_of: HashMap<_, _> = texts
        .iter()
        .map(|text| ((text.file.raw(), text.line), text.text.raw()))
        .collect();
    let text = |line: &SourceLineMemory| text_of.get(&(line.source.file.raw(), line.source.line)).copied();
    // The page names each file without source text once, not once per line.
    let without_text: BTreeSet<_> = lines
        .iter()
        .filter(|line| text(line).is_none())
        .map(|line| line.source.file.raw())
        .collect();
    let mut model = json!({
        "name": shown.name,
        "limits": shown.limits,
        "tool": tool,
        "commit": commit,
        "commit_date": commit_date,
        "dirty": dirty.unwrap_or(false),
        "run": {
            "model": run.model,
            "package": run.package,
            "budget": run.budget,
            "mode": run.mode,
            "task": run.task,
            "burn": run.burn,
            "features": run.features.map(|features| features.to_string()),
            "inputs": run.inputs.iter().map(|(name, value)| (name, value.to_string())).collect::<Vec<_>>(),
            "gpu": run.gpu,
            "peaks": run.peaks,
            "autotune": run.autotune,
            "assumptions": sentences(&run.assumptions),
            "error": run.error,
            "uuid": run.measurement.as_ref().map(|measurement| &measurement.uuid),
        },
        "oom": out_of_memory(shown.explanation),
        "partial": partial,
        "activations": activations,
        "totals": totals,
        "layers": layers,
        "phases": phases,
        // Changes that save nothing have no row here; `savings_below` counts them.
        // See docs/design/what-if.md.
        "savings": savings::shown(all_savings).map(|saving| json!({
            "change": saving.change,
            "live": saving.live,
            "reserved": saving.reserved,
            "saved_live": saving.saved_live,
            "saved_reserved": saving.saved_reserved,
            "cost": saving.cost,
            "known_from": savings::known_from(saving.certainty),
            "note": saving.note,
        })).collect::<Vec<_>>(),
        "savings_below": [
            savings::is_reserved_open(all_savings).then(|| format!("– {}", savings::OPEN)),
            savings::idle(all_savings),
        ],
        "assumptions": sentences(assumptions),
        "peak": {
            "sample": peak.sample,
            "step": peak.step,
            "phase": peak.phase,
            "kernel": peak.kernel,
            "kernel_name": peak.kernel.as_ref().map(Foreign::raw).map(kernel_name),
            "live": peak.live,
            "reserved": peak.reserved,
            "process": peak.process,
            "categories": peak.categories,
            // Indices of tensors that the page left out are skipped; `left_out` counts them.
            "tensors": indices(&peak.tensors),
        },
        "lines": lines.iter().map(|line| json!({
            "source": line.source,
            "text": text(line),
            "step": line.step,
            "phase": line.phase,
            "live": line.live,
            "change": line.change,
            "came": indices(&line.came),
            "went": indices(&line.went),
        })).collect::<Vec<_>>(),
        "without_text": without_text,
        "leak": match leak {
            Leaking::Unknown { interval, seen, needed } => {
                json!({ "found": "unknown", "interval": interval.name(), "seen": seen, "needed": needed })
            }
            Leaking::No { interval } => json!({ "found": "no", "interval": interval.name() }),
            Leaking::Yes(leak) => json!({
                "found": "yes",
                "interval": leak.growing.interval.name(),
                "first": leak.growing.first_number(),
                "steps": leak.growing.steps,
                "summary": explanation::growth(shown.explanation, leak),
                "tensors": indices(&leak.tensors),
                "keepers": leak.keepers.iter().map(|keeper| json!({
                    "place": format!("{}:{}", keeper.file.raw(), keeper.line),
                    "text": keeper.text.raw(),
                })).collect::<Vec<_>>(),
            }),
        },
    });
    harmless(&mut model);
    // These parts come after `harmless`, because their texts are clean already and a cut would break packed columns.
    model["tensors"] = tensors.pack(shown.explanation);
    model["timeline"] = timeline(shown.explanation, &mut left_out);
    model["left_out"] = json!(left_out);
    model
}

/// Cleans every text in the value and cuts it to [`MOST_TEXT`] characters.
fn harmless(value: &mut Value) {
    match value {
        Value::String(text) => *text = short(text),
        Value::Array(values) => values.iter_mut().for_each(harmless),
        Value::Object(values) => values.values_mut().for_each(harmless),
        _ => {}
    }
}

fn short(text: &str) -> String {
    let mut cut: String = text.chars().take(MOST_TEXT).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    clean(&cut)
}

fn timeline(explanation: &Explanation, left_out: &mut Vec<String>) -> Value {
    let timeline = &explanation.timeline;
    let count = timeline.live.len();
    // Live memory is not in the page. It is the sum of the series there, so the stack cannot differ from it.
    // See docs/design/html-page.md.
    let kept = thinned(explanation, MOST_SAMPLES);
    let thin = kept.len() < count;
    if thin {
        left_out.push(format!(
            "{} of {count} moments; of each group of neighbours the page keeps the moments with the least and the most \
             live memory, and the peaks are exact",
            count - kept.len()
        ));
    }
    let series: Vec<_> = Category::STACK
        .into_iter()
        .map(|category| {
            let column = timeline.of(category);
            changes(kept.iter().filter_map(|sample| Some(column.get(*sample as usize)?.0)))
        })
        .collect();
    let at = |sample: &u32| *sample as usize;
    json!({
        "samples": count,
        "count": kept.len(),
        "kept": thin.then(|| ascending(&kept)),
        "series": series,
        "reserved": changes(kept.iter().map(|sample| timeline.reserved[at(sample)].0)),
        "kernel": changes(kept.iter().map(|sample| u64::from(timeline.kernel[at(sample)]))),
        "kernels": timeline.kernels.iter().map(|kernel| named(kernel.raw())).collect::<Vec<_>>(),
        "kernel_names": timeline.kernels.iter().map(|kernel| named(kernel_name(kernel.raw()))).collect::<Vec<_>>(),
        "borders": timeline.borders.iter().map(|border| json!([
            border.sample,
            border.step,
            palette::PHASES.iter().position(|phase| *phase == border.phase),
        ])).collect::<Vec<_>>(),
    })
}

/// The tensors that a page contains.
struct Kept {
    /// Their indices in the explanation, in increasing order.
    old: Vec<u32>,
    /// Their indices in the page, by index in the explanation.
    new: HashMap<u32, u32>,
}

fn kept_tensors(explanation: &Explanation, left_out: &mut Vec<String>) -> Kept {
    let all = &explanation.tensors;
    let mut old: Vec<u32> = (0..all.len() as u32).collect();
    if all.len() > MOST_TENSORS {
        // A vector of flags: a search in the peak's tensors for each tensor would take quadratic time.
        let mut wanted = vec![false; all.len()];
        for tensor in &explanation.peak.tensors {
            wanted[*tensor as usize] = true;
        }
        let key = |tensor: &u32| (wanted[*tensor as usize], all[*tensor as usize].bytes);
        old.sort_by_key(|tensor| std::cmp::Reverse(key(tensor)));
        let rest = old.split_off(MOST_TENSORS);
        let largest = rest
            .iter()
            .map(|tensor| all[*tensor as usize].bytes)
            .max()
            .unwrap_or_default();
        left_out.push(format!(
            "{} of {} tensors, none of them larger than {largest}; the page keeps the tensors of the peak first, then \
             the largest",
            rest.len(),
            all.len()
        ));
        // Back in order of the explanation: only differences between
        // neighbours are stored, and these are small.
        old.sort_unstable();
    }
    let new = old.iter().enumerate().map(|(new, old)| (*old, new as u32)).collect();
    Kept { old, new }
}

impl Kept {
    fn pack(&self, explanation: &Explanation) -> Value {
        let mut packed = PackedColumn::default();
        let (mut texts, mut shapes, mut sources) = (Table::default(), Table::default(), Table::default());
        // `unpackTensors` in `script/data.js` reads the same numbers in the same order. For what may be
        // missing, 0 stands for "none", so every index is one higher.
        let (mut id, mut born) = (0, 0);
        for old in &self.old {
            let tensor = &explanation.tensors[*old as usize];
            // An id may be any number, but JavaScript is exact only up to
            // 2^53, so only its low 50 bits are kept.
            packed.step(id & ((1 << 50) - 1), tensor.id & ((1 << 50) - 1));
            packed.number(shapes.index(&shape(&tensor.shape)));
            packed.number(texts.index(&named(tensor.dtype.raw())));
            packed.number(tensor.bytes.0);
            packed.step(tensor.bytes.0, tensor.logical.0);
            packed.number(order(tensor.category));
            packed.number(
                tensor
                    .module
                    .as_ref()
                    .map_or(0, |module| texts.index(&named(module.raw())) + 1),
            );
            packed.number(u64::from(tensor.inferred));
            packed.number(texts.index(&named(tensor.operation.raw())));
            packed.number(
                tensor
                    .source
                    .as_ref()
                    .map_or(0, |source| sources.index(&place(source)) + 1),
            );
            packed.number(tensor.step.map_or(0, |step| u64::from(step) + 1));
            packed.number(
                palette::PHASES
                    .iter()
                    .take_while(|phase| **phase != tensor.phase)
                    .count() as u64,
            );
            packed.step(born, u64::from(tensor.born));
            packed.number(tensor.died.map_or(0, |died| u64::from(died - tensor.born) + 1));
            // The tensor that owns the memory may have been left out of the page.
            let shares = tensor.shares.and_then(|shares| self.new.get(&shares));
            packed.number(shares.map_or(0, |shares| u64::from(*shares) + 1));
            (id, born) = (tensor.id, u64::from(tensor.born));
        }
        json!({
            "count": self.old.len(),
            "packed": packed.base64(),
            "texts": texts.entries,
            "shapes": shapes.entries,
            "sources": sources.entries,
        })
    }
}

fn order(category: Category) -> u64 {
    Category::STACK
        .into_iter()
        .chain(Category::ABOVE)
        .take_while(|each| *each != category)
        .count() as u64
}

fn shape(shape: &[u64]) -> String {
    // A file may claim any number of dimensions.
    let sizes: Vec<_> = shape.iter().take(16).map(ToString::to_string).collect();
    let more = if shape.len() > sizes.len() { " × …" } else { "" };
    if sizes.is_empty() {
        return "scalar".to_owned();
    }
    sizes.join(" × ") + more
}

fn place(source: &SourceLocation) -> String {
    // `named` leaves no line end in a name, so the script can split at this one.
    format!(
        "{}:{}\n{}",
        named(source.file.raw()),
        source.line,
        named(source.function.raw())
    )
}

/// A table that stores each text once.
#[derive(Default)]
struct Table {
    entries: Vec<String>,
    known: HashMap<String, u64>,
}

impl Table {
    fn index(&mut self, text: &str) -> u64 {
        if let Some(index) = self.known.get(text) {
            return *index;
        }
        let index = self.entries.len() as u64;
        self.entries.push(text.to_owned());
        self.known.insert(text.to_owned(), index);
        index
    }
}

fn sentences(assumptions: &[Assumption]) -> Vec<String> {
    assumptions.iter().map(ToString::to_string).collect()
}
