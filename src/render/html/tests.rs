use serde_json::Value;

use super::*;
use crate::explain::{Category, Explanation, sample};

/// Reads what `pack.rs` writes, in the same way as `script/data.js`.
struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    fn new(base64: &str) -> Self {
        let digit = |c: char| match c {
            'A'..='Z' => c as u32 - 'A' as u32,
            'a'..='z' => c as u32 - 'a' as u32 + 26,
            '0'..='9' => c as u32 - '0' as u32 + 52,
            '+' => 62,
            _ => 63,
        };
        let digits: Vec<u32> = base64.trim_end_matches('=').chars().map(digit).collect();
        let bytes = digits
            .chunks(4)
            .flat_map(|chunk| {
                let bits = chunk
                    .iter()
                    .enumerate()
                    .fold(0, |bits, (at, digit)| bits | digit << (18 - 6 * at));
                [bits >> 16, bits >> 8, bits]
                    .into_iter()
                    .map(|byte| byte as u8)
                    .take(chunk.len() - 1)
                    .collect::<Vec<_>>()
            })
            .collect();
        Self { bytes, at: 0 }
    }

    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    }

    fn signed(&mut self) -> i64 {
        let value = self.number();
        let half = (value / 2).cast_signed();
        if value % 2 == 1 { -half } else { half }
    }
}

fn column(base64: &Value, count: usize) -> Vec<i64> {
    let mut reader = Reader::new(base64.as_str().unwrap());
    let (mut column, mut value) = (Vec::new(), 0);
    while reader.at < reader.bytes.len() {
        let same = reader.number() as usize;
        column.extend(std::iter::repeat_n(value, same));
        value += reader.signed();
        column.push(value);
    }
    column.resize(count, value);
    column
}

fn live(timeline: &Value) -> Vec<i64> {
    let count = timeline["count"].as_u64().unwrap() as usize;
    let series: Vec<_> = timeline["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| column(series, count))
        .collect();
    assert_eq!(series.len(), Category::STACK.len());
    (0..count)
        .map(|at| series.iter().map(|series| series[at]).sum())
        .collect()
}

fn bytes(column: &[crate::bytes::Bytes]) -> Vec<i64> {
    column.iter().map(|bytes| bytes.0.cast_signed()).collect()
}

#[test]
fn what_is_stacked_is_live_at_every_sample() {
    let explanation = sample::resnet(3, 4);
    let page = data::page(&[ShownExplanation::new(&explanation)], false);
    let timeline = &page["models"][0]["timeline"];
    assert_eq!(live(timeline), bytes(&explanation.timeline.live));
    assert_eq!(
        column(&timeline["reserved"], explanation.timeline.live.len()),
        bytes(&explanation.timeline.reserved)
    );
    assert!(timeline["kept"].is_null());
}

#[test]
fn a_run_too_long_for_a_page_keeps_its_peaks_and_says_so() {
    let mut explanation = sample::resnet(3, 4);
    let samples = explanation.timeline.live.len();
    // The same samples repeated until there are too many.
    let times = data::MOST_SAMPLES / samples + 2;
    let timeline = &mut explanation.timeline;
    timeline.live = timeline.live.repeat(times);
    timeline.reserved = timeline.reserved.repeat(times);
    timeline.kernel = timeline.kernel.repeat(times);
    for series in &mut timeline.categories {
        series.bytes = series.bytes.repeat(times);
    }
    explanation.check().unwrap();
    let page = data::page(&[ShownExplanation::new(&explanation)], false);
    let model = &page["models"][0];
    let count = model["timeline"]["count"].as_u64().unwrap() as usize;
    assert!(count <= data::MOST_SAMPLES + 100);
    let mut kept = Reader::new(model["timeline"]["kept"].as_str().unwrap());
    let mut at = 0;
    let kept: Vec<i64> = (0..count)
        .map(|_| {
            at += kept.signed();
            at
        })
        .collect();
    let live = live(&model["timeline"]);
    for (sample, live) in kept.iter().zip(&live) {
        assert_eq!(explanation.timeline.live[*sample as usize].0.cast_signed(), *live);
    }
    let peak = kept.binary_search(&i64::from(explanation.peak.sample)).unwrap();
    assert_eq!(live[peak], explanation.peak.live.0.cast_signed());
    assert!(model["left_out"][0].as_str().unwrap().contains("moments"));
}

#[test]
fn the_smallest_tensors_are_left_out_where_there_are_too_many_and_counted() {
    let mut explanation = sample::resnet(2, 0);
    let tensor = crate::explain::TensorLife {
        bytes: crate::bytes::Bytes(512),
        ..explanation.tensors[0].clone()
    };
    let before = explanation.tensors.len();
    explanation
        .tensors
        .extend(std::iter::repeat_n(tensor, data::MOST_TENSORS));
    explanation.tensors.rotate_left(before);
    // After the rotation, the original tensors come after all new ones.
    for index in &mut explanation.peak.tensors {
        *index += data::MOST_TENSORS as u32;
    }
    explanation.leak = crate::explain::Leaking::No {
        interval: crate::report::GrowthInterval::Step,
    };
    explanation.lines.clear();
    explanation.check().unwrap();
    let page = data::page(&[ShownExplanation::new(&explanation)], false);
    let model = &page["models"][0];
    assert_eq!(model["tensors"]["count"], data::MOST_TENSORS);
    assert_eq!(
        model["peak"]["tensors"].as_array().unwrap().len(),
        explanation.peak.tensors.len()
    );
    let said = model["left_out"][0].as_str().unwrap();
    assert!(
        said.starts_with(&format!("{before} of ")) && said.contains("larger than 512 B"),
        "{said}"
    );
}

#[test]
fn a_hundred_thousand_samples_stay_below_five_megabytes() {
    let explanation = sample::large();
    explanation.check().unwrap();
    let page = html(&[ShownExplanation::new(&explanation)], Arrangement::Apart);
    assert!(page.len() < 5_000_000, "{}", page.len());
}

#[test]
fn no_name_gets_out_of_the_page() {
    let hostile = sample::hostile();
    let limits = [crate::render::DrawnLimit {
        label: sample::HOSTILE.to_owned(),
        metric: crate::report::Metric::Live,
        bytes: crate::bytes::Bytes(1),
    }];
    let shown = ShownExplanation {
        name: Some(sample::HOSTILE),
        explanation: &hostile,
        limits: &limits,
    };
    let page = html(&[shown, shown], Arrangement::Compared);
    assert_eq!(page.matches("</script>").count(), 2, "its own two");
    assert!(!page.contains("<img"));
    assert!(
        !page
            .chars()
            .any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2028}'))
    );
    // JSON escapes control characters, so the page must not contain their escapes either.
    assert!(!page.contains("\\u0000") && !page.contains("\\u001b"));
}

