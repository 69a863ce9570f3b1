//! `cargo vram schema`: the formats of the JSON documents.

use clap::{Args, ValueEnum};
use schemars::schema_for;

use super::exit::Exit;
use super::{Stopped, pipeline, terminal};
use crate::explain::Explanation;
use crate::fit::Fit;
use crate::report::Report;
use crate::report::diff::Diff;

/// Print the JSON schema of a document that this program writes
///
/// Each document says in `version` which version of its format it has; its schema allows the version that this program
/// writes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram schema > report.schema.json
  cargo vram schema explanation > explanation.schema.json")]
pub(super) struct Schema {
    /// The document
    #[arg(value_enum, value_name = "DOCUMENT", default_value = "report")]
    document: Document,
}

/// A document that programs read. What `list`, `gpus` and `doctor` print has no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Document {
    /// What `check`, `estimate`, `measure` and `merge` write
    Report,
    /// What `explain` writes
    #[value(alias = "explain")]
    Explanation,
    /// What `fit` writes
    Fit,
    /// What `diff` writes
    Diff,
}

impl Document {
    fn schema(self) -> schemars::Schema {
        match self {
            Self::Report => schema_for!(Report),
            Self::Explanation => schema_for!(Explanation),
            Self::Fit => schema_for!(Fit),
            Self::Diff => schema_for!(Diff),
        }
    }
}

impl Schema {
    pub(super) fn run(&self) -> Result<Exit, Stopped> {
        terminal::show(&pipeline::json(&self.document.schema())?);
        Ok(Exit::Success)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bytes::Bytes;
    use crate::fit::{CardFit, Ended, FIT_VERSION, Probe};
    use crate::report::diff::diff;
    use crate::report::sample;

    fn value(document: &impl serde::Serialize) -> Value {
        serde_json::to_value(document).unwrap()
    }

    /// A model that fits with one value, does not with another, and could not be run with a third.
    fn fit() -> Fit {
        let run = sample::run("a", "l4");
        let room = Bytes(2 << 30);
        let probe = |value| Probe::of(Some(value), &run, room, false);
        let too_large = Probe {
            fits: false,
            out_of_memory: true,
            ..probe(64)
        };
        let broken = Probe {
            needed: None,
            left: None,
            error: Some("it panicked".to_owned()),
            ..probe(128)
        };
        Fit {
            version: FIT_VERSION,
            tool: sample::report(Vec::new()).tool,
            commit: None,
            package: run.package.clone(),
            model: run.model.clone(),
            vary: Some("batch_size".to_owned()),
            inputs: [("image_size".to_owned(), 32)].into(),
            warm_only: false,
            headroom: "5%".to_owned(),
            advised: false,
            cards: vec![CardFit {
                gpu: run.gpu.clone(),
                what_if: crate::protocol::WhatIf {
                    accumulate: Some(2),
                    ..Default::default()
                },
                room,
                largest: Some(32),
                too_large: Some(64),
                ended: Ended::CannotBeRun,
                not_monotonic: Vec::new(),
                probes: vec![probe(32), too_large, broken],
            }],
        }
    }

    /// Each document, and a place in it that cannot be a text.
    fn documents() -> Vec<(Document, Value, &'static str)> {
        let (small, large) = (
            crate::explain::sample::resnet_of(2, 2),
            crate::explain::sample::resnet_of(4, 5),
        );
        let report = |run: &crate::report::Run| sample::report(vec![run.clone(), sample::measured(run.clone())]);
        let mut changes = diff(&report(&small.run), &report(&large.run));
        crate::report::diff::explain(&mut changes, std::slice::from_ref(&small), std::slice::from_ref(&large));
        vec![
            (Document::Report, value(&report(&small.run)), "/runs/0/peaks/warm/live"),
            (Document::Explanation, value(&large), "/layers/0/feature_bytes"),
            (
                Document::Explanation,
                value(&crate::explain::sample::hostile()),
                "/tensors/0/bytes",
            ),
            (Document::Fit, value(&fit()), "/cards/0/probes/0/needed"),
            (Document::Diff, value(&changes), "/models/0/figures/0/change"),
        ]
    }

    #[test]
    fn each_document_is_what_its_schema_says_and_no_other_is() {
        let documents = documents();
        for (kind, document, number) in &documents {
            let validator = jsonschema::validator_for(&value(&kind.schema())).unwrap();
            let errors: Vec<_> = validator.iter_errors(document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{kind:?}: {errors:?}");
            let mut wrong = document.clone();
            *wrong.pointer_mut(number).unwrap() = json!("much");
            assert!(!validator.is_valid(&wrong), "{kind:?}: {number}");
            for (other, document, _) in &documents {
                assert_eq!(validator.is_valid(document), kind == other, "{kind:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_schema_allows_the_version_that_is_written_and_no_other() {
        for (kind, mut document, _) in documents() {
            let schema = value(&kind.schema());
            assert_eq!(
                schema.pointer("/properties/version/const"),
                document.get("version"),
                "{kind:?}"
            );
            document["version"] = json!(document["version"].as_u64().unwrap() + 1);
            assert!(!jsonschema::is_valid(&schema, &document), "{kind:?}");
        }
    }
}
