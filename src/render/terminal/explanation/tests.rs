//! Tests the rendering of handmade explanations, on terminals and in pipes.

use std::sync::LazyLock;

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::bytes::Bytes;
use crate::explain::{Border, Category, Certainty, Leaking, Saving, Series, SourceLineMemory, sample};
use crate::report::{Assumption, Mode, Pass, Phase, RunError};
use crate::untrusted::{Foreign, PlainName};

static RESNET: LazyLock<Explanation> = LazyLock::new(resnet18);

fn resnet18() -> Explanation {
    let resnet = sample::resnet(2, 0);
    Explanation {
        savings: savings(resnet.peak.live.0, resnet.peak.reserved.0),
        ..resnet
    }
}

/// An explanation of a model with a leak.
fn leaking() -> Explanation {
    sample::resnet(12, 0)
}

/// Returns the text of a source line, except for a generated file.
fn source_line(file: &str, line: u32) -> Option<String> {
    (file != "src/generated.rs").then(|| format!("\t\tlet x = self.block{line}.forward(x);"))
}

fn savings(live: u64, reserved: u64) -> Vec<Saving> {
    let saving = |code: &str, change: &str, live: Option<u64>, reserved: Option<u64>| Saving {
        code: code.into(),
        change: change.into(),
        live: live.map(Bytes),
        reserved: reserved.map(Bytes),
        saved_live: None,
        saved_reserved: None,
        cost: Foreign::default(),
        certainty: Certainty::Run,
        note: None,
    };
    vec![
        Saving {
            saved_live: Some((live / 2) as i64),
            saved_reserved: Some((reserved / 2) as i64),
            cost: "twice as many steps an epoch".into(),
            ..saving(
                "smaller-batch",
                "batch_size=16 instead of 32",
                Some(live - live / 2),
                Some(reserved - reserved / 2),
            )
        },
        Saving {
            saved_live: Some(12 << 20),
            certainty: Certainty::Timeline,
            note: Some("images, 18.38 MiB, are held by `batch` in benches/vram.rs since step 1, batch".into()),
            ..saving(
                "drop-inputs",
                "drop the images after forward",
                Some(live - (12 << 20)),
                None,
            )
        },
        Saving {
            saved_live: Some(-(90 << 20)),
            certainty: Certainty::Run,
            cost: "one more copy of the parameters".into(),
            ..saving(
                "ema",
                "keep an average of the parameters",
                Some(live + (90 << 20)),
                None,
            )
        },
        Saving {
            saved_live: Some(0),
            saved_reserved: Some(0),
            cost: "it may converge more slowly".into(),
            ..saving(
                "stateless-optimizer",
                "SGD without momentum",
                Some(live),
                Some(reserved),
            )
        },
        Saving {
            saved_live: Some(392 << 20),
            certainty: Certainty::Already,
            note: Some("Burn writes the activations over their inputs".into()),
            ..saving("in-place", "activations in place", Some(live), Some(reserved))
        },
        Saving {
            certainty: Certainty::Unknown,
            cost: "a third more time".into(),
            note: Some("the model does not say which of its blocks could be computed again".into()),
            ..saving("checkpointing", "recompute activations in backward", None, None)
        },
    ]
}

const TERMINAL: TerminalStyle = TerminalStyle {
    width: Some(80),
    color: false,
    unicode: true,
};
const PIPE: TerminalStyle = TerminalStyle {
    width: None,
    ..TERMINAL
};

/// Selects all parts.
fn all() -> View<'static> {
    View {
        layers: true,
        phases: true,
        tensors: Some(12),
        lines: true,
        leak: true,
        savings: true,
        verbose: true,
        source_line: Some(&source_line),
        ..View::default()
    }
}

/// Compares the text without colours at these widths; `None` is a pipe.
macro_rules! assert_seen {
    ($explanation:expr, $view:expr, $($width:expr),+) => {
        let seen: Vec<_> = [$($width),+].map(|width: Option<usize>| {
            let text = render($explanation, &$view, &TerminalStyle { width, ..TERMINAL });
            let name = width.map_or("a pipe".to_owned(), |width| "-".repeat(width));
            format!("{name}\n{text}")
        }).into();
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(seen.join("\n")) });
    };
}

#[test]
fn an_overview() {
    assert_seen!(&RESNET, View::default(), Some(120), Some(80), Some(60), None);
}

