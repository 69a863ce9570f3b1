//! NVML and the poller, with a virtual NVML that answers from records (`fixtures/virtual-nvml`). The tests write these
//! records by hand.
//!
//! The library takes its configuration from the environment, so each test continues in its own process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use cargo_vram::bytes::Bytes;
use cargo_vram::gpu::{DeviceLock, MemoryLooks, Nvml, NvmlError, Poller};
use cargo_vram::report::OtherProcess;
use miette::Diagnostic;

const UUID: &str = "GPU-7672616d-0000-0001-0000-000000000000";
const SECOND_UUID: &str = "GPU-7672616d-0000-0001-0000-000000000001";
const MIG_UUID: &str = "MIG-7672616d-0000-0001-0000-000000000000";
const TOTAL: u64 = 24 << 30;
const CONTEXT: u64 = 500;
const MODULE: u64 = 30;
const INTERVAL: Duration = Duration::from_millis(5);
/// Long enough for a sample, even on a busy machine.
const A_WHILE: Duration = Duration::from_millis(400);
/// The latest possible time.
const END: u64 = u64::MAX;
/// The environment variable with the GPU's folder, in the process in which a test continues.
const FOLDER: &str = "CARGO_VRAM_TEST_CARD";

/// The bytes of the library, which is built once per process.
fn library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let library = folder.path().join("libnvidia-ml.so.1");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/virtual-nvml/src/lib.rs");
        let built = Command::new(rustc)
            .args(["--crate-type", "cdylib", "--edition", "2024", "-o"])
            .args([&library, &source])
            .output()
            .expect("rustc runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        std::fs::read(library).unwrap()
    })
}

/// A folder with the library, a configuration and records.
struct VirtualGpu {
    folder: PathBuf,
}

/// Continues a test in its own process, in which the dynamic loader finds the library.
fn on_a_gpu(test: &str, keys: &str, body: impl FnOnce(&VirtualGpu)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        return body(&VirtualGpu { folder });
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libnvidia-ml.so.1"), library()).unwrap();
    let gpu = VirtualGpu {
        folder: folder.path().to_owned(),
    };
    gpu.configure(keys);
    let ended = gpu.process(test).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("1 passed"), "there is no such test: {said}");
}

impl VirtualGpu {
    fn process(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &format!("nvml::{test}"), "--nocapture"])
            .env(FOLDER, &self.folder)
            .env("TMPDIR", &self.folder)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("CARGO_VRAM_POSING_CONFIG", self.folder.join("config"));
        command
    }

    /// Replaces the GPU's configuration, for all later calls.
    fn configure(&self, keys: &str) {
        let record = self.folder.join("{pid}.log");
        let always = format!("mode=virtual\nrecord={}\ntotal={TOTAL}\n", record.display());
        let modules = format!("context={CONTEXT}\nmodule_each={MODULE}\n");
        std::fs::write(self.folder.join("new"), always + &modules + keys).unwrap();
        std::fs::rename(self.folder.join("new"), self.folder.join("config")).unwrap();
    }

    /// Appends lines to a process's record.
    fn record(&self, pid: u32, lines: &str) {
        let path = self.folder.join(format!("{pid}.log"));
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn poller(&self, pid: u32) -> Poller {
        let library = self.folder.join("libnvidia-ml.so.1");
        Poller::start(Some(library), UUID.to_owned(), pid, INTERVAL)
    }
}

fn me() -> u32 {
    std::process::id()
}

fn a_while() {
    std::thread::sleep(A_WHILE);
}

/// A process that stands for a model's; it ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process's largest memory in the samples.
fn process_peak(looks: &MemoryLooks) -> Option<Bytes> {
    looks.looks.iter().filter_map(|look| look.process).max()
}

/// The GPU's largest used memory in the samples.
fn device_peak(looks: &MemoryLooks) -> Option<Bytes> {
    looks.looks.iter().map(|look| look.device).max()
}

fn is_seen(looks: &MemoryLooks) -> bool {
    process_peak(looks).is_some()
}

#[test]
fn a_gpu_tells_its_memory_and_its_processes() {
    let test = "a_gpu_tells_its_memory_and_its_processes";
    on_a_gpu(test, "nvml_idle=7\nnvml_reserved=1000\nnvml_driver=580.1\n", |gpu| {
        gpu.record(
            me(),
            "start t=1 pid=1\ncontext t=2 device=0\nalloc t=3 bytes=100 reserved=100\n",
        );
        let nvml = Nvml::open(None).expect("the dynamic loader finds it");
        assert_eq!(nvml.driver_version().as_deref(), Some("580.1"));
        let device = nvml.device(UUID).unwrap();
        assert_eq!(device.uuid(), UUID);
        let memory = device.memory().unwrap();
        // Memory that the driver reserved is not counted.
        assert_eq!((memory.used, memory.total), (Bytes(CONTEXT + 100 + 7), Bytes(TOTAL)));
        let processes = device.processes().unwrap();
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        let expected = OtherProcess {
            pid: me(),
            name: Some(comm.trim_end().into()),
            bytes: Some(Bytes(CONTEXT + 100)),
        };
        assert_eq!(processes, [expected]);
    });
}

