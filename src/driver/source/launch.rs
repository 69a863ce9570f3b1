//! Launches: checked against the card's limits, counted, and not run. The hot path: no system
//! call and no allocation.
//!
//! Assumed: every kernel fits the registers; only a compiler could tell which do not.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::abi::{Answer, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE, INVALID_VALUE, In, ensure};
use crate::config::Reads;
use crate::module::Name;
use crate::{clock, contents, context, module, stream};

static COUNT: AtomicU64 = AtomicU64::new(0);
const NONE: u32 = u32::MAX;
static LAST: AtomicU32 = AtomicU32::new(NONE);

pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Calls with the name of the kernel launched last; empty before the first.
pub(crate) fn with_last_kernel(tell: impl FnOnce(&str)) {
    match LAST.load(Ordering::Relaxed) {
        NONE => tell(""),
        last => tell(Name(last).text()),
    }
}

struct Shape {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
}

fn launch(
    handle: u64,
    shape: &Shape,
    on: u64,
    cooperative: bool,
    parameters: *mut c_void,
) -> Answer {
    let card = context::card()?;
    let device = stream::device(on)?;
    let function = module::function(handle)?;
    ensure(
        function.device == device,
        INVALID_HANDLE,
        "function_of_another_device",
    )?;
    let within = |sizes: &[c_uint; 3], limits: &[u32; 3]| {
        sizes
            .iter()
            .zip(limits)
            .all(|(size, limit)| (1..=*limit).contains(size))
    };
    ensure(
        within(&shape.grid, &card.max_grid_dim),
        INVALID_VALUE,
        "grid_size",
    )?;
    ensure(
        within(&shape.block, &card.max_block_dim),
        INVALID_VALUE,
        "block_size",
    )?;
    let threads: u32 = shape.block.iter().product();
    ensure(
        threads <= function.max_threads,
        INVALID_VALUE,
        "threads_per_block",
    )?;
    let opted_in = shape.shared <= function.max_dynamic_shared;
    ensure(opted_in, INVALID_VALUE, "dynamic_shared_memory")?;
    if cooperative {
        let blocks = shape
            .grid
            .iter()
            .fold(1, |all: u64, size| all * u64::from(*size));
        let per_sm = (card.max_threads_per_sm / threads)
            .min(card.max_blocks_per_sm)
            .max(1);
        let resident = u64::from(per_sm) * u64::from(card.sm_count);
        ensure(
            blocks <= resident,
            COOPERATIVE_LAUNCH_TOO_LARGE,
            "cooperative_grid",
        )?;
    }
    LAST.store(function.name.0, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    clock::launched(function.nanoseconds);
    if card.reads == Reads::Other {
        contents::launched(function.parameters, parameters);
    }
    Ok(())
}

/// Counts a launch that a real driver accepted.
#[inline]
fn launched(function: u64) -> Answer {
    let name = module::kernel(function).map_or(NONE, |name| name.0);
    LAST.store(name, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: u64,
    attributes: *const c_void,
    attribute_count: c_uint,
}

driver_functions! {
    fn cuLaunchKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: u64,
        _parameters: *mut c_void,
        _extra: *mut c_void,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        launch(function, &Shape { grid, block, shared }, stream, false, _parameters)?;
        #[cfg(posing)]
        crate::posing::launched(function, _parameters);
        Ok(())
    } forward(real) {
        real()?;
        launched(function)
    }

    fn cuLaunchKernelEx(
        config: In<LaunchConfig>,
        function: u64,
        _parameters: *mut c_void,
        _extra: *mut c_void,
    ) {
        let LaunchConfig { grid, block, shared, stream, .. } = config.get()?;
        launch(function, &Shape { grid, block, shared }, stream, false, _parameters)?;
        #[cfg(posing)]
        crate::posing::launched(function, _parameters);
        Ok(())
    } forward(real) {
        real()?;
        launched(function)
    }

    fn cuLaunchCooperativeKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: u64,
        _parameters: *mut c_void,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        launch(function, &Shape { grid, block: [block_x, block_y, block_z], shared }, stream, true, _parameters)
    } forward(real) {
        real()?;
        launched(function)
    }
}
