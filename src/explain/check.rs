//! Whether an explanation that was read from a file holds together: whoever draws it may index without looking.

use miette::Diagnostic;
use thiserror::Error;

use super::{Category, EXPLANATION_VERSION, Explanation, Moment, Timeline};
use crate::bytes::Bytes;

/// More bytes than any card has, 1 PiB. Below it, sums of a timeline's figures neither overflow nor lose a byte in
/// JavaScript, whose numbers are exact to 2^53.
pub const MOST_BYTES: Bytes = Bytes(1 << 50);

/// Why an explanation cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Unsound {
    /// Another version of the format.
    #[error("this is version {found} of the format; this program knows version {EXPLANATION_VERSION}")]
    #[diagnostic(
        code(explain::version),
        help("use the version of cargo-vram that explained the model, or explain it anew")
    )]
    Version {
        /// The file's.
        found: u32,
    },
    /// Parts that do not fit each other.
    #[error("{part}: {what}")]
    #[diagnostic(
        code(explain::unsound),
        help("`cargo vram explain --message-format json` writes no such thing: explain the model anew")
    )]
    Part {
        /// Where, as in the file: `tensors[3].shares`.
        part: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Explanation {
    /// Whether all columns are of one length, all indices lead somewhere, and the categories add up.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Unsound> {
        if self.version != EXPLANATION_VERSION {
            return Err(Unsound::Version { found: self.version });
        }
        self.timeline.check()?;
        self.check_tensors()?;
        self.check_peak()?;
        self.check_figures()?;
        for (at, line) in self.lines.iter().enumerate() {
            self.indices(&line.came, || format!("lines[{at}].came"))?;
            self.indices(&line.went, || format!("lines[{at}].went"))?;
        }
        if let Some(leak) = self.leak.found() {
            self.indices(&leak.tensors, || "leak.tensors".to_owned())?;
        }
        Ok(())
    }

    fn check_tensors(&self) -> Result<(), Unsound> {
        let samples = self.timeline.live.len();
        for (at, tensor) in self.tensors.iter().enumerate() {
            let part = |name: &str| format!("tensors[{at}].{name}");
            figure(tensor.bytes, || part("bytes"))?;
            figure(tensor.logical, || part("logical"))?;
            if tensor.born as usize > samples {
                return Err(wrong(part("born"), beyond(tensor.born, samples, "samples")));
            }
            if tensor.died.is_some_and(|died| died < tensor.born) {
                return Err(wrong(part("died"), "it is gone before it is there".to_owned()));
            }
            if let Some(died) = tensor.died.filter(|died| *died as usize > samples) {
                return Err(wrong(part("died"), beyond(died, samples, "samples")));
            }
            if let Some(shares) = tensor.shares {
                self.indices(&[shares], || part("shares"))?;
            }
        }
        Ok(())
    }

    fn check_peak(&self) -> Result<(), Unsound> {
        let Moment {
            sample,
            live,
            reserved,
            process,
            categories,
            tensors,
            ..
        } = &self.peak;
        for (name, bytes) in [("live", live), ("reserved", reserved), ("process", process)] {
            figure(*bytes, || format!("peak.{name}"))?;
        }
        let samples = self.timeline.live.len();
        let at_peak = self.timeline.live.get(*sample as usize);
        if at_peak.is_none() && samples > 0 {
            return Err(wrong("peak.sample".to_owned(), beyond(*sample, samples, "samples")));
        }
        if let Some(there) = at_peak.filter(|there| *there != live) {
            return Err(wrong(
                "peak.live".to_owned(),
                format!("it is {}, and the timeline has {} there", live.0, there.0),
            ));
        }
        self.indices(tensors, || "peak.tensors".to_owned())?;
        let mut sum = 0;
        for (at, category) in categories.iter().enumerate() {
            figure(category.bytes, || format!("peak.categories[{at}]"))?;
            if categories[..at]
                .iter()
                .any(|before| before.category == category.category)
            {
                return Err(twice(format!("peak.categories[{at}]"), category.category));
            }
            if category.category.is_live() {
                sum += category.bytes.0;
            }
        }
        if sum != live.0 {
            return Err(wrong(
                "peak.categories".to_owned(),
                format!("they add up to {sum}, and live is {}", live.0),
            ));
        }
        Ok(())
    }

    /// Figures that nothing is looked up with, and that are added up or shown.
    fn check_figures(&self) -> Result<(), Unsound> {
        let totals = &self.totals;
        let all = [
            Bytes(totals.parameters),
            totals.parameter_bytes,
            totals.feature_bytes,
            totals.input_bytes,
            totals.forward_backward_bytes,
            totals.total_bytes,
        ];
        for bytes in all {
            figure(bytes, || "totals".to_owned())?;
        }
        for (at, layer) in self.layers.iter().enumerate() {
            for bytes in [Bytes(layer.parameters), layer.parameter_bytes, layer.feature_bytes] {
                figure(bytes, || format!("layers[{at}]"))?;
            }
        }
        for (at, row) in self.phases.iter().enumerate() {
            let held = [
                row.live_end,
                row.live_peak,
                Some(row.reserved_end),
                Some(row.reserved_peak),
            ];
            for bytes in held.into_iter().flatten() {
                figure(bytes, || format!("phases[{at}]"))?;
            }
            for change in [row.live_change.unwrap_or(0), row.reserved_change] {
                figure(Bytes(change.unsigned_abs()), || format!("phases[{at}]"))?;
            }
        }
        for (at, line) in self.lines.iter().enumerate() {
            for bytes in [line.live, Bytes(line.change.unsigned_abs())] {
                figure(bytes, || format!("lines[{at}]"))?;
            }
        }
        for bytes in self.leak.found().into_iter().flat_map(|leak| {
            leak.growing
                .steps
                .iter()
                .chain([&leak.growing.per_step, &leak.growing.left])
        }) {
            figure(*bytes, || "leak".to_owned())?;
        }
        for peak in [&self.run.peaks.warm, &self.run.peaks.cold] {
            for bytes in [peak.live, peak.reserved, peak.process].into_iter().flatten() {
                figure(bytes, || "run.peaks".to_owned())?;
            }
        }
        for saving in &self.savings {
            let changes = [saving.saved_live, saving.saved_reserved]
                .map(|change| change.map(|change| Bytes(change.unsigned_abs())));
            for bytes in [saving.live, saving.reserved].into_iter().chain(changes).flatten() {
                figure(bytes, || "savings".to_owned())?;
            }
        }
        let gpu = &self.run.gpu;
        for bytes in [gpu.total_bytes, gpu.available_bytes] {
            figure(bytes, || "run.gpu".to_owned())?;
        }
        Ok(())
    }

    fn indices(&self, tensors: &[u32], part: impl Fn() -> String) -> Result<(), Unsound> {
        match tensors.iter().find(|tensor| **tensor as usize >= self.tensors.len()) {
            Some(tensor) => Err(wrong(part(), beyond(*tensor, self.tensors.len(), "tensors"))),
            None => Ok(()),
        }
    }
}

