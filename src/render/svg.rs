//! The timeline of an explanation as an SVG picture for READMEs and CI summaries.
//!
//! Coordinates are tenths of a pixel, computed in integers.

pub mod fit;

use std::fmt::Write;

use super::html::escaped;
use super::palette;
use super::picture::{DrawnLimit, ShownExplanation, out_of_memory, place, reserved, spans, thinned};
use crate::bytes::Bytes;
use crate::explain::{Category, Explanation};
use crate::report::words::mode_name;
use crate::report::{Metric, Phase};
use crate::untrusted::named;

const WIDTH: u64 = 9600;
const HEIGHT: u64 = 4300;
const LEFT: u64 = 780;
const RIGHT: u64 = 140;
const TOP: u64 = 1000;
const BOTTOM: u64 = 620;
const STRIP: u64 = 180;
/// The most moments that are drawn in full. With more, the picture has the lowest and the highest of each group.
const MOST_POINTS: usize = 700;
/// The approximate width of a letter of a label, in tenths of a pixel.
const LETTER: u64 = 64;

pub(super) const STYLE: &str = "\
svg{font:11px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;--paper:#fff;--text:#1c2128;--muted:#5b6470;--grid:#e6e9ed;--bad:#b42318;--good:#0a6e4e}\
@media(prefers-color-scheme:dark){svg{--paper:#161b22;--text:#e6e9ee;--muted:#98a2b0;--grid:#262d37;--bad:#ff8a7a;--good:#4fd1a1}}\
.paper{fill:var(--paper)}.grid{stroke:var(--grid)}text{fill:var(--text)}.muted{fill:var(--muted)}.title{font-size:16px;font-weight:600}\
.reserved{fill:none;stroke:var(--text);stroke-width:1.4}.hatch{fill:url(#hatch)}.hatch-line{stroke:var(--muted);stroke-width:.9;opacity:.7}\
.peak{fill:var(--text)}.bold{font-weight:600}.bad{fill:var(--bad);font-weight:600}.over{stroke:var(--bad)}.within{stroke:var(--good)}.limit{stroke-width:1.4;stroke-dasharray:7 4}\
.halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px}.mid{text-anchor:middle}.end{text-anchor:end}.bad-text{fill:var(--bad)}.good-text{fill:var(--good)}";

/// Renders the timelines, one below the other. Every explanation must have passed
/// [`Explanation::check`](crate::explain::Explanation::check).
#[must_use]
pub fn svg(shown: &[ShownExplanation<'_>]) -> String {
    let height = HEIGHT * shown.len().max(1) as u64;
    let (wide, tall) = (WIDTH / 10, height / 10);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {tall}\" width=\"{wide}\" height=\"{tall}\" role=\"img\">\n\
         <title>{}</title>\n\
         <style>{STYLE}</style>\n\
         <defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path class=\"hatch-line\" d=\"M0 0V6\"/></pattern></defs>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        escaped(
            &shown
                .iter()
                .map(|shown| summary(shown.explanation))
                .collect::<Vec<_>>()
                .join("; ")
        )
    );
    for (at, shown) in shown.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT / 10 * at as u64);
        text.push_str(&Drawing::new(*shown).draw());
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn summary(explanation: &Explanation) -> String {
    let run = &explanation.run;
    let name = run.name();
    let peak = &explanation.peak;
    format!(
        "{} on {}: peak {} ({} B) live, {} reserved",
        named(name),
        run.gpu.name,
        peak.live,
        peak.live.0,
        reserved(explanation)
    )
}

/// Formats tenths of a pixel as pixels.
pub(super) fn px(tenths: u64) -> String {
    if tenths.is_multiple_of(10) {
        return (tenths / 10).to_string();
    }
    format!("{}.{}", tenths / 10, tenths % 10)
}

struct Drawing<'a> {
    explanation: &'a Explanation,
    name: Option<&'a str>,
    limits: Vec<(DrawnLimit, u64)>,
    points: Vec<u32>,
    /// The bytes at the top of the plot.
    top: u64,
    text: String,
}

