//! Converts the tree into checked budgets. It collects every mistake and continues after each one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fields::{FieldReader, KnownFields};
use super::gpu_profile::A_PROFILE;
use super::model::{A_MODEL, ModelContext};
use super::problem::{BudgetError, BudgetProblem, Problems};
use super::source::{BudgetText, Span, Spanned};
use super::tree::{Node, NodeKind};
use super::types::{Budgets, Defaults, GpuProfileEntry, ModelBudget};
use crate::names::quoted;

const ROOT: [&str; 5] = ["version", "gpu", "defaults", "gpu_profiles", "models"];
const DEFAULTS: [&str; 4] = ["growth", "drift", "timeout", "steps"];

pub(super) fn validate(
    root: &Node,
    mut problems: Problems,
    known_gpus: &[&str],
    source: &Arc<BudgetText>,
) -> Result<Budgets, BudgetError> {
    if let Some(problem) = unsupported_version(root) {
        // This program does not know the other keys of another version, so it cannot check them.
        problems.push(problem);
        return Err(problems.into_error(source));
    }
    let mut reader = FieldReader { source, problems };
    let budgets = reader.root(root, known_gpus, source);
    let FieldReader { problems, .. } = reader;
    problems.into_result(source)?;
    Ok(budgets)
}

fn unsupported_version(root: &Node) -> Option<BudgetProblem> {
    let NodeKind::Mapping(entries) = &root.kind else {
        return None;
    };
    let (_, version) = entries.iter().find(|(key, _)| key.text == "version")?;
    let NodeKind::Scalar(text) = &version.kind else {
        return None;
    };
    let message = format!("unsupported version {}", quoted(text));
    (text != "1").then(|| {
        BudgetProblem::new("budgets::unsupported-version", message)
            .at(version.span, "this cargo-vram reads version 1")
            .help("write `version: 1`, or install a newer cargo-vram")
    })
}

impl FieldReader<'_> {
    fn root(&mut self, node: &Node, built_in: &[&str], source: &Arc<BudgetText>) -> Budgets {
        let mut budgets = Budgets {
            gpu: None,
            defaults: Defaults::default(),
            gpu_profiles: BTreeMap::new(),
            models: Vec::new(),
            source: Arc::clone(source),
        };
        let example = "`version: 1` and the other top-level keys";
        let Some(fields) = self.fields(node, "a budget file", &ROOT, example) else {
            return budgets;
        };
        self.version(&fields, node.span);
        // A GPU profile with mistakes still counts as known, so that one mistake is not reported twice.
        let mut known_gpus: BTreeSet<&str> = built_in.iter().copied().collect();
        // Profiles before everything that may name them, and defaults before the models that inherit them.
        if let Some(profiles) = fields.get("gpu_profiles") {
            budgets.gpu_profiles = self.gpu_profiles(profiles, built_in, &mut known_gpus);
        }
        budgets.gpu = fields.get("gpu").and_then(|node| self.text(node, "`gpu`", "`gpu: l4`"));
        if let Some(gpu) = &budgets.gpu {
            self.known_gpu(&gpu.value, gpu.span, &known_gpus);
        }
        let defaults = fields
            .get("defaults")
            .and_then(|node| self.fields(node, "`defaults`", &DEFAULTS, "`defaults: { timeout: 10 min }`"));
        if let Some(fields) = defaults {
            budgets.defaults = self.settings(&fields, &Defaults::default());
        }
        if let Some(node) = fields.get("models") {
            let context = ModelContext {
                gpu: budgets.gpu.as_ref().map(|gpu| gpu.value.as_str()),
                known_gpus: &known_gpus,
                defaults: &budgets.defaults,
            };
            budgets.models = self.models(node, &context);
        }
        // A file whose limits all stand under `gpus` needs no `gpu`.
        if fields.get("gpu").is_none() {
            self.missing_gpu(&budgets.models);
        }
        budgets
    }

    fn version(&mut self, fields: &KnownFields<'_>, start: Span) {
        match fields.get("version") {
            Some(node) => {
                // Any other version ended the reading before, so only the type can be wrong here.
                self.scalar(node, "`version`", |_| Ok(()), "a number", "`version: 1`");
            }
            None => self.problems.push(
                BudgetProblem::new("budgets::missing-version", "`version` is missing".to_owned())
                    .at(start, "add it before this")
                    .help("write `version: 1` at the top"),
            ),
        }
    }

    fn gpu_profiles<'t>(
        &mut self,
        node: &'t Node,
        built_in: &[&str],
        known: &mut BTreeSet<&'t str>,
    ) -> BTreeMap<String, GpuProfileEntry> {
        let entries = self.entries(node, "`gpu_profiles`", A_PROFILE).unwrap_or_default();
        known.extend(entries.iter().map(|(key, _)| key.text.as_str()));
        entries
            .into_iter()
            .filter_map(|(key, node)| {
                self.gpu_profile(key, node, built_in)
                    .map(|profile| (key.text.clone(), profile))
            })
            .collect()
    }

    fn models(&mut self, node: &Node, context: &ModelContext<'_>) -> Vec<ModelBudget> {
        let entries = self.entries(node, "`models`", A_MODEL).unwrap_or_default();
        entries
            .into_iter()
            .filter_map(|(key, node)| {
                let name = Spanned {
                    value: key.text.clone(),
                    span: key.span,
                };
                self.model(name, node, context)
            })
            .collect()
    }

    fn missing_gpu(&mut self, models: &[ModelBudget]) {
        let Some(model) = models.iter().find(|model| !model.limits.is_empty()) else {
            return;
        };
        let name = quoted(&model.name.value);
        let message = format!("{name} has limits, but the file does not say for which GPU");
        self.problems.push(
            BudgetProblem::new("budgets::missing-gpu", message)
                .at(model.name.span, "has limits outside `gpus`")
                .help("add `gpu: l4` at the top of the file, or move the limits to the model's `gpus`"),
        );
    }
}
