//! `cuGetProcAddress`: this library's own symbols, by the names that CUDA's header maps.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::abi::{Answer, INVALID_VALUE, NOT_FOUND, Out, Text, ensure, fault};
use crate::libc::{self, DlInfo};

/// Newest first; a name that exists as it stands goes before them.
const SUFFIXES: [&str; 3] = ["_v2", "_v3", "_v4"];
/// From CUDA 12.0 on this name has another signature.
const LOOKUP: &str = "cuGetProcAddress";
const LOOKUP_V2_SINCE: c_int = 12_000;

/// A handle to this library as the loader knows it.
fn this_library() -> *mut c_void {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let mut info = DlInfo {
            file: std::ptr::null(),
            base: std::ptr::null_mut(),
            symbol: std::ptr::null(),
            address: std::ptr::null_mut(),
        };
        // SAFETY: the address lies in this library, and `info` is valid for a write.
        let found = unsafe { libc::dladdr(this_library as *const c_void, &mut info) };
        if found == 0 {
            return 0;
        }
        // SAFETY: the loader's own name of this library; nothing new is loaded.
        unsafe { libc::dlopen(info.file, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*handle)
}

fn symbol(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    let library = this_library();
    if library.is_null() {
        return None;
    }
    // SAFETY: a live handle and a NUL-terminated name.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn find(name: Text, version: c_int) -> Answer<Option<*mut c_void>> {
    let name = str::from_utf8(name.bytes()?).map_err(|_| fault(INVALID_VALUE, "name"))?;
    ensure(name.starts_with("cu"), NOT_FOUND, "no_such_symbol")?;
    if name == LOOKUP && version >= LOOKUP_V2_SINCE {
        return Ok(symbol("cuGetProcAddress_v2"));
    }
    Ok(symbol(name).or_else(|| {
        SUFFIXES
            .iter()
            .find_map(|suffix| symbol(&format!("{name}{suffix}")))
    }))
}

driver_functions! {
    fn cuGetProcAddress(name: Text, function: Out<*mut c_void>, version: c_int, _flags: u64) {
        let found = find(name, version)?;
        function.set(found.unwrap_or(std::ptr::null_mut()))?;
        found.map(|_| ()).ok_or(fault(NOT_FOUND, "no_such_symbol"))
    }

    fn cuGetProcAddress_v2(
        name: Text,
        function: Out<*mut c_void>,
        version: c_int,
        _flags: u64,
        status: Out<c_uint>,
    ) {
        let found = find(name, version)?;
        function.set(found.unwrap_or(std::ptr::null_mut()))?;
        // Found, or no such symbol.
        status.set_if_wanted(c_uint::from(found.is_none()));
        found.map(|_| ()).ok_or(fault(NOT_FOUND, "no_such_symbol"))
    }
}
