//! Builds the declared targets with the user's Cargo, lock file, features and profile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use camino::Utf8PathBuf;
use cargo_metadata::diagnostic::DiagnosticLevel;
use cargo_metadata::{CompilerMessage, Message};

use super::declared::option;
use super::kernels::KernelCrates;
use super::refusal::CargoRefusal;
use super::select::{cargo_command, not_started};
use super::{DeclaredTarget, KernelCompiler, Selection, Workspace, WorkspaceError};
use crate::report::{ErrorCode, Problem};

/// The options of a build.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// The name of the profile, from `--release` or `--cargo-profile`.
    pub profile: Option<String>,
    /// Whether to run Cargo with `--quiet`.
    pub quiet: bool,
}

/// A built target.
#[derive(Debug, Clone)]
pub struct Built {
    /// The target.
    pub target: DeclaredTarget,
    /// The path of the executable.
    pub executable: Utf8PathBuf,
    /// Whether the executable was built here, from the package's folder. An archive was packed elsewhere.
    pub is_local: bool,
    /// A hash over the crates that generate the target's kernels.
    ///
    /// `None` if a local package may contain kernels, because its code changes without a new version.
    pub kernel_code: Option<String>,
    /// The compiler of the target's kernels.
    pub kernel_compiler: KernelCompiler,
}

/// A progress event of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Building<'a> {
    /// A crate is ready.
    Compiled {
        /// The name of the crate.
        name: &'a str,
        /// Whether the crate was compiled before this build, as Cargo reports it.
        fresh: bool,
        /// The number of packages that are ready.
        done: usize,
        /// The number of packages in the build. Known only if the build takes longer than three seconds.
        total: Option<usize>,
    },
    /// Cargo compiles cargo-vram with these of its features, which only some commands need.
    OnDemand(&'a [&'a str]),
    /// Cargo waits for this resource, such as a file lock.
    Waits(&'a str),
    /// Cargo continues after a wait.
    Goes,
}

