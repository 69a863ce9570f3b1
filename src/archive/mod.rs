//! Packs built models into one file, for machines that have neither Rust nor the source.
//!
//! An archive is a tar file in one zstd frame. Its first entry is the manifest: the kind of machine, the models, and
//! the length and hash of every other entry. All entries are plain files. The same files give the same bytes.
//!
//! The tool runs the programs of an archive, so trust an archive only as much as whoever made it. This module refuses
//! archives that would not run here, would give other values, or would write outside their folder.

mod elf;
mod error;
mod machine;
mod manifest;
mod pack;
mod tar;
mod unpack;

pub use elf::{ElfFacts, Glibc, facts, strip};
pub use error::{ArchiveError, ArchiveRefusal};
pub use manifest::{
    ArchiveManifest, ArchivedBase, ArchivedFile, ArchivedModel, ArchivedTarget, BASE_BASELINE, BASE_BUDGETS, BASELINE,
    BUDGETS, DRIVER, FORMAT, FileKind, MANIFEST, WORKSPACE,
};
pub use pack::{Contents, PackedArchive, pack};
pub use unpack::{Unpacked, unpack};
