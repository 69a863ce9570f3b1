//! Libraries that are loaded by path, and calls of their functions by name.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// What failed.
pub(crate) struct Failure {
    pub(crate) function: &'static str,
    pub(crate) code: c_uint,
    pub(crate) name: String,
    pub(crate) detail: String,
}

/// A shared library.
pub(crate) struct Library {
    handle: *mut c_void,
    pub(crate) path: Vec<u8>,
}

impl Library {
    pub(crate) fn open(path: &OsString) -> Result<Self, Failure> {
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

    pub(crate) fn find(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The text behind a pointer that a library gave, or nothing.
pub(crate) fn text(pointer: *const c_char) -> String {
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
        let library: &dyn $crate::survey_library::Says = &$library;
        match library.library().find(stringify!($name)) {
            None => Err($crate::survey_library::missing(stringify!($name))),
            Some(address) => {
                // SAFETY: the library's documented signature of this function.
                let function = unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn($($type),*) -> std::ffi::c_uint>(address)
                };
                match function($($value),*) {
                    0 => Ok(()),
                    code => Err(library.refusal(stringify!($name), code)),
                }
            }
        }
    }};
}

pub(crate) fn missing(function: &'static str) -> Failure {
    Failure {
        function,
        code: 0,
        name: "MISSING_FUNCTION".to_owned(),
        detail: "the library has no such function".to_owned(),
    }
}

/// A library that explains its codes.
pub(crate) trait Says {
    fn library(&self) -> &Library;
    fn refusal(&self, function: &'static str, code: c_uint) -> Failure;
}

pub(crate) struct Cuda(pub(crate) Library);

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

pub(crate) struct Nvrtc(pub(crate) Library);

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
