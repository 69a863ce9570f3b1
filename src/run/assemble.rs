//! Assembles one run of the report from the outputs of its passes.

use std::time::Duration;

use super::assumptions::assumptions;
use super::case::Case;
use super::checkout;
use super::collected::Collected;
use super::epochs;
use super::gpu_work;
use super::hardware::{Hardware, MissingLibdevice};
use super::measured::{self, ProcessLooks};
use super::oom::{oom, recovered};
use super::outcome::{self, done};
use super::pass_difference::PassDifference;
use super::process::PassOutput;
use super::reported::{device_reads, features, has_threads, inputs, parameters, settling};
use super::steps::{fullest, steps};
use super::varying;
use crate::bytes::Bytes;
use crate::protocol::ProbeEvent;
use crate::report::words::pass_name;
use crate::report::{
    Assumption, EpochMemory, ErrorCode, GpuShare, Measurement, Mode, Oom, Pass, PassSeconds, Peak, Peaks, Run,
    RunError, RunGpu, Step, grows,
};
use crate::untrusted::PlainName;

/// Whether a pass is complete, without an error and without out of memory.
pub(super) fn is_whole(case: &Case, hardware: &Hardware, pass: Pass, left: &PassOutput) -> bool {
    ran_out(case, hardware, pass, left).is_none() && outcome::error(hardware, pass, left).is_none()
}

/// Returns when Burn first continued without the result of a failed operation.
fn failed_at(left: &PassOutput) -> Option<u64> {
    left.events.iter().find_map(|event| match event {
        ProbeEvent::Failed {
            tuning: false, time, ..
        } => Some(*time),
        _ => None,
    })
}

/// Whether the cold pass failed for a reason other than memory, so that no other pass is worth its time.
pub(super) fn is_hopeless(case: &Case, hardware: &Hardware, left: &PassOutput) -> bool {
    outcome::error(hardware, Pass::Cold, left).is_some() && ran_out(case, hardware, Pass::Cold, left).is_none()
}

/// Returns the out of memory of a pass.
///
/// An out of memory after a call that failed for another reason does not count. For example, if the driver failed to
/// report the GPU's size, every allocation fails.
fn ran_out(case: &Case, hardware: &Hardware, pass: Pass, left: &PassOutput) -> Option<Oom> {
    let oom = oom(pass, left, &case.profile).filter(|_| outcome::failed_call(left).is_none());
    // On a real GPU, processes share the memory, and the driver itself refuses what is too much.
    let is_virtual = matches!(hardware, Hardware::Virtual) && !case.endless;
    oom.or_else(|| together(pass, left, case.profile.available()).filter(|_| is_virtual))
}

/// Returns an out of memory if the model's processes together hold more than a virtual GPU has.
///
/// Each process sees a virtual GPU of its own, so the driver does not refuse this.
fn together(pass: Pass, left: &PassOutput, available: Bytes) -> Option<Oom> {
    let gpus = u32::try_from(left.record.gpus.len()).unwrap_or(u32::MAX);
    (0..gpus).find_map(|gpu| {
        let (own, others) = (left.record.gpu(gpu).peak, left.record.peak_of_helpers(gpu));
        (others > Bytes(0) && own + others > available).then(|| Oom {
            pass,
            gpu_number: (gpus > 1).then_some(gpu),
            step: None,
            phase: None,
            kernel: None,
            requested: Some(others),
            function: None,
            reserved: own,
            live: None,
            available: available.saturating_sub(own),
            tensor: None,
        })
    })
}

