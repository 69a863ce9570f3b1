//! Tests what reviewers see, and that no name changes the structure of the page.

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::*;
use crate::budget::{Budgets, judge};
use crate::bytes::Bytes;
use crate::report::{
    Base, Baseline, BaselineFrom, ChangedDependency, EditedLimit, Oom, Pass, Peaks, Phase, Problem, Run, RunError,
    Skipped, SkippedCheck, sample,
};
use crate::untrusted::{Foreign, PlainName};

const MIB: u64 = 1 << 20;
const BUDGETS: &str = "version: 1\ngpu: l4\nmodels:\n  grown: { reserved: 2 GiB }\n  a: { reserved: 900 MiB }\n";

/// Gives a run a baseline with this many MiB of warm live memory.
fn compared(mut run: Run, live: u64) -> Run {
    let mut peaks = run.peaks;
    peaks.warm.live = Some(Bytes(live * MIB));
    run.baseline = Some(Baseline {
        from: BaselineFrom::Lock,
        burn: run.burn.clone(),
        inputs: run.inputs.clone(),
        parameters: None,
        peaks,
        differs: Vec::new(),
    });
    run
}

/// A report of these runs with their verdicts.
fn judged(runs: Vec<Run>) -> Report {
    let budgets = Budgets::parse(BUDGETS.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
    let mut verdicts = judge(&runs, &budgets, "budgets.yaml");
    verdicts.retain(|verdict| verdict.rule != Rule::Budget || verdict.limit.is_some());
    let status = verdicts.iter().map(|verdict| verdict.status).max();
    Report {
        verdicts,
        status: status.unwrap_or(Status::Pass),
        commit: Some("0123456789abcdef0123456789abcdef01234567".into()),
        ..sample::report(runs)
    }
}

/// A report with one of everything. Its texts come from `names`.
fn everything(names: &[String]) -> Report {
    let mut names = names.iter().cycle();
    let mut next = || names.next().cloned().unwrap_or_default();
    let mut run = |model: &str, live| {
        let mut run = compared(sample::run(model, "l4"), live);
        run.package = PlainName::escaped(&next());
        run.model = PlainName::escaped(&next());
        run.budget = Some(PlainName::escaped(&next()));
        run.gpu.id = PlainName::escaped(&next());
        run.gpu.name = next().into();
        run.gpu.driver = next().into();
        run.burn = next().into();
        run
    };
    let mut died = run("died", 800);
    let mut full = run("full", 800);
    let (grown, same) = (run("grown", 400), run("same", 800));
    let measured = sample::measured(run("measured", 900));
    let mut new = run("new", 1);
    new.baseline = None;
    died.error = Some(RunError {
        code: crate::report::ErrorCode::parse(&next()),
        message: next().into(),
        help: Some(next().into()),
    });
    full.oom = Some(Oom {
        pass: Pass::Warm,
        gpu_number: None,
        step: Some(1),
        phase: Some(Phase::Optimizer),
        kernel: Some(next().into()),
        requested: Some(Bytes(1 << 30)),
        function: Some(next().into()),
        reserved: Bytes(22 << 30),
        live: None,
        available: Bytes(1 << 20),
        tensor: None,
    });
    let mut report = judged(vec![died, full, grown, same, measured, new]);
    for verdict in &mut report.verdicts {
        verdict.message = next().into();
    }
    report.tool.name = next().into();
    report.tool.version = next().into();
    report.commit = Some(next().into());
    report.partition = Some(next().into());
    report.base = Some(Base {
        folder: Foreign::default(),
        revision: next().into(),
        commit: next().into(),
        edited: vec![EditedLimit {
            loosens: false,
            model: Some(next().into()),
            limit: next().into(),
            before: Some(next().into()),
            after: Some(next().into()),
            file: next().into(),
            line: Some(3),
        }],
        dependencies: vec![ChangedDependency {
            name: next().into(),
            before: vec![next().into()],
            after: vec![next().into()],
        }],
    });
    report.skipped = vec![Skipped {
        check: SkippedCheck::Growth,
        model: Some(next().into()),
        why: next().into(),
    }];
    report.problems = vec![Problem {
        package: PlainName::escaped(&next()),
        target: Some(next().into()),
        code: crate::report::ErrorCode::parse(&next()),
        message: next().into(),
        help: Some(next().into()),
    }];
    report
}

fn seen(report: &Report) -> String {
    render(report, &Markdown::default())
}

#[test]
fn a_model_that_grew_above_what_did_not() {
    let report = judged(vec![
        compared(sample::run("grown", "l4"), 600),
        compared(sample::run("a", "l4"), 799),
        compared(sample::run("same", "l4"), 800),
        compared(sample::run("less", "l4"), 1600),
    ]);
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(seen(&report)) });
}

