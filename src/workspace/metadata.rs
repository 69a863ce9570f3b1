//! Reads a workspace's metadata from Cargo, or from the target folder if nothing changed since Cargo printed it. Other
//! output of Cargo about the same dependencies is kept beside it.
//!
//! `cargo metadata` takes as long as a build with nothing to do. With `--no-deps`, it takes a tenth of that.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{Error, Metadata, MetadataCommand};
use sha2::{Digest, Sha256};

/// How many documents to keep in a folder: those that were used last. Each set of options has its own, and one has 4 MB
/// for a workspace with Burn.
const KEPT: usize = 32;

/// Returns the metadata of the workspace with these options of Cargo. `toolchain` is what the compiler prints of itself.
///
/// # Errors
/// If Cargo cannot be started or fails.
pub(super) fn read(command: &MetadataCommand, toolchain: &str) -> Result<(Metadata, Option<CachedOutputs>), Error> {
    // If this fails, the whole command fails, too, and its message is the one to show.
    let Some(kept) = CachedMetadata::find(command, toolchain) else {
        return Ok((MetadataCommand::parse(printed(command)?)?, None));
    };
    if let Some((metadata, manifests)) = kept.read() {
        let outputs = kept.outputs(&metadata, &manifests);
        return Ok((metadata, Some(outputs)));
    }
    let text = printed(command)?;
    let metadata = MetadataCommand::parse(&text)?;
    kept.write(&metadata, &text);
    // Cargo may have changed the lock file, and then the next command has another key.
    Ok((metadata, None))
}

/// What Cargo printed about the dependencies of a workspace, in the target folder.
#[derive(Debug)]
pub(super) struct CachedOutputs {
    folder: Utf8PathBuf,
    /// The hash of everything that Cargo reads to resolve the dependencies.
    key: String,
    /// The lock file, and its content when the key was made.
    lock: (Utf8PathBuf, Vec<u8>),
}

impl CachedOutputs {
    /// Returns what Cargo printed for a command. If that is not kept, `run` runs it.
    ///
    /// # Errors
    /// Returns the error of `run`.
    pub(super) fn of<E>(&self, command: Command, run: impl FnOnce(Command) -> Result<String, E>) -> Result<String, E> {
        let mut hash = Sha256::new();
        hash.update(&self.key);
        hash.update(format!("{:?}", command.get_args().collect::<Vec<_>>()));
        let path = self.folder.join(format!("{}.txt", hex(hash)));
        if let Ok(text) = std::fs::read_to_string(&path) {
            mark_used(&path);
            return Ok(text);
        }
        let text = run(command)?;
        // Another command may have changed the lock file meanwhile. Then the key is that of other dependencies.
        if std::fs::read(&self.lock.0).is_ok_and(|lock| lock == self.lock.1) {
            let _ = write_whole(&path, text.as_bytes());
            remove_old(&self.folder);
        }
        Ok(text)
    }
}

/// Runs Cargo and returns the document that it prints.
fn printed(command: &MetadataCommand) -> Result<String, Error> {
    let output = command.cargo_command().output()?;
    if !output.status.success() {
        return Err(Error::CargoMetadata {
            stderr: String::from_utf8(output.stderr)?,
        });
    }
    let text = String::from_utf8(output.stdout)?;
    // A program that stands in for Cargo may print more.
    let line = text.lines().find(|line| line.starts_with('{'));
    Ok(line.ok_or(Error::NoJson)?.to_owned())
}

/// The place of a document in the target folder.
struct CachedMetadata {
    folder: Utf8PathBuf,
    /// The hash of everything that Cargo reads for the metadata, except for packages outside of the workspace.
    key: String,
    /// The content of the lock file, which is part of the key.
    lock: Vec<u8>,
}

