//! Recordings: measurements of real GPUs, kept as text files beside the code.
//!
//! There is one folder per GPU and driver, such as `l4/580.82.07/`. It contains three files:
//! - `report.json`: the report of the measurement;
//! - `autotune.jsonl`: every choice of Burn's autotune, with the outcome and time of every candidate;
//! - `gpu.json`: the GPU as the driver reports it.
//!
//! Estimates replay the choices, and tests compare estimates with the measured values.

pub mod agreement;
mod canonical;
mod choices;
mod error;
mod folder;
mod gpu_facts;
mod gpu_recording;
mod identity;
mod recorder;
mod recordings;
mod tuned;

pub use canonical::text as canonical;
pub use choices::{ChoiceEntry, RunFacts};
pub use error::{RecordingError, RecordingRefusal};
pub use gpu_facts::GpuFacts;
pub use gpu_recording::Recording;
pub use identity::RunIdentity;
pub use recorder::{Recorded, record};
pub use recordings::{Recordings, fingerprint};
pub use tuned::{TuneFile, Tuned, read_folder, read_measured};

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
