//! Builds the declared targets with the user's own Cargo, lock file, features and profile.

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
use super::kernels::Compiled;
use super::refusal::Refusal;
use super::select::{cargo_command, not_started};
use super::{DeclaredTarget, KernelCompiler, Selection, Workspace, WorkspaceError};
use crate::report::{ErrorCode, Problem};

/// How targets are built.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// `--release` or `--cargo-profile`: the profile's name.
    pub profile: Option<String>,
    /// Cargo's own progress and compiler messages are kept from the terminal unless something fails.
    pub quiet: bool,
}

/// A target that was built.
#[derive(Debug, Clone)]
pub struct Built {
    /// The target.
    pub target: DeclaredTarget,
    /// Its executable.
    pub executable: Utf8PathBuf,
    /// A hash over the crates that generate its kernels, where these are the same in other programs and after a change of the
    /// models.
    pub kernel_code: Option<String>,
    /// What compiles its kernels.
    pub kernel_compiler: KernelCompiler,
}

/// What happens in a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Building<'a> {
    /// A crate is there.
    Compiled {
        /// Its name.
        name: &'a str,
        /// Whether it was compiled in this build, rather than before.
        fresh: bool,
        /// So many packages are there now.
        done: usize,
        /// How many this build consists of, where it takes long enough for Cargo to have been asked.
        total: Option<usize>,
    },
    /// Cargo waits, and says for what.
    Waits(&'a str),
    /// It waits no longer.
    Goes,
}

/// Builds targets; `progress` is told of what happens.
///
/// A target that does not compile is a problem of its own; the others are built all the same.
///
/// # Errors
/// Where Cargo cannot be started.
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
    // One build unifies features over its packages: models for two Burns would each be built with both adapters.
    let minor = |burn: &str| burn.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    let kind = |target: &DeclaredTarget| (minor(&target.burn), target.option, target.name.clone());
    let kinds: BTreeSet<_> = targets.iter().map(kind).collect();
    for builds in kinds {
        let wanted: Vec<_> = targets.iter().filter(|target| kind(target) == builds).collect();
        let (executables, compiled, failures) = cargo_build(workspace, selection, options, &wanted, &progress)?;
        for target in wanted {
            match executables.get(&target.package_id) {
                Some(executable) => built.push(Built {
                    target: target.clone(),
                    executable: executable.clone(),
                    kernel_code: workspace.kernel_code(target, &compiled),
                    kernel_compiler: target.kernel_compiler(compiled.chooses_nvrtc),
                }),
                None => problems.push(Problem {
                    package: target.package.clone(),
                    target: Some(target.name.clone()),
                    code: ErrorCode::BuildFailed,
                    message: failures.message(target),
                    help: Some(failures.help(target, selection, options)),
                }),
            }
        }
    }
    Ok((built, problems))
}

/// Features of cargo-vram that an older Burn's models are built with on demand.
const ON_DEMAND: [&str; 3] = [EXPLAIN, WHAT_IF, CHECKPOINTING];
/// The feature with which models tell of every operation.
pub(crate) const EXPLAIN: &str = "cargo-vram/explain";
/// The feature with which models can be run with other optimizers than their own.
pub(crate) const WHAT_IF: &str = "cargo-vram/what-if";
/// The feature with which autodiff keeps less for backward.
pub(crate) const CHECKPOINTING: &str = "cargo-vram/checkpointing";
/// The feature without which Burn fuses operations.
pub(crate) const NO_FUSION: &str = "cargo-vram/no-fusion";

/// Whether the model's operations are not to be fused, which its Burn decides by a feature of its own.
fn is_fused_by_burn(target: &DeclaredTarget, selection: &Selection) -> bool {
    let names = |asked: &str| asked.split([',', ' ']).any(|name| name == NO_FUSION);
    target.explains_in_every_build() && selection.features.iter().any(|asked| names(asked))
}

fn cannot_unfuse(target: &DeclaredTarget) -> Problem {
    Problem {
        package: target.package.clone(),
        target: Some(target.name.clone()),
        code: ErrorCode::UnsupportedBurn,
        message: format!("`--no-fusion` cannot switch fusion off for {}: it uses Burn {}", target.package, target.burn),
        help: Some(
            "Burn 0.22 fuses operations if its Cargo feature `fusion` is on: build without that feature to see the figures without \
             fusion"
                .into(),
        ),
    }
}

/// The features that were asked for, as a target of this kind takes them.
fn features<'a>(selection: &'a Selection, target: &DeclaredTarget) -> Vec<&'a str> {
    let mut features: Vec<&str> = Vec::new();
    for asked in &selection.features {
        let is_needless = target.explains_in_every_build() && ON_DEMAND.contains(&asked.as_str());
        match is_needless {
            // With the option before it.
            true => drop(features.pop()),
            false => features.push(asked),
        }
    }
    features
}

