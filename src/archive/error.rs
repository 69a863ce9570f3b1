//! Errors of making and using archives.

use std::path::{Path, PathBuf};

use miette::Diagnostic;
use thiserror::Error;

use super::elf::Glibc;
use super::manifest::MOST_RATIO;
use crate::bytes::Bytes;
use crate::untrusted::Foreign;

/// The reason why an archive could not be made or cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum ArchiveError {
    /// The archive is invalid, or is not for this machine. No unpacked file was kept.
    #[error("{} cannot be used: {why}", file.display())]
    #[diagnostic(forward(why))]
    Refused {
        /// The archive.
        file: PathBuf,
        /// The reason.
        why: Box<ArchiveRefusal>,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}", path.display())]
    #[diagnostic(
        code(archive::io),
        help("check the permissions and the free disk space; to unpack archives on another disk, set TMPDIR")
    )]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The folder to unpack into is not empty.
    #[error("the folder {} is not empty", .0.display())]
    #[diagnostic(code(archive::not_empty), help("unpack the archive into an empty folder"))]
    NotEmpty(PathBuf),
    /// No model was selected or built.
    #[error("there is no model to put into the archive")]
    #[diagnostic(code(archive::no_models), help("run `cargo vram list` to print the declared models"))]
    NoModels,
    /// A file is not a program for a supported kind of machine.
    #[error("{} is not a program for Linux with glibc on x86-64 or aarch64", .0.display())]
    #[diagnostic(
        code(archive::not_a_program),
        help("build the models for such a machine: they run nowhere else")
    )]
    NotAProgram(PathBuf),
    /// The programs are for two kinds of machine.
    #[error("{} is built for {other}, but the other programs are built for {target}", path.display())]
    #[diagnostic(
        code(archive::two_targets),
        help("build all programs for one target: an archive is for one kind of machine")
    )]
    TwoTargets {
        /// The program.
        path: PathBuf,
        /// The target of this program.
        other: String,
        /// The target of the other programs.
        target: String,
    },
    /// An archive cannot contain a path.
    #[error("an archive cannot contain the path `{}`: {why}", path.escape_debug())]
    #[diagnostic(code(archive::name), help("rename the target"))]
    Name {
        /// The path in the archive.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// The files are too large for an archive.
    #[error("the files have a total size of {0}, but an archive can have at most 8 GiB")]
    #[diagnostic(code(archive::too_large), help("make one archive per package (-p)"))]
    TooLarge(Bytes),
    /// The disk has too little space for the files of the archive.
    #[error("cannot unpack {} to {}: its files need {needed}, and {free} are free", file.display(), folder.display())]
    #[diagnostic(
        code(archive::disk_full),
        help("delete files, or set TMPDIR to a folder with more space")
    )]
    DiskFull {
        /// The archive.
        file: PathBuf,
        /// The folder to unpack to.
        folder: PathBuf,
        /// The total size of the files.
        needed: Bytes,
        /// The free space.
        free: Bytes,
    },
    /// The archive does not have the selected package.
    #[error("no package `{package}` in the archive {}", file.display())]
    #[diagnostic(code(archive::unknown_package), help("select one of its packages: {known}"))]
    UnknownPackage {
        /// The archive.
        file: PathBuf,
        /// The selected package.
        package: String,
        /// The packages of the archive.
        known: String,
    },
    /// A program declares other models than the manifest lists.
    #[error("`{target}` of package {package} in {} declares other models than the manifest lists", file.display())]
    #[diagnostic(code(archive::models), help("make the archive again with `cargo vram archive`"))]
    OtherModels {
        /// The archive.
        file: PathBuf,
        /// The package.
        package: String,
        /// The target.
        target: String,
    },
    /// A file changed while it was packed.
    #[error("{} changed while it was packed", .0.display())]
    #[diagnostic(
        code(archive::in_use),
        help("make the archive again when no other build uses this target folder")
    )]
    InUse(PathBuf),
}