#[test]
fn the_page_allows_nothing_from_outside_and_names_nothing_there() {
    let explanation = sample::resnet(2, 0);
    let page = html(&[ShownExplanation::new(&explanation)], Arrangement::Apart);
    let policy = "default-src 'none'; script-src 'sha256-";
    assert!(page.contains(policy));
    assert!(!page.contains("unsafe"));
    let addresses: Vec<_> = page
        .match_indices("http")
        .map(|(at, _)| &page[at..(at + 40).min(page.len())])
        .collect();
    // The only addresses are the SVG namespace and the attribute `http-equiv`.
    assert!(
        addresses
            .iter()
            .all(|address| address.starts_with("http://www.w3.org/2000/svg") || address.starts_with("http-equiv")),
        "{addresses:?}"
    );
    assert!(!page.contains("innerHTML") && !page.contains("eval("));
}

#[test]
fn a_model_that_died_before_its_first_launch_has_a_page() {
    let mut explanation: Explanation = sample::resnet(1, 0);
    explanation.timeline = crate::explain::MemoryTimeline::default();
    explanation.tensors.clear();
    explanation.lines.clear();
    explanation.peak.sample = 0;
    explanation.peak.tensors.clear();
    explanation.check().unwrap();
    assert!(html(&[ShownExplanation::new(&explanation)], Arrangement::Apart).contains("\"count\":0"));
}

/// Collects all numbers in a value.
fn numbers<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(values) => values.iter_mut().for_each(|value| numbers(value, found)),
        Value::Object(values) => values.values_mut().for_each(|value| numbers(value, found)),
        _ => {}
    }
}

