//! What people see of explanations made by hand, and what programs do.

use std::sync::LazyLock;

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::explain::{Border, Category, Leaking, Line, Series};
use crate::report::{Mode, Pass, Phase, RunError};

static RESNET: LazyLock<Explanation> = LazyLock::new(|| Explanation {
    // A few lines are enough to see.
    lines: some_lines(sample::resnet18().lines),
    ..sample::resnet18()
});

fn some_lines(mut lines: Vec<Line>) -> Vec<Line> {
    let backward = lines.pop();
    lines.truncate(9);
    lines.extend(backward);
    lines
}

const TERMINAL: Style = Style {
    width: Some(80),
    color: false,
    unicode: true,
};
const PIPE: Style = Style {
    width: None,
    ..TERMINAL
};

/// Everything that can be chosen.
fn all() -> View<'static> {
    View {
        layers: true,
        phases: true,
        tensors: Some(12),
        lines: true,
        leak: true,
        savings: true,
        verbose: true,
        source_line: Some(&sample::source_line),
        ..View::default()
    }
}

/// What is seen without colours, at these widths; a pipe has none.
macro_rules! assert_seen {
    ($explanation:expr, $view:expr, $($width:expr),+) => {
        let seen: Vec<_> = [$($width),+].map(|width: Option<usize>| {
            let text = explain($explanation, &$view, &Style { width, ..TERMINAL });
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
    let text = explain(
        &RESNET,
        &folded,
        &Style {
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
    assert_seen!(&sample::leaking(), view, Some(80), None);
}

#[test]
fn too_few_steps_to_tell_a_leak_are_no_sign_of_none() {
    let view = View {
        leak: true,
        ..View::default()
    };
    let told = |explanation: &Explanation| explain(explanation, &view, &TERMINAL);
    let mut explanation = sample::resnet18();
    assert!(told(&explanation).contains("too few steps to tell: 3 of 5; use --steps 10"));
    explanation.leak = Leaking::No;
    assert!(told(&explanation).contains("none: live does not grow"));
    let died = sample::out_of_memory();
    assert!(
        told(&died).contains("too few steps to tell: 3 of 5\n"),
        "more steps do not help it"
    );
    assert!(!explain(&RESNET, &View::default(), &TERMINAL).contains("Leak"));
}

#[test]
fn tensors_that_stay_are_told_by_shape() {
    let view = View {
        leak: true,
        exact: true,
        ..View::default()
    };
    let explanation = sample::leaking();
    let text = explain(&explanation, &view, &PIPE);
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("operation  source"))
        .skip(1);
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
        // The sample's rows are padded to 512 bytes.
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
    let style = Style {
        color: true,
        ..TERMINAL
    };
    let view = View {
        phases: true,
        ..View::default()
    };
    let text = explain(&explanation, &view, &style);
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
    let style = Style {
        unicode: false,
        ..TERMINAL
    };
    let mut explanation = sample::leaking();
    explanation.run.model = "größe".to_owned();
    let text = explain(&explanation, &View { layers: false, ..all() }, &style);
    assert!(
        text.is_ascii(),
        "{:?}",
        text.chars().filter(|c| !c.is_ascii()).collect::<String>()
    );
    let text = explain(&explanation, &View::default(), &style);
    assert!(text.is_ascii());
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(text) });
}

#[test]
fn a_model_that_did_nothing() {
    let mut nothing = sample::resnet18();
    nothing.partial = Some("the model died before its first step".to_owned());
    nothing.run.error = Some(RunError {
        code: crate::report::ErrorCode::Panicked,
        message: "index out of bounds".to_owned(),
        help: Some("look at the backtrace".to_owned()),
    });
    nothing.run.mode = Mode::Measure;
    nothing.layers.clear();
    nothing.phases.clear();
    nothing.tensors.clear();
    nothing.lines.clear();
    nothing.savings.clear();
    nothing.timeline = crate::explain::Timeline::default();
    for held in &mut nothing.peak.categories {
        held.bytes = Bytes(0);
    }
    (nothing.peak.live, nothing.peak.reserved, nothing.peak.process) = (Bytes(0), Bytes(0), Bytes(0));
    assert_seen!(&nothing, all(), Some(80));
    assert!(explain(&nothing, &View::default(), &TERMINAL).contains("partial: the model died"));
}

#[test]
fn the_package_is_in_the_title_where_the_name_alone_means_several() {
    let titled = |package| {
        let view = View {
            package,
            ..View::default()
        };
        explain(&RESNET, &view, &TERMINAL)
    };
    assert!(titled(true).starts_with("zoo/resnet18 · training"));
    assert!(titled(false).starts_with("resnet18 · training"));
}

#[test]
fn quiet_leaves_what_is_wrong() {
    let view = View {
        quiet: true,
        layers: true,
        ..View::default()
    };
    assert_eq!(explain(&RESNET, &view, &TERMINAL), "");
    let leaks = explain(&sample::leaking(), &view, &TERMINAL);
    assert!(
        leaks.starts_with("resnet18 · training") && leaks.contains("each step leaves 12 MiB"),
        "{leaks}"
    );
    assert!(
        !leaks.contains("live is highest in") && !leaks.contains("Layers"),
        "{leaks}"
    );
    let died = explain(&sample::out_of_memory(), &view, &TERMINAL);
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
        explain(&RESNET, &view, &TERMINAL)
    };
    assert!(seen(Bytes(900 << 20)).contains("limit ┤") || seen(Bytes(900 << 20)).contains("limit │"));
    assert!(seen(Bytes(1 << 30)).contains("╌╌╌"));
    assert!(!seen(Bytes(24 << 30)).contains('╌'));
    assert!(seen(Bytes(24 << 30)).contains("limit 24 GiB"));
}

/// The text with this name in every place that is not ours.
fn hostile(name: &str, style: &Style) -> String {
    let mut explanation = sample::out_of_memory();
    let name = || name.to_owned();
    explanation.run.model = name();
    explanation.run.inputs = [(name(), 1)].into();
    explanation.run.gpu.name = name();
    explanation.partial = Some(name());
    explanation.assumptions = vec![name()];
    explanation.peak.kernel = Some(name());
    if let Some(oom) = &mut explanation.run.oom {
        oom.kernel = Some(name());
        oom.function = Some(name());
        oom.requested = None;
    }
    for layer in &mut explanation.layers {
        (layer.path, layer.kind) = (name(), name());
        layer.output = vec![0; 9];
    }
    for tensor in &mut explanation.tensors {
        (tensor.dtype, tensor.operation, tensor.module) = (name(), name(), Some(name()));
        if let Some(source) = &mut tensor.source {
            (source.file, source.function) = (name(), name());
        }
        tensor.shape.clear();
    }
    for kernel in &mut explanation.timeline.kernels {
        *kernel = name();
    }
    for line in &mut explanation.lines {
        (line.source.file, line.source.function) = (name(), name());
    }
    for saving in &mut explanation.savings {
        (saving.change, saving.cost, saving.note) = (name(), name(), Some(name()));
    }
    explanation.leak = sample::leaking().leak;
    let read = |_: &str, _: u32| Some(name());
    let view = View {
        source_line: Some(&read),
        ..all()
    };
    explain(&explanation, &View::default(), style) + &explain(&explanation, &view, style)
}

#[test]
fn names_cannot_steer_a_terminal_or_turn_a_line_around() {
    let name =
        "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}a\u{301}\u{65e5}\n::error::gone\r\n\tz";
    let text = hostile(name, &TERMINAL);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']));
    assert!(!text.lines().any(|line| line.starts_with("::error")));
}

/// A view from bits, such that all are tried.
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
        source_line: Some(&sample::source_line),
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
        static ALL: LazyLock<[Explanation; 2]> = LazyLock::new(|| [sample::leaking(), sample::out_of_memory()]);
        let style = Style { width: Some(width), color, unicode };
        for explanation in ALL.iter().chain([&*RESNET]) {
            within(&explain(explanation, &view_of(bits), &style), width)?;
        }
    }

    #[test]
    fn no_name_makes_a_line_wider(name in ".{0,40}", width in 20_usize..140, color: bool) {
        let style = Style { width: Some(width), color, unicode: true };
        let text = hostile(&name, &style);
        for line in anstream::adapter::strip_str(&text).to_string().lines() {
            prop_assert!(line.width() <= width, "{} > {width}: {line:?}", line.width());
        }
    }
}

