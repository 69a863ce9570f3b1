//! `cuGetProcAddress`: this library's own symbols, by the names that CUDA's header maps.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::abi::{Answer, INVALID_VALUE, NOT_FOUND, Out, Text, ensure, fault};
use crate::libc::{self, DlInfo};
use crate::{real, stubs};

/// Newest first; a name that exists as it stands goes before them.
const SUFFIXES: [&str; 3] = ["_v2", "_v3", "_v4"];
/// From CUDA 12.0 on this name has another signature.
const LOOKUP: &str = "cuGetProcAddress";
const LOOKUP_V2_SINCE: c_int = 12_000;

/// Functions whose default stream is the thread's own: the real driver has them beside the others,
/// and this library has not.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// What must be counted whatever the default stream is.
const COUNTED: &[&str] = &[
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemAllocHost_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
];

/// A handle to this library as the loader knows it.
pub(crate) fn this_library() -> *mut c_void {
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

pub(crate) fn symbol(name: &str) -> Option<*mut c_void> {
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

/// This library's function for the one that the real driver found under a name.
fn ours(name: Text, found: *mut c_void, flags: u64) -> Option<*mut c_void> {
    let name = str::from_utf8(name.bytes().ok()?).ok()?;
    let mut candidates = vec![name.to_owned()];
    candidates.extend(SUFFIXES.iter().map(|suffix| format!("{name}{suffix}")));
    // Which version of a function it is, its address tells.
    let same = candidates
        .iter()
        .find(|name| real::cuda_symbol(name) == found);
    if let Some(same) = same {
        return symbol(same);
    }
    // One with the thread's own default stream, or one that is exported under no name.
    let must = |name: &str| COUNTED.contains(&name) || stubs::UNCOUNTED.contains(&name);
    if let Some(must) = candidates.iter().find(|name| must(name)) {
        return symbol(must);
    }
    // Of several versions nobody knows which one is meant, and a wrong one would be fatal.
    let mut versions = candidates.iter().filter_map(|name| symbol(name));
    let only = versions.next().filter(|_| versions.next().is_none());
    only.filter(|_| flags & PER_THREAD_DEFAULT_STREAM == 0)
}

/// Puts this library's function in the place of what the real driver answered, where it has one.
fn replace(name: Text, function: Out<*mut c_void>, flags: u64) {
    let found = function.written().filter(|found| !found.is_null());
    if let Some(ours) = found.and_then(|found| ours(name, found, flags)) {
        function.set_if_wanted(ours);
    }
}

driver_functions! {
    fn cuGetProcAddress(name: Text, function: Out<*mut c_void>, version: c_int, flags: u64) {
        let found = find(name, version)?;
        function.set(found.unwrap_or(std::ptr::null_mut()))?;
        found.map(|_| ()).ok_or(fault(NOT_FOUND, "no_such_symbol"))
    } forward(real) {
        real()?;
        replace(name, function, flags);
        Ok(())
    }

    fn cuGetProcAddress_v2(
        name: Text,
        function: Out<*mut c_void>,
        version: c_int,
        flags: u64,
        status: Out<c_uint>,
    ) {
        let found = find(name, version)?;
        function.set(found.unwrap_or(std::ptr::null_mut()))?;
        // Found, or no such symbol.
        status.set_if_wanted(c_uint::from(found.is_none()));
        found.map(|_| ()).ok_or(fault(NOT_FOUND, "no_such_symbol"))
    } forward(real) {
        real()?;
        replace(name, function, flags);
        Ok(())
    }
}
