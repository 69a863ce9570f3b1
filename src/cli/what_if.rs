//! What-ifs: models run otherwise than they say, and what of that needs another build.

use std::time::Instant;

use clap::Args;

use super::options::{Loudness, Packages, Running};
use super::pipeline::{self, Models, Prepared};
use super::source::Source;
use super::{Stopped, cases, terminal};
use crate::protocol::{Float, Optimizer, WhatIf};
use crate::report::Problem;
use crate::run::Case;
use crate::workspace::{CHECKPOINTING, NO_FUSION, WHAT_IF};

/// What is asked to be otherwise than the models say. Several values make a matrix.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What if")]
pub(super) struct WhatIfs {
    /// Another optimizer, with Burn's defaults; several with commas. With Burn 0.21, builds the models with another feature of
    /// cargo-vram: the first time this takes 1–2 minutes more
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "OPTIMIZER",
        conflicts_with = "infer"
    )]
    optimizer: Vec<Optimizer>,
    /// Burn's default element type of floats, set before the first tensor, or mixed precision; several with commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DTYPE")]
    dtype: Vec<Float>,
    /// Take each batch apart in so many, and add up their gradients; several with commas
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "infer", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    accumulate: Vec<u32>,
    /// The forward phase alone, without gradients
    #[arg(long)]
    infer: bool,
    /// Burn's balanced checkpointing: keeps less for backward, and computes it again. With Burn 0.21, builds the models once more: the
    /// first time this takes 1–2 minutes
    #[arg(long)]
    checkpointing: bool,
    /// Operations one by one, though the models' Burn fuses them. With Burn 0.21 alone, whose models are built once more: the first
    /// time this takes 1–2 minutes
    #[arg(long)]
    pub(super) no_fusion: bool,
}

/// A list as one dimension of a matrix: what is as it is where nothing was asked.
fn dimension<T: Copy>(asked: &[T]) -> Vec<Option<T>> {
    match asked {
        [] => vec![None],
        asked => asked.iter().copied().map(Some).collect(),
    }
}

impl WhatIfs {
    /// Checkpointing alone.
    pub(super) fn checkpointing() -> Self {
        Self {
            checkpointing: true,
            ..Self::default()
        }
    }

    /// Every combination of what was asked for; none where nothing was.
    pub(super) fn all(&self) -> Vec<WhatIf> {
        let mut all = Vec::new();
        for optimizer in dimension(&self.optimizer) {
            for dtype in dimension(&self.dtype) {
                for accumulate in dimension(&self.accumulate) {
                    all.push(WhatIf {
                        optimizer,
                        dtype,
                        accumulate,
                        infer: self.infer,
                        checkpointing: self.checkpointing,
                        no_fusion: self.no_fusion,
                    });
                }
            }
        }
        all.retain(|what_if| !what_if.is_none());
        all
    }

    /// The models as they are are to be built so that they can be run otherwise.
    pub(super) fn packages(&self, packages: &Packages) -> Packages {
        match self.optimizer.is_empty() {
            true => packages.clone(),
            false => packages.with_feature(WHAT_IF),
        }
    }

    /// Says that the models are built so that they can be run with another optimizer, where they are.
    pub(super) fn announce(&self, source: &Source, loudness: Loudness) {
        if !self.optimizer.is_empty() {
            announce_build(source, &[WHAT_IF], loudness);
        }
    }

    /// The features that only another build has.
    fn rebuilding(&self) -> Vec<&'static str> {
        let asked = [(self.checkpointing, CHECKPOINTING), (self.no_fusion, NO_FUSION)];
        asked
            .into_iter()
            .filter_map(|(is_asked, feature)| is_asked.then_some(feature))
            .collect()
    }

    /// The features of another build, where one is needed.
    fn rebuilt(&self, packages: &Packages) -> Option<Packages> {
        let mut packages = self.packages(packages);
        let features = self.rebuilding();
        for feature in &features {
            packages = packages.with_feature(feature);
        }
        (!features.is_empty()).then_some(packages)
    }

    /// For each case, those that it was asked to be otherwise, one a combination; and why some cannot be built so.
    ///
    /// What another build took is told: it is no part of any figure.
    pub(super) fn cases(
        &self,
        cases: &[Case],
        (prepared, packages, running): (&Prepared, &Packages, &Running),
        loudness: Loudness,
        folder: &std::path::Path,
    ) -> Result<(Vec<Vec<Case>>, Vec<Problem>), Stopped> {
        let rebuilt = self.rebuilt(packages).filter(|_| prepared.source.builds());
        let rebuilt = rebuilt
            .map(|packages| {
                let began = Instant::now();
                announce_build(&prepared.source, &self.rebuilding(), loudness);
                let models = build(&packages, running, loudness, folder);
                if !loudness.quiet && prepared.source.builds_on_demand() {
                    let seconds = began.elapsed().as_secs_f64();
                    terminal::remark(&format!("built once more for what is asked, in {seconds:.1} s"));
                }
                models
            })
            .transpose()?;
        let otherwise = |case: &Case| -> Vec<Case> {
            let model = match &rebuilt {
                None => Some(case.model.clone()),
                Some(models) => cases::same(&case.model, models),
            };
            let of = |what_if| {
                Some(Case {
                    model: model.clone()?,
                    what_if,
                    ..case.clone()
                })
            };
            self.all().into_iter().filter_map(of).collect()
        };
        let all = cases.iter().map(otherwise).collect();
        Ok((all, rebuilt.map_or_else(Vec::new, |models| models.problems)))
    }
}

/// Says that models are built with features of cargo-vram that their usual build does not have, and how long that takes, where there
/// are such models.
pub(super) fn announce_build(source: &Source, features: &[&str], loudness: Loudness) {
    if !loudness.quiet && source.builds_on_demand() {
        terminal::remark(&announcement(features));
    }
}

fn announcement(features: &[&str]) -> String {
    let names: Vec<_> = features.iter().map(|feature| format!("`{feature}`")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!(
        "building the models with the feature{plural} {}: the first such build takes as long as the first build of cargo-vram itself, 1–2 minutes",
        names.join(" and "),
    )
}

fn build(
    packages: &Packages,
    running: &Running,
    loudness: Loudness,
    folder: &std::path::Path,
) -> Result<Models, Stopped> {
    let prepared = pipeline::prepare(packages, None, running.budgets.as_deref())?;
    pipeline::models(&prepared, packages, Some(running), loudness, &folder.join("rebuilt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_a_flag_causes_is_announced_with_its_features_and_its_time() {
        let asked = WhatIfs {
            checkpointing: true,
            no_fusion: true,
            ..WhatIfs::default()
        };
        assert_eq!(
            announcement(&asked.rebuilding()),
            "building the models with the features `cargo-vram/checkpointing` and `cargo-vram/no-fusion`: the first such build takes \
             as long as the first build of cargo-vram itself, 1–2 minutes"
        );
        assert!(WhatIfs::default().rebuilding().is_empty());
    }

    #[test]
    fn several_values_make_a_matrix_and_none_makes_nothing() {
        assert!(WhatIfs::default().all().is_empty());
        let asked = WhatIfs {
            optimizer: vec![Optimizer::Sgd, Optimizer::Adam],
            dtype: vec![Float::F16, Float::Bf16],
            checkpointing: true,
            ..WhatIfs::default()
        };
        let told: Vec<_> = asked.all().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "sgd, f16, checkpointing",
                "sgd, bf16, checkpointing",
                "adam, f16, checkpointing",
                "adam, bf16, checkpointing"
            ]
        );
    }
}