#[test]
fn nothing_changed_takes_a_line() {
    let report = judged(vec![compared(sample::run("same", "l4"), 800)]);
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(seen(&report)) });
}

/// Whether the page shows more than a headline, folded tables and how the values were obtained.
fn tells(text: &str) -> bool {
    let parts = [
        "before → after",
        "**Problems**",
        "**Improved**",
        "edits limits**",
        "**Without a baseline",
    ];
    !["### ✅", "### ℹ️"].iter().any(|mark| text.starts_with(mark)) || parts.iter().any(|part| text.contains(part))
}

/// A report of two runs and a base. The first run has a baseline of `live` MiB and is changed by `more`; a limit is
/// edited if `edited` is set.
fn with_news(live: u64, more: impl FnOnce(&mut Run), edited: bool) -> Report {
    let mut run = compared(sample::run("same", "l4"), live);
    more(&mut run);
    let mut report = judged(vec![run, compared(sample::run("other", "l4"), 800)]);
    report.base = Some(Base {
        folder: Foreign::default(),
        revision: "origin/main".into(),
        commit: "0".repeat(40).into(),
        edited: Vec::new(),
        dependencies: Vec::new(),
    });
    if edited {
        report.base.as_mut().unwrap().edited.push(EditedLimit {
            loosens: false,
            model: None,
            limit: "live.fail".into(),
            before: None,
            after: Some("1 GiB".into()),
            file: "budgets.yaml".into(),
            line: None,
        });
    }
    report
}

#[test]
fn what_is_no_news_is_told_in_a_line_and_what_is_news_in_more() {
    let nothing = |_: &mut Run| {};
    // The page does not show cold live memory, because it depends on the kernels that autotune chooses.
    let first_launch = |run: &mut Run| run.baseline.as_mut().unwrap().peaks.cold.live = Some(Bytes(1));
    let unknown_then = |run: &mut Run| run.baseline.as_mut().unwrap().peaks.warm.process = None;
    let a_byte_more = |run: &mut Run| run.peaks.warm.live = Some(Bytes(800 * MIB + 1));
    let died = |run: &mut Run| {
        run.error = Some(RunError {
            code: crate::report::ErrorCode::parse("x"),
            message: "x".into(),
            help: None,
        });
    };
    let mut failed = with_news(800, nothing, false);
    failed.status = Status::Fail;
    let mut none_compared = with_news(800, |run| run.baseline = None, false);
    none_compared.runs[1].baseline = None;
    for (news, why, report) in [
        (false, "nothing changed", with_news(800, nothing, false)),
        (false, "no baseline at all", none_compared),
        (false, "cold live", with_news(800, first_launch, false)),
        (false, "not known then", with_news(800, unknown_then, false)),
        (true, "a limit was edited", with_news(800, nothing, true)),
        (true, "a byte more", with_news(800, a_byte_more, false)),
        (true, "less", with_news(1600, nothing, false)),
        (true, "more", with_news(400, nothing, false)),
        (true, "a new model", with_news(800, |run| run.baseline = None, false)),
        (true, "an error", with_news(800, died, false)),
        (true, "a status without a verdict", failed),
    ] {
        let page = seen(&report);
        assert_eq!(ChangeSummary::new(&report).is_news(), news, "{why}");
        assert_eq!(tells(&page), news, "{why}: {page}");
        let compared = report.runs.iter().any(|run| run.baseline.is_some());
        assert_eq!(page.contains("nothing changed"), compared && !news, "{why}: {page}");
    }
}

