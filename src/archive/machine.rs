//! Checks whether an archive is for this machine and this tool.

use std::process::Command;

use super::elf::{self, Glibc};
use super::error::ArchiveRefusal;
use super::manifest::ArchiveManifest;
use crate::driver;
use crate::protocol::PROTOCOL;

/// The machine and the tool that an archive must match.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// The version of this tool.
    pub(super) tool: &'static str,
    /// The fingerprint of its virtual CUDA driver.
    pub(super) driver: String,
    /// The target triple of programs that run here.
    pub(super) target: String,
    /// The version of glibc, if the machine has one.
    pub(super) glibc: Option<Glibc>,
}

impl Machine {
    /// Returns this machine.
    pub(super) fn here() -> Self {
        let glibc = glibc();
        let libc = if glibc.is_some() { "-gnu" } else { "" };
        Self {
            tool: env!("CARGO_PKG_VERSION"),
            driver: driver::fingerprint(),
            target: format!("{}-unknown-{}{libc}", std::env::consts::ARCH, std::env::consts::OS),
            glibc,
        }
    }

    /// Checks that the archive is for this machine and this tool.
    pub(super) fn takes(&self, manifest: &ArchiveManifest) -> Result<(), ArchiveRefusal> {
        if manifest.protocol != PROTOCOL {
            return Err(ArchiveRefusal::Protocol {
                theirs: manifest.protocol,
                ours: PROTOCOL,
            });
        }
        if manifest.driver != self.driver {
            return Err(ArchiveRefusal::Driver);
        }
        // Before the target: without glibc, that would differ as well, and would not say why.
        let here = self.glibc.ok_or(ArchiveRefusal::NoGlibc)?;
        if manifest.target != self.target {
            return Err(ArchiveRefusal::Target {
                target: manifest.target.clone(),
                here: self.target.clone(),
            });
        }
        match manifest.glibc {
            // A program runs with a newer glibc than it was linked with, but not with an older one.
            Some(needed) if needed > here => Err(ArchiveRefusal::Glibc { needed, here }),
            _ => Ok(()),
        }
    }
}

/// Returns the version of glibc on this machine, as `getconf` prints it. Without `getconf`, reads it from the library
/// that this process uses.
fn glibc() -> Option<Glibc> {
    // `getconf` also answers if this program itself does not use the system's glibc.
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok();
    let said = said.and_then(|output| String::from_utf8(output.stdout).ok());
    said.and_then(|text| text.trim().strip_prefix("glibc ")?.parse().ok())
        .or_else(own_glibc)
}

fn own_glibc() -> Option<Glibc> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6"))?;
    elf::facts(&std::fs::read(path).ok()?)?.offered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_ask_for_the_glibc_of_this_machine_agree() {
        let own = own_glibc().unwrap();
        assert!(own >= "2.17".parse().unwrap(), "{own}");
        assert_eq!(glibc(), Some(own));
    }
}
