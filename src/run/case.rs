//! A case is one model on one GPU with one set of inputs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::follow::PassPosition;
use super::hardware::Hardware;
use super::list::Listed;
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::gpu::Profile;
use crate::protocol::{SizeOrder, WhatIf};
use crate::recording::Recordings;
use crate::report::{Pass, Run};
use crate::untrusted::PlainName;

/// A model to run, with its GPU, inputs and settings.
#[derive(Debug, Clone)]
pub struct Case {
    /// The model.
    pub model: Listed,
    /// The budget's name, if it differs from the model's name.
    pub budget: Option<String>,
    /// The inputs that override the model's own values.
    pub inputs: BTreeMap<String, u64>,
    /// The profile of the GPU.
    pub profile: Profile,
    /// The time limit of one pass.
    pub timeout: Duration,
    /// The number of steps per pass, if it differs from [`Settings::steps`].
    pub steps: Option<u32>,
    /// The what-if settings of this case.
    pub what_if: WhatIf,
    /// Which launches of the program to run: the first, later ones, or both.
    pub launches: CaseLaunches,
    /// Which differences between passes the budget allows.
    pub allowed: AllowedDifferences,
    /// The minimum number of runs. It is more than 1 only if the budget allows runs to differ.
    pub repeat: u32,
    /// The order in which the steps have the sizes of the model's ranges.
    pub sizes: SizeOrder,
    /// Whether the GPU's memory is unlimited, to find out how much the model needs beyond it. Only for virtual GPUs.
    pub endless: bool,
}

/// The differences between passes that a budget allows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct AllowedDifferences {
    /// Whether the model may do different work in each run.
    pub nondeterministic: bool,
    /// Whether the model may do different work if it reads other values from the GPU.
    pub data_dependent: bool,
}

/// The launches of the program that a case runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CaseLaunches {
    /// The first launch (cold pass), and later launches that replay its autotune choices.
    #[default]
    All,
    /// Only the first launch. The run has no warm values.
    First,
    /// Only later launches, which replay the choices in this folder. The run has no cold values.
    Later(PathBuf),
}

/// Makes the names of inputs harmless to show.
pub(super) fn plain_inputs(inputs: &BTreeMap<String, u64>) -> BTreeMap<PlainName, u64> {
    let plain = |(name, value): (&String, &u64)| (PlainName::escaped(name), *value);
    inputs.iter().map(plain).collect()
}

impl Case {
    /// Returns the inputs that do not have the model's own values.
    #[must_use]
    pub fn plain_inputs(&self) -> BTreeMap<PlainName, u64> {
        plain_inputs(&self.inputs)
    }

    /// Returns the budget's name, or the model's name if the case has no budget of another name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.budget.as_deref().unwrap_or(&self.model.name)
    }

    /// Returns `package/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.model.built.target.package, self.name())
    }
}

/// The settings that all cases share.
#[derive(Debug)]
pub struct Settings {
    /// The compiled driver library. It acts as a virtual GPU, or counts calls and forwards them to the real driver.
    pub driver: DriverLibrary,
    /// The hardware that the models run on.
    pub hardware: Hardware,
    /// The number of runs per case. It is more than 1 only on real hardware, where values vary.
    pub repeat: u32,
    /// A fault that the driver injects in one of the passes.
    pub fault: Option<InjectedFault>,
    /// The recordings whose autotune choices the passes replay.
    pub recordings: Recordings,
    /// Whether the observed pass writes a trace. Only models that were built for explanations can write one.
    pub trace: bool,
    /// Whether models whose sizes vary run with their largest sizes only, not in all orders of sizes.
    pub largest_sizes: bool,
    /// Whether a pass observes live memory: the warm pass on a virtual GPU, the traced pass on a real one.
    pub observed: bool,
    /// Whether a second warm pass checks that the model does the same work with other values from the GPU.
    pub verified: bool,
    /// The number of steps per pass, unless the case sets its own.
    pub steps: u32,
    /// Whether the user set no number of steps. Then Burn 0.22 models run steps until two in a row reserve nothing
    /// more.
    pub settles: bool,
    /// The number of processes that run in parallel.
    pub jobs: usize,
    /// The host memory that one process may use.
    pub host_memory: Bytes,
    /// The folder for the files of the processes.
    pub folder: PathBuf,
    /// A value other than 0 ends the running processes and prevents new ones.
    pub stop: Arc<AtomicUsize>,
}

/// A fault that the driver injects, to test what the tool makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// The pass in which the driver injects the fault.
    pub pass: Pass,
    /// `FUNCTION:CALL:CODE`, with `:sticky` if every later call fails, too.
    pub call: String,
}

/// A progress event while cases run.
#[derive(Debug)]
pub enum RunProgress<'a> {
    /// A pass reached another phase.
    Reached {
        /// The case of the pass.
        case: &'a Case,
        /// The pass.
        pass: Pass,
        /// The position of the pass.
        place: PassPosition,
        /// The number of steps in the pass.
        steps: u32,
    },
    /// A pass ended.
    Passed {
        /// The case of the pass.
        case: &'a Case,
        /// The pass.
        pass: Pass,
        /// How long the process of the pass took.
        took: Duration,
    },
    /// All passes of a case ended.
    Done {
        /// The case.
        case: &'a Case,
        /// The result of the case.
        run: &'a Run,
    },
}
