//! An explanation in the Trace Event Format, which Perfetto and `chrome://tracing` show.
//!
//! There is no time in it: a microsecond stands for a sample. The viewers cannot be given another unit, so every name of a
//! process and a track that has an axis says so.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde_json::{Value, json};

use super::human::text::named;
use super::palette::{self, STACK};
use super::picture::{Shown, out_of_memory, place, spans};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, Tensor};

const STEPS: u32 = 1;
const KERNELS: u32 = 2;
/// What stands for time, wherever it is read.
const UNIT: &str = "1 µs = 1 sample";
/// Process numbers of an explanation: its own, then one for each category's tensors, which viewers fold.
const PROCESSES: u32 = 16;

/// Writes the trace: a process an explanation, with counters, steps and phases, kernels and, where wanted, tensors.
/// Everything shown must have passed [`Explanation::check`].
#[must_use]
pub fn trace(shown: &[Shown<'_>], tensors: bool) -> String {
    let mut events = Vec::new();
    for (shown, number) in shown.iter().zip(0..) {
        let mut writer = Writer {
            explanation: shown.explanation,
            process: 1 + number * PROCESSES,
            events: &mut events,
        };
        writer.names(shown.name);
        writer.counters();
        writer.phases();
        writer.kernels();
        if tensors {
            writer.tensors(shown.name);
        }
    }
    let other = json!({
        "time": "1 microsecond is 1 sample: one before and one after each kernel launch",
        "tool": shown.first().map(|shown| format!("{} {}", named(&shown.explanation.tool.name), named(&shown.explanation.tool.version))),
        "runs": shown.iter().map(|shown| about(shown.explanation)).collect::<Vec<_>>(),
    });
    let lines: Vec<_> = events.iter().map(Value::to_string).collect();
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":[\n{}\n]}}\n",
        lines.join(",\n")
    )
}

fn about(explanation: &Explanation) -> Value {
    let (run, peak) = (&explanation.run, &explanation.peak);
    json!({
        "model": named(&run.model),
        "gpu": named(&run.gpu.name),
        "mode": run.mode,
        "peak_sample": peak.sample,
        "peak_live": peak.live,
        "peak_reserved": peak.reserved,
        "peak_process": peak.process,
        "partial": explanation.partial.as_deref().map(named),
        "oom": out_of_memory(explanation).as_deref().map(named),
    })
}

struct Writer<'a> {
    explanation: &'a Explanation,
    process: u32,
    events: &'a mut Vec<Value>,
}

