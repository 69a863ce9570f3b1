//! [`ErrorCode`]: the names of what can go wrong with a model.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the codes of this version, each with its name in reports.
macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $name:literal,)+) => {
        /// What went wrong with a model, or with what declares it.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])+ $code,)+
            /// A code that only a newer version knows.
            Unknown(UnknownCode),
        }

        impl ErrorCode {
            /// Every code of this version.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// Its name in reports: `model-panicked`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $name,)+
                    Self::Unknown(UnknownCode(name)) => name,
                }
            }
        }
    };
}

codes! {
    /// It cannot be run as it was asked to.
    Impossible = "impossible",
    /// The target does not compile.
    BuildFailed = "build-failed",
    /// The target lacks `harness = false`.
    Harness = "harness",
    /// `[package.metadata.vram]` cannot be used.
    Manifest = "manifest",
    /// Burn's version has no adapter.
    UnsupportedBurn = "unsupported-burn",
    /// Two versions of Burn are in one program.
    TwoBurns = "two-burns",
    /// cargo-vram has the adapter for another Burn than the models'.
    OtherAdapter = "other-adapter",
    /// A package has two models of one name.
    DuplicateModel = "duplicate-model",
    /// The tool and the crate that the models link do not understand each other.
    ProbeVersion = "probe-version",
    /// The program did not answer at all.
    NoAnswer = "no-answer",
    /// Models cannot run on this kind of machine.
    UnsupportedHost = "unsupported-host",
    /// An input was set that the model does not have.
    UnknownInput = "unknown-input",
    /// The model panicked.
    Panicked = "model-panicked",
    /// A signal ended the model.
    Aborted = "model-aborted",
    /// The model's stack was too small.
    StackOverflow = "stack-overflow",
    /// The model's steps did nothing on the GPU, or left out a phase of a training.
    NoWork = "no-gpu-work",
    /// The model did something else in another pass, with nothing changed.
    Nondeterministic = "nondeterministic",
    /// What the model does depends on values that it reads from the GPU.
    DataDependent = "data-dependent",
    /// The model exited before it was done.
    Exited = "model-exited",
    /// The model took too long.
    TimedOut = "timed-out",
    /// The model used too much of the host's memory.
    HostMemory = "host-memory",
    /// Somebody else wrote into the file of events.
    EventsDamaged = "events-damaged",
    /// The model called a function of the CUDA driver that the virtual one does not have.
    UnsupportedFunction = "unsupported-function",
    /// The model ran without the driver that counts.
    NoDriver = "no-driver",
    /// The model ran on another GPU.
    OtherGpu = "other-card",
    /// Other processes are on a GPU that was to be used alone.
    GpuInUse = "card-in-use",
    /// Lines of the driver's record are missing.
    RecordDamaged = "record-damaged",
    /// Burn could not do an operation, and went on without it.
    OperationFailed = "operation-failed",
    /// A call of the CUDA driver failed where none may.
    DriverError = "driver-error",
    /// The model is over more GPUs than there are.
    TooFewGpus = "too-few-cards",
    /// A signal ended the command before every model was run: the report is incomplete.
    Interrupted = "interrupted",
    /// CUDA's math functions, which LLVM links, are not in the toolkit.
    NoLibdevice = "no-libdevice",
    /// The model's process could not be started.
    NotStarted = "not-started",
}

/// The name of a code that this version does not know. It may be anything: a report is a file of somebody's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownCode(String);

impl ErrorCode {
    /// The code of this name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let known = Self::ALL.iter().find(|code| code.as_str() == name);
        known
            .cloned()
            .unwrap_or_else(|| Self::Unknown(UnknownCode(name.to_owned())))
    }

    /// Whether the model did not even begin, since it cannot be run as it was asked to.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        *self == Self::Impossible || self.is_configuration()
    }

    /// Whether this is a matter of versions or configuration (exit code 2) and not of the run (101).
    #[must_use]
    pub const fn is_configuration(&self) -> bool {
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
            | Self::Unknown(_) => false,
        }
    }
}

/// Its name. What this version does not know is escaped.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(UnknownCode(name)) => write!(f, "{}", name.escape_debug()),
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

/// Any string, since newer versions have other codes, too.
impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let known: Vec<_> = Self::ALL.iter().map(Self::as_str).collect();
        json_schema!({
            "type": "string",
            "description": format!("What went wrong. This version writes: {}", known.join(", ")),
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
