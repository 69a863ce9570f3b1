//! Compares budgets with the models that a workspace declares.

use std::collections::BTreeSet;

use super::problem::{BudgetError, BudgetProblem, Problems};
use super::types::{Budgets, ModelBudget};
use crate::names::{quoted, suggest};

/// A model that a workspace declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredModel {
    /// The package that declares it.
    pub package: String,
    /// The name of the model, as in `cargo_vram::models!`.
    pub model: String,
    /// The names of the inputs that the model reads, if they are known.
    pub inputs: Option<Vec<String>>,
}

impl Budgets {
    /// Compares the budgets with the declared models, and returns one warning per declared model without a budget.
    ///
    /// A budget without a model is a mistake only if `declared` has the models of the whole workspace.
    ///
    /// # Errors
    /// A budget's model does not exist, or several packages declare it. Also if a budget sets an input that the model
    /// does not read, if two budgets of a model have the same name, or if a budget has the name of another model.
    pub fn check_models(
        &self,
        declared: &[DeclaredModel],
        whole_workspace: bool,
    ) -> Result<Vec<BudgetProblem>, BudgetError> {
        let mut problems = Problems::default();
        for budget in &self.models {
            let matching: Vec<&DeclaredModel> = declared
                .iter()
                .filter(|model| budget.is_for(&model.package, &model.model))
                .collect();
            match matching.as_slice() {
                // With `-p`, only some packages declare their models.
                [] if whole_workspace => problems.push(unknown_model(budget, declared)),
                [] => {}
                [model] => unknown_inputs(budget, model, &mut problems),
                several => problems.push(ambiguous(budget, several)),
            }
        }
        let mut warnings = Vec::new();
        for model in declared {
            let budgets = self.for_model(&model.package, &model.model);
            let identity = format!("{}/{}", model.package, model.model);
            if budgets.is_empty() {
                let problem = BudgetProblem::new(
                    "budgets::no-budget",
                    format!("the model {} has no budget", quoted(&identity)),
                )
                .warning();
                let help = {
                    // The name alone would be ambiguous if two packages declare it.
                    let unique = declared.iter().filter(|other| other.model == model.model).count() == 1;
                    let name = if unique { &model.model } else { &identity };
                    format!("add `{name}: {{ reserved: … }}` under `models`")
                };
                warnings.push(problem.help(help).located(&self.source));
            }
            for budget in budgets.iter().filter(|budget| budget.name.value != model.model) {
                let is_other =
                    |other: &&DeclaredModel| other.package == model.package && other.model == budget.name.value;
                if declared.iter().any(|other| is_other(&other)) {
                    problems.push(name_of_another(budget, model));
                }
            }
            // The keys `a` and `p/a` differ, but both budgets have the name `a`.
            let mut names = BTreeSet::new();
            for budget in budgets.iter().filter(|budget| !names.insert(&budget.name.value)) {
                problems.push(
                    BudgetProblem::new(
                        "budgets::duplicate-budget",
                        format!(
                            "the model {} has two budgets named {}",
                            quoted(&identity),
                            quoted(&budget.name.value)
                        ),
                    )
                    .at(budget.name.span, "second budget")
                    .help("remove one of the two, or give one its own name, `model` and `inputs`"),
                );
            }
        }
        problems.into_result(&self.source)?;
        Ok(warnings)
    }
}

/// Two runs with the same name in a package share an entry of budgets.lock, so one would be compared with the other's
/// baseline.
fn name_of_another(budget: &ModelBudget, model: &DeclaredModel) -> BudgetProblem {
    let name = &budget.name.value;
    BudgetProblem::new(
        "budgets::name-of-another-model",
        format!(
            "the budget {} is for the model {}, but package {} also declares a model with the budget's name",
            quoted(name),
            quoted(&model.model),
            quoted(&model.package),
        ),
    )
    .at(budget.name.span, "the name of another model")
    .help(format!(
        "choose a budget name that no model has, such as `{}-2`",
        model.model
    ))
}

fn unknown_model(budget: &ModelBudget, declared: &[DeclaredModel]) -> BudgetProblem {
    let named = match &budget.package {
        Some(package) => format!("{package}/{}", budget.model),
        None => budget.model.clone(),
    };
    let known: Vec<String> = declared
        .iter()
        .map(|model| {
            if budget.package.is_some() {
                format!("{}/{}", model.package, model.model)
            } else {
                model.model.clone()
            }
        })
        .collect();
    let help = suggest(&named, known.iter().map(String::as_str));
    BudgetProblem::new(
        "budgets::unknown-model",
        format!("no package in the workspace declares the model {}", quoted(&named)),
    )
    .at(budget.target, "unknown model")
    .help(help.unwrap_or_else(|| "run `cargo vram list` to print the declared models".to_owned()))
}

fn ambiguous(budget: &ModelBudget, several: &[&DeclaredModel]) -> BudgetProblem {
    let choices: Vec<String> = several
        .iter()
        .map(|model| quoted(&format!("{}/{}", model.package, model.model)))
        .collect();
    BudgetProblem::new(
        "budgets::ambiguous-model",
        format!("{} packages declare the model {}", several.len(), quoted(&budget.model)),
    )
    .at(budget.target, "ambiguous")
    .help(format!("write {}", choices.join(" or ")))
}

fn unknown_inputs(budget: &ModelBudget, model: &DeclaredModel, problems: &mut Problems) {
    let Some(known) = &model.inputs else { return };
    for (name, input) in budget.inputs.iter().filter(|(name, _)| !known.contains(name)) {
        let message = format!("the model {} has no input {}", quoted(&model.model), quoted(name));
        let help = suggest(name, known.iter().map(String::as_str));
        problems.push(
            BudgetProblem::new("budgets::unknown-input", message)
                .at(input.span, "unknown input")
                .help(help.unwrap_or_else(|| "remove it: the model has no inputs".to_owned())),
        );
    }
}