/// What kept a target from being built.
enum Cause {
    /// What a compiler found.
    Errors,
    /// Somebody ended Cargo or a compiler: the kernel, mostly, where memory ran out.
    Signal,
    /// What Cargo itself says.
    Other,
}

/// Why targets were not built.
#[derive(Default)]
struct Failures {
    /// What the compiler said is wrong, with the package it said it of.
    errors: Vec<(String, String)>,
    /// What Cargo itself said.
    words: String,
    /// How Cargo ended.
    status: ExitStatus,
}

impl Failures {
    /// What became of a target. That it does not compile is what a compiler says, and nobody else.
    fn message(&self, target: &DeclaredTarget) -> String {
        let DeclaredTarget { name, package, .. } = target;
        let what = match (self.cause(target), self.status.signal()) {
            (Cause::Errors, _) => format!("`{name}` of {package} does not compile"),
            (Cause::Signal, Some(signal)) => format!("signal {signal} ended the build of `{name}` of {package}"),
            (Cause::Signal, None) => format!("a signal ended a part of the build of `{name}` of {package}"),
            (Cause::Other, _) => format!("`{name}` of {package} could not be built"),
        };
        format!("{what}\n{}", self.of(target).trim_end())
    }

    /// What to do about it.
    fn help(&self, target: &DeclaredTarget, selection: &Selection, options: &BuildOptions) -> String {
        let command = same_build(target, selection, options);
        match self.cause(target) {
            // Only the build of `explain` has this type. Errors name it where a model asks more of its backend than Burn does.
            Cause::Errors if self.names_observed(target, selection) => observed_help(&target.name),
            Cause::Errors => format!("{command} shows the same errors"),
            Cause::Signal => {
                format!("where memory ran out, fewer jobs take less: CARGO_BUILD_JOBS=1; or try {command} by itself")
            }
            Cause::Other => match Refusal::read(&self.words) {
                Refusal::Other => format!("{command} shows the same"),
                refusal => refusal.help(selection),
            },
        }
    }

    /// Whether errors name the backend of `explain`; a project may have a type of that name, too.
    fn names_observed(&self, target: &DeclaredTarget, selection: &Selection) -> bool {
        let errors = self.of(target);
        let is_explained = selection.features.iter().any(|feature| feature.contains(EXPLAIN));
        errors.contains("observed::Observed") || is_explained && errors.contains("`Observed`")
    }

    fn cause(&self, target: &DeclaredTarget) -> Cause {
        let is_own = |(package, _): &(String, String)| *package == target.package_id;
        // As Cargo tells how a compiler ended: `(signal: 9, SIGKILL: kill)`.
        let is_signal = self.status.signal().is_some() || self.words.contains("(signal: ");
        match (self.errors.iter().any(is_own), is_signal) {
            (false, true) => Cause::Signal,
            (false, false) if self.errors.is_empty() => Cause::Other,
            _ => Cause::Errors,
        }
    }

