//! What device memory holds where reads are to find other values than zeros: numbers of the type that the last kernel had at
//! that address, which fall from answer to answer by half, from about 1 and from there again; whole numbers and truth values
//! are one and zero in turn. A program whose work depends on what it reads, on whether it is less than before, or on how many
//! of it are alike, then does other work, which shows.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handles::lock;
use crate::ptx::Element;

/// The type of what begins at an address, by the last launch that was given it.
static TYPES: Mutex<BTreeMap<u64, Element>> = Mutex::new(BTreeMap::new());
/// So many answers fall, and then the first value is there again.
const FALLS: u64 = 8;
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// A kernel was given these parameters.
pub(crate) fn launched(types: &[Option<Element>], parameters: *mut c_void) {
    if parameters.is_null() {
        return;
    }
    let parameters = parameters.cast::<*const u64>();
    let mut known = lock(&TYPES);
    for (index, element) in types.iter().enumerate() {
        let Some(element) = element else { continue };
        // SAFETY: CUDA's contract: there is a pointer for each parameter of the kernel, and its source says that this one
        // is an address, which is eight bytes.
        let address = unsafe { parameters.add(index).read_unaligned().read_unaligned() };
        known.insert(address, *element);
    }
}

/// Fills the host's side of a copy from device memory.
pub(crate) fn answer(from: u64, host: &mut [u8]) {
    let known = lock(&TYPES).get(&from).copied();
    // Nothing has been launched on what was only copied there: most of what programs copy is single precision.
    let element = known.unwrap_or(match host.len() % 4 {
        0 => Element::F32,
        _ => Element::Whole(1),
    });
    let answers = ANSWERS.fetch_add(1, Ordering::Relaxed);
    // The power of two that this answer is below the first.
    let halved = answers % FALLS;
    let near_one = |index: usize| 1.0 + noise(answers, index as u64);
    let scaled = |index: usize| near_one(index) / f64::from(1_u32 << halved);
    let whole = |index: usize| answers.wrapping_add(index as u64 + 1) % 2;
    match element {
        Element::F32 => each(host, |index| (scaled(index) as f32).to_ne_bytes()),
        Element::F64 => each(host, |index| scaled(index).to_ne_bytes()),
        // Between a power of two and the next the first bits of a mantissa are the number's fraction.
        Element::F16 => each(host, |index| {
            let exponent = 0x3c00_u16 - ((halved as u16) << 10);
            (exponent + ((near_one(index) - 1.0) * 1024.0) as u16).to_ne_bytes()
        }),
        Element::Bf16 => each(host, |index| {
            let exponent = 0x3f80_u16 - ((halved as u16) << 7);
            (exponent + ((near_one(index) - 1.0) * 128.0) as u16).to_ne_bytes()
        }),
        Element::Whole(2) => each(host, |index| (whole(index) as u16).to_ne_bytes()),
        Element::Whole(4) => each(host, |index| (whole(index) as u32).to_ne_bytes()),
        Element::Whole(8) => each(host, |index| whole(index).to_ne_bytes()),
        Element::Whole(_) => each(host, |index| [whole(index) as u8]),
    }
}

fn each<const N: usize>(host: &mut [u8], value: impl Fn(usize) -> [u8; N]) {
    for (index, bytes) in host.chunks_exact_mut(N).enumerate() {
        bytes.copy_from_slice(&value(index));
    }
}

/// From 0 to below 1/8, the same in every run.
fn noise(answer: u64, index: u64) -> f64 {
    let mixed = (answer << 32 | index)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 53) as f64 / 16_384.0
}
