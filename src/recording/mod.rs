//! Recordings: what was measured on real cards, kept as text files beside the code.
//!
//! A recording is one folder a card and driver: `l4/580.82.07/` with the report of the measurement (`report.json`),
//! every choice that Burn's autotune made with the outcome and time of every candidate (`autotune.jsonl`), and what the
//! driver said of the card (`card.json`). Estimates replay its choices, and are compared with its figures.

pub mod agreement;
mod canonical;
mod card;
mod choices;
mod error;
mod folder;
mod identity;
mod one;
mod record;
mod recordings;
mod tuned;

pub use canonical::text as canonical;
pub use card::CardFacts;
pub use choices::{Entry, RunFacts};
pub use error::{RecordingError, Refusal};
pub use identity::RunIdentity;
pub use one::Recording;
pub use record::{Recorded, record};
pub use recordings::{Recordings, fingerprint};
pub use tuned::{TuneFile, Tuned, read_folder, read_measured};

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
