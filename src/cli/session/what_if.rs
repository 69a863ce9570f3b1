//! What-ifs: runs with changed settings, and the separate builds that some of them need.

use std::time::Instant;

use clap::Args;

use super::cases;
use crate::cli::error::CliError;
use crate::cli::options::Packages;
use crate::cli::session::context::Context;
use crate::cli::session::models;
use crate::cli::session::models::Models;
use crate::cli::session::prepared;
use crate::cli::terminal;
use crate::protocol::{Float, Optimizer, WhatIf};
use crate::report::Problem;
use crate::run::Case;
use crate::workspace::{CHECKPOINTING, NO_FUSION, WHAT_IF};

/// The what-if options. Several values per option make a matrix of all combinations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What-if")]
pub(in crate::cli) struct WhatIfs {
    /// Use another optimizer with Burn's defaults (several: comma-separated)
    ///
    /// With Burn 0.21, this builds the models with another feature of cargo-vram. The first such build takes 1–2
    /// minutes more.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "OPTIMIZER",
        conflicts_with = "infer"
    )]
    optimizer: Vec<Optimizer>,
    /// Use another float dtype, or mixed precision (several: comma-separated)
    ///
    /// Sets Burn's default element type of floats before the first tensor is created.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DTYPE")]
    dtype: Vec<Float>,
    /// Split each batch into N parts and add up their gradients (several: comma-separated)
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "infer", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    accumulate: Vec<u32>,
    /// Run only the forward phase, without gradients
    #[arg(long)]
    infer: bool,
    /// Use Burn's balanced checkpointing: keep less for backward, and compute it again
    ///
    /// With Burn 0.21, this builds the models once more, which takes 10 seconds to 2 minutes the first time.
    #[arg(long)]
    checkpointing: bool,
    /// Run operations one by one, without Burn's fusion (Burn 0.21 only)
    ///
    /// This builds the models once more, which takes 10 seconds to 2 minutes the first time.
    #[arg(long)]
    pub(in crate::cli) no_fusion: bool,
}

/// Returns the values of an option as one dimension of the matrix: only the unchanged setting if there are none.
fn dimension<T: Copy>(asked: &[T]) -> Vec<Option<T>> {
    match asked {
        [] => vec![None],
        asked => asked.iter().copied().map(Some).collect(),
    }
}

impl WhatIfs {
    /// Returns the what-if that only turns on checkpointing.
    pub(in crate::cli) fn checkpointing() -> Self {
        Self {
            checkpointing: true,
            ..Self::default()
        }
    }

    /// Returns every combination of the options; none if no option is set.
    pub(in crate::cli) fn all(&self) -> Vec<WhatIf> {
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

    /// Adds the feature that the unchanged models need to run with another optimizer, if one is requested.
    pub(in crate::cli) fn packages(&self, packages: &Packages) -> Packages {
        // Each optimizer is another copy of the loop in every
        // model. So only those who ask for one compile them.
        // See docs/design/what-if.md.
        match self.optimizer.is_empty() {
            true => packages.clone(),
            false => packages.with_feature(WHAT_IF),
        }
    }

    /// Returns the requested features that need a separate build.
    fn rebuilding(&self) -> Vec<&'static str> {
        let asked = [(self.checkpointing, CHECKPOINTING), (self.no_fusion, NO_FUSION)];
        asked
            .into_iter()
            .filter_map(|(is_asked, feature)| is_asked.then_some(feature))
            .collect()
    }

    /// Returns the package options of the separate build; `None` if no such build is needed.
    fn rebuilt(&self, packages: &Packages) -> Option<Packages> {
        let mut packages = self.packages(packages);
        let features = self.rebuilding();
        for feature in &features {
            packages = packages.with_feature(feature);
        }
        (!features.is_empty()).then_some(packages)
    }

    /// Returns the what-ifs of each case, one per combination, and the problems of the separate build.
    ///
    /// Prints the time of the separate build, because no result includes it.
    pub(in crate::cli) fn cases(
        &self,
        cases: &[Case],
        context: &Context<'_>,
        folder: &std::path::Path,
    ) -> Result<(Vec<Vec<Case>>, Vec<Problem>), CliError> {
        let &Context { prepared, .. } = context;
        // An archive builds nothing. Its models refuse a job that they were not built for.
        let rebuilt = self.rebuilt(context.packages).filter(|_| prepared.source.builds());
        let rebuilt = rebuilt
            .map(|packages| {
                let began = Instant::now();
                let models = build(&packages, context, folder);
                if !terminal::is_quiet() && prepared.source.builds_on_demand() {
                    let seconds = began.elapsed().as_secs_f64();
                    terminal::remark(&format!(
                        "built the models once more for the what-ifs, in {seconds:.1} s"
                    ));
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

fn build(packages: &Packages, context: &Context<'_>, folder: &std::path::Path) -> Result<Models, CliError> {
    let prepared = &prepared::prepare(packages, None, context.running.budgets.as_deref())?;
    let context = Context {
        prepared,
        packages,
        ..*context
    };
    models::models(&context, &folder.join("rebuilt"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::session::source::built_on_demand;

    #[test]
    fn a_build_that_a_flag_causes_is_announced_with_its_features_and_its_time() {
        let asked = WhatIfs {
            checkpointing: true,
            no_fusion: true,
            ..WhatIfs::default()
        };
        assert_eq!(
            built_on_demand(&asked.rebuilding()),
            "building the models with the features `cargo-vram/checkpointing` and `cargo-vram/no-fusion`: the first such build takes \
             10 seconds to 2 minutes"
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
