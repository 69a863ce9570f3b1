//! Initialisation, primary contexts and each thread's stack of current contexts.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::abi::{
    Answer, CONTEXT_IS_DESTROYED, CUresult, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE,
    NO_DEVICE, NOT_INITIALIZED, Out, PRIMARY_CONTEXT_ACTIVE, SUCCESS, UNSUPPORTED_LIMIT, ensure,
    fault,
};
use crate::config::{Config, MAX_DEVICES};
use crate::handles::lock;
use crate::record::Line;
use crate::{clock, event, forward, memory, module, record, stream};

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
/// The configuration, once `cuInit` was called.
static CARD: OnceLock<&'static Config> = OnceLock::new();
/// How often each device's primary context is retained; the index is the device.
static RETAINED: [AtomicU32; MAX_DEVICES] = [const { AtomicU32::new(0) }; MAX_DEVICES];
/// Retaining and releasing, one at a time.
static LIFE: Mutex<()> = Mutex::new(());

/// A primary context's handle is this plus its device shifted; never an address.
const FIRST_CONTEXT: u64 = 0x43 << 40;
const CONTEXT_SHIFT: u32 = 12;
const DEEPEST: usize = 15;

thread_local! {
    static CURRENT: Cell<Stack> = const { Cell::new(Stack { depth: 0, devices: [0; DEEPEST] }) };
}

#[derive(Clone, Copy)]
struct Stack {
    depth: u8,
    devices: [u8; DEEPEST],
}

impl Stack {
    fn top(&self) -> Option<usize> {
        let depth = usize::from(self.depth).checked_sub(1)?;
        Some(usize::from(self.devices[depth]))
    }

    fn push(&mut self, device: usize) -> Answer {
        let slot = self.devices.get_mut(usize::from(self.depth));
        *slot.ok_or(fault(INVALID_VALUE, "context_stack_too_deep"))? = device as u8;
        self.depth += 1;
        Ok(())
    }
}

/// The card, once `cuInit` was called.
#[inline]
pub(crate) fn card() -> Answer<&'static Config> {
    CARD.get()
        .copied()
        .ok_or(fault(NOT_INITIALIZED, "not_initialized"))
}

/// The configuration without `cuInit`: NVRTC needs no driver.
pub(crate) fn configured() -> Option<&'static Config> {
    CONFIG.get_or_init(Config::from_environment).as_ref()
}

/// Whether time of day and keys of hash maps are to be others, so that work which depends on them shows.
pub(crate) fn is_later() -> bool {
    configured().is_some_and(|config| config.is_later)
}

pub(crate) fn device(ordinal: c_int) -> Answer<usize> {
    let card = card()?;
    usize::try_from(ordinal)
        .ok()
        .filter(|&device| device < card.devices)
        .ok_or(fault(INVALID_DEVICE, "no_such_device"))
}

/// The device of the calling thread's current context.
#[inline]
pub(crate) fn current() -> Answer<usize> {
    card()?;
    let device = CURRENT
        .get()
        .top()
        .ok_or(fault(INVALID_CONTEXT, "no_current_context"))?;
    let alive = RETAINED[device].load(Ordering::Relaxed) > 0;
    ensure(alive, CONTEXT_IS_DESTROYED, "context_is_destroyed")?;
    Ok(device)
}

fn handle(device: usize) -> u64 {
    FIRST_CONTEXT + ((device as u64 + 1) << CONTEXT_SHIFT)
}

pub(crate) fn device_of(context: u64) -> Answer<usize> {
    (0..MAX_DEVICES)
        .find(|&device| handle(device) == context)
        .filter(|&device| RETAINED[device].load(Ordering::Relaxed) > 0)
        .ok_or(fault(INVALID_CONTEXT, "no_such_context"))
}

pub(crate) fn handle_of(device: usize) -> u64 {
    handle(device)
}

/// Ends a primary context: what it owned goes with it.
fn destroy(device: usize) {
    record::totals();
    memory::free_all(device);
    stream::forget(device);
    forward::forget(device);
    event::forget(device);
    module::forget(device);
}

fn initialize() -> CUresult {
    let Some(config) = configured().filter(|config| config.devices > 0) else {
        return NO_DEVICE;
    };
    CARD.get_or_init(|| {
        record::start();
        clock::use_virtual_clock(config.virtual_clock);
        config
    });
    SUCCESS
}

/// Records a device's context.
fn context_made(device: usize) {
    let line = Line::new("context").with("device", device);
    // What poses as a driver is looked at from outside, where all cards are visible.
    #[cfg(posing)]
    let line = line.with("place", crate::posing::place(device));
    line.write();
}

/// Retains a real primary context. The line is written when the real one is there: what the
/// process holds without it is read until then.
fn retain(ordinal: c_int, real: impl FnOnce() -> Answer) -> Answer {
    let Some(device) = forward::index(ordinal) else {
        return real();
    };
    let _life = lock(&LIFE);
    forward::describe(device);
    real()?;
    if RETAINED[device].fetch_add(1, Ordering::Relaxed) == 0 {
        context_made(device);
    }
    Ok(())
}