#[test]
fn layers_whole_and_by_module() {
    assert_seen!(
        &RESNET,
        View {
            layers: true,
            ..View::default()
        },
        Some(80)
    );
    let folded = View {
        depth: Some(1),
        ..View::default()
    };
    let text = render(
        &RESNET,
        &folded,
        &TerminalStyle {
            width: Some(120),
            ..TERMINAL
        },
    );
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("by_module", text) });
}

#[test]
fn all_that_can_be_chosen() {
    let view = View { layers: false, ..all() };
    assert_seen!(&RESNET, view, Some(120), Some(80), Some(60), None);
}

#[test]
fn a_leak() {
    let view = View {
        leak: true,
        ..View::default()
    };
    assert_seen!(&leaking(), view, Some(80), None);
}

#[test]
fn too_few_steps_to_tell_a_leak_are_no_sign_of_none() {
    let view = View {
        leak: true,
        ..View::default()
    };
    let told = |explanation: &Explanation| render(explanation, &view, &TERMINAL);
    let mut explanation = resnet18();
    assert!(told(&explanation).contains("leak detection needs 5 steps, but the run had 2; use --steps 10"));
    explanation.leak = Leaking::No {
        interval: crate::report::GrowthInterval::Step,
    };
    assert!(told(&explanation).contains("none: live memory does not grow"));
    let died = sample::out_of_memory();
    assert!(
        told(&died).contains("leak detection needs 5 steps, but the run had 2\n"),
        "more steps do not help it"
    );
    assert!(!render(&RESNET, &View::default(), &TERMINAL).contains("Leak"));
}

#[test]
fn tensors_that_stay_are_told_by_shape() {
    let view = View {
        leak: true,
        exact: true,
        ..View::default()
    };
    let explanation = leaking();
    let text = render(&explanation, &view, &PIPE);
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("operation  source"))
        .skip(1)
        .take_while(|line| !line.is_empty());
    for row in rows {
        let fields: Vec<_> = row
            .split("  ")
            .map(str::trim)
            .filter(|field| !field.is_empty())
            .collect();
        let [kept, count, shape, ..] = fields[..] else {
            panic!("{row}");
        };
        let number = |text: &str| text.parse::<u64>().unwrap();
        let elements: u64 = shape.split('×').map(number).product();
        // The sample pads each row to a multiple of 512 bytes.
        assert_eq!(
            number(kept),
            number(count) * (elements * 4).div_ceil(512) * 512,
            "{row}"
        );
    }
}

#[test]
fn an_out_of_memory() {
    let explanation = sample::out_of_memory();
    assert_seen!(&explanation, View::default(), Some(80));
    let style = TerminalStyle {
        color: true,
        ..TERMINAL
    };
    let view = View {
        phases: true,
        ..View::default()
    };
    let text = render(&explanation, &view, &style);
    let red = text.lines().filter(|line| line.contains(&format!("{BAD}")));
    let red: Vec<_> = red.map(|line| anstream::adapter::strip_str(line).to_string()).collect();
    assert!(red.iter().any(|line| line.contains("backward ✗")), "{red:?}");
    assert!(
        red.iter().any(|line| line.contains("tried to allocate 3 GiB")),
        "{red:?}"
    );
}

#[test]
fn where_there_is_only_ascii() {
    let style = TerminalStyle {
        unicode: false,
        ..TERMINAL
    };
    let mut explanation = leaking();
    explanation.run.model = "größe".into();
    let text = render(&explanation, &View { layers: false, ..all() }, &style);
    assert!(
        text.is_ascii(),
        "{:?}",
        text.chars().filter(|c| !c.is_ascii()).collect::<String>()
    );
    let text = render(&explanation, &View::default(), &style);
    assert!(text.is_ascii());
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
}

