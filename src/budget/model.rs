//! Reads one entry of `models` with its limits.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{FieldReader, KnownFields};
use super::problem::BudgetProblem;
use super::scalar::{Bad, count};
use super::source::{Span, Spanned};
use super::tree::{Key, Node};
use super::types::{Defaults, GpuLimitsEntry, ModelBudget, ModelLimits};
use crate::names::quoted;
use crate::untrusted::PlainName;

pub(super) const METRICS: [&str; 3] = ["live", "reserved", "process"];
pub(super) const A_MODEL: &str = "`NAME: { reserved: 2 GiB }`";

/// The keys of `cold`. `live` is not one of them: the cold pass, in which autotune tries candidates, is not observed.
const COLD: [&str; 2] = ["reserved", "process"];
const GPU: [&str; 4] = ["live", "reserved", "process", "cold"];
const MODEL: [&str; 13] = [
    "model",
    "inputs",
    "live",
    "reserved",
    "process",
    "cold",
    "gpus",
    "growth",
    "drift",
    "timeout",
    "steps",
    "nondeterministic",
    "control_flow",
];
const NONDETERMINISTIC: &str = "`nondeterministic: allowed`";
const CONTROL_FLOW: &str = "`control_flow: data-dependent`";
const SOME_GPUS: &str = "`gpus: { h200: { reserved: 4 GiB } }`";

/// The limits by GPU ID, and the limits by GPU number.
type GpuEntries = (BTreeMap<String, GpuLimitsEntry>, BTreeMap<u32, Spanned<GpuLimitsEntry>>);

/// The parts of the file outside a model's entry that the entry depends on.
pub(super) struct ModelContext<'a> {
    pub(super) gpu: Option<&'a str>,
    pub(super) known_gpus: &'a BTreeSet<&'a str>,
    pub(super) defaults: &'a Defaults,
}

