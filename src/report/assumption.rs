//! [`Assumption`]: what the values of a run or an explanation depend on and nobody checked.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bytes::Bytes;
use crate::untrusted::{Foreign, clean};

/// Something that a value depends on and nobody checked. In JSON, it has a code for programs and a sentence for people.
#[derive(Debug, Clone)]
pub enum Assumption {
    /// A value of the GPU profile is assumed.
    GpuValue {
        /// The GPU's id.
        gpu: Foreign,
        /// The assumed quantity.
        quantity: GpuQuantity,
        /// The assumed value as text, with its unit.
        value: Foreign,
        /// Why this value is assumed.
        why: Foreign,
    },
    /// The model runs in mixed precision, which Burn does not have and cargo-vram emulates.
    MixedPrecision,
    /// The autotune choices were recorded on another GPU.
    RecordedOnOtherGpu {
        /// The id of the GPU that the run is for.
        gpu: Foreign,
        /// The id of the GPU that was recorded.
        recorded_on: Foreign,
        /// The driver version of the recording.
        driver: Foreign,
    },
    /// The cold pass ended before autotune had made all choices.
    ColdPassEnded {
        /// The number of choices that later passes made.
        choices: u64,
    },
    /// Later passes made autotune choices that the plan lacked.
    ChosenLater {
        /// The number of choices that later passes made.
        choices: u64,
    },
    /// The model did different work in two passes.
    PassesDiffer {
        /// The first difference, to follow "the model": `launches 12 kernels in the backward phase of step 2, and then
        /// 0`.
        difference: Foreign,
    },
    /// The second warm pass, which reads other values from the GPU, did not finish.
    OtherValuesUnfinished,
    /// The model started other processes that used the CUDA driver.
    HelperProcesses {
        /// The number of these processes.
        count: usize,
    },
    /// Processes that the model started still ran after it, and were ended.
    ProcessesLeft,
    /// The loop is hand-written.
    HandWrittenStep,
    /// Threads of the program, such as workers of a data loader, ran in another order in a later pass.
    ThreadsDiffer {
        /// Whether there are two warm passes, of which the largest values count.
        is_verified: bool,
        /// The lower and the higher peak of live memory of both passes, if they differ.
        live: Option<[Bytes; 2]>,
        /// The same of reserved memory.
        reserved: Option<[Bytes; 2]>,
    },
    /// Each step of a training of several epochs waits until the program's other threads are idle.
    ThreadsWait,
    /// Threads of the program are busy without a pause, so a training of several epochs does not wait for them.
    ThreadsBusy,
    /// The batches of a validation are on a backend with autodiff, so its steps keep what a backward phase would need.
    ValidationTracked {
        /// The program's line that passed the data loader to cargo-vram.
        loader: Foreign,
    },
    /// The steps of a validation are not seen, because the program makes its own data loaders.
    ValidationUnseen,
    /// An explanation of a model with ranges is of its largest sizes.
    LargestSizes,
    /// Reserved memory still grew when the sizes of a range were repeated.
    SizesStillGrow,
    /// Steps were run with some of the sizes of a range, and in some orders.
    SizesSampled {
        /// The name of the input.
        input: Foreign,
        /// The number of sizes that steps were run with.
        tried: u64,
        /// The number of sizes that the model declares.
        declared: u64,
    },
    /// Uploaded tensors are allocated in program order.
    ProgramOrder,
    /// Source lines are missing.
    NoLines {
        /// Whether only the operations that make the batches lack lines.
        of_batches: bool,
    },
    /// Peak reserved memory differs between the warm and the traced pass.
    ReservedDiffers {
        /// Peak reserved memory of the warm pass.
        warm: Bytes,
        /// Peak reserved memory of the traced pass.
        traced: Bytes,
    },
    /// NVML stopped answering during the measurement.
    NvmlLost {
        /// The error of NVML.
        error: Foreign,
    },
    /// The model reads values from a virtual GPU, which returns zeros.
    DeviceReads {
        /// The number of reads.
        count: u64,
    },
    /// The model uses several GPUs.
    SeveralGpus,
    /// Samples of live memory are missing.
    MissedSamples {
        /// The number of missing samples.
        count: u64,
    },
    /// The explanation does not know the model's parameters.
    UnknownParameters,
    /// The explained model has another tensor type than an estimated one.
    OtherTensorType,
    /// The model called no operation of Burn.
    NoOperation,
    /// The program has no line numbers.
    NoLineNumbers,
    /// An assumption that was read from a file.
    Read(ReadAssumption),
}

