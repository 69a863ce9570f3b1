//! The configuration file: what card this is, and where the record goes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::inject::Injection;

#[cfg(not(posing))]
pub(crate) const VARIABLE: &str = "CARGO_VRAM_DRIVER_CONFIG";
#[cfg(posing)]
pub(crate) const VARIABLE: &str = "CARGO_VRAM_POSING_CONFIG";
/// More cards than any machine that Burn runs on has.
pub(crate) const MAX_DEVICES: usize = 16;
/// Far below the range of addresses that are handed out.
const MOST_MEMORY: u64 = 1 << 44;

/// One card, as its driver describes it. All cards of a process are alike.
pub(crate) struct Config {
    pub(crate) record: PathBuf,
    /// Where calls are passed on to; virtual without.
    pub(crate) forward: Option<Forward>,
    pub(crate) injection: Option<Injection>,
    /// What a copy from device memory to the host finds there.
    pub(crate) reads: Reads,
    /// Whether time of day and keys of hash maps are others than in most runs.
    pub(crate) is_later: bool,
    /// Of each visible device, its place among all.
    #[cfg(posing)]
    pub(crate) places: Vec<usize>,
    #[cfg(posing)]
    pub(crate) uuids: Vec<String>,
    pub(crate) name: String,
    pub(crate) devices: usize,
    /// What `cuDeviceTotalMem` says.
    pub(crate) total: u64,
    /// What allocations may hold together; the rest is context and modules.
    pub(crate) available: u64,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) sm_count: u32,
    pub(crate) warp_size: u32,
    pub(crate) max_threads_per_block: u32,
    pub(crate) max_threads_per_sm: u32,
    pub(crate) max_blocks_per_sm: u32,
    pub(crate) max_block_dim: [u32; 3],
    pub(crate) max_grid_dim: [u32; 3],
    pub(crate) shared_per_block: u32,
    pub(crate) shared_per_block_optin: u32,
    pub(crate) shared_per_sm: u32,
    pub(crate) registers_per_block: u32,
    pub(crate) registers_per_sm: u32,
    pub(crate) l2_cache: u32,
    /// kHz.
    pub(crate) clock_rate: u32,
    /// kHz.
    pub(crate) memory_clock_rate: u32,
    /// Bits.
    pub(crate) memory_bus_width: u32,
    /// 13000 for CUDA 13.0.
    pub(crate) driver_version: i32,
    pub(crate) nvrtc_version: (i32, i32),
    pub(crate) virtual_clock: bool,
}

/// What a virtual GPU answers where a program reads its memory: nobody can know what kernels would have written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Zeros,
    /// Numbers near 1 of the type that the last kernel had there.
    Other,
}

/// The real libraries, and what less than its card has a program may see of it.
pub(crate) struct Forward {
    pub(crate) libcuda: PathBuf,
    pub(crate) libnvrtc: PathBuf,
    /// What the card is said to have, where that is not what it has.
    pub(crate) total: Option<u64>,
    /// What allocations may hold together. No more than `total`.
    pub(crate) available: Option<u64>,
}

/// What NVIDIA's programming guide gives for a compute capability: threads and blocks per
/// multiprocessor, shared memory per multiprocessor and, opted in, per block.
fn limits_of(capability: (u32, u32)) -> (u32, u32, u32, u32) {
    match capability {
        (..=6, _) => (2048, 32, 65_536, 49_152),
        (7, 0..=2) => (2048, 32, 98_304, 98_304),
        (7, _) => (1024, 16, 65_536, 65_536),
        (8, 0 | 7) => (2048, 32, 167_936, 166_912),
        (8, 9) => (1536, 24, 102_400, 101_376),
        (8, _) => (1536, 16, 102_400, 101_376),
        (9..=11, _) => (2048, 32, 233_472, 232_448),
        _ => (1536, 24, 102_400, 101_376),
    }
}

