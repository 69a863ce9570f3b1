//! What the rules say about the runs, and which checks were skipped.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::peaks::{Metric, Mode, Pass};
use crate::bytes::Bytes;
use crate::untrusted::{Foreign, PlainName};

/// The status of a report or a verdict, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No rule failed or warns.
    Pass,
    /// No rule failed, but at least one warns.
    Warn,
    /// Over budget, regressed, leaking, out of memory, or another rule failed.
    Fail,
    /// The run or its check could not be completed.
    Error,
}

/// The rule that a verdict applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// A limit in `budgets.yaml`, or a missing limit.
    Budget,
    /// More memory than the baseline.
    Growth,
    /// A required baseline is missing or does not match.
    Baseline,
    /// The estimate and the measurement disagree.
    Drift,
    /// The GPU ran out of memory.
    Oom,
    /// Live memory grows from step to step.
    Leak,
    /// A change loosens its own limits.
    Edit,
    /// The models are built with other Burn features than the workspace's binaries.
    Build,
}

/// The verdict of one rule about one value, or about a whole run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name, or its budget's name if that differs.
    pub model: PlainName,
    /// Whether the value is estimated or measured.
    pub mode: Mode,
    /// The GPU's id, such as `l4`.
    pub gpu: PlainName,
    /// The number of the GPU that the value is from, from 0; absent if the value is not about one of several GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_number: Option<u32>,
    /// The pass that the value is from; null if the verdict is about the whole run.
    pub pass: Option<Pass>,
    /// The kind of value; null if the verdict is about the whole run.
    pub metric: Option<Metric>,
    /// The rule that applies.
    pub rule: Rule,
    /// The limit that decided, in bytes; for drift, the allowed difference in bytes; null if the rule has no limit.
    pub limit: Option<Bytes>,
    /// The limit as `budgets.yaml` writes it, such as `300 MB`; absent if the limit is not from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_written: Option<Foreign>,
    /// The checked value in bytes; for drift, the measured value; null if there is none.
    pub actual: Option<Bytes>,
    /// The value that it is compared with, in bytes: from the baseline or, for drift, from the estimate; null if there
    /// is none.
    pub baseline: Option<Bytes>,
    /// The allowed growth behind the limit; absent for other rules and in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedGrowth>,
    /// The status of the verdict.
    pub status: Status,
    /// The verdict as a sentence for people.
    pub message: Foreign,
    /// The budget file, relative to the workspace root; null if the verdict has no place in a file.
    pub file: Option<Foreign>,
    /// The line of the limit, from 1; null if the verdict has no place in a file.
    pub line: Option<u32>,
    /// The column of the limit, from 1; null if the verdict has no place in a file.
    pub column: Option<u32>,
}

impl Verdict {
    /// Whether the value passed its growth rule and shrank by more than it is allowed to grow.
    #[must_use]
    pub fn is_improvement(&self) -> bool {
        let (Some(before), Some(after), Some(limit)) = (self.baseline, self.actual, self.limit) else {
            return false;
        };
        let has_passed = self.rule == Rule::Growth && self.status == Status::Pass;
        has_passed && before.saturating_sub(after) > limit.saturating_sub(before)
    }
}

/// The allowed growth from a baseline: the larger of the two fields decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AllowedGrowth {
    /// A part of the baseline in parts per million: 5 % is 50,000.
    pub parts_per_million: u64,
    /// A number of bytes that is allowed in any case.
    pub at_least: Bytes,
}

impl AllowedGrowth {
    /// Returns an allowed growth in words: `5 % or 16 MiB, whichever is more`. Returns only the percentage if no bytes are
    /// allowed in any case.
    pub(crate) fn in_words(percent: &str, in_any_case: Bytes, written: impl fmt::Display) -> String {
        match in_any_case {
            Bytes(0) => percent.to_owned(),
            _ => format!("{percent} or {written}, whichever is more"),
        }
    }
}

impl fmt::Display for AllowedGrowth {
    /// Writes `5 % or 16 MiB, whichever is more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.parts_per_million / 10_000, self.parts_per_million % 10_000);
        let mut percent = whole.to_string();
        if part > 0 {
            percent += &format!(".{}", format!("{part:04}").trim_end_matches('0'));
        }
        percent += " %";
        f.write_str(&Self::in_words(&percent, self.at_least, self.at_least))
    }
}

/// A check that the command skipped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The kind of check.
    pub check: SkippedCheck,
    /// The model that it would have checked, as `package/model`; null if it is about the whole command.
    pub model: Option<Foreign>,
    /// Why it was skipped.
    pub why: Foreign,
}

impl Skipped {
    /// Returns the check in words: `growth of zoo/resnet18`.
    #[must_use]
    pub fn what(&self) -> String {
        match &self.model {
            Some(model) => format!("{} of {model}", self.check.words()),
            None => self.check.words().to_owned(),
        }
    }
}

/// A kind of check that a command can skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SkippedCheck {
    /// Whether memory grows from step to step.
    Leaks,
    /// The growth since the accepted baseline.
    Growth,
    /// The growth since the base revision.
    GrowthSinceBase,
    /// The limits that changed since the base revision.
    Edits,
    /// An entry of the baseline file whose model no longer exists.
    BaselineEntry,
    /// Whether the models use the Burn features of the workspace's binaries.
    BurnFeatures,
    /// A measurement on this machine's GPU.
    Measurement,
    /// The search for the cause of growth (`--why`).
    GrowthCauses,
}

impl SkippedCheck {
    const fn words(self) -> &'static str {
        match self {
            Self::Leaks => "leaks",
            Self::Growth | Self::GrowthSinceBase => "growth",
            Self::Edits => "edits of limits",
            Self::BaselineEntry => "the baseline",
            Self::BurnFeatures => "the comparison of Burn's features with those of the workspace's binaries",
            Self::Measurement => "the measurement",
            Self::GrowthCauses => "the causes of growth",
        }
    }
}
