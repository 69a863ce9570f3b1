//! The trace: a file of all operations, launches and memory changes, from which the tool makes explanations.

mod line;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::clock;
use super::numbers::{Numbers, SPREAD};
use super::timeline::StepMoment;
use crate::protocol::{Frame, HeldTensor, Made, SourceSymbol, Traced};

/// The largest number of frames that are kept of a call stack.
const DEEPEST: usize = 256;

struct TraceWriter {
    file: BufWriter<File>,
    /// The line that is being written.
    line: String,
    stacks: HashMap<TracedStack, u32, Numbers>,
    kernels: HashMap<String, u32>,
    /// The kernel of the last sample.
    kernel: Option<(String, u32)>,
    /// Whether an operation in the trace lists the tensor, by the tensor's number. Numbers are consecutive, so a list
    /// is enough.
    told: Vec<bool>,
    /// Addresses whose functions are not in the trace yet.
    unnamed: std::collections::BTreeSet<u64>,
    named: std::collections::BTreeSet<u64>,
}

/// The frames of a call stack, each as two numbers: its address and its stack pointer.
#[derive(Default, PartialEq, Eq)]
struct TracedStack {
    /// The hash of all frames, updated with each frame. If users build this crate unoptimized, hashing all frames again
    /// would be slow.
    hash: u64,
    frames: Vec<u64>,
}

impl TracedStack {
    fn push(&mut self, address: u64, stack: u64) {
        self.frames.push(address);
        self.frames.push(stack);
        self.hash = (self.hash.rotate_left(5) ^ address ^ stack.rotate_left(32)).wrapping_mul(SPREAD);
    }

    fn depth(&self) -> usize {
        self.frames.len() / 2
    }

    fn frames(&self) -> Vec<Frame> {
        let frames = self.frames.chunks_exact(2);
        frames
            .map(|frame| Frame {
                address: frame[0],
                stack: frame[1],
            })
            .collect()
    }
}

impl Hash for TracedStack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

static TRACE: OnceLock<Mutex<TraceWriter>> = OnceLock::new();
static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static FORESEES: AtomicBool = AtomicBool::new(false);
static IN_STEP: AtomicBool = AtomicBool::new(false);

/// Opens the file of the trace. Before this call, nothing is traced. `foresees`: whether fusion's reports may be
/// skipped while fusion is not expected to run anything.
pub(super) fn open(path: &Path, foresees: bool) -> std::io::Result<()> {
    FORESEES.store(foresees, Relaxed);
    // Events are written at once, but a trace has lines for every launch. `panics.rs` flushes it after a
    // panic.
    let file = BufWriter::with_capacity(1 << 16, File::create(path)?);
    let trace = TraceWriter {
        file,
        line: String::new(),
        stacks: HashMap::default(),
        kernels: HashMap::new(),
        kernel: None,
        told: Vec::new(),
        unnamed: std::collections::BTreeSet::new(),
        named: std::collections::BTreeSet::new(),
    };
    TRACE
        .set(Mutex::new(trace))
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::AlreadyExists))
}

/// Writes the first line. `blocks`: whether the trace gets a [`Traced::Ran`] when each block of operations begins.
pub(super) fn start(alignment: u64, blocks: bool) {
    with(|trace| {
        trace.write(&Traced::Start {
            home: concat!(env!("CARGO_MANIFEST_DIR"), "/src").to_owned(),
            alignment,
            blocks,
        });
    });
}

/// Counts a completed step.
pub(super) fn step_done() {
    STEPS.fetch_add(1, Relaxed);
}

/// Whether a trace is being written.
pub(super) fn is_on() -> bool {
    TRACE.get().is_some()
}

fn with(act: impl FnOnce(&mut TraceWriter)) {
    if let Some(trace) = TRACE.get() {
        // After a panic of another thread, the rest of the trace is still wanted: it shows what led to the
        // panic.
        act(&mut trace.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl TraceWriter {
    /// Writes a line. It ignores write errors: the reader then finds that the end is missing.
    fn write(&mut self, what: &Traced) {
        self.line.clear();
        let _ = line::write(what, &mut self.line);
        self.line.push('\n');
        let _ = self.file.write_all(self.line.as_bytes());
    }

    fn stack(&mut self, stack: TracedStack) -> u32 {
        if let Some(number) = self.stacks.get(&stack) {
            return *number;
        }
        let number = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        let frames = stack.frames();
        for frame in &frames {
            if !self.named.contains(&frame.address) {
                self.unnamed.insert(frame.address);
            }
        }
        self.write(&Traced::Stack { stack: number, frames });
        self.stacks.insert(stack, number);
        number
    }

    /// Returns a kernel's number. It remembers the last kernel, because most samples come in pairs, before and after a
    /// launch.
    fn kernel(&mut self, name: &str) -> u32 {
        if let Some((last, number)) = &self.kernel
            && last == name
        {
            return *number;
        }
        let number = match self.kernels.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.kernels.len()).unwrap_or(u32::MAX);
                self.kernels.insert(name.to_owned(), number);
                self.write(&Traced::Kernel {
                    kernel: number,
                    name: name.to_owned(),
                });
                number
            }
        };
        self.kernel = Some((name.to_owned(), number));
        number
    }

    /// Records that an operation in the trace lists this tensor.
    fn tell(&mut self, id: u64) {
        let at = usize::try_from(id).unwrap_or(usize::MAX);
        if at >= self.told.len() {
            self.told.resize(at + 1, false);
        }
        self.told[at] = true;
    }

    fn is_told(&self, id: u64) -> bool {
        let at = usize::try_from(id).unwrap_or(usize::MAX);
        self.told.get(at).is_some_and(|told| *told)
    }
}

