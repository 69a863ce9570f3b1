//! Reads a trace: the operations that the program asked for, and what happened on the device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{blocks, links};
use crate::protocol::{Frame, HeldTensor, Made, Phase, SourceSymbol, Traced};

/// A step and a phase. Before the first step, the step is `None`.
pub(super) type At = (Option<u32>, Phase);

/// An operation that the program asked for. A trace has them in the program's order.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<Made>,
    pub(super) stack: u32,
    /// The stack of the forward call whose gradient the operation computes, if known.
    pub(super) forward: Option<u32>,
    pub(super) at: At,
}

/// Something that happened on the device. A trace has them in the device's order.
#[derive(Debug)]
pub(super) enum Happened {
    Sample {
        time: u64,
        live: u64,
        kernel: Option<u32>,
    },
    Allocated {
        memory: u64,
        bytes: u64,
    },
    Look {
        steps: u32,
        after: u64,
        came: Vec<HeldTensor>,
        gone: Vec<u64>,
    },
    Ran {
        made: Vec<u64>,
        freed: Vec<u64>,
    },
    Reached(At),
}

/// Says that a tensor is a parameter, or the gradient of one.
#[derive(Debug, Clone)]
pub(super) struct Belongs {
    pub(super) path: String,
    pub(super) learnable: bool,
    pub(super) gradient: bool,
}

/// A trace, complete or cut short.
#[derive(Debug, Default)]
pub(super) struct ReadTrace {
    pub(super) home: String,
    pub(super) alignment: u64,
    /// Whether each block of operations is reported when it begins.
    pub(super) blocks: bool,
    pub(super) operations: Vec<Operation>,
    pub(super) happened: Vec<Happened>,
    /// Tensors that Burn makes on the way to the result of an operation.
    pub(super) inner: Vec<Made>,
    pub(super) stacks: HashMap<u32, Vec<Frame>>,
    pub(super) addresses: HashMap<u64, Vec<SourceSymbol>>,
    pub(super) kernels: BTreeMap<u32, String>,
    /// Every module and parameter with the type of its parent module, in order.
    pub(super) modules: Vec<(String, String)>,
    pub(super) belongs: HashMap<u64, Belongs>,
    /// Whether the last line is cut short or lines are invalid.
    pub(super) is_damaged: bool,
}

impl ReadTrace {
    /// Reads a file line by line. A model that died leaves what it had written until then.
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 20, std::fs::File::open(path)?);
        let mut trace = Self::default();
        let mut at: At = (None, Phase::Context);
        let mut known = HashSet::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            // Bytes instead of `lines()`: a last line that is cut within a character must count as damaged.
            // `lines()` would return an error.
            if reader.read_until(b'\n', &mut line)? == 0 {
                // Both need the whole trace: the sizes of tensors that later lines name, and all stacks.
                trace.told_by_block();
                if trace.blocks {
                    links::link(&mut trace);
                }
                return Ok(trace);
            }
            match serde_json::from_slice(&line) {
                Ok(traced) => trace.line(traced, &mut at, &mut known),
                // A model that died leaves a cut line. What stands before it still explains the run.
                Err(_) => trace.is_damaged = true,
            }
        }
    }

    /// Returns the bytes of each tensor's elements.
    pub(super) fn logical(&self) -> HashMap<u64, u64> {
        let made = self.operations.iter().flat_map(|operation| &operation.outputs);
        made.chain(&self.inner).map(|made| (made.id, made.bytes)).collect()
    }

    fn told_by_block(&mut self) {
        if self.blocks {
            let happened = std::mem::take(&mut self.happened);
            self.happened = blocks::by_block(happened, &self.logical());
        }
    }

    fn line(&mut self, traced: Traced, at: &mut At, known: &mut HashSet<String>) {
        match traced {
            Traced::Start {
                home,
                alignment,
                blocks,
            } => {
                self.home = home;
                self.alignment = alignment;
                self.blocks = blocks;
            }
            Traced::Operation {
                name,
                inputs,
                outputs,
                stack,
            } => self.operations.push(Operation {
                name,
                inputs,
                outputs,
                stack,
                forward: None,
                at: *at,
            }),
            Traced::Stack { stack, frames } => {
                self.stacks.insert(stack, frames);
            }
            Traced::Address { address, symbols } => {
                self.addresses.insert(address, symbols);
            }
            Traced::Marked { step, phase } => *at = (step, phase),
            Traced::Reached { step, phase } => self.happened.push(Happened::Reached((step, phase))),
            Traced::Kernel { kernel, name } => {
                self.kernels.insert(kernel, name);
            }
            Traced::Sample { time, live, kernel } => self.happened.push(Happened::Sample { time, live, kernel }),
            Traced::Allocated { memory, bytes } => self.happened.push(Happened::Allocated { memory, bytes }),
            Traced::Look {
                after,
                steps,
                came,
                gone,
            } => self.happened.push(Happened::Look {
                after,
                steps,
                came,
                gone,
            }),
            Traced::Ran { made, freed, inner } => {
                self.happened.push(Happened::Ran { made, freed });
                self.inner.extend(inner);
            }
            Traced::Module { path, parent } => {
                // A hand-written loop may report its model in each step.
                if known.insert(path.clone()) {
                    // Burn writes `Struct:Linear` for a module of a user's type.
                    let parent = parent.rsplit(':').next().unwrap_or_default().to_owned();
                    self.modules.push((path, parent));
                }
            }
            Traced::Belongs {
                tensor,
                path,
                learnable,
                gradient,
            } => {
                self.belongs.insert(
                    tensor,
                    Belongs {
                        path,
                        learnable,
                        gradient,
                    },
                );
            }
        }
    }

    /// Returns the frames of a stack, the innermost first. An address has several symbols if functions were inlined.
    pub(super) fn frames_of(&self, stack: u32) -> impl Iterator<Item = (&Frame, &SourceSymbol)> {
        let frames = self.stacks.get(&stack).map_or(&[][..], Vec::as_slice);
        frames.iter().flat_map(|frame| {
            let symbols = self.addresses.get(&frame.address).map_or(&[][..], Vec::as_slice);
            symbols.iter().map(move |symbol| (frame, symbol))
        })
    }
}

/// Burn's name of an operation without the kind of tensor: `float_add` gives `add`.
pub(super) fn bare(name: &str) -> &str {
    let kinds = ["float_", "int_", "bool_", "q_"];
    kinds.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
}