impl Timeline {
    fn check(&self) -> Result<(), Unsound> {
        let samples = self.live.len();
        if u32::try_from(samples).is_err() {
            return Err(wrong("timeline".to_owned(), format!("{samples} samples are too many")));
        }
        let column = |name: &str, length: usize| {
            if length == samples {
                return Ok(());
            }
            Err(wrong(
                format!("timeline.{name}"),
                format!("it has {length} entries, and there are {samples} samples"),
            ))
        };
        column("reserved", self.reserved.len())?;
        column("kernel", self.kernel.len())?;
        for (at, series) in self.categories.iter().enumerate() {
            let part = format!("categories[{at}].bytes");
            column(&part, series.bytes.len())?;
            if !series.category.is_live() {
                let what = format!("{:?} is no part of live", series.category);
                return Err(wrong(format!("timeline.categories[{at}]"), what));
            }
            if self.categories[..at]
                .iter()
                .any(|before| before.category == series.category)
            {
                return Err(twice(format!("timeline.categories[{at}]"), series.category));
            }
        }
        for sample in 0..samples {
            figure(self.live[sample], || format!("timeline.live[{sample}]"))?;
            figure(self.reserved[sample], || format!("timeline.reserved[{sample}]"))?;
            let kernel = self.kernel[sample];
            if kernel as usize >= self.kernels.len() {
                let what = beyond(kernel, self.kernels.len(), "kernels");
                return Err(wrong(format!("timeline.kernel[{sample}]"), what));
            }
            let mut sum = 0;
            for series in &self.categories {
                figure(series.bytes[sample], || format!("timeline.categories, sample {sample}"))?;
                sum += series.bytes[sample].0;
            }
            if sum != self.live[sample].0 {
                return Err(wrong(
                    "timeline.categories".to_owned(),
                    format!(
                        "at sample {sample} they add up to {sum}, and live is {}",
                        self.live[sample].0
                    ),
                ));
            }
        }
        self.check_borders()
    }