/// A value of a GPU profile that can be assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuQuantity {
    /// The total memory.
    TotalMemory,
    /// The memory that a CUDA context takes.
    Context,
    /// The most memory that loaded kernels take.
    LoadedKernels,
    /// The size of the L2 cache.
    L2Cache,
    /// The number of streaming multiprocessors (SMs).
    SmCount,
}

impl GpuQuantity {
    const fn name(self) -> &'static str {
        match self {
            Self::TotalMemory => "total memory",
            Self::Context => "CUDA context",
            Self::LoadedKernels => "allowance for loaded kernels",
            Self::L2Cache => "L2 cache",
            Self::SmCount => "number of SMs",
        }
    }
}

/// Something that a value depends on and nobody checked. A newer version of cargo-vram may write codes that this
/// version does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Assumption")]
pub struct ReadAssumption {
    /// A stable name for programs, such as `device-reads`.
    code: Foreign,
    /// The assumption as a sentence for people.
    text: Foreign,
}

impl Assumption {
    /// Creates an assumption from its code and its sentence in a document.
    #[must_use]
    pub fn from_document(code: impl Into<Foreign>, text: impl Into<Foreign>) -> Self {
        let (code, text) = (code.into(), text.into());
        Self::Read(ReadAssumption { code, text })
    }

    /// Returns the stable name for programs, such as `device-reads`.
    #[must_use]
    pub fn code(&self) -> &str {
        // Programs compare these codes, so a code stays when its sentence changes.
        match self {
            Self::GpuValue { .. } => "gpu-value",
            Self::MixedPrecision => "mixed-precision",
            Self::RecordedOnOtherGpu { .. } => "recorded-on-other-gpu",
            Self::ColdPassEnded { .. } => "cold-pass-ended",
            Self::ChosenLater { .. } => "chosen-later",
            Self::PassesDiffer { .. } => "passes-differ",
            Self::OtherValuesUnfinished => "other-values-unfinished",
            Self::HelperProcesses { .. } => "helper-processes",
            Self::ProcessesLeft => "processes-left",
            Self::HandWrittenStep => "hand-written-step",
            Self::ThreadsDiffer { .. } => "threads-differ",
            Self::ThreadsWait => "threads-wait",
            Self::ValidationTracked { .. } => "validation-tracked",
            Self::ValidationUnseen => "validation-unseen",
            Self::ThreadsBusy => "threads-busy",
            Self::LargestSizes => "largest-sizes",
            Self::SizesStillGrow => "sizes-still-grow",
            Self::SizesSampled { .. } => "sizes-sampled",
            Self::ProgramOrder => "program-order",
            Self::NoLines { .. } => "no-lines",
            Self::ReservedDiffers { .. } => "reserved-differs",
            Self::NvmlLost { .. } => "nvml-lost",
            Self::DeviceReads { .. } => "device-reads",
            Self::SeveralGpus => "several-gpus",
            Self::MissedSamples { .. } => "missed-samples",
            Self::UnknownParameters => "unknown-parameters",
            Self::OtherTensorType => "other-tensor-type",
            Self::NoOperation => "no-operation",
            Self::NoLineNumbers => "no-line-numbers",
            Self::Read(read) => read.code.raw(),
        }
    }
}

impl fmt::Display for Assumption {
    /// Writes the sentence on one line, escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&clean(&self.sentence()).replace('\n', " "))
    }
}

impl Assumption {
    /// Returns the sentence as a report has it: not escaped.
    fn sentence(&self) -> String {
        RawSentence(self).to_string()
    }
}

/// The sentence of an assumption, not escaped.
struct RawSentence<'a>(&'a Assumption);

