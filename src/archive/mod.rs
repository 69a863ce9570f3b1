//! Built models in one file, for machines that have neither Rust nor the source.
//!
//! An archive is a tar file in one zstd frame. Its first entry says what is in it and for which machine; every other
//! one must be named there, with length and hash. It has plain files alone, and the same files give the same bytes.
//!
//! An archive holds programs that are run: it is trusted as the one who made it is. What is refused here is what
//! would not run, or would give other figures, and what would write elsewhere than it should.

mod elf;
mod error;
mod machine;
mod manifest;
mod pack;
mod tar;
mod unpack;

pub use elf::{Facts, Glibc, facts, strip};
pub use error::{ArchiveError, Refusal};
pub use manifest::{
    BASE_BASELINE, BASE_BUDGETS, BASELINE, BUDGETS, Base, DRIVER, FORMAT, File, Kind, MANIFEST, Manifest, Model,
    Target, WORKSPACE,
};
pub use pack::{Contents, Packed, pack};
pub use unpack::{Unpacked, unpack};
