//! One child process per pass: the driver put before the model, the model run, what it left behind collected.

mod agree;
mod card;
mod case;
pub mod child;
mod collect;
mod ending;
mod follow;
mod kernels;
mod list;
mod measured;
mod oom;
mod passes;
pub mod plan;
mod process;
pub mod record;
mod slots;
mod steps;
mod work;

pub use card::{Hardware, INTERVAL, Real};
pub use case::{Allowed, Case, Done, Fault, Launches, Progress, Settings, TracedCase, run_all};
pub use follow::Place;
pub use list::{Listed, list};