/// Builds targets and reports events to `progress`.
///
/// A target that does not compile becomes a problem. The other targets are built anyway.
///
/// # Errors
/// If Cargo cannot be started.
pub fn build(
    workspace: &Workspace,
    selection: &Selection,
    options: &BuildOptions,
    targets: &[DeclaredTarget],
    progress: impl Fn(Building<'_>) + Sync,
) -> Result<(Vec<Built>, Vec<Problem>), WorkspaceError> {
    let mut built = Vec::new();
    let (unsupported, targets): (Vec<_>, Vec<_>) = targets
        .iter()
        .cloned()
        .partition(|target| is_fused_by_burn(target, selection));
    let mut problems: Vec<Problem> = unsupported.iter().map(cannot_unfuse).collect();
    // One build unifies features over its packages. To keep models for two versions of Burn from being built with both
    // adapters, build them separately.
    let minor = |burn: &str| burn.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    // The target's name counts, too, because Cargo's `--bench NAME` applies to every package of a build.
    let kind = |target: &DeclaredTarget| (minor(target.burn.raw()), target.option, target.name.clone());
    let kinds: BTreeSet<_> = targets.iter().map(kind).collect();
    for builds in kinds {
        let wanted: Vec<_> = targets.iter().filter(|target| kind(target) == builds).collect();
        let (executables, compiled, failures) = cargo_build(workspace, selection, options, &wanted, &progress)?;
        for target in wanted {
            match executables.get(&target.package_id) {
                Some(executable) => built.push(Built {
                    target: target.clone(),
                    executable: executable.clone(),
                    is_local: true,
                    kernel_code: workspace.kernel_code(target, &compiled),
                    kernel_compiler: target.kernel_compiler(compiled.chooses_nvrtc),
                }),
                None => problems.push(Problem {
                    package: target.package.clone(),
                    target: Some(target.name.clone()),
                    code: ErrorCode::BuildFailed,
                    message: failures.message(target).into(),
                    help: Some(failures.help(target, selection, options).into()),
                }),
            }
        }
    }
    Ok((built, problems))
}

/// The features of cargo-vram that models of Burn 0.21 need only for some commands. Models of Burn 0.22 always have
/// them.
const ON_DEMAND: [&str; 3] = [EXPLAIN, WHAT_IF, CHECKPOINTING];
/// The feature that makes models report every operation.
pub(crate) const EXPLAIN: &str = "cargo-vram/explain";
/// The feature that allows models to run with another optimizer.
pub(crate) const WHAT_IF: &str = "cargo-vram/what-if";
/// The feature that makes autodiff keep less memory for the backward phase.
pub(crate) const CHECKPOINTING: &str = "cargo-vram/checkpointing";
/// The feature that switches fusion off.
pub(crate) const NO_FUSION: &str = "cargo-vram/no-fusion";

/// Whether the selection asks for no fusion, but only a feature of the target's version of Burn can switch fusion off.
fn is_fused_by_burn(target: &DeclaredTarget, selection: &Selection) -> bool {
    let names = |asked: &str| asked.split([',', ' ']).any(|name| name == NO_FUSION);
    target.explains_in_every_build() && selection.features.iter().any(|asked| names(asked))
}

fn cannot_unfuse(target: &DeclaredTarget) -> Problem {
    Problem {
        package: target.package.clone(),
        target: Some(target.name.clone()),
        code: ErrorCode::UnsupportedBurn,
        message: format!(
            "`--no-fusion` cannot switch fusion off for {}, which uses Burn {}",
            target.package, target.burn
        )
        .into(),
        help: Some(
            "build without Burn's Cargo feature `fusion` to see the values without fusion; Burn 0.22 fuses \
             operations if that feature is on"
                .into(),
        ),
    }
}

/// Returns the selected feature options without those that the target's version of Burn does not need.
fn features<'a>(selection: &'a Selection, target: &DeclaredTarget) -> Vec<&'a str> {
    let mut features: Vec<&str> = Vec::new();
    for asked in &selection.features {
        let is_needless = target.explains_in_every_build() && ON_DEMAND.contains(&asked.as_str());
        match is_needless {
            // Remove the option name (`--features`) that precedes it, too.
            true => drop(features.pop()),
            false => features.push(asked),
        }
    }
    features
}

/// Returns the selected features of cargo-vram that only some commands need.
fn on_demand<'a>(selection: &'a Selection, target: &DeclaredTarget) -> Vec<&'a str> {
    let mut features = features(selection, target);
    features.retain(|asked| ON_DEMAND.contains(asked) || *asked == NO_FUSION);
    features
}

/// The cause of a failed build.
enum BuildFailure {
    /// The compiler found errors.
    Errors,
    /// A signal ended Cargo or a compiler, usually because the machine ran out of memory.
    Signal,
    /// Cargo itself failed.
    Other,
}

/// The failures of one build.
#[derive(Default)]
struct Failures {
    /// The errors of compilers, each with the package id and the rendered error.
    errors: Vec<(String, String)>,
    /// The text that Cargo wrote to standard error.
    words: String,
    /// The exit status of Cargo.
    status: ExitStatus,
}

impl Failures {
    /// Returns the message about a target. Says that it does not compile only if a compiler reported errors.
    fn message(&self, target: &DeclaredTarget) -> String {
        let DeclaredTarget { name, package, .. } = target;
        let what = match (self.cause(target), self.status.signal()) {
            (BuildFailure::Errors, _) => format!("`{name}` of {package} does not compile"),
            (BuildFailure::Signal, Some(signal)) => format!("signal {signal} ended the build of `{name}` of {package}"),
            (BuildFailure::Signal, None) => format!("a signal ended a process in the build of `{name}` of {package}"),
            (BuildFailure::Other, _) => format!("Cargo could not build `{name}` of {package}"),
        };
        format!("{what}\n{}", self.of(target).trim_end())
    }

