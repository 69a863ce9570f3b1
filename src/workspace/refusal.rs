//! Why Cargo refused something, and what to do about it.
//!
//! Cargo ends with code 101 whatever is wrong, and `cargo metadata` has no errors as JSON. So where neither the command
//! line nor the files tell, this file reads Cargo's text; nothing else does. A text that it does not know is quoted like
//! every other one, with a help that fits all.

use super::Selection;

/// What Cargo refused, as far as the help depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no `Cargo.toml` where Cargo looked for it.
    NoManifest,
    /// A `Cargo.toml` has a mistake.
    Manifest,
    /// A path dependency or a member of the workspace is not there.
    MissingFolder,
    /// A package is in the folder of a workspace that does not list it.
    NotAMember,
    /// `Cargo.lock` has a mistake, such as a conflict that was not settled.
    LockFile,
    /// `Cargo.lock` has to change, which `--locked` forbids.
    Locked,
    /// Something has to be downloaded, which `--offline` forbids.
    Offline,
    /// Cargo could not reach a registry or a git repository.
    Network,
    /// The build script that downloads LLVM for Burn 0.22 failed.
    NoLlvm,
    /// `-p` names a package that is not in the workspace.
    UnknownPackage,
    /// A package does not have a feature.
    UnknownFeature,
    /// A registry does not have a crate.
    NoSuchCrate,
    /// No version of a crate meets a requirement.
    NoSuchVersion,
    /// Two requirements on a crate exclude each other.
    Conflict,
    /// The toolchain is older than a package asks for.
    OldToolchain,
    /// The toolchain that is asked for is not installed.
    NoToolchain,
    /// A value of Cargo's configuration is not one.
    Configuration,
    /// Something else.
    Other,
}

/// Which words of Cargo's mean what. The first line that matches counts: causes come before what follows from them.
const WORDS: &[(&str, Refusal)] = &[
    ("could not find `Cargo.toml`", Refusal::NoManifest),
    ("manifest path `", Refusal::NoManifest),
    ("because --locked was passed", Refusal::Locked),
    ("because --frozen was passed", Refusal::Locked),
    ("--offline was specified", Refusal::Offline),
    ("you're using offline mode", Refusal::Offline),
    ("in offline mode (--offline)", Refusal::Offline),
    ("lock file version", Refusal::OldToolchain),
    ("failed to parse lock file", Refusal::LockFile),
    ("believes it's in a workspace when it's not", Refusal::NotAMember),
    ("is not installed", Refusal::NoToolchain),
    ("is not supported by the following package", Refusal::OldToolchain),
    ("unknown Cargo.toml feature", Refusal::OldToolchain),
    (
        "feature is not stabilized in this version of Cargo",
        Refusal::OldToolchain,
    ),
    ("not understood by this version of Cargo", Refusal::OldToolchain),
    ("from --config argument", Refusal::Configuration),
    ("could not load Cargo configuration", Refusal::Configuration),
    ("did not match any packages", Refusal::UnknownPackage),
    ("does not contain this feature", Refusal::UnknownFeature),
    ("does not contain these features", Refusal::UnknownFeature),
    ("does not have that feature", Refusal::UnknownFeature),
    ("does not have these features", Refusal::UnknownFeature),
    ("failed to select a version for the requirement", Refusal::NoSuchVersion),
    ("no matching package", Refusal::NoSuchCrate),
    ("failed to select a version for", Refusal::Conflict),
    ("network failure", Refusal::Network),
    ("spurious network error", Refusal::Network),
    ("failed to download", Refusal::Network),
    ("failed to clone", Refusal::Network),
    ("No such file or directory", Refusal::MissingFolder),
    ("failed to parse manifest", Refusal::Manifest),
    (" --> ", Refusal::Manifest),
];

impl Refusal {
    /// What Cargo's text says.
    pub(crate) fn read(text: &str) -> Self {
        // What a build script prints is its own matter, and warnings before the error are none of it.
        if let Some((_, script)) = text.split_once("failed to run custom build command for `") {
            return if script.starts_with("tracel-llvm-bundler ") {
                Self::NoLlvm
            } else {
                Self::Other
            };
        }
        let start = text.find("error: ").unwrap_or(0);
        let text = &text[start..];
        let known = WORDS.iter().find(|(words, _)| text.contains(words));
        known.map_or(Self::Other, |(_, refusal)| *refusal)
    }

