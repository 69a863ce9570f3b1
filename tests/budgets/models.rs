//! Budgets and the models of a workspace.

use cargo_vram::budget::DeclaredModel;

use super::{good, shown};

fn declared(package: &str, model: &str, inputs: Option<&[&str]>) -> DeclaredModel {
    DeclaredModel {
        package: package.to_owned(),
        model: model.to_owned(),
        inputs: inputs.map(|inputs| inputs.iter().map(|&input| input.to_owned()).collect()),
    }
}

fn workspace() -> Vec<DeclaredModel> {
    vec![
        declared("zoo", "resnet18", Some(&["batch_size", "image_size"])),
        declared("zoo", "decoder", None),
        declared("extra", "decoder", None),
    ]
}

const HEAD: &str = "version: 1\ngpu: l4\nmodels:\n";

#[test]
fn budgets_of_declared_models_are_good() {
    let budgets = good(&format!(
        "{HEAD}  resnet18: {{ inputs: {{ batch_size: 8 }} }}\n  zoo/decoder: {{}}\n  extra/decoder: {{ inputs: {{ unheard: 1 }} }}\n"
    ));
    assert!(budgets.check_models(&workspace(), true).expect("good").is_empty());
}

#[test]
fn every_budget_that_fits_no_model_is_refused() {
    let budgets = good(&format!(
        "{HEAD}  resnet81: {{}}\n  large: {{ model: zoo/resnet, live: 1 GiB }}\n  decoder: {{}}\n  resnet18: {{ inputs: {{ batchsize: 8, seed: 1 }} }}\n"
    ));
    let error = budgets.check_models(&workspace(), true).expect_err("four mistakes");
    assert_shown!(shown(&error));
}

#[test]
fn a_budget_without_a_model_is_ignored_where_models_are_selected() {
    let budgets = good(&format!("{HEAD}  other: {{ live: 1 GiB }}\n  zoo/decoder: {{}}\n"));
    assert!(
        budgets
            .check_models(&workspace()[1..2], false)
            .expect("good")
            .is_empty()
    );
    assert!(budgets.check_models(&workspace()[1..2], true).is_err());
}

#[test]
fn a_model_without_a_budget_is_a_warning() {
    let warnings = good(&format!("{HEAD}  zoo/decoder: {{}}\n"))
        .check_models(&workspace(), true)
        .expect("good");
    let warnings: Vec<String> = warnings
        .iter()
        .map(|warning| format!("{warning}; {}", warning.advice().unwrap_or_default()))
        .collect();
    assert_eq!(
        warnings,
        [
            "budgets.yaml: the model `zoo/resnet18` has no budget; add `resnet18: { reserved: … }` under `models`",
            "budgets.yaml: the model `extra/decoder` has no budget; add `extra/decoder: { reserved: … }` under `models`",
        ]
    );
}

#[test]
fn two_budgets_of_one_name_are_refused() {
    let budgets = good(&format!(
        "{HEAD}  resnet18: {{}}\n  zoo/resnet18: {{}}\n  zoo/decoder: {{}}\n"
    ));
    let error = budgets.check_models(&workspace(), true).expect_err("twice");
    assert_shown!(shown(&error));
}
