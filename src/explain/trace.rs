//! Reads a trace: the operations that the program asked for, and what became of them on the device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{blocks, links};
use crate::protocol::{Frame, Held, Made, Phase, Symbol, Traced};

/// A step and a phase; before the first step there is no step.
pub(super) type At = (Option<u32>, Phase);

/// What a program asked for, in its own order.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<Made>,
    pub(super) stack: u32,
    /// The stack of the forward call whose gradient it computes, where it is known.
    pub(super) forward: Option<u32>,
    pub(super) at: At,
}

/// What the device did, in its own order.
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
        came: Vec<Held>,
        gone: Vec<u64>,
    },
    Ran {
        made: Vec<u64>,
        freed: Vec<u64>,
    },
    Reached(At),
}

/// A parameter, or a gradient of one.
#[derive(Debug, Clone)]
pub(super) struct Belongs {
    pub(super) path: String,
    pub(super) learnable: bool,
    pub(super) gradient: bool,
}

/// A trace, whole or cut short.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) home: String,
    pub(super) alignment: u64,
    /// Whether each block of operations is told of as it begins.
    pub(super) blocks: bool,
    pub(super) operations: Vec<Operation>,
    pub(super) happened: Vec<Happened>,
    /// Tensors that Burn makes on its way to what an operation makes.
    pub(super) inner: Vec<Made>,
    pub(super) stacks: HashMap<u32, Vec<Frame>>,
    pub(super) addresses: HashMap<u64, Vec<Symbol>>,
    pub(super) kernels: BTreeMap<u32, String>,
    /// Every module and parameter, with the type that it is a field of, in their order.
    pub(super) modules: Vec<(String, String)>,
    pub(super) belongs: HashMap<u64, Belongs>,
    /// A last line was cut short, or lines make no sense.
    pub(super) is_damaged: bool,
}

impl Trace {
    /// Reads a file line by line: a model that died left what it had written until then.
    pub(super) fn read(path: &Path) -> std::io::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 20, std::fs::File::open(path)?);
        let mut trace = Self::default();
        let mut at: At = (None, Phase::Context);
        let mut known = HashSet::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                trace.told_by_block();
                if trace.blocks {
                    links::link(&mut trace);
                }
                return Ok(trace);
            }
            match serde_json::from_slice(&line) {
                Ok(traced) => trace.line(traced, &mut at, &mut known),
                Err(_) => trace.is_damaged = true,
            }
        }
    }

    /// The elements' bytes of every tensor.
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
                if known.insert(path.clone()) {
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

    /// The frames of a stack, the innermost first: several of one address where functions were inlined.
    pub(super) fn frames_of(&self, stack: u32) -> impl Iterator<Item = (&Frame, &Symbol)> {
        let frames = self.stacks.get(&stack).map_or(&[][..], Vec::as_slice);
        frames.iter().flat_map(|frame| {
            let symbols = self.addresses.get(&frame.address).map_or(&[][..], Vec::as_slice);
            symbols.iter().map(move |symbol| (frame, symbol))
        })
    }
}
