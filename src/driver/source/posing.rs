//! Only in tests: what lets this library pose as the real driver, which another copy of it then
//! forwards to.
//!
//! The one kernel that comes out right is the proof that a card computes. Its result is worked out
//! at the launch and given where its address is read.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use crate::handles::lock;
use crate::{context, module};

const PROOF: &str = "cargo_vram_proof";
const ROUNDS: u32 = 1000;

/// Results by the device address that they were written to.
static RESULTS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// What the kernel computes.
fn proof(seed: u64) -> u64 {
    (0..ROUNDS).fold(seed, |x, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

/// After an accepted launch with a list of pointers to parameters.
pub(crate) fn launched(function: u64, parameters: *mut c_void) {
    let is_proof = module::function(function).is_ok_and(|it| it.name.text() == PROOF);
    if !is_proof || parameters.is_null() {
        return;
    }
    let parameters = parameters.cast::<*const u64>();
    // SAFETY: CUDA's contract: a pointer to each parameter of the kernel, of which this one has
    // two of eight bytes.
    let (address, seed) = unsafe { ((*parameters).read(), (*parameters.add(1)).read()) };
    lock(&RESULTS).insert(address, proof(seed));
}

/// After device memory was copied to the host.
pub(crate) fn copied(to: u64, from: u64, bytes: usize) {
    if bytes != size_of::<u64>() {
        return;
    }
    if let Some(result) = lock(&RESULTS).get(&from) {
        let host = std::ptr::with_exposed_provenance_mut::<u64>(to as usize);
        // SAFETY: CUDA's contract: the caller's buffer has room for the bytes that it asked for,
        // which were just written with zeros.
        unsafe { host.write_unaligned(*result) };
    }
}

/// The identifier of a device: as `uuid=GPU-…,GPU-…` says, else made from the card's name.
pub(crate) fn uuid(device: usize) -> Option<[u8; 16]> {
    let card = context::card().ok()?;
    let device = place(device);
    if let Some(uuid) = card.uuids.get(device).and_then(|text| parse(text.trim())) {
        return Some(uuid);
    }
    // FNV-1a over the name, then a round of SplitMix64 for each half.
    let mut state = card
        .name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    state = state.wrapping_add(device as u64);
    let mut half = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&half().to_be_bytes());
    uuid[8..].copy_from_slice(&half().to_be_bytes());
    // The version and variant bits of a random identifier, as NVIDIA's have.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Some(uuid)
}

/// The places, among all cards, of those that `CUDA_VISIBLE_DEVICES` shows: by number or by the beginning of an
/// identifier, up to the first that there is not.
pub(crate) fn visible(uuids: &[String], devices: usize) -> Vec<usize> {
    let all = 0..devices;
    let Ok(shown) = std::env::var("CUDA_VISIBLE_DEVICES") else {
        return all.collect();
    };
    let place = |wanted: &str| {
        let by_number = wanted.parse().ok().filter(|number| all.contains(number));
        let named = |&place: &usize| uuids.get(place).is_some_and(|uuid| uuid.starts_with(wanted));
        by_number.or_else(|| all.clone().find(named).filter(|_| wanted.starts_with("GPU-")))
    };
    shown.split(',').map_while(|wanted| place(wanted.trim())).collect()
}

/// A device's place among all cards.
pub(crate) fn place(device: usize) -> usize {
    let card = context::card().ok();
    card.and_then(|card| card.places.get(device).copied()).unwrap_or(device)
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text
        .strip_prefix("GPU-")?
        .chars()
        .filter(|digit| *digit != '-')
        .collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}
