//! Finds the tensor that Burn's allocator refused because it is larger than any page.

use std::collections::{HashMap, HashSet};

use super::calls::Calls;
use super::categories::CategoryOrigin;
use super::sources::TensorSources;
use super::trace::{Happened, ReadTrace, bare};
use crate::protocol::Made;
use crate::report::Run;

/// The smallest pitch of a row in bytes (cubecl-runtime 0.10, `optimal_align`).
const LEAST_PITCH: u64 = 16;

/// Adds to the refused tensor what the trace shows: shape, operation, module and line.
pub(super) fn name(
    run: &mut Run,
    trace: &ReadTrace,
    origins: &HashMap<u64, CategoryOrigin<'_>>,
    places: &TensorSources,
    calls: &mut Calls<'_>,
) {
    let Some(oom) = &mut run.oom else { return };
    let (Some(tensor), Some(requested)) = (&mut oom.tensor, oom.requested) else {
        return;
    };
    // Nothing of this size is in the trace. A guess would send the user to a wrong line.
    let Some((id, origin)) = find(trace, origins, requested.0) else {
        return;
    };
    tensor.shape.clone_from(&origin.made.shape);
    tensor.dtype = Some(origin.made.dtype.clone().into());
    tensor.operation = Some(bare(&origin.operation.name).into());
    tensor.module = places
        .modules
        .get(&id)
        .filter(|(path, _)| !path.is_empty())
        .map(|(path, _)| path.as_str().into());
    if let Some(source) = calls.of(origin.operation).source {
        tensor.line = Some(source.line);
        tensor.file = Some(source.file);
    }
}

/// Finds the first tensor of this size that was to be made and never got memory. If fusion reported what it was about
/// to run, a tensor of that run comes first: not every tensor that fusion fuses gets memory.
fn find<'a, 'b>(
    trace: &'a ReadTrace,
    origins: &'b HashMap<u64, CategoryOrigin<'a>>,
    requested: u64,
) -> Option<(u64, &'b CategoryOrigin<'a>)> {
    // Several tensors may have the refused size. Those that got memory were not refused.
    let had_memory: HashSet<u64> = trace
        .happened
        .iter()
        .filter_map(|happened| match happened {
            Happened::Look { came, .. } => Some(came),
            _ => None,
        })
        .flatten()
        .map(|held| held.tensor)
        .collect();
    let fits = |id: u64| {
        origins
            .get(&id)
            .filter(|origin| !had_memory.contains(&id) && takes(origin.made, requested, trace.alignment))
            .map(|origin| (id, origin))
    };
    let last = trace.happened.iter().rev().find_map(|happened| match happened {
        Happened::Ran { made, .. } => Some(made),
        _ => None,
    });
    let running = last.into_iter().flatten().find_map(|id| fits(*id));
    running.or_else(|| {
        let made = trace.operations.iter().flat_map(|operation| &operation.outputs);
        made.map(|made| made.id).find_map(fits)
    })
}

/// Whether a tensor takes this many bytes of the allocator: its elements, or its rows each padded to a pitch, rounded
/// up (cubecl-runtime 0.10, `PitchedMemoryLayoutPolicy`).
fn takes(made: &Made, requested: u64, alignment: u64) -> bool {
    // A damaged trace may lack its first line, which has the alignment.
    let alignment = alignment.max(1);
    // Burn stores a tensor contiguously or with padded rows, and the trace does not say which.
    if made.bytes.next_multiple_of(alignment) == requested {
        return true;
    }
    let elements: u64 = made.shape.iter().product();
    let width = made.shape.last().copied().unwrap_or(1);
    // `optimal_align` does not pad rows of one element. Elements of less than a byte have no row length in
    // bytes.
    if elements == 0 || width <= 1 || made.bytes < elements {
        return false;
    }
    let row = width * (made.bytes / elements);
    let pitch = row.next_power_of_two().clamp(LEAST_PITCH.min(alignment), alignment);
    let padded = row.next_multiple_of(pitch).saturating_mul(elements / width);
    padded.checked_next_multiple_of(alignment) == Some(requested)
}

#[cfg(test)]
mod tests {
    use super::super::categories::origins;
    use super::super::layers::Modules;
    use super::super::trace::Operation;
    use super::*;
    use crate::bytes::Bytes;
    use crate::protocol::{Frame, HeldTensor, Phase, SourceSymbol};
    use crate::report::Foreign;
    use crate::report::{Oom, Pass, RefusedTensor, sample};

    const REFUSED: u64 = 10_909_384_704;

    fn made(id: u64, shape: &[u64]) -> Made {
        Made {
            id,
            shape: shape.to_vec(),
            dtype: "f32".to_owned(),
            bytes: shape.iter().product::<u64>() * 4,
        }
    }

    fn operation(name: &str, stack: u32, output: Made) -> Operation {
        Operation {
            name: name.to_owned(),
            inputs: Vec::new(),
            outputs: vec![output],
            stack,
            forward: None,
            at: (Some(0), Phase::Forward),
        }
    }