#[test]
fn a_model_that_did_nothing() {
    let mut nothing = resnet18();
    nothing.partial = Some("the model died before its first step".into());
    nothing.run.error = Some(RunError {
        code: crate::report::ErrorCode::Panicked,
        message: "index out of bounds".into(),
        help: Some("look at the backtrace".into()),
    });
    nothing.run.mode = Mode::Measure;
    nothing.layers.clear();
    nothing.phases.clear();
    nothing.tensors.clear();
    nothing.lines.clear();
    nothing.savings.clear();
    nothing.timeline = crate::explain::MemoryTimeline::default();
    for held in &mut nothing.peak.categories {
        held.bytes = Bytes(0);
    }
    (nothing.peak.live, nothing.peak.reserved, nothing.peak.process) = (Bytes(0), Bytes(0), Bytes(0));
    assert_seen!(&nothing, all(), Some(80));
    assert!(render(&nothing, &View::default(), &TERMINAL).contains("incomplete run: the model died"));
}

#[test]
fn the_package_is_in_the_title_where_the_name_alone_means_several() {
    let titled = |package| {
        let view = View {
            package,
            ..View::default()
        };
        render(&RESNET, &view, &TERMINAL)
    };
    assert!(titled(true).starts_with("p/resnet18 · training"));
    assert!(titled(false).starts_with("resnet18 · training"));
}

#[test]
fn quiet_leaves_what_is_wrong() {
    let view = View {
        quiet: true,
        layers: true,
        ..View::default()
    };
    assert_eq!(render(&RESNET, &view, &TERMINAL), "");
    let leaks = render(&leaking(), &view, &TERMINAL);
    assert!(
        leaks.starts_with("resnet18 · training") && leaks.contains("live memory grows on average by 256 KiB"),
        "{leaks}"
    );
    assert!(
        !leaks.contains("live memory peaks in") && !leaks.contains("Layers"),
        "{leaks}"
    );
    let died = render(&sample::out_of_memory(), &view, &TERMINAL);
    assert!(
        died.contains("out of memory") && !died.contains("At the peak"),
        "{died}"
    );
}

#[test]
fn a_limit_is_drawn_where_it_is_near_and_told_where_it_is_far() {
    let seen = |limit| {
        let view = View {
            phases: true,
            limit: Some(limit),
            ..View::default()
        };
        render(&RESNET, &view, &TERMINAL)
    };
    assert!(seen(Bytes(900 << 20)).contains("limit ┤") || seen(Bytes(900 << 20)).contains("limit │"));
    assert!(seen(Bytes(1 << 30)).contains("╌╌╌"));
    assert!(!seen(Bytes(24 << 30)).contains('╌'));
    assert!(seen(Bytes(24 << 30)).contains("limit 24 GiB"));
}

/// Renders an explanation in which every text from outside is this name.
fn hostile(name: &str, style: &TerminalStyle) -> String {
    let mut explanation = sample::out_of_memory();
    let name = || name.to_owned();
    explanation.run.model = PlainName::escaped(&name());
    explanation.run.inputs = [(PlainName::escaped(&name()), 1)].into();
    explanation.run.gpu.name = name().into();
    explanation.partial = Some(name().into());
    explanation.assumptions = vec![Assumption::from_document(name(), name())];
    explanation.peak.kernel = Some(name().into());
    if let Some(oom) = &mut explanation.run.oom {
        oom.kernel = Some(name().into());
        oom.function = Some(name().into());
        oom.requested = None;
    }
    for layer in &mut explanation.layers {
        (layer.path, layer.kind) = (name().into(), name().into());
        layer.output = vec![0; 9];
    }
    for tensor in &mut explanation.tensors {
        (tensor.dtype, tensor.operation, tensor.module) = (name().into(), name().into(), Some(name().into()));
        if let Some(source) = &mut tensor.source {
            (source.file, source.function) = (name().into(), name().into());
        }
        tensor.shape.clear();
    }
    for kernel in &mut explanation.timeline.kernels {
        *kernel = name().into();
    }
    for line in &mut explanation.lines {
        (line.source.file, line.source.function) = (name().into(), name().into());
    }
    for saving in &mut explanation.savings {
        (saving.change, saving.cost, saving.note) = (name().into(), name().into(), Some(name().into()));
    }
    explanation.leak = leaking().leak;
    let read = |_: &str, _: u32| Some(name());
    let view = View {
        source_line: Some(&read),
        ..all()
    };
    render(&explanation, &View::default(), style) + &render(&explanation, &view, style)
}

#[test]
fn names_cannot_steer_a_terminal_or_turn_a_line_around() {
    let name = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}a\u{301}\u{65e5}\n::error::gone\r\n  ::add-mask::y##[error]\n\tz";
    let text = hostile(name, &TERMINAL);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']));
    assert!(
        !text
            .lines()
            .any(|line| line.trim_start().starts_with("::") || line.contains("##["))
    );
}