#[test]
fn two_gpus_are_told_apart() {
    on_a_gpu("two_gpus_are_told_apart", "devices=2\nnvml_idle=7\n", |gpu| {
        gpu.record(me(), "context t=2 device=1\nalloc t=3 bytes=100 reserved=100\n");
        let nvml = Nvml::open(None).unwrap();
        let used = |uuid| nvml.device(uuid).unwrap().memory().unwrap().used.0;
        assert_eq!((used(UUID), used(SECOND_UUID)), (7, CONTEXT + 100));
        assert_eq!(nvml.device(UUID).unwrap().processes(), Some(Vec::new()));
    });
}

#[test]
fn a_mig_instance_is_found_by_what_cuda_takes_for_the_id_of_a_gpu() {
    let test = "a_mig_instance_is_found_by_what_cuda_takes_for_the_id_of_a_gpu";
    on_a_gpu(test, "nvml_mig=1\n", |_| {
        let nvml = Nvml::open(None).unwrap();
        assert_eq!(nvml.device(UUID).unwrap().uuid(), MIG_UUID);
        assert_eq!(nvml.device(MIG_UUID).unwrap().uuid(), MIG_UUID);
        let error = nvml.device(SECOND_UUID).unwrap_err();
        assert_eq!(error.to_string(), format!("NVML finds no GPU `{SECOND_UUID}`"));
    });
}

#[test]
fn a_peak_includes_context_and_modules() {
    on_a_gpu("a_peak_includes_context_and_modules", "nvml_idle=7\n", |gpu| {
        let poller = gpu.poller(me());
        a_while();
        gpu.record(me(), "start t=1 pid=1\ncontext t=2 device=0\nmodule t=3\nmodule t=3\n");
        gpu.record(
            me(),
            "alloc t=4 bytes=1000 reserved=1000\nalloc t=5 bytes=1 reserved=10",
        );
        a_while();
        // Write the rest of the line: the value is 10001.
        gpu.record(me(), "001\n");
        a_while();
        gpu.record(me(), "free t=6 bytes=9001 reserved=1000\n");
        a_while();
        let looks = poller.stop();
        assert_eq!(looks.error, None);
        assert_eq!(looks.interval, INTERVAL);
        let outside = CONTEXT + 2 * MODULE;
        assert_eq!(process_peak(&looks), Some(Bytes(outside + 10_001)));
        assert_eq!(device_peak(&looks), Some(Bytes(outside + 10_001 + 7)));
        // The values in order: none before the process had a context, then each value of the record.
        let mut values: Vec<Option<u64>> = looks.looks.iter().map(|look| look.process.map(|b| b.0)).collect();
        values.dedup();
        let expected = [1000, 10_001, 1000].map(|tensors| Some(outside + tensors));
        assert_eq!(values.strip_prefix(&[None]).unwrap_or_default(), expected, "{values:?}");
        let last = looks.looks.last().unwrap();
        assert_eq!(last.device, Bytes(outside + 1000 + 7));
        assert!(looks.others(0, END).is_empty());
    });
}

#[test]
fn looks_are_stamped_by_the_clock_of_the_record_and_keep_to_their_schedule() {
    let test = "looks_are_stamped_by_the_clock_of_the_record_and_keep_to_their_schedule";
    on_a_gpu(test, "", |gpu| {
        let clock = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
        };
        let from = clock();
        let poller = gpu.poller(me());
        std::thread::sleep(Duration::from_secs(1));
        let looks = poller.stop();
        let to = clock();
        let count = looks.count(from, to);
        assert_eq!(count, looks.looks.len(), "all samples are between `from` and `to`");
        assert!(looks.looks.is_sorted_by(|a, b| a.time < b.time));
        let most = usize::try_from(u128::from(to - from) / INTERVAL.as_nanos()).unwrap() + 1;
        assert!((20..=most).contains(&count), "{count} of {most}");
        let gap = looks.longest_gap(from, to);
        assert!(gap >= INTERVAL && gap < Duration::from_secs(1), "{gap:?}");
    });
}

