//! Small archives of fake models, with and without mistakes.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_vram::archive::{ArchiveError, Contents, PackedArchive, Unpacked, pack, unpack};
use cargo_vram::driver::DriverLibrary;
use cargo_vram::protocol::Task;
use cargo_vram::report::PlainName;
use cargo_vram::run::Listed;
use cargo_vram::workspace::{Built, DeclaredTarget, KernelCompiler};
use miette::Diagnostic;
use serde_json::Value;
use tar::{EntryType, Header};

/// A program that does nothing. It is as small as possible because it links the standard library dynamically.
const TINY: &str = "fn main() {}";
/// A program that lists its models as a real one does, and that can print its stack.
const MODEL: &str = r##"
use std::io::Write;

#[inline(never)]
fn tune_benchmark(depth: u32) -> String {
    if depth == 0 { return std::backtrace::Backtrace::force_capture().to_string(); }
    std::hint::black_box(tune_benchmark(std::hint::black_box(depth - 1)))
}

fn main() {
    let Ok(job) = std::env::var("CARGO_VRAM_JOB") else {
        println!("{}", tune_benchmark(2));
        return;
    };
    let job = std::fs::read_to_string(job).unwrap();
    let events = job.split("\"events\":\"").nth(1).unwrap().split('"').next().unwrap();
    let mut events = std::fs::File::create(events).unwrap();
    let protocol = job.split("\"protocol\":").nth(1).unwrap().split(',').next().unwrap();
    writeln!(events, r#"{{"event":"hello","protocol":{protocol},"version":"0","adapter":"none"}}"#).unwrap();
    writeln!(events, r#"{{"event":"model","name":"alpha","task":"train"}}"#).unwrap();
    writeln!(events, r#"{{"event":"model","name":"beta","task":"infer"}}"#).unwrap();
}
"##;

/// Compiles a small program, unless it exists.
fn program(slot: &'static OnceLock<PathBuf>, name: &str, source: &str, options: &[&str]) -> &'static Path {
    slot.get_or_init(|| {
        let hash = hash(format!("{source} {options:?}").as_bytes());
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = parent.join(format!("archive-{}", &hash[..16]));
        let program = folder.join(name);
        if !program.exists() {
            // Several tests may compile it at the same time. Each moves a complete file to the final path.
            let scratch = tempfile::tempdir_in(parent).unwrap();
            let file = scratch.path().join(format!("{name}.rs"));
            std::fs::write(&file, source).unwrap();
            let rustc = Command::new("rustc")
                .args(["--edition", "2024"])
                .args(options)
                .arg("-o")
                .args([&scratch.path().join(name), &file])
                .status()
                .unwrap();
            assert!(rustc.success());
            let moved = std::fs::rename(scratch.path(), &folder);
            assert!(moved.is_ok() || program.exists(), "{moved:?}");
        }
        program
    })
}

fn hash(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn tiny() -> &'static Path {
    static SLOT: OnceLock<PathBuf> = OnceLock::new();
    program(
        &SLOT,
        "tiny",
        TINY,
        &["-C", "prefer-dynamic", "-C", "opt-level=s", "-C", "strip=symbols"],
    )
}

pub(crate) fn model() -> &'static Path {
    static SLOT: OnceLock<PathBuf> = OnceLock::new();
    program(&SLOT, "model", MODEL, &["-g"])
}

/// A workspace with one package, whose program declares two models. The files of the driver are copies of [`tiny`].
pub(crate) struct Small {
    pub(crate) folder: tempfile::TempDir,
    program: &'static Path,
    /// The models that the archive's manifest lists.
    pub(crate) models: Vec<&'static str>,
}

impl Small {
    pub(crate) fn new(program: &'static Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let small = Self {
            folder,
            program,
            models: vec!["alpha", "beta"],
        };
        std::fs::write(small.path("budgets.yaml"), "version: 1\ngpu: l4\nmodels: {}\n").unwrap();
        std::fs::write(small.path("budgets.lock"), "version: 1\n").unwrap();
        std::fs::create_dir(small.path("lib")).unwrap();
        for file in ["libcargo_vram_driver.so", "vram-survey"] {
            std::fs::copy(tiny(), small.path("lib").join(file)).unwrap();
        }
        small
    }

    /// Uses a real driver.
    pub(crate) fn with_driver(self, driver: &DriverLibrary) -> Self {
        for (file, name) in [
            (&driver.library, "libcargo_vram_driver.so"),
            (&driver.survey, "vram-survey"),
        ] {
            std::fs::copy(file, self.path("lib").join(name)).unwrap();
        }
        self
    }

    pub(crate) fn path(&self, name: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.folder.path()).unwrap().join(name)
    }

    fn listed(&self) -> Vec<Listed> {
        let built = Built {
            is_local: true,
            target: DeclaredTarget {
                package: PlainName::parse("small").unwrap(),
                package_id: "small".to_owned(),
                folder: self.path("crates/small"),
                name: "vram".into(),
                option: "--bench",
                burn: "0.21.0".into(),
            },
            executable: Utf8PathBuf::from_path_buf(self.program.to_owned()).unwrap(),
            kernel_code: None,
            kernel_compiler: KernelCompiler::Nvrtc,
        };
        let tasks = [Task::Train, Task::Infer];
        let models = self.models.iter().zip(tasks.into_iter().cycle());
        models
            .map(|(name, task)| Listed {
                name: PlainName::parse(*name).unwrap(),
                task,
                built: built.clone(),
            })
            .collect()
    }

    pub(crate) fn pack(&self, to: &Path) -> Result<PackedArchive, ArchiveError> {
        let folder = self.folder.path().join("lib");
        let driver = DriverLibrary {
            library: folder.join("libcargo_vram_driver.so"),
            survey: folder.join("vram-survey"),
            folder,
        };
        let (budgets, baseline) = (self.path("budgets.yaml"), self.path("budgets.lock"));
        let contents = Contents {
            root: &self.path(""),
            models: &self.listed(),
            driver: &driver,
            budgets: Some(&budgets),
            baseline: Some(&baseline),
            base: None,
            commit: Some("0123456789abcdef"),
            dirty: Some(true),
            whole: true,
        };
        pack(&contents, to)
    }

    /// Packs the archive, and returns its bytes.
    pub(crate) fn archive(&self) -> Vec<u8> {
        let file = self.folder.path().join("small.tar.zst");
        self.pack(&file).unwrap();
        std::fs::read(file).unwrap()
    }
}

/// The bytes of a small archive without mistakes.
pub(crate) fn sound() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| Small::new(tiny()).archive())
}