/// Assembles the run.
pub(super) fn run(case: &Case, hardware: &Hardware, collected: &Collected, times: &[(Pass, Duration)]) -> Run {
    let outputs = Outputs::new(case, hardware, collected);
    let (cold, warm, traced) = (
        outputs.of(Pass::Cold),
        outputs.of(Pass::Warm),
        outputs.of(outputs.observed()),
    );
    let some_pass = warm.or(traced).or(cold);
    let profile = &case.profile;
    let (mode, driver, context, modules) = match hardware {
        Hardware::Virtual => (
            Mode::Estimate,
            format!("virtual {}", env!("CARGO_PKG_VERSION")),
            None,
            None,
        ),
        Hardware::Real(real) => {
            let (context, modules) = measured::outside(real, some_pass);
            (Mode::Measure, real.driver.clone(), context, modules)
        }
    };
    let measurement = match hardware {
        Hardware::Virtual => None,
        Hardware::Real(real) => {
            let limit = real.limited.then_some(profile.total.value);
            let passes: Vec<&PassOutput> = [warm, traced, cold].into_iter().flatten().collect();
            Some(measured::measurement(real, limit, collected.tuning, &passes))
        }
    };
    let error = outputs.error(collected);
    let error = error.or_else(|| in_use(hardware, measurement.as_ref()?));
    let is_complete = error.is_none() && outputs.oom.is_none();
    let gpus = outputs.gpus();
    let readable = || outputs.readable().map(|(_, left)| left);
    let peaks = gpus
        .iter()
        .map(|gpu| gpu.peaks)
        .reduce(Peaks::fullest)
        .unwrap_or_default();
    let steps_of_run = gpus
        .iter()
        .map(|gpu| gpu.steps.clone())
        .reduce(fullest)
        .unwrap_or_default();
    let run = Run {
        model: case.model.name.clone(),
        package: case.model.built.target.package.clone(),
        budget: case.budget.as_deref().map(PlainName::escaped),
        mode,
        task: Some(case.model.task),
        burn: case.model.built.target.burn.clone(),
        features: readable().find_map(features),
        // A pass that died early reported no inputs. Then only the overridden ones are known.
        inputs: readable().find_map(inputs).unwrap_or_else(|| case.plain_inputs()),
        what_if: case.what_if.clone(),
        label: (!case.what_if.is_none()).then(|| PlainName::escaped(&case.what_if.of(case.name()))),
        gpu: RunGpu {
            id: PlainName::escaped(&profile.id),
            name: profile.name.as_str().into(),
            total_bytes: profile.total.value,
            available_bytes: profile.available(),
            driver: driver.into(),
            context: context.or_else(|| Some(profile.context.outside())),
            modules: modules.or_else(|| Some(profile.modules.outside())),
        },
        measurement,
        parameters: readable().find_map(parameters),
        peaks,
        baseline: None,
        varying: some_pass
            .and_then(|left| varying::varying(&left.events, case.sizes, is_complete, peaks, &steps_of_run, &gpus)),
        steps: steps_of_run,
        epochs: traced.map_or_else(Vec::new, epochs_of),
        // The values of a single GPU are those of the run itself. See docs/design/several-gpus.md.
        gpus: if gpus.len() > 1 { gpus } else { Vec::new() },
        recovered_refusals: match outputs.oom {
            Some(_) => 0,
            None => readable().map(recovered).max().unwrap_or(0),
        },
        autotune: collected.autotune.clone(),
        recording: collected.recording.clone(),
        streams: traced.and_then(done).map_or(0, |done| done.streams),
        settling: traced.or(warm).and_then(settling),
        device_reads: some_pass.map_or(0, device_reads),
        assumptions: assumptions(
            case,
            hardware,
            collected,
            cold,
            outputs.whole(Pass::Warm),
            outputs.whole(outputs.observed()),
            outputs.difference_by_threads(collected),
        ),
        range: None,
        error,
        oom: outputs.oom.clone(),
        seconds: seconds(times.iter().map(|(_, took)| *took).sum()),
        pass_seconds: times
            .iter()
            .map(|&(pass, took)| PassSeconds {
                pass,
                seconds: seconds(took),
            })
            .collect(),
    };
    // Threads of the program run in another order in the second warm pass. Growth in either is growth of the model.
    let other = outputs.other.filter(|_| !run.epochs.is_empty());
    let again = other.map(|left| Run {
        epochs: epochs_of(left),
        ..run.clone()
    });
    let grown = run.growing_epochs().len();
    again
        .filter(|again| again.growing_epochs().len() > grown)
        .unwrap_or(run)
}

/// Returns the parts of the epochs of a pass; none if it is of single steps.
fn epochs_of(left: &PassOutput) -> Vec<EpochMemory> {
    match epochs::wanted(&left.events) {
        Some(_) => epochs::epochs(&left.events, &left.record, &steps(left, 0)),
        None => Vec::new(),
    }
}

/// Returns a time in seconds, rounded to milliseconds.
fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

/// The outputs of the passes that count for a run.
struct Outputs<'a> {
    case: &'a Case,
    hardware: &'a Hardware,
    /// Each pass that was tried, with its output or the error that kept it from running.
    all: Vec<(Pass, &'a std::io::Result<PassOutput>)>,
    /// The second warm pass, if the budget allows it to differ from the first.
    other: Option<&'a PassOutput>,
    /// The first out of memory.
    oom: Option<Oom>,
}

