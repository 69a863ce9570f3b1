//! What forwarding has to know beside the calls: which device a handle belongs to, and what a
//! device is.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{CUresult, Out, SUCCESS};
use crate::config::{Forward, MAX_DEVICES};
use crate::context;
use crate::handles::lock;
use crate::record::Line;

/// The device of each stream and memory pool.
static OWNERS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

pub(crate) fn limits() -> Option<&'static Forward> {
    context::configured()?.forward.as_ref()
}

pub(crate) fn own(handle: Option<u64>, device: usize) {
    lock(&OWNERS).extend(handle.map(|handle| (handle, device)));
}

pub(crate) fn disown(handle: u64) {
    lock(&OWNERS).remove(&handle);
}

pub(crate) fn forget(device: usize) {
    lock(&OWNERS).retain(|_, owner| *owner != device);
}

/// A device that is counted.
pub(crate) fn index(ordinal: c_int) -> Option<usize> {
    usize::try_from(ordinal)
        .ok()
        .filter(|&device| device < MAX_DEVICES)
}

/// The device of the thread's current context, which the real driver keeps with the thread.
pub(crate) fn current_device() -> Option<usize> {
    let mut ordinal = 0;
    let code = ask!(cuCtxGetDevice(Out::to(&mut ordinal) => Out<c_int>));
    (code == Some(SUCCESS)).then(|| index(ordinal)).flatten()
}

/// The device of a stream or a pool; of the current context, where the handle is not known.
pub(crate) fn device_of(handle: u64) -> Option<usize> {
    let owner = lock(&OWNERS).get(&handle).copied();
    owner.or_else(current_device)
}

pub(crate) fn stream_created(handle: Option<u64>) {
    let device = current_device().unwrap_or(0);
    own(handle, device);
    Line::new("stream")
        .address("handle", handle.unwrap_or(0))
        .with("device", device)
        .write();
}

/// Records what a device is, once.
pub(crate) fn describe(device: usize) {
    static DESCRIBED: [AtomicBool; MAX_DEVICES] = [const { AtomicBool::new(false) }; MAX_DEVICES];
    if DESCRIBED[device].swap(true, Ordering::Relaxed) {
        return;
    }
    let ordinal = device as c_int;
    let mut line = Line::new("device").with("device", device);
    if let Some(uuid) = uuid(ordinal) {
        line = line.with("uuid", uuid);
    }
    line = line.text("name", &name(ordinal));
    let mut total = 0;
    if ask!(cuDeviceTotalMem_v2(Out::to(&mut total) => Out<usize>, ordinal => c_int)) == OK {
        line = line.with("total", total);
    }
    if let (Some(major), Some(minor)) = (attribute(ordinal, 75), attribute(ordinal, 76)) {
        line = line.with("cc", format_args!("{major}.{minor}"));
    }
    if let Some(sm_count) = attribute(ordinal, 16) {
        line = line.with("sm_count", sm_count);
    }
    line.write();
}

const OK: Option<CUresult> = Some(SUCCESS);

fn attribute(ordinal: c_int, which: c_int) -> Option<c_int> {
    let mut value = 0;
    let out = Out::to(&mut value);
    let code = ask!(cuDeviceGetAttribute(out => Out<c_int>, which => c_int, ordinal => c_int));
    (code == OK).then_some(value)
}

fn name(ordinal: c_int) -> String {
    let mut name = [0_u8; 256];
    // The whole buffer is handed over, so that the pointer may be written through to its end.
    let out = Out::to(&mut name);
    let room = size_of::<[u8; 256]>() as c_int;
    let code = ask!(cuDeviceGetName(out => Out<[u8; 256]>, room => c_int, ordinal => c_int));
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let known = code == OK;
    String::from_utf8_lossy(if known { text } else { b"" }).into_owned()
}

/// In the form that NVIDIA's tools print.
fn uuid(ordinal: c_int) -> Option<String> {
    let mut id = [0_u8; 16];
    let out = Out::to(&mut id);
    let mut code = ask!(cuDeviceGetUuid_v2(out => Out<[u8; 16]>, ordinal => c_int));
    if code != OK {
        code = ask!(cuDeviceGetUuid(out => Out<[u8; 16]>, ordinal => c_int));
    }
    (code == OK).then(|| uuid_text(&id))
}

fn uuid_text(id: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
