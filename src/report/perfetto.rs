//! An explanation in the Trace Event Format, which Perfetto and `chrome://tracing` show.
//!
//! There is no time in it: a microsecond stands for a sample.

use serde_json::{Value, json};

use super::human::text::named;
use super::palette::{self, STACK};
use super::picture::{Shown, out_of_memory, place, spans};
use crate::bytes::Bytes;
use crate::explain::{Explanation, Tensor};

const STEPS: u32 = 1;
const KERNELS: u32 = 2;

/// Writes the trace: a process an explanation, with counters, steps and phases, kernels and, where wanted, tensors.
/// Everything shown must have passed [`Explanation::check`].
#[must_use]
pub fn trace(shown: &[Shown<'_>], tensors: bool) -> String {
    let mut events = Vec::new();
    for (shown, process) in shown.iter().zip(1..) {
        let mut writer = Writer {
            explanation: shown.explanation,
            process,
            events: &mut events,
        };
        writer.names(shown.name);
        writer.counters();
        writer.phases();
        writer.kernels();
        if tensors {
            writer.tensors();
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
    fn names(&mut self, name: Option<&str>) {
        let run = &self.explanation.run;
        let more = name.map(|name| format!(" ({})", named(name))).unwrap_or_default();
        let process = format!("{}{more} on {}", named(&run.model), named(&run.gpu.name));
        let threads = [(STEPS, "steps and phases"), (KERNELS, "kernels")];
        self.events.push(json!({
            "ph": "M", "pid": self.process, "name": "process_name", "args": { "name": process },
        }));
        for (thread, name) in threads {
            self.events.push(json!({
                "ph": "M", "pid": self.process, "tid": thread, "name": "thread_name", "args": { "name": name },
            }));
            self.events.push(json!({
                "ph": "M", "pid": self.process, "tid": thread, "name": "thread_sort_index", "args": { "sort_index": thread },
            }));
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

    fn slice(&mut self, thread: u32, name: &str, samples: [usize; 2], args: &Value) {
        let [from, to] = samples;
        self.events.push(json!({
            "ph": "X", "pid": self.process, "tid": thread, "name": name, "ts": from, "dur": to - from, "args": args,
        }));
    }

    fn phases(&mut self) {
        let timeline = &self.explanation.timeline;
        let spans = spans(timeline);
        for phases in spans.chunk_by(|one, next| one.step == next.step) {
            // The step goes first, so that its phases are within it.
            if let (Some(step), [first, ..], [.., last]) = (phases[0].step, phases, phases) {
                let args = json!({ "step": step });
                self.slice(STEPS, &format!("step {step}"), [first.from, last.to], &args);
            }
            for span in phases {
                let most = timeline.live[span.from..span.to].iter().max();
                let args = json!({ "place": place(span.step, span.phase), "live_peak": most });
                self.slice(STEPS, palette::phase(span.phase).label, [span.from, span.to], &args);
            }
        }
    }

    /// From the sample before a launch to the one after it.
    fn kernels(&mut self) {
        let timeline = &self.explanation.timeline;
        let mut at = 0;
        while at < timeline.kernel.len() {
            let kernel = timeline.kernel[at];
            let pair = timeline.kernel.get(at + 1) == Some(&kernel);
            let args = json!({ "live": timeline.live[at], "reserved": timeline.reserved[at] });
            self.slice(KERNELS, &named(&timeline.kernels[kernel as usize]), [at, at + 1], &args);
            at += if pair { 2 } else { 1 };
        }
    }

    fn tensors(&mut self) {
        let samples = self.explanation.timeline.live.len();
        for (at, tensor) in self.explanation.tensors.iter().enumerate() {
            if tensor.bytes == Bytes(0) {
                continue;
            }
            let Tensor {
                born,
                died,
                shape,
                bytes,
                ..
            } = tensor;
            let shape: Vec<_> = shape.iter().take(16).map(ToString::to_string).collect();
            let category = palette::category(tensor.category);
            let event = |phase: &str, sample: usize| {
                json!({
                    "ph": phase, "pid": self.process, "tid": 0, "cat": category.key, "id": format!("{}.{at}", self.process),
                    "name": format!("tensors: {}", category.label), "ts": sample,
                })
            };
            let mut begin = event("b", *born as usize);
            begin["args"] = json!({
                "bytes": bytes,
                "logical": tensor.logical,
                "shape": shape.join(" × "),
                "dtype": named(&tensor.dtype),
                "module": tensor.module.as_deref().map(named),
                "operation": named(&tensor.operation),
                "source": tensor.source.as_ref().map(|source| format!("{}:{}", named(&source.file), source.line)),
            });
            let end = event("e", died.map_or(samples, |died| died as usize));
            self.events.extend([begin, end]);
        }
    }
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
                "b" | "e" => has(&["pid", "tid", "cat", "id", "name", "ts"]),
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
            .filter(|event| event["tid"] == STEPS && event["ph"] == "X")
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
    fn tensors_begin_and_end_once() {
        let events = events(&sample::resnet(2, 0));
        let ids = |phase: &str| {
            let mut ids: Vec<_> = events
                .iter()
                .filter(|event| event["ph"] == phase)
                .map(|event| event["id"].to_string())
                .collect();
            ids.sort();
            ids
        };
        assert_eq!(ids("b"), ids("e"));
        assert!(!ids("b").is_empty());
    }
}