#[test]
fn one_of_everything_with_names_that_would_be_more() {
    let hostile = [
        "a|b\n| - | - |",
        "@octocat",
        "</details><script>alert(1)</script>",
        "[x](https://evil.example)",
        "`; rm -rf ~",
        "<!-- cargo-vram:mine -->",
        "#1 GH-2 o/r#3",
        "![x](//e.example)",
        "\u{202e}\u{1b}[2J",
        "**x** _y_ ~~z~~ $q$",
    ];
    let report = everything(&hostile.map(str::to_owned));
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(seen(&report)) });
}

/// The structure of the document without its words.
fn structure(text: &str) -> Vec<String> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_MATH;
    let mut parts: Vec<String> = Vec::new();
    for event in Parser::new_ext(text, options) {
        let part = match event {
            Event::Text(_) => continue,
            // The lines from here on depend on the names: GPUs with the same text share a line.
            Event::Html(html) | Event::InlineHtml(html) if html.trim() == "<sub>" => return parts,
            Event::Html(html) | Event::InlineHtml(html) => format!("html {}", html.trim()),
            other => format!("{other:?}"),
        };
        parts.push(part);
    }
    parts
}

/// The text in which GitHub searches for mentions and references: everything except code blocks.
fn shown(text: &str) -> String {
    let mut words = String::new();
    let mut in_code = false;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) | Event::Code(text) if !in_code => words.push_str(&text),
            _ => words.push(' '),
        }
    }
    words
}