impl FieldReader<'_> {
    pub(super) fn model(
        &mut self,
        name: Spanned<String>,
        node: &Node,
        context: &ModelContext<'_>,
    ) -> Option<ModelBudget> {
        let fields = self.fields(node, "a model", &MODEL, A_MODEL)?;
        let limits = self.gpu_limits(&fields);
        let (gpus, numbered_gpus) = match fields.get("gpus") {
            Some(node) => self.gpus(node, &limits, context),
            None => Default::default(),
        };
        let inputs = fields.get("inputs").map(|node| self.inputs(node));
        let settings = self.settings(&fields, context.defaults);
        let nondeterministic = fields
            .get("nondeterministic")
            .and_then(|node| self.only(node, "`nondeterministic`", "allowed", NONDETERMINISTIC));
        let data_dependent = fields
            .get("control_flow")
            .and_then(|node| self.only(node, "`control_flow`", "data-dependent", CONTROL_FLOW));

        let named = match fields.get("model") {
            None => name.clone(),
            Some(node) => {
                // Without `model`, the key names the model, and is checked below.
                if !is_name(&name.value) {
                    let help = "use letters, digits, `_`, `-` and `.`, and start with a letter, a digit or `_`";
                    self.bad_name(&name.value, name.span, help);
                }
                self.text(node, "`model`", "`model: resnet18`")?
            }
        };
        let (package, model) = match named.value.split_once('/') {
            Some((package, model)) => (Some(package.to_owned()), model.to_owned()),
            None => (None, named.value.clone()),
        };
        if !is_name(&model) || package.as_deref().is_some_and(|package| !is_name(package)) {
            let help = "write the model as `cargo vram list` prints it: `resnet18` or `package/resnet18`";
            self.bad_name(&named.value, named.span, help);
        }
        // A key `package/model` is not a new name: the budget keeps the model's name.
        let key = name.value.clone();
        let own = if fields.get("model").is_none() {
            model.clone()
        } else {
            name.value
        };
        Some(ModelBudget {
            name: Spanned {
                value: own,
                span: name.span,
            },
            key,
            package,
            model,
            inputs: inputs.unwrap_or_default(),
            limits,
            gpus,
            numbered_gpus,
            nondeterministic,
            data_dependent,
            settings,
            target: named.span,
        })
    }

    /// Reads a key that accepts only `value`, and returns the value's position.
    fn only(&mut self, node: &Node, what: &str, value: &'static str, example: &str) -> Option<Span> {
        let parse = |text: &str| match text == value {
            true => Ok(()),
            false => Err(Bad::new(
                "budgets::bad-value",
                format!("{what} must be `{value}`, not {}", quoted(text)),
                "remove the key if this does not apply",
            )),
        };
        self.scalar(node, what, parse, &format!("`{value}`"), example)
            .map(|Spanned { span, .. }| span)
    }

    /// Reads `gpus`: limits by GPU ID, and limits by the number of one of several GPUs.
    fn gpus(&mut self, node: &Node, top: &GpuLimitsEntry, context: &ModelContext<'_>) -> GpuEntries {
        let (mut by_id, mut by_number) = GpuEntries::default();
        for (key, node) in self.entries(node, "`gpus`", SOME_GPUS).unwrap_or_default() {
            // The id of a GPU must have a letter, so a key of digits is always a number.
            let is_number = !key.text.is_empty() && key.text.bytes().all(|byte| byte.is_ascii_digit());
            let number = if is_number { self.gpu_number(key) } else { None };
            if !is_number {
                self.known_gpu(&key.text, key.span, context.known_gpus);
            }
            // `limits_on` prefers the limits outside of `gpus`, so these would silently do nothing.
            if context.gpu == Some(key.text.as_str()) && !top.is_empty() {
                let message = format!("the model has two sets of limits for the GPU {}", quoted(&key.text));
                self.problems.push(
                    BudgetProblem::new("budgets::gpu-twice", message)
                        .at(key.span, "the GPU of the top-level key `gpu`")
                        .help("remove one of them: limits outside `gpus` are for the GPU of the top-level key `gpu`"),
                );
            }
            let Some(fields) = self.fields(node, "a GPU", &GPU, SOME_GPUS) else {
                continue;
            };
            let value = self.gpu_limits(&fields);
            match number {
                Some(number) => {
                    by_number.insert(number, Spanned { value, span: key.span });
                }
                // The number was reported already. As an id, it would be reported twice.
                None if is_number => {}
                None => {
                    by_id.insert(key.text.clone(), value);
                }
            }
        }
        (by_id, by_number)
    }

    /// Reads the number of one of several GPUs. Reports leading zeros and numbers above 2³² − 1.
    fn gpu_number(&mut self, key: &Key) -> Option<u32> {
        let number = key.text.parse::<u32>().ok();
        // With leading zeros, `1` and `01` would be two keys for one GPU.
        let number = number.filter(|number| number.to_string() == key.text);
        if number.is_none() {
            let message = format!("{} is not a valid GPU number", quoted(&key.text));
            self.problems.push(
                BudgetProblem::new("budgets::gpu-number", message)
                    .at(key.span, "not a whole number from 0")
                    .help(
                        "number GPUs from 0, without leading zeros: `gpus: { 0: { reserved: 4 GiB }, 1: { reserved: \
                         2 GiB } }`",
                    ),
            );
        }
        number
    }

    fn inputs(&mut self, node: &Node) -> BTreeMap<String, Spanned<u64>> {
        let example = "`inputs: { batch_size: 32 }`";
        let mut inputs = BTreeMap::new();
        for (key, node) in self.entries(node, "`inputs`", example).unwrap_or_default() {
            let value = self.scalar(node, &quoted(&key.text), count, "a whole number", example);
            inputs.extend(value.map(|Spanned { value, .. }| (key.text.clone(), Spanned { value, span: key.span })));
        }
        inputs
    }

    fn gpu_limits(&mut self, fields: &KnownFields<'_>) -> GpuLimitsEntry {
        let warm = self.limits(fields);
        let cold = fields
            .get("cold")
            .and_then(|node| self.fields(node, "`cold`", &COLD, "`cold: { reserved: 6 GiB }`"));
        let cold = cold.map(|fields| self.limits(&fields)).unwrap_or_default();
        GpuLimitsEntry { warm, cold }
    }

    fn limits(&mut self, fields: &KnownFields<'_>) -> ModelLimits {
        let mut limit = |metric| fields.get(metric).and_then(|node| self.size_limit(node, metric));
        ModelLimits {
            live: limit("live"),
            reserved: limit("reserved"),
            process: limit("process"),
        }
    }
}

/// Whether a name is safe in a report, on a command line and as a file name.
fn is_name(name: &str) -> bool {
    PlainName::parse(name).is_ok()
        && name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}