impl CachedMetadata {
    fn find(command: &MetadataCommand, toolchain: &str) -> Option<Self> {
        let members = printed(command.clone().no_deps()).ok()?;
        let workspace = MetadataCommand::parse(&members).ok()?;
        // Without a lock file, Cargo would resolve the dependencies anew.
        let lock = std::fs::read(workspace.workspace_root.join("Cargo.lock")).ok()?;
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        };
        add(toolchain.as_bytes());
        add(format!("{:?}", arguments(command)).as_bytes());
        add(members.as_bytes());
        add(&lock);
        // Cargo's own settings, and flags that switch on dependencies of a platform.
        for (name, value) in environment() {
            add(name.as_encoded_bytes());
            add(value.as_encoded_bytes());
        }
        // `--config` may name a file.
        let named = arguments(command)
            .into_iter()
            .map(PathBuf::from)
            .filter(|path| path.is_file());
        for file in configurations().into_iter().chain(named) {
            add(file.as_os_str().as_encoded_bytes());
            add(&std::fs::read(&file).unwrap_or_default());
        }
        Some(Self {
            folder: workspace.target_directory.join("vram/metadata"),
            key: hex(hash),
            lock,
        })
    }

    fn path(&self) -> Utf8PathBuf {
        self.folder.join(format!("{}.json", self.key))
    }

    /// Returns the kept metadata and the hash of the local manifests, unless a local package changed.
    fn read(&self) -> Option<(Metadata, String)> {
        let path = self.path();
        let text = std::fs::read_to_string(&path).ok()?;
        let (manifests, text) = text.split_once('\n')?;
        let metadata = MetadataCommand::parse(text).ok()?;
        if local_manifests(&metadata) != manifests {
            return None;
        }
        mark_used(&path);
        Some((metadata, manifests.to_owned()))
    }

    /// Returns the place of other output of Cargo about the same dependencies.
    fn outputs(&self, metadata: &Metadata, manifests: &str) -> CachedOutputs {
        CachedOutputs {
            folder: metadata.target_directory.join("vram/trees"),
            key: self.key.clone() + manifests,
            lock: (metadata.workspace_root.join("Cargo.lock"), self.lock.clone()),
        }
    }

    /// Keeps the metadata. If that fails, the next command asks Cargo again.
    fn write(&self, metadata: &Metadata, text: &str) {
        let _ = write_whole(
            &self.path(),
            format!("{}\n{text}", local_manifests(metadata)).as_bytes(),
        );
        remove_old(&self.folder);
    }
}

/// Writes a file in one step: a command that reads the file at the same time must not see a part of it.
fn write_whole(path: &Utf8Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, content)?;
    file.persist(path)?;
    Ok(())
}

/// Marks a file as used, because [`remove_old`] removes what was not used for the longest time.
fn mark_used(path: &Utf8Path) {
    let _ = File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(SystemTime::now()));
}

fn remove_old(folder: &Utf8Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    for (_, file) in files.iter().rev().skip(KEPT) {
        let _ = std::fs::remove_file(file);
    }
}

/// Returns the options of the command that decide what Cargo prints.
fn arguments(command: &MetadataCommand) -> Vec<OsString> {
    let command: Command = command.cargo_command();
    command.get_args().map(ToOwned::to_owned).collect()
}

/// Returns the environment variables that decide which dependencies a build has, by name.
fn environment() -> std::collections::BTreeMap<OsString, OsString> {
    let decides = |name: &OsString| {
        let name = name.to_string_lossy();
        let prefixes = ["CARGO_BUILD_", "CARGO_RESOLVER_", "CARGO_UNSTABLE_", "RUSTC_BOOTSTRAP"];
        name.ends_with("RUSTFLAGS") || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    std::env::vars_os().filter(|(name, _)| decides(name)).collect()
}

/// Lists the files in which Cargo looks for its configuration, whether they exist or not.
fn configurations() -> Vec<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let folders = here.ancestors().map(|folder| folder.join(".cargo")).chain(home);
    folders
        .flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name)))
        .collect()
}