#[test]
fn a_process_that_ends_keeps_its_peak_and_holds_nothing() {
    let test = "a_process_that_ends_keeps_its_peak_and_holds_nothing";
    on_a_gpu(test, "", |gpu| {
        let mut process = Sleeper::start();
        let pid = process.0.id();
        gpu.record(pid, "context t=2 device=0\nalloc t=3 bytes=9 reserved=9\n");
        let poller = gpu.poller(pid);
        a_while();
        process.end();
        a_while();
        let looks = poller.stop();
        assert_eq!(looks.error, None);
        assert_eq!(process_peak(&looks), Some(Bytes(CONTEXT + 9)));
        let last = looks.looks.last().unwrap();
        assert_eq!((last.process, last.device), (None, Bytes(0)));
    });
}

#[test]
fn a_process_that_nvml_does_not_show_has_no_figure_and_the_gpu_has_one() {
    let test = "a_process_that_nvml_does_not_show_has_no_figure_and_the_gpu_has_one";
    on_a_gpu(test, "", |gpu| {
        gpu.record(me(), "context t=2 device=0\nalloc t=3 bytes=9 reserved=9\n");
        let held = Some(Bytes(CONTEXT + 9));
        let listed = |pid, bytes| Some(vec![(pid, bytes)]);
        // The answer instead of the process, for a single query and for the poller.
        for (shown, processes, other) in [
            ("none", Some(vec![]), None),
            ("unavailable", listed(me(), None), None),
            (
                "foreign",
                listed(me() + 5_000_000, held),
                Some((me() + 5_000_000, held)),
            ),
            ("refused", None, None),
        ] {
            gpu.configure(&format!("nvml_processes={shown}\n"));
            let nvml = Nvml::open(None).unwrap();
            let told = nvml.device(UUID).unwrap().processes();
            let told = told.map(|list| list.iter().map(|p| (p.pid, p.bytes)).collect::<Vec<_>>());
            assert_eq!(told, processes, "{shown}");

            let poller = gpu.poller(me());
            a_while();
            let looks = poller.stop();
            assert_eq!((&looks.error, is_seen(&looks)), (&None, false), "{shown}");
            assert_eq!(device_peak(&looks), held, "{shown}");
            let others = looks.others(0, END);
            assert_eq!(others.first().map(|p| (p.pid, p.bytes)), other, "{shown}");
        }
    });
}

#[test]
fn other_processes_are_seen_come_and_go() {
    on_a_gpu("other_processes_are_seen_come_and_go", "", |gpu| {
        let process = Sleeper::start();
        let pid = process.0.id();
        gpu.record(me(), "context t=2 device=0\n");
        let poller = gpu.poller(me());
        a_while();
        gpu.configure(&format!("nvml_other={pid}:70\nnvml_other=4999999:5\n"));
        a_while();
        gpu.configure(&format!("nvml_other={pid}:60\n"));
        a_while();
        gpu.configure("");
        a_while();
        let looks = poller.stop();
        assert_eq!(process_peak(&looks), Some(Bytes(CONTEXT)));
        assert_eq!(device_peak(&looks), Some(Bytes(CONTEXT + 75)));
        let other = |pid, name: Option<&str>, bytes| OtherProcess {
            pid,
            name: name.map(Into::into),
            bytes: Some(Bytes(bytes)),
        };
        let (sleep, nobody) = (other(pid, Some("sleep"), 70), other(4_999_999, None, 5));
        assert_eq!(looks.others(0, END), [&sleep, &nobody].map(Clone::clone));

        let mut lists: Vec<_> = looks.looks.iter().map(|look| &look.others).collect();
        lists.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let lists: Vec<&[OtherProcess]> = lists.into_iter().map(|list| &**list).collect();
        let fewer = other(pid, Some("sleep"), 60);
        assert_eq!(lists, [&[][..], &[sleep, nobody], &[fewer], &[]]);
    });
}

#[test]
fn a_call_that_never_returns_keeps_nobody_waiting_and_nothing_is_lost() {
    let test = "a_call_that_never_returns_keeps_nobody_waiting_and_nothing_is_lost";
    on_a_gpu(test, "", |gpu| {
        gpu.record(me(), "context t=2 device=0\n");
        let poller = gpu.poller(me());
        a_while();
        gpu.configure("nvml_hang=1\n");
        a_while();
        let stopped = Instant::now();
        let looks = poller.stop();
        let took = stopped.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert_eq!(looks.error.as_deref(), Some("NVML did not answer for 5 s"));
        assert_eq!(process_peak(&looks), Some(Bytes(CONTEXT)));
    });
}