/// Releases a real primary context, the last time with all that it held.
fn release(ordinal: c_int, wholly: bool, real: impl FnOnce() -> Answer) -> Answer {
    let Some(device) = forward::index(ordinal) else {
        return real();
    };
    let _life = lock(&LIFE);
    real()?;
    let before = RETAINED[device].load(Ordering::Relaxed);
    // Reset destroys what nobody retained, as well.
    if wholly || before == 1 {
        destroy(device);
    }
    let after = if wholly { 0 } else { before.saturating_sub(1) };
    RETAINED[device].store(after, Ordering::Relaxed);
    Ok(())
}

driver_functions! {
    fn cuInit(flags: c_uint) {
        ensure(flags == 0, INVALID_VALUE, "flags")?;
        match initialize() {
            SUCCESS => Ok(()),
            code => Err(fault(code, "no_configuration")),
        }
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.set(configured().map_or(0, |card| card.driver_version))
    }

    fn cuDevicePrimaryCtxRetain(context: Out<u64>, ordinal: c_int) {
        let device = device(ordinal)?;
        context.set(handle(device))?;
        let _life = lock(&LIFE);
        if RETAINED[device].fetch_add(1, Ordering::Relaxed) == 0 {
            context_made(device);
        }
        Ok(())
    } forward(real) {
        retain(ordinal, real)
    }

    fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) {
        let device = device(ordinal)?;
        let _life = lock(&LIFE);
        match RETAINED[device].load(Ordering::Relaxed) {
            0 => return Err(fault(INVALID_CONTEXT, "primary_context_not_retained")),
            1 => destroy(device),
            _ => {}
        }
        RETAINED[device].fetch_sub(1, Ordering::Relaxed);
        Ok(())
    } forward(real) {
        release(ordinal, false, real)
    }

    fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) {
        let device = device(ordinal)?;
        let _life = lock(&LIFE);
        destroy(device);
        RETAINED[device].store(0, Ordering::Relaxed);
        Ok(())
    } forward(real) {
        release(ordinal, true, real)
    }

    fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let device = device(ordinal)?;
        flags.set(0)?;
        active.set(c_int::from(RETAINED[device].load(Ordering::Relaxed) > 0))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(ordinal: c_int, flags: c_uint) {
        let device = device(ordinal)?;
        let idle = flags == 0 || RETAINED[device].load(Ordering::Relaxed) == 0;
        ensure(idle, PRIMARY_CONTEXT_ACTIVE, "primary_context_active")
    }

    fn cuCtxSetCurrent(context: u64) {
        card()?;
        let mut stack = CURRENT.get();
        stack.depth = stack.depth.saturating_sub(1);
        if context != 0 {
            stack.push(device_of(context)?)?;
        }
        CURRENT.set(stack);
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) {
        card()?;
        context.set(CURRENT.get().top().map_or(0, handle))
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        card()?;
        let mut stack = CURRENT.get();
        stack.push(device_of(context)?)?;
        CURRENT.set(stack);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        card()?;
        let mut stack = CURRENT.get();
        let top = stack.top().ok_or(fault(INVALID_CONTEXT, "no_current_context"))?;
        stack.depth -= 1;
        CURRENT.set(stack);
        context.set_if_wanted(handle(top));
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<c_int>) {
        device.set(current()? as c_int)
    }

    fn cuCtxGetDevice_v2(device: Out<c_int>, context: u64) {
        let of = if context == 0 { current()? } else { device_of(context)? };
        device.set(of as c_int)
    }

    fn cuCtxSynchronize() {
        current().map(|_| ())
    }

    fn cuCtxSynchronize_v2(context: u64) {
        if context == 0 { current() } else { device_of(context) }.map(|_| ())
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        current()?;
        flags.set(0)
    }

    fn cuCtxSetFlags(_flags: c_uint) {
        current().map(|_| ())
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) {
        let device = if context == 0 { current()? } else { device_of(context)? };
        id.set(device as u64 + 1)
    }

    fn cuCtxGetApiVersion(context: u64, version: Out<c_uint>) {
        if context == 0 { current()? } else { device_of(context)? };
        version.set(3020)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: Out<c_uint>) {
        current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(_config: c_uint) {
        current().map(|_| ())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: c_uint) {
        current()?;
        // Stack size, printf buffer, device heap: the defaults of a new context.
        match limit {
            0 => value.set(1024),
            1 | 2 => value.set(8 << 20),
            5 => value.set(128),
            6 => value.set(0),
            _ => Err(fault(UNSUPPORTED_LIMIT, "limit")),
        }
    }

    fn cuCtxSetLimit(limit: c_uint, _value: usize) {
        current()?;
        ensure(matches!(limit, 0 | 1 | 2 | 5 | 6), UNSUPPORTED_LIMIT, "limit")
    }
}
