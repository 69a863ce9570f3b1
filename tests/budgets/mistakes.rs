//! Each mistake that a file can have, and the printed error.

use super::{codes, refused};

/// A file of version 1 for an L4, with more lines.
fn with(lines: &str) -> String {
    format!("version: 1\ngpu: l4\n{lines}")
}

/// A file of version 1 for an L4, with one model `a` that has these keys.
fn model(keys: &str) -> String {
    with(&format!("models:\n  a: {{ {keys} }}\n"))
}

macro_rules! refused {
    ($($(#[$doc:meta])* $name:ident: $text:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            assert_shown!(refused(&$text));
        }
    )*};
}

refused! {
    an_unknown_key_is_refused_and_the_nearest_offered: model("resrved: 2 GiB");
    an_unknown_key_at_the_top_is_refused: with("budget: {}\n");
    an_unknown_key_in_defaults_is_refused: with("defaults: { time-out: 10 min }\n");
    an_unknown_key_in_growth_is_refused: with("defaults: { growth: { fail: 5% } }\n");
    an_unknown_gpu_is_refused_and_the_nearest_offered: "version: 1\ngpu: a100\n";
    an_unknown_gpu_of_a_model_is_refused: model("reserved: 1 GiB, gpus: { L40: { reserved: 2 GiB } }");
    a_size_without_a_unit_is_refused: model("reserved: 900");
    a_negative_size_is_refused: model("reserved: -2 GiB");
    a_size_past_64_bits_is_refused: model("reserved: 99999999999 GiB");
    a_size_of_an_unknown_unit_is_refused: model("reserved: 2 gib");
    a_size_that_is_none_is_refused: model("reserved: lots");
    a_duplicate_key_is_refused_with_both_places: with("models:\n  a:\n    live: 1 GiB\n    reserved: 2 GiB\n    live: 3 GiB\n");
    a_duplicate_model_is_refused: with("models:\n  a: { live: 1 GiB }\n  a: { live: 2 GiB }\n");
    a_warn_above_its_fail_is_refused: model("reserved: { fail: 1900 MiB, warn: 2 GiB }");
    a_limit_with_neither_fail_nor_warn_is_refused: model("reserved: {}");
    a_list_for_a_mapping_is_refused: with("models:\n  - a\n  - b\n");
    a_mapping_for_a_text_is_refused: "version: 1\ngpu: { id: l4 }\n";
    a_key_without_a_value_is_refused: with("models:\n  a:\n    reserved:\n");
    a_file_that_is_a_list_is_refused: "- version: 1\n";
    an_unsupported_version_is_refused_and_nothing_else_said: "version: 2\nmodals: {}\n";
    a_missing_version_is_refused: "gpu: l4\nmodels: {}\n";
    limits_without_the_gpu_they_are_for_are_refused: "version: 1\nmodels:\n  a: { reserved: 2 GiB }\n";
    limits_of_the_declared_gpu_in_two_places_are_refused: model("reserved: 1 GiB, gpus: { l4: { reserved: 2 GiB } }");
    a_number_of_a_gpu_that_is_none_is_refused: model("gpus: { 0: { reserved: 1 GiB }, 01: { live: 1 GiB }, h200: { live: 2 GiB }, 1: { lives: 1 GiB } }");
    a_bad_percentage_is_refused: with("defaults: { drift: { fail: 5 } }\n");
    a_growth_that_warns_above_its_fail_is_refused: with("defaults: { growth: { live: { fail: 2%, warn: 5%, ignore: 16 MiB } } }\n");
    a_drift_that_warns_above_its_fail_is_refused: model("reserved: 1 GiB, drift: { warn: 5%, fail: 2%, ignore: 1 MiB }");
    a_bad_duration_is_refused: with("defaults: { timeout: 10 }\n");
    an_input_that_is_no_whole_number_is_refused: model("inputs: { batch_size: 1.5 }");
    a_name_that_is_none_is_refused: with("models: { 'a b': { live: 1 GiB }, c/d/e: { live: 1 GiB }, x/y: { model: z, live: 1 GiB } }\n");
    a_profile_without_like_is_refused: with("gpu_profiles: { lab-gpu: { total: 20 GiB } }\n");
    a_profile_like_no_built_in_gpu_is_refused: with("gpu_profiles:\n  lab-a: { like: l4 }\n  lab-b: { like: lab-a }\n");
    a_profile_of_a_built_in_id_is_refused: with("gpu_profiles: { t4: { like: l4 } }\n");
    a_profile_whose_figures_are_none_is_refused:
        with("gpu_profiles: { Lab: { like: l4, total: 0 B, sm_count: 0, compute_capability: 8, cores: 9 } }\n");
    an_alias_is_refused: with("models:\n  a: &base { reserved: 2 GiB }\n  b: *base\n");
    an_alias_to_nothing_is_refused: with("models:\n  b: *base\n");
    a_merge_key_is_refused: with("models:\n  a: { <<: { reserved: 2 GiB } }\n");
    a_tag_is_refused: with("models:\n  a: { reserved: !!str 2 GiB }\n");
    a_key_that_is_no_name_is_refused: with("models:\n  ? [a, b]\n  : { reserved: 2 GiB }\n");
    a_second_document_is_refused: with("---\nversion: 1\n");
    an_open_bracket_is_refused: with("models:\n  a: { reserved: 2 GiB\n  b: 1\n");
    a_wrong_indent_is_refused: with("models:\n  a:\n    live: 1 GiB\n   reserved: 2 GiB\n");
    a_character_that_yaml_reserves_is_refused: model("reserved: %5");
    deep_nesting_is_refused: with(&format!("models: {}{}\n", "{ a: ".repeat(20), "}".repeat(20)));
    an_empty_file_is_refused: "";
    a_file_of_comments_is_refused: "# budgets\n# to be written\n";
    a_file_that_is_null_is_refused: "---\n...\n";
    a_nul_is_refused: with("models: {}\0\n");
    a_lone_carriage_return_is_refused: "version: 1\rgpu: l4\n";
    all_mistakes_of_a_file_are_shown_at_once_and_in_order: "\
version: 1
gpu: l40
defaults:
  growth: { lives: { fail: 5%, warn: 7%, ignore: 16 } }
  drift: { warn: 6%, fail: 5% }
  timeout: 10 minutes
models:
  resnet18:
    inputs: { batch_size: many }
    live: 900
    reserved: { fail: 2 GiB, warn: 2.5 GiB }
    process: -1 GiB
    cold: [6 GiB]
    gpus: { h100: { reserve: 4 GiB } }
";
    places_count_characters: with("models:\n  größe: { inputs: { ü: 1 }, réserved: 2 GiB }\n");
}

