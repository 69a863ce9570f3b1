//! Reads the settings growth, drift, timeout and steps, of the file's defaults or of a model.

use super::fields::{FieldReader, KnownFields};
use super::model::METRICS;
use super::scalar::{Bad, Percent, count, duration, percent};
use super::source::Spanned;
use super::tree::Node;
use super::types::{Defaults, Growth, GrowthLimit, Limit};

const A_GROWTH: &str = "`growth: { live: { fail: 5%, warn: 2%, ignore: 16 MiB } }`";
const A_DRIFT: &str = "`drift: { warn: 2%, fail: 5% }`";
const A_STEPS: &str = "`steps: 10`";
/// The allowed number of steps per pass. At least 2: the optimizer creates its state in the first step, so the second
/// one decides.
pub const STEPS: std::ops::RangeInclusive<u32> = 2..=10_000;
const A_TIMEOUT: &str = "`timeout: 10 min`";

impl FieldReader<'_> {
    /// Reads the settings in `fields`, and takes the missing ones from `otherwise`.
    pub(super) fn settings(&mut self, fields: &KnownFields<'_>, otherwise: &Defaults) -> Defaults {
        let growth = fields.get("growth").map(|node| self.growth(node));
        let drift = fields.get("drift").map(|node| self.drift(node));
        let timeout = fields
            .get("timeout")
            .map(|node| self.scalar(node, "`timeout`", duration, "a duration", A_TIMEOUT));
        let steps = fields
            .get("steps")
            .map(|node| self.scalar(node, "`steps`", steps, "a whole number", A_STEPS));
        // The outer `Option` is for a missing key. A key with a mistake must not fall back to the default.
        Defaults {
            steps: steps.unwrap_or(otherwise.steps),
            growth: growth.unwrap_or_else(|| otherwise.growth.clone()),
            drift: drift.unwrap_or_else(|| otherwise.drift.clone()),
            timeout: timeout.unwrap_or(otherwise.timeout),
        }
    }

    fn growth(&mut self, node: &Node) -> Option<Growth> {
        let fields = self.fields(node, "`growth`", &METRICS, A_GROWTH)?;
        let mut limit = |metric| fields.get(metric).and_then(|node| self.growth_limit(node, metric));
        Some(Growth {
            live: limit("live"),
            reserved: limit("reserved"),
            process: limit("process"),
        })
    }

    fn growth_limit(&mut self, node: &Node, metric: &str) -> Option<GrowthLimit> {
        let what = format!("`{metric}` of `growth`");
        let fields = self.fields(node, &what, &["fail", "warn", "ignore"], A_GROWTH)?;
        // Before the limits, whose `?` would hide a mistake in `ignore`.
        let ignore = fields.get("ignore").and_then(|node| self.size(node, "`ignore`"));
        let limit = self.warn_and_fail(&fields, node.span, &what, A_GROWTH, Self::percent)?;
        Some(GrowthLimit { limit, ignore })
    }

    fn drift(&mut self, node: &Node) -> Option<Limit<Percent>> {
        let fields = self.fields(node, "`drift`", &["fail", "warn"], A_DRIFT)?;
        self.warn_and_fail(&fields, node.span, "`drift`", A_DRIFT, Self::percent)
    }

    fn percent(&mut self, node: &Node, what: &str) -> Option<Spanned<Percent>> {
        self.scalar(node, what, percent, "a percentage", "a number and `%`, such as `5%`")
    }
}

fn steps(text: &str) -> Result<u32, Bad> {
    let number = count(text)?;
    let steps = u32::try_from(number).ok().filter(|steps| STEPS.contains(steps));
    steps.ok_or_else(|| {
        Bad::new(
            "budgets::bad-steps",
            format!(
                "the number of steps must be from {} to {}, not {number}",
                STEPS.start(),
                STEPS.end()
            ),
            "write `steps: 10`: leak detection needs 5 steps, and 10 make it more reliable",
        )
    })
}