/// Makes a view from bits, so that tests can try random combinations.
fn view_of(bits: u16) -> View<'static> {
    let bit = |at: u16| bits >> at & 1 == 1;
    View {
        layers: bit(0),
        depth: bit(1).then_some(usize::from(bits >> 10 & 3)),
        phases: bit(2),
        tensors: bit(3).then_some(20),
        lines: bit(4),
        leak: bit(5),
        savings: bit(6),
        exact: bit(7),
        verbose: bit(8),
        package: bit(12),
        quiet: bit(13),
        limit: bit(9).then_some(Bytes(u64::from(bits) << 20)),
        limit_written: bit(9).then_some("300 MB"),
        source_line: Some(&source_line),
    }
}

fn within(text: &str, width: usize) -> Result<(), TestCaseError> {
    for line in anstream::adapter::strip_str(text).to_string().lines() {
        prop_assert!(line.width() <= width, "{} > {width}: {line:?}", line.width());
        prop_assert_eq!(line.trim_end(), line);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_line_is_wider_than_the_terminal(bits: u16, width in 20_usize..240, color: bool, unicode: bool) {
        static ALL: LazyLock<[Explanation; 2]> = LazyLock::new(|| [leaking(), sample::out_of_memory()]);
        let style = TerminalStyle { width: Some(width), color, unicode };
        for explanation in ALL.iter().chain([&*RESNET]) {
            within(&render(explanation, &view_of(bits), &style), width)?;
        }
    }

    #[test]
    fn no_name_makes_a_line_wider(name in ".{0,40}", width in 20_usize..140, color: bool) {
        let style = TerminalStyle { width: Some(width), color, unicode: true };
        let text = hostile(&name, &style);
        for line in anstream::adapter::strip_str(&text).to_string().lines() {
            prop_assert!(line.width() <= width, "{} > {width}: {line:?}", line.width());
        }
    }
}

#[test]
fn colours_are_all_that_colours_add_but_for_letters() {
    let color = TerminalStyle {
        color: true,
        ..TERMINAL
    };
    let with = render(
        &RESNET,
        &View {
            layers: true,
            ..View::default()
        },
        &color,
    );
    let without = render(
        &RESNET,
        &View {
            layers: true,
            ..View::default()
        },
        &TERMINAL,
    );
    assert_ne!(with, without);
    assert_eq!(anstream::adapter::strip_str(&with).to_string(), without);
}

/// Returns the fields of the first row of a piped table that begins with these words.
fn fields<'a>(text: &'a str, begins: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("no `{begins}` in\n{text}"));
    line.split("  ")
        .map(str::trim)
        .filter(|field| !field.is_empty())
        .collect()
}

#[test]
fn what_is_shown_adds_up_to_the_byte() {
    let exact = View {
        exact: true,
        ..View::default()
    };
    let text = render(&RESNET, &exact, &PIPE);
    let peak = &RESNET.peak;
    let bytes = |begins: &str| -> u64 { fields(&text, begins).get(1).unwrap().parse().unwrap() };
    let live: u64 = Category::ALL
        .iter()
        .take(10)
        .map(|category| {
            let look = categories::look(*category);
            bytes(&format!("{} {}  ", look.letter, look.name))
        })
        .sum();
    assert_eq!((live, bytes("live  ")), (peak.live.0, peak.live.0));
    let reserved = live + bytes(": fragmentation");
    assert_eq!((reserved, bytes("reserved  ")), (peak.reserved.0, peak.reserved.0));
    let process = reserved + bytes("C context") + bytes("M modules");
    assert_eq!((process, bytes("process  ")), (peak.process.0, peak.process.0));
    assert!(!text.contains("add up to"));

    let text = render(&RESNET, &View { layers: true, ..exact }, &PIPE);
    let rows = text.lines().skip_while(|line| !line.contains("in bytes")).skip(1);
    let mut sums = [0_u64; 3];
    let rows = rows.take_while(|row| !row.contains("──")).map(|row| {
        let row = row.split("  ").map(str::trim);
        row.filter(|field| !field.is_empty()).collect::<Vec<_>>()
    });
    // The rows of modules repeat the values of their layers.
    let (modules, rows): (Vec<_>, Vec<_>) = rows.partition(|row| row[1].ends_with(" layers"));
    assert_eq!(rows.len(), RESNET.layers.len());
    assert!(!modules.is_empty());
    for row in rows {
        for (sum, field) in sums.iter_mut().zip(&row[4..7]) {
            // Counts have commas between groups of digits, even in a pipe.
            *sum += field.trim_end_matches('*').replace(',', "").parse::<u64>().unwrap_or(0);
        }
    }
    let totals = &RESNET.totals;
    assert_eq!(
        sums,
        [totals.parameters, totals.parameter_bytes.0, totals.feature_bytes.0]
    );
    let total: Vec<u64> = fields(&text, "total")[1..]
        .iter()
        .map(|field| field.replace(',', "").parse().unwrap())
        .collect();
    assert_eq!(total, sums);
}

