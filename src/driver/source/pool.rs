//! Memory pools: names for a device's one memory. What is freed is given back at once, so a
//! release threshold is remembered and changes nothing.

use std::ffi::c_int;

use crate::abi::{Answer, INVALID_VALUE, In, Out, ensure, fault};
use crate::config::MAX_DEVICES;
use crate::handles::Handles;
use crate::{context, forward, memory};

struct Pool {
    device: usize,
    release_threshold: u64,
}

static POOLS: Handles<Pool> = Handles::new(0x46);
/// The handle of a device's default pool is this plus the device shifted.
const FIRST_DEFAULT: u64 = 0x47 << 40;

const REUSE_FLAGS: std::ops::RangeInclusive<u32> = 1..=3;
const RELEASE_THRESHOLD: u32 = 4;

fn default_of(device: usize) -> u64 {
    FIRST_DEFAULT + ((device as u64 + 1) << 4)
}

pub(crate) fn device(pool: u64) -> Answer<usize> {
    (0..MAX_DEVICES)
        .find(|&device| default_of(device) == pool)
        .or_else(|| POOLS.with(pool, |pool| pool.device))
        .ok_or(fault(INVALID_VALUE, "no_such_pool"))
}

driver_functions! {
    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, ordinal: c_int) {
        pool.set(default_of(context::device(ordinal)?))
    } forward(real) {
        real()?;
        forward::own(pool.written(), forward::index(ordinal).unwrap_or(0));
        Ok(())
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, ordinal: c_int) {
        pool.set(default_of(context::device(ordinal)?))
    } forward(real) {
        real()?;
        forward::own(pool.written(), forward::index(ordinal).unwrap_or(0));
        Ok(())
    }

    fn cuDeviceSetMemPool(ordinal: c_int, pool: u64) {
        ensure(device(pool)? == context::device(ordinal)?, INVALID_VALUE, "pool_of_another_device")
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) {
        let properties = properties.get()?;
        let device = context::device(properties.location)?;
        pool.set(POOLS.insert(Pool { device, release_threshold: 0 }))
    } forward(real) {
        real()?;
        let device = properties.get().ok().and_then(|properties| forward::index(properties.location));
        forward::own(pool.written(), device.unwrap_or(0));
        Ok(())
    }

    fn cuMemPoolDestroy(pool: u64) {
        POOLS.remove(pool).map(|_| ()).ok_or(fault(INVALID_VALUE, "no_such_pool"))
    } forward(real) {
        real()?;
        forward::disown(pool);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: u64, _bytes: usize) {
        device(pool).map(|_| ())
    }

    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Out<u64>) {
        let device = device(pool)?;
        match attribute {
            attribute if REUSE_FLAGS.contains(&attribute) => value.fill(&1i32.to_ne_bytes()),
            RELEASE_THRESHOLD => {
                value.set(POOLS.with(pool, |pool| pool.release_threshold).unwrap_or(0))
            }
            5..=8 => value.set(memory::reserved(device)),
            _ => Err(fault(INVALID_VALUE, "pool_attribute")),
        }
    }

    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: In<u64>) {
        device(pool)?;
        match attribute {
            attribute if REUSE_FLAGS.contains(&attribute) => Ok(()),
            RELEASE_THRESHOLD => {
                let threshold = value.get()?;
                POOLS.with(pool, |pool| pool.release_threshold = threshold);
                Ok(())
            }
            _ => Err(fault(INVALID_VALUE, "pool_attribute")),
        }
    }
}

/// The beginning of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    allocation: u32,
    handles: u32,
    location_kind: u32,
    location: c_int,
}