/// Returns the number of completed steps.
pub(super) fn steps() -> u32 {
    STEPS.load(Relaxed)
}

/// Returns the number of operations that the program has asked for.
pub(super) fn operations() -> u64 {
    OPERATIONS.load(Relaxed)
}

/// Whether the adapter may predict what fusion does next. Before the first step it may not, because the operations
/// there do not recur.
#[cfg(feature = "burn-0_21")]
pub(super) fn may_foresee() -> bool {
    FORESEES.load(Relaxed) && IN_STEP.load(Relaxed)
}

/// Returns the number of launched kernels.
pub(super) fn launches() -> u64 {
    LAUNCHES.load(Relaxed)
}

/// Writes an operation that the program asks for, with the call stack of this thread.
pub(super) fn operation(name: &str, inputs: Vec<u64>, outputs: Vec<Made>) {
    // Only addresses here: to find the functions is slow, and most stacks share their frames. `flush` does
    // it.
    let mut frames = TracedStack::default();
    backtrace::trace(|frame| {
        frames.push(frame.ip() as u64, frame.sp() as u64);
        frames.depth() < DEEPEST
    });
    with(|trace| {
        OPERATIONS.fetch_add(1, Relaxed);
        let stack = trace.stack(frames);
        for made in &outputs {
            trace.tell(made.id);
        }
        trace.write(&Traced::Operation {
            name: name.to_owned(),
            inputs,
            outputs,
            stack,
        });
    });
}

/// Writes that the program enters a phase.
pub(super) fn marked(moment: StepMoment) {
    // The operations of a step recur in the next step, and those that make the model do not.
    // See docs/design/traces.md.
    IN_STEP.store(moment.step.is_some(), Relaxed);
    with(|trace| {
        trace.write(&Traced::Marked {
            step: moment.step,
            phase: moment.phase,
        });
    });
}

/// Writes that the GPU reached a phase.
pub(super) fn reached(moment: StepMoment) {
    with(|trace| {
        trace.write(&Traced::Reached {
            step: moment.step,
            phase: moment.phase,
        });
    });
}

/// Writes a sample of live memory, or a peak within a launch.
pub(super) fn sample(live: u64, kernel: Option<&str>) {
    with(|trace| {
        let kernel = kernel.map(|name| trace.kernel(name));
        trace.write(&Traced::Sample {
            time: clock::now(),
            live,
            kernel,
        });
    });
}

/// Counts a launched kernel.
pub(super) fn launching() {
    LAUNCHES.fetch_add(1, Relaxed);
}

/// Writes that the allocator handed out a piece of memory.
pub(super) fn allocated(memory: u64, bytes: u64) {
    with(|trace| trace.write(&Traced::Allocated { memory, bytes }));
}

/// Writes which tensors got memory (`came`) and which lost it (`gone`).
pub(super) fn look(after: u64, steps: u32, came: Vec<HeldTensor>, gone: Vec<u64>) {
    with(|trace| {
        trace.write(&Traced::Look {
            after,
            steps,
            came,
            gone,
        });
    });
}

/// Writes that fusion runs operations that make and free these tensors.
pub(super) fn ran(made: Vec<Made>, freed: Vec<u64>) {
    with(|trace| {
        let numbers = made.iter().map(|made| made.id).collect();
        // Shapes of the others are in the trace already, and blocks are frequent.
        let inner = made.into_iter().filter(|made| !trace.is_told(made.id)).collect();
        trace.write(&Traced::Ran {
            made: numbers,
            freed,
            inner,
        });
    });
}

/// Writes a module of the model, or a parameter of one.
pub(super) fn module(path: &[String], parent: &str) {
    with(|trace| {
        trace.write(&Traced::Module {
            path: path.join("."),
            parent: parent.to_owned(),
        });
    });
}

/// Writes that a tensor is a parameter or buffer, or a parameter's gradient.
pub(super) fn belongs(tensor: u64, path: &[String], learnable: bool, gradient: bool) {
    with(|trace| {
        trace.write(&Traced::Belongs {
            tensor,
            path: path.join("."),
            learnable,
            gradient,
        });
    });
}

/// Reads the number of a piece of memory from its debug output: `… ManagedMemoryId { value: 12 } …`.
#[cfg(feature = "burn-0_21")]
pub(super) fn memory_number(shown: &str) -> Option<u64> {
    // cubecl 0.10 gives this number in no other way.
    let (_, rest) = shown.split_once("ManagedMemoryId { value: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Writes the functions at all new addresses, and flushes the file.
pub(super) fn flush() {
    with(|trace| {
        for address in std::mem::take(&mut trace.unnamed) {
            let mut symbols = Vec::new();
            // The address is that of the instruction after the call, so look up the byte before it.
            backtrace::resolve(address.saturating_sub(1) as *mut std::ffi::c_void, |symbol| {
                symbols.push(SourceSymbol {
                    function: symbol.name().map(|name| format!("{name:#}")).unwrap_or_default(),
                    file: symbol.filename().map(|file| file.to_string_lossy().into_owned()),
                    line: symbol.lineno(),
                });
            });
            trace.write(&Traced::Address { address, symbols });
            trace.named.insert(address);
        }
        let _ = trace.file.flush();
    });
}
