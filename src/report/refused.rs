//! What is said of a tensor that Burn's allocator refuses on every GPU of this size, however empty: the rule, the tensor, and
//! where its line is found.

use super::human::text::named;
use super::markdown::accept::is_plain;
use super::{Mode, Oom, RefusedTensor, Run};
use crate::bytes::Bytes;

/// Bytes in both forms: `10.16 GiB (10909384704 B)`.
fn exact(bytes: Bytes) -> String {
    format!("{bytes} ({} B)", bytes.0)
}

/// The rule and the tensor, a line a fact. Nothing where the GPU was full, or too small for a page.
pub(super) fn facts(run: &Run, oom: &Oom) -> Vec<String> {
    let (Some(tensor), Some(requested)) = (&oom.tensor, oom.requested) else {
        return Vec::new();
    };
    let mut facts = vec![
        format!(
            "Burn {} gives one tensor at most a quarter of the GPU, {}; this tensor is {}",
            named(&run.burn),
            exact(tensor.largest),
            exact(requested)
        ),
        format!(
            "no free memory changes that: only a GPU of at least {} holds such a tensor",
            Bytes(requested.0.saturating_mul(4))
        ),
    ];
    facts.extend(described(tensor));
    facts
}

/// The tensor by its shape, operation, module and line, as far as they are known.
fn described(tensor: &RefusedTensor) -> Option<String> {
    let operation = tensor.operation.as_ref()?;
    let shape: Vec<_> = tensor.shape.iter().map(u64::to_string).collect();
    let mut text = format!(
        "the tensor is [{}] {}, made by {}",
        shape.join(", "),
        named(tensor.dtype.as_deref().unwrap_or_default()),
        named(operation)
    );
    if let Some(module) = &tensor.module {
        text.push_str(&format!(" in {}", named(module)));
    }
    if let (Some(file), Some(line)) = (&tensor.file, tensor.line) {
        text.push_str(&format!(" at {}:{line}", named(file)));
    }
    Some(text)
}

/// What to do, and how to find the tensor where this run does not know it: an estimate sees no source lines.
pub(super) fn advice(run: &Run, oom: &Oom) -> Option<String> {
    let tensor = oom.tensor.as_ref()?;
    let smaller = "make the tensor smaller or split it, by a smaller batch for example";
    if tensor.operation.is_some() {
        return Some(smaller.to_owned());
    }
    // A name that a shell would take apart is for no command that is copied.
    if !is_plain(&format!("{}/{}", run.package, run.model)) || !is_plain(&run.gpu.id) {
        return Some(format!(
            "{smaller}; `cargo vram explain` of this model shows its shape and its line"
        ));
    }
    let same = match run.what_if.is_none() {
        true => "",
        false => " with the what-if options of this run",
    };
    Some(format!(
        "{smaller}; `{}`{same} shows its shape and its line",
        explain_command(run)
    ))
}

/// The command that explains the same run.
fn explain_command(run: &Run) -> String {
    let mut command = format!("cargo vram explain {}/{}", named(&run.package), named(&run.model));
    match run.mode {
        Mode::Estimate => command.push_str(&format!(" --gpu {}", named(&run.gpu.id))),
        Mode::Measure => command.push_str(" --measure"),
    }
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
        run.inputs = [("batch_size".to_owned(), 512), ("image size".to_owned(), 1024)].into();
        let oom = Oom {
            pass: Pass::Cold,
            card: None,
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
                    "Burn {} gives one tensor at most a quarter of the GPU, 5.51 GiB (5914755072 B); this tensor is 10.16 GiB \
                     (10909384704 B)",
                    run.burn
                ),
                "no free memory changes that: only a GPU of at least 40.64 GiB holds such a tensor".to_owned(),
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
            dtype: Some("f32".to_owned()),
            operation: Some("conv2d\u{1b}[2J".to_owned()),
            module: Some("layer1.0.conv1".to_owned()),
            file: Some("src/resnet.rs".to_owned()),
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
