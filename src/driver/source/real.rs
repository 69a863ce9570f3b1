//! The real libraries that calls are passed on to: opened by path at the first call, their
//! functions found by name.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{
    Answer, CUresult, NCCL_INTERNAL_ERROR, NOT_SUPPORTED, NVRTC_INTERNAL_ERROR, Out,
    SHARED_OBJECT_INIT_FAILED, SUCCESS, fault,
};
use crate::record::Line;
use crate::{context, libc, proc_address, record};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Cuda,
    Nvrtc,
    /// Virtual alone: a real one is found by the program itself.
    Nccl,
}

/// The loader's handle, which any thread may use, or why there is none.
type Opened = Result<usize, String>;

static CUDA: OnceLock<Opened> = OnceLock::new();
static NVRTC: OnceLock<Opened> = OnceLock::new();
static NCCL: OnceLock<Opened> = OnceLock::new();

impl Library {
    /// The library that a function belongs to.
    pub(crate) fn of(function: &str) -> Self {
        if function.starts_with("nvrtc") {
            Self::Nvrtc
        } else if function.starts_with("nccl") {
            Self::Nccl
        } else {
            Self::Cuda
        }
    }

    fn opened(self) -> &'static Opened {
        match self {
            Self::Cuda => CUDA.get_or_init(|| self.open()),
            Self::Nvrtc => NVRTC.get_or_init(|| self.open()),
            Self::Nccl => NCCL.get_or_init(|| self.open()),
        }
    }

    /// What a function answers where there is no library.
    fn not_loaded(self) -> CUresult {
        match self {
            Self::Cuda => SHARED_OBJECT_INIT_FAILED,
            Self::Nvrtc => NVRTC_INTERNAL_ERROR,
            Self::Nccl => NCCL_INTERNAL_ERROR,
        }
    }

    /// What a function answers that a library has not.
    pub(crate) fn not_supported(self) -> CUresult {
        match self {
            Self::Cuda => NOT_SUPPORTED,
            Self::Nvrtc => NVRTC_INTERNAL_ERROR,
            Self::Nccl => NCCL_INTERNAL_ERROR,
        }
    }

    /// Opens the library, and records what it is.
    fn open(self) -> Opened {
        let forward = context::configured().and_then(|config| config.forward.as_ref());
        let forward = forward.ok_or("not_forwarding")?;
        record::start();
        match self {
            Self::Cuda => {
                let handle = open(&forward.libcuda)?;
                let line = Line::new("real").text("cuda", &real_path(&forward.libcuda));
                with_version(line, "driver_version", cuda_version(handle)).write();
                Ok(handle)
            }
            Self::Nvrtc => {
                let handle = open(&forward.libnvrtc)?;
                let line = Line::new("nvrtc").text("path", &real_path(&forward.libnvrtc));
                with_version(line, "version", nvrtc_version(handle)).write();
                Ok(handle)
            }
            Self::Nccl => Err("not_forwarded".to_owned()),
        }
    }
}

fn open(path: &Path) -> Opened {
    // The loader takes an empty name for the program itself, and a bare one for this library.
    if !path.is_absolute() {
        return Err("not_an_absolute_path".to_owned());
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "not_a_path")?;
    // SAFETY: a NUL-terminated path; loading a driver runs nothing but its own constructors.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(loader_error());
    }
    // Every call would come back here, for ever.
    if handle == proc_address::this_library() {
        return Err("this_library_itself".to_owned());
    }
    Ok(handle.expose_provenance())
}

/// The loader's own words on what failed last on this thread.
fn loader_error() -> String {
    // SAFETY: has no conditions; the text is the thread's own until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "not_loaded".to_owned();
    }
    // SAFETY: not null, so NUL-terminated, and copied before the next call of the loader.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

fn look_up(handle: usize, name: &CStr) -> *mut c_void {
    // SAFETY: the handle came from `dlopen` and is never closed; the name is NUL-terminated.
    unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(handle), name.as_ptr()) }
}

/// Links followed: the name says the driver's version.
fn real_path(path: &Path) -> String {
    let real = std::fs::canonicalize(path);
    real.as_deref()
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

fn with_version(line: Line, key: &str, version: Option<impl std::fmt::Display>) -> Line {
    match version {
        Some(version) => line.with(key, version),
        None => line,
    }
}

fn cuda_version(handle: usize) -> Option<c_int> {
    let address = look_up(handle, c"cuDriverGetVersion");
    if address.is_null() {
        return None;
    }
    // SAFETY: the real function of this name, whose signature is CUDA's.
    let real: extern "C" fn(Out<c_int>) -> CUresult = unsafe { std::mem::transmute(address) };
    let mut version = 0;
    (real(Out::to(&mut version)) == SUCCESS).then_some(version)
}

fn nvrtc_version(handle: usize) -> Option<String> {
    let address = look_up(handle, c"nvrtcVersion");
    if address.is_null() {
        return None;
    }
    type Version = extern "C" fn(Out<c_int>, Out<c_int>) -> CUresult;
    // SAFETY: the real function of this name, whose signature is NVRTC's.
    let real: Version = unsafe { std::mem::transmute(address) };
    let (mut major, mut minor) = (0, 0);
    let code = real(Out::to(&mut major), Out::to(&mut minor));
    (code == SUCCESS).then(|| format!("{major}.{minor}"))
}

/// A function of a real library, looked up once.
pub(crate) struct Symbol {
    /// With its NUL.
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// `name` ends with the NUL that the loader wants.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name.trim_end_matches('\0')
    }

    pub(crate) fn library(&self) -> Library {
        Library::of(self.name)
    }

    /// Never null.
    #[inline]
    pub(crate) fn address(&self) -> Answer<*mut c_void> {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            self.find()
        } else {
            Ok(address)
        }
    }

    #[cold]
    fn find(&self) -> Answer<*mut c_void> {
        let library = self.library();
        let missing = fault(library.not_supported(), "not_in_the_real_library");
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).map_err(|_| missing)?;
        let handle = match library.opened() {
            Ok(handle) => *handle,
            Err(why) => return Err(fault(library.not_loaded(), why)),
        };
        let address = look_up(handle, name);
        if address.is_null() {
            return Err(missing);
        }
        self.address.store(address, Ordering::Relaxed);
        Ok(address)
    }
}

/// The address of a function of the real driver; null where it has none of that name.
pub(crate) fn cuda_symbol(name: &str) -> *mut c_void {
    match (CString::new(name), Library::Cuda.opened()) {
        (Ok(name), Ok(handle)) => look_up(*handle, &name),
        _ => std::ptr::null_mut(),
    }
}

/// Calls a function of a real library on this library's own account: `ask!(name(value => type))`.
/// `None` where the library does not have it.
macro_rules! ask {
    ($name:ident ( $( $value:expr => $type:ty ),* $(,)? )) => {{
        static REAL: $crate::real::Symbol =
            $crate::real::Symbol::new(concat!(stringify!($name), "\0"));
        REAL.address().ok().map(|address| {
            // SAFETY: the address is that of the real library's function of this name, and the
            // signature is CUDA's for that name.
            let real = unsafe {
                std::mem::transmute::<
                    *mut std::ffi::c_void,
                    extern "C" fn($($type),*) -> $crate::abi::CUresult,
                >(address)
            };
            real($($value),*)
        })
    }};
}