/// Returns a hash of the manifests of all packages that are folders here, and of those in the folders above them.
///
/// A package of a registry never changes. That of a folder can: it may be in another workspace, from which it inherits.
fn local_manifests(metadata: &Metadata) -> String {
    let local = metadata.packages.iter().filter(|package| package.source.is_none());
    let above = local.flat_map(|package| package.manifest_path.ancestors().skip(1).map(Utf8Path::to_owned));
    let folders: std::collections::BTreeSet<Utf8PathBuf> = above.collect();
    let mut hash = Sha256::new();
    for folder in folders {
        if let Ok(manifest) = std::fs::read(folder.join("Cargo.toml")) {
            hash.update(folder.as_str());
            hash.update(manifest.len().to_le_bytes());
            hash.update(manifest);
        }
    }
    hex(hash)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &std::path::Path, name: &str, dependencies: &str) {
        let folder = folder.join(name);
        std::fs::create_dir_all(folder.join("src")).unwrap();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n\
             [dependencies]\n{dependencies}"
        );
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
    }

    #[test]
    fn other_output_is_kept_with_the_metadata_and_for_the_same_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        package(folder, "a", "");
        let mut metadata = MetadataCommand::new();
        metadata.manifest_path(folder.join("a/Cargo.toml"));
        metadata.other_options(["--offline".to_owned()]);
        metadata.env("CARGO_TARGET_DIR", folder.join("target"));
        let kept = || read(&metadata, "1").unwrap().1;
        // The first command writes the lock file, and the second one the metadata.
        assert!(kept().is_none() && kept().is_none());
        let outputs = kept().unwrap();
        let of = |outputs: &CachedOutputs, argument: &str, answer: &str| {
            let mut command = Command::new("cargo");
            command.arg(argument);
            outputs.of(command, |_| Ok::<_, ()>(answer.to_owned())).unwrap()
        };
        assert_eq!(of(&outputs, "tree", "first"), "first");
        assert_eq!(of(&outputs, "tree", "second"), "first");
        assert_eq!(of(&outputs, "other", "second"), "second");
        let failed = outputs.of(Command::new("cargo"), |_| Err("Cargo's own"));
        assert_eq!(failed, Err("Cargo's own"));
        // A lock file that changes while Cargo runs.
        let lock = folder.join("a/Cargo.lock");
        let before = std::fs::read_to_string(&lock).unwrap();
        std::fs::write(&lock, before.clone() + "# other\n").unwrap();
        assert_eq!(of(&outputs, "late", "of another lock file"), "of another lock file");
        std::fs::write(&lock, before).unwrap();
        assert_eq!(of(&outputs, "late", "of this one"), "of this one");
        // A feature of a member.
        let manifest = folder.join("a/Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text + "[features]\nf = []\n").unwrap();
        assert!(kept().is_none());
        assert_eq!(of(&kept().unwrap(), "tree", "third"), "third");
    }

    #[test]
    fn metadata_is_kept_until_a_manifest_the_lock_file_or_an_option_changes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        package(folder, "a", "b = { path = \"../b\" }\n");
        package(folder, "b", "");
        package(folder, "c", "");
        let command = |features: &[&str]| {
            let mut command = MetadataCommand::new();
            command.manifest_path(folder.join("a/Cargo.toml"));
            let options = ["--offline"].iter().chain(features).map(|option| (*option).to_owned());
            command.other_options(options.collect::<Vec<_>>());
            // Not the target folder of this test, which others use, too.
            command.env("CARGO_TARGET_DIR", folder.join("target"));
            command
        };
        let names = |command: &MetadataCommand, toolchain: &str| {
            let (metadata, _) = read(command, toolchain).unwrap();
            let mut names: Vec<_> = metadata
                .packages
                .iter()
                .map(|package| package.name.to_string())
                .collect();
            names.sort();
            names.join(" ")
        };
        let plain = command(&[]);
        // The first command writes the lock file, so only the second one can keep what Cargo prints.
        assert_eq!([names(&plain, "1"), names(&plain, "1")], ["a b", "a b"]);
        let kept = CachedMetadata::find(&plain, "1").unwrap().path();
        let text = std::fs::read_to_string(&kept).unwrap();
        let mark = || std::fs::write(&kept, text.replace("\"name\":\"b\"", "\"name\":\"kept\"")).unwrap();
        mark();
        assert_eq!(names(&plain, "1"), "a kept");
        // Other options, and another compiler.
        assert_eq!(names(&command(&["--all-features"]), "1"), "a b");
        assert_eq!(names(&plain, "2"), "a b");
        // A package outside of the workspace.
        package(folder, "b", "c = { path = \"../c\" }\n");
        assert_eq!(names(&plain, "1"), "a b c");
        // A member's manifest, after Cargo wrote the lock file again.
        package(folder, "b", "");
        names(&plain, "1");
        mark();
        package(folder, "a", "c = { path = \"../c\" }\n");
        assert_eq!(names(&plain, "1"), "a c");
        // A damaged document, and no lock file.
        std::fs::write(CachedMetadata::find(&plain, "1").unwrap().path(), "1\n{").unwrap();
        assert_eq!(names(&plain, "1"), "a c");
        std::fs::remove_file(folder.join("a/Cargo.lock")).unwrap();
        assert!(CachedMetadata::find(&plain, "1").is_none());
        assert_eq!(names(&plain, "1"), "a c");
        // An error is Cargo's own.
        std::fs::write(folder.join("a/Cargo.toml"), "[package").unwrap();
        assert!(matches!(read(&plain, "1"), Err(Error::CargoMetadata { stderr }) if stderr.contains("Cargo.toml")));
    }
}
