//! What this machine and this tool take.

use std::process::Command;

use super::elf::{self, Glibc};
use super::error::Refusal;
use super::manifest::Manifest;
use crate::driver;
use crate::protocol::PROTOCOL;

/// What an archive must agree with.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// The version of this tool.
    pub(super) tool: &'static str,
    /// The fingerprint of its driver.
    pub(super) driver: String,
    /// The target triple of what runs here.
    pub(super) target: String,
    /// The C library that is here.
    pub(super) glibc: Option<Glibc>,
}

impl Machine {
    /// This one.
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

    /// Whether the archive is for this machine and this tool.
    pub(super) fn takes(&self, manifest: &Manifest) -> Result<(), Refusal> {
        if manifest.protocol != PROTOCOL {
            return Err(Refusal::Protocol {
                theirs: manifest.protocol,
                ours: PROTOCOL,
            });
        }
        if manifest.driver != self.driver {
            return Err(Refusal::Driver);
        }
        let here = self.glibc.ok_or(Refusal::NoGlibc)?;
        if manifest.target != self.target {
            return Err(Refusal::Target {
                target: manifest.target.clone(),
                here: self.target.clone(),
            });
        }
        match manifest.glibc {
            Some(needed) if needed > here => Err(Refusal::Glibc { needed, here }),
            _ => Ok(()),
        }
    }
}

/// The C library of this machine, as its own program says; where that is not installed, as the one says that this
/// process uses.
fn glibc() -> Option<Glibc> {
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