#[test]
fn folded_layers_add_up_to_the_same() {
    for depth in 1..4 {
        let view = View {
            depth: Some(depth),
            exact: true,
            ..View::default()
        };
        let text = render(&RESNET, &view, &PIPE);
        let rows = text.lines().skip_while(|line| !line.contains("in bytes")).skip(1);
        let rows = rows.take_while(|row| !row.contains("──")).map(|row| {
            let fields = row.split("  ").map(str::trim).filter(|field| !field.is_empty());
            let map = fields.clone().nth(6).unwrap().trim_end_matches('*').parse().unwrap();
            (row.len() - row.trim_start().len(), map)
        });
        // Rows with a larger indent are inside the row above.
        let rows: Vec<(usize, u64)> = rows.collect();
        let (mut maps, mut subtotals) = (0, 0);
        for (place, (indent, map)) in rows.iter().enumerate() {
            let inner = rows[place + 1..].iter().take_while(|(inner, _)| inner > indent);
            let inner: Vec<_> = inner.collect();
            let Some((next, _)) = inner.first() else {
                maps += map;
                continue;
            };
            let parts = inner.iter().filter(|(inner, _)| inner == next);
            assert_eq!(*map, parts.map(|(_, map)| map).sum::<u64>(), "row {place} of {text}");
            subtotals += 1;
        }
        assert_eq!(maps, RESNET.totals.feature_bytes.0, "{text}");
        assert_eq!(subtotals > 0, depth > 1, "{text}");
    }
}

#[test]
fn what_does_not_add_up_is_told() {
    let mut explanation = resnet18();
    explanation.peak.live += Bytes(4096);
    explanation.totals.parameters += 7;
    explanation.totals.feature_bytes = explanation.totals.feature_bytes - Bytes(1 << 20);
    let text = render(&explanation, &View::default(), &TERMINAL);
    assert!(text.contains("the rows above add up to"), "{text}");
    let text = render(
        &explanation,
        &View {
            layers: true,
            ..View::default()
        },
        &TERMINAL,
    );
    assert!(text.contains("counted twice"), "{text}");
    assert!(text.contains("in no layer"), "{text}");
    assert!(text.contains("do not add up to all parameters"), "{text}");
}

#[test]
fn the_peak_is_drawn_however_short_it_is() {
    let mut explanation = resnet18();
    let samples = 100_000;
    let mut live = vec![Bytes(1 << 20); samples];
    live[77_777] = Bytes(1 << 30);
    explanation.peak.sample = 77_777;
    explanation.timeline = crate::explain::MemoryTimeline {
        reserved: live.clone(),
        kernel: vec![0; samples],
        kernels: vec!["k".into()],
        borders: vec![Border {
            sample: 0,
            step: Some(0),
            phase: crate::report::Phase::Forward,
        }],
        categories: vec![Series {
            category: Category::Activation,
            bytes: live.clone(),
        }],
        live,
    };
    let text = timeline::drawing(&explanation, None, &Canvas::new(&View::default(), &TERMINAL));
    let rows: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let at = rows.iter().find_map(|row| row.iter().position(|c| *c == '▼')).unwrap();
    let drawn = rows.iter().filter(|row| row.get(at) == Some(&'A')).count();
    assert!(drawn >= 9, "{text}");
}