impl<'a> Drawing<'a> {
    fn new(shown: ShownExplanation<'a>) -> Self {
        let explanation = shown.explanation;
        let peak = &explanation.peak;
        // The picture has no line for process memory. So a limit of it is drawn lower, by what the process
        // holds beside its reserved memory, and can be compared with the reserved line.
        let outside = peak.process.0.saturating_sub(peak.reserved.0);
        let limits: Vec<_> = shown
            .limits
            .iter()
            .map(|limit| {
                let above = if limit.metric == Metric::Process { outside } else { 0 };
                (limit.clone(), limit.bytes.0.saturating_sub(above))
            })
            .collect();
        let held = explanation
            .timeline
            .reserved
            .iter()
            .map(|bytes| bytes.0)
            .max()
            .unwrap_or(0);
        // At least 1, because heights are divided by the top, and a
        // run may have died before its first launch.
        let held = held.max(peak.live.0).max(1);
        // A limit far above would flatten everything else. It gets a text with an arrow instead of a line.
        let near = limits.iter().map(|(_, at)| *at).filter(|at| *at < held / 5 * 8).max();
        let top = near.unwrap_or(0).max(held);
        Self {
            explanation,
            name: shown.name,
            limits,
            points: thinned(explanation, MOST_POINTS),
            top: top + top / 16,
            text: String::new(),
        }
    }

    fn x(&self, sample: u64) -> u64 {
        let samples = (self.explanation.timeline.live.len() as u64).max(1);
        LEFT + (WIDTH - LEFT - RIGHT) * sample.min(samples) / samples
    }

    fn y(&self, bytes: u64) -> u64 {
        let high = u128::from(HEIGHT - TOP - BOTTOM);
        // Cut at the top: a value above would be drawn into the strips.
        let up = high * u128::from(bytes.min(self.top)) / u128::from(self.top);
        HEIGHT - BOTTOM - up as u64
    }