impl<'a> Outputs<'a> {
    fn new(case: &'a Case, hardware: &'a Hardware, collected: &'a Collected) -> Self {
        let passes = &collected.passes;
        let other = passes.other.as_ref().and_then(|left| left.as_ref().ok());
        // The model may fail because it reads other values. Such an incomplete pass does not show how much memory it
        // needs.
        let other = other.filter(|left| {
            ran_out(case, hardware, Pass::Warm, left).is_some() || is_whole(case, hardware, Pass::Warm, left)
        });
        // Otherwise a difference is an error, and there is no value to compare with a limit.
        // See docs/design/passes.md.
        let warm = passes.warm.as_ref().and_then(|left| left.as_ref().ok());
        let may_differ = case.allowed.nondeterministic || case.allowed.data_dependent || warm.is_some_and(has_threads);
        let other = other.filter(|_| may_differ);
        let all = [
            (Pass::Cold, &passes.cold),
            (Pass::Warm, &passes.warm),
            (Pass::Traced, &passes.traced),
            // If the budget allows the second warm pass to differ, the pass counts like any other.
            (Pass::Warm, if other.is_some() { &passes.other } else { &None }),
        ];
        let all = all.into_iter();
        let all = all.filter_map(|(pass, left)| left.as_ref().map(|left| (pass, left)));
        let mut outputs = Self {
            case,
            hardware,
            all: all.collect(),
            other,
            oom: None,
        };
        outputs.oom = outputs.first_oom();
        outputs
    }

