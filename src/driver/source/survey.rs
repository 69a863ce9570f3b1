//! `vram-survey`: what CUDA says of itself and of its cards, one fact a line.
//!
//! A program of its own, so that a driver that crashes or hangs takes nothing else with it. It is
//! built by bare `rustc`, shares no code with the library beside it, and loads what it asks by path.
//!
//!     vram-survey --libcuda PATH [--libnvrtc PATH] [--proof SEED [--headers FOLDER]]

#![warn(clippy::undocumented_unsafe_blocks, unreachable_pub)]

#[macro_use]
mod survey_library;
mod survey_proof;

use std::borrow::Cow;
use std::ffi::{OsString, c_int, c_uint};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;

use survey_library::{Cuda, Failure, Library, Nvrtc};
use survey_proof::prove;

const USAGE: c_int = 2;
const LONGEST_TEXT: usize = 2048;

unsafe extern "C" {
    fn dup(file: c_int) -> c_int;
    fn dup2(file: c_int, to: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

fn main() {
    let mut facts = Facts::take_stdout();
    let Some(asked) = Asked::parse() else {
        eprintln!("vram-survey --libcuda PATH [--libnvrtc PATH] [--proof SEED [--headers FOLDER]]");
        exit(USAGE);
    };
    let code = match survey(&asked, &mut facts) {
        Ok(()) => {
            facts.write("end");
            0
        }
        Err(failure) => {
            facts.failure(&failure);
            1
        }
    };
    exit(code)
}

/// Ends the program without the libraries' own exit handlers, which are none of this program's business.
fn exit(code: c_int) -> ! {
    // SAFETY: nothing is buffered: each line was written by one call.
    unsafe { _exit(code) }
}

/// What the command line asks for.
struct Asked {
    libcuda: OsString,
    libnvrtc: Option<OsString>,
    proof: Option<u64>,
    /// CUDA's, for the kernel of the proof.
    headers: Option<OsString>,
}

impl Asked {
    fn parse() -> Option<Self> {
        let (mut libcuda, mut libnvrtc, mut proof, mut headers) = (None, None, None, None);
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.to_str()? {
                "--libcuda" => libcuda = Some(value),
                "--libnvrtc" => libnvrtc = Some(value),
                "--proof" => proof = Some(value.to_str()?.parse().ok()?),
                "--headers" => headers = Some(value),
                _ => return None,
            }
        }
        Some(Self {
            libcuda: libcuda?,
            libnvrtc,
            proof,
            headers,
        })
    }
}

/// Where the facts go: what was standard output when the program began.
struct Facts(File);

impl Facts {
    /// Keeps standard output for the facts: what a library prints there goes to standard error.
    fn take_stdout() -> Self {
        // SAFETY: both are descriptors of this process, which has just begun.
        let kept = unsafe { dup(1) };
        if kept < 0 {
            exit(USAGE);
        }
        // SAFETY: as above; where there is no standard error, nothing is redirected.
        unsafe { dup2(2, 1) };
        // SAFETY: the descriptor was just made, and nobody else has it.
        Self(unsafe { File::from_raw_fd(kept) })
    }

    fn write(&mut self, line: &str) {
        // Whoever closed the pipe reads no more.
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }

    fn failure(&mut self, failure: &Failure) {
        let Failure {
            function,
            code,
            name,
            detail,
        } = failure;
        let (name, detail) = (escaped(name.as_bytes()), escaped(detail.as_bytes()));
        self.write(&format!(
            "error function={function} code={code} name={name} detail={detail}"
        ));
    }
}

/// A text as the record has it: whatever is not plain is percent-escaped; `-` where it is empty.
fn escaped(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    for byte in bytes.iter().take(LONGEST_TEXT) {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn survey(asked: &Asked, facts: &mut Facts) -> Result<(), Failure> {
    let cuda = Cuda(Library::open(&asked.libcuda)?);
    let mut version: c_int = 0;
    call!(cuda, cuDriverGetVersion(&mut version => *mut c_int))?;
    facts.write(&format!(
        "driver version={version} path={}",
        escaped(&cuda.0.path)
    ));
    let nvrtc = match &asked.libnvrtc {
        None => None,
        Some(path) => match compiler(path, facts) {
            Ok(nvrtc) => Some(nvrtc),
            Err(failure) => {
                // The cards can be told of all the same.
                let (path, detail) = (escaped(path.as_bytes()), escaped(failure.detail.as_bytes()));
                facts.write(&format!(
                    "unusable library=nvrtc path={path} detail={detail}"
                ));
                None
            }
        },
    };
    call!(cuda, cuInit(0 => c_uint))?;
    let mut count: c_int = 0;
    call!(cuda, cuDeviceGetCount(&mut count => *mut c_int))?;
    for ordinal in 0..count {
        let line = device(&cuda, ordinal)?;
        facts.write(&line);
    }
    match asked.proof {
        Some(seed) if count > 0 => {
            prove(&cuda, nvrtc.as_ref(), seed, asked.headers.as_ref(), facts)
        }
        _ => Ok(()),
    }
}

fn compiler(path: &OsString, facts: &mut Facts) -> Result<Nvrtc, Failure> {
    let nvrtc = Nvrtc(Library::open(path)?);
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    call!(nvrtc, nvrtcVersion(&mut major => *mut c_int, &mut minor => *mut c_int))?;
    facts.write(&format!(
        "nvrtc version={major}.{minor} path={}",
        escaped(&nvrtc.0.path)
    ));
    Ok(nvrtc)
}

/// Attributes that make a card what it is; without one of them it cannot be told.
const NEEDED: [(&str, &[c_int]); 16] = [
    ("cc_major", &[75]),
    ("cc_minor", &[76]),
    ("sm_count", &[16]),
    ("warp_size", &[10]),
    ("max_threads_per_block", &[1]),
    ("max_threads_per_sm", &[39]),
    ("max_blocks_per_sm", &[106]),
    ("max_block_dim", &[2, 3, 4]),
    ("max_grid_dim", &[5, 6, 7]),
    ("shared_per_block", &[8]),
    ("shared_per_block_optin", &[97]),
    ("shared_per_sm", &[81]),
    ("registers_per_block", &[12]),
    ("registers_per_sm", &[82]),
    ("l2_cache", &[38]),
    ("memory_bus_width", &[37]),
];
/// Attributes that newer drivers may stop to tell; left out then.
const WANTED: [(&str, &[c_int]); 2] = [("clock_rate", &[13]), ("memory_clock_rate", &[36])];

fn device(cuda: &Cuda, ordinal: c_int) -> Result<String, Failure> {
    let mut device: c_int = 0;
    call!(*cuda, cuDeviceGet(&mut device => *mut c_int, ordinal => c_int))?;
    let mut name = [0_u8; 256];
    let room = name.len() as c_int - 1;
    call!(*cuda, cuDeviceGetName(name.as_mut_ptr() => *mut u8, room => c_int, device => c_int))?;
    let mut pci = [0_u8; 64];
    let room = pci.len() as c_int - 1;
    // A virtual function may have none.
    let _ = call!(*cuda, cuDeviceGetPCIBusId(pci.as_mut_ptr() => *mut u8, room => c_int, device => c_int));
    let mut total: usize = 0;
    call!(*cuda, cuDeviceTotalMem_v2(&mut total => *mut usize, device => c_int))?;
    let mut line = format!(
        "device ordinal={ordinal} uuid={} name={} pci={} total={total}",
        uuid(cuda, device)?,
        escaped(&until_nul(&name)),
        escaped(&until_nul(&pci)),
    );
    for (key, attributes) in NEEDED {
        line.push_str(&format!(" {key}={}", values(cuda, device, attributes)?));
    }
    for (key, attributes) in WANTED {
        if let Ok(value) = values(cuda, device, attributes) {
            line.push_str(&format!(" {key}={value}"));
        }
    }
    Ok(line)
}

fn values(cuda: &Cuda, device: c_int, attributes: &[c_int]) -> Result<String, Failure> {
    let mut values = Vec::new();
    for attribute in attributes {
        let mut value: c_int = 0;
        call!(*cuda, cuDeviceGetAttribute(
            &mut value => *mut c_int, *attribute => c_int, device => c_int
        ))?;
        values.push(value.to_string());
    }
    Ok(values.join(","))
}

fn until_nul(bytes: &[u8]) -> Cow<'_, [u8]> {
    bytes
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default()
        .into()
}

/// The card's own id. Of a slice of a card (MIG), the newer function tells the slice's and the older one the
/// card's, which is how the two are told apart.
fn uuid(cuda: &Cuda, device: c_int) -> Result<String, Failure> {
    let (mut old, mut new) = ([0_u8; 16], [0_u8; 16]);
    let of_card = call!(*cuda, cuDeviceGetUuid(&mut old => *mut [u8; 16], device => c_int));
    let of_slice = call!(*cuda, cuDeviceGetUuid_v2(&mut new => *mut [u8; 16], device => c_int));
    let (prefix, id) = match (of_card, of_slice) {
        (Ok(()), Ok(())) if old != new => ("MIG", new),
        (_, Ok(())) => ("GPU", new),
        (Ok(()), Err(_)) => ("GPU", old),
        (Err(failure), Err(_)) => return Err(failure),
    };
    let mut text = prefix.to_owned();
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Ok(text)
}
