//! Names and sentences of the result codes.

use std::ffi::{CStr, c_char};

use crate::abi::{CUresult, INVALID_VALUE, Out, fault};
use crate::codes::CODES;

fn find(code: CUresult) -> Option<&'static (CUresult, &'static CStr, &'static CStr)> {
    CODES.iter().find(|(known, ..)| *known == code)
}

driver_functions! {
    fn cuGetErrorName(code: CUresult, name: Out<*const c_char>) {
        let known = find(code);
        name.set(known.map_or(std::ptr::null(), |(_, name, _)| name.as_ptr()))?;
        known.map(|_| ()).ok_or(fault(INVALID_VALUE, "unknown_code"))
    }

    fn cuGetErrorString(code: CUresult, sentence: Out<*const c_char>) {
        let known = find(code);
        sentence.set(known.map_or(std::ptr::null(), |(_, _, sentence)| sentence.as_ptr()))?;
        known.map(|_| ()).ok_or(fault(INVALID_VALUE, "unknown_code"))
    }
}
