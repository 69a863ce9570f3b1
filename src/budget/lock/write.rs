//! Writes budgets.lock.

use std::fmt::{self, Display};

use toml_edit::Value;

use super::{LOCK_VERSION, Lock};
use crate::report::Mode;

impl Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| Value::from(text).to_string();
        writeln!(f, "# The figures last accepted. `cargo vram bless` writes this file.")?;
        writeln!(f, "version = {LOCK_VERSION}")?;
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
            writeln!(f, "burn = {}", text(&entry.burn))?;
            writeln!(f, "{rests_on} = {}", text(&entry.rests_on))?;
            for (name, value) in &entry.inputs {
                writeln!(f, "inputs.{} = {value}", toml_edit::Key::new(name))?;
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
                        writeln!(f, "{pass}.{metric} = {}", bytes.0)?;
                    }
                }
            }
        }
        Ok(())
    }
}