#[test]
fn a_gpu_that_is_lost_ends_the_looks_and_not_those_before() {
    let test = "a_gpu_that_is_lost_ends_the_looks_and_not_those_before";
    on_a_gpu(test, "", |gpu| {
        gpu.record(me(), "context t=2 device=0\n");
        let poller = gpu.poller(me());
        a_while();
        gpu.configure("nvml_memory=15\n");
        a_while();
        gpu.configure("");
        a_while();
        let looks = poller.stop();
        assert_eq!(
            looks.error.as_deref(),
            Some("the GPU fell off the bus or must be reset")
        );
        assert_eq!(process_peak(&looks), Some(Bytes(CONTEXT)));
    });
}

#[test]
fn a_poller_without_a_library_sees_nothing_and_says_why() {
    let poller = Poller::start(Some("/nowhere/libnvidia-ml.so.1".into()), UUID.into(), me(), INTERVAL);
    let looks = poller.stop();
    assert!(looks.looks.is_empty());
    assert!(looks.error.unwrap().starts_with("cannot load NVML: /nowhere/"));
}

/// The code of an error; asserts that the error has a help text.
fn code(error: &NvmlError) -> String {
    assert!(error.help().is_some_and(|help| !help.to_string().is_empty()));
    error.code().unwrap().to_string()
}

#[test]
fn a_library_that_is_missing_or_none_is_refused() {
    let open = |path: &Path| code(&Nvml::open(Some(path)).unwrap_err());
    assert_eq!(open(Path::new("/nowhere/libnvidia-ml.so.1")), "nvml::library");
    assert_eq!(open(Path::new(env!("CARGO_MANIFEST_DIR"))), "nvml::library");
    assert_eq!(
        open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")),
        "nvml::library"
    );
    // A library, but not NVML.
    assert_eq!(open(Path::new("libc.so.6")), "nvml::function");
}

#[test]
fn each_way_to_fail_has_a_name_of_its_own() {
    on_a_gpu("each_way_to_fail_has_a_name_of_its_own", "", |gpu| {
        for (answer, expected) in [
            (4, "nvml::permission"),
            (9, "nvml::driver"),
            (18, "nvml::version"),
            (999, "nvml::call"),
            (12345, "nvml::call"),
        ] {
            gpu.configure(&format!("nvml_init={answer}\n"));
            assert_eq!(code(&Nvml::open(None).unwrap_err()), expected);
        }
        gpu.configure("");
        let nvml = Nvml::open(None).unwrap();
        for uuid in [SECOND_UUID, "GPU-", "7672616d", "", "GPU-\0", "MIG-no"] {
            assert_eq!(code(&nvml.device(uuid).unwrap_err()), "nvml::device", "{uuid:?}");
        }
        let device = nvml.device(UUID).unwrap();
        for (answer, expected) in [
            (15, "nvml::lost"),
            (16, "nvml::lost"),
            (4, "nvml::permission"),
            (3, "nvml::call"),
        ] {
            gpu.configure(&format!("nvml_device={answer}\nnvml_memory={answer}\n"));
            assert_eq!(code(&nvml.device(UUID).unwrap_err()), expected);
            assert_eq!(code(&device.memory().unwrap_err()), expected);
        }
        assert_eq!(
            device.memory().unwrap_err().to_string(),
            "NVML cannot read a GPU's memory: the requested operation is not available on the target device"
        );
    });
}

#[test]
fn a_killed_holder_frees_the_lock() {
    let test = "a_killed_holder_frees_the_lock";
    on_a_gpu(test, "", |gpu| {
        let held = gpu.folder.join("held");
        if std::env::var_os("HOLDER").is_some() {
            let _lock = DeviceLock::take(UUID, || panic!("nobody has the lock")).unwrap();
            std::fs::write(&held, "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let mut holder = Sleeper(gpu.process(test).env("HOLDER", "1").spawn().unwrap());
        let started = Instant::now();
        while !held.exists() {
            assert!(started.elapsed() < Duration::from_secs(30), "the holder has no lock");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(DeviceLock::path(UUID).starts_with(&gpu.folder));
        let (say, said) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let _lock = DeviceLock::take(UUID, || say.send("waits").unwrap()).unwrap();
            say.send("has it").unwrap();
        });
        assert_eq!(said.recv(), Ok("waits"));
        assert!(
            said.recv_timeout(Duration::from_millis(300)).is_err(),
            "the holder still has the lock"
        );
        holder.end();
        assert_eq!(said.recv_timeout(Duration::from_secs(30)), Ok("has it"));
        waiter.join().unwrap();
    });
}
