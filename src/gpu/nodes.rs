//! Finds the device node of an NVIDIA GPU.

use std::path::{Path, PathBuf};

/// The environment variable with a folder to use instead of `/dev`, for tests.
pub const DEV_VARIABLE: &str = "CARGO_VRAM_DEV";

/// The library that shows that the GPU in WSL is NVIDIA's. WSL has one node for the GPUs of every vendor, and NVIDIA's
/// driver for Windows brings this library.
const WSL_LIBRARY: &str = "/usr/lib/wsl/lib/libcuda.so.1";

/// Finds the device node of an NVIDIA GPU; `None` if the operating system shows no such GPU to this process.
///
/// If there is a node, a driver that does not work is a fault. Without a node, the machine just has no GPU.
#[must_use]
pub fn device_node() -> Option<PathBuf> {
    let dev = std::env::var_os(DEV_VARIABLE).filter(|dev| !dev.is_empty());
    let dev = dev.map_or_else(|| PathBuf::from("/dev"), PathBuf::from);
    node_in(&dev, Path::new(WSL_LIBRARY))
}

fn node_in(dev: &Path, wsl_library: &Path) -> Option<PathBuf> {
    let own = ["nvidiactl", "nvidia0"].map(|name| dev.join(name));
    let wsl = Some(dev.join("dxg")).filter(|_| wsl_library.exists());
    own.into_iter().chain(wsl).find(|node| node.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_shows_by_its_control_node_or_its_own() {
        let dev = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/nonexistent");
        assert_eq!(node_in(dev.path(), nowhere), None);
        for name in ["nvidia0", "nvidiactl"] {
            std::fs::write(dev.path().join(name), "").unwrap();
            assert_eq!(node_in(dev.path(), nowhere), Some(dev.path().join(name)));
        }
    }

    #[test]
    fn the_node_of_wsl_counts_where_nvidias_driver_is_behind_it() {
        let dev = tempfile::tempdir().unwrap();
        let node = dev.path().join("dxg");
        std::fs::write(&node, "").unwrap();
        assert_eq!(node_in(dev.path(), Path::new("/nonexistent")), None);
        assert_eq!(node_in(dev.path(), &node), Some(node.clone()));
    }
}
