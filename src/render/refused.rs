//! Texts about an allocation that failed.
//!
//! Burn's allocator also refuses a tensor that is too large for any GPU of this size. Then the texts name the rule and
//! the tensor, and how to find its source line.

use super::commands::is_plain;
use crate::bytes::Bytes;
use crate::report::words::kernel_name;
use crate::report::{Mode, Oom, RefusedTensor, Run};
use crate::untrusted::words;

/// Describes a failed allocation, one fact per line: what was requested, what was free and what the process held.
pub(in crate::render) fn refusal(run: &Run, oom: &Oom) -> Vec<String> {
    let asked = match (oom.requested, &oom.function) {
        (Some(requested), _) => format!("tried to allocate {requested}"),
        (None, Some(function)) => format!("{} failed", function),
        (None, None) => "an allocation failed".to_owned(),
    };
    let Oom {
        reserved, available, ..
    } = oom;
    let held = match oom.live {
        Some(live) => format!(
            "{reserved}: {live} live, {} reserved but unallocated",
            reserved.saturating_sub(live)
        ),
        None => reserved.to_string(),
    };
    let mut lines = vec![
        format!("{asked}; {available} of {} are free", run.gpu.available_bytes),
        format!("the process holds {held}"),
    ];
    lines.extend(facts(run, oom));
    if let Some(kernel) = &oom.kernel {
        lines.push(format!("at kernel {}", words(kernel_name(kernel.raw()))));
    }
    lines
}

/// Formats a size in both forms: `10.16 GiB (10909384704 B)`.
fn exact(bytes: Bytes) -> String {
    format!("{bytes} ({} B)", bytes.0)
}

/// Describes the rule and the tensor, one fact per line.
///
/// Returns nothing if the tensor itself was not too large: the GPU was full, or too small for a page.
pub(super) fn facts(run: &Run, oom: &Oom) -> Vec<String> {
    // If the GPU was only full, `tensor` is absent: then nothing is said of quarters.
    let (Some(tensor), Some(requested)) = (&oom.tensor, oom.requested) else {
        return Vec::new();
    };
    let mut facts = vec![
        format!(
            "Burn {} allocates at most {} for one tensor, a quarter of the GPU's memory; this tensor needs {}",
            run.burn,
            exact(tensor.largest),
            exact(requested)
        ),
        format!(
            "freeing memory does not help: such a tensor needs a GPU with at least {}",
            // A quarter must hold the tensor. Saturating, because a report
            // from elsewhere may have any number.
            Bytes(requested.0.saturating_mul(4))
        ),
    ];
    facts.extend(described(tensor));
    facts
}

/// Describes the tensor by its shape, dtype and operation, and by its module and line if they are known.
fn described(tensor: &RefusedTensor) -> Option<String> {
    // Only an explanation knows the operation.
    let operation = tensor.operation.as_ref()?;
    let shape: Vec<_> = tensor.shape.iter().map(u64::to_string).collect();
    let mut text = format!(
        "the tensor is [{}] {}, made by {}",
        shape.join(", "),
        tensor.dtype.clone().unwrap_or_default(),
        operation
    );
    if let Some(module) = &tensor.module {
        text.push_str(&format!(" in {}", module));
    }
    if let (Some(file), Some(line)) = (&tensor.file, tensor.line) {
        text.push_str(&format!(" at {}:{line}", file));
    }
    Some(text)
}

/// Returns what to do, and how to find the tensor if this run does not know it: an estimate has no source lines.
pub(super) fn advice(run: &Run, oom: &Oom) -> Option<String> {
    let tensor = oom.tensor.as_ref()?;
    let smaller = "make the tensor smaller or split it, for example with a smaller batch";
    if tensor.operation.is_some() {
        return Some(smaller.to_owned());
    }
    // Users copy the command into a shell, so it must not contain a name that a shell could interpret.
    if !is_plain(&format!("{}/{}", run.package, run.model)) || !is_plain(&run.gpu.id) {
        return Some(format!(
            "{smaller}; run `cargo vram explain` for this model to see the shape and the source line of the tensor"
        ));
    }
    let same = match run.what_if.is_none() {
        true => "",
        false => " with the what-if options of this run",
    };
    Some(format!(
        "{smaller}; run `{}`{same} to see the shape and the source line of the tensor",
        explain_command(run)
    ))
}

