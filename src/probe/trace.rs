//! The trace: a file of what was seen, operation by operation and launch by launch, for explanations.

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
use super::timeline::Moment;
use crate::protocol::{Frame, Held, Made, Symbol, Traced};

/// Frames of a call that are kept at most.
const DEEPEST: usize = 256;

struct Trace {
    file: BufWriter<File>,
    /// The line that is being written.
    line: String,
    stacks: HashMap<Stack, u32, Numbers>,
    kernels: HashMap<String, u32>,
    /// The kernel of the last sample.
    kernel: Option<(String, u32)>,
    /// Whether an operation was told of a tensor, by the tensor's number: numbers are handed out one after the other.
    told: Vec<bool>,
    /// Addresses of which the trace does not say yet what they are.
    unnamed: std::collections::BTreeSet<u64>,
    named: std::collections::BTreeSet<u64>,
}

/// A call's frames, each as its address and where its stack is.
#[derive(Default, PartialEq, Eq)]
struct Stack {
    /// Made of all frames as they are taken: users may build this crate unoptimized, and hashing them once more is slow there.
    hash: u64,
    frames: Vec<u64>,
}

impl Stack {
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

impl Hash for Stack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

static TRACE: OnceLock<Mutex<Trace>> = OnceLock::new();
static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static FORESEES: AtomicBool = AtomicBool::new(false);
static IN_STEP: AtomicBool = AtomicBool::new(false);

/// Opens the file; nothing is traced before. Only where it may be foreseen what fusion does is it not always watched.
pub(super) fn open(path: &Path, foresees: bool) -> std::io::Result<()> {
    FORESEES.store(foresees, Relaxed);
    let file = BufWriter::with_capacity(1 << 16, File::create(path)?);
    let trace = Trace {
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

/// The first line. `blocks`: whether each block of operations is told of as it begins.
pub(super) fn start(alignment: u64, blocks: bool) {
    with(|trace| {
        trace.write(&Traced::Start {
            home: concat!(env!("CARGO_MANIFEST_DIR"), "/src").to_owned(),
            alignment,
            blocks,
        });
    });
}

/// A step was completed.
pub(super) fn step_done() {
    STEPS.fetch_add(1, Relaxed);
}

/// Whether anything is traced.
pub(super) fn is_on() -> bool {
    TRACE.get().is_some()
}

fn with(act: impl FnOnce(&mut Trace)) {
    if let Some(trace) = TRACE.get() {
        act(&mut trace.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Trace {
    /// A failure to write is seen by the reader as a missing end.
    fn write(&mut self, what: &Traced) {
        self.line.clear();
        let _ = line::write(what, &mut self.line);
        self.line.push('\n');
        let _ = self.file.write_all(self.line.as_bytes());
    }

    fn stack(&mut self, stack: Stack) -> u32 {
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

    /// A kernel's number: most samples come in pairs, before a launch and after it.
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

    /// An operation was told of a tensor.
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

/// How many steps were completed.
pub(super) fn steps() -> u32 {
    STEPS.load(Relaxed)
}

/// How many operations were asked for.
pub(super) fn operations() -> u64 {
    OPERATIONS.load(Relaxed)
}

/// Whether what fusion does next may be foreseen: not before the first step, where what is asked for does not recur.
#[cfg(feature = "burn-0_21")]
pub(super) fn may_foresee() -> bool {
    FORESEES.load(Relaxed) && IN_STEP.load(Relaxed)
}

/// How many kernels were launched.
pub(super) fn launches() -> u64 {
    LAUNCHES.load(Relaxed)
}

/// The user's thread asked for an operation.
pub(super) fn operation(name: &str, inputs: Vec<u64>, outputs: Vec<Made>) {
    let mut frames = Stack::default();
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

/// The user's thread goes on to a phase.
pub(super) fn marked(moment: Moment) {
    IN_STEP.store(moment.step.is_some(), Relaxed);
    with(|trace| {
        trace.write(&Traced::Marked {
            step: moment.step,
            phase: moment.phase,
        });
    });
}

/// The device reached a phase.
pub(super) fn reached(moment: Moment) {
    with(|trace| {
        trace.write(&Traced::Reached {
            step: moment.step,
            phase: moment.phase,
        });
    });
}

/// Memory was looked at, or was so much for an instant.
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

/// A kernel is launched.
pub(super) fn launching() {
    LAUNCHES.fetch_add(1, Relaxed);
}

/// A piece of memory was handed out.
pub(super) fn allocated(memory: u64, bytes: u64) {
    with(|trace| trace.write(&Traced::Allocated { memory, bytes }));
}

/// Tensors got memory, or gave it back.
pub(super) fn look(after: u64, steps: u32, came: Vec<Held>, gone: Vec<u64>) {
    with(|trace| {
        trace.write(&Traced::Look {
            after,
            steps,
            came,
            gone,
        });
    });
}

/// Fusion runs operations: these tensors are made, and those freed.
pub(super) fn ran(made: Vec<Made>, freed: Vec<u64>) {
    with(|trace| {
        let numbers = made.iter().map(|made| made.id).collect();
        let inner = made.into_iter().filter(|made| !trace.is_told(made.id)).collect();
        trace.write(&Traced::Ran {
            made: numbers,
            freed,
            inner,
        });
    });
}

/// A module of the model.
pub(super) fn module(path: &[String], parent: &str) {
    with(|trace| {
        trace.write(&Traced::Module {
            path: path.join("."),
            parent: parent.to_owned(),
        });
    });
}

/// A parameter, or its gradient.
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

/// The number in what a piece of memory shows of itself: `… ManagedMemoryId { value: 12 } …`.
#[cfg(feature = "burn-0_21")]
pub(super) fn memory_number(shown: &str) -> Option<u64> {
    let (_, rest) = shown.split_once("ManagedMemoryId { value: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Says what each address is, and that this was everything so far.
pub(super) fn flush() {
    with(|trace| {
        for address in std::mem::take(&mut trace.unnamed) {
            let mut symbols = Vec::new();
            // The address is that of the next instruction.
            backtrace::resolve(address.saturating_sub(1) as *mut std::ffi::c_void, |symbol| {
                symbols.push(Symbol {
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