    /// Returns the output of a pass, if the pass could run.
    fn of(&self, wanted: Pass) -> Option<&'a PassOutput> {
        let found = self.all.iter().find(|(pass, _)| *pass == wanted);
        found.and_then(|(_, left)| left.as_ref().ok())
    }

    /// Returns which pass observes live memory and phases.
    const fn observed(&self) -> Pass {
        match self.hardware {
            Hardware::Virtual => Pass::Warm,
            Hardware::Real(_) => Pass::Traced,
        }
    }

    /// Returns the passes that could run, with their outputs.
    fn readable(&self) -> impl Iterator<Item = (Pass, &'a PassOutput)> {
        let readable = self.all.iter();
        readable.filter_map(|(pass, left)| left.as_ref().ok().map(|left| (*pass, left)))
    }

    fn ran_out(&self, pass: Pass, left: &PassOutput) -> Option<Oom> {
        ran_out(self.case, self.hardware, pass, left)
    }

    /// Returns the first out of memory.
    ///
    /// A cold pass does not observe live memory, so that value comes from another pass that ran out at the same
    /// position.
    fn first_oom(&self) -> Option<Oom> {
        let ends: Vec<Oom> = self
            .readable()
            .filter_map(|(pass, left)| self.ran_out(pass, left))
            .collect();
        let oom = ends.first()?.clone();
        let same = |other: &&Oom| (other.step, other.phase, other.gpu_number) == (oom.step, oom.phase, oom.gpu_number);
        let live = ends.iter().filter(same).find_map(|other| other.live);
        Some(Oom {
            // More live than reserved memory cannot be of the same moment.
            live: live.filter(|live| *live <= oom.reserved),
            ..oom
        })
    }

    /// Returns a pass if its peaks count: a complete pass, or the pass in which memory ran out first.
    ///
    /// The peaks of another incomplete pass are not the model's peaks.
    fn whole(&self, pass: Pass) -> Option<&'a PassOutput> {
        self.of(pass).filter(|left| {
            self.oom.as_ref().is_some_and(|oom| oom.pass == pass)
                || (self.ran_out(pass, left).is_none() && outcome::error(self.hardware, pass, left).is_none())
        })
    }

    /// Returns why the run is incomplete.
    fn error(&self, collected: &Collected) -> Option<RunError> {
        // A run that is out of memory reports only that, not a difference between its passes.
        let disagreement = collected.disagreement.as_ref().filter(|_| self.oom.is_none());
        self.error_of_another_checkout()
            .or_else(|| self.error_of_a_pass())
            .or_else(|| self.error_of_the_second_pass(collected))
            .or_else(|| disagreement?.error(self.case, self.differs_by_threads(collected)))
            .or_else(|| {
                // Last: if values that the model reads keep it from learning, the disagreement says so.
                let is_by_values = disagreement.is_some_and(|of| self.may_be_by_values(of));
                let mut judged = self.readable().filter(|_| self.oom.is_none() && !is_by_values);
                judged.find_map(|(_, left)| gpu_work::rarely_learns(left))
            })
    }

    /// Whether threads of the program may have caused a difference between two complete passes: between both warm passes,
    /// or between the cold and the only warm pass.
    fn differs_by_threads(&self, collected: &Collected) -> bool {
        let is_complete = self.other.is_some() || collected.passes.other.is_none();
        is_complete && self.of(Pass::Warm).is_some_and(has_threads)
    }

    /// Returns the assumption if threads of the program caused a difference between two passes.
    fn difference_by_threads(&self, collected: &Collected) -> Option<Assumption> {
        let is_meant = matches!(collected.disagreement, Some(PassDifference::Nondeterministic(_)));
        if !is_meant || !self.differs_by_threads(collected) {
            return None;
        }
        let both = self.of(self.observed()).zip(self.other);
        let range = |of: &dyn Fn(&PassOutput) -> Option<Bytes>| {
            let (first, second) = both?;
            let (first, second) = (of(first)?, of(second)?);
            (first != second).then(|| [first.min(second), first.max(second)])
        };
        Some(Assumption::ThreadsDiffer {
            is_verified: self.other.is_some(),
            live: range(&|left| live(Some(left), &steps(left, 0), 0)),
            reserved: range(&|left| self.reserved(Some(left), 0)),
        })
    }

    /// Returns the error if another checkout replaced the program since its models were listed.
    fn error_of_another_checkout(&self) -> Option<RunError> {
        let left = self.all.iter().filter_map(|(_, left)| left.as_ref().ok());
        let mut found = left.filter_map(|left| checkout::other(&self.case.model.built, &left.events));
        found.next().map(|(message, help)| RunError {
            code: ErrorCode::OtherCheckout,
            message: message.into(),
            help: Some(help.into()),
        })
    }

    fn error_of_a_pass(&self) -> Option<RunError> {
        self.all.iter().find_map(|(pass, left)| match left {
            Err(error) => Some(not_run(*pass, error)),
            // An out of memory makes a program panic. The run then reports the out of memory instead of the panic.
            Ok(left) => {
                let by_memory = self.ran_out(*pass, left).is_some();
                outcome::error(self.hardware, *pass, left).filter(|error| !(by_memory && is_by_memory(&error.code)))
            }
        })
    }

    fn error_of_the_second_pass(&self, collected: &Collected) -> Option<RunError> {
        let left = match collected.passes.other.as_ref()? {
            Ok(left) => left,
            Err(error) => {
                return Some(RunError {
                    code: ErrorCode::NotStarted,
                    message: format!("could not run a second warm pass: {error}").into(),
                    help: Some("check that the target folder is writable and its disk has free space".into()),
                });
            }
        };
        // If chance decides what the model does, the pass is a run like any other. If values do, it may fail because the
        // model reads other values than real ones.
        let by_chance = |of: &PassDifference| !self.may_be_by_values(of);
        let by_chance = collected.disagreement.as_ref().is_some_and(by_chance);
        let is_run = by_chance && self.case.allowed.nondeterministic && self.oom.is_none();
        outcome::error(self.hardware, Pass::Warm, left).filter(|_| is_run && self.ran_out(Pass::Warm, left).is_none())
    }

    /// Whether values that the model reads may be the cause of a difference. If the budget allows both causes, nobody
    /// knows.
    fn may_be_by_values(&self, difference: &PassDifference) -> bool {
        let reads = || self.of(Pass::Warm).is_some_and(|warm| device_reads(warm) > 0);
        match difference {
            PassDifference::DataDependent(_) => true,
            PassDifference::Nondeterministic(_) => self.case.allowed.data_dependent && reads(),
        }
    }

    /// Returns the peaks and steps of each GPU.
    fn gpus(&self) -> Vec<GpuShare> {
        let count = self.readable().map(|(_, left)| left.record.gpus.len()).max();
        let count = u32::try_from(count.unwrap_or(1).max(1)).unwrap_or(1);
        (0..count).map(|gpu| self.share(gpu)).collect()
    }

    fn share(&self, gpu: u32) -> GpuShare {
        let observed = self.of(self.observed());
        let mut steps = observed.map(|left| steps(left, gpu)).unwrap_or_default();
        let live = live(self.whole(self.observed()), &steps, gpu);
        let mut warm = self.peak(self.whole(Pass::Warm), gpu, live);
        if let Some(other) = self.other {
            let others = self::steps(other, gpu);
            warm = warm.largest(self.peak(Some(other), gpu, self::live(Some(other), &others, gpu)));
            // A leak in either pass is a leak of the model.
            if grows(&others) {
                steps = others;
            }
        }
        GpuShare {
            gpu_number: gpu,
            peaks: Peaks {
                warm,
                cold: self.peak(self.whole(Pass::Cold), gpu, None),
            },
            steps,
        }
    }

    fn peak(&self, left: Option<&PassOutput>, gpu: u32, live: Option<Bytes>) -> Peak {
        Peak {
            live,
            reserved: self.reserved(left, gpu),
            process: self.process(left, gpu),
        }
    }

    /// Returns the peak of reserved memory on a GPU.
    fn reserved(&self, left: Option<&PassOutput>, gpu: u32) -> Option<Bytes> {
        // Without a record, nothing is known about reserved memory. It is not 0.
        let left = left.filter(|left| left.record.started)?;
        // If Burn continued after an out of memory, it skipped work, so later values do not count.
        let failed = self.oom.as_ref().and_then(|_| failed_at(left));
        Some(match failed {
            // The end of `between` is excluded, but what was reserved at that time counts.
            Some(time) => left.record.gpu(gpu).between(0, time.saturating_add(1)).0 + left.record.peak_of_helpers(gpu),
            None => left.record.peak(gpu),
        })
    }

    /// Returns the peak of the memory that a GPU charges to the model's processes.
    fn process(&self, left: Option<&PassOutput>, gpu: u32) -> Option<Bytes> {
        match self.hardware {
            Hardware::Virtual => {
                let profile = &self.case.profile;
                let outside = profile.total.value.saturating_sub(profile.available());
                // Each process has a CUDA context of its own. See docs/design/processes.md.
                let outside = outside.0.saturating_mul(left?.record.processes());
                let reserved = self.reserved(left, gpu)?;
                Some(Bytes(reserved.0.saturating_add(outside)))
            }
            Hardware::Real(_) => left.and_then(ProcessLooks::from_pass).and_then(|seen| seen.peak()),
        }
    }
}

