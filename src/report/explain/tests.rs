//! What people see of explanations made by hand.

use super::*;

#[test]
fn look() {
    let width = std::env::var("W").ok().and_then(|w| w.parse().ok());
    let style = Style {
        width,
        color: std::env::var("C").is_ok(),
        unicode: std::env::var("A").is_err(),
    };
    let what = std::env::var("V").unwrap_or_default();
    let has = |x: &str| what.contains(x);
    let view = View {
        layers: has("layers"),
        depth: has("depth").then_some(1),
        phases: has("phases"),
        tensors: has("tensors").then_some(25),
        lines: has("lines"),
        leak: has("leak"),
        savings: has("savings"),
        exact: has("exact"),
        verbose: has("verbose"),
        limit: has("limit").then_some(Bytes(2 << 30)),
        source_line: Some(&sample::source_line),
    };
    let e = if has("oom") {
        sample::out_of_memory()
    } else if has("leak") {
        sample::leaking()
    } else {
        sample::resnet18()
    };
    std::fs::write("/tmp/term-look", explain(&e, &view, &style)).unwrap();
}
