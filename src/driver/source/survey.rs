//! `vram-survey`: what CUDA says of itself and of its cards, one fact a line.
//!
//! A program of its own, so that a driver that crashes or hangs takes nothing else with it. It is
//! built by bare `rustc`, shares no code with the library beside it, and loads what it asks by path.
//!
//!     vram-survey --libcuda PATH [--libnvrtc PATH] [--proof SEED]

#![warn(clippy::undocumented_unsafe_blocks, unreachable_pub)]

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const RTLD_NOW: c_int = 2;
const USAGE: c_int = 2;
const LONGEST_TEXT: usize = 2048;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn dup(file: c_int) -> c_int;
    fn dup2(file: c_int, to: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

fn main() {
    let mut facts = Facts::take_stdout();
    let Some(asked) = Asked::parse() else {
        eprintln!("vram-survey --libcuda PATH [--libnvrtc PATH] [--proof SEED]");
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
}

impl Asked {
    fn parse() -> Option<Self> {
        let (mut libcuda, mut libnvrtc, mut proof) = (None, None, None);
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.to_str()? {
                "--libcuda" => libcuda = Some(value),
                "--libnvrtc" => libnvrtc = Some(value),
                "--proof" => proof = Some(value.to_str()?.parse().ok()?),
                _ => return None,
            }
        }
        Some(Self {
            libcuda: libcuda?,
            libnvrtc,
            proof,
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

/// What failed.
struct Failure {
    function: &'static str,
    code: c_uint,
    name: String,
    detail: String,
}

/// A shared library.
struct Library {
    handle: *mut c_void,
    path: Vec<u8>,
}

impl Library {
    fn open(path: &OsString) -> Result<Self, Failure> {
        let failure = |detail| Failure {
            function: "dlopen",
            code: 0,
            name: String::new(),
            detail,
        };
        let Ok(name) = CString::new(path.clone().into_vec()) else {
            return Err(failure("a path with a NUL in it".to_owned()));
        };
        // SAFETY: a NUL-terminated path; that the library's initializers run is what is wanted.
        let handle = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: called on the same thread right after the failure.
            let said = unsafe { dlerror() };
            return Err(failure(text(said)));
        }
        let path = std::fs::canonicalize(path).map_or_else(|_| path.clone(), Into::into);
        Ok(Self {
            handle,
            path: path.as_bytes().to_vec(),
        })
    }

    fn find(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The text behind a pointer that a library gave, or nothing.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the libraries' contract: their texts are NUL-terminated and stay.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

/// A function of a library, called: its code, where it is not zero, is a failure.
macro_rules! call {
    ($library:expr, $name:ident ( $( $value:expr => $type:ty ),* $(,)? )) => {{
        let library: &dyn Says = &$library;
        match library.library().find(stringify!($name)) {
            None => Err(missing(stringify!($name))),
            Some(address) => {
                // SAFETY: the library's documented signature of this function.
                let function = unsafe {
                    std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> c_uint>(address)
                };
                match function($($value),*) {
                    0 => Ok(()),
                    code => Err(library.refusal(stringify!($name), code)),
                }
            }
        }
    }};
}

fn missing(function: &'static str) -> Failure {
    Failure {
        function,
        code: 0,
        name: "MISSING_FUNCTION".to_owned(),
        detail: "the library has no such function".to_owned(),
    }
}

/// A library that explains its codes.
trait Says {
    fn library(&self) -> &Library;
    fn refusal(&self, function: &'static str, code: c_uint) -> Failure;
}

struct Cuda(Library);

impl Says for Cuda {
    fn library(&self) -> &Library {
        &self.0
    }

    fn refusal(&self, function: &'static str, code: c_uint) -> Failure {
        let said = |name: &str| {
            let mut said = std::ptr::null();
            if let Some(address) = self.0.find(name) {
                // SAFETY: CUDA's documented signature of both functions that are looked up here.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(c_uint, *mut *const c_char) -> c_uint,
                    >(address)
                };
                function(code, &mut said);
            }
            text(said)
        };
        Failure {
            function,
            code,
            name: said("cuGetErrorName"),
            detail: said("cuGetErrorString"),
        }
    }
}

struct Nvrtc(Library);

impl Says for Nvrtc {
    fn library(&self) -> &Library {
        &self.0
    }

    fn refusal(&self, function: &'static str, code: c_uint) -> Failure {
        let name = self
            .0
            .find("nvrtcGetErrorString")
            .map_or(String::new(), |address| {
                // SAFETY: NVRTC's documented signature.
                let function = unsafe {
                    std::mem::transmute::<*mut c_void, extern "C" fn(c_uint) -> *const c_char>(
                        address,
                    )
                };
                text(function(code))
            });
        Failure {
            function,
            code,
            name,
            detail: String::new(),
        }
    }
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
        Some(seed) if count > 0 => prove(&cuda, nvrtc.as_ref(), seed, facts),
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

const ROUNDS: u32 = 1000;
const MOST_PTX: usize = 1 << 20;
const KERNEL: &CStr = c"extern \"C\" __global__ void cargo_vram_proof(unsigned long long *out, unsigned long long seed)
{
    unsigned long long x = seed;
    for (int round = 0; round < 1000; ++round) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    }
    *out = x;
}
";

fn expected(seed: u64) -> u64 {
    (0..ROUNDS).fold(seed, |x, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

type Handle = *mut c_void;

/// Runs a kernel on the first card, and tells what it computed.
fn prove(cuda: &Cuda, nvrtc: Option<&Nvrtc>, seed: u64, facts: &mut Facts) -> Result<(), Failure> {
    let mut device: c_int = 0;
    call!(*cuda, cuDeviceGet(&mut device => *mut c_int, 0 => c_int))?;
    let mut context: Handle = std::ptr::null_mut();
    call!(*cuda, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, device => c_int))?;
    call!(*cuda, cuCtxSetCurrent(context => Handle))?;
    let (mut free, mut total): (usize, usize) = (0, 0);
    call!(*cuda, cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize))?;
    facts.write(&format!("context ordinal=0 free={free} total={total}"));

    let nvrtc = nvrtc.ok_or(Failure {
        function: "dlopen",
        code: 0,
        name: String::new(),
        detail: "no NVRTC: nothing can be compiled".to_owned(),
    })?;
    let capability = values(cuda, device, &[75, 76])?.replace(',', "");
    let ptx = compile(nvrtc, &capability)?;
    let mut module: Handle = std::ptr::null_mut();
    call!(*cuda, cuModuleLoadData(&mut module => *mut Handle, ptx.as_ptr() => *const u8))?;
    let mut kernel: Handle = std::ptr::null_mut();
    call!(*cuda, cuModuleGetFunction(
        &mut kernel => *mut Handle, module => Handle, c"cargo_vram_proof".as_ptr() => *const c_char
    ))?;
    let mut out: u64 = 0;
    call!(*cuda, cuMemAlloc_v2(&mut out => *mut u64, size_of::<u64>() => usize))?;
    let (mut out_argument, mut seed_argument) = (out, seed);
    let mut arguments: [*mut u64; 2] = [&mut out_argument, &mut seed_argument];
    let none: Handle = std::ptr::null_mut();
    call!(*cuda, cuLaunchKernel(
        kernel => Handle,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        0 => c_uint, none => Handle, arguments.as_mut_ptr() => *mut *mut u64, none => Handle,
    ))?;
    call!(*cuda, cuCtxSynchronize())?;
    let mut computed: u64 = 0;
    call!(*cuda, cuMemcpyDtoH_v2(&mut computed => *mut u64, out => u64, size_of::<u64>() => usize))?;
    let expected = expected(seed);
    facts.write(&format!(
        "proof ordinal=0 seed={seed} expected={expected} computed={computed}"
    ));
    // Given back in order; by now a refusal would change nothing.
    let _ = call!(*cuda, cuMemFree_v2(out => u64));
    let _ = call!(*cuda, cuModuleUnload(module => Handle));
    let _ = call!(*cuda, cuDevicePrimaryCtxRelease_v2(device => c_int));
    Ok(())
}

/// The kernel as PTX, in the way that Burn has it compiled.
fn compile(nvrtc: &Nvrtc, capability: &str) -> Result<Vec<u8>, Failure> {
    let mut program: Handle = std::ptr::null_mut();
    let none: *const *const c_char = std::ptr::null();
    call!(*nvrtc, nvrtcCreateProgram(
        &mut program => *mut Handle, KERNEL.as_ptr() => *const c_char,
        c"cargo_vram_proof.cu".as_ptr() => *const c_char,
        0 => c_int, none => *const *const c_char, none => *const *const c_char
    ))?;
    let option = CString::new(format!("--gpu-architecture=sm_{capability}")).unwrap_or_default();
    let options = [option.as_ptr()];
    let compiled = call!(*nvrtc, nvrtcCompileProgram(
        program => Handle, 1 => c_int, options.as_ptr() => *const *const c_char
    ));
    if let Err(mut failure) = compiled {
        let mut size: usize = 0;
        let sized =
            call!(*nvrtc, nvrtcGetProgramLogSize(program => Handle, &mut size => *mut usize));
        let mut log = vec![0_u8; size.min(1 << 20)];
        if sized.is_ok() && size == log.len() {
            let _ =
                call!(*nvrtc, nvrtcGetProgramLog(program => Handle, log.as_mut_ptr() => *mut u8));
        }
        failure.detail = String::from_utf8_lossy(&until_nul(&log)).into_owned();
        return Err(failure);
    }
    let mut size: usize = 0;
    call!(*nvrtc, nvrtcGetPTXSize(program => Handle, &mut size => *mut usize))?;
    if size > MOST_PTX {
        return Err(Failure {
            function: "nvrtcGetPTXSize",
            code: 0,
            name: String::new(),
            detail: format!("a kernel of a few lines takes {size} bytes"),
        });
    }
    let mut ptx = vec![0_u8; size + 1];
    call!(*nvrtc, nvrtcGetPTX(program => Handle, ptx.as_mut_ptr() => *mut u8))?;
    let _ = call!(*nvrtc, nvrtcDestroyProgram(&mut program => *mut Handle));
    Ok(ptx)
}