#[test]
fn an_alias_bomb_is_a_handful_of_mistakes() {
    let mut bomb = String::from("version: 1\nmodels:\n  a0: &a0 { live: 1 GiB }\n");
    for level in 1..30 {
        let before = level - 1;
        bomb += &format!("  a{level}: &a{level} {{ x: *a{before}, y: *a{before}, z: *a{before} }}\n");
    }
    let codes = codes(&bomb);
    assert_eq!(codes.len(), 50);
    assert!(codes.contains(&"budgets::alias") && codes.contains(&"budgets::anchor"));
}

#[test]
fn nesting_without_end_is_refused_whatever_opens_it() {
    for open in ["[", "{", "- ", "? ", "{ a: ", "[ a, ", "- - "] {
        assert_eq!(codes(&open.repeat(100_000)), ["budgets::too-deep"], "{open}");
    }
    let blocks: String = (0..900).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(codes(&blocks), ["budgets::too-deep"]);
}

#[test]
fn a_mistake_that_repeats_is_shown_fifty_times() {
    let many = format!("version: 1\n{}", "x: 1\n".repeat(5000));
    let shown = refused(&many);
    assert!(
        shown.contains("budgets.yaml has 5000 mistakes; the first 50 are shown"),
        "{shown}"
    );
}

#[test]
fn a_line_too_long_to_show_is_named_by_its_place_alone() {
    let long = format!("{{ version: 1, {} x: 1 }}", "y: 1, ".repeat(1000));
    let shown = refused(&long);
    assert!(
        shown.contains("budgets.yaml:1:15: `y` is not a key of a budget file"),
        "{shown}"
    );
    assert!(shown.len() < 20_000);
}

#[test]
fn a_mistake_in_one_value_hides_none_in_the_next() {
    assert_eq!(
        codes("version: 1\ngpu: l4\nmodels:\n  a: { live: 1, reserved: 2, gpus: [], what: 3 }\n  b: 5\n"),
        [
            "budgets::size-without-unit",
            "budgets::size-without-unit",
            "budgets::wrong-type",
            "budgets::unknown-key",
            "budgets::wrong-type"
        ]
    );
}
