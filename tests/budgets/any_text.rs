//! Any text gives budgets or errors, never a panic, and each error is at a place inside the file.

use std::time::{Duration, Instant};

use cargo_vram::budget::{BudgetError, DeclaredModel};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{labels, parse, shown};

const SEEDS: [&str; 3] = [
    "version: 1\ngpu: l4\ndefaults:\n  growth: { live: { fail: 5%, warn: 2%, ignore: 16 MiB } }\n  drift: { warn: 2%, fail: 5% }\n  timeout: 10 min\n\
     gpu_profiles:\n  lab-gpu: { like: l4, total: 20 GiB }\nmodels:\n  resnet18:\n    inputs: { batch_size: 32 }\n    live: 900 MiB\n    reserved: { fail: 2 GiB, warn: 1.8 GiB }\n\
     \x20   cold: { reserved: 6 GiB }\n    gpus: { h200: { reserved: 4 GiB } }\n  resnet18-b128: { model: resnet18, inputs: { batch_size: 128 }, reserved: 5 GiB }\n",
    "{\"version\": 1, \"gpu\": \"l4\", \"models\": {\"größe\": {\"live\": \"1 GiB\"}}}",
    "# ü\r\nversion: 1\r\nmodels:\r\n  a: {} # é\r\n",
];

const PIECES: &[&str] = &[
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    ": ",
    "- ",
    "-",
    "? ",
    "?",
    "#",
    " # c\n",
    "'",
    "\"",
    "|",
    "|\n  x\n",
    "> \n  x\n y",
    "%",
    "%YAML 1.2\n",
    "%TAG ! x:\n",
    "---",
    "---\n",
    "...",
    "...\n",
    "&x ",
    "*x",
    "!t ",
    "!!str ",
    "!<x>",
    "<<: ",
    "é",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\0",
    "\\",
    "\\x41",
    "\"\\u1\"",
    "~",
    "null",
    "5 GiB",
    "1.8 GiB",
    "-1 B",
    "9999999999999999999 TiB",
    "0.0000000000000000000001 B",
    "5%",
    "10 min",
    "99999999999999 h",
    "\u{1F600}",
    "@",
    "`",
    "version: 1\n",
    "gpu: ",
    "models:\n",
    "live: ",
    "reserved",
    "cold",
    "gpus",
    "inputs",
    "like",
    "growth",
    "timeout",
    "a/b",
    "/",
];

#[derive(Debug, Clone)]
enum Edit {
    Insert(Index, &'static str),
    Delete(Index, usize),
    Repeat(Index, usize),
    Replace(Index, char),
}

fn edit() -> impl Strategy<Value = Edit> {
    let piece = select(PIECES);
    prop_oneof![
        4 => (any::<Index>(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        2 => (any::<Index>(), 1..20_usize).prop_map(|(at, len)| Edit::Delete(at, len)),
        1 => (any::<Index>(), 1..80_usize).prop_map(|(at, len)| Edit::Repeat(at, len)),
        1 => (any::<Index>(), any::<char>()).prop_map(|(at, c)| Edit::Replace(at, c)),
    ]
}

fn edited(seed: &str, edits: &[Edit]) -> String {
    let mut text: Vec<char> = seed.chars().collect();
    for edit in edits {
        let at = |index: &Index| index.index(text.len() + 1);
        match edit {
            Edit::Insert(index, piece) => {
                let at = at(index);
                text.splice(at..at, piece.chars());
            }
            Edit::Delete(index, len) => {
                let at = at(index);
                text.drain(at..(at + len).min(text.len()));
            }
            Edit::Repeat(index, len) => {
                let at = at(index);
                let again = text[at..(at + len).min(text.len())].to_vec();
                text.splice(at..at, again);
            }
            Edit::Replace(index, character) => {
                let at = at(index);
                if let Some(old) = text.get_mut(at) {
                    *old = *character;
                }
            }
        }
    }
    text.into_iter().collect()
}

/// Texts: valid files with some edits, random sequences of YAML's special characters and words, and random characters.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (select(SEEDS.as_slice()), prop::collection::vec(edit(), 0..8)).prop_map(|(seed, edits)| edited(seed, &edits)),
        2 => prop::collection::vec(select(PIECES), 0..24).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
    ]
}

fn has_an_answer(text: &str) {
    let error = match parse(text) {
        Ok(budgets) => {
            let declared = DeclaredModel {
                package: "p".to_owned(),
                model: "resnet18".to_owned(),
                inputs: Some(Vec::new()),
            };
            budgets.check_models(&[declared], false).err()
        }
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        points_into(text.strip_prefix('\u{feff}').unwrap_or(text), &error);
        shown(&error);
    }
}

fn points_into(text: &str, error: &BudgetError) {
    let lines = text.split('\n').count();
    for problem in error.problems() {
        let at = problem.position().expect("a text has places");
        assert!(at.line as usize <= lines, "{problem}");
        let line = text.split('\n').nth(at.line as usize - 1).expect("the line exists");
        assert!(
            (1..=line.chars().count() + 1).contains(&(at.column as usize)),
            "{problem}"
        );
        for (offset, len) in labels(problem) {
            assert!(text.get(offset..offset + len).is_some(), "{problem}: {offset}+{len}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_has_an_answer(text in text()) {
        has_an_answer(&text);
    }

    #[test]
    fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = cargo_vram::budget::Budgets::parse(&bytes, "budgets.yaml", &[]) {
            shown(&error);
        }
    }

    /// The error's place is that of the unknown key, with any text before it.
    #[test]
    fn a_place_is_right_to_the_byte(edits in prop::collection::vec(edit(), 0..6), seed in select(SEEDS.as_slice())) {
        let text = edited(seed, &edits).replace("zq", "");
        let text = format!("{text}\nzq: 1\n");
        if let Err(error) = parse(&text) {
            for problem in error.problems().iter().filter(|problem| problem.message().starts_with("`zq` is not")) {
                let (offset, len) = labels(problem)[0];
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                prop_assert_eq!(&text[offset..offset + len], "zq");
            }
        }
    }
}

/// Run it with `BUDGETS_FUZZ_SECONDS=300 cargo test --test main -- --ignored --nocapture budgets::any_text`.
#[test]
#[ignore = "runs for minutes"]
fn any_text_has_an_answer_for_minutes() {
    let seconds = std::env::var("BUDGETS_FUZZ_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(60);
    let (start, mut runner, text) = (Instant::now(), TestRunner::default(), text());
    let (mut cases, mut slowest) = (0_u64, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds) {
        let text = text.new_tree(&mut runner).expect("a text").current();
        let case = Instant::now();
        if let Err(panic) = std::panic::catch_unwind(|| has_an_answer(&text)) {
            println!("case {cases}: {text:?}");
            std::panic::resume_unwind(panic);
        }
        slowest = slowest.max(case.elapsed());
        cases += 1;
    }
    println!("{cases} cases in {:?}, the slowest took {slowest:?}", start.elapsed());
}