    fn check_borders(&self) -> Result<(), Unsound> {
        for (at, border) in self.borders.iter().enumerate() {
            let part = || format!("timeline.borders[{at}]");
            // A phase may begin after the last launch: nothing was launched in it.
            if border.sample as usize > self.live.len() {
                return Err(wrong(part(), beyond(border.sample, self.live.len(), "samples")));
            }
            if at > 0 && self.borders[at - 1].sample > border.sample {
                return Err(wrong(part(), "it is before the one before it".to_owned()));
            }
        }
        Ok(())
    }
}

fn figure(bytes: Bytes, part: impl Fn() -> String) -> Result<(), Unsound> {
    if bytes > MOST_BYTES {
        return Err(wrong(part(), format!("{} is more than any card has", bytes.0)));
    }
    Ok(())
}

fn beyond(index: u32, length: usize, of: &str) -> String {
    format!("it leads to {index}, and there are {length} {of}")
}

fn twice(part: String, category: Category) -> Unsound {
    wrong(part, format!("{category:?} is there twice"))
}

fn wrong(part: String, what: String) -> Unsound {
    Unsound::Part { part, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Line, sample};

    type Breaks = fn(&mut Explanation);

    /// What is broken, and where that is found.
    const BROKEN: [(&str, Breaks); 20] = [
        ("timeline.reserved", |it| _ = it.timeline.reserved.pop()),
        ("timeline.kernel", |it| _ = it.timeline.kernel.pop()),
        ("timeline.kernel[3]", |it| it.timeline.kernel[3] = u32::MAX),
        ("timeline.categories[1].bytes", |it| {
            _ = it.timeline.categories[1].bytes.pop()
        }),
        ("timeline.categories", |it| {
            it.timeline.categories[1].bytes[7] += Bytes(1)
        }),
        ("timeline.categories[2]", |it| {
            it.timeline.categories[2].category = Category::Parameter
        }),
        ("timeline.categories[0]", |it| {
            it.timeline.categories[0].category = Category::Context
        }),
        ("timeline.live[5]", |it| it.timeline.live[5] = Bytes(u64::MAX)),
        ("timeline.borders[1]", |it| {
            it.timeline.borders[0].sample = it.timeline.borders[1].sample + 1
        }),
        ("timeline.borders[0]", |it| it.timeline.borders[0].sample = u32::MAX),
        ("tensors[4].bytes", |it| it.tensors[4].bytes = Bytes(u64::MAX)),
        ("tensors[4].born", |it| it.tensors[4].born = u32::MAX),
        ("tensors[4].died", |it| it.tensors[4].died = Some(0)),
        ("tensors[4].shares", |it| it.tensors[4].shares = Some(u32::MAX)),
        ("peak.sample", |it| it.peak.sample = u32::MAX),
        ("peak.live", |it| it.peak.live += Bytes(1)),
        ("peak.tensors", |it| it.peak.tensors.push(u32::MAX)),
        ("peak.categories", |it| it.peak.categories[0].bytes += Bytes(1)),
        ("lines[0].came", |it| it.lines[0].came = vec![u32::MAX]),
        ("lines[0]", |it| {
            it.lines[0] = Line {
                change: i64::MIN,
                ..it.lines[0].clone()
            }
        }),
    ];

    #[test]
    fn what_the_samples_say_holds_together() {
        for explanation in [sample::resnet(3, 2), sample::hostile()] {
            assert_eq!(explanation.check(), Ok(()));
        }
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_where_it_is() {
        let sound = sample::resnet(3, 0);
        for (expected, breaks) in BROKEN {
            let mut broken = sound.clone();
            breaks(&mut broken);
            match broken.check() {
                Err(Unsound::Part { part, .. }) => assert_eq!(part, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_version_is_not_looked_into() {
        let other = Explanation {
            version: EXPLANATION_VERSION + 1,
            timeline: Timeline {
                live: vec![Bytes(1)],
                ..Timeline::default()
            },
            ..sample::resnet(1, 0)
        };
        assert_eq!(
            other.check(),
            Err(Unsound::Version {
                found: EXPLANATION_VERSION + 1
            })
        );
    }
}
