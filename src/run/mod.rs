//! One child process per pass: the virtual driver put before the model, the model run, what it left behind collected.

mod case;
pub mod child;
pub mod code;
mod collect;
mod ending;
mod list;
mod oom;
pub mod plan;
mod process;
pub mod record;

pub use case::{Case, Settings, run_all};
pub use list::{Listed, list};