    /// What is wrong with the target's own package; else with all; else, or where a signal ended it, what Cargo has to say.
    fn of(&self, target: &DeclaredTarget) -> String {
        if matches!(self.cause(target), Cause::Signal) {
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

/// What to do where a model asks more of its backend than that of `explain` has.
fn observed_help(target: &str) -> String {
    format!(
        "`cargo vram explain` runs models on the backend `cargo_vram::probe::Observed`, which implements Burn's traits. A model of \
         {target} needs a backend trait of its own: implement it in the crate that declares it, as `cargo_vram::explained! {{ impl \
         YourTrait for cargo_vram::probe::Observed {{}} }}`. A model for one backend type cannot be explained: move it into another \
         benchmark target. `check`, `estimate` and `fit` run both as they are"
    )
}

/// What a compiler's message shows, if it is an error. The count of errors that ends them is none.
fn error(message: CompilerMessage) -> Option<(String, String)> {
    let diagnostic = message.message;
    let counts = diagnostic.message.starts_with("aborting due to");
    let is_error = matches!(diagnostic.level, DiagnosticLevel::Error | DiagnosticLevel::Ice) && !counts;
    diagnostic
        .rendered
        .filter(|_| is_error)
        .map(|rendered| (message.package_id.repr, rendered))
}

/// What the user asked of Cargo, besides what to build.
fn asked<'a>(selection: &'a Selection, options: &'a BuildOptions, target: &DeclaredTarget) -> Vec<&'a str> {
    let mut asked = features(selection, target);
    asked.extend(selection.cargo_flags.iter().map(String::as_str));
    asked.extend(selection.target.iter().flat_map(|target| ["--target", target]));
    asked.extend(options.profile.iter().flat_map(|profile| ["--profile", profile]));
    asked
}

/// Cargo's arguments that leave this crate unoptimized in a build on demand. To optimize it takes minutes, and such a build is for a few
/// passes; no value depends on it.
fn unoptimized(
    workspace: &Workspace,
    selection: &Selection,
    options: &BuildOptions,
    target: &DeclaredTarget,
) -> Option<[String; 2]> {
    let is_on_demand = |asked: &str| ON_DEMAND.contains(&asked) || asked == NO_FUSION;
    if !features(selection, target).into_iter().any(is_on_demand) {
        return None;
    }
    let profile = options.profile.as_deref().unwrap_or("dev");
    let spec = workspace.spec_of_this_crate(profile)?;
    Some([
        "--config".to_owned(),
        format!("profile.{profile}.package.{spec:?}.opt-level=0"),
    ])
}

/// The command that builds the same, in words.
fn same_build(target: &DeclaredTarget, selection: &Selection, options: &BuildOptions) -> String {
    let mut words = vec!["-p", &target.package, target.option, &target.name];
    words.extend(asked(selection, options, target));
    let manifest = selection.manifest_path.iter();
    words.extend(manifest.flat_map(|path| ["--manifest-path", path.as_str()]));
    // A shell would take these apart.
    let quoted = |word: &str| match word.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_./=,:@".contains(c)) {
        true => format!(" '{word}'"),
        false => format!(" {word}"),
    };
    let words: String = words.into_iter().map(quoted).collect();
    format!("`cargo build{words}`")
}

/// Runs Cargo once; gives the executables by package id, how packages were compiled, and why executables are missing.
fn cargo_build(
    workspace: &Workspace,
    selection: &Selection,
    options: &BuildOptions,
    wanted: &[&DeclaredTarget],
    progress: &(impl Fn(Building<'_>) + Sync),
) -> Result<(BTreeMap<String, Utf8PathBuf>, Compiled, Failures), WorkspaceError> {
    let mut command = cargo_command();
    command.arg("build").args(["--message-format=json", "--keep-going"]);
    command.args(["--manifest-path", workspace.root().join("Cargo.toml").as_str()]);
    for target in wanted {
        command.args(["-p", &target.package_id]);
    }
    command.args([wanted[0].option, &wanted[0].name]);
    command.args(asked(selection, options, wanted[0]));
    command.args(
        unoptimized(workspace, selection, options, wanted[0])
            .into_iter()
            .flatten(),
    );
    // What it says is read here.
    command.env("CARGO_TERM_COLOR", "never");
    if options.quiet {
        command.arg("--quiet");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let counted = Counted::default();
    let mut child = command.spawn().map_err(not_started)?;
    let (mut executables, mut compiled) = (BTreeMap::new(), Compiled::default());
    let mut failures = Failures::default();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read at once: a full one would stop the build.
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        scope.spawn(|| counted.ask(workspace, selection, wanted, ended));
        let mut packages = BTreeSet::new();
        let words = scope.spawn(|| stderr.map(|stderr| words(stderr, progress)).unwrap_or_default());
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
                    // With a benchmark, Cargo builds the package's binaries too.
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
        drop(end);
        counted.stop();
    });
    failures.status = child.wait().map_err(not_started)?;
    Ok((executables, compiled, failures))
}

/// After so long a build is worth being counted.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many packages a build consists of: Cargo is asked while it builds.
#[derive(Default)]
struct Counted {
    /// 0 until it is known.
    packages: AtomicUsize,
    asked: Mutex<Option<Child>>,
}

impl Counted {
    /// The number, once it is known. Cargo's tree may leave out what a build needs; never is it less than what is there.
    fn total(&self, done: usize) -> Option<usize> {
        match self.packages.load(Relaxed) {
            0 => None,
            packages => Some(packages.max(done)),
        }
    }

    /// Asks Cargo, unless the build ends before: a build that takes no time has none for that.
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
        // The profile is no matter of which packages there are.
        command.args(asked(selection, &BuildOptions::default(), wanted[0]));
        command
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        let stdout = child.stdout.take();
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        // The build may have ended meanwhile.
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

    /// Nobody waits for the answer any more.
    fn stop(&self) {
        if let Some(mut child) = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How many packages there are in what `cargo tree` prints: a line for each place that a package has in the tree.
fn packages(tree: &str) -> usize {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len()
}

/// Everything that Cargo says; what it waits for is told at once.
fn words(stderr: impl Read, progress: impl Fn(Building<'_>)) -> String {
    let mut words = String::new();
    let mut waits = false;
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let blocking = line.trim_start().strip_prefix("Blocking ");
        match blocking {
            Some(what) => progress(Building::Waits(what)),
            None if waits => progress(Building::Goes),
            None => {}
        }
        waits = blocking.is_some();
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
    fn the_command_that_shows_the_same_errors_builds_the_same() {
        let target = DeclaredTarget {
            package: "zoo".to_owned(),
            package_id: "path+file:///zoo#0.1.0".to_owned(),
            folder: "/zoo".into(),
            name: "vram".to_owned(),
            option: "--bench",
            burn: "0.21.0".to_owned(),
        };
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