/// The reason why an archive cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum ArchiveRefusal {
    /// The file cannot be opened.
    #[error("{0}")]
    #[diagnostic(code(archive::open), help("run `cargo vram archive` to make an archive"))]
    Open(std::io::Error),
    /// The file has no bytes.
    #[error("it is empty")]
    #[diagnostic(code(archive::empty), help("copy it again: the upload or download was incomplete"))]
    Empty,
    /// The file is not a zstd file.
    #[error("it is not a zstd file")]
    #[diagnostic(
        code(archive::not_zstd),
        help("use the .tar.zst file that `cargo vram archive` wrote, without repacking it")
    )]
    NotZstd,
    /// The end of the archive is missing.
    #[error("it is incomplete: its end is missing")]
    #[diagnostic(
        code(archive::cut_short),
        help("copy it again: the upload or download was incomplete")
    )]
    CutShort,
    /// The bytes of the archive are not those that were written.
    #[error("it is damaged: {0}")]
    #[diagnostic(
        code(archive::damaged),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Damaged(String),
    /// There are bytes after the end of the archive.
    #[error("it has extra bytes after its end")]
    #[diagnostic(
        code(archive::trailing),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Trailing,
    /// The first entry is not the manifest.
    #[error("its first entry is not manifest.json")]
    #[diagnostic(code(archive::no_manifest), help("use a file that `cargo vram archive` wrote"))]
    NoManifest,
    /// The manifest is not valid.
    #[error("its manifest.json is not valid: {0}")]
    #[diagnostic(code(archive::manifest), help("use a file that `cargo vram archive` wrote"))]
    Manifest(String),
    /// The manifest is too large.
    #[error("its manifest.json has a size of {0}, but at most 4 MiB are allowed")]
    #[diagnostic(code(archive::manifest_size), help("make one archive per package (-p)"))]
    ManifestSize(Bytes),
    /// The archive has another format version.
    #[error("its format version is {theirs}, but this cargo-vram reads version {ours}")]
    #[diagnostic(
        code(archive::format),
        help("make it again with cargo-vram {}, or use the version that made it", env!("CARGO_PKG_VERSION"))
    )]
    Format {
        /// The format version of the archive.
        theirs: u64,
        /// The format version that this tool reads.
        ours: u32,
    },
    /// Another version of this tool made the archive.
    #[error("cargo-vram {} made it, but this is {}", .0, env!("CARGO_PKG_VERSION"))]
    #[diagnostic(
        code(archive::tool),
        help(
            "install the same version on both machines (`cargo install cargo-vram@VERSION`): values from two versions \
             are not comparable"
        )
    )]
    Tool(Foreign),
    /// Another build of the same version, with another virtual CUDA driver, made the archive.
    #[error("its virtual CUDA driver is from another build of cargo-vram {}", env!("CARGO_PKG_VERSION"))]
    #[diagnostic(
        code(archive::driver),
        help("use the same build of cargo-vram on both machines: values from two drivers are not comparable")
    )]
    Driver,
    /// The models use another protocol version.
    #[error("its models use protocol {theirs}, but this cargo-vram uses protocol {ours}")]
    #[diagnostic(
        code(archive::protocol),
        help(
            "let the models depend on this version of cargo-vram (`cargo update -p cargo-vram`), and make the archive \
             again"
        )
    )]
    Protocol {
        /// The protocol of the models.
        theirs: u32,
        /// The protocol of this tool.
        ours: u32,
    },
    /// The archive is for another kind of machine.
    #[error("it was made for {}, but this machine is {here}", target)]
    #[diagnostic(
        code(archive::target),
        help(
            "make the archive on a machine of this kind: `cargo vram archive` runs the programs to list their models, \
             so it cannot pack those of another kind"
        )
    )]
    Target {
        /// The target of the archive.
        target: Foreign,
        /// The target of this machine.
        here: String,
    },
    /// The programs need a newer glibc.
    #[error("its programs need glibc {needed}, but this machine has {here}")]
    #[diagnostic(
        code(archive::glibc),
        help("make the archive on a system that is not newer than this one, for example in its container image")
    )]
    Glibc {
        /// The oldest glibc that the programs can use.
        needed: Glibc,
        /// The glibc of this machine.
        here: Glibc,
    },
    /// This machine cannot run models, because it has no glibc.
    #[error("this machine has no glibc")]
    #[diagnostic(code(archive::no_glibc), help("use a Linux machine with glibc (x86-64 or aarch64)"))]
    NoGlibc,
    /// A path would leave the folder, or is not portable.
    #[error("it contains the unsafe path `{}`: {why}", path.escape_debug())]
    #[diagnostic(
        code(archive::path),
        help("do not use this archive: `cargo vram archive` never writes such a path")
    )]
    Path {
        /// The path.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// An entry is not a plain file.
    #[error("its entry `{}` is {kind}, not a plain file", path.escape_debug())]
    #[diagnostic(
        code(archive::kind),
        help("do not use this archive: `cargo vram archive` writes only plain files")
    )]
    Kind {
        /// The path.
        path: String,
        /// The kind of entry, with its article.
        kind: &'static str,
    },
    /// The header of an entry has fields that this tool does not write.
    #[error("its entry `{}` has a header that `cargo vram archive` does not write", .0.escape_debug())]
    #[diagnostic(
        code(archive::header),
        help("make it again with `cargo vram archive`, and do not repack it")
    )]
    Header(String),
    /// The archive contains a file twice.
    #[error("it contains `{}` twice", .0.escape_debug())]
    #[diagnostic(code(archive::duplicate), help("make it again with `cargo vram archive`"))]
    Duplicate(String),
    /// A path is a file and also the folder of another file.
    #[error("it contains `{}` both as a file and as a folder", .0.escape_debug())]
    #[diagnostic(code(archive::overlap), help("make it again with `cargo vram archive`"))]
    Overlap(String),
    /// The manifest does not list a file.
    #[error("it contains `{}`, which its manifest does not list", .0.escape_debug())]
    #[diagnostic(code(archive::unlisted), help("make it again with `cargo vram archive`"))]
    Unlisted(String),
    /// A required file is missing.
    #[error("it does not contain `{}`, which its manifest requires", .0.escape_debug())]
    #[diagnostic(code(archive::missing), help("make it again with `cargo vram archive`"))]
    Missing(String),
    /// A file does not have the length in the manifest.
    #[error("its file `{}` has {actual}, but its manifest says {expected}", path.escape_debug())]
    #[diagnostic(code(archive::size), help("make it again with `cargo vram archive`"))]
    Size {
        /// The path.
        path: String,
        /// The length of the file.
        actual: Bytes,
        /// The length in the manifest.
        expected: Bytes,
    },
    /// A file does not have the hash in the manifest.
    #[error("its file `{}` does not match the hash in its manifest", .0.escape_debug())]
    #[diagnostic(
        code(archive::changed),
        help("copy it again, or make it again with `cargo vram archive`")
    )]
    Changed(String),
    /// The archive has too many files or folders.
    #[error("it contains more than 10000 files and folders")]
    #[diagnostic(code(archive::too_many), help("make one archive per package (-p)"))]
    TooMany,
    /// The files of the archive are too large.
    #[error("its files have a total size of {0}, but at most 8 GiB are allowed")]
    #[diagnostic(code(archive::too_large), help("make one archive per package (-p)"))]
    TooLarge(Bytes),
    /// The archive's files are much larger than the archive.
    #[error("it is {packed}, but it would unpack to {unpacked}, more than {MOST_RATIO} times as much")]
    #[diagnostic(
        code(archive::inflated),
        help("do not use it: programs compress to about a sixth, so this is not an archive of programs alone")
    )]
    Inflated {
        /// The size of the archive.
        packed: Bytes,
        /// The total size of its files.
        unpacked: Bytes,
    },
}

pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ArchiveError + use<> {
    let path = path.to_owned();
    move |source| ArchiveError::Io { action, path, source }
}
