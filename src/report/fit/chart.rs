//! What is needed by value, as a picture that stands by itself.
//!
//! Coordinates are tenths of a pixel, computed in integers.

use std::fmt::Write;

use crate::bytes::Bytes;
use crate::fit::{CardFit, Fit, Probe};
use crate::report::html::escaped;
use crate::report::human::text::named;
use crate::report::svg::{STYLE, px};

const WIDTH: u64 = 9600;
const HEIGHT: u64 = 3600;
const LEFT: u64 = 900;
const RIGHT: u64 = 300;
const TOP: u64 = 900;
const BOTTOM: u64 = 500;

/// Draws a chart a card, one below the other.
#[must_use]
pub fn svg(fit: &Fit) -> String {
    let height = HEIGHT * fit.cards.len().max(1) as u64;
    let (wide, tall) = (WIDTH / 10, height / 10);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {tall}\" width=\"{wide}\" height=\"{tall}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}.cold{{stroke:var(--muted);fill:none;stroke-dasharray:4 3}}.dot{{fill:var(--good)}}.dot.no{{fill:var(--bad)}}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        escaped(&super::verdict(fit))
    );
    for (at, card) in fit.cards.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT / 10 * at as u64);
        text.push_str(&chart(fit, card));
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// Where values and bytes lie.
struct Plot {
    values: (u64, u64),
    most: u64,
}

impl Plot {
    fn x(&self, value: u64) -> u64 {
        let (low, high) = self.values;
        let wide = u128::from(WIDTH - LEFT - RIGHT);
        let along = u128::from(value - low) * wide / u128::from((high - low).max(1));
        LEFT + u64::try_from(along).unwrap_or(0)
    }

    fn y(&self, bytes: u64) -> u64 {
        let tall = u128::from(HEIGHT - TOP - BOTTOM);
        let up = u128::from(bytes.min(self.most)) * tall / u128::from(self.most);
        HEIGHT - BOTTOM - u64::try_from(up).unwrap_or(0)
    }

    /// Through what was held to the end: a pass that ran out tells no more than that.
    fn line(&self, probes: &[&Probe], of: impl Fn(&Probe) -> Option<Bytes>) -> String {
        let points: Vec<_> = probes
            .iter()
            .filter(|probe| !probe.at_least)
            .filter_map(|probe| Some((probe.value?, of(probe)?)))
            .map(|(value, bytes)| format!("{} {}", px(self.x(value)), px(self.y(bytes.0))))
            .collect();
        points.join("L")
    }
}

fn chart(fit: &Fit, card: &CardFit) -> String {
    let total = card.gpu.total_bytes.0.max(1);
    // Far beyond what fits there is nothing to see.
    let last = card.too_large.map_or(u64::MAX, |value| value.saturating_add(value / 4));
    let near = |probe: &&Probe| {
        let is_near = probe.value.is_some_and(|value| value <= last);
        is_near && probe.needed.is_some_and(|needed| needed.0 <= total / 2 * 3)
    };
    let probes: Vec<&Probe> = card.probes.iter().filter(near).collect();
    let values: Vec<u64> = probes.iter().filter_map(|probe| probe.value).collect();
    let most = probes
        .iter()
        .filter_map(|probe| probe.needed)
        .map(|needed| needed.0)
        .max();
    let plot = Plot {
        values: (
            values.iter().copied().min().unwrap_or(0),
            values.iter().copied().max().unwrap_or(1),
        ),
        most: most.unwrap_or(0).max(total) / 20 * 21 + 1,
    };
    let input = named(fit.vary.as_deref().unwrap_or_default());
    let mut text = format!(
        "<text class=\"title\" x=\"{}\" y=\"34\">{}</text><text class=\"muted\" x=\"{}\" y=\"56\">{}</text>\n",
        px(LEFT),
        escaped(&named(&titled(fit, card))),
        px(LEFT),
        escaped(&super::one(card, &input)),
    );
    let (left, right, bottom) = (px(LEFT), px(WIDTH - RIGHT), HEIGHT - BOTTOM);
    for (bytes, label, class) in [
        (card.gpu.total_bytes, "the card's memory", "over limit"),
        (card.room, "what may be used", "within limit"),
    ] {
        if class == "within limit" && card.room == card.gpu.total_bytes {
            continue;
        }
        let y = px(plot.y(bytes.0));
        let _ = writeln!(
            text,
            "<path class=\"{class}\" d=\"M{left} {y}H{right}\"/><text class=\"end halo\" x=\"{right}\" y=\"{y}\" dy=\"-4\">{label}: {bytes}</text>"
        );
    }
    for part in 0..4 {
        let bytes = Bytes(total / 4 * part);
        let y = px(plot.y(bytes.0));
        let _ = writeln!(
            text,
            "<path class=\"grid\" d=\"M{left} {y}H{right}\"/><text class=\"end muted\" x=\"{}\" y=\"{y}\" dy=\"4\">{bytes}</text>",
            px(LEFT - 80)
        );
    }
    let warm = plot.line(&probes, |probe| probe.peaks.warm.process);
    let cold = plot.line(&probes, |probe| probe.peaks.cold.process);
    if !cold.is_empty() {
        let _ = writeln!(text, "<path class=\"cold\" d=\"M{cold}\"/>");
    }
    if !warm.is_empty() {
        let _ = writeln!(text, "<path class=\"reserved\" d=\"M{warm}\"/>");
    }
    for probe in &probes {
        let (Some(value), Some(needed)) = (probe.value, probe.needed) else {
            continue;
        };
        let class = if probe.fits { "dot" } else { "dot no" };
        let _ = writeln!(
            text,
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"3.2\"><title>{input} {value}: {needed}, {}</title></circle>",
            px(plot.x(value)),
            px(plot.y(needed.0)),
            escaped(&super::outcome(probe))
        );
    }
    let ends = [Some(plot.values.0), card.largest, Some(plot.values.1)];
    for value in ends.into_iter().flatten() {
        let _ = writeln!(
            text,
            "<text class=\"mid muted\" x=\"{}\" y=\"{}\">{value}</text>",
            px(plot.x(value.clamp(plot.values.0, plot.values.1))),
            px(bottom + 170)
        );
    }
    let _ = writeln!(
        text,
        "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text><text class=\"muted\" x=\"{left}\" y=\"80\">peak of a process: warm (line), cold (dashes)</text>",
        px((LEFT + WIDTH - RIGHT) / 2),
        px(bottom + 360),
        escaped(&input)
    );
    text
}

/// The model, what is otherwise, and the card.
fn titled(fit: &Fit, card: &CardFit) -> String {
    let model = card.what_if.of(&format!("{}/{}", fit.package, fit.model));
    format!("{model} on {}", card.gpu.name)
}
