//! Growth, drift and timeout: of the file's defaults, and of a model.

use super::fields::{Fields, Reader};
use super::model::METRICS;
use super::scalar::{Bad, Percent, count, duration, percent};
use super::source::Spanned;
use super::tree::Node;
use super::types::{Defaults, Growth, GrowthLimit, Limit};

const A_GROWTH: &str = "`growth: { live: { fail: 5%, warn: 2%, ignore: 16 MiB } }`";
const A_DRIFT: &str = "`drift: { warn: 2%, fail: 5% }`";
const A_STEPS: &str = "`steps: 10`";
/// How many steps a pass may have: an optimizer's state is made in the first one, so that the second decides.
pub const STEPS: std::ops::RangeInclusive<u32> = 2..=10_000;
const A_TIMEOUT: &str = "`timeout: 10 min`";

impl Reader<'_> {
    /// The settings that are written, and the others from `otherwise`.
    pub(super) fn settings(&mut self, fields: &Fields<'_>, otherwise: &Defaults) -> Defaults {
        let growth = fields.get("growth").map(|node| self.growth(node));
        let drift = fields.get("drift").map(|node| self.drift(node));
        let timeout = fields
            .get("timeout")
            .map(|node| self.scalar(node, "`timeout`", duration, "a duration", A_TIMEOUT));
        let steps = fields
            .get("steps")
            .map(|node| self.scalar(node, "`steps`", steps, "a whole number", A_STEPS));
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
                "{number} is not a number of steps from {} to {}",
                STEPS.start(),
                STEPS.end()
            ),
            "leaks are judged from 5 steps on, and better with 10: `steps: 10`",
        )
    })
}
