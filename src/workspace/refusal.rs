//! Recognizes Cargo's errors, and returns a help for each.
//!
//! Cargo exits with code 101 for every error, and `cargo metadata` does not write errors as JSON. So if neither the
//! command line nor the files show the cause, this module parses Cargo's text. No other module does. An unknown text
//! gets a general help; messages quote Cargo in any case.

use super::Selection;

/// The kind of an error of Cargo. Each kind has its own help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CargoRefusal {
    /// Cargo did not find a `Cargo.toml`.
    NoManifest,
    /// A `Cargo.toml` has a mistake.
    Manifest,
    /// The folder of a path dependency or workspace member does not exist.
    MissingFolder,
    /// A package is in the folder of a workspace that does not list it as a member.
    NotAMember,
    /// `Cargo.lock` is not valid, for example because of an unresolved merge conflict.
    LockFile,
    /// `Cargo.lock` must change, but `--locked` forbids that.
    Locked,
    /// Cargo must download something, but `--offline` forbids that.
    Offline,
    /// Cargo could not reach a registry or a git repository.
    Network,
    /// The build script that downloads LLVM for Burn 0.22 failed.
    NoLlvm,
    /// `-p` names a package that is not in the workspace.
    UnknownPackage,
    /// A package does not have a selected feature.
    UnknownFeature,
    /// A registry does not have a crate.
    NoSuchCrate,
    /// No version of a crate meets a requirement.
    NoSuchVersion,
    /// Two requirements on a crate conflict.
    Conflict,
    /// The toolchain is older than a package requires.
    OldToolchain,
    /// The selected toolchain is not installed.
    NoToolchain,
    /// A value in Cargo's configuration is not valid.
    Configuration,
    /// Any other error.
    Other,
}

/// The parts of Cargo's messages that identify each error. The first match counts, so causes come before their
/// consequences.
const WORDS: &[(&str, CargoRefusal)] = &[
    ("could not find `Cargo.toml`", CargoRefusal::NoManifest),
    ("manifest path `", CargoRefusal::NoManifest),
    ("because --locked was passed", CargoRefusal::Locked),
    ("because --frozen was passed", CargoRefusal::Locked),
    // Before the words for downloads and missing packages, which Cargo prints in the same message.
    ("--offline was specified", CargoRefusal::Offline),
    ("you're using offline mode", CargoRefusal::Offline),
    ("in offline mode (--offline)", CargoRefusal::Offline),
    // Before the next line, because Cargo says for a newer format that it failed to parse the lock file.
    ("lock file version", CargoRefusal::OldToolchain),
    ("failed to parse lock file", CargoRefusal::LockFile),
    ("believes it's in a workspace when it's not", CargoRefusal::NotAMember),
    ("is not installed", CargoRefusal::NoToolchain),
    ("is not supported by the following package", CargoRefusal::OldToolchain),
    ("unknown Cargo.toml feature", CargoRefusal::OldToolchain),
    (
        "feature is not stabilized in this version of Cargo",
        CargoRefusal::OldToolchain,
    ),
    ("not understood by this version of Cargo", CargoRefusal::OldToolchain),
    ("from --config argument", CargoRefusal::Configuration),
    ("could not load Cargo configuration", CargoRefusal::Configuration),
    ("did not match any packages", CargoRefusal::UnknownPackage),
    ("does not contain this feature", CargoRefusal::UnknownFeature),
    ("does not contain these features", CargoRefusal::UnknownFeature),
    ("does not have that feature", CargoRefusal::UnknownFeature),
    ("does not have these features", CargoRefusal::UnknownFeature),
    (
        "failed to select a version for the requirement",
        CargoRefusal::NoSuchVersion,
    ),
    ("no matching package", CargoRefusal::NoSuchCrate),
    ("failed to select a version for", CargoRefusal::Conflict),
    ("network failure", CargoRefusal::Network),
    ("spurious network error", CargoRefusal::Network),
    ("failed to download", CargoRefusal::Network),
    ("failed to clone", CargoRefusal::Network),
    // As late as possible, because many messages contain these words of the operating system.
    ("No such file or directory", CargoRefusal::MissingFolder),
    ("failed to parse manifest", CargoRefusal::Manifest),
    (" --> ", CargoRefusal::Manifest),
];