fn name() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[a-z|`*_<>\\[\\]()!#@:/&;~$\\\\\n\r\t -]{0,12}",
        prop::sample::select(vec![
            "@octocat",
            "#123",
            "GH-1",
            "https://e.example",
            "www.e.example",
            "a@b.example",
            "|",
            "\n\n# x\n",
            "\n```\n",
            "<!--",
            "-->",
            "</details>",
            "<img src=x>",
            "[a](b)",
            "&lt;",
            "&#124;",
            "\\|",
            "\n| a |\n| - |\n",
            "\n</sub>\n",
            "- ",
            "1. ",
            "    ",
            "+ ",
            "===",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_name_leaves_its_place_or_names_anybody(names in prop::collection::vec(name(), 1..40)) {
        let text = seen(&everything(&names));
        let mut known: Vec<&String> = Vec::new();
        let plain: Vec<String> = names.iter().map(|name| {
            let at = known.iter().position(|other| *other == name).unwrap_or_else(|| {
                known.push(name);
                known.len() - 1
            });
            format!("x{at}")
        }).collect();
        let plain = seen(&everything(&plain));
        prop_assert_eq!(structure(&text), structure(&plain), "{}", text);
        prop_assert!(!text.contains("<!--"));
        let words = shown(&text);
        for found in ["@octocat", "#123", "GH-1", "://", "www.", "a@b"] {
            prop_assert!(!words.contains(found), "{} in {}", found, words);
        }
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }

    /// A report from a stranger may contain any number; no renderer may overflow.
    #[test]
    fn no_figure_is_too_large(figures in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 12), seconds in any::<f64>()) {
        let mut figures = figures.into_iter().map(Bytes).cycle();
        let mut next = || figures.next().unwrap();
        let mut report = everything(&["x".to_owned()]);
        for run in &mut report.runs {
            run.seconds = seconds;
            run.gpu.total_bytes = next();
            run.gpu.available_bytes = next();
            run.peaks.warm.live = Some(next());
            run.peaks.cold.reserved = Some(next());
            if let Some(baseline) = &mut run.baseline {
                baseline.peaks.warm.live = Some(next());
            }
            if let Some(oom) = &mut run.oom {
                (oom.requested, oom.reserved, oom.available) = (Some(next()), next(), next());
            }
        }
        for verdict in &mut report.verdicts {
            (verdict.limit, verdict.actual, verdict.baseline) = (Some(next()), Some(next()), Some(next()));
        }
        prop_assert!(seen(&report).len() <= COMMENT);
        prop_assert!(crate::render::github::render(&report, "").starts_with("::error "));
        prop_assert!(crate::render::junit::render(&report).is_ok());
        let older = everything(&["x".to_owned()]);
        for (base, head) in [(&older, &report), (&report, &older)] {
            let diff = crate::report::diff::diff(base, head);
            prop_assert!(crate::render::terminal::diff::render(&diff, false).contains("compared"));
            prop_assert!(crate::render::markdown::diff::render(&diff, COMMENT, false).len() <= COMMENT);
        }
    }

    /// Tests random combinations of events.
    #[test]
    fn a_page_tells_something_where_there_is_news_and_only_there(
        live in prop::sample::select(vec![400, 800, 801, 1600]),
        happened in prop::collection::vec(prop::bool::weighted(0.15), 10),
    ) {
        let more = |run: &mut Run| {
            let other = everything(&["x".to_owned()]).runs;
            let peaks = &mut run.baseline.as_mut().unwrap().peaks;
            if happened[0] {
                peaks.cold.live = Some(Bytes(1));
            }
            if happened[1] {
                peaks.warm.process = None;
            }
            if happened[2] {
                run.baseline = None;
            }
            if happened[3] {
                run.error.clone_from(&other[0].error);
            }
            if happened[4] {
                run.oom.clone_from(&other[1].oom);
            }
        };
        let mut report = with_news(live, more, happened[5]);
        if happened[6] {
            report.runs[1].baseline = None;
        }
        if happened[7] {
            report.problems = everything(&["x".to_owned()]).problems;
        }
        if happened[8] {
            report.verdicts.clear();
        }
        if happened[9] {
            report.status = Status::Warn;
        }
        let page = seen(&report);
        prop_assert_eq!(ChangeSummary::new(&report).is_news(), tells(&page), "{}", page);
    }

    #[test]
    fn it_is_never_longer_than_it_may_be(runs in 0_usize..400, most in 20_000_usize..COMMENT) {
        let runs: Vec<_> = (0..runs).map(|at| {
            let name = format!("{at}{}", "_".repeat(100));
            compared(sample::run(&name, "l4"), 400 + (at as u64 % 3) * 400)
        }).collect();
        let text = render(&judged(runs), &Markdown { most, artifact: None, files: None });
        prop_assert!(text.len() <= most, "{} of {}", text.len(), most);
    }
}

#[test]
fn a_comment_that_would_be_too_long_keeps_what_matters() {
    let runs = (0..3000).map(|at| compared(sample::run(&format!("m{at}"), "l4"), if at == 7 { 400 } else { 800 }));
    let report = judged(runs.collect());
    let text = seen(&report);
    assert!(text.len() <= COMMENT);
    assert!(
        text.starts_with("### ❌ m7: live memory grew 400 MiB (100 %) on L4"),
        "{}",
        &text[..200]
    );
    assert!(text.contains("more runs, left out for length"));
    let summary = render(
        &report,
        &Markdown {
            most: SUMMARY,
            ..Markdown::default()
        },
    );
    assert!(!summary.contains("left out"));
}

#[test]
fn figures_out_of_range_are_shown_like_others() {
    let mut run = compared(sample::run("a", "l4"), 0);
    run.peaks = Peaks::default();
    run.peaks.warm.live = Some(Bytes(u64::MAX));
    let text = seen(&sample::report(vec![run]));
    assert!(text.contains("GiB"), "{text}");
}

#[test]
fn a_link_to_the_whole_report_is_a_plain_one_or_none() {
    let with = |artifact| {
        let markdown = Markdown {
            artifact: Some(artifact),
            ..Markdown::default()
        };
        render(&sample::report(Vec::new()), &markdown)
    };
    assert!(
        with("https://github.com/o/r/actions/runs/1/artifacts/2")
            .contains("](https://github.com/o/r/actions/runs/1/artifacts/2)")
    );
    assert!(!with("https://e.example/a) [b](c").contains("]("));
    assert!(!with("javascript:alert(1)").contains("]("));
}