impl Writer<'_> {
    /// The model, and what it is run on.
    fn subject(&self, name: Option<&str>) -> String {
        let run = &self.explanation.run;
        let more = name.map(|name| format!(" ({})", named(name))).unwrap_or_default();
        format!("{}{more} on {}", named(&run.model), named(&run.gpu.name))
    }

    fn meta(&mut self, process: u32, thread: Option<u32>, what: &str, args: &Value) {
        let mut event = json!({ "ph": "M", "pid": process, "name": what, "args": args });
        if let Some(thread) = thread {
            event["tid"] = json!(thread);
        }
        self.events.push(event);
    }

    fn names(&mut self, name: Option<&str>) {
        let process = self.process;
        let subject = format!("{} ({UNIT})", self.subject(name));
        self.meta(process, None, "process_name", &json!({ "name": subject }));
        self.meta(process, None, "process_sort_index", &json!({ "sort_index": process }));
        for (thread, name) in [(STEPS, "steps and phases"), (KERNELS, "kernels")] {
            let name = format!("{name} ({UNIT})");
            self.meta(process, Some(thread), "thread_name", &json!({ "name": name }));
            self.meta(
                process,
                Some(thread),
                "thread_sort_index",
                &json!({ "sort_index": thread }),
            );
        }
    }

    /// Counters, where they change: they hold until the next.
    fn counters(&mut self) {
        let timeline = &self.explanation.timeline;
        let process = self.process;
        let counter = |name: &str, sample: usize, args: Value| json!({ "ph": "C", "pid": process, "name": name, "ts": sample, "args": args });
        for (name, column) in [("live", &timeline.live), ("reserved", &timeline.reserved)] {
            for (sample, bytes) in changes(column) {
                self.events.push(counter(name, sample, json!({ "bytes": bytes })));
            }
        }
        for category in STACK {
            let name = format!("category: {}", palette::category(category).label);
            for (sample, bytes) in changes(timeline.of(category)) {
                self.events.push(counter(&name, sample, json!({ "bytes": bytes })));
            }
        }
    }

    fn slice(&mut self, [process, thread]: [u32; 2], name: &str, samples: [usize; 2], args: &Value) {
        let [from, to] = samples;
        self.events.push(json!({
            "ph": "X", "pid": process, "tid": thread, "name": name, "ts": from, "dur": to - from, "args": args,
        }));
    }

    fn phases(&mut self) {
        let timeline = &self.explanation.timeline;
        let spans = spans(timeline);
        for phases in spans.chunk_by(|one, next| one.step == next.step) {
            // The step goes first, so that its phases are within it.
            if let (Some(step), [first, ..], [.., last]) = (phases[0].step, phases, phases) {
                let args = json!({ "step": step, "samples": last.to - first.from });
                self.slice(
                    [self.process, STEPS],
                    &format!("step {step}"),
                    [first.from, last.to],
                    &args,
                );
            }
            for span in phases {
                let most = timeline.live[span.from..span.to].iter().max();
                let args = json!({
                    "place": place(span.step, span.phase), "live_peak": most, "samples": span.to - span.from,
                });
                self.slice(
                    [self.process, STEPS],
                    palette::phase(span.phase).label,
                    [span.from, span.to],
                    &args,
                );
            }
        }
    }

    /// From the sample before a launch to the one after it, with the largest tensor that it makes.
    fn kernels(&mut self) {
        let timeline = &self.explanation.timeline;
        let mut made: HashMap<usize, &Tensor> = HashMap::new();
        for tensor in self.explanation.tensors.iter().filter(|tensor| tensor.bytes > Bytes(0)) {
            let largest = made.entry(tensor.born as usize).or_insert(tensor);
            if tensor.bytes > largest.bytes {
                *largest = tensor;
            }
        }
        let mut at = 0;
        while at < timeline.kernel.len() {
            let kernel = timeline.kernel[at];
            let pair = timeline.kernel.get(at + 1) == Some(&kernel);
            let makes = made.get(&at).or_else(|| made.get(&(at + 1)).filter(|_| pair));
            let args = json!({
                "makes": makes.map(|tensor| slice_name(tensor)),
                "source": makes.and_then(|tensor| source(tensor)),
                "live": timeline.live[at],
                "reserved": timeline.reserved[at],
            });
            let name = named(&timeline.kernels[kernel as usize]);
            self.slice([self.process, KERNELS], &name, [at, at + 1], &args);
            at += if pair { 2 } else { 1 };
        }
    }

    /// A slice from a tensor's first sample to its last, on tracks by category. Slices of a track may not overlap, so each
    /// goes to the first track that is free.
    fn tensors(&mut self, name: Option<&str>) {
        let samples = self.explanation.timeline.live.len();
        let subject = self.subject(name);
        for (category, number) in Category::ALL.into_iter().zip(1..) {
            let process = self.process + number;
            let label = palette::category(category).label;
            let own = |tensor: &&Tensor| tensor.category == category && tensor.bytes > Bytes(0);
            let mut tensors: Vec<_> = self.explanation.tensors.iter().filter(own).collect();
            if tensors.is_empty() {
                continue;
            }
            tensors.sort_by_key(|tensor| tensor.born);
            let title = format!("{subject}: tensors, {label} ({UNIT})");
            self.meta(process, None, "process_name", &json!({ "name": title }));
            self.meta(process, None, "process_sort_index", &json!({ "sort_index": process }));
            // When each track is free, the soonest first; and of those that are free now, the one with the least number.
            let mut busy: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
            let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
            let mut tracks = 0;
            for tensor in tensors {
                let born = tensor.born as usize;
                let died = tensor.died.map_or(samples, |died| died as usize).max(born);
                while let Some(Reverse((_, track))) = busy.peek().copied().filter(|Reverse((until, _))| *until <= born)
                {
                    busy.pop();
                    free.push(Reverse(track));
                }
                let track = free.pop().map_or(tracks + 1, |Reverse(track)| track);
                if track > tracks {
                    tracks = track;
                    let name = format!("{label} {track}");
                    self.meta(process, Some(track), "thread_name", &json!({ "name": name }));
                    self.meta(
                        process,
                        Some(track),
                        "thread_sort_index",
                        &json!({ "sort_index": track }),
                    );
                }
                busy.push(Reverse((died, track)));
                self.slice(
                    [process, track],
                    &slice_name(tensor),
                    [born, died],
                    &details(tensor, died - born),
                );
            }
        }
    }
}