    /// Whether another try with the network can succeed.
    pub(crate) fn may_need_network(self) -> bool {
        // What is not in the local copy of a registry is a missing crate or version there.
        matches!(
            self,
            Self::Offline | Self::Network | Self::NoSuchCrate | Self::NoSuchVersion | Self::Conflict
        )
    }

    /// What to do about it.
    pub(crate) fn help(self, selection: &Selection) -> String {
        let has = |flag: &str| selection.cargo_flags.iter().any(|given| given == flag);
        let help = match self {
            Self::NoManifest => "run the command in a Cargo workspace, or name one with --manifest-path",
            Self::Manifest => "correct the manifest where Cargo points, then run the command again",
            Self::MissingFolder => {
                "a path dependency or a workspace member is not in its folder: check it out there, or correct its path in Cargo.toml"
            }
            Self::NotAMember => {
                "add the package to `members` of the workspace, or run the command in a folder of the workspace"
            }
            Self::LockFile => {
                "settle the conflict in Cargo.lock, or take the file from the last commit: `git checkout HEAD -- Cargo.lock`"
            }
            Self::Locked => "run the command once without --locked, and commit the Cargo.lock that Cargo writes",
            Self::Offline if has("--offline") => "run `cargo fetch` while there is a network, or leave out --offline",
            Self::Offline => {
                "Cargo is configured to work offline: run `cargo fetch` with `CARGO_NET_OFFLINE=false` while there is a network"
            }
            Self::Network => {
                "see whether the network and the registry can be reached (`cargo fetch`); if all crates were downloaded before, pass --offline"
            }
            Self::NoLlvm => {
                "Burn 0.22 compiles kernels with LLVM, which this build script downloads once, to `tracel` below `$XDG_DATA_HOME` (by default \
                 `~/.local/share`): build once where the network can be reached, or copy that folder from a machine that has it"
            }
            Self::UnknownPackage => "name a package of this workspace with -p; `cargo metadata --no-deps` lists them",
            Self::UnknownFeature => "name a feature that the package has in `[features]` of its Cargo.toml",
            Self::NoSuchCrate => {
                "correct the crate's name in Cargo.toml, or name the registry, path or git repository that has it"
            }
            Self::NoSuchVersion => "ask for a version that exists, in Cargo.toml of the package that Cargo names",
            Self::Conflict => {
                "make the requirements that Cargo names agree in Cargo.toml; if Cargo.lock pins one of them, `cargo update -p CRATE` moves it"
            }
            Self::OldToolchain => {
                "update Rust (`rustup update`), or the version in rust-toolchain.toml; or use a version of the crate that supports yours"
            }
            Self::NoToolchain => "install the toolchain that Cargo names: `rustup toolchain install NAME`",
            Self::Configuration => "correct --config, or the file .cargo/config.toml that Cargo names",
            Self::Other => {
                "`cargo metadata --format-version 1 > /dev/null` shows the same; correct what Cargo names there"
            }
        };
        help.to_owned()
    }
}

