//! [`ErrorCode`]: the names of what can go wrong with a model.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::untrusted::{Foreign, named};

/// Declares the error codes of this version, each with its name in reports.
macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $name:literal,)+) => {
        /// What went wrong with a model, or with the target that declares it.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])+ $code,)+
            /// A code that only a newer version of cargo-vram knows.
            Unknown(UnknownCode),
        }

        impl ErrorCode {
            /// All codes of this version.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// Returns the code's name in reports, such as `model-panicked`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $name,)+
                    Self::Unknown(UnknownCode(name)) => name.raw(),
                }
            }
        }
    };
}

codes! {
    /// The model cannot run with the requested options.
    Impossible = "impossible",
    /// The target does not compile.
    BuildFailed = "build-failed",
    /// The target lacks `harness = false`.
    Harness = "harness",
    /// `[package.metadata.vram]` is invalid.
    Manifest = "manifest",
    /// cargo-vram does not support this version of Burn.
    UnsupportedBurn = "unsupported-burn",
    /// One program has two versions of Burn.
    TwoBurns = "two-burns",
    /// cargo-vram has the adapter for another version of Burn than the models use.
    OtherAdapter = "other-adapter",
    /// A package has two models with the same name.
    DuplicateModel = "duplicate-model",
    /// The tool and the crate that the models link use different protocol versions.
    ProbeVersion = "probe-version",
    /// The program that declares the models did not answer.
    NoAnswer = "no-answer",
    /// Models cannot run on this kind of machine.
    UnsupportedHost = "unsupported-host",
    /// An input is set that the model does not have.
    UnknownInput = "unknown-input",
    /// The model panicked.
    Panicked = "model-panicked",
    /// A signal ended the model.
    Aborted = "model-aborted",
    /// The model's stack overflowed.
    StackOverflow = "stack-overflow",
    /// The model's steps did no work on the GPU, or its training skipped a phase.
    NoWork = "no-gpu-work",
    /// The model did different work in two passes that were alike.
    Nondeterministic = "nondeterministic",
    /// The model's work depends on values that it reads from the GPU.
    DataDependent = "data-dependent",
    /// The model exited before it finished.
    Exited = "model-exited",
    /// The model exceeded the time limit.
    TimedOut = "timed-out",
    /// The model exceeded the limit of host memory.
    HostMemory = "host-memory",
    /// Something other than cargo-vram wrote into the model's event file.
    EventsDamaged = "events-damaged",
    /// The model called a CUDA function that the virtual driver does not have.
    UnsupportedFunction = "unsupported-function",
    /// The model bypassed the counting CUDA driver.
    NoDriver = "no-driver",
    /// The model ran on another GPU than the selected one.
    OtherGpu = "other-gpu",
    /// Another process used a GPU that was to be measured exclusively.
    GpuInUse = "gpu-in-use",
    /// The record of the CUDA driver is incomplete: lines are missing.
    RecordDamaged = "record-damaged",
    /// Burn could not run an operation and continued without it.
    OperationFailed = "operation-failed",
    /// A CUDA call failed that must not fail.
    DriverError = "driver-error",
    /// The model needs more GPUs than there are.
    TooFewGpus = "too-few-gpus",
    /// A signal ended the command before all models had run: the report is incomplete.
    Interrupted = "interrupted",
    /// The CUDA toolkit lacks libdevice, the math functions that LLVM links.
    NoLibdevice = "no-libdevice",
    /// The model's process could not be started.
    NotStarted = "not-started",
    /// The program was built from another checkout, which shares the target folder.
    OtherCheckout = "other-checkout",
}

/// The name of a code that this version does not know. It is untrusted text, because a report may come from anybody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownCode(Foreign);

