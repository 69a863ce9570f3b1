//! Recognizes Burn's own threads by their names.

use crate::protocol::MOST_GPUS;

/// The start of the names of Burn's threads, which are for example `DSU-0-1` and `DSD-0-1`: the stage, the type of the
/// device and the number of the device.
pub(super) const DEVICE_THREADS: &str = "DS";

/// Returns the GPU that this thread belongs to, if it is one of Burn's own threads.
pub(super) fn gpu() -> Option<u32> {
    thread_local! {
        static GPU: Option<u32> = of_thread(std::thread::current().name()?);
    }
    GPU.with(|gpu| *gpu)
}

fn of_thread(name: &str) -> Option<u32> {
    let (stage, gpu) = name.strip_prefix(DEVICE_THREADS)?.rsplit_once('-')?;
    let is_burns = stage.starts_with("U-") || stage.starts_with("D-");
    // The name may be that of a thread of the model. Timelines have an entry up to this number, so it is
    // limited.
    gpu.parse().ok().filter(|gpu| is_burns && *gpu < MOST_GPUS)
}
