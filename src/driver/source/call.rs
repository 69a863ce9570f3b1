//! Every call on its way in: counted, perhaps made to fail, and sent to the virtual function or
//! to the real one.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::abi::{Answer, CUresult};
use crate::handles::lock;
use crate::real::Symbol;
use crate::record::Line;
use crate::{context, inject};

/// An exported function: how often it was called, and the real function of its name.
pub(crate) struct Call {
    real: Symbol,
    count: AtomicU64,
}

/// What becomes of a call.
pub(crate) enum Turn {
    Virtual,
    Forward,
    /// It fails with this code and does nothing.
    Injected(CUresult),
}

/// The functions that were called at least once.
static CALLED: Mutex<Vec<&'static Call>> = Mutex::new(Vec::new());

/// What the configuration says, in the bits that a call looks at; 0 before it was read.
static WAYS: AtomicU8 = AtomicU8::new(0);
const READ: u8 = 1;
const FORWARD: u8 = 2;
const INJECT: u8 = 4;

#[cold]
fn read_configuration() -> u8 {
    let mut ways = READ;
    if let Some(config) = context::configured() {
        ways |= if config.forward.is_some() { FORWARD } else { 0 };
        ways |= if config.injection.is_some() {
            INJECT
        } else {
            0
        };
    }
    WAYS.store(ways, Ordering::Relaxed);
    ways
}

#[inline]
fn ways() -> u8 {
    match WAYS.load(Ordering::Relaxed) {
        0 => read_configuration(),
        ways => ways,
    }
}

/// Whether calls are passed on to a real driver.
pub(crate) fn forwards() -> bool {
    ways() & FORWARD != 0
}

impl Call {
    /// `name` ends with the NUL that the loader wants.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            real: Symbol::new(name),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.real.name()
    }

    /// The real function's address.
    #[inline]
    pub(crate) fn real(&self) -> Answer<*mut c_void> {
        self.real.address()
    }

    /// Counts a call and says what becomes of it. The hot path: one addition and one load.
    #[inline]
    pub(crate) fn enter(&'static self) -> Turn {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.called();
        }
        let ways = ways();
        if ways & INJECT != 0
            && let Some(code) = inject::strike(self.name(), before + 1)
        {
            return Turn::Injected(code);
        }
        if ways & FORWARD != 0 {
            Turn::Forward
        } else {
            Turn::Virtual
        }
    }

    #[cold]
    fn called(&'static self) {
        lock(&CALLED).push(self);
    }
}

/// Writes how often each function was called, in the order of their names.
pub(crate) fn write_counts() {
    let mut called = lock(&CALLED).clone();
    called.sort_unstable_by_key(|call| call.name());
    for call in called {
        Line::new("calls")
            .with("function", call.name())
            .with("count", call.count.load(Ordering::Relaxed))
            .write();
    }
}
