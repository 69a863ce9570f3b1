//! Tensor maps: refused where the card has none, and checked against the rules that the CUDA
//! driver API documents for `cuTensorMapEncode*`. The map itself stays empty.

use std::ffi::{c_int, c_uint};

use crate::abi::{Answer, INVALID_VALUE, In, NOT_SUPPORTED, Out, ensure};
use crate::context;

/// A `CUtensorMap` is 128 bytes, aligned to 64.
type Map = [u64; 16];

/// What all encodings share.
struct Tensor {
    data_type: c_uint,
    rank: usize,
    address: u64,
    sizes: In<u64>,
    strides: In<u64>,
    element_strides: In<u32>,
    interleave: c_uint,
    swizzle: c_uint,
    oob_fill: c_uint,
}

const INTERLEAVE_NONE: c_uint = 0;
const INTERLEAVE_32B: c_uint = 2;
const SWIZZLE_32B: c_uint = 1;
/// 16 four-bit and six-bit values in 16 bytes.
const PACKED_16B: std::ops::RangeInclusive<c_uint> = 14..=15;
const FLOATS: std::ops::RangeInclusive<c_uint> = 6..=12;

/// Bits of an element.
fn bits(data_type: c_uint) -> u64 {
    match data_type {
        0 => 8,
        1 | 6 | 9 => 16,
        4 | 5 | 8 => 64,
        13 | 14 => 4,
        15 => 6,
        _ => 32,
    }
}

fn valid(condition: bool, what: &'static str) -> Answer {
    ensure(condition, INVALID_VALUE, what)
}

impl Tensor {
    /// `least` is the lowest rank of the encoding, `since` the compute capability that has it.
    fn check(&self, map: Out<Map>, least: usize, since: (u32, u32)) -> Answer {
        let capability = context::card()?.compute_capability;
        // Assumed: the documents name the capability and not the code of the refusal.
        ensure(capability >= since, NOT_SUPPORTED, "compute_capability")?;
        valid(
            map.address() != 0 && map.address().is_multiple_of(64),
            "map_alignment",
        )?;
        valid(self.data_type <= 15, "data_type")?;
        valid(self.interleave <= 2 && self.swizzle <= 6, "layout")?;
        let least = if self.interleave == INTERLEAVE_NONE {
            least
        } else {
            3
        };
        valid((least..=5).contains(&self.rank), "rank")?;
        let wide = self.interleave == INTERLEAVE_32B || PACKED_16B.contains(&self.data_type);
        let alignment = if wide { 32 } else { 16 };
        valid(self.address.is_multiple_of(alignment), "address_alignment")?;
        valid(
            self.interleave != INTERLEAVE_32B || self.swizzle == SWIZZLE_32B,
            "interleave_needs_swizzle_32B",
        )?;
        for index in 0..self.rank {
            valid((1..=1 << 32).contains(&self.sizes.at(index)?), "size")?;
            let count = self.element_strides.at(index)?;
            valid((1..=8).contains(&count), "element_stride")?;
        }
        for index in 0..self.rank - 1 {
            let stride = self.strides.at(index)?;
            valid(
                stride.is_multiple_of(alignment) && stride < 1 << 40,
                "stride",
            )?;
        }
        let packed = PACKED_16B.contains(&self.data_type);
        valid(
            !packed || self.sizes.at(0)?.is_multiple_of(128),
            "packed_size",
        )?;
        let fills = self.oob_fill == 0 || (self.oob_fill == 1 && FLOATS.contains(&self.data_type));
        valid(fills, "oob_fill")
    }

    /// The innermost extent of what one copy moves, against alignment and swizzle.
    fn check_inner(&self, elements: u64) -> Answer {
        if self.interleave != INTERLEAVE_NONE {
            return Ok(());
        }
        let bytes = elements * bits(self.data_type) / 8;
        let packed = PACKED_16B.contains(&self.data_type);
        valid(packed || bytes.is_multiple_of(16), "inner_box_bytes")?;
        let widest = match self.swizzle {
            1 => 32,
            2 => 64,
            3.. => 128,
            _ => u64::MAX,
        };
        valid(bytes <= widest, "inner_box_past_the_swizzle")
    }
}