/// A tensor as a slice is called: by its shape, and the layer it belongs to. Of no layer it has the operation that made it.
fn slice_name(tensor: &Tensor) -> String {
    let of = tensor.module.as_deref().unwrap_or(&tensor.operation);
    format!("{} · {}", shape(tensor), named(of))
}

/// A shape: `32 × 64 × 112 × 112`.
fn shape(tensor: &Tensor) -> String {
    let sizes: Vec<_> = tensor.shape.iter().take(16).map(ToString::to_string).collect();
    let more = if tensor.shape.len() > sizes.len() {
        " × …"
    } else {
        ""
    };
    if sizes.is_empty() {
        return "scalar".to_owned();
    }
    sizes.join(" × ") + more
}

/// The line that asked for it: `src/resnet.rs:120`.
fn source(tensor: &Tensor) -> Option<String> {
    let source = tensor.source.as_ref()?;
    Some(format!("{}:{}", named(&source.file), source.line))
}

fn details(tensor: &Tensor, samples: usize) -> Value {
    json!({
        "bytes": tensor.bytes,
        "logical": tensor.logical,
        "shape": shape(tensor),
        "dtype": named(&tensor.dtype),
        "category": palette::category(tensor.category).key,
        "layer": tensor.module.as_deref().map(named),
        "operation": named(&tensor.operation),
        "source": source(tensor),
        "samples": samples,
    })
}

