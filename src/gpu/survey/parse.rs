//! Parses the output of `vram-survey`.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use super::error::FailedCall;
use super::{ContextSeen, SOURCE, Survey, SurveyError, SurveyedDevice};
use crate::bytes::Bytes;
use crate::gpu::GpuLimits;
use crate::report::{LoadedLibrary, Proof};

/// Parses the survey; `None` if the program ended before it had printed everything.
pub(super) fn parse(printed: &str, libcuda: &Path) -> Result<Option<Survey>, SurveyError> {
    let mut survey: Option<Survey> = None;
    for line in printed.split_inclusive('\n') {
        // A line without an end is incomplete because the process died.
        let Some(line) = line.strip_suffix('\n') else { break };
        let damaged = || SurveyError::Damaged {
            what: format!("`{}`", line.escape_debug()),
        };
        let facts = SurveyLines::parse(line).ok_or_else(damaged)?;
        match (facts.kind, &mut survey) {
            ("error", survey) => {
                let version = survey.as_ref().map(|survey| survey.driver_version);
                let failed = facts.failed().ok_or_else(damaged)?;
                return Err(SurveyError::from_call(failed, libcuda.to_owned(), version));
            }
            // Only this line shows that the list of GPUs is complete: a driver may crash between two of them.
            ("end", survey) => return Ok(survey.take()),
            ("driver", None) => survey = Some(facts.driver().ok_or_else(damaged)?),
            (kind, Some(survey)) => facts.add_to(kind, survey).ok_or_else(damaged)?,
            _ => return Err(damaged()),
        }
    }
    Ok(None)
}

/// One line: its first word, and its values by key.
struct SurveyLines<'line> {
    kind: &'line str,
    values: HashMap<&'line str, &'line str>,
}

impl<'line> SurveyLines<'line> {
    fn parse(line: &'line str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let values = words.map(|word| word.split_once('=')).collect::<Option<_>>()?;
        Some(Self { kind, values })
    }

    fn number<T: FromStr>(&self, key: &str) -> Option<T> {
        self.values.get(key)?.parse().ok()
    }

    fn bytes(&self, key: &str) -> Option<Bytes> {
        self.number(key).map(Bytes)
    }

    fn triple(&self, key: &str) -> Option<[u32; 3]> {
        let numbers: Vec<u32> = self
            .values
            .get(key)?
            .split(',')
            .map(|n| n.parse().ok())
            .collect::<Option<_>>()?;
        numbers.try_into().ok()
    }

    fn text(&self, key: &str) -> Option<String> {
        unescaped(self.values.get(key)?)
    }

    fn driver(&self) -> Option<Survey> {
        let version: u32 = self.number("version")?;
        // CUDA writes 12.9 as 12090.
        let driver_version = (version / 1000, version % 1000 / 10);
        Some(Survey {
            driver_version,
            libcuda: LoadedLibrary {
                path: self.text("path")?.into(),
                version: dotted(driver_version).into(),
            },
            libnvrtc: None,
            libnvrtc_error: None,
            devices: Vec::new(),
            proof: None,
            context: None,
        })
    }

    fn add_to(&self, kind: &str, survey: &mut Survey) -> Option<()> {
        match kind {
            "nvrtc" => {
                let version: String = self.text("version")?;
                version_of(&version)?;
                survey.libnvrtc = Some(LoadedLibrary {
                    path: self.text("path")?.into(),
                    version: version.into(),
                });
            }
            "unusable" => survey.libnvrtc_error = Some(self.text("detail")?),
            "device" => survey.devices.push(self.device(survey)?),
            "context" => {
                survey.context = Some(ContextSeen {
                    free: self.bytes("free")?,
                    total: self.bytes("total")?,
                });
            }
            "proof" => {
                survey.proof = Some(Proof {
                    seed: self.number("seed")?,
                    expected: self.number("expected")?,
                    computed: self.number("computed")?,
                });
            }
            _ => return None,
        }
        Some(())
    }

    fn device(&self, survey: &Survey) -> Option<SurveyedDevice> {
        let nvrtc = survey
            .libnvrtc
            .as_ref()
            .and_then(|nvrtc| version_of(nvrtc.version.raw()));
        let driver = survey.driver_version;
        Some(SurveyedDevice {
            ordinal: self.number("ordinal")?,
            uuid: self.text("uuid")?,
            name: self.text("name")?,
            pci: self.text("pci").filter(|pci| !pci.is_empty()),
            total: self.bytes("total")?,
            compute_capability: (self.number("cc_major")?, self.number("cc_minor")?),
            sm_count: self.number("sm_count")?,
            l2_cache: self.bytes("l2_cache")?,
            limits: GpuLimits {
                source: SOURCE.to_owned(),
                // A driver may refuse kernels of a newer NVRTC, so the older of both is what works.
                cuda: nvrtc.map_or(driver, |nvrtc| nvrtc.min(driver)),
                warp_size: self.number("warp_size")?,
                max_threads_per_block: self.number("max_threads_per_block")?,
                max_threads_per_sm: self.number("max_threads_per_sm")?,
                max_block_dim: self.triple("max_block_dim")?,
                max_grid_dim: self.triple("max_grid_dim")?,
                shared_per_block: self.bytes("shared_per_block")?,
                shared_per_block_optin: self.bytes("shared_per_block_optin")?,
                shared_per_sm: self.bytes("shared_per_sm")?,
                registers_per_block: self.number("registers_per_block")?,
                registers_per_sm: self.number("registers_per_sm")?,
            },
            max_blocks_per_sm: self.number("max_blocks_per_sm")?,
            memory_bus_width: self.number("memory_bus_width")?,
            clock_rate: self.number("clock_rate"),
            memory_clock_rate: self.number("memory_clock_rate"),
        })
    }

    fn failed(&self) -> Option<FailedCall> {
        Some(FailedCall {
            function: self.text("function")?,
            code: self.number("code")?,
            name: self.text("name")?,
            detail: self.text("detail")?,
        })
    }
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// Parses `13.0` to `(13, 0)`.
pub(super) fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes a text that the driver's `record.rs` encoded; `None` if the encoding is invalid.
fn unescaped(text: &str) -> Option<String> {
    // The driver writes `-` for an empty text. Otherwise the value would look cut off.
    if text == "-" {
        return Some(String::new());
    }
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
