//! `cargo vram report`: pages from explanation files, which can be edited or damaged.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::common;

/// A folder with the explanation of a model that launched two kernels.
struct Folder(tempfile::TempDir);

fn explanation() -> Value {
    let peak = json!({ "live": 768, "reserved": 2_097_152, "process": 3_145_728 });
    let category = |name: &str, bytes: u64| json!({ "category": name, "bytes": bytes });
    json!({
        "version": 3,
        "tool": { "name": "cargo-vram", "version": "0.1.0", "fingerprint": "f" },
        "commit": null,
        "run": {
            "model": "tiny", "package": "p", "mode": "estimate", "task": "train", "burn": "0.21.0",
            "inputs": { "batch_size": 1 },
            "gpu": { "id": "l4", "name": "NVIDIA L4", "total_bytes": 25_769_803_776_u64, "available_bytes": 25_769_803_776_u64, "driver": "" },
            "parameters": null, "peaks": { "warm": peak, "cold": peak }, "steps": [], "oom": null,
            "autotune": { "recorded": 0, "nearest": 0, "assumed": 2 }, "streams": 1, "device_reads": 0,
            "assumptions": [], "error": null, "seconds": 1.0,
        },
        "partial": null,
        "activations": "own",
        "totals": {
            "batch_size": 1, "parameters": 64, "learnable": 64, "not_learnable": 0, "parameter_bytes": 256,
            "feature_bytes": 512, "input_bytes": 0, "forward_backward_bytes": 1024, "total_bytes": 768,
        },
        "layers": [{
            "path": "fc", "inferred": false, "kind": "Linear", "activation": false, "output": [1, 128], "dtype": "f32",
            "parameters": 64, "learnable": 64, "parameter_bytes": 256, "feature_bytes": 512, "shares_memory": false,
            "source": { "file": "src/lib.rs", "line": 3, "function": "forward" },
        }],
        "peak": {
            "sample": 3, "step": 0, "phase": "forward", "kernel": "matmul", "live": 768, "reserved": 2_097_152,
            "process": 3_145_728, "categories": [category("parameter", 256), category("activation", 512)], "tensors": [1, 0],
        },
        "phases": [],
        "tensors": [
            { "id": 1, "shape": [64], "dtype": "f32", "bytes": 256, "logical": 256, "category": "parameter", "module": "fc",
              "inferred": false, "operation": "init", "source": null, "step": null, "phase": "model", "born": 0, "died": null, "shares": null },
            { "id": 2, "shape": [1, 128], "dtype": "f32", "bytes": 512, "logical": 512, "category": "activation", "module": "fc",
              "inferred": false, "operation": "linear", "source": null, "step": 0, "phase": "forward", "born": 3, "died": null, "shares": null },
        ],
        "timeline": {
            "live": [256, 256, 256, 768], "reserved": [2_097_152, 2_097_152, 2_097_152, 2_097_152], "kernel": [0, 0, 1, 1],
            "kernels": ["fill", "matmul"],
            "borders": [{ "sample": 0, "step": null, "phase": "model" }, { "sample": 2, "step": 0, "phase": "forward" }],
            "categories": [
                { "category": "parameter", "bytes": [256, 256, 256, 256] },
                { "category": "activation", "bytes": [0, 0, 0, 512] },
            ],
        },
        "lines": [], "leak": { "found": "unknown", "seen": 1, "needed": 5 }, "savings": [], "assumptions": [],
    })
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, value: &Value) {
        std::fs::write(self.path(name), value.to_string()).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn report(&self, arguments: &[&str]) -> Output {
        let all: Vec<_> = ["report"].iter().chain(arguments).copied().collect();
        common::vram(&all).current_dir(self.0.path()).output().unwrap()
    }

    /// The error for a file that the command refuses.
    fn refused(&self, file: &str) -> String {
        let output = self.report(&[file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!self.path("vram-report.html").exists());
        // On one line, because the terminal output is wrapped.
        said.replace(['│', '╰', '─', '▶'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn exists(path: &Path) -> bool {
    path.is_file() && path.metadata().unwrap().len() > 0
}

#[test]
fn a_page_is_drawn_unless_other_pictures_are_asked_for() {
    let folder = Folder::new();
    folder.write("tiny.json", &explanation());
    let output = folder.report(&["tiny.json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("vram-report.html: ")
    );
    assert!(folder.read("vram-report.html").contains("<!DOCTYPE html>"));
    std::fs::remove_file(folder.path("vram-report.html")).unwrap();
    let output = folder.report(&[
        "tiny.json",
        "--svg",
        "a.svg",
        "--trace",
        "a.json",
        "--limit",
        "live=1KiB",
    ]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!folder.path("vram-report.html").exists());
    assert!(folder.read("a.svg").contains("live limit 1 KiB"));
    let trace: Value = serde_json::from_str(&folder.read("a.json")).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 10);
}

#[test]
fn a_page_has_the_commit_its_date_and_source_text_and_is_the_same_each_time() {
    let folder = Folder::new();
    let mut explained = explanation();
    explained["commit"] = json!("0f1e2d3c4b5a69788796a5b4c3d2e1f001122334");
    explained["commit_date"] = json!("2026-11-23T18:04:05+01:00");
    explained["lines"] = json!([{
        "source": { "file": "src/lib.rs", "line": 3, "function": "forward" }, "step": 0, "phase": "forward",
        "live": 768, "change": 512, "came": [1], "went": [],
    }]);
    explained["texts"] =
        json!([{ "file": "src/lib.rs", "line": 3, "text": "let x = f(\"</script><img>\"); // twice" }]);
    folder.write("a.json", &explained);
    assert_eq!(folder.report(&["a.json"]).status.code(), Some(0));
    let page = folder.read("vram-report.html");
    assert!(page.contains("2026-11-23T18:04:05+01:00") && page.contains("0f1e2d3c4b5a69788796"));
    // The text is in the page, but not as an HTML tag.
    assert!(page.contains("script\\u003e\\u003cimg\\u003e\\\"); // twice") && !page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(folder.report(&["a.json"]).status.code(), Some(0));
    assert_eq!(folder.read("vram-report.html"), page);
}

#[test]
fn a_trace_names_tensors_by_shape_and_layer_and_says_its_unit() {
    let folder = Folder::new();
    folder.write("a.json", &explanation());
    assert_eq!(
        folder.report(&["a.json", "--trace", "a.trace.json"]).status.code(),
        Some(0)
    );
    let trace: Value = serde_json::from_str(&folder.read("a.trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let has = |name: &str, key: &str| events.iter().any(|event| event["ph"] == key && event["name"] == name);
    assert!(has("64 · fc", "X") && has("1 × 128 · fc", "X"), "{events:?}");
    let processes: Vec<_> = events.iter().filter(|event| event["name"] == "process_name").collect();
    assert_eq!(processes.len(), 3, "the run, its parameters and its activations");
    for process in processes {
        assert!(
            process["args"]["name"].as_str().unwrap().ends_with("(1 µs = 1 sample)"),
            "{process}"
        );
    }
}

#[test]
fn two_are_compared_and_neither_one_nor_three() {
    let folder = Folder::new();
    folder.write("a.json", &explanation());
    // A file may have several explanations.
    folder.write("two.json", &json!([explanation(), explanation()]));
    let output = folder.report(&["--compare", "a.json", "a.json", "-o", "compared.html"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(exists(&folder.path("compared.html")));
    assert_eq!(folder.report(&["--compare", "two.json"]).status.code(), Some(0));
    for files in [&["a.json"][..], &["a.json", "two.json"]] {
        let all: Vec<_> = ["--compare"].iter().chain(files).copied().collect();
        let output = folder.report(&all);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains("--compare needs two")
        );
    }
}

#[test]
fn nothing_is_written_over_what_is_read_or_was_just_written() {
    let folder = Folder::new();
    folder.write("a.json", &explanation());
    let before = folder.read("a.json");
    std::fs::create_dir(folder.path("in")).unwrap();
    std::os::unix::fs::symlink(folder.path("a.json"), folder.path("link.json")).unwrap();
    let over = |option: &str, path: &str| folder.report(&["a.json", option, path]);
    for option in ["-o", "--svg", "--trace"] {
        for path in ["a.json", "./a.json", "in/../a.json", "link.json"] {
            let output = over(option, path);
            assert_eq!(output.status.code(), Some(2), "{option} {path}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("would overwrite it"), "{said}");
        }
    }
    let output = folder.report(&["a.json", "--svg", "x", "--trace", "in/../x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("would be written to the same file")
    );
    assert_eq!(folder.read("a.json"), before);
    assert!(!folder.path("x").exists());
    // An existing page is overwritten.
    assert_eq!(folder.report(&["a.json"]).status.code(), Some(0));
    assert_eq!(folder.report(&["a.json"]).status.code(), Some(0));
}

#[test]
fn options_that_only_models_heed_are_refused_with_files() {
    let folder = Folder::new();
    folder.write("a.json", &explanation());
    let output = folder.report(&["a.json", "--gpu", "h200", "--steps", "5"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--model <GLOB>") && said.contains("--gpu <ID>"), "{said}");
    assert!(!folder.path("vram-report.html").exists());
}

#[test]
fn a_report_of_check_is_told_from_an_explanation() {
    let folder = Folder::new();
    for report in [
        json!({ "version": 2, "runs": [] }),
        json!([explanation(), { "version": 2, "runs": [{}] }]),
    ] {
        folder.write("report.json", &report);
        let said = folder.refused("report.json");
        assert!(
            said.contains("is a report of `cargo vram check`")
                && said.contains("cargo vram explain MODEL --message-format json -o FILE"),
            "{said}"
        );
    }
}

#[test]
fn what_is_no_explanation_is_told_with_its_place() {
    let folder = Folder::new();
    folder.write("other.json", &json!({ "version": 3 }));
    assert!(
        folder
            .refused("other.json")
            .contains("is not an explanation missing field")
    );
    std::fs::write(folder.path("text.json"), "not JSON").unwrap();
    assert_eq!(folder.refused("text.json").matches("at line 1 column").count(), 1);
    std::fs::write(folder.path("bytes.json"), [0xff, 0xfe]).unwrap();
    assert!(folder.refused("bytes.json").contains("not UTF-8"));
    std::fs::write(folder.path("deep.json"), "[".repeat(100_000)).unwrap();
    assert!(folder.refused("deep.json").contains("is not an explanation"));
    std::fs::write(folder.path("empty.json"), "").unwrap();
    assert!(folder.refused("empty.json").contains("is not an explanation"));
}

#[test]
fn another_version_is_told_before_anything_else() {
    let folder = Folder::new();
    folder.write("new.json", &json!({ "version": 4, "everything": "else" }));
    let said = folder.refused("new.json");
    assert!(
        said.contains("format version 4") && said.contains("explain the model again"),
        "{said}"
    );
}

#[test]
fn indices_that_lead_nowhere_are_refused_and_never_followed() {
    let cases: [(&str, Value, &str); 6] = [
        (
            "/timeline/kernel/1",
            json!(9),
            "timeline.kernel[1]: index 9 is out of range (there are 2 kernels)",
        ),
        ("/peak/tensors/0", json!(4_000_000_000_u32), "peak.tensors"),
        ("/tensors/1/shares", json!(2), "tensors[1].shares"),
        ("/tensors/1/born", json!(77), "tensors[1].born"),
        ("/timeline/live/0", json!(257), "add up to 256, but live is 257"),
        ("/timeline/reserved", json!([]), "timeline.reserved: it has 0 entries"),
    ];
    let folder = Folder::new();
    for (place, value, expected) in cases {
        let mut broken = explanation();
        *broken.pointer_mut(place).unwrap() = value;
        folder.write("broken.json", &broken);
        let said = folder.refused("broken.json");
        assert!(said.contains(expected), "{place}: {said}");
    }
}

#[test]
fn a_file_that_is_too_large_or_not_there_or_no_file_is_told() {
    let folder = Folder::new();
    let file = std::fs::File::create(folder.path("large.json")).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    assert!(folder.refused("large.json").contains("larger than 256 MiB"));
    for missing in ["nowhere.json", "."] {
        let output = folder.report(&[missing]);
        assert_eq!(output.status.code(), Some(101));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        // The message has the file's name and the reason, each once.
        assert_eq!(said.matches(missing).count(), 1, "{said}");
        assert!(said.matches("No such file").count() <= 1, "{said}");
    }
}

#[test]
fn a_limit_that_is_none_is_told() {
    let folder = Folder::new();
    folder.write("a.json", &explanation());
    for limit in ["reserved", "all=1GiB", "live=many"] {
        assert_eq!(folder.report(&["a.json", "--limit", limit]).status.code(), Some(2));
    }
}