const LARGEST_BOX: u32 = 256;
const MOST_CHANNELS: u32 = 256;
const MOST_PIXELS: u32 = 1024;

driver_functions! {
    fn cuTensorMapEncodeTiled(
        map: Out<Map>,
        data_type: c_uint,
        rank: c_uint,
        address: u64,
        sizes: In<u64>,
        strides: In<u64>,
        box_sizes: In<u32>,
        element_strides: In<u32>,
        interleave: c_uint,
        swizzle: c_uint,
        _l2_promotion: c_uint,
        oob_fill: c_uint,
    ) {
        let rank = rank as usize;
        let tensor = Tensor {
            data_type, rank, address, sizes, strides, element_strides, interleave, swizzle, oob_fill,
        };
        tensor.check(map, 1, (9, 0))?;
        for index in 0..rank {
            valid((1..=LARGEST_BOX).contains(&box_sizes.at(index)?), "box")?;
        }
        tensor.check_inner(u64::from(box_sizes.at(0)?))?;
        map.set(Map::default())
    }

    fn cuTensorMapEncodeIm2col(
        map: Out<Map>,
        data_type: c_uint,
        rank: c_uint,
        address: u64,
        sizes: In<u64>,
        strides: In<u64>,
        lower_corner: In<c_int>,
        upper_corner: In<c_int>,
        channels: c_uint,
        pixels: c_uint,
        element_strides: In<u32>,
        interleave: c_uint,
        swizzle: c_uint,
        _l2_promotion: c_uint,
        oob_fill: c_uint,
    ) {
        let rank = rank as usize;
        let tensor = Tensor {
            data_type, rank, address, sizes, strides, element_strides, interleave, swizzle, oob_fill,
        };
        tensor.check(map, 3, (9, 0))?;
        // Corners have 16, 8 or 5 bits for one, two or three spatial dimensions.
        let limit = [1 << 15, 1 << 7, 1 << 4][rank - 3];
        for index in 0..rank - 2 {
            for corner in [lower_corner.at(index)?, upper_corner.at(index)?] {
                valid((-limit..limit).contains(&corner), "pixel_box")?;
            }
        }
        valid(channels <= MOST_CHANNELS && pixels <= MOST_PIXELS, "pixel_box_size")?;
        tensor.check_inner(u64::from(channels))?;
        map.set(Map::default())
    }

    fn cuTensorMapEncodeIm2colWide(
        map: Out<Map>,
        data_type: c_uint,
        rank: c_uint,
        address: u64,
        sizes: In<u64>,
        strides: In<u64>,
        lower_corner: c_int,
        upper_corner: c_int,
        channels: c_uint,
        pixels: c_uint,
        element_strides: In<u32>,
        interleave: c_uint,
        mode: c_uint,
        swizzle: c_uint,
        _l2_promotion: c_uint,
        oob_fill: c_uint,
    ) {
        let rank = rank as usize;
        let tensor = Tensor {
            data_type, rank, address, sizes, strides, element_strides, interleave, swizzle, oob_fill,
        };
        tensor.check(map, 3, (10, 0))?;
        let limit = 1 << 15;
        let corners = [lower_corner, upper_corner];
        valid(corners.iter().all(|corner| (-limit..limit).contains(corner)), "pixel_box")?;
        valid(mode <= 1 && swizzle != 0, "wide_mode")?;
        valid(channels <= MOST_CHANNELS && pixels <= MOST_PIXELS, "pixel_box_size")?;
        tensor.check_inner(u64::from(channels))?;
        map.set(Map::default())
    }

    fn cuTensorMapReplaceAddress(map: Out<Map>, address: u64) {
        let capability = context::card()?.compute_capability;
        ensure(capability >= (9, 0), NOT_SUPPORTED, "compute_capability")?;
        valid(map.address().is_multiple_of(64), "map_alignment")?;
        valid(address.is_multiple_of(16), "address_alignment")
    }
}