#[test]
fn four_times_as_many_operations_are_not_sixteen_times_the_work() {
    // The first call also creates what is created only once, so it is not timed.
    seconds_to_draw(100);
    let (few, many) = (seconds_to_draw(5_000), seconds_to_draw(20_000));
    assert!(many < 8.0 * few, "{few} s, then {many} s");
}

/// Measures the processor time of rendering this many layers, tensors, lines and phases. It counts this thread only, so
/// that other load on the machine does not matter.
fn seconds_to_draw(many: usize) -> f64 {
    let mut explanation = resnet18();
    explanation.layers = explanation.layers.iter().cycle().take(many).cloned().collect();
    let tensors = explanation.tensors.len() as u32;
    explanation.peak.tensors = (0..tensors).cycle().take(many).collect();
    let lines = explanation.lines.clone();
    explanation.lines = lines.iter().take(60).cycle().take(many).cloned().collect();
    let warm: Vec<_> = explanation
        .phases
        .iter()
        .filter(|row| row.pass == Pass::Traced)
        .cloned()
        .collect();
    explanation.phases = warm.iter().cycle().take(many).cloned().collect();
    for series in &mut explanation.timeline.categories {
        series.bytes = series.bytes.iter().cycle().take(2 * many).copied().collect();
    }
    let timeline = &mut explanation.timeline;
    timeline.live = timeline.live.iter().cycle().take(2 * many).copied().collect();
    timeline.reserved = timeline.reserved.iter().cycle().take(2 * many).copied().collect();
    let view = View {
        tensors: Some(many),
        ..all()
    };
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let began = now();
    let text = render(&explanation, &view, &TERMINAL);
    let took = now() - began;
    assert!(text.lines().count() > 3 * many);
    took
}

/// An explanation with lines of two functions. The first calls the second twice, and has own operations before and
/// after.
fn calls() -> Explanation {
    let explanation = resnet18();
    let source = |function: &str, line: u32| crate::explain::SourceLocation {
        file: "src/model.rs".into(),
        line,
        function: function.into(),
    };
    let (block, network) = ("app::Block::forward", "app::Network::forward");
    let mut live = 0_u64;
    let mut line = |function: &str, number: u32, caller: Option<u32>, mib: u64, came: u32| {
        live += mib << 20;
        SourceLineMemory {
            source: source(function, number),
            callers: caller.map(|line| source(network, line)).into_iter().collect(),
            step: Some(1),
            phase: Phase::Forward,
            live: Bytes(live),
            change: (mib << 20) as i64,
            came: vec![came],
            went: Vec::new(),
        }
    };
    let lines = vec![
        line(network, 10, None, 16, 0),
        line(block, 3, Some(11), 100, 1),
        line(block, 4, Some(11), 84, 2),
        line(block, 3, Some(12), 8, 3),
        line(network, 12, None, 1, 4),
    ];
    Explanation { lines, ..explanation }
}

/// Returns the rows of a function's lines: the number, the live memory after the line, and what it adds.
fn rows_of(text: &str, function: &str) -> Vec<[String; 3]> {
    let rows = text.lines().skip_while(|line| !line.contains(function)).skip(1);
    let rows = rows.take_while(|line| !line.contains("this function"));
    let cells = rows.map(|line| {
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    });
    cells
        .filter(|cells| cells.len() >= 3 && cells[0].parse::<u32>().is_ok())
        .map(|cells| [cells[0], cells[1], cells[2]].map(str::to_owned))
        .collect()
}

#[test]
fn a_line_that_calls_a_function_of_the_users_own_counts_what_that_one_adds() {
    let view = View {
        lines: true,
        ..View::default()
    };
    let text = render(&calls(), &view, &PIPE);
    let text = &text[text.find("bytes of all tensors after each").unwrap()..];
    let network = rows_of(text, "app::Network::forward");
    let expected = [
        ["10", "16 MiB", "+16 MiB"],
        ["11", "200 MiB", "+184 MiB"],
        // The line calls the function first; its own operation comes after that.
        ["12", "209 MiB", "+9 MiB"],
    ];
    assert_eq!(network, expected.map(|row| row.map(str::to_owned)), "{text}");
    let block = rows_of(text, "app::Block::forward");
    assert_eq!(block.len(), 3, "{text}");
    // What both functions list is counted once.
    assert!(
        text.contains("all lines together") && text.contains("+209 MiB"),
        "{text}"
    );
}