#[test]
fn whatever_number_a_file_has_is_refused_or_drawn() {
    let sound = serde_json::to_value(sample::resnet(2, 0)).unwrap();
    let odd = [
        0,
        1,
        511,
        (1 << 31) - 1,
        u64::from(u32::MAX),
        1 << 50,
        1 << 53,
        i64::MAX.cast_unsigned(),
        u64::MAX,
    ];
    let (mut refused, mut drawn) = (0, 0);
    // Picks a part of the file first and a number in it second: otherwise the long, uniform columns would get nearly
    // all picks.
    let mut random: u64 = 7;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let parts: Vec<String> = sound.as_object().unwrap().keys().cloned().collect();
    for _ in 0..160 {
        let mut value = sound.clone();
        let part = &parts[next(parts.len())];
        let mut found = Vec::new();
        numbers(&mut value[part.as_str()], &mut found);
        if found.is_empty() {
            continue;
        }
        let at = next(found.len());
        *found[at] = odd[next(odd.len())].into();
        let read: Result<Explanation, _> = serde_json::from_value(value);
        let Some(explanation) = read.ok().filter(|explanation| explanation.check().is_ok()) else {
            refused += 1;
            continue;
        };
        let shown = [ShownExplanation::new(&explanation)];
        assert!(!html(&shown, Arrangement::Apart).is_empty());
        assert!(!crate::render::svg::svg(&shown).is_empty());
        assert!(!crate::render::perfetto::trace(&shown, true).is_empty());
        drawn += 1;
    }
    assert!(refused > 20 && drawn > 20, "{refused} refused, {drawn} drawn");
}

#[test]
fn colours_of_categories_are_in_the_palette_and_nowhere_else() {
    let colors = Category::STACK
        .into_iter()
        .chain(Category::ABOVE)
        .map(|category| crate::render::palette::category(category).color);
    for color in colors {
        for (part, text) in SCRIPT.into_iter().chain([STYLE, crate::render::svg::STYLE]).enumerate() {
            assert!(!text.to_lowercase().contains(color), "{color} in part {part}");
        }
    }
    let explanation = sample::resnet(2, 0);
    let shown = [ShownExplanation::new(&explanation)];
    let (page, picture) = (data::page(&shown, false), crate::render::svg::svg(&shown));
    let state = crate::render::palette::category(crate::explain::Category::OptimizerState).color;
    let swatches = page["categories"].as_array().unwrap();
    let swatch = swatches
        .iter()
        .find(|swatch| swatch["key"] == "optimizer_state")
        .unwrap();
    assert_eq!(swatch["color"], state);
    assert!(picture.contains(&format!("fill=\"{state}\"")));
}

#[test]
fn a_line_has_its_text_and_a_file_without_one_is_named_once() {
    let explanation = sample::resnet(2, 0);
    let file = explanation.lines[0].source.file.clone();
    let (first, texts) = (explanation.lines[0].source.line, explanation.texts.clone());
    let gone = explanation
        .lines
        .iter()
        .filter(|line| line.source.file == "src/generated.rs");
    assert_eq!(gone.count(), 2);
    let page = data::page(&[ShownExplanation::new(&explanation)], false);
    let model = &page["models"][0];
    let said = &texts.iter().find(|text| text.line == first).unwrap().text;
    assert_eq!(model["lines"][0]["source"]["file"], file.raw());
    assert_eq!(model["lines"][0]["text"], said.raw());
    assert!(model["lines"][1]["text"].is_null());
    assert_eq!(model["without_text"], serde_json::json!(["src/generated.rs"]));
    // The page shows the line as text, so the line adds no tag to the page.
    assert!(said.raw().contains("<b>"));
    assert!(!html(&[ShownExplanation::new(&explanation)], Arrangement::Apart).contains("<b>"));
}

#[test]
fn the_head_has_the_commit_and_its_date_and_an_older_explanation_has_neither() {
    let explanation = sample::resnet(2, 0);
    let page = data::page(&[ShownExplanation::new(&explanation)], false);
    let model = &page["models"][0];
    assert_eq!(model["commit"], "0f1e2d3c4b5a");
    assert_eq!(model["commit_date"], "2026-11-23T18:04:05+01:00");
    assert_eq!(model["dirty"], false);
    let mut older = serde_json::to_value(&explanation).unwrap();
    for key in ["commit_date", "dirty", "texts"] {
        assert!(older.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    let older: Explanation = serde_json::from_value(older).unwrap();
    older.check().unwrap();
    let page = data::page(&[ShownExplanation::new(&older)], false);
    assert!(page["models"][0]["commit_date"].is_null());
    assert_eq!(page["models"][0]["without_text"].as_array().unwrap().len(), 2);
}
