//! From what was written to what is meant. Every mistake is collected; none stops the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fields::{Fields, Reader};
use super::gpu_profile::A_PROFILE;
use super::model::{A_MODEL, Context};
use super::problem::{BudgetError, Problem, Problems};
use super::source::{Source, Span, Spanned};
use super::tree::{Kind, Node};
use super::types::{Budgets, Defaults, GpuProfileEntry, ModelBudget};
use crate::names::quoted;

const ROOT: [&str; 5] = ["version", "gpu", "defaults", "gpu_profiles", "models"];
const DEFAULTS: [&str; 4] = ["growth", "drift", "timeout", "steps"];

pub(super) fn validate(
    root: &Node,
    mut problems: Problems,
    known_gpus: &[&str],
    source: &Arc<Source>,
) -> Result<Budgets, BudgetError> {
    if let Some(problem) = unsupported_version(root) {
        // What else is wrong with a file of another version, this one cannot know.
        problems.push(problem);
        return Err(problems.into_error(source));
    }
    let mut reader = Reader { source, problems };
    let budgets = reader.root(root, known_gpus, source);
    let Reader { problems, .. } = reader;
    problems.into_result(source)?;
    Ok(budgets)
}

fn unsupported_version(root: &Node) -> Option<Problem> {
    let Kind::Mapping(entries) = &root.kind else {
        return None;
    };
    let (_, version) = entries.iter().find(|(key, _)| key.text == "version")?;
    let Kind::Scalar(text) = &version.kind else {
        return None;
    };
    let message = format!("this program does not read version {}", quoted(text));
    (text != "1").then(|| {
        Problem::new("budgets::unsupported-version", message)
            .at(version.span, "unsupported")
            .help("write `version: 1`, or use a newer cargo-vram")
    })
}

impl Reader<'_> {
    fn root(&mut self, node: &Node, built_in: &[&str], source: &Arc<Source>) -> Budgets {
        let mut budgets = Budgets {
            gpu: None,
            defaults: Defaults::default(),
            gpu_profiles: BTreeMap::new(),
            models: Vec::new(),
            source: Arc::clone(source),
        };
        let example = "`version: 1` and what follows";
        let Some(fields) = self.fields(node, "a budget file", &ROOT, example) else {
            return budgets;
        };
        self.version(&fields, node.span);
        // A card whose description is refused is known all the same.
        let mut known_gpus: BTreeSet<&str> = built_in.iter().copied().collect();
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
            let context = Context {
                gpu: budgets.gpu.as_ref().map(|gpu| gpu.value.as_str()),
                known_gpus: &known_gpus,
                defaults: &budgets.defaults,
            };
            budgets.models = self.models(node, &context);
        }
        if fields.get("gpu").is_none() {
            self.missing_gpu(&budgets.models);
        }
        budgets
    }

    fn version(&mut self, fields: &Fields<'_>, start: Span) {
        match fields.get("version") {
            Some(node) => {
                self.scalar(node, "`version`", |_| Ok(()), "a number", "`version: 1`");
            }
            None => self.problems.push(
                Problem::new("budgets::missing-version", "`version` is missing".to_owned())
                    .at(start, "stands before this")
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

    fn models(&mut self, node: &Node, context: &Context<'_>) -> Vec<ModelBudget> {
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
        let message = format!("{name} has limits, and the file does not name their card");
        self.problems.push(
            Problem::new("budgets::missing-gpu", message)
                .at(model.name.span, "has limits at its top")
                .help("write `gpu: l4` at the top of the file; limits of other cards stand under the model's `gpus`"),
        );
    }
}