impl CargoRefusal {
    /// Recognizes the error in Cargo's text.
    pub(crate) fn parse(text: &str) -> Self {
        // The output of a build script is not Cargo's text, and neither are warnings before the error part of the
        // error.
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

    /// Whether the command may succeed with network access.
    pub(crate) fn may_need_network(self) -> bool {
        // Without network access, Cargo reports a crate or version as missing if the local copy of the registry lacks
        // it.
        matches!(
            self,
            Self::Offline | Self::Network | Self::NoSuchCrate | Self::NoSuchVersion | Self::Conflict
        )
    }

    /// Returns the help: what the user can do.
    pub(crate) fn help(self, selection: &Selection) -> String {
        let has = |flag: &str| selection.cargo_flags.iter().any(|given| given == flag);
        let help = match self {
            Self::NoManifest => "run the command in a Cargo workspace, or name one with --manifest-path",
            Self::Manifest => "correct the manifest at the place that Cargo shows, and run the command again",
            Self::MissingFolder => {
                "check out the missing path dependency or workspace member, or correct its path in Cargo.toml"
            }
            Self::NotAMember => {
                "add the package to `members` of the workspace, or run the command in a folder of the workspace"
            }
            Self::LockFile => {
                "resolve the conflict in Cargo.lock, or restore the file from the last commit: `git checkout HEAD -- \
                 Cargo.lock`"
            }
            Self::Locked => "run the command once without --locked, and commit the Cargo.lock that Cargo writes",
            Self::Offline if has("--offline") => "run `cargo fetch` with network access, or leave out --offline",
            Self::Offline => {
                "run `CARGO_NET_OFFLINE=false cargo fetch` with network access; Cargo is configured to work offline"
            }
            Self::Network => {
                "check the connection to the network and the registry with `cargo fetch`; if all crates are \
                 downloaded already, pass --offline"
            }
            Self::NoLlvm => {
                "build once with network access, or copy the folder `tracel` in `$XDG_DATA_HOME` (default: \
                 `~/.local/share`) from a machine that has it; this build script downloads LLVM to that folder once, \
                 because Burn 0.22 compiles kernels with LLVM"
            }
            Self::UnknownPackage => {
                "name a package of this workspace with -p; run `cargo metadata --no-deps` to list the packages"
            }
            Self::UnknownFeature => "name a feature that `[features]` in the package's Cargo.toml contains",
            Self::NoSuchCrate => {
                "correct the crate's name in Cargo.toml, or name the registry, path or git repository that has the \
                 crate"
            }
            Self::NoSuchVersion => "require a version that exists, in the Cargo.toml of the package that Cargo names",
            Self::Conflict => {
                "make the requirements that Cargo names compatible in Cargo.toml; if Cargo.lock pins one of the \
                 crates, run `cargo update -p CRATE`"
            }
            Self::OldToolchain => {
                "update Rust with `rustup update` or in rust-toolchain.toml, or use a version of the crate that \
                 supports your Rust"
            }
            Self::NoToolchain => "install the toolchain that Cargo names: `rustup toolchain install NAME`",
            Self::Configuration => "correct --config, or the .cargo/config.toml that Cargo names",
            Self::Other => {
                "correct what Cargo names; `cargo metadata --format-version 1 > /dev/null` shows the same error again"
            }
        };
        help.to_owned()
    }
}

/// Returns Cargo's error message for a quote, without Cargo's progress and the stack that rustup adds.
pub(crate) fn quote(text: &str) -> String {
    let text = text.split("\nStack backtrace:").next().unwrap_or(text);
    let begin = text.lines().position(|line| line.starts_with("error"));
    let lines: Vec<_> = text.lines().skip(begin.unwrap_or(0)).collect();
    // Cargo may quote a manifest whose characters would steer the terminal.
    crate::untrusted::clean(lines.join("\n").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that Cargo 1.95 prints.
    const SAID: &[(CargoRefusal, &str)] = &[
        (
            CargoRefusal::NoManifest,
            "error: could not find `Cargo.toml` in `/tmp/none` or any parent directory",
        ),
        (
            CargoRefusal::NoManifest,
            "error: manifest path `nowhere/Cargo.toml` does not exist",
        ),
        (
            CargoRefusal::Manifest,
            "error: key with no value, expected `=`\n --> Cargo.toml:5:5\n  |\n5 | oops\n  |     ^",
        ),
        (
            CargoRefusal::Manifest,
            "error: failed to parse manifest at `/x/Cargo.toml`\n\nCaused by:\n  no targets specified in the manifest",
        ),
        (
            CargoRefusal::MissingFolder,
            "error: failed to get `y` as a dependency of package `x v0.1.0 (/x)`\n\nCaused by:\n  failed to read `/yy/Cargo.toml`\n\nCaused by:\n  No such file or directory (os error 2)",
        ),
        (
            CargoRefusal::NotAMember,
            "error: current package believes it's in a workspace when it's not:\ncurrent:   /x/sub/Cargo.toml",
        ),
        (
            CargoRefusal::LockFile,
            "error: failed to parse lock file at: /x/Cargo.lock\n\nCaused by:\n  TOML parse error at line 1, column 9",
        ),
        (
            CargoRefusal::Locked,
            "    Updating crates.io index\nerror: cannot update the lock file /x/Cargo.lock because --locked was passed to prevent this",
        ),
        (
            CargoRefusal::Offline,
            "error: failed to download `itoa v1.0.0`\n\nCaused by:\n  attempting to make an HTTP request, but --offline was specified",
        ),
        (
            CargoRefusal::Offline,
            "error: no matching package named `itoa` found\nlocation searched: crates.io index\nAs a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures",
        ),
        (
            CargoRefusal::Network,
            "warning: spurious network error (1 try remaining): failed to connect to localhost\nerror: failed to get `y` as a dependency of package `x v0.1.0 (/x)`\n\nCaused by:\n  failed to clone into: /y",
        ),
        (
            CargoRefusal::NoLlvm,
            "error: failed to run custom build command for `tracel-llvm-bundler v23.1.0-4`\n\nCaused by:\n  process didn't exit successfully: `/x/build-script-build` (exit status: 101)\n  --- stderr\n  called `Result::unwrap()` on an `Err` value: Io(Custom { kind: Uncategorized, error: \"failed to lookup address information: Name or service not known\" })",
        ),
        (
            CargoRefusal::UnknownPackage,
            "error: package ID specification `zzz` did not match any packages",
        ),
        (
            CargoRefusal::UnknownFeature,
            "error: the package 'x' does not contain this feature: nope",
        ),
        (
            CargoRefusal::NoSuchCrate,
            "error: no matching package named `nowhere` found\nlocation searched: crates.io index",
        ),
        (
            CargoRefusal::NoSuchVersion,
            "error: failed to select a version for the requirement `itoa = \"^99\"`\ncandidate versions found which didn't match: 1.0.19",
        ),
        (
            CargoRefusal::Conflict,
            "error: failed to select a version for `burn`.\n    ... required by package `cargo-vram v0.1.0`\nversions that meet the requirements `^0.21` are: 0.21.0\n\nall possible versions conflict with previously selected packages.",
        ),
        (
            CargoRefusal::OldToolchain,
            "error: rustc 1.95.0 is not supported by the following package:\n  x@0.1.0 requires rustc 1.999",
        ),
        (
            CargoRefusal::NoToolchain,
            "error: toolchain '1.10.0-x86_64-unknown-linux-gnu' is not installed",
        ),
        (
            CargoRefusal::Configuration,
            "error: failed to parse value from --config argument `build.foo` as a dotted key expression",
        ),
        (CargoRefusal::Other, "error: something that Cargo says from tomorrow on"),
    ];

    #[test]
    fn each_refusal_of_cargo_is_known_and_has_a_help_of_its_own() {
        let mut helps = std::collections::BTreeSet::new();
        for (refusal, said) in SAID {
            assert_eq!(CargoRefusal::parse(said), *refusal, "{said}");
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
