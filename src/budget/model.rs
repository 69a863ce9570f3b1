//! One entry of `models`, and the limits in it.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{Fields, Reader};
use super::problem::Problem;
use super::scalar::{Bad, count};
use super::source::{Span, Spanned};
use super::tree::Node;
use super::types::{CardLimits, Defaults, Limits, ModelBudget};
use crate::names::quoted;

pub(super) const METRICS: [&str; 3] = ["live", "reserved", "process"];
pub(super) const A_MODEL: &str = "`NAME: { reserved: 2 GiB }`";

/// Live is observed where the plan is replayed, not while candidates are tried.
const COLD: [&str; 2] = ["reserved", "process"];
const CARD: [&str; 4] = ["live", "reserved", "process", "cold"];
const MODEL: [&str; 14] = [
    "model",
    "inputs",
    "live",
    "reserved",
    "process",
    "cold",
    "gpus",
    "cards",
    "growth",
    "drift",
    "timeout",
    "steps",
    "nondeterministic",
    "control_flow",
];
const NONDETERMINISTIC: &str = "`nondeterministic: allowed`";
const CONTROL_FLOW: &str = "`control_flow: data-dependent`";
const SOME_CARDS: &str = "`cards: { 0: { reserved: 4 GiB }, 1: { reserved: 2 GiB } }`";
const SOME_GPUS: &str = "`gpus: { h200: { reserved: 4 GiB } }`";

/// What a model needs of the rest of the file.
pub(super) struct Context<'a> {
    pub(super) gpu: Option<&'a str>,
    pub(super) known_gpus: &'a BTreeSet<&'a str>,
    pub(super) defaults: &'a Defaults,
}

impl Reader<'_> {
    pub(super) fn model(&mut self, name: Spanned<String>, node: &Node, context: &Context<'_>) -> Option<ModelBudget> {
        let fields = self.fields(node, "a model", &MODEL, A_MODEL)?;
        let limits = self.card_limits(&fields);
        let gpus = fields.get("gpus").map(|node| self.gpus(node, &limits, context));
        let cards = fields.get("cards").map(|node| self.cards(node));
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
                if !is_name(&name.value) {
                    let help = "use letters, digits, `_`, `-` and `.`, the first no `-` or `.`";
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
            let help = "write a model as `cargo vram list` shows it: `resnet18`, or `package/resnet18`";
            self.bad_name(&named.value, named.span, help);
        }
        // A key that names the model with its package is not another name for the budget.
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
            gpus: gpus.unwrap_or_default(),
            cards: cards.unwrap_or_default(),
            nondeterministic,
            data_dependent,
            settings,
            target: named.span,
        })
    }

    /// A key that has one value: there is nothing to write where it does not hold.
    fn only(&mut self, node: &Node, what: &str, value: &'static str, example: &str) -> Option<Span> {
        let parse = |text: &str| match text == value {
            true => Ok(()),
            false => Err(Bad::new(
                "budgets::bad-value",
                format!("{what} has one value, `{value}`, and not {}", quoted(text)),
                "leave the key out where it does not hold",
            )),
        };
        self.scalar(node, what, parse, &format!("`{value}`"), example)
            .map(|Spanned { span, .. }| span)
    }

    fn gpus(&mut self, node: &Node, top: &CardLimits, context: &Context<'_>) -> BTreeMap<String, CardLimits> {
        let mut gpus = BTreeMap::new();
        for (key, node) in self.entries(node, "`gpus`", SOME_GPUS).unwrap_or_default() {
            self.known_gpu(&key.text, key.span, context.known_gpus);
            if context.gpu == Some(key.text.as_str()) && !top.is_empty() {
                let message = format!("{} has limits at the model's top already", quoted(&key.text));
                self.problems.push(
                    Problem::new("budgets::card-twice", message)
                        .at(key.span, "the card of `gpu:`")
                        .help("limits at a model's top are for the card of `gpu:`: keep them there, or here"),
                );
            }
            if let Some(fields) = self.fields(node, "a card", &CARD, SOME_GPUS) {
                gpus.insert(key.text.clone(), self.card_limits(&fields));
            }
        }
        gpus
    }

    /// Limits of each of several cards.
    fn cards(&mut self, node: &Node) -> BTreeMap<u32, Spanned<CardLimits>> {
        let mut cards = BTreeMap::new();
        for (key, node) in self.entries(node, "`cards`", SOME_CARDS).unwrap_or_default() {
            let number = key
                .text
                .parse::<u32>()
                .ok()
                .filter(|number| number.to_string() == key.text);
            let Some(number) = number else {
                let message = format!("{} is no card's number", quoted(&key.text));
                self.problems.push(
                    Problem::new("budgets::card-number", message)
                        .at(key.span, "a whole number from 0")
                        .help(format!(
                            "cards are counted from 0: {SOME_CARDS}; limits on other kinds of cards stand under `gpus`"
                        )),
                );
                continue;
            };
            if let Some(fields) = self.fields(node, "a card", &CARD, SOME_CARDS) {
                let value = self.card_limits(&fields);
                cards.insert(number, Spanned { value, span: key.span });
            }
        }
        cards
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

    fn card_limits(&mut self, fields: &Fields<'_>) -> CardLimits {
        let warm = self.limits(fields);
        let cold = fields
            .get("cold")
            .and_then(|node| self.fields(node, "`cold`", &COLD, "`cold: { reserved: 6 GiB }`"));
        let cold = cold.map(|fields| self.limits(&fields)).unwrap_or_default();
        CardLimits { warm, cold }
    }

    fn limits(&mut self, fields: &Fields<'_>) -> Limits {
        let mut limit = |metric| fields.get(metric).and_then(|node| self.size_limit(node, metric));
        Limits {
            live: limit("live"),
            reserved: limit("reserved"),
            process: limit("process"),
        }
    }
}

/// Fit for a report, a command line and the name of a file.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}
