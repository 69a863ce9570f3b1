//! Why an archive is not made, or not used.

use std::path::{Path, PathBuf};

use miette::Diagnostic;
use thiserror::Error;

use super::elf::Glibc;
use crate::bytes::Bytes;

/// Why an archive could not be made, or is not used.
#[derive(Debug, Error, Diagnostic)]
pub enum ArchiveError {
    /// Something is wrong with the archive, or it is none for this machine. Nothing of it was kept.
    #[error("{} cannot be used: {why}", file.display())]
    #[diagnostic(forward(why))]
    Refused {
        /// The archive.
        file: PathBuf,
        /// What is wrong with it.
        why: Box<Refusal>,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}", path.display())]
    #[diagnostic(
        code(archive::io),
        help("may it be read and written, and does the disk have room? archives are unpacked where TMPDIR says")
    )]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A folder to unpack into that is in use.
    #[error("{} is not empty", .0.display())]
    #[diagnostic(code(archive::not_empty), help("unpack into a folder of its own"))]
    NotEmpty(PathBuf),
    /// There is no model to pack.
    #[error("there is no model to put into an archive")]
    #[diagnostic(code(archive::no_models), help("`cargo vram list` shows the declared models"))]
    NoModels,
    /// An executable that does not run where models do.
    #[error("{} is no program for Linux with glibc on x86-64 or aarch64", .0.display())]
    #[diagnostic(code(archive::not_a_program), help("models run there alone: build them there"))]
    NotAProgram(PathBuf),
    /// Programs for two kinds of machine.
    #[error("{} is built for {other}, and the rest for {target}", path.display())]
    #[diagnostic(
        code(archive::two_targets),
        help("an archive is for one kind of machine: build all of it for one target")
    )]
    TwoTargets {
        /// The program.
        path: PathBuf,
        /// What it is built for.
        other: String,
        /// What the others are.
        target: String,
    },
    /// A name that an archive cannot hold.
    #[error("an archive cannot hold the path `{}`: {why}", path.escape_debug())]
    #[diagnostic(code(archive::name), help("rename the target"))]
    Name {
        /// The path in the archive.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than an archive may hold.
    #[error("the files are {0} together")]
    #[diagnostic(code(archive::too_large), help("at most 8 GiB: make an archive a package (-p)"))]
    TooLarge(Bytes),
    /// A package was named that is not in the archive.
    #[error("no package `{package}` in {}", file.display())]
    #[diagnostic(code(archive::unknown_package), help("the packages are: {known}"))]
    UnknownPackage {
        /// The archive.
        file: PathBuf,
        /// What was named.
        package: String,
        /// What could have been.
        known: String,
    },
    /// A program that does not declare the models that the archive says it does.
    #[error("`{target}` of {package} in {} declares other models than the archive says", file.display())]
    #[diagnostic(code(archive::models), help("make the archive again with `cargo vram archive`"))]
    OtherModels {
        /// The archive.
        file: PathBuf,
        /// The package.
        package: String,
        /// The target.
        target: String,
    },
    /// A file that was written to while it was packed.
    #[error("{} was changed while it was packed", .0.display())]
    #[diagnostic(
        code(archive::in_use),
        help("pack again, when nothing else builds in this target folder")
    )]
    InUse(PathBuf),
}

