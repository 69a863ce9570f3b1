//! Devices: what the configured card says of itself.

use std::ffi::{c_int, c_uint};

use crate::abi::{Answer, INVALID_DEVICE, INVALID_VALUE, Out, Text, ensure, fault};
use crate::config::Config;
use crate::context::{card, device};
use crate::forward;

/// The beginning of every identifier: "vram" and a version of this scheme.
const UUID: [u8; 8] = *b"vram\0\0\0\x01";

fn uuid(device: usize) -> [u8; 16] {
    #[cfg(posing)]
    if let Some(uuid) = crate::posing::uuid(device) {
        return uuid;
    }
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&UUID);
    uuid[15] = device as u8;
    uuid
}

/// Bytes with the NUL that C wants, cut to the caller's room.
fn text(out: Out<u8>, room: c_int, text: &str) -> Answer {
    let room = usize::try_from(room).ok().filter(|room| *room > 0);
    let room = room.ok_or(fault(INVALID_VALUE, "no_room"))?;
    let mut bytes: Vec<u8> = text.bytes().take(room - 1).collect();
    bytes.push(0);
    out.fill(&bytes)
}

fn bus_id(device: usize) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

/// A device attribute; the constants are those of every card from compute capability 6.0 on.
fn attribute(card: &Config, device: usize, attribute: c_int) -> Option<u32> {
    let (major, minor) = card.compute_capability;
    let from = |capability: (u32, u32)| u32::from((major, minor) >= capability);
    let numa_id = u32::MAX;
    Some(match attribute {
        1 => card.max_threads_per_block,
        2..=4 => card.max_block_dim[attribute as usize - 2],
        5..=7 => card.max_grid_dim[attribute as usize - 5],
        8 => card.shared_per_block,
        9 => 65_536,
        10 => card.warp_size,
        11 => i32::MAX as u32,
        12 => card.registers_per_block,
        13 => card.clock_rate,
        14 | 30 => 512,
        // Overlap, mapped host memory, concurrent kernels.
        15 | 19 | 31 => 1,
        16 => card.sm_count,
        // Execution time limit, integrated, compute mode, TCC.
        17 | 18 | 20 | 35 => 0,
        21 | 22 | 56 | 70 => 131_072,
        23 | 57 => 65_536,
        24..=26 | 58..=60 => 16_384,
        27 | 28 | 42 | 45 | 46 | 49 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 => 32_768,
        73 | 74 | 77 => 32_768,
        29 | 43 | 62 | 65 => 2048,
        47 | 48 => 8192,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65_000,
        72 => 2_097_120,
        32 => 1,
        33 => device as u32 + 1,
        34 | 50 => 0,
        36 => card.memory_clock_rate,
        37 => card.memory_bus_width,
        38 => card.l2_cache,
        39 => card.max_threads_per_sm,
        40 => 2,
        41 | 44 => 1,
        51 => 32,
        75 => major,
        76 => minor,
        78..=80 | 83 => 1,
        81 => card.shared_per_sm,
        82 => card.registers_per_sm,
        84 => 0,
        85 => device as u32,
        86 => 0,
        // Single to double precision: 2 on data-centre cards, 32 or 64 on the others.
        87 if matches!((major, minor), (6..=10, 0)) => 2,
        87 => {
            if major >= 8 {
                64
            } else {
                32
            }
        }
        88 => 0,
        89 | 90 => 1,
        91..=95 | 122 | 123 => 1,
        96 => 0,
        97 => card.shared_per_block_optin,
        98 | 99 => 1,
        100 | 101 => 0,
        102 | 103 => 1,
        104 | 105 => 0,
        106 => card.max_blocks_per_sm,
        107 => 1,
        // The card may set aside three quarters of its L2 cache.
        108 => from((8, 0)) * (card.l2_cache / 4 * 3),
        109 => from((8, 0)) * (128 << 20),
        110 => 1,
        111 => from((8, 0)) * 1024,
        112..=117 => 1,
        118 => 100,
        119 => 1,
        120 => from((9, 0)),
        121 => 1,
        124 | 125 => 1,
        126 => {
            if major >= 9 {
                4
            } else {
                1
            }
        }
        127 => from((9, 0)),
        129 => 1,
        131 | 134 => numa_id,
        // Newer interconnect and endpoint features: this card has none.
        128 | 130 | 132 | 133 | 135..=161 => 0,
        _ => return None,
    })
}