    fn put(&mut self, x: u64, y: u64, class: &str, text: &str) {
        let (x, y, text) = (px(x), px(y), escaped(text));
        let _ = writeln!(self.text, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{text}</text>");
    }

    fn draw(mut self) -> String {
        self.head();
        self.strips();
        self.axes();
        if self.points.is_empty() {
            self.put(WIDTH / 2, HEIGHT / 2, "muted mid", "no launch was observed");
        } else {
            self.stack();
            self.limits();
            self.peak();
        }
        self.legend();
        self.text
    }

    fn head(&mut self) {
        let run = &self.explanation.run;
        let name = named(run.name());
        let title = self
            .name
            .map_or_else(|| name.clone(), |more| format!("{name} · {}", named(more)));
        self.put(200, 280, "title", &title);
        let peak = &self.explanation.peak;
        let inputs: String = run
            .inputs
            .iter()
            .map(|(name, value)| format!(" · {name} {value}"))
            .collect();
        let how = mode_name(run.mode);
        let line = format!(
            "{how} on {} ({}){} · peak {} ({} B) live · {} reserved · {} process",
            run.gpu.name,
            run.gpu.total_bytes,
            named(&inputs),
            peak.live,
            peak.live.0,
            reserved(self.explanation),
            run.peaks.warm.process.unwrap_or(peak.process),
        );
        self.put(200, 460, "muted", &line);
        let died = out_of_memory(self.explanation).map(|oom| format!("out of memory {oom}"));
        // An out of memory also makes the run incomplete, but says more about it.
        let wrong = died.or_else(|| {
            let partial = self.explanation.partial.as_ref()?;
            Some(format!("incomplete run: {partial}"))
        });
        if let Some(wrong) = wrong {
            self.put(
                WIDTH - RIGHT,
                280,
                "bad end",
                // SVG does not wrap text: a longer one would run over the title.
                &named(&wrong).chars().take(90).collect::<String>(),
            );
        }
    }

    fn strips(&mut self) {
        let spans = spans(&self.explanation.timeline);
        for span in &spans {
            let swatch = palette::phase(span.phase);
            let (left, right) = (self.x(span.from as u64), self.x(span.to as u64));
            self.band(left, right, TOP - STRIP - 20, swatch.color, 34, swatch.label);
            let _ = writeln!(
                self.text,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" opacity=\".1\"/>",
                px(left),
                px(TOP),
                px(right - left),
                px(HEIGHT - TOP - BOTTOM),
                swatch.color
            );
        }
        for phases in spans.chunk_by(|one, next| one.step == next.step) {
            let [first, ..] = phases else { continue };
            let end = phases[phases.len() - 1].to;
            let label = first
                .step
                .map_or_else(|| "before".to_owned(), |step| format!("step {step}"));
            let (left, right) = (self.x(first.from as u64), self.x(end as u64));
            let color = palette::phase(Phase::Context).color;
            self.band(left, right, TOP - 2 * STRIP - 20, color, 28, &label);
        }
    }

    fn band(&mut self, left: u64, right: u64, y: u64, color: &str, opacity: u32, label: &str) {
        if right <= left {
            return;
        }
        // A phase of few samples stays visible, however long the run is.
        let wide = (right - left).saturating_sub(10).max(5);
        let _ = writeln!(
            self.text,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{color}\" opacity=\".{opacity}\"/>",
            px(left),
            px(y),
            px(wide),
            px(STRIP - 20)
        );
        // No renderer tells how wide a text is, so the width is estimated. A label without room is left out.
        if label.chars().count() as u64 * LETTER + 60 < right - left {
            self.put(left.midpoint(right), y + 120, "mid", label);
        }
    }

    fn axes(&mut self) {
        // Powers of two, so that labels are round in KiB, MiB and GiB.
        let mut step = 1_u64;
        while self.top / step > 6 {
            step *= 2;
        }
        for tick in 0..=self.top / step {
            let bytes = tick * step;
            let y = self.y(bytes);
            let _ = writeln!(
                self.text,
                "<path class=\"grid\" d=\"M{} {}H{}\"/>",
                px(LEFT),
                px(y),
                px(WIDTH - RIGHT)
            );
            let label = if bytes == 0 {
                "0".to_owned()
            } else {
                Bytes(bytes).to_string()
            };
            self.put(LEFT - 80, y + 40, "muted end", &label);
        }
        let samples = self.explanation.timeline.live.len();
        self.put(
            WIDTH - RIGHT,
            HEIGHT - BOTTOM + 170,
            "muted end",
            &format!("{samples} samples, one before and one after each launch"),
        );
    }

    /// Returns the path of a stepped line across the plot.
    fn steps(&self, height: impl Fn(usize) -> u64) -> String {
        let mut path = String::new();
        let mut before = None;
        for sample in &self.points {
            let (x, y) = (self.x(u64::from(*sample)), self.y(height(*sample as usize)));
            match before {
                None => {
                    let _ = write!(path, "M{} {}", px(x), px(y));
                }
                // Points of equal height add nothing. So a long run is a small picture: a test allows 300 kB.
                Some(before) if before != y => {
                    let _ = write!(path, "H{}V{}", px(x), px(y));
                }
                Some(_) => {}
            }
            before = Some(y);
        }
        let _ = write!(path, "H{}", px(WIDTH - RIGHT));
        path
    }

    /// Draws each category from its top down to the bottom, the highest first. The next category covers the part below
    /// it.
    fn stack(&mut self) {
        let timeline = &self.explanation.timeline;
        let series: Vec<_> = Category::STACK
            .into_iter()
            .filter(|category| timeline.holds(*category))
            .map(|category| (category, timeline.of(category)))
            .collect();
        let close = format!("V{}H{}Z", px(self.y(0)), px(self.x(0)));
        let reserved = self.steps(|sample| timeline.reserved[sample].0);
        // The hatch is transparent, so paper below it hides the grid and the tint of the phases.
        let _ = writeln!(self.text, "<path class=\"paper\" d=\"{reserved}{close}\"/>");
        let _ = writeln!(self.text, "<path class=\"hatch\" d=\"{reserved}{close}\"/>");
        for top in (0..series.len()).rev() {
            let line = self.steps(|sample| series[..=top].iter().map(|(_, bytes)| bytes[sample].0).sum());
            let color = palette::category(series[top].0).color;
            let _ = writeln!(self.text, "<path fill=\"{color}\" d=\"{line}{close}\"/>");
        }
        let _ = writeln!(self.text, "<path class=\"reserved\" d=\"{reserved}\"/>");
    }

    fn limits(&mut self) {
        let peak = &self.explanation.peak;
        for (limit, at) in std::mem::take(&mut self.limits) {
            let actual = match limit.metric {
                Metric::Live => peak.live,
                Metric::Reserved => reserved(self.explanation),
                Metric::Process => self.explanation.run.peaks.warm.process.unwrap_or(peak.process),
            };
            let (line, class) = if actual > limit.bytes {
                ("over", "bad-text")
            } else {
                ("within", "good-text")
            };
            let metric = limit.metric.name();
            let exceeded = if line == "over" { " · exceeded" } else { "" };
            let label = format!("{metric} limit {} · {}{exceeded}", limit.bytes, named(&limit.label));
            if at > self.top {
                self.put(LEFT + 80, TOP + 120, &format!("{class} halo"), &format!("↑ {label}"));
                continue;
            }
            let y = self.y(at);
            let (left, right) = (px(LEFT), px(WIDTH - RIGHT));
            let _ = writeln!(
                self.text,
                "<path class=\"limit {line}\" d=\"M{left} {}H{right}\"/>",
                px(y)
            );
            self.put(LEFT + 80, y.max(TOP + 140) - 40, &format!("{class} halo"), &label);
        }
    }

    fn peak(&mut self) {
        let peak = &self.explanation.peak;
        let (x, y) = (self.x(u64::from(peak.sample)), self.y(peak.live.0));
        let (left, right, up) = (px(x - 45), px(x + 45), px(y - 90));
        let _ = writeln!(
            self.text,
            "<path class=\"peak\" d=\"M{} {}L{left} {up}H{right}Z\"/>",
            px(x),
            px(y - 10)
        );
        let label = format!("peak {} · {}", peak.live, place(peak.step, peak.phase));
        let half = label.chars().count() as u64 * LETTER / 2;
        // The label stays within the picture even if the peak is at an edge. The mark stays at the peak.
        let x = x.clamp(LEFT + half, WIDTH - RIGHT - half);
        self.put(x, y.max(TOP + 230) - 130, "bold mid halo", &label);
    }

    fn legend(&mut self) {
        let used = |category: &Category| self.explanation.timeline.holds(*category);
        let used: Vec<_> = Category::STACK
            .into_iter()
            .filter(used)
            .map(palette::category)
            .collect();
        let (mut x, mut y) = (LEFT, HEIGHT - BOTTOM + 340);
        let own = used.iter().map(|swatch| (swatch.label, Some(swatch.color)));
        for (label, color) in own.chain([("reserved, not live", None)]) {
            let wide = 290 + label.len() as u64 * 58;
            if x + wide > WIDTH - RIGHT {
                (x, y) = (LEFT, y + 170);
            }
            let fill = color.map_or_else(
                || "class=\"hatch\"".to_owned(),
                |color| format!("rx=\"2\" fill=\"{color}\""),
            );
            let _ = writeln!(
                self.text,
                "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" {fill}/>",
                px(x),
                px(y - 90)
            );
            self.put(x + 150, y, "muted", label);
            x += wide;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::sample;

    #[test]
    fn the_picture_tells_the_peak_to_the_byte_and_its_limits() {
        let explanation = sample::resnet(3, 4);
        let limits = crate::render::picture::limits(&explanation);
        let text = svg(&[ShownExplanation {
            name: Some("before"),
            explanation: &explanation,
            limits: &limits,
        }]);
        assert!(
            text.contains(&format!("({} B) live", explanation.peak.live.0)),
            "{text}"
        );
        assert!(text.contains("class=\"limit over\"") && text.contains("class=\"limit within\""));
        assert!(text.contains(">step 2<") && text.contains(">backward<"));
    }

    #[test]
    fn any_name_is_a_text_in_it() {
        let text = svg(&[ShownExplanation::new(&sample::hostile())]);
        assert!(!text.contains("<img") && !text.contains("</script"));
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
        assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
    }

    #[test]
    fn a_long_run_is_a_small_picture() {
        let text = svg(&[ShownExplanation::new(&sample::large())]);
        assert!(text.len() < 300_000, "{}", text.len());
    }
}