/// The branch has already accepted the growth in its own baseline.
#[test]
fn growth_that_a_branch_accepts_is_in_the_first_line_and_needs_no_command() {
    let mut report = judged(vec![compared(sample::run("grown", "l4"), 400)]);
    let live = report.runs[0].peaks.warm.live;
    for verdict in &mut report.verdicts {
        (verdict.status, verdict.baseline, verdict.actual) = (Status::Pass, live, live);
    }
    report.status = Status::Pass;
    report.base = Some(Base {
        folder: Foreign::default(),
        revision: "origin/main".into(),
        commit: "0".repeat(40).into(),
        edited: Vec::new(),
        dependencies: Vec::new(),
    });
    let text = seen(&report);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("### ✅ ") && first.contains("grown: live memory grew "),
        "{text}"
    );
    assert!(
        !text.contains("cargo vram bless") && !text.contains("improved"),
        "{text}"
    );
}

#[test]
fn what_nobody_judged_has_no_tick() {
    let text = render(&sample::report(vec![sample::run("a", "l4")]), &Markdown::default());
    assert!(text.starts_with("### ℹ️ 1 run not checked\n"), "{text}");
}

#[test]
fn the_first_line_names_what_grew_by_most_bytes_and_not_by_most_percent() {
    let of = |name: &str, before, after| {
        let mut run = compared(sample::run(name, "l4"), before);
        run.peaks.warm.live = Some(Bytes(after * MIB));
        run
    };
    // The small model grows by 300 %, the large one by 10 % and by more bytes.
    let text = seen(&judged(vec![of("small", 20, 80), of("large", 8000, 8800)]));
    assert!(
        text.starts_with("### ❌ large: live memory grew 800 MiB (10 %) on L4, and 1 more\n"),
        "{text}"
    );
    // Both changes are allowed: the headline names the growth, although the other change is larger.
    let text = seen(&judged(vec![of("grew", 8000, 8001), of("shrank", 8100, 8000)]));
    assert!(
        text.starts_with("### ✅ 2 runs within budget; grew: live memory grew 1 MiB (0.01 %) on L4\n"),
        "{text}"
    );
}

#[test]
fn a_limit_says_what_it_is_made_of_and_the_budget_stands_beside_it() {
    let budgets = "version: 1\ngpu: l4\ndefaults:\n  growth: { live: { warn: 1.5%, fail: 5%, ignore: 16 MiB } }\n\
                   models:\n  a: { live: 700 MiB }\n";
    let budgets = Budgets::parse(budgets.as_bytes(), "budgets.yaml", &["l4"]).unwrap();
    let cell = |before| {
        let runs = vec![compared(sample::run("a", "l4"), before)];
        let verdicts = judge(&runs, &budgets, "budgets.yaml");
        let report = Report {
            status: Status::Fail,
            verdicts,
            ..sample::report(runs)
        };
        let text = seen(&report);
        let row = text.lines().find(|line| line.starts_with("| <code>p/a")).unwrap();
        let cells: Vec<_> = row.split(" | ").map(str::to_owned).collect();
        (
            cells[6].clone(),
            cells[7].clone(),
            text.lines().next().unwrap().to_owned(),
        )
    };
    let (limit, word, first) = cell(600);
    assert_eq!(
        limit,
        "630 MiB: baseline + 5 % or 16 MiB, whichever is more<br>700 MiB: budget"
    );
    assert_eq!(word, "❌ over budget, regressed |");
    assert_eq!(
        first,
        "### ❌ a: live memory grew 200 MiB (33.33 %) on L4, over its budget of 700 MiB"
    );
    // The growth is over the warning percentage, so the cell shows that limit.
    let (limit, word, first) = cell(782);
    assert_eq!(
        limit,
        "798 MiB: baseline + 1.5 % or 16 MiB, whichever is more<br>700 MiB: budget"
    );
    assert_eq!(word, "❌ over budget |");
    assert!(first.starts_with("### ❌ a: live memory grew 18 MiB"), "{first}");
}