impl ErrorCode {
    /// Returns the code with this name. An unknown name becomes [`ErrorCode::Unknown`].
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let known = Self::ALL.iter().find(|code| code.as_str() == name);
        // A report of a newer version stays readable, and keeps its code.
        known
            .cloned()
            .unwrap_or_else(|| Self::Unknown(UnknownCode(name.into())))
    }

    /// Whether the model was not even started, because its options or configuration do not allow it.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        *self == Self::Impossible || self.is_configuration()
    }

    /// Whether the cause is a version or the configuration (exit code 2), not the run (exit code 101).
    #[must_use]
    pub const fn is_configuration(&self) -> bool {
        // No wildcard: whoever adds a code must decide this.
        match self {
            Self::Harness
            | Self::Manifest
            | Self::UnsupportedBurn
            | Self::TwoBurns
            | Self::OtherAdapter
            | Self::DuplicateModel
            | Self::ProbeVersion
            | Self::UnsupportedHost
            | Self::UnknownInput => true,
            Self::Impossible
            | Self::BuildFailed
            | Self::NoAnswer
            | Self::Panicked
            | Self::Aborted
            | Self::StackOverflow
            | Self::NoWork
            | Self::Nondeterministic
            | Self::DataDependent
            | Self::Exited
            | Self::TimedOut
            | Self::HostMemory
            | Self::EventsDamaged
            | Self::UnsupportedFunction
            | Self::NoDriver
            | Self::OtherGpu
            | Self::GpuInUse
            | Self::RecordDamaged
            | Self::OperationFailed
            | Self::DriverError
            | Self::TooFewGpus
            | Self::Interrupted
            | Self::NoLibdevice
            | Self::NotStarted
            | Self::OtherCheckout
            | Self::Unknown(_) => false,
        }
    }

    /// Whether the machine is a likely cause, such as its load or its memory, so that the same model may succeed in
    /// another run.
    #[must_use]
    pub const fn may_be_chance(&self) -> bool {
        // No wildcard: whoever adds a code must decide this.
        match self {
            Self::NoAnswer
            | Self::Aborted
            | Self::TimedOut
            | Self::HostMemory
            | Self::GpuInUse
            | Self::RecordDamaged
            | Self::Interrupted
            | Self::NoLibdevice
            | Self::NotStarted
            | Self::OtherCheckout
            | Self::Unknown(_) => true,
            Self::Impossible
            | Self::BuildFailed
            | Self::Harness
            | Self::Manifest
            | Self::UnsupportedBurn
            | Self::TwoBurns
            | Self::OtherAdapter
            | Self::DuplicateModel
            | Self::ProbeVersion
            | Self::UnsupportedHost
            | Self::UnknownInput
            | Self::Panicked
            | Self::StackOverflow
            | Self::NoWork
            | Self::Nondeterministic
            | Self::DataDependent
            | Self::Exited
            | Self::UnsupportedFunction
            | Self::OperationFailed
            | Self::EventsDamaged
            | Self::NoDriver
            | Self::OtherGpu
            | Self::DriverError
            | Self::TooFewGpus => false,
        }
    }
}

/// Writes the code's name. The name of an unknown code is escaped.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(UnknownCode(name)) => f.write_str(&named(&name.raw().escape_debug().to_string())),
            known => f.write_str(known.as_str()),
        }
    }
}

impl PartialEq<&str> for ErrorCode {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

/// The schema allows any string, because newer versions have more codes.
impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let known: Vec<_> = Self::ALL.iter().map(Self::as_str).collect();
        json_schema!({
            "type": "string",
            "description": format!("A stable name. This version of cargo-vram writes: {}", known.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written_and_a_newer_one_is_kept_and_escaped() {
        for code in ErrorCode::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<ErrorCode>(&json).unwrap(), *code);
        }
        let newer: ErrorCode = serde_json::from_str(r#""new\u001b[2J""#).unwrap();
        assert_eq!(newer.to_string(), r"new\u{1b}[2J");
        assert_eq!(serde_json::to_string(&newer).unwrap(), r#""new\u001b[2J""#);
        assert!(!newer.is_configuration() && !newer.is_refusal());
    }
}