    /// Returns a trace of three operations at lines 1 to 3 that make tensors of the refused size, and one that makes a
    /// small tensor.
    fn trace() -> ReadTrace {
        let large = [1, 1, 2_663_424, 1024];
        let mut trace = ReadTrace {
            home: "/cargo-vram/src".to_owned(),
            alignment: 512,
            operations: vec![
                operation("float_zeros", 1, made(1, &[16, 16])),
                operation("float_conv2d", 1, made(2, &large)),
                operation("float_add", 2, made(3, &large)),
                operation("float_relu", 3, made(4, &large)),
            ],
            ..ReadTrace::default()
        };
        for stack in 1..=3 {
            let frame = Frame {
                address: u64::from(stack),
                stack: 0,
            };
            trace.stacks.insert(stack, vec![frame]);
            let symbol = SourceSymbol {
                function: "own::forward".to_owned(),
                file: Some("/root/src/model.rs".to_owned()),
                line: Some(stack),
            };
            trace.addresses.insert(u64::from(stack), vec![symbol]);
        }
        trace
    }

    fn named(trace: &ReadTrace, requested: u64) -> RefusedTensor {
        let mut run = sample::run("resnet18", "l4");
        run.oom = Some(Oom {
            pass: Pass::Warm,
            gpu_number: None,
            step: Some(0),
            phase: Some(Phase::Forward),
            kernel: None,
            requested: Some(Bytes(requested)),
            function: None,
            reserved: Bytes(0),
            live: None,
            available: Bytes(22 << 30),
            tensor: Some(RefusedTensor {
                largest: Bytes(5_914_755_072),
                ..RefusedTensor::default()
            }),
        });
        let origins = origins(trace);
        let modules = Modules::from_trace(trace);
        let mut calls = Calls::new(trace, std::path::Path::new("/root"));
        let places = TensorSources::new(trace, &modules, &[], &mut calls, &origins, &HashMap::new());
        name(&mut run, trace, &origins, &places, &mut calls);
        run.oom.unwrap().tensor.unwrap()
    }

    #[test]
    fn without_fusion_it_is_the_first_tensor_of_that_size() {
        let tensor = named(&trace(), REFUSED);
        assert_eq!(tensor.shape, [1, 1, 2_663_424, 1024]);
        assert_eq!(
            (
                tensor.operation.as_ref().map(Foreign::raw),
                tensor.dtype.as_ref().map(Foreign::raw)
            ),
            (Some("conv2d"), Some("f32"))
        );
        assert_eq!(
            (tensor.file.as_ref().map(Foreign::raw), tensor.line),
            (Some("src/model.rs"), Some(1))
        );
        assert_eq!(tensor.largest, Bytes(5_914_755_072));
    }

    #[test]
    fn with_fusion_it_is_of_what_was_about_to_run() {
        let mut trace = trace();
        // The tensors of the convolution and the sum are fused away: only the tensor of the last operation gets memory.
        trace.happened.push(Happened::Ran {
            made: vec![1],
            freed: Vec::new(),
        });
        trace.happened.push(Happened::Ran {
            made: vec![4],
            freed: Vec::new(),
        });
        let tensor = named(&trace, REFUSED);
        assert_eq!(
            (tensor.operation.as_ref().map(Foreign::raw), tensor.line),
            (Some("relu"), Some(3))
        );
    }

    #[test]
    fn a_tensor_that_had_memory_was_not_refused() {
        let mut trace = trace();
        trace.happened.push(Happened::Look {
            steps: 0,
            after: 2,
            came: vec![HeldTensor { tensor: 2, memory: 1 }],
            gone: Vec::new(),
        });
        let tensor = named(&trace, REFUSED);
        assert_eq!(
            (tensor.operation.as_ref().map(Foreign::raw), tensor.line),
            (Some("add"), Some(2))
        );
    }

    #[test]
    fn where_no_tensor_has_that_size_nothing_is_made_up() {
        let tensor = named(&trace(), REFUSED + 512);
        assert_eq!((tensor.shape, tensor.operation, tensor.line), (Vec::new(), None, None));
    }

    #[test]
    fn padding_is_that_of_the_allocator() {
        // Rows of 3 floats take 16 bytes, as on a real GPU: 9,437,184 bytes become 12,582,912.
        assert!(takes(&made(1, &[512, 512, 3, 3]), 12_582_912, 512));
        assert!(takes(&made(1, &[512, 512, 3, 3]), 9_437_184, 512));
        // Rows of 224 floats take 1024 bytes.
        assert!(takes(&made(1, &[8, 3, 224, 224]), 8 * 3 * 224 * 1024, 512));
        assert!(takes(&made(1, &[10]), 512, 512));
        assert!(!takes(&made(1, &[10]), 1024, 512));
        assert!(!takes(&made(1, &[0, 3]), 512, 512));
    }
}