#[test]
fn colours_are_all_that_colours_add_but_for_letters() {
    let color = Style {
        color: true,
        ..TERMINAL
    };
    let with = explain(
        &RESNET,
        &View {
            layers: true,
            ..View::default()
        },
        &color,
    );
    let without = explain(
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

/// The fields of a row of a piped table: of the first that begins with these words.
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
    let text = explain(&RESNET, &exact, &PIPE);
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
    assert!(!text.contains("adds up to"));

    let text = explain(&RESNET, &View { layers: true, ..exact }, &PIPE);
    let rows = text.lines().skip_while(|line| !line.contains("in bytes")).skip(1);
    let mut sums = [0_u64; 3];
    let rows = rows.take_while(|row| !row.contains("──")).map(|row| {
        let row = row.split("  ").map(str::trim);
        row.filter(|field| !field.is_empty()).collect::<Vec<_>>()
    });
    // Modules repeat what their layers have.
    let (modules, rows): (Vec<_>, Vec<_>) = rows.partition(|row| row[1].ends_with(" layers"));
    assert_eq!(rows.len(), RESNET.layers.len());
    assert!(!modules.is_empty());
    for row in rows {
        for (sum, field) in sums.iter_mut().zip(&row[4..7]) {
            // Counts are in groups everywhere.
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
        let text = explain(&RESNET, &view, &PIPE);
        let rows = text.lines().skip_while(|line| !line.contains("in bytes")).skip(1);
        let rows = rows.take_while(|row| !row.contains("──")).map(|row| {
            let fields = row.split("  ").map(str::trim).filter(|field| !field.is_empty());
            let map = fields.clone().nth(6).unwrap().trim_end_matches('*').parse().unwrap();
            (row.len() - row.trim_start().len(), map)
        });
        // What is further to the right is inside.
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
    let mut explanation = sample::resnet18();
    explanation.peak.live += Bytes(4096);
    explanation.totals.parameters += 7;
    explanation.totals.feature_bytes = explanation.totals.feature_bytes - Bytes(1 << 20);
    let text = explain(&explanation, &View::default(), &TERMINAL);
    assert!(text.contains("what is above adds up to"), "{text}");
    let text = explain(
        &explanation,
        &View {
            layers: true,
            ..View::default()
        },
        &TERMINAL,
    );
    assert!(text.contains("counted twice"), "{text}");
    assert!(text.contains("in none of them"), "{text}");
    assert!(text.contains("do not add up to all parameters"), "{text}");
}

#[test]
fn the_peak_is_drawn_however_short_it_is() {
    let mut explanation = sample::resnet18();
    let samples = 100_000;
    let mut live = vec![Bytes(1 << 20); samples];
    live[77_777] = Bytes(1 << 30);
    explanation.peak.sample = 77_777;
    explanation.timeline = crate::explain::Timeline {
        reserved: live.clone(),
        kernel: vec![0; samples],
        kernels: vec!["k".to_owned()],
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
    let text = timeline::drawing(&explanation, None, &Paper::new(&View::default(), &TERMINAL));
    let rows: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let at = rows.iter().find_map(|row| row.iter().position(|c| *c == '▼')).unwrap();
    let drawn = rows.iter().filter(|row| row.get(at) == Some(&'A')).count();
    assert!(drawn >= 9, "{text}");
}

#[test]
fn four_times_as_many_operations_are_not_sixteen_times_the_work() {
    // The first time, what is made once is made.
    seconds_to_draw(100);
    let (few, many) = (seconds_to_draw(5_000), seconds_to_draw(20_000));
    assert!(many < 8.0 * few, "{few} s, then {many} s");
}

/// The processor time of drawing so many layers, tensors, lines and phases: of this thread alone, whatever else the machine does.
fn seconds_to_draw(many: usize) -> f64 {
    let mut explanation = sample::resnet18();
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
    let text = explain(&explanation, &view, &TERMINAL);
    let took = now() - began;
    assert!(text.lines().count() > 3 * many);
    took
}

/// Lines of two functions: the first calls the second twice, and does something itself before and after.
fn calls() -> Explanation {
    let explanation = sample::resnet18();
    let source = |function: &str, line: u32| crate::explain::Source {
        file: "src/model.rs".to_owned(),
        line,
        function: function.to_owned(),
    };
    let (block, network) = ("app::Block::forward", "app::Network::forward");
    let mut live = 0_u64;
    let mut line = |function: &str, number: u32, caller: Option<u32>, mib: u64, came: u32| {
        live += mib << 20;
        Line {
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

/// The rows of a function's lines: the line's number, what is live after it, and what it adds.
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
    let text = explain(&calls(), &view, &PIPE);
    let text = &text[text.find("bytes of all tensors after each").unwrap()..];
    let network = rows_of(text, "app::Network::forward");
    let expected = [
        ["10", "16 MiB", "+16 MiB"],
        ["11", "200 MiB", "+184 MiB"],
        // Its own operation comes after what the function adds.
        ["12", "209 MiB", "+9 MiB"],
    ];
    assert_eq!(network, expected.map(|row| row.map(str::to_owned)), "{text}");
    let block = rows_of(text, "app::Block::forward");
    assert_eq!(block.len(), 3, "{text}");
    // What is in both is counted once.
    assert!(
        text.contains("all lines together") && text.contains("+209 MiB"),
        "{text}"
    );
}
