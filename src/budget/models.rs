//! Budgets and the models that a workspace declares.

use std::collections::BTreeSet;

use super::problem::{BudgetError, Problem, Problems};
use super::types::{Budgets, ModelBudget};
use crate::names::{quoted, suggest};

/// A model that a workspace declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredModel {
    /// The package that declares it.
    pub package: String,
    /// Its name, as in `cargo_vram::models!`.
    pub model: String,
    /// The inputs that it asks for, where they are known.
    pub inputs: Option<Vec<String>>,
}

impl Budgets {
    /// Compares the budgets with the models that are declared.
    ///
    /// A budget without a model is a mistake where `declared` is the whole workspace, and another selection's affair
    /// where it is not. Returns warnings: a declared model without a budget.
    ///
    /// # Errors
    /// All budgets for models that do not exist or are ambiguous, all inputs that a model does not ask for, and models
    /// with two budgets of one name.
    pub fn check_models(&self, declared: &[DeclaredModel], whole_workspace: bool) -> Result<Vec<Problem>, BudgetError> {
        let mut problems = Problems::default();
        for budget in &self.models {
            let matching: Vec<&DeclaredModel> = declared
                .iter()
                .filter(|model| budget.is_for(&model.package, &model.model))
                .collect();
            match matching.as_slice() {
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
                let problem = Problem::new(
                    "budgets::no-budget",
                    format!("the model {} has no budget", quoted(&identity)),
                )
                .warning();
                let help = {
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
            let mut names = BTreeSet::new();
            for budget in budgets.iter().filter(|budget| !names.insert(&budget.name.value)) {
                problems.push(
                    Problem::new(
                        "budgets::duplicate-budget",
                        format!(
                            "the model {} has two budgets named {}",
                            quoted(&identity),
                            quoted(&budget.name.value)
                        ),
                    )
                    .at(budget.name.span, "the second")
                    .help("keep one of the two, or give one a name of its own, with `model:` and `inputs:`"),
                );
            }
        }
        problems.into_result(&self.source)?;
        Ok(warnings)
    }
}

/// Two runs of one name in a package share a line of budgets.lock, and one of them would be judged by the other's.
fn name_of_another(budget: &ModelBudget, model: &DeclaredModel) -> Problem {
    let name = &budget.name.value;
    Problem::new(
        "budgets::name-of-another-model",
        format!(
            "the budget {} is for the model {}, and {} declares a model of that name, too",
            quoted(name),
            quoted(&model.model),
            quoted(&model.package),
        ),
    )
    .at(budget.name.span, "the name of another model")
    .help(format!(
        "give this budget a name that no model has, such as `{}-2`",
        model.model
    ))
}

fn unknown_model(budget: &ModelBudget, declared: &[DeclaredModel]) -> Problem {
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
    Problem::new(
        "budgets::unknown-model",
        format!("no package of the workspace declares a model {}", quoted(&named)),
    )
    .at(budget.target, "unknown model")
    .help(help.unwrap_or_else(|| "`cargo vram list` shows the models".to_owned()))
}

fn ambiguous(budget: &ModelBudget, several: &[&DeclaredModel]) -> Problem {
    let choices: Vec<String> = several
        .iter()
        .map(|model| quoted(&format!("{}/{}", model.package, model.model)))
        .collect();
    Problem::new(
        "budgets::ambiguous-model",
        format!("{} packages declare a model {}", several.len(), quoted(&budget.model)),
    )
    .at(budget.target, "ambiguous")
    .help(format!("write {}", choices.join(" or ")))
}

fn unknown_inputs(budget: &ModelBudget, model: &DeclaredModel, problems: &mut Problems) {
    let Some(known) = &model.inputs else { return };
    for (name, input) in budget.inputs.iter().filter(|(name, _)| !known.contains(name)) {
        let message = format!("the model {} asks for no input {}", quoted(&model.model), quoted(name));
        let help = suggest(name, known.iter().map(String::as_str));
        problems.push(
            Problem::new("budgets::unknown-input", message)
                .at(input.span, "unknown input")
                .help(help.unwrap_or_else(|| "it asks for none: remove this".to_owned())),
        );
    }
}