/// Returns the peak of live memory on a GPU in an observed pass.
///
/// For helper processes of the model, live memory is unknown, so all of their reserved memory counts.
fn live(left: Option<&PassOutput>, steps: &[Step], gpu: u32) -> Option<Bytes> {
    let left = left?;
    let phases = steps.iter().flat_map(|step| &step.phases);
    let most = phases.map(|phase| phase.live_peak).max();
    // A GPU other than the first has no values until something is launched there.
    let most = most.or((gpu > 0).then_some(Bytes(0)));
    most.map(|most| most + left.record.peak_of_helpers(gpu))
}

/// Returns the error if another process used a GPU during an exclusive measurement.
fn in_use(hardware: &Hardware, measurement: &Measurement) -> Option<RunError> {
    let alone = matches!(hardware, Hardware::Real(real) if real.exclusive);
    let other = measurement.others.first().filter(|_| alone)?;
    Some(RunError {
        code: ErrorCode::GpuInUse,
        message: format!("another process used the GPU: {other}").into(),
        help: Some("end that process, choose another GPU with --device, or measure without --exclusive".into()),
    })
}

/// Whether an out of memory may cause this error.
const fn is_by_memory(code: &ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Panicked | ErrorCode::Exited | ErrorCode::Aborted | ErrorCode::OperationFailed
    )
}

/// Builds the error for a pass that could not run at all.
fn not_run(pass: Pass, error: &std::io::Error) -> RunError {
    let lacks_libdevice = error.get_ref().is_some_and(|inner| inner.is::<MissingLibdevice>());
    let (code, help) = match lacks_libdevice {
        true => (
            ErrorCode::NoLibdevice,
            "install the file (part of the CUDA toolkit: package libnvvm or cuda-nvcc), and set CUDA_PATH to the \
             toolkit's folder",
        ),
        false => (
            ErrorCode::NotStarted,
            "check that the target folder is writable and its disk has free space",
        ),
    };
    RunError {
        code,
        message: format!("could not run the {} pass: {error}", pass_name(pass)).into(),
        help: Some(help.into()),
    }
}
