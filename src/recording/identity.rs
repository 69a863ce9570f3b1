//! The identity of a run: the model and its inputs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::Run;
use crate::untrusted::PlainName;

/// A model with its inputs. Its text is `zoo/resnet18 batch_size=32 image_size=224`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunIdentity {
    /// The package that declares the model.
    pub package: PlainName,
    /// The model's name.
    pub model: PlainName,
    /// Every input that the model asked for, with its value.
    pub inputs: BTreeMap<PlainName, u64>,
}

impl RunIdentity {
    /// Returns the identity of a run in a report.
    #[must_use]
    pub fn from_run(run: &Run) -> Self {
        Self {
            package: run.package.clone(),
            model: run.model.clone(),
            inputs: run.inputs.clone(),
        }
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.package, self.model)?;
        self.inputs
            .iter()
            .try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