    /// Returns the help for a target: what the user can do.
    fn help(&self, target: &DeclaredTarget, selection: &Selection, options: &BuildOptions) -> String {
        let command = same_build(target, selection, options);
        match self.cause(target) {
            // Only a build for `explain` has this type. Errors name it if a model needs more than Burn's own backend
            // traits.
            BuildFailure::Errors if self.names_observed(target, selection) => observed_help(target),
            BuildFailure::Errors if self.lacks_train(target) => {
                format!(
                    "enable the feature `train` of burn in the manifest of {}, because the feature `train` of cargo-vram \
                     needs it; or remove `train` from the features of cargo-vram, and train without `TrainStep`",
                    target.package
                )
            }
            BuildFailure::Errors => format!("correct these errors; {command} shows them again"),
            BuildFailure::Signal => format!(
                "set CARGO_BUILD_JOBS=1 if the machine ran out of memory (fewer jobs need less), or run {command} \
                 separately"
            ),
            BuildFailure::Other => match CargoRefusal::parse(&self.words) {
                CargoRefusal::Other => format!("correct what Cargo names; {command} shows the same error again"),
                refusal => refusal.help(selection),
            },
        }
    }

    /// Whether the errors name the backend of `explain`. The project may have its own type named `Observed`.
    fn names_observed(&self, target: &DeclaredTarget, selection: &Selection) -> bool {
        let errors = self.of(target);
        let is_explained = selection.features.iter().any(|feature| feature.contains(EXPLAIN));
        errors.contains("observed::Observed") || is_explained && errors.contains("`Observed`")
    }

    /// Whether the errors are those of cargo-vram's feature `train` beside a Burn without `train`. Cargo does not switch
    /// that on: see the feature in `Cargo.toml`.
    fn lacks_train(&self, target: &DeclaredTarget) -> bool {
        // As rustc writes it: "cannot find `train` in `burn21`".
        let errors = self.of(target);
        ["`train` in `burn21`", "`train` in `burn22`"]
            .iter()
            .any(|missing| errors.contains(missing))
    }

    /// Returns why the target was not built.
    fn cause(&self, target: &DeclaredTarget) -> BuildFailure {
        let is_own = |(package, _): &(String, String)| *package == target.package_id;
        // Cargo reports the signal that ended a compiler in this form: `(signal: 9, SIGKILL: kill)`.
        let is_signal = self.status.signal().is_some() || self.words.contains("(signal: ");
        match (self.errors.iter().any(is_own), is_signal) {
            (false, true) => BuildFailure::Signal,
            (false, false) if self.errors.is_empty() => BuildFailure::Other,
            _ => BuildFailure::Errors,
        }
    }

    /// Returns the errors of the target's own package, or else all errors, or else Cargo's own text.
    ///
    /// Returns Cargo's own text if a signal ended the build.
    fn of(&self, target: &DeclaredTarget) -> String {
        if matches!(self.cause(target), BuildFailure::Signal) {
            return self.words.clone();
        }
        let errors = |own: bool| -> String {
            let errors = self
                .errors
                .iter()
                .filter(|(package, _)| !own || *package == target.package_id);
            errors.map(|(_, error)| error.as_str()).collect()
        };
        [errors(true), errors(false)]
            .into_iter()
            .find(|errors| !errors.is_empty())
            .unwrap_or_else(|| self.words.clone())
    }
}

/// Returns the help for a model that needs more than `explain`'s backend implements.
fn observed_help(DeclaredTarget { name: target, .. }: &DeclaredTarget) -> String {
    format!(
        "implement the backend trait that a model of {target} needs, in the crate that declares the trait: \
         `cargo_vram::explained! {{ impl YourTrait for cargo_vram::probe::Observed {{}} }}`. `cargo vram explain` \
         runs models on the backend `cargo_vram::probe::Observed`, which implements only Burn's own traits. If a \
         model works with one backend type only, `explain` cannot run it: move it into another benchmark target. \
         `check`, `estimate` and `fit` need no change"
    )
}

/// Returns the package id and the rendered text of a compiler message, if it is an error.
///
/// Ignores the last message of rustc, which only counts the errors.
fn error(message: CompilerMessage) -> Option<(String, String)> {
    let diagnostic = message.message;
    let counts = diagnostic.message.starts_with("aborting due to");
    let is_error = matches!(diagnostic.level, DiagnosticLevel::Error | DiagnosticLevel::Ice) && !counts;
    diagnostic
        .rendered
        .filter(|_| is_error)
        .map(|rendered| (message.package_id.repr, rendered))
}

