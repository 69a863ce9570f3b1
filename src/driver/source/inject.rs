//! Faults put in on purpose: one call of one function fails, or every call from that one on.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{CUresult, NCCL_INTERNAL_ERROR, NVRTC_INTERNAL_ERROR, UNKNOWN};
use crate::real::Library;
use crate::{context, proc_address, record};

/// `FUNCTION:N:CODE`, or with `:sticky` behind it.
pub(crate) struct Injection {
    function: String,
    /// Counted from 1.
    number: u64,
    code: CUresult,
    /// As after a card fell off the bus: nothing works any more.
    sticky: bool,
}

/// Whether a sticky fault has happened.
static STUCK: AtomicBool = AtomicBool::new(false);

impl Injection {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        // One that this library has not is never called, so never fails.
        let function = parts
            .next()
            .filter(|name| proc_address::symbol(name).is_some())?;
        let function = function.to_owned();
        let number = parts.next()?.parse().ok().filter(|number| *number > 0)?;
        let code = parts.next()?.parse().ok()?;
        let sticky = match parts.next() {
            None => false,
            Some("sticky") => true,
            Some(_) => return None,
        };
        parts.next().is_none().then_some(Self {
            function,
            number,
            code,
            sticky,
        })
    }

    /// What a function answers once the fault has stuck. The codes of driver and NVRTC are not
    /// the same, so each library has a general failure of its own for a fault of the other.
    fn stuck(&self, function: &str) -> CUresult {
        match (Library::of(&self.function), Library::of(function)) {
            (of, other) if of == other => self.code,
            (_, Library::Nvrtc) => NVRTC_INTERNAL_ERROR,
            (_, Library::Nccl) => NCCL_INTERNAL_ERROR,
            (_, Library::Cuda) => UNKNOWN,
        }
    }
}

/// The code that a call fails with, if it is to fail.
#[cold]
pub(crate) fn strike(function: &str, number: u64) -> Option<CUresult> {
    let injection = context::configured()?.injection.as_ref()?;
    if function == injection.function && number == injection.number {
        STUCK.fetch_or(injection.sticky, Ordering::Relaxed);
        return Some(injection.code);
    }
    // These say what a code means, and need no card for it.
    let speaks = matches!(function, "cuGetErrorName" | "cuGetErrorString");
    (!speaks && STUCK.load(Ordering::Relaxed)).then(|| injection.stuck(function))
}

/// Records an injected fault.
#[cold]
pub(crate) fn tell(function: &str, code: CUresult) -> CUresult {
    record::start();
    record::error(function, code, "injected");
    code
}
