//! An explanation in the Trace Event Format, for Perfetto and `chrome://tracing`.
//!
//! The trace contains no time: one microsecond stands for one sample. Viewers always show time units, so the name of
//! every process and of every track with an axis states this.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde_json::{Value, json};

use super::palette;
use super::picture::{ShownExplanation, out_of_memory, place, spans};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation, TensorLife};
use crate::untrusted::{Foreign, named};

const STEPS: u32 = 1;
const KERNELS: u32 = 2;
/// The note that explains the time axis, in the names of processes and tracks.
const UNIT: &str = "1 µs = 1 sample";
/// The process numbers per explanation: its own, then one per category of tensors, because viewers can fold processes.
const PROCESSES: u32 = 16;

/// Renders the trace: one process per explanation, with counters, steps, phases and kernels. With `tensors`, it also
/// has one process per category of tensors. Every explanation must have passed [`Explanation::check`].
#[must_use]
pub fn trace(shown: &[ShownExplanation<'_>], tensors: bool) -> String {
    let mut events = Vec::new();
    for (shown, number) in shown.iter().zip(0..) {
        let mut writer = Writer {
            explanation: shown.explanation,
            // Numbers of processes must not meet: one of its own and 13
            // categories are fewer than `PROCESSES`.
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
        "tool": shown.first().map(|shown| format!("{} {}", named(shown.explanation.tool.name.raw()), named(shown.explanation.tool.version.raw()))),
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
        "model": run.model,
        "gpu": run.gpu.name.to_string(),
        "mode": run.mode,
        "peak_sample": peak.sample,
        "peak_live": peak.live,
        "peak_reserved": peak.reserved,
        "peak_process": peak.process,
        "partial": explanation.partial.as_ref().map(Foreign::raw).map(named),
        "oom": out_of_memory(explanation).as_deref().map(named),
    })
}

struct Writer<'a> {
    explanation: &'a Explanation,
    process: u32,
    events: &'a mut Vec<Value>,
}

impl Writer<'_> {
    /// Returns the model, its name and its GPU.
    fn subject(&self, name: Option<&str>) -> String {
        let run = &self.explanation.run;
        let more = name.map(|name| format!(" ({})", named(name))).unwrap_or_default();
        format!("{}{more} on {}", run.model, run.gpu.name)
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

    /// Writes the counters. Viewers keep a value until the next event, so only changes are written.
    fn counters(&mut self) {
        let timeline = &self.explanation.timeline;
        let process = self.process;
        // Time is the number of the sample: on a virtual GPU, every launch takes as long as any other.
        // See docs/design/assumptions.md.
        let counter = |name: &str, sample: usize, args: Value| json!({ "ph": "C", "pid": process, "name": name, "ts": sample, "args": args });
        for (name, column) in [("live", &timeline.live), ("reserved", &timeline.reserved)] {
            for (sample, bytes) in changes(column) {
                self.events.push(counter(name, sample, json!({ "bytes": bytes })));
            }
        }
        for category in Category::STACK {
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
            // The step must come before its phases, so that viewers draw the phases within it.
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

    /// Writes a slice per kernel launch, from the sample before it to the sample after it, with the largest tensor it
    /// makes.
    fn kernels(&mut self) {
        let timeline = &self.explanation.timeline;
        let mut made: HashMap<usize, &TensorLife> = HashMap::new();
        for tensor in self.explanation.tensors.iter().filter(|tensor| tensor.bytes > Bytes(0)) {
            let largest = made.entry(tensor.born as usize).or_insert(tensor);
            if tensor.bytes > largest.bytes {
                *largest = tensor;
            }
        }
        let mut at = 0;
        while at < timeline.kernel.len() {
            let kernel = timeline.kernel[at];
            // A launch has a sample before and one after it, both with its kernel. Each pair is one slice.
            let pair = timeline.kernel.get(at + 1) == Some(&kernel);
            // The tensor may appear at either sample of the launch.
            let makes = made.get(&at).or_else(|| made.get(&(at + 1)).filter(|_| pair));
            let args = json!({
                "makes": makes.map(|tensor| slice_name(tensor)),
                "source": makes.and_then(|tensor| source(tensor)),
                "live": timeline.live[at],
                "reserved": timeline.reserved[at],
            });
            let name = named(timeline.kernels[kernel as usize].raw());
            self.slice([self.process, KERNELS], &name, [at, at + 1], &args);
            at += if pair { 2 } else { 1 };
        }
    }

    /// Writes a slice per tensor, from its first sample to its last, in one process per category. Slices on a track
    /// must not overlap, so each goes to the first free track.
    fn tensors(&mut self, name: Option<&str>) {
        let samples = self.explanation.timeline.live.len();
        let subject = self.subject(name);
        for (category, number) in Category::ALL.into_iter().zip(1..) {
            let process = self.process + number;
            let label = palette::category(category).label;
            // A view takes no memory of its own, so it has no slice.
            let own = |tensor: &&TensorLife| tensor.category == category && tensor.bytes > Bytes(0);
            let mut tensors: Vec<_> = self.explanation.tensors.iter().filter(own).collect();
            if tensors.is_empty() {
                continue;
            }
            // The search for a free track works only in order of birth.
            tensors.sort_by_key(|tensor| tensor.born);
            let title = format!("{subject}: tensors, {label} ({UNIT})");
            self.meta(process, None, "process_name", &json!({ "name": title }));
            self.meta(process, None, "process_sort_index", &json!({ "sort_index": process }));
            // `busy` yields the track that becomes free first; `free` yields the free track with the lowest number.
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

/// Returns the name of a tensor's slice: its shape and its layer, or its operation if it belongs to no layer.
fn slice_name(tensor: &TensorLife) -> String {
    let of = tensor.module.as_ref().unwrap_or(&tensor.operation).raw();
    format!("{} · {}", shape(tensor), named(of))
}

/// Formats a shape: `32 × 64 × 112 × 112`.
fn shape(tensor: &TensorLife) -> String {
    // A file may claim any number of dimensions.
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

/// Returns the source line that made a tensor: `src/resnet.rs:120`.
fn source(tensor: &TensorLife) -> Option<String> {
    let source = tensor.source.as_ref()?;
    Some(format!("{}:{}", named(source.file.raw()), source.line))
}

fn details(tensor: &TensorLife, samples: usize) -> Value {
    json!({
        "bytes": tensor.bytes,
        "logical": tensor.logical,
        "shape": shape(tensor),
        "dtype": named(tensor.dtype.raw()),
        "category": palette::category(tensor.category).key,
        "layer": tensor.module.as_ref().map(Foreign::raw).map(named),
        "operation": named(tensor.operation.raw()),
        "source": source(tensor),
        "samples": samples,
    })
}

/// Returns the samples at which a column changes, with the new values.
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
        let text = trace(&[ShownExplanation::new(explanation)], true);
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
        // All phases except the creation of the model.
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
        // In each of two steps: the output of conv1, and its gradient in backward.
        assert_eq!(named("32 × 64 × 112 × 112 · conv1"), 4);
        assert_eq!(
            named("64 × 3 × 7 × 7 · conv1"),
            1 + 2 + 2,
            "the weight, its gradients and Adam's state"
        );
        assert_eq!(
            named("32 × 3 × 224 × 224 · from_data"),
            2,
            "named by its operation, because it belongs to no layer"
        );
        // Slices on a track do not overlap: viewers would draw one within the other.
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
        let text = trace(&[ShownExplanation::new(&one), ShownExplanation::new(&other)], true);
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