/// Returns Cargo's arguments that the user selected, except for the packages and targets.
fn asked<'a>(selection: &'a Selection, options: &'a BuildOptions, target: &DeclaredTarget) -> Vec<&'a str> {
    let mut asked = features(selection, target);
    asked.extend(selection.cargo_flags.iter().map(String::as_str));
    asked.extend(selection.target.iter().flat_map(|target| ["--target", target]));
    asked.extend(options.profile.iter().flat_map(|profile| ["--profile", profile]));
    asked
}

/// Returns Cargo's arguments that leave this crate unoptimized, if the build has a feature for some commands only.
///
/// Where rustc shares no generic code, optimizing takes minutes, but such a build runs only a few passes. No memory value
/// depends on the optimization. See docs/design/builds.md.
fn unoptimized(
    workspace: &Workspace,
    selection: &Selection,
    options: &BuildOptions,
    target: &DeclaredTarget,
) -> Option<[String; 2]> {
    if on_demand(selection, target).is_empty() {
        return None;
    }
    let profile = options.profile.as_deref().unwrap_or("dev");
    let spec = workspace.spec_of_this_crate(profile)?;
    Some([
        "--config".to_owned(),
        // The debug form is a TOML string: a spec such as `a@1.0.0` needs the quotes.
        format!("profile.{profile}.package.{spec:?}.opt-level=0"),
    ])
}

/// Returns the command that runs the same build, for a message.
fn same_build(target: &DeclaredTarget, selection: &Selection, options: &BuildOptions) -> String {
    let mut words = vec!["-p", &target.package, target.option, target.name.raw()];
    words.extend(asked(selection, options, target));
    let manifest = selection.manifest_path.iter();
    words.extend(manifest.flat_map(|path| ["--manifest-path", path.as_str()]));
    // Quote words that a shell would split or expand.
    let quoted = |word: &str| match word.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_./=,:@".contains(c)) {
        true => format!(" '{word}'"),
        false => format!(" {word}"),
    };
    let words: String = words.into_iter().map(quoted).collect();
    format!("`cargo build{words}`")
}

/// Runs Cargo once. Returns the executables by package id, how packages were compiled, and the failures.
fn cargo_build(
    workspace: &Workspace,
    selection: &Selection,
    options: &BuildOptions,
    wanted: &[&DeclaredTarget],
    progress: &(impl Fn(Building<'_>) + Sync),
) -> Result<(BTreeMap<String, Utf8PathBuf>, KernelCrates, Failures), WorkspaceError> {
    // No `current_dir`: Cargo and rustup look for their configuration from the user's own folder.
    // See docs/design/base.md.
    let mut command = cargo_command();
    // `--keep-going`: a target that does not compile must hide nothing about those beside it.
    command.arg("build").args(["--message-format=json", "--keep-going"]);
    command.args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()]);
    for target in wanted {
        command.args(["-p", &target.package_id]);
    }
    command.args([wanted[0].option, wanted[0].name.raw()]);
    command.args(asked(selection, options, wanted[0]));
    command.args(
        unoptimized(workspace, selection, options, wanted[0])
            .into_iter()
            .flatten(),
    );
    // Cargo's output is parsed, so it must not contain colors.
    command.env("CARGO_TERM_COLOR", "never");
    if options.quiet {
        command.arg("--quiet");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let on_demand = on_demand(selection, wanted[0]);
    let counted = Counted::default();
    let mut child = command.spawn().map_err(not_started)?;
    let (mut executables, mut compiled) = (BTreeMap::new(), KernelCrates::default());
    let mut failures = Failures::default();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Read both pipes in parallel, because a full pipe would block the build.
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        scope.spawn(|| counted.ask(workspace, selection, wanted, ended));
        let mut packages = BTreeSet::new();
        let words = scope.spawn(|| {
            stderr
                .map(|stderr| words(stderr, &on_demand, progress))
                .unwrap_or_default()
        });
        let messages = stdout.map(|stdout| Message::parse_stream(BufReader::new(stdout)));
        for message in messages.into_iter().flatten().map_while(Result::ok) {
            match message {
                Message::CompilerArtifact(artifact) => {
                    packages.insert(artifact.package_id.repr.clone());
                    compiled.add(&artifact);
                    progress(Building::Compiled {
                        name: &artifact.target.name,
                        fresh: artifact.fresh,
                        done: packages.len(),
                        total: counted.total(packages.len()),
                    });
                    // For a benchmark, Cargo builds the package's binaries, too. Ignore them.
                    let kind = artifact.target.kind.first().and_then(option);
                    let is_wanted = artifact.target.name == wanted[0].name && kind == Some(wanted[0].option);
                    if let Some(executable) = artifact.executable.filter(|_| is_wanted) {
                        executables.insert(artifact.package_id.repr.clone(), executable);
                    }
                }
                Message::CompilerMessage(message) => failures.errors.extend(error(message)),
                _ => {}
            }
        }
        failures.words = words.join().unwrap_or_default();
        // This wakes `ask` if it still waits, and `stop` ends its Cargo. The scope waits for both.
        drop(end);
        counted.stop();
    });
    // A failed build is no error here. A target without an executable becomes a problem of the report.
    failures.status = child.wait().map_err(not_started)?;
    Ok((executables, compiled, failures))
}