impl Config {
    /// The configuration that the environment names; `None` where it names none that can be read.
    pub(crate) fn from_environment() -> Option<Self> {
        let text = std::fs::read_to_string(std::env::var_os(VARIABLE)?).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let values = Values(
            text.lines()
                .filter_map(|line| line.split_once('='))
                .collect(),
        );
        let forward = match values.text("mode", "virtual") {
            "virtual" => None,
            "forward" => Some(Forward::of(&values)),
            _ => return None,
        };
        // An injection that cannot be read must not pass for a run without one.
        let injection = match values.0.get("inject") {
            Some(text) => Some(Injection::parse(text.trim())?),
            None => None,
        };
        let reads = match values.text("reads", "zeros") {
            "zeros" => Reads::Zeros,
            "other" => Reads::Other,
            _ => return None,
        };
        let is_later = values.text("moment", "") == "other";
        let devices = values.number("devices", 1).clamp(0, MAX_DEVICES);
        #[cfg(posing)]
        let uuids: Vec<String> = values.text("uuid", "").split(',').map(str::to_owned).collect();
        #[cfg(posing)]
        let places = crate::posing::visible(&uuids, devices);
        #[cfg(posing)]
        let devices = places.len();
        let compute_capability = (values.number("cc_major", 8), values.number("cc_minor", 9));
        let (threads, blocks, shared, shared_optin) = limits_of(compute_capability);
        let total = values.number("total", 24 << 30);
        let registers = values.number("registers_per_block", 65_536);
        Some(Self {
            record: record(&values),
            forward,
            injection,
            reads,
            is_later,
            #[cfg(posing)]
            places,
            #[cfg(posing)]
            uuids,
            name: values.text("name", "Virtual GPU").to_owned(),
            devices,
            total,
            available: values.number("available", total).min(MOST_MEMORY),
            compute_capability,
            sm_count: values.number("sm_count", 58),
            warp_size: values.number("warp_size", 32),
            max_threads_per_block: values.number("max_threads_per_block", 1024),
            max_threads_per_sm: values.number("max_threads_per_sm", threads),
            max_blocks_per_sm: values.number("max_blocks_per_sm", blocks),
            max_block_dim: values.triple("max_block_dim", [1024, 1024, 64]),
            max_grid_dim: values.triple("max_grid_dim", [2_147_483_647, 65_535, 65_535]),
            shared_per_block: values.number("shared_per_block", 49_152),
            shared_per_block_optin: values.number("shared_per_block_optin", shared_optin),
            shared_per_sm: values.number("shared_per_sm", shared),
            registers_per_block: registers,
            registers_per_sm: values.number("registers_per_sm", registers),
            l2_cache: values.number("l2_cache", 48 << 20),
            clock_rate: values.number("clock_rate", 2_040_000),
            memory_clock_rate: values.number("memory_clock_rate", 6_251_000),
            memory_bus_width: values.number("memory_bus_width", 192),
            driver_version: values.number("driver_version", 13_000),
            nvrtc_version: values.version("nvrtc_version", (13, 0)),
            virtual_clock: values.number("virtual_clock", 0) != 0,
        })
    }
}

/// Where the record goes. Each process writes a file of its own where that is asked for: a model may start others.
fn record(values: &Values<'_>) -> PathBuf {
    let path = values.text("record", "/dev/null");
    let pid = std::process::id();
    #[cfg(posing)]
    let path = &path.replace("{pid}", &pid.to_string());
    match values.number("record_per_process", 0) {
        0 => PathBuf::from(path),
        _ => PathBuf::from(format!("{path}.{pid}")),
    }
}

impl Forward {
    fn of(values: &Values<'_>) -> Self {
        let total = values.maybe("total");
        let available = values.maybe("available").into_iter().chain(total).min();
        Self {
            libcuda: PathBuf::from(values.text("libcuda", "")),
            libnvrtc: PathBuf::from(values.text("libnvrtc", "")),
            total,
            available,
        }
    }
}

/// In order: a map by hashes would ask for randomness, which asks for the configuration.
struct Values<'text>(BTreeMap<&'text str, &'text str>);

impl Values<'_> {
    fn text<'value>(&'value self, key: &str, default: &'value str) -> &'value str {
        self.0.get(key).map_or(default, |value| value.trim())
    }

    fn maybe<T: FromStr>(&self, key: &str) -> Option<T> {
        self.0.get(key)?.trim().parse().ok()
    }

    fn number<T: FromStr>(&self, key: &str, default: T) -> T {
        self.maybe(key).unwrap_or(default)
    }

    fn triple(&self, key: &str, default: [u32; 3]) -> [u32; 3] {
        let parse = |text: &str| -> Option<[u32; 3]> {
            let mut parts = text.split(',').map(|part| part.trim().parse().ok());
            Some([parts.next()??, parts.next()??, parts.next()??])
        };
        self.0
            .get(key)
            .and_then(|value| parse(value))
            .unwrap_or(default)
    }

    fn version(&self, key: &str, default: (i32, i32)) -> (i32, i32) {
        let parse = |text: &str| {
            let (major, minor) = text.trim().split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        self.0
            .get(key)
            .and_then(|value| parse(value))
            .unwrap_or(default)
    }
}