/// Where a column changes, and to what.
fn changes(column: &[Bytes]) -> impl Iterator<Item = (usize, Bytes)> {
    let before = [None].into_iter().chain(column.iter().copied().map(Some));
    column
        .iter()
        .copied()
        .enumerate()
        .zip(before)
        .filter(|((_, now), before)| Some(*now) != *before)
        .map(|(change, _)| change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::sample;

    fn events(explanation: &Explanation) -> Vec<Value> {
        let text = trace(&[Shown::new(explanation)], true);
        let mut value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["otherData"]["time"].as_str().unwrap().contains("sample"));
        match value["traceEvents"].take() {
            Value::Array(events) => events,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_event_is_one_of_the_format() {
        for event in events(&sample::resnet(3, 2)) {
            let has = |keys: &[&str]| keys.iter().all(|key| !event[*key].is_null());
            let whole = match event["ph"].as_str().unwrap() {
                "M" => has(&["pid", "name", "args"]),
                "C" => has(&["pid", "name", "ts", "args"]) && event["args"]["bytes"].is_u64(),
                "X" => has(&["pid", "tid", "name", "ts", "dur"]),
                _ => false,
            };
            assert!(whole, "{event}");
        }
    }

    #[test]
    fn phases_lie_within_their_step() {
        let events = events(&sample::resnet(2, 0));
        let slices: Vec<_> = events
            .iter()
            .filter(|event| event["pid"] == 1 && event["tid"] == STEPS && event["ph"] == "X")
            .collect();
        let range = |event: &Value| {
            let from = event["ts"].as_u64().unwrap();
            (from, from + event["dur"].as_u64().unwrap())
        };
        let steps: Vec<_> = slices
            .iter()
            .filter(|event| event["args"]["step"].is_u64())
            .map(|step| range(step))
            .collect();
        assert_eq!(steps.len(), 2);
        let within = |phase: &&&Value| {
            steps
                .iter()
                .any(|step| step.0 <= range(phase).0 && range(phase).1 <= step.1)
        };
        // All but the making of the model.
        assert_eq!(
            slices
                .iter()
                .filter(|event| event["args"]["place"].is_string())
                .filter(within)
                .count(),
            8
        );
    }

    #[test]
    fn the_highest_count_is_the_peak() {
        let explanation = sample::resnet(2, 0);
        let most = events(&explanation)
            .iter()
            .filter(|event| event["name"] == "live")
            .filter_map(|event| Some((event["args"]["bytes"].as_u64()?, event["ts"].as_u64()?)))
            .max_by_key(|(bytes, sample)| (*bytes, std::cmp::Reverse(*sample)));
        assert_eq!(
            most,
            Some((explanation.peak.live.0, u64::from(explanation.peak.sample)))
        );
    }

    #[test]
    fn a_tensor_is_a_slice_named_by_its_shape_and_layer() {
        let explanation = sample::resnet(2, 0);
        let events = events(&explanation);
        let slices: Vec<_> = events
            .iter()
            .filter(|event| event["ph"] == "X" && event["args"]["category"].is_string())
            .collect();
        let held = explanation.tensors.iter().filter(|tensor| tensor.bytes > Bytes(0));
        assert_eq!(slices.len(), held.count());
        let named = |name: &str| slices.iter().filter(|slice| slice["name"] == name).count();
        // In each of two steps: what conv1 makes, and in backward what comes of it.
        assert_eq!(named("32 × 64 × 112 × 112 · conv1"), 4);
        assert_eq!(
            named("64 × 3 × 7 × 7 · conv1"),
            1 + 2 + 2,
            "the weight, its gradients, what Adam keeps"
        );
        assert_eq!(
            named("32 × 3 × 224 × 224 · from_data"),
            2,
            "of no layer, so by its operation"
        );
        // No two slices of a track are there at once: viewers would draw one within the other.
        let mut tracks: std::collections::BTreeMap<_, Vec<_>> = std::collections::BTreeMap::new();
        for slice in &slices {
            let number = |key: &str| slice[key].as_u64().unwrap();
            let track = tracks.entry((number("pid"), number("tid"))).or_default();
            track.push((number("ts"), number("ts") + number("dur")));
            assert_eq!(slice["args"]["samples"], slice["dur"]);
        }
        for (track, mut slices) in tracks {
            slices.sort_unstable();
            assert!(
                slices.windows(2).all(|pair| pair[0].1 <= pair[1].0),
                "{track:?}: {slices:?}"
            );
        }
    }

    #[test]
    fn a_kernel_says_which_tensor_it_makes_and_for_which_line() {
        let explanation = sample::resnet(2, 0);
        let events = events(&explanation);
        let kernels: Vec<_> = events
            .iter()
            .filter(|event| event["pid"] == 1 && event["tid"] == KERNELS)
            .collect();
        let first = kernels
            .iter()
            .find(|event| event["args"]["makes"] == "32 × 64 × 112 × 112 · conv1")
            .unwrap();
        assert_eq!(first["name"], "matmul_gemm_multi_row_f32<3x64,7>");
        let source = first["args"]["source"].as_str().unwrap();
        assert!(
            source.starts_with("crates/vision/classification/models/src/resnet.rs:"),
            "{source}"
        );
    }

    #[test]
    fn the_unit_is_said_wherever_a_time_is_read() {
        let (one, other) = (sample::resnet(2, 0), sample::resnet(1, 0));
        let text = trace(&[Shown::new(&one), Shown::new(&other)], true);
        let value: Value = serde_json::from_str(&text).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let mut names: Vec<_> = events
            .iter()
            .filter(|event| event["name"] == "process_name")
            .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
            .collect();
        assert!(
            names.len() > 10 && names.iter().all(|(_, name)| name.ends_with("(1 µs = 1 sample)")),
            "{names:?}"
        );
        assert!(
            names
                .iter()
                .any(|(_, name)| *name == "resnet18 on NVIDIA L4: tensors, optimizer state (1 µs = 1 sample)")
        );
        let count = names.len();
        names.dedup_by_key(|(process, _)| *process);
        assert_eq!(names.len(), count, "each process has one name");
        for event in events.iter().filter(|event| event["ph"] == "X") {
            assert!(names.iter().any(|(process, _)| event["pid"] == *process), "{event}");
        }
        let unit = |event: &&Value| event["args"]["name"].as_str().unwrap().ends_with("(1 µs = 1 sample)");
        let tracks = |name: &str| {
            let track = |event: &&Value| {
                event["name"] == "thread_name" && event["args"]["name"].as_str().unwrap().starts_with(name)
            };
            events.iter().filter(track).filter(unit).count()
        };
        assert_eq!((tracks("steps and phases"), tracks("kernels")), (2, 2));
    }
}