impl fmt::Display for RawSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Assumption::GpuValue {
                gpu,
                quantity,
                value,
                why,
            } => write!(
                f,
                "the {} of `{}` is assumed to be {}: {}",
                quantity.name(),
                gpu.raw(),
                value.raw(),
                why.raw()
            ),
            Assumption::MixedPrecision => f.write_str(
                "Burn has no mixed precision, so cargo-vram emulates it: Burn creates the parameters in half \
                 precision, and cargo-vram casts them to f32 once and to half precision in each step",
            ),
            Assumption::RecordedOnOtherGpu {
                gpu,
                recorded_on,
                driver,
            } => write!(
                f,
                "there is no recording of `{gpu}`: the autotune choices come from a recording of `{recorded_on}` with \
                 driver {driver}, because `{gpu}` is declared `like: {recorded_on}`",
                gpu = gpu.raw(),
                recorded_on = recorded_on.raw(),
                driver = driver.raw()
            ),
            Assumption::ColdPassEnded { choices } => write!(
                f,
                "the cold pass ended before autotune had made all choices: later passes made {choices} of them, so \
                 their values include the memory of autotune's trials"
            ),
            Assumption::ChosenLater { choices } => write!(
                f,
                "later passes made {choices} of the autotune choices themselves, so their values include the memory of \
                 autotune's trials"
            ),
            Assumption::PassesDiffer { difference } => write!(f, "two passes did different work: the model {}", difference.raw()),
            Assumption::OtherValuesUnfinished => f.write_str(
                "the second warm pass, which reads other values from the GPU, did not finish, so the peaks leave it out",
            ),
            Assumption::HelperProcesses { count } => write!(
                f,
                "the model started other processes that used the CUDA driver ({count}): their peaks are added to the \
                 model's as if all occurred at once, and all their reserved memory counts as live memory"
            ),
            Assumption::ProcessesLeft => f.write_str(
                "processes that the model started still ran after it, and were ended: the values leave out what such \
                 processes would have allocated later",
            ),
            Assumption::ThreadsWait => f.write_str(
                "each step waits until the program's other threads are idle: on a real GPU, a metric may still read the \
                 outputs of up to two earlier steps, which then exist beside those of this step",
            ),
            Assumption::ValidationTracked { loader } => write!(
                f,
                "the validation data of {loader} is on the backend of the training, so a validation step may keep what a \
                 backward phase would need: to need less memory, validate `model.valid()` with a loader on the inner \
                 backend",
                loader = loader.raw()
            ),
            Assumption::ValidationUnseen => f.write_str(
                "cargo-vram sees the epochs and training steps only by the log of Burn's learner, because the training \
                 makes its own data loaders. Each validation counts as one step, and its batches do not wait for the \
                 program's other threads, so two runs can differ",
            ),
            Assumption::LargestSizes => f.write_str(
                "every step has the largest size of the model's ranges: other orders of the sizes may reserve more",
            ),
            Assumption::SizesStillGrow => f.write_str(
                "reserved memory still grew when the sizes were repeated, and may grow further: run more steps with \
                 `--steps`",
            ),
            Assumption::SizesSampled { input, tried, declared } => write!(
                f,
                "{tried} of the {declared} sizes of `{input}` were run, in five orders: a real training has other orders, \
                 and may reserve more",
                input = input.raw()
            ),
            Assumption::ThreadsBusy => f.write_str(
                "threads of the program worked for a minute without a pause, and no step waits for them: two runs can \
                 differ, and fewer batches may wait on the GPU than in a real training",
            ),
            Assumption::ThreadsDiffer {
                is_verified,
                live,
                reserved,
            } => {
                f.write_str(
                    "the program's own threads, such as workers of a data loader, run in another order in each run, and \
                     the passes differ: ",
                )?;
                for (name, peaks) in [("live", live), ("reserved", reserved)] {
                    if let Some([lower, higher]) = peaks {
                        write!(f, "{name} memory peaked at {lower} and at {higher}, ")?;
                    }
                }
                f.write_str(match (is_verified, live.or(*reserved)) {
                    (true, Some(_)) => "and the higher values count",
                    (true, None) => "but the peaks of both passes are equal",
                    (false, _) => "two runs can have other values; `cargo vram check` takes the largest of two passes",
                })
            }
            Assumption::HandWrittenStep => f.write_str(
                "the loop is hand-written: unless it forks its model to the device, its reserved memory \
                 varies between real runs",
            ),
            Assumption::ProgramOrder => f.write_str(
                "cargo-vram allocates uploaded tensors in program order: in a normal run, an upload may be allocated \
                 earlier, while other operations still wait",
            ),
            Assumption::NoLines { of_batches } => write!(
                f,
                "{}: lines are recorded on Burn's fusion thread, and the model does not finish there, for example \
                 because its own threads use the GPU",
                match of_batches {
                    true => "the operations that make the batches have no source lines",
                    false => "the explanation has no source lines",
                }
            ),
            // Exact bytes, because a small difference would vanish in MiB.
            Assumption::ReservedDiffers { warm, traced } => write!(
                f,
                "peak reserved memory differs between the passes: {} bytes in the warm pass, {} bytes in the traced \
                 pass; live memory is from the traced pass",
                warm.0, traced.0
            ),
            Assumption::NvmlLost { error } => write!(
                f,
                "NVML stopped answering ({}), so `process` is the highest value seen until then",
                error.raw()
            ),
            Assumption::DeviceReads { count } => write!(
                f,
                "the model reads values back from the GPU (reads: {count}), and a virtual GPU returns zeros: if the \
                 model's control flow depends on these values, the estimate holds only for zeros"
            ),
            Assumption::SeveralGpus => f.write_str(
                "the model uses several GPUs: each value is from the GPU where it is highest; the memory that NCCL \
                 itself takes on each GPU is unknown and not included",
            ),
            Assumption::MissedSamples { count } => write!(
                f,
                "cargo-vram could not take some samples of live memory ({count} missing), so the live peak may be higher"
            ),
            Assumption::UnknownParameters => f.write_str(
                "the model's parameters are unknown, so each counts in the category of the phase that made it; a \
                 hand-written loop can report its model with `step.model(&model)`",
            ),
            Assumption::OtherTensorType => f.write_str(
                "without fusion, an explanation uses its own tensor type: a model that chooses kernels by a tensor's \
                 `TypeId` may choose other kernels than in an estimate",
            ),
            Assumption::NoOperation => f.write_str("the model called no operation of Burn"),
            Assumption::NoLineNumbers => f.write_str(
                "the program has no line numbers: set `debug = \"line-tables-only\"` in its Cargo profile",
            ),
            Assumption::Read(read) => f.write_str(read.text.raw()),
        }
    }
}