/// `CUdevprop`, of the oldest API.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    max_threads_per_block: u32,
    max_threads_dim: [u32; 3],
    max_grid_size: [u32; 3],
    shared_per_block: u32,
    constant_memory: u32,
    warp_size: u32,
    pitch: u32,
    registers_per_block: u32,
    clock_rate: u32,
    texture_alignment: u32,
}

driver_functions! {
    fn cuDeviceGet(handle: Out<c_int>, ordinal: c_int) {
        device(ordinal)?;
        handle.set(ordinal)
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.set(card()?.devices as c_int)
    }

    fn cuDeviceGetName(name: Out<u8>, room: c_int, ordinal: c_int) {
        device(ordinal)?;
        text(name, room, &card()?.name)
    }

    fn cuDeviceGetUuid(id: Out<[u8; 16]>, ordinal: c_int) {
        id.set(uuid(device(ordinal)?))
    }

    fn cuDeviceGetUuid_v2(id: Out<[u8; 16]>, ordinal: c_int) {
        id.set(uuid(device(ordinal)?))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: c_int) {
        device(ordinal)?;
        bytes.set(card()?.total as usize)
    } forward(real) {
        real()?;
        if let Some(total) = forward::limits().and_then(|limits| limits.total) {
            bytes.set_if_wanted(total as usize);
        }
        Ok(())
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, which: c_int, ordinal: c_int) {
        let device = device(ordinal)?;
        let known = attribute(card()?, device, which);
        value.set(known.ok_or(fault(INVALID_VALUE, "device_attribute"))? as c_int)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, ordinal: c_int) {
        device(ordinal)?;
        let capability = card()?.compute_capability;
        major.set(capability.0 as c_int)?;
        minor.set(capability.1 as c_int)
    }

    fn cuDeviceGetProperties(properties: Out<Properties>, ordinal: c_int) {
        device(ordinal)?;
        let card = card()?;
        properties.set(Properties {
            max_threads_per_block: card.max_threads_per_block,
            max_threads_dim: card.max_block_dim,
            max_grid_size: card.max_grid_dim,
            shared_per_block: card.shared_per_block,
            constant_memory: 65_536,
            warp_size: card.warp_size,
            pitch: i32::MAX as u32,
            registers_per_block: card.registers_per_block,
            clock_rate: card.clock_rate,
            texture_alignment: 512,
        })
    }

    fn cuDeviceGetPCIBusId(id: Out<u8>, room: c_int, ordinal: c_int) {
        text(id, room, &bus_id(device(ordinal)?))
    }

    fn cuDeviceGetByPCIBusId(ordinal: Out<c_int>, id: Text) {
        let id = id.bytes()?;
        let same = |device: &usize| bus_id(*device).as_bytes().eq_ignore_ascii_case(id);
        let found = (0..card()?.devices).find(same);
        ordinal.set(found.ok_or(fault(INVALID_DEVICE, "no_such_device"))? as c_int)
    }

    fn cuDeviceCanAccessPeer(yes: Out<c_int>, ordinal: c_int, peer: c_int) {
        let (one, other) = (device(ordinal)?, device(peer)?);
        yes.set(c_int::from(one != other))
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, which: c_uint, from: c_int, to: c_int) {
        let (one, other) = (device(from)?, device(to)?);
        ensure(one != other, INVALID_DEVICE, "same_device")?;
        // Performance rank 0, access 1, native atomics 0, arrays 1.
        ensure((1..=4).contains(&which), INVALID_VALUE, "peer_attribute")?;
        value.set(c_int::from(matches!(which, 2 | 4)))
    }

    fn cuProfilerStart() { Ok(()) }
    fn cuProfilerStop() { Ok(()) }
}