/// The tar file of [`sound`].
pub(crate) fn sound_tar() -> Vec<u8> {
    zstd::decode_all(sound()).unwrap()
}

/// One entry of a tar file.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) header: Header,
    pub(crate) data: Vec<u8>,
}

impl Entry {
    pub(crate) fn new(path: &str, data: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_entry_type(EntryType::Regular);
        let mut entry = Self {
            header,
            data: data.to_owned(),
        };
        entry.rename(path);
        entry.sized()
    }

    pub(crate) fn of_kind(path: &str, kind: EntryType) -> Self {
        let mut entry = Self::new(path, b"");
        entry.change(|header| header.set_entry_type(kind));
        entry
    }

    /// Sets a path that the tar crate itself would refuse to write.
    pub(crate) fn rename(&mut self, path: &str) {
        let name = &mut self.header.as_ustar_mut().unwrap().name;
        name.fill(0);
        name[..path.len()].copy_from_slice(path.as_bytes());
        self.header.set_cksum();
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Header)) {
        change(&mut self.header);
        self.header.set_cksum();
    }

    fn sized(mut self) -> Self {
        self.header.set_size(self.data.len() as u64);
        self.header.set_cksum();
        self
    }

    pub(crate) fn path(&self) -> String {
        String::from_utf8(self.header.path_bytes().into_owned()).unwrap()
    }
}

/// The entries of an archive without mistakes, which a test can change.
pub(crate) struct Entries(pub(crate) Vec<Entry>);

impl Entries {
    pub(crate) fn sound() -> Self {
        let tar = sound_tar();
        let mut entries = Vec::new();
        let mut at = 0;
        while tar[at] != 0 {
            let header = Header::from_byte_slice(&tar[at..at + 512]).clone();
            let size = usize::try_from(header.entry_size().unwrap()).unwrap();
            let data = tar[at + 512..at + 512 + size].to_vec();
            entries.push(Entry { header, data });
            at += 512 + size.next_multiple_of(512);
        }
        Self(entries)
    }

    pub(crate) fn named(&mut self, path: &str) -> &mut Entry {
        self.0.iter_mut().find(|entry| entry.path() == path).unwrap()
    }

    pub(crate) fn manifest(&mut self, change: impl FnOnce(&mut Value)) {
        let mut manifest: Value = serde_json::from_slice(&self.0[0].data).unwrap();
        change(&mut manifest);
        self.0[0] = Entry::new("manifest.json", &serde_json::to_vec(&manifest).unwrap());
    }

    /// Adds a file, also to the manifest.
    pub(crate) fn add(&mut self, path: &str, data: &[u8]) {
        let hash = hash(data);
        self.manifest(|manifest| {
            let file = serde_json::json!({ "path": path, "bytes": data.len(), "sha256": hash });
            manifest["files"].as_array_mut().unwrap().push(file);
        });
        self.0.push(Entry::new(path, data));
    }

    pub(crate) fn tar(&self) -> Vec<u8> {
        let mut tar = Vec::new();
        for entry in &self.0 {
            tar.extend_from_slice(entry.header.as_bytes());
            tar.extend_from_slice(&entry.data);
            tar.resize(tar.len().next_multiple_of(512), 0);
        }
        tar.resize(tar.len() + 1024, 0);
        tar
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        compress(&self.tar())
    }
}

pub(crate) fn compress(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 1).unwrap()
}

/// Unpacks an archive into an empty folder. Asserts that the folder is still empty if the archive is refused.
pub(crate) fn try_unpack(bytes: &[u8]) -> Result<(tempfile::TempDir, Unpacked), ArchiveError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("given.tar.zst");
    std::fs::write(&file, bytes).unwrap();
    let into = Utf8Path::from_path(folder.path()).unwrap().join("into");
    match unpack(&file, &into) {
        Ok(unpacked) => Ok((folder, unpacked)),
        Err(error) => {
            let left: Vec<_> = std::fs::read_dir(&into).unwrap().collect();
            assert!(left.is_empty(), "{error}: {left:?} is left");
            Err(error)
        }
    }
}

/// Asserts that the bytes are refused with this code, in a sentence and with a help text.
#[track_caller]
pub(crate) fn assert_refused(bytes: &[u8], code: &str) {
    match try_unpack(bytes) {
        Ok(_) => panic!("{code}: the archive was accepted"),
        Err(error) => {
            assert_eq!(error.code().unwrap().to_string(), format!("archive::{code}"), "{error}");
            assert!(error.to_string().contains("given.tar.zst cannot be used: "), "{error}");
            assert!(error.help().is_some(), "{error}");
        }
    }
}