/// Two assumptions are equal if their codes and sentences are equal, whether or not one was read from a file.
impl PartialEq for Assumption {
    fn eq(&self, other: &Self) -> bool {
        self.code() == other.code() && self.sentence() == other.sentence()
    }
}

impl Eq for Assumption {}

impl Serialize for Assumption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Read(document) => document.serialize(serializer),
            own => {
                let (code, text) = (own.code().into(), own.sentence().into());
                ReadAssumption { code, text }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Assumption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A code of a newer version must survive reading and writing, so nothing is parsed back into
        // variants.
        ReadAssumption::deserialize(deserializer).map(Self::Read)
    }
}

impl JsonSchema for Assumption {
    fn schema_name() -> Cow<'static, str> {
        ReadAssumption::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ReadAssumption::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_written_is_the_one_that_is_read() {
        let own = Assumption::DeviceReads { count: 7 };
        let json = serde_json::to_value(&own).unwrap();
        assert_eq!(json["code"], "device-reads");
        let read: Assumption = serde_json::from_value(json.clone()).unwrap();
        assert_eq!((&read, serde_json::to_value(&read).unwrap()), (&own, json));
        assert_ne!(read, Assumption::DeviceReads { count: 8 });
    }

    #[test]
    fn one_of_a_newer_version_is_kept() {
        let json = serde_json::json!({ "code": "newer", "text": "a sentence" });
        let read: Assumption = serde_json::from_value(json.clone()).unwrap();
        assert_eq!((read.code(), read.to_string()), ("newer", "a sentence".to_owned()));
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }

    #[test]
    fn a_hostile_one_is_shown_escaped_and_written_as_it_was_read() {
        let json = serde_json::json!({ "code": "x\u{1b}", "text": "a\n::error::b\u{202e}" });
        let read: Assumption = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read.to_string(), "a : :error::b\u{fffd}");
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }

    #[test]
    fn the_json_has_the_whole_sentence() {
        let why = "w\n".repeat(400);
        let own = Assumption::GpuValue {
            gpu: "l4".into(),
            quantity: GpuQuantity::Context,
            value: "1 MiB".into(),
            why: why.as_str().into(),
        };
        let json = serde_json::to_value(&own).unwrap();
        assert_eq!(
            json["text"],
            format!("the CUDA context of `l4` is assumed to be 1 MiB: {why}")
        );
        assert!(own.to_string().ends_with("w w w"));
        assert!(own.to_string().len() > 800);
    }
}