/// Cargo's own words without its progress and the stack that rustup adds: what a message quotes.
pub(crate) fn quote(text: &str) -> String {
    let text = text.split("\nStack backtrace:").next().unwrap_or(text);
    let begin = text.lines().position(|line| line.starts_with("error"));
    let lines: Vec<_> = text.lines().skip(begin.unwrap_or(0)).collect();
    crate::report::human::text::clean(lines.join("\n").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Cargo 1.95 prints.
    const SAID: &[(Refusal, &str)] = &[
        (
            Refusal::NoManifest,
            "error: could not find `Cargo.toml` in `/tmp/none` or any parent directory",
        ),
        (
            Refusal::NoManifest,
            "error: manifest path `nowhere/Cargo.toml` does not exist",
        ),
        (
            Refusal::Manifest,
            "error: key with no value, expected `=`\n --> Cargo.toml:5:5\n  |\n5 | oops\n  |     ^",
        ),
        (
            Refusal::Manifest,
            "error: failed to parse manifest at `/x/Cargo.toml`\n\nCaused by:\n  no targets specified in the manifest",
        ),
        (
            Refusal::MissingFolder,
            "error: failed to get `y` as a dependency of package `x v0.1.0 (/x)`\n\nCaused by:\n  failed to read `/yy/Cargo.toml`\n\nCaused by:\n  No such file or directory (os error 2)",
        ),
        (
            Refusal::NotAMember,
            "error: current package believes it's in a workspace when it's not:\ncurrent:   /x/sub/Cargo.toml",
        ),
        (
            Refusal::LockFile,
            "error: failed to parse lock file at: /x/Cargo.lock\n\nCaused by:\n  TOML parse error at line 1, column 9",
        ),
        (
            Refusal::Locked,
            "    Updating crates.io index\nerror: cannot update the lock file /x/Cargo.lock because --locked was passed to prevent this",
        ),
        (
            Refusal::Offline,
            "error: failed to download `itoa v1.0.0`\n\nCaused by:\n  attempting to make an HTTP request, but --offline was specified",
        ),
        (
            Refusal::Offline,
            "error: no matching package named `itoa` found\nlocation searched: crates.io index\nAs a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures",
        ),
        (
            Refusal::Network,
            "warning: spurious network error (1 try remaining): failed to connect to localhost\nerror: failed to get `y` as a dependency of package `x v0.1.0 (/x)`\n\nCaused by:\n  failed to clone into: /y",
        ),
        (
            Refusal::NoLlvm,
            "error: failed to run custom build command for `tracel-llvm-bundler v23.1.0-4`\n\nCaused by:\n  process didn't exit successfully: `/x/build-script-build` (exit status: 101)\n  --- stderr\n  called `Result::unwrap()` on an `Err` value: Io(Custom { kind: Uncategorized, error: \"failed to lookup address information: Name or service not known\" })",
        ),
        (
            Refusal::UnknownPackage,
            "error: package ID specification `zzz` did not match any packages",
        ),
        (
            Refusal::UnknownFeature,
            "error: the package 'x' does not contain this feature: nope",
        ),
        (
            Refusal::NoSuchCrate,
            "error: no matching package named `nowhere` found\nlocation searched: crates.io index",
        ),
        (
            Refusal::NoSuchVersion,
            "error: failed to select a version for the requirement `itoa = \"^99\"`\ncandidate versions found which didn't match: 1.0.19",
        ),
        (
            Refusal::Conflict,
            "error: failed to select a version for `burn`.\n    ... required by package `cargo-vram v0.1.0`\nversions that meet the requirements `^0.21` are: 0.21.0\n\nall possible versions conflict with previously selected packages.",
        ),
        (
            Refusal::OldToolchain,
            "error: rustc 1.95.0 is not supported by the following package:\n  x@0.1.0 requires rustc 1.999",
        ),
        (
            Refusal::NoToolchain,
            "error: toolchain '1.10.0-x86_64-unknown-linux-gnu' is not installed",
        ),
        (
            Refusal::Configuration,
            "error: failed to parse value from --config argument `build.foo` as a dotted key expression",
        ),
        (Refusal::Other, "error: something that Cargo says from tomorrow on"),
    ];

    #[test]
    fn each_refusal_of_cargo_is_known_and_has_a_help_of_its_own() {
        let mut helps = std::collections::BTreeSet::new();
        for (refusal, said) in SAID {
            assert_eq!(Refusal::read(said), *refusal, "{said}");
            helps.insert(refusal.help(&Selection::default()));
        }
        let kinds: std::collections::HashSet<_> = SAID.iter().map(|(refusal, _)| format!("{refusal:?}")).collect();
        assert_eq!(helps.len(), kinds.len());
    }

    #[test]
    fn a_quote_of_cargo_begins_with_its_error_and_steers_no_terminal() {
        let said =
            "    Updating crates.io index\nerror: \u{1b}[2Jgone\nhelp: do this\n\nStack backtrace:\n   0: main\n";
        assert_eq!(quote(said), "error: \u{fffd}[2Jgone\nhelp: do this");
        assert_eq!(quote("no error line"), "no error line");
    }
}
