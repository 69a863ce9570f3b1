//! The memory that a model needs for each value of an input, as an SVG picture.
//!
//! Coordinates are tenths of a pixel, computed in integers.

use std::fmt::Write;

use crate::bytes::Bytes;
use crate::fit::{FitAnswer, GpuFit, Probe};
use crate::render::html::escaped;
use crate::render::svg::{STYLE, px};
use crate::render::terminal;
use crate::untrusted::named;

const WIDTH: u64 = 9600;
const HEIGHT: u64 = 3600;
const LEFT: u64 = 900;
const RIGHT: u64 = 300;
const TOP: u64 = 900;
const BOTTOM: u64 = 500;

/// Renders one chart per GPU, one below the other.
#[must_use]
pub fn render(fit: &FitAnswer) -> String {
    let height = HEIGHT * fit.gpus.len().max(1) as u64;
    let (wide, tall) = (WIDTH / 10, height / 10);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {tall}\" width=\"{wide}\" height=\"{tall}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}.cold{{stroke:var(--muted);fill:none;stroke-dasharray:4 3}}.dot{{fill:var(--good)}}.dot.no{{fill:var(--bad)}}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        escaped(&terminal::fit::verdict(fit))
    );
    for (at, gpu) in fit.gpus.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT / 10 * at as u64);
        text.push_str(&chart(fit, gpu));
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// The ranges of values and bytes that the axes show.
struct Plot {
    values: (u64, u64),
    most: u64,
}

impl Plot {
    fn x(&self, value: u64) -> u64 {
        let (low, high) = self.values;
        // `u128`, because an input may have any value. At least 1: a single probe has no range.
        let wide = u128::from(WIDTH - LEFT - RIGHT);
        let along = u128::from(value - low) * wide / u128::from((high - low).max(1));
        LEFT + u64::try_from(along).unwrap_or(0)
    }

    fn y(&self, bytes: u64) -> u64 {
        let tall = u128::from(HEIGHT - TOP - BOTTOM);
        let up = u128::from(bytes.min(self.most)) * tall / u128::from(self.most);
        HEIGHT - BOTTOM - u64::try_from(up).unwrap_or(0)
    }

    /// Returns the points of a line through the probes with exact memory. A probe that ran out of memory shows only a
    /// lower bound, so it is not on the line.
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

fn chart(fit: &FitAnswer, gpu: &GpuFit) -> String {
    let total = gpu.gpu.total_bytes.0.max(1);
    // Leave out probes far beyond what fits: they would compress the rest of the chart.
    let last = gpu.too_large.map_or(u64::MAX, |value| value.saturating_add(value / 4));
    let near = |probe: &&Probe| {
        let is_near = probe.value.is_some_and(|value| value <= last);
        is_near && probe.needed.is_some_and(|needed| needed.0 <= total / 2 * 3)
    };
    let probes: Vec<&Probe> = gpu.probes.iter().filter(near).collect();
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
        // A twentieth of room above the highest value. Never 0, because heights are divided by it.
        most: most.unwrap_or(0).max(total) / 20 * 21 + 1,
    };
    let input = named(fit.vary.as_deref().unwrap_or_default());
    let mut text = format!(
        "<text class=\"title\" x=\"{}\" y=\"34\">{}</text><text class=\"muted\" x=\"{}\" y=\"56\">{}</text>\n",
        px(LEFT),
        escaped(&named(&titled(fit, gpu))),
        px(LEFT),
        escaped(&terminal::fit::one(gpu, &input)),
    );
    let (left, right, bottom) = (px(LEFT), px(WIDTH - RIGHT), HEIGHT - BOTTOM);
    for (bytes, label, class) in [
        (gpu.gpu.total_bytes, "GPU memory", "over limit"),
        (gpu.room, "GPU memory without headroom", "within limit"),
    ] {
        // Without headroom, both lines would be one, with two labels on each other.
        if class == "within limit" && gpu.room == gpu.gpu.total_bytes {
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
    // Both passes are drawn: a cold pass takes whatever memory there is, so its line can have another shape.
    // See docs/design/fit.md.
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
            escaped(&terminal::fit::outcome(probe))
        );
    }
    let ends = [Some(plot.values.0), gpu.largest, Some(plot.values.1)];
    for value in ends.into_iter().flatten() {
        let _ = writeln!(
            text,
            "<text class=\"mid muted\" x=\"{}\" y=\"{}\">{value}</text>",
            // The answer itself may be among the probes that were left out.
            px(plot.x(value.clamp(plot.values.0, plot.values.1))),
            px(bottom + 170)
        );
    }
    let _ = writeln!(
        text,
        "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text><text class=\"muted\" x=\"{left}\" y=\"80\">process peak: warm pass (line), cold pass (dashes)</text>",
        px((LEFT + WIDTH - RIGHT) / 2),
        px(bottom + 360),
        escaped(&input)
    );
    text
}

/// Returns the title of a chart: the model, the what-if and the GPU.
fn titled(fit: &FitAnswer, gpu: &GpuFit) -> String {
    let model = gpu.what_if.of(&format!("{}/{}", fit.package, fit.model));
    format!("{model} on {}", gpu.gpu.name)
}