/// What is wrong with an archive.
#[derive(Debug, Error, Diagnostic)]
pub enum Refusal {
    /// It cannot be opened.
    #[error("{0}")]
    #[diagnostic(code(archive::open), help("`cargo vram archive` makes one"))]
    Open(std::io::Error),
    /// It has no bytes.
    #[error("it is empty")]
    #[diagnostic(code(archive::empty), help("copy it again: it was not uploaded or downloaded whole"))]
    Empty,
    /// It is something else.
    #[error("it is no zstd file")]
    #[diagnostic(
        code(archive::not_zstd),
        help("name the .tar.zst that `cargo vram archive` wrote, and not what it was packed into since")
    )]
    NotZstd,
    /// Its end is missing.
    #[error("it is cut short")]
    #[diagnostic(
        code(archive::cut_short),
        help("copy it again: it was not uploaded or downloaded whole")
    )]
    CutShort,
    /// Its bytes are not those that were written.
    #[error("it is damaged: {0}")]
    #[diagnostic(
        code(archive::damaged),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Damaged(String),
    /// Something follows it.
    #[error("something follows its end")]
    #[diagnostic(
        code(archive::trailing),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Trailing,
    /// It is not known what is in it.
    #[error("it does not begin with manifest.json")]
    #[diagnostic(code(archive::no_manifest), help("only what `cargo vram archive` wrote can be used"))]
    NoManifest,
    /// What it says of itself cannot be.
    #[error("its manifest.json is unusable: {0}")]
    #[diagnostic(code(archive::manifest), help("only what `cargo vram archive` wrote can be used"))]
    Manifest(String),
    /// What it says of itself is too long.
    #[error("its manifest.json has {0}")]
    #[diagnostic(code(archive::manifest_size), help("at most 4 MiB: make an archive a package (-p)"))]
    ManifestSize(Bytes),
    /// Its layout is another.
    #[error("its format is {theirs}, and this tool reads {ours}")]
    #[diagnostic(
        code(archive::format),
        help("make it with this version of cargo-vram ({}), or use the version that made it", env!("CARGO_PKG_VERSION"))
    )]
    Format {
        /// Its format.
        theirs: u64,
        /// The one that can be read.
        ours: u32,
    },
    /// Another version of this tool made it.
    #[error("cargo-vram {} made it, and this is {}", .0.escape_debug(), env!("CARGO_PKG_VERSION"))]
    #[diagnostic(
        code(archive::tool),
        help(
            "figures of two versions are not compared: install the same version on both machines (`cargo install cargo-vram@VERSION`)"
        )
    )]
    Tool(String),
    /// The same version with another driver made it.
    #[error("its driver is that of another build of cargo-vram {}", env!("CARGO_PKG_VERSION"))]
    #[diagnostic(
        code(archive::driver),
        help("figures of two drivers are not compared: use the same build of the tool on both machines")
    )]
    Driver,
    /// Its models speak another language.
    #[error("its models speak protocol {theirs}, and this tool {ours}")]
    #[diagnostic(
        code(archive::protocol),
        help(
            "make the cargo-vram that the models link and the tool agree (`cargo update -p cargo-vram`), and pack again"
        )
    )]
    Protocol {
        /// Theirs.
        theirs: u32,
        /// This tool's.
        ours: u32,
    },
    /// It is for another kind of machine.
    #[error("it was made for {}, and this machine is {here}", target.escape_debug())]
    #[diagnostic(
        code(archive::target),
        help("make one on a machine of this kind: `cargo vram archive` runs what it packs, to ask for its models")
    )]
    Target {
        /// What it is for.
        target: String,
        /// What this is.
        here: String,
    },
    /// Its programs need a newer C library.
    #[error("its programs need glibc {needed}, and this machine has {here}")]
    #[diagnostic(
        code(archive::glibc),
        help("make it on a system that is no newer than this one, such as in its container image")
    )]
    Glibc {
        /// What they need.
        needed: Glibc,
        /// What is here.
        here: Glibc,
    },
    /// Models cannot run here.
    #[error("this machine has no glibc")]
    #[diagnostic(code(archive::no_glibc), help("models run on Linux with glibc, x86-64 or aarch64"))]
    NoGlibc,
    /// A path that would leave the folder, or that nobody would write.
    #[error("it holds the path `{}`: {why}", path.escape_debug())]
    #[diagnostic(code(archive::path), help("do not use it: nobody writes such a path by mistake"))]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An entry that is no file.
    #[error("its entry `{}` is {kind}", path.escape_debug())]
    #[diagnostic(
        code(archive::kind),
        help("do not use it: `cargo vram archive` writes plain files alone")
    )]
    Kind {
        /// The path.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// An entry with words that are not in its manifest.
    #[error("its entry `{}` is not as `cargo vram archive` writes it", .0.escape_debug())]
    #[diagnostic(
        code(archive::header),
        help("make it again with `cargo vram archive`, and do not pack it anew")
    )]
    Header(String),
    /// A file that is there twice.
    #[error("it holds `{}` twice", .0.escape_debug())]
    #[diagnostic(code(archive::duplicate), help("make it again with `cargo vram archive`"))]
    Duplicate(String),
    /// A file that lies in another file.
    #[error("it holds `{}` as a file and as a folder", .0.escape_debug())]
    #[diagnostic(code(archive::overlap), help("make it again with `cargo vram archive`"))]
    Overlap(String),
    /// A file that nobody told of.
    #[error("it holds `{}`, of which its manifest says nothing", .0.escape_debug())]
    #[diagnostic(code(archive::unlisted), help("make it again with `cargo vram archive`"))]
    Unlisted(String),
    /// A file that was told of.
    #[error("it lacks `{}`, which its manifest names", .0.escape_debug())]
    #[diagnostic(code(archive::missing), help("make it again with `cargo vram archive`"))]
    Missing(String),
    /// A file of another length.
    #[error("`{}` in it has {actual}, and its manifest says {expected}", path.escape_debug())]
    #[diagnostic(code(archive::size), help("make it again with `cargo vram archive`"))]
    Size {
        /// The path.
        path: String,
        /// What it has.
        actual: Bytes,
        /// What it should have.
        expected: Bytes,
    },
    /// A file with other bytes.
    #[error("`{}` in it is not the file that was packed", .0.escape_debug())]
    #[diagnostic(
        code(archive::changed),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Changed(String),
    /// More files than anybody has.
    #[error("it holds {0} files")]
    #[diagnostic(code(archive::too_many), help("at most 10000: make an archive a package (-p)"))]
    TooMany(usize),
    /// More bytes than anybody has.
    #[error("it holds {0}")]
    #[diagnostic(code(archive::too_large), help("at most 8 GiB: make an archive a package (-p)"))]
    TooLarge(Bytes),
}

pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ArchiveError + use<> {
    let path = path.to_owned();
    move |source| ArchiveError::Io { action, path, source }
}
