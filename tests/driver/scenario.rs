//! Runs a scenario in its own process, and reads its record.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use cargo_vram::driver::CONFIG_VARIABLE;

use crate::driver_support;
use crate::driver_support::posing::{self, POSING_VARIABLE};

pub(crate) const TOTAL: u64 = 24 << 30;
pub(crate) const AVAILABLE: u64 = 23 << 30;

/// The program with the scenarios, built once.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "driver-tests", "--message-format=json"])
            .arg("--target-dir")
            .arg(driver_support::target_dir())
            .current_dir(driver_support::root())
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(built.status.success());
        let executable = cargo_metadata::Message::parse_stream(built.stdout.as_slice())
            .filter_map(Result::ok)
            .find_map(|message| match message {
                cargo_metadata::Message::CompilerArtifact(artifact) => artifact.executable,
                _ => None,
            });
        executable.expect("a binary").into_std_path_buf()
    })
}

/// The configuration of a scenario.
pub(crate) struct Setup {
    /// The configuration of the GPU, which is virtual or poses as a real one.
    gpu: String,
    /// The libraries that the driver forwards to; `None` for a virtual GPU.
    forward: Option<[PathBuf; 2]>,
    /// More lines of the driver's configuration.
    more: String,
    preload: bool,
}

impl Setup {
    pub(crate) fn of_capability((major, minor): (u32, u32)) -> Self {
        Self {
            gpu: format!(
                "mode=virtual\nname=Test GPU\ntotal={TOTAL}\navailable={AVAILABLE}\n\
                 cc_major={major}\ncc_minor={minor}\nsome_later_key=1\n"
            ),
            forward: None,
            more: String::new(),
            preload: true,
        }
    }

    pub(crate) fn new() -> Self {
        Self::of_capability((8, 9))
    }

    /// Uses the same GPU, but behind a driver that poses as a real one.
    pub(crate) fn forwarded(self) -> Self {
        let folder = posing::folder();
        self.forwarded_to(&folder.join("libcuda.so.1"), &folder.join("libnvrtc.so.13"))
    }

    pub(crate) fn forwarded_to(self, libcuda: &Path, libnvrtc: &Path) -> Self {
        Self {
            forward: Some([libcuda.to_owned(), libnvrtc.to_owned()]),
            preload: false,
            ..self
        }
    }

    pub(crate) fn preloaded(self) -> Self {
        Self { preload: true, ..self }
    }

    pub(crate) fn with(mut self, line: &str) -> Self {
        self.more.push_str(line);
        self.more.push('\n');
        self
    }

    pub(crate) fn with_gpu(mut self, line: &str) -> Self {
        self.gpu.push_str(line);
        self.gpu.push('\n');
        self
    }

    pub(crate) fn run(&self, scenario: &str) -> Ran {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let (record, config, posing_config) = (path("record"), path("config"), path("posing"));
        let mut text = format!("record={}\n", record.display());
        if let Some([libcuda, libnvrtc]) = &self.forward {
            text += &format!(
                "mode=forward\nlibcuda={}\nlibnvrtc={}\n",
                libcuda.display(),
                libnvrtc.display()
            );
            let posing_record = path("posing-{pid}");
            let posing = format!("record={}\n{}", posing_record.display(), self.gpu);
            std::fs::write(&posing_config, posing).expect("a configuration");
        } else {
            text += &self.gpu;
            text += "virtual_clock=1\n";
        }
        text += &self.more;
        std::fs::write(&config, text).expect("a configuration");
        let library = driver_support::library();
        let mut command = Command::new(binary());
        command
            .arg(scenario)
            .env(
                "LD_LIBRARY_PATH",
                std::env::join_paths([library.connected(), library.folder.clone()]).expect("paths"),
            )
            .env(CONFIG_VARIABLE, &config)
            .env(POSING_VARIABLE, &posing_config);
        if self.preload {
            command.env("LD_PRELOAD", &library.library);
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the scenario starts");
        let posing_record = path(&format!("posing-{}", child.id()));
        let output = child.wait_with_output().expect("the scenario ends");
        Ran {
            output,
            lines: read(&record),
            posing: read(&posing_record),
        }
    }

    /// Runs a scenario, and asserts that it passes.
    pub(crate) fn passes(&self, scenario: &str) -> Ran {
        let ran = self.run(scenario);
        let stderr = String::from_utf8_lossy(&ran.output.stderr);
        assert!(ran.output.status.success(), "{scenario} fails: {stderr}");
        let first = ran.lines.first().expect("a record");
        assert_eq!((first.event.as_str(), first.text("version")), ("start", "1"));
        assert_eq!(ran.lines.last().expect("a record").event, "end");
        ran
    }
}

fn read(record: &Path) -> Vec<Line> {
    let record = std::fs::read_to_string(record).unwrap_or_default();
    assert!(record.is_empty() || record.ends_with('\n'));
    record.lines().map(Line::parse).collect()
}

pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) lines: Vec<Line>,
    /// The record of the driver behind, if it poses as a real one.
    pub(crate) posing: Vec<Line>,
}

/// A line of a record.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) event: String,
    fields: HashMap<String, String>,
    words: Vec<String>,
}

impl Line {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let event = words.next().expect("an event").to_owned();
        let field = |word: &str| {
            let (key, value) = word.split_once('=').expect("key=value");
            (key.to_owned(), value.to_owned())
        };
        Self {
            event,
            words: words.clone().map(str::to_owned).collect(),
            fields: words.map(field).collect(),
        }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.fields
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in a line of {}", self.event))
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        self.text(key).parse().expect("a number")
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    /// The line without the words that differ from run to run.
    pub(crate) fn comparable(&self) -> String {
        let volatile = ["t=", "ptr=", "handle=", "detail="];
        let words = self
            .words
            .iter()
            .filter(|word| !volatile.iter().any(|key| word.starts_with(key)));
        words.fold(self.event.clone(), |line, word| line + " " + word)
    }
}

pub(crate) fn named<'a>(lines: &'a [Line], event: &'static str) -> impl Iterator<Item = &'a Line> + use<'a> {
    lines.iter().filter(move |line| line.event == event)
}

impl Ran {
    pub(crate) fn all(&self, event: &'static str) -> impl Iterator<Item = &Line> {
        named(&self.lines, event)
    }

    pub(crate) fn only(&self, event: &'static str) -> &Line {
        let mut lines = self.all(event);
        let line = lines.next().unwrap_or_else(|| panic!("no {event} in the record"));
        assert!(lines.next().is_none(), "more than one {event} in the record");
        line
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The number of calls of a function.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        count(&self.lines, function)
    }

    /// The number of calls of a function of the driver behind.
    pub(crate) fn posing_calls(&self, function: &str) -> u64 {
        count(&self.posing, function)
    }
}

fn count(lines: &[Line], function: &str) -> u64 {
    let mut lines = named(lines, "calls").filter(|line| line.text("function") == function);
    lines.next().map_or(0, |line| line.number("count"))
}