#[test]
fn a_limit_of_an_older_report_is_told_in_bytes() {
    let mut report = judged(vec![compared(sample::run("grown", "l4"), 600)]);
    for verdict in &mut report.verdicts {
        verdict.allowed = None;
    }
    assert!(
        seen(&report).contains("| 630 MiB: baseline + 30 MiB |"),
        "{}",
        seen(&report)
    );
}

#[test]
fn what_no_rule_judges_is_folded_away_with_how_it_was_obtained() {
    let mut run = compared(sample::run("a", "l4"), 800);
    run.baseline.as_mut().unwrap().peaks.cold.process = Some(Bytes(MIB));
    run.baseline.as_mut().unwrap().peaks.warm.reserved = Some(Bytes(MIB));
    let report = Report {
        skipped: vec![Skipped {
            check: SkippedCheck::Leaks,
            model: None,
            why: "needs 5 steps".into(),
        }],
        ..judged(vec![run])
    };
    let text = seen(&report);
    let open: String = text
        .split("<details>")
        .enumerate()
        .map(|(at, part)| match at {
            0 => part,
            _ => part.split_once("</details>").unwrap().1,
        })
        .collect();
    for told in ["cold process", "leaks", "Burn 0.21.0", "commit"] {
        assert!(text.contains(told) && !open.contains(told), "{told}: {text}");
    }
    for told in [
        "1 change without a limit",
        "Skipped (1)",
        "How these values were obtained",
    ] {
        assert!(text.contains(&format!("<summary>{told}</summary>")), "{told}: {text}");
    }
    // A budget limits reserved memory, so its row is not folded.
    assert!(open.contains("| reserved | 1 MiB → 1 GiB |"), "{open}");
}

#[test]
fn growth_since_another_revision_is_not_accepted_with_bless_and_an_outdated_file_is() {
    let mut run = compared(sample::run("grown", "l4"), 1);
    run.baseline.as_mut().unwrap().from = BaselineFrom::Rebuilt;
    let offers = |report: &Report| {
        let text = render(report, &Markdown::default());
        let edit = "To allow growth since the base, edit `growth` in `budgets.yaml`.";
        (text.contains("cargo vram bless"), text.contains(edit))
    };
    let mut report = judged(vec![run]);
    assert_eq!(offers(&report), (false, true));
    let outdated = report.runs[0].verdict(Rule::Baseline, Status::Fail, "it differs".to_owned());
    report.verdicts.push(outdated);
    assert_eq!(offers(&report), (true, true));
    // A budget that is exceeded is not growth.
    for verdict in &mut report.verdicts {
        verdict.rule = Rule::Budget;
    }
    assert!(!offers(&report).1);
}

#[test]
fn what_leaks_is_not_offered_to_be_accepted() {
    let run = compared(sample::run("grown", "l4"), 1);
    let leak = run.verdict(Rule::Leak, Status::Fail, "live grows".to_owned());
    let mut report = judged(vec![run]);
    let offers = |report: &Report| render(report, &Markdown::default()).contains("cargo vram bless");
    assert!(offers(&report));
    report.verdicts.push(leak);
    assert!(!offers(&report));
    assert!(render(&report, &Markdown::default()).contains("A leak cannot be accepted"));
}

#[test]
fn a_baseline_that_is_demanded_and_missing_is_named_so() {
    let run = sample::run("a", "l4");
    let verdict = run.verdict(Rule::Baseline, Status::Fail, "there is none".to_owned());
    let report = Report {
        verdicts: vec![verdict],
        status: Status::Fail,
        ..sample::report(vec![run])
    };
    let text = render(&report, &Markdown::default());
    assert!(text.starts_with("### ❌ a has no valid baseline on L4\n"), "{text}");
}