/// Returns the command that explains the same run, without its what-if options.
fn explain_command(run: &Run) -> String {
    let mut command = format!("cargo vram explain {}/{}", run.package, run.model);
    match run.mode {
        Mode::Estimate => command.push_str(&format!(" --gpu {}", run.gpu.id)),
        Mode::Measure => command.push_str(" --measure"),
    }
    // An input with a name that a shell could interpret is left out, as `image size` in the test below.
    for (name, value) in run.inputs.iter().filter(|(name, _)| is_plain(name)) {
        command.push_str(&format!(" --set {name}={value}"));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Pass, Phase, sample};

    /// The tensor of tracel-ai/burn#4005, on an L4.
    fn refused() -> (Run, Oom) {
        let mut run = sample::run("resnet18", "l4");
        run.inputs = [("batch_size".into(), 512), ("image size".into(), 1024)].into();
        let oom = Oom {
            pass: Pass::Cold,
            gpu_number: None,
            step: Some(0),
            phase: Some(Phase::Batch),
            kernel: None,
            requested: Some(Bytes(10_909_384_704)),
            function: None,
            reserved: Bytes(0),
            live: None,
            available: Bytes(23_422_042_112),
            tensor: Some(RefusedTensor {
                largest: Bytes(5_914_755_072),
                ..RefusedTensor::default()
            }),
        };
        (run, oom)
    }

    #[test]
    fn the_rule_and_the_tensor_are_named_to_the_byte() {
        let (run, oom) = refused();
        let facts = facts(&run, &oom);
        assert_eq!(
            facts,
            [
                format!(
                    "Burn {} allocates at most 5.51 GiB (5914755072 B) for one tensor, a quarter of the GPU's memory; \
                     this tensor needs 10.16 GiB (10909384704 B)",
                    run.burn
                ),
                "freeing memory does not help: such a tensor needs a GPU with at least 40.64 GiB".to_owned(),
            ]
        );
    }

    #[test]
    fn an_estimate_says_which_command_shows_the_line() {
        let (run, oom) = refused();
        let advice = advice(&run, &oom).unwrap();
        let command = format!(
            "`cargo vram explain {}/resnet18 --gpu l4 --set batch_size=512`",
            run.package
        );
        assert!(advice.contains(&command), "{advice}");
        let measured = Run {
            mode: Mode::Measure,
            ..run
        };
        let advice = super::advice(&measured, &oom).unwrap();
        assert!(advice.contains("/resnet18 --measure --set"), "{advice}");
    }

    #[test]
    fn an_explanation_names_the_tensor_and_asks_for_no_other_command() {
        let (run, mut oom) = refused();
        oom.tensor = Some(RefusedTensor {
            largest: Bytes(5_914_755_072),
            shape: vec![444, 64, 310, 310],
            dtype: Some("f32".into()),
            operation: Some("conv2d\u{1b}[2J".into()),
            module: Some("layer1.0.conv1".into()),
            file: Some("src/resnet.rs".into()),
            line: Some(48),
        });
        let last = facts(&run, &oom).pop().unwrap();
        assert!(
            last.starts_with("the tensor is [444, 64, 310, 310] f32, made by conv2d"),
            "{last}"
        );
        assert!(last.ends_with(" in layer1.0.conv1 at src/resnet.rs:48"), "{last}");
        assert!(!last.contains('\u{1b}'), "{last}");
        assert!(!advice(&run, &oom).unwrap().contains("explain"));
    }

    #[test]
    fn of_a_full_gpu_nothing_is_said_of_quarters() {
        let (run, mut oom) = refused();
        oom.tensor = None;
        assert_eq!((facts(&run, &oom), advice(&run, &oom)), (Vec::new(), None));
    }
}
