//! `cargo vram schema`: prints the JSON schemas of the documents.

use clap::{Args, ValueEnum};
use schemars::schema_for;

use super::exit::Exit;
use super::terminal;
use crate::cli::error::CliError;
use crate::cli::session;
use crate::explain::Explanation;
use crate::fit::FitAnswer;
use crate::report::Report;
use crate::report::diff::ReportDiff;

/// Print the JSON schema of a document that cargo-vram writes
///
/// The field `version` of each document is the version of its format. The schema allows only the version that this
/// cargo-vram writes.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram schema > report.schema.json
  cargo vram schema explanation > explanation.schema.json")]
pub(super) struct Schema {
    /// The kind of document
    #[arg(value_enum, value_name = "DOCUMENT", default_value = "report")]
    document: SchemaKind,
}

/// A kind of document for programs. The JSON of `list`, `gpus` and `doctor` has no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaKind {
    /// The report of `check`, `estimate`, `measure` and `merge`
    Report,
    /// The explanation of `explain`
    #[value(alias = "explain")]
    Explanation,
    /// The answer of `fit`
    Fit,
    /// The comparison of `diff`
    Diff,
}

impl SchemaKind {
    fn schema(self) -> schemars::Schema {
        match self {
            Self::Report => schema_for!(Report),
            Self::Explanation => schema_for!(Explanation),
            Self::Fit => schema_for!(FitAnswer),
            Self::Diff => schema_for!(ReportDiff),
        }
    }
}

impl Schema {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        terminal::show_document(&session::json(&self.document.schema())?);
        Ok(Exit::Success)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bytes::Bytes;
    use crate::fit::{FIT_VERSION, GpuFit, Probe, SearchEnd};
    use crate::report::diff::diff;
    use crate::report::sample;

    fn value(document: &impl serde::Serialize) -> Value {
        serde_json::to_value(document).unwrap()
    }

    /// Returns an answer for a model that fits with one value, does not fit with another, and cannot run with a third.
    fn fit() -> FitAnswer {
        let run = sample::run("a", "l4");
        let room = Bytes(2 << 30);
        let probe = |value| Probe::from_run(Some(value), &run, room, false);
        let too_large = Probe {
            fits: false,
            out_of_memory: true,
            ..probe(64)
        };
        let broken = Probe {
            needed: None,
            left: None,
            error: Some("it panicked".into()),
            ..probe(128)
        };
        FitAnswer {
            version: FIT_VERSION,
            tool: sample::report(Vec::new()).tool,
            commit: None,
            package: run.package.clone(),
            model: run.model.clone(),
            vary: Some("batch_size".into()),
            inputs: [("image_size".into(), 32)].into(),
            warm_only: false,
            headroom: "5%".into(),
            advised: false,
            gpus: vec![GpuFit {
                gpu: run.gpu.clone(),
                what_if: crate::protocol::WhatIf {
                    accumulate: Some(2),
                    ..Default::default()
                },
                room,
                largest: Some(32),
                too_large: Some(64),
                ended: SearchEnd::CannotBeRun,
                not_monotonic: Vec::new(),
                probes: vec![probe(32), too_large, broken],
            }],
        }
    }

    /// Returns each document, with the path of a value in it that cannot be a string.
    fn documents() -> Vec<(SchemaKind, Value, &'static str)> {
        let (small, large) = (
            crate::explain::sample::resnet_of(2, 2),
            crate::explain::sample::resnet_of(4, 5),
        );
        let report = |run: &crate::report::Run| sample::report(vec![run.clone(), sample::measured(run.clone())]);
        let mut changes = diff(&report(&small.run), &report(&large.run));
        crate::explain::add_causes(&mut changes, std::slice::from_ref(&small), std::slice::from_ref(&large));
        vec![
            (
                SchemaKind::Report,
                value(&report(&small.run)),
                "/runs/0/peaks/warm/live",
            ),
            (SchemaKind::Explanation, value(&large), "/layers/0/feature_bytes"),
            (
                SchemaKind::Explanation,
                value(&crate::explain::sample::hostile()),
                "/tensors/0/bytes",
            ),
            (SchemaKind::Fit, value(&fit()), "/gpus/0/probes/0/needed"),
            (SchemaKind::Diff, value(&changes), "/models/0/figures/0/change"),
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
