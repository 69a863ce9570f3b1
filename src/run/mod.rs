//! Runs each pass of a model in a child process over the counting driver, and assembles the results into a run.

mod assemble;
mod assumptions;
mod case;
mod cases;
mod checkout;
pub mod child;
mod collected;
mod epochs;
mod follow;
mod gpu_work;
mod hardware;
mod kernels;
mod list;
mod measured;
mod oom;
mod outcome;
mod pass_difference;
mod passes;
pub mod plan;
mod process;
pub mod processes;
pub mod record;
mod reported;
mod retry;
mod slots;
mod steps;
mod varying;

pub use case::{AllowedDifferences, Case, CaseLaunches, InjectedFault, RunProgress, Settings};
pub use cases::{CaseOutcome, TracedCase, run_all};
pub use follow::PassPosition;
pub use hardware::{Hardware, INTERVAL, Real};
pub use list::{Listed, list};