/// How long a build must run before the tool asks Cargo for the number of packages.
const PATIENCE: Duration = Duration::from_secs(3);

/// The number of packages in a build, which a second Cargo process finds while the build runs.
#[derive(Default)]
struct Counted {
    /// The number of packages, or 0 until it is known.
    packages: AtomicUsize,
    /// The Cargo process that finds the number, while it runs.
    asked: Mutex<Option<Child>>,
}

impl Counted {
    /// Returns the number of packages if it is known, but at least `done`.
    ///
    /// `cargo tree` may leave out packages that the build needs.
    fn total(&self, done: usize) -> Option<usize> {
        match self.packages.load(Relaxed) {
            0 => None,
            packages => Some(packages.max(done)),
        }
    }

    /// Asks Cargo for the number of packages, unless the build ends within [`PATIENCE`].
    fn ask(&self, workspace: &Workspace, selection: &Selection, wanted: &[&DeclaredTarget], ended: mpsc::Receiver<()>) {
        if ended.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        let mut command = cargo_command();
        command.args([
            "tree",
            "--edges",
            "normal,build,dev",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        command.args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()]);
        for target in wanted {
            command.args(["-p", &target.package_id]);
        }
        // The profile does not change which packages are in the build.
        command.args(asked(selection, &BuildOptions::default(), wanted[0]));
        command
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        let stdout = child.stdout.take();
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        // The build may have ended in the meantime.
        if ended.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
            self.stop();
        }
        let mut tree = String::new();
        let read = stdout.map(|mut stdout| stdout.read_to_string(&mut tree));
        let child = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_whole = child.is_some_and(|mut child| child.wait().is_ok_and(|status| status.success()));
        if is_whole && matches!(read, Some(Ok(_))) {
            self.packages.store(packages(&tree), Relaxed);
        }
    }

    /// Ends the Cargo process, because its answer is not needed any more.
    fn stop(&self) {
        if let Some(mut child) = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Counts the packages in the output of `cargo tree`, which has one line per place of a package in the tree.
fn packages(tree: &str) -> usize {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len()
}

/// Reads everything that Cargo writes to standard error. Reports immediately when Cargo waits, and when it compiles
/// cargo-vram with the features `on_demand`.
fn words(stderr: impl Read, on_demand: &[&str], progress: impl Fn(Building<'_>)) -> String {
    const COMPILES: &str = concat!("Compiling ", env!("CARGO_PKG_NAME"), " v");
    let mut words = String::new();
    let mut waits = false;
    // Not `lines`, which ends at the first text that is not UTF-8.
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let blocking = line.trim_start().strip_prefix("Blocking ");
        match blocking {
            Some(what) => progress(Building::Waits(what)),
            None if waits => progress(Building::Goes),
            None => {}
        }
        waits = blocking.is_some();
        // Cargo prints this line before it compiles, and not for a build that already exists.
        if !on_demand.is_empty() && line.trim_start().starts_with(COMPILES) {
            progress(Building::OnDemand(on_demand));
        }
        words.push_str(&line);
        words.push('\n');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_however_often_it_is_in_the_tree() {
        let tree = "zoo v0.1.0 (/zoo)\nburn v0.21.0\nserde v1.0.0\nserde_derive v1.0.0 (proc-macro)\nburn v0.21.0 (*)\n\nserde v1.0.0 (*)\n";
        assert_eq!(packages(tree), 4);
        assert_eq!(packages(""), 0);
    }

    #[test]
    fn a_build_on_demand_is_reported_only_if_cargo_compiles_it() {
        let told = |stderr: &str, on_demand: &[&str]| {
            let events = Mutex::new(Vec::new());
            words(stderr.as_bytes(), on_demand, |event| {
                events.lock().unwrap().push(format!("{event:?}"));
            });
            events.into_inner().unwrap()
        };
        let cached = "    Blocking waiting for file lock on build directory\n    Finished `dev` profile in 0.2s\n";
        let waits = ["Waits(\"waiting for file lock on build directory\")", "Goes"];
        assert_eq!(told(cached, &[EXPLAIN]), waits);
        let own = "   Compiling zoo v0.1.0 (/zoo)\n   Compiling cargo-vram-extra v0.1.0\n";
        assert!(told(own, &[EXPLAIN]).is_empty());
        let compiled = "   Compiling cargo-vram v0.1.0\n   Compiling zoo v0.1.0 (/zoo)\n";
        assert_eq!(told(compiled, &[EXPLAIN]), ["OnDemand([\"cargo-vram/explain\"])"]);
        assert!(told(compiled, &[]).is_empty());
    }

    #[test]
    fn a_burn_without_train_is_explained() {
        let target = zoo();
        // As rustc 1.95 prints it for `features = ["burn-0_21", "train"]`, if no package enables Burn's `train`.
        let error = "error[E0433]: cannot find `train` in `burn21`\n --> src/probe/burn_0_21/train.rs:17:13\n";
        let failures = |error: &str| Failures {
            errors: vec![("path+file:///cargo-vram#0.1.0".to_owned(), error.to_owned())],
            ..Failures::default()
        };
        let help = |failures: &Failures| failures.help(&target, &Selection::default(), &BuildOptions::default());
        let told = help(&failures(error));
        assert!(told.starts_with("enable the feature `train` of burn"), "{told}");
        let told = help(&failures("error[E0425]: cannot find value `x` in this scope\n"));
        assert!(told.starts_with("correct these errors"), "{told}");
    }

    fn zoo() -> DeclaredTarget {
        DeclaredTarget {
            package: "zoo".into(),
            package_id: "path+file:///zoo#0.1.0".to_owned(),
            folder: "/zoo".into(),
            name: "vram".into(),
            option: "--bench",
            burn: "0.21.0".into(),
        }
    }

    #[test]
    fn the_command_that_shows_the_same_errors_builds_the_same() {
        let target = zoo();
        let told = |selection: &Selection, profile: Option<&str>| {
            let options = BuildOptions {
                profile: profile.map(str::to_owned),
                quiet: true,
            };
            same_build(&target, selection, &options)
        };
        assert_eq!(told(&Selection::default(), None), "`cargo build -p zoo --bench vram`");
        let selection = Selection {
            features: ["--features", "cargo-vram/explain"].map(str::to_owned).into(),
            cargo_flags: ["--config", "build.rustflags=\"-g\""].map(str::to_owned).into(),
            ..Selection::default()
        };
        assert_eq!(
            told(&selection, Some("release")),
            "`cargo build -p zoo --bench vram --features cargo-vram/explain --config 'build.rustflags=\"-g\"' --profile release`"
        );
    }
}
