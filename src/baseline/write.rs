//! Writes budgets.lock.

use std::fmt::{self, Display};

use toml_edit::Value;

use super::{BaselineFile, LOCK_VERSION};
use crate::report::Mode;

impl Display for BaselineFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| Value::from(text).to_string();
        writeln!(f, "# The accepted baseline. `cargo vram bless` writes this file.")?;
        writeln!(f, "version = {LOCK_VERSION}")?;
        // One paragraph per entry and one line per value: two branches that accept different models merge.
        // See docs/design/baseline.md.
        for (key, entry) in self.entries() {
            writeln!(f, "\n[[baseline]]")?;
            writeln!(f, "package = {}", text(&key.package))?;
            writeln!(f, "model = {}", text(&key.model))?;
            writeln!(f, "gpu = {}", text(&key.gpu))?;
            let (mode, rests_on) = match key.mode {
                Mode::Estimate => ("estimate", "estimator"),
                Mode::Measure => ("measure", "driver"),
            };
            writeln!(f, "mode = {}", text(mode))?;
            writeln!(f, "burn = {}", text(entry.burn.raw()))?;
            writeln!(f, "{rests_on} = {}", text(entry.rests_on.raw()))?;
            for (name, value) in &entry.inputs {
                // The name of an input may have spaces and dots, which TOML must quote.
                writeln!(f, "inputs.{} = {value}", toml_edit::Key::new(name.as_str()))?;
            }
            if let Some(parameters) = entry.parameters {
                writeln!(f, "parameters = {parameters}")?;
            }
            for (pass, peak) in [("warm", &entry.peaks.warm), ("cold", &entry.peaks.cold)] {
                for (metric, bytes) in [
                    ("live", peak.live),
                    ("reserved", peak.reserved),
                    ("process", peak.process),
                ] {
                    if let Some(bytes) = bytes {
                        // Exact bytes, because `check --exact` compares to the byte.
                        writeln!(f, "{pass}.{metric} = {}", bytes.0)?;
                    }
                }
            }
        }
        Ok(())
    }
}
