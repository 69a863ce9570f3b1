//! Checks that an explanation from a file is consistent, so that renderers can use its indices without checks.

use miette::Diagnostic;
use thiserror::Error;

use super::{Category, EXPLANATION_VERSION, Explanation, MemoryTimeline, PeakMoment};
use crate::bytes::Bytes;

/// 1 PiB, which is more than any GPU has. Sums of values below it neither overflow nor lose a byte in JavaScript, whose
/// numbers are exact up to 2^53.
pub const MOST_BYTES: Bytes = Bytes(1 << 50);

/// Why an explanation cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Unsound {
    /// The explanation has another format version.
    #[error("the explanation has format version {found}, but this cargo-vram reads version {EXPLANATION_VERSION}")]
    #[diagnostic(
        code(explain::version),
        help("use the version of cargo-vram that wrote it, or explain the model again with this version")
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// Parts of the explanation contradict each other.
    #[error("{part}: {what}")]
    #[diagnostic(
        code(explain::unsound),
        help("explain the model again; `cargo vram explain --message-format json` never writes such a file")
    )]
    Part {
        /// The part, as a path in the file: `tensors[3].shares`.
        part: String,
        /// What is wrong with the part.
        what: String,
    },
}

impl Explanation {
    /// Checks that all columns have the same length, all indices are valid, and the categories add up.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn check(&self) -> Result<(), Unsound> {
        // Parts of another version may mean something else, so nothing else is looked at.
        if self.version != EXPLANATION_VERSION {
            return Err(Unsound::Version { found: self.version });
        }
        // The timeline comes first, because the other parts have indices into it.
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
            for (at, keeper) in leak.keepers.iter().enumerate() {
                self.indices(&keeper.tensors, || format!("leak.keepers[{at}].tensors"))?;
            }
        }
        Ok(())
    }

    fn check_tensors(&self) -> Result<(), Unsound> {
        let samples = self.timeline.live.len();
        for (at, tensor) in self.tensors.iter().enumerate() {
            let part = |name: &str| format!("tensors[{at}].{name}");
            figure(tensor.bytes, || part("bytes"))?;
            figure(tensor.logical, || part("logical"))?;
            // One past the end is valid: a tensor may come or go after the last launch.
            if tensor.born as usize > samples {
                return Err(wrong(part("born"), beyond(tensor.born, samples, "samples")));
            }
            if tensor.died.is_some_and(|died| died < tensor.born) {
                return Err(wrong(part("died"), "it is less than `born`".to_owned()));
            }
            if let Some(died) = tensor.died.filter(|died| *died as usize > samples) {
                return Err(wrong(part("died"), beyond(died, samples, "samples")));
            }
            if let Some(shares) = tensor.shares {
                self.indices(&[shares], || part("shares"))?;
            }
            if let Some(stack) = tensor.stack.filter(|stack| *stack as usize >= self.stacks.len()) {
                return Err(wrong(part("stack"), beyond(stack, self.stacks.len(), "stacks")));
            }
        }
        Ok(())
    }

    fn check_peak(&self) -> Result<(), Unsound> {
        let PeakMoment {
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
        // A run that died early has no sample, and its peak is then sample 0.
        if at_peak.is_none() && samples > 0 {
            return Err(wrong("peak.sample".to_owned(), beyond(*sample, samples, "samples")));
        }
        if let Some(there) = at_peak.filter(|there| *there != live) {
            return Err(wrong(
                "peak.live".to_owned(),
                format!("it is {}, but the timeline has {} at this sample", live.0, there.0),
            ));
        }
        self.indices(tensors, || "peak.tensors".to_owned())?;
        let distinct: std::collections::BTreeSet<_> = tensors.iter().collect();
        let held: u128 = tensors
            .iter()
            .map(|index| u128::from(self.tensors[*index as usize].bytes.0))
            .sum();
        // Sums of such explanations would overflow.
        if distinct.len() < tensors.len() || held > u128::from(MOST_BYTES.0) {
            return Err(wrong(
                "peak.tensors".to_owned(),
                "a tensor is listed twice, or the tensors are larger than any GPU".to_owned(),
            ));
        }
        // At most one value below 1 PiB per category, so the sum does not overflow.
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
                format!("the categories of live memory add up to {sum}, but live is {}", live.0),
            ));
        }
        Ok(())
    }

    /// Checks values that are added up or shown but not used as indices.
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

impl MemoryTimeline {
    fn check(&self) -> Result<(), Unsound> {
        let samples = self.live.len();
        // All indices of the format are `u32`.
        if u32::try_from(samples).is_err() {
            return Err(wrong("timeline".to_owned(), format!("too many samples: {samples}")));
        }
        let column = |name: &str, length: usize| {
            if length == samples {
                return Ok(());
            }
            Err(wrong(
                format!("timeline.{name}"),
                format!("it has {length} entries, but there are {samples} samples"),
            ))
        };
        column("reserved", self.reserved.len())?;
        column("kernel", self.kernel.len())?;
        for (at, series) in self.categories.iter().enumerate() {
            let part = format!("categories[{at}].bytes");
            column(&part, series.bytes.len())?;
            if !series.category.is_live() {
                let what = format!("{:?} is not a category of live memory", series.category);
                return Err(wrong(format!("timeline.categories[{at}]"), what));
            }
            // `MemoryTimeline::of` finds only the first of two series.
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
            // The HTML page has no live memory of its own: it adds up the categories.
            // See docs/design/html-page.md.
            let mut sum = 0;
            for series in &self.categories {
                figure(series.bytes[sample], || format!("timeline.categories, sample {sample}"))?;
                sum += series.bytes[sample].0;
            }
            if sum != self.live[sample].0 {
                return Err(wrong(
                    "timeline.categories".to_owned(),
                    format!(
                        "at sample {sample}, the categories add up to {sum}, but live is {}",
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
            // A phase may begin after the last launch, if it launches nothing.
            if border.sample as usize > self.live.len() {
                return Err(wrong(part(), beyond(border.sample, self.live.len(), "samples")));
            }
            if at > 0 && self.borders[at - 1].sample > border.sample {
                return Err(wrong(part(), "it begins before the previous phase".to_owned()));
            }
        }
        Ok(())
    }
}

fn figure(bytes: Bytes, part: impl Fn() -> String) -> Result<(), Unsound> {
    if bytes > MOST_BYTES {
        return Err(wrong(
            part(),
            format!("{} is too large: no GPU has more than {} bytes", bytes.0, MOST_BYTES.0),
        ));
    }
    Ok(())
}

fn beyond(index: u32, length: usize, of: &str) -> String {
    format!("index {index} is out of range (there are {length} {of})")
}

fn twice(part: String, category: Category) -> Unsound {
    wrong(part, format!("the category {category:?} is listed twice"))
}

fn wrong(part: String, what: String) -> Unsound {
    Unsound::Part { part, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{SourceLineMemory, sample};

    type Breaks = fn(&mut Explanation);

    /// The part where each mistake must be found, and how to make the mistake.
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
            it.lines[0] = SourceLineMemory {
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
            timeline: MemoryTimeline {
                live: vec![Bytes(1)],
                ..MemoryTimeline::default()
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
