//! `cargo vram explain`: known values of the zoo's models, sums that add up, and explanations of runs that failed.
//!
//! With Burn 0.22, two tests are skipped: its fusion cannot be switched off, and it has no backend traits.

use cargo_vram::bytes::Bytes;
use cargo_vram::explain::{Category, Certainty, Explanation, Layer, Leaking, SourceLocation};
use cargo_vram::report::{Mode, Pass, Phase};

use crate::common;
use crate::common::gpu::{builtin, gpu_folder};

/// Explains a model of the zoo.
fn explain(arguments: &[&str]) -> Explanation {
    explain_of("zoo", arguments)
}

/// The options that select a package.
fn selected(package: &str) -> Vec<&str> {
    match package {
        "zoo" => vec!["-p", package],
        package => vec!["--manifest-path", common::retained_loss(), "-p", package],
    }
}

fn explain_of(package: &str, arguments: &[&str]) -> Explanation {
    explained_and_shown(package, arguments).0
}

/// Explains a model; returns the explanation from its file and the printed text.
fn explained_and_shown(package: &str, arguments: &[&str]) -> (Explanation, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("explanation.json");
    let mut all = vec!["explain"];
    all.extend(arguments);
    all.extend(selected(package));
    all.extend(["--message-format", "json", "-o", file.to_str().unwrap()]);
    let output = common::output(&all);
    let json = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    common::is_valid("explanation", &json);
    let explanation = serde_json::from_str(&json).unwrap();
    (explanation, String::from_utf8(output.stdout).unwrap())
}

fn bytes(explanation: &Explanation, category: Category) -> Vec<u64> {
    let series = &explanation.timeline.categories;
    let found = series.iter().find(|series| series.category == category).unwrap();
    found.bytes.iter().map(|bytes| bytes.0).collect()
}

/// The first sample of a phase.
fn start_of(explanation: &Explanation, step: u32, phase: Phase) -> Option<usize> {
    let mut borders = explanation.timeline.borders.iter();
    let border = borders.find(|border| border.step == Some(step) && border.phase == phase)?;
    Some(border.sample as usize)
}

/// Asserts what holds for every explanation.
fn adds_up(explanation: &Explanation) {
    let timeline = &explanation.timeline;
    let name = &explanation.run.model;
    for sample in 0..timeline.live.len() {
        let parts: u64 = timeline.categories.iter().map(|series| series.bytes[sample].0).sum();
        assert_eq!(parts, timeline.live[sample].0, "{name}, sample {sample}");
        assert!(
            timeline.live[sample] <= timeline.reserved[sample],
            "{name}, sample {sample}"
        );
    }
    let unattributed = bytes(explanation, Category::Unattributed);
    let much = |sample: &usize| unattributed[*sample] * 100 > timeline.live[*sample].0;
    // Apart from the peak, more than 1 % may be unattributed in a few samples, in which it is unknown what was freed.
    let samples = 0..unattributed.len();
    assert!(samples.clone().filter(much).count() * 100 <= samples.len(), "{name}");
    assert!(
        !much(&(explanation.peak.sample as usize)),
        "{name}: {:?}",
        explanation.peak
    );
    let peak = &explanation.peak;
    assert_eq!(Some(peak.live), explanation.run.peaks.warm.live, "{name}");
    assert_eq!(timeline.live.iter().max(), Some(&peak.live));
    let of = |wanted: &dyn Fn(Category) -> bool| -> Bytes {
        let parts = peak.categories.iter().filter(|part| wanted(part.category));
        parts.map(|part| part.bytes).sum()
    };
    let outside = |category| matches!(category, Category::Context | Category::Modules);
    assert_eq!(of(&|_| true), peak.process, "{name}");
    assert_eq!(of(&|category| !outside(category)), peak.reserved, "{name}");
    assert_eq!(
        of(&|category| !outside(category) && category != Category::Fragmentation),
        peak.live,
        "{name}"
    );
}

#[test]
fn vgg16_is_the_source_table_to_the_byte() {
    let arguments = [
        "vgg16_inference",
        "--gpu",
        "h200",
        "--set",
        "batch_size=1",
        "--set",
        "image_size=1024",
        "--activations",
        "fused",
        "--layers",
        "--bytes",
    ];
    let (explanation, shown) = explained_and_shown("zoo", &arguments);
    let totals = &explanation.totals;
    assert_eq!(totals.parameters, 2_183_080_744);
    assert_eq!(totals.parameter_bytes, Bytes(2_183_080_744 * 4));
    assert_eq!(totals.feature_bytes, Bytes(1_275_105_184));
    assert_eq!(totals.batch_size, Some(1));
    // Feature memory in MiB, from the published table: 12 · 256 256 64 · 128 128 32 · 64 64 64 16 · …
    let mib = 1 << 20;
    let features: Vec<u64> = explanation.layers.iter().map(|layer| layer.feature_bytes.0).collect();
    let table = [
        12, 256, 256, 64, 128, 128, 32, 64, 64, 64, 16, 32, 32, 32, 8, 8, 8, 8, 2, 2,
    ];
    assert_eq!(&features[..20], table.map(|size| size * mib));
    assert_eq!(&features[20..], [16_384, 16_384, 4_000]);
    let parameters = |path: &str| {
        let layer = explanation.layers.iter().find(|layer| layer.path == path).unwrap();
        assert!(!layer.inferred);
        layer.parameters
    };
    assert_eq!(parameters("features.block1_conv1"), 1_792);
    assert_eq!(parameters("top.fc1"), 2_147_487_744);
    assert_eq!(parameters("top.fc2"), 16_781_312);
    assert_eq!(parameters("top.predictions"), 4_097_000);
    let without_top = shown.lines().find(|line| line.trim().starts_with("features ")).unwrap();
    assert!(without_top.contains(" 18 layers "), "{without_top}");
    assert!(without_top.contains(" 14,714,688 "), "{without_top}");
    let maps: u64 = table[1..19].iter().sum();
    assert!(
        without_top.trim().ends_with(&format!(" {}", maps * mib)),
        "{without_top}"
    );
    adds_up(&explanation);
}

#[test]
fn densenet201_is_the_source_table_to_the_byte() {
    let explanation = explain(&[
        "densenet201_inference",
        "--gpu",
        "l4",
        "--set",
        "batch_size=1",
        "--set",
        "image_size=1024",
    ]);
    let totals = &explanation.totals;
    assert_eq!(totals.parameters, 20_242_984);
    assert_eq!(totals.feature_bytes, Bytes(6_450_475_856));
    let begins: Vec<(&str, Vec<u64>)> = explanation.layers[..5]
        .iter()
        .map(|layer| (layer.kind.raw(), layer.output.clone()))
        .collect();
    let expected: [(&str, Vec<u64>); 5] = [
        ("input", vec![1, 3, 1024, 1024]),
        ("pad", vec![1, 3, 1030, 1030]),
        ("Conv2d", vec![1, 64, 512, 512]),
        ("BatchNorm", vec![1, 64, 512, 512]),
        ("Relu", vec![1, 64, 512, 512]),
    ];
    assert_eq!(begins, expected);
    assert_eq!(
        explanation.layers.iter().filter(|layer| layer.kind == "cat").count(),
        98
    );
    adds_up(&explanation);
}

#[test]
fn a_sequential_is_the_source_figures_to_the_byte() {
    let explanation = explain(&["sequential", "--gpu", "l4", "--activations", "in-place"]);
    let totals = &explanation.totals;
    assert_eq!((totals.parameters, totals.parameter_bytes), (112_576, Bytes(450_304)));
    assert_eq!(totals.feature_bytes - totals.input_bytes, Bytes(336_089_600));
    assert_eq!(totals.forward_backward_bytes, Bytes(672_179_200));
    adds_up(&explanation);
    // SGD: parameters and gradients.
    holds(&explanation, 2);
    if common::is_burn_0_22() {
        gradients_have_lines(&explanation);
    }
}

#[test]
fn mixed_precision_keeps_parameters_in_f32_and_makes_all_else_half() {
    let [half, mixed] = ["f16", "mixed-f16"].map(|dtype| explain(&["sequential", "--gpu", "l4", "--dtype", dtype]));
    let at_peak = |explanation: &Explanation, category| -> u64 {
        let mut parts = explanation.peak.categories.iter();
        parts.find(|part| part.category == category).unwrap().bytes.0
    };
    // 112,576 parameters of two bytes in f16. In mixed precision they have four bytes, and the two-byte copies that
    // each step works on count as activations.
    assert_eq!(at_peak(&half, Category::Parameter), 225_152);
    assert_eq!(at_peak(&mixed, Category::Parameter), 450_304);
    let copies = at_peak(&mixed, Category::Activation) - at_peak(&half, Category::Activation);
    assert_eq!(copies, 225_152);
    for same in [Category::Gradient, Category::ActivationGradient, Category::Input] {
        assert_eq!(at_peak(&half, same), at_peak(&mixed, same), "{same:?}");
    }
    let layers = |explanation: &Explanation| -> Vec<_> {
        let layers = explanation.layers.iter();
        let look = |layer: &Layer| {
            (
                layer.path.clone(),
                layer.parameters,
                layer.feature_bytes,
                layer.dtype.clone(),
            )
        };
        layers.map(look).collect()
    };
    assert_eq!(layers(&half), layers(&mixed));
    assert!(
        mixed
            .run
            .assumptions
            .iter()
            .any(|assumed| assumed.code() == "mixed-precision")
    );
    [half, mixed].iter().for_each(adds_up);
}

/// The model has batch norms, and its optimizer keeps two values per parameter.
#[test]
fn mixed_precision_keeps_what_the_optimizer_keeps_in_f32() {
    let model = ["resnet18", "--gpu", "l4", "--set", "batch_size=1"];
    let explanation = explain(&[&model[..], &["--dtype", "mixed-bf16"]].concat());
    let parameters = explanation.totals.learnable * 4;
    assert_eq!(parameters, 11_689_512 * 4);
    for (category, times) in [(Category::Parameter, 1), (Category::OptimizerState, 2)] {
        let of = explanation.tensors.iter().filter(|tensor| tensor.category == category);
        let kept: Vec<_> = of.filter(|tensor| tensor.step == Some(1)).collect();
        assert!(kept.iter().all(|tensor| tensor.dtype == "f32"), "{category:?}");
        let bytes: u64 = kept.iter().map(|tensor| tensor.logical.0).sum();
        assert_eq!(bytes, parameters * times, "{category:?}");
    }
    let made = explanation.tensors.iter().filter(|tensor| tensor.step == Some(1));
    let activations = made.filter(|tensor| tensor.category == Category::Activation && tensor.shape.len() == 4);
    let dtypes: std::collections::BTreeSet<_> = activations.map(|tensor| tensor.dtype.raw()).collect();
    assert!(dtypes.contains("bf16") && !dtypes.contains("f32"), "{dtypes:?}");
    adds_up(&explanation);
}

/// Asserts that parameters, gradients and optimizer state together take `times` the parameters' memory at some sample.
fn holds(explanation: &Explanation, times: u64) {
    let parameters = explanation.totals.learnable * 4;
    let wanted = [parameters, parameters, parameters * (times - 2)];
    let series = [Category::Parameter, Category::Gradient, Category::OptimizerState].map(|one| bytes(explanation, one));
    // Fusion may compute the last gradient only when the optimizer needs it.
    let from = start_of(explanation, 1, Phase::Forward).unwrap_or_else(|| {
        // Fusion may even run all of the forward phase in the backward phase.
        start_of(explanation, 1, Phase::Backward).unwrap_or(0)
    });
    let found = (from..series[0].len()).any(|sample| series.each_ref().map(|bytes| bytes[sample]) == wanted);
    let most = series.each_ref().map(|bytes| bytes[from..].iter().max().copied());
    assert!(found, "{wanted:?} at no sample; at most {most:?}");
}

#[test]
fn resnet18_names_its_layers_and_its_lines_add_up() {
    let explanation = explain(&["resnet18", "--gpu", "l4", "--set", "batch_size=1", "--lines"]);
    assert_eq!(explanation.totals.learnable, 11_689_512);
    assert_eq!(made_in(&explanation, 1, Category::OptimizerState), 11_689_512 * 4 * 2);
    adds_up(&explanation);
    let paths: Vec<&str> = explanation.layers.iter().map(|layer| layer.path.raw()).collect();
    assert_eq!(paths[..4], ["input", "conv1", "bn1", "relu"]);
    for wanted in ["conv1", "bn1", "layer1.0.conv1", "layer2.0.downsample.conv", "fc"] {
        assert!(paths.contains(&wanted), "{wanted}: {paths:?}");
    }
    let last = explanation
        .layers
        .iter()
        .rfind(|layer| layer.path.raw().starts_with("layer1."))
        .unwrap();
    assert_eq!(last.output, [1, 64, 56, 56]);
    let add = explanation.layers.iter().find(|layer| layer.kind == "add").unwrap();
    assert!(add.path.raw().starts_with("layer1.0") && add.inferred, "{add:?}");
    let source = explanation.layers[1].source.as_ref().unwrap();
    assert_eq!(source.file, "src/resnet18.rs");
    assert!(source.function.raw().contains("ResNet"), "{source:?}");
    the_lines_add_up(&explanation);
    the_lines_have_their_text(&explanation);
}

fn the_lines_have_their_text(explanation: &Explanation) {
    for line in &explanation.lines {
        let source = &line.source;
        let content = std::fs::read_to_string(common::workspace().join(source.file.raw())).unwrap();
        let text = content.lines().nth(source.line as usize - 1).unwrap().trim();
        let mut told = explanation.texts.iter();
        let told = told.find(|told| (&told.file, told.line) == (&source.file, source.line));
        let start: String = text.chars().take(200).collect();
        assert_eq!(told.map(|told| told.text.raw()), Some(start.as_str()), "{source:?}");
    }
    assert_eq!(explanation.commit_date.is_some(), explanation.commit.is_some());
}

fn the_lines_add_up(explanation: &Explanation) {
    assert!(explanation.lines.len() > 50);
    let mut live = 0_i64;
    for line in &explanation.lines {
        let sum = |tensors: &[u32]| -> i64 {
            let bytes = tensors
                .iter()
                .map(|tensor| explanation.tensors[*tensor as usize].bytes.0);
            i64::try_from(bytes.sum::<u64>()).unwrap()
        };
        assert_eq!(line.change, sum(&line.came) - sum(&line.went), "{line:?}");
        live += line.change;
        assert_eq!(i64::try_from(line.live.0), Ok(live), "{line:?}");
    }
    let forward = explanation.lines.iter().filter(|line| line.phase == Phase::Forward);
    assert!(
        forward
            .clone()
            .any(|line| line.source.file.raw().ends_with("resnet18.rs"))
    );
}

#[test]
fn sgd_with_momentum_holds_three_times_its_parameters_and_adam_four() {
    // With Burn 0.22, the explanation of a model with its own threads samples memory only between steps.
    let momentum = match common::is_burn_0_22() {
        true => &["sequential", "--optimizer", "sgd-momentum", "--gpu", "l4"][..],
        false => &["sequential_loader", "--gpu", "l4"],
    };
    let momentum = explain(momentum);
    holds(&momentum, 3);
    adds_up(&momentum);
    let adam = explain(&["vgg16", "--gpu", "l4", "--set", "batch_size=1"]);
    holds(&adam, 4);
    adds_up(&adam);
}

/// The sum of the bytes of all tensors of a category that a step makes, also of those that do not exist at the same
/// time.
fn made_in(explanation: &Explanation, step: u32, category: Category) -> u64 {
    let tensors = explanation.tensors.iter();
    let of = tensors.filter(|tensor| tensor.category == category && tensor.step == Some(step));
    of.map(|tensor| tensor.logical.0).sum()
}

#[test]
fn gradients_that_fusion_uses_up_as_it_makes_them_are_never_held_and_a_loop_by_hand_is_told_too() {
    let mut activations = Vec::new();
    for (model, state) in [("resnet18_train_step", 1), ("resnet18_free_form", 0)] {
        let explanation = explain(&[model, "--gpu", "l4", "--set", "batch_size=1"]);
        let made =
            [Category::Activation, Category::ActivationGradient].map(|category| made_in(&explanation, 1, category));
        activations.push((made, explanation.layers.clone()));
        let parameters = explanation.totals.learnable.max(11_689_512) * 4;
        assert_eq!(made_in(&explanation, 1, Category::Parameter), parameters, "{model}");
        assert_eq!(
            made_in(&explanation, 1, Category::OptimizerState),
            parameters * state,
            "{model}"
        );
        // Some small gradients of batch norms have no memory, and some exist twice, in two shapes. A view of a tensor
        // in another shape shares its memory and is not counted again.
        let own = explanation.tensors.iter().filter(|tensor| tensor.shares.is_none());
        let gradients = own.filter(|tensor| tensor.step == Some(1) && tensor.category == Category::Gradient);
        let gradients: u64 = gradients.map(|tensor| tensor.logical.0).sum();
        assert!(
            gradients.abs_diff(parameters) * 1000 < parameters,
            "{model}: {gradients}"
        );
        adds_up(&explanation);
    }
    // The model with `train_step` does not mark its backward phase, and computes its loss inside the model.
    let [(train_step, layers), (by_hand, same)] = activations.as_slice() else {
        unreachable!()
    };
    // It returns the logits, so that the loss cannot be computed in their memory.
    let logits = 1000 * 4;
    assert_eq!(*train_step, [by_hand[0] + logits, by_hand[1]]);
    assert!(train_step.iter().all(|bytes| *bytes > 0), "{train_step:?}");
    let seen = |layers: &[Layer]| {
        layers
            .iter()
            .map(|it| (it.kind.clone(), it.output.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(layers), seen(same));
    let norms: Vec<_> = layers.iter().filter(|layer| layer.kind == "BatchNorm").collect();
    assert!(
        norms.len() == 20 && norms.iter().all(|layer| layer.output.len() == 4),
        "{norms:?}"
    );
    let inputs: Vec<_> = layers.iter().filter(|layer| layer.kind == "input").collect();
    assert_eq!(
        inputs.iter().map(|input| input.output.as_slice()).collect::<Vec<_>>(),
        [[1, 3, 224, 224]]
    );
}

#[test]
fn every_gradient_of_a_parameter_has_the_line_that_uses_the_parameter() {
    if !common::is_burn_0_22() {
        // With Burn 0.21, the line of every gradient is that of `loss.backward()`.
        return;
    }
    let models = [
        "vgg16",
        "resnet18",
        "densenet201",
        "sequential",
        "transformer",
        "decoder",
    ];
    for model in models {
        let explanation = explain(&[model, "--gpu", "h200", "--set", "batch_size=1"]);
        gradients_have_lines(&explanation);
    }
}

fn gradients_have_lines(explanation: &Explanation) {
    let model = &explanation.run.model;
    let line = |source: &Option<SourceLocation>| source.as_ref().map(|source| (source.file.clone(), source.line));
    let (mut right, mut without) = (0, 0);
    let gradients = explanation
        .tensors
        .iter()
        .filter(|tensor| tensor.category == Category::Gradient);
    for gradient in gradients {
        let of = |layer: &&Layer| Some(&layer.path) == gradient.module.as_ref() && !layer.inferred;
        let uses: Vec<_> = explanation
            .layers
            .iter()
            .filter(of)
            .map(|layer| line(&layer.source))
            .collect();
        let found = line(&gradient.source);
        if found
            .as_ref()
            .is_none_or(|(file, _)| file.raw().ends_with("benches/vram.rs"))
        {
            without += 1;
        } else {
            assert!(uses.contains(&found), "{model}: {gradient:?} is not of {uses:?}");
            right += 1;
        }
    }
    assert!(
        right > 0 && without == 0,
        "{model}: {right} right, {without} without a line"
    );
}

#[test]
fn the_figures_are_those_of_an_estimate_and_add_up() {
    let models = ["vgg16", "resnet18", "transformer_inference", "sequential_loader"];
    let mut arguments = vec!["estimate", "-p", "zoo", "--gpu", "l4"];
    arguments.extend(models.iter().flat_map(|model| ["-m", *model]));
    let (report, _, _) = common::report(&arguments);
    for model in models {
        let explanation = explain(&[model, "--gpu", "l4"]);
        let estimated = common::run(&report, model);
        assert_eq!(explanation.run.peaks, estimated.peaks, "{model}");
        if common::is_burn_0_22() && model == "sequential_loader" {
            // The model has its own threads: the steps' tensors have lines, but the tensors of batches do not.
            let said = &explanation.run.assumptions;
            assert!(said.iter().any(|said| said.code() == "no-lines"), "{said:?}");
            let is_gradient = |tensor: &&cargo_vram::explain::TensorLife| tensor.category == Category::Gradient;
            let file =
                |tensor: &cargo_vram::explain::TensorLife| tensor.source.as_ref().map(|source| source.file.clone());
            let files: Vec<_> = explanation.tensors.iter().filter(is_gradient).map(file).collect();
            assert!(
                !files.is_empty()
                    && files
                        .iter()
                        .all(|file| file.as_ref().is_some_and(|file| file == "src/sequential.rs"))
            );
            continue;
        }
        adds_up(&explanation);
        let phases = &explanation.phases;
        assert!(
            phases
                .iter()
                .any(|row| row.pass == Pass::Cold && row.live_end.is_none())
        );
        let warm: Vec<_> = phases.iter().filter(|row| row.pass == Pass::Traced).collect();
        assert_eq!(
            warm.iter().filter_map(|row| row.live_peak).max(),
            explanation.run.peaks.warm.live
        );
        assert!(!phases.iter().any(|row| row.failed));
    }
}

#[test]
fn a_model_whose_first_operation_runs_at_once_is_explained() {
    // The model makes its rotary table with an operation that fusion does not delay.
    let model = ["--gpu", "l4", "--set", "prompt_len=64", "--set", "new_tokens=1"];
    let explanation = explain(&[&["decoder_inference"], &model[..]].concat());
    assert_eq!((&explanation.partial, &explanation.run.error), (&None, &None));
    assert_eq!(
        explanation.timeline.live.iter().max(),
        explanation.run.peaks.warm.live.as_ref()
    );
    let estimate = ["estimate", "-p", "zoo", "-m", "decoder_inference"];
    let (report, ..) = common::report(&[&estimate[..], &model].concat());
    let estimated = common::run(&report, "decoder_inference");
    assert_eq!(explanation.run.peaks.warm.live, estimated.peaks.warm.live);
    assert_eq!(explanation.run.peaks.cold, estimated.peaks.cold);
}

#[test]
fn a_model_that_runs_out_of_memory_is_told_as_far_as_it_came() {
    // When memory runs out, Burn 0.22 frees what it can and gets further.
    let (gpu, place) = match common::is_burn_0_22() {
        true => ("a100-40gb", "in the optimizer phase of step 2"),
        false => ("a100-80gb", "in the optimizer phase of step 1"),
    };
    let explanation = explain(&[
        "vgg16",
        "--gpu",
        gpu,
        "--set",
        "batch_size=1",
        "--set",
        "image_size=1024",
    ]);
    let partial = explanation.partial.as_ref().unwrap();
    assert!(partial.raw().contains(place), "{partial}");
    let failed = explanation
        .phases
        .iter()
        .any(|row| row.failed && row.phase == Phase::Optimizer);
    assert!(failed, "{:?}", explanation.phases);
    assert_eq!(explanation.totals.parameters, 2_183_080_744);
    assert!(!explanation.layers.is_empty());
    for sample in 0..explanation.timeline.live.len() {
        let parts: u64 = explanation
            .timeline
            .categories
            .iter()
            .map(|series| series.bytes[sample].0)
            .sum();
        assert_eq!(parts, explanation.timeline.live[sample].0);
    }
}

#[test]
fn a_tensor_that_is_too_large_for_the_gpu_is_named_with_its_shape_and_its_line() {
    let explanation = explain(&[
        "resnet18_inference",
        "--gpu",
        "l4",
        "--set",
        "batch_size=867",
        "--set",
        "image_size=1024",
    ]);
    let oom = explanation.run.oom.as_ref().unwrap();
    assert_eq!(oom.requested, Some(Bytes(10_909_384_704)));
    let tensor = oom.tensor.as_ref().unwrap();
    assert_eq!(tensor.largest, Bytes(5_914_755_072));
    assert_eq!(tensor.shape, [867, 3, 1024, 1024]);
    assert_eq!(tensor.dtype.as_ref().map(cargo_vram::report::Foreign::raw), Some("f32"));
    let file = "benches/vram.rs";
    assert_eq!(tensor.file.as_ref().map(cargo_vram::report::Foreign::raw), Some(file));
    let source = std::fs::read_to_string(common::workspace().join(file)).unwrap();
    let line = source.lines().nth(tensor.line.unwrap() as usize - 1).unwrap();
    assert!(line.contains("zeros"), "{line}");
}

#[test]
fn a_loss_that_is_kept_is_a_leak_and_its_value_is_none() {
    let kept = explain_of("retained-loss-after", &["charted", "--gpu", "l4", "--leak"]);
    let leak = kept.leak.found().unwrap();
    assert_eq!(leak.growing.steps.len(), 10);
    // At least the activation of one hidden layer leaks per step.
    assert!(leak.growing.per_step >= Bytes(512 * 1024 * 4), "{leak:?}");
    let largest = &kept.tensors[leak.tensors[0] as usize];
    assert_eq!(largest.category, Category::Activation, "{largest:?}");
    assert!(
        largest.source.as_ref().unwrap().file.raw().contains("after/"),
        "{largest:?}"
    );
    let let_go = explain_of(
        "retained-loss-before",
        &["charted", "--gpu", "l4", "--steps", "10", "--leak"],
    );
    assert!(matches!(let_go.leak, Leaking::No { .. }), "{:?}", let_go.run.steps);

    let (_folder, budgets) = common::budgets("version: 1\ngpu: l4\nmodels:\n  charted: { reserved: 2 GiB }\n");
    let check = |package: &str| {
        let check = ["check", "--budgets", &budgets, "--steps", "10"];
        let (report, exit, shown) = common::report(&[&check[..], &selected(package)].concat());
        let rules: Vec<String> = report
            .verdicts
            .iter()
            .map(|verdict| format!("{:?} {:?}", verdict.rule, verdict.status))
            .collect();
        (rules, exit, shown)
    };
    let (rules, exit, shown) = check("retained-loss-after");
    assert_eq!((rules[0].as_str(), exit), ("Leak Fail", 100), "{rules:?} {shown}");
    // The command in the message works even if another package has a model with this name.
    let command = "cargo vram explain charted -p retained-loss-after --leak --steps 10";
    assert!(shown.contains(command), "{shown}");
    let (rules, exit, _) = check("retained-loss-before");
    assert_eq!((rules.len(), exit), (1, 0), "{rules:?}");
}

#[test]
fn savings_are_of_runs() {
    let explanation = explain_of(
        "retained-loss-before",
        &["charted", "--gpu", "l4", "--savings", "--steps", "2"],
    );
    let saving = |code: &str| {
        let found = explanation.savings.iter().find(|saving| saving.code == code);
        found.unwrap_or_else(|| panic!("{code}: {:#?}", explanation.savings))
    };
    for code in [
        "half-precision",
        "mixed-precision",
        "smaller-batch",
        "no-gradients",
        "checkpointing",
    ] {
        let saving = saving(code);
        // This saving adds memory from the timeline to a run with half the batch.
        let known_from = match code {
            "smaller-batch" => Certainty::Timeline,
            _ => Certainty::Run,
        };
        assert_eq!(saving.certainty, known_from, "{saving:?}");
        assert!(saving.saved_live.unwrap() > 0, "{saving:?}");
        let then = saving.live.unwrap().0.checked_add_signed(saving.saved_live.unwrap());
        assert_eq!(then, Some(explanation.peak.live.0), "{saving:?}");
    }
    // SGD has no state that could be saved.
    assert_eq!(saving("stateless-optimizer").saved_live, Some(0));
    assert!(
        saving("smaller-batch")
            .note
            .as_ref()
            .unwrap()
            .raw()
            .contains("gradients")
    );
    assert!(
        saving("largest-layer")
            .note
            .as_ref()
            .unwrap()
            .raw()
            .contains("at the peak")
    );
}

#[test]
fn an_input_that_the_model_does_not_have_is_all_that_is_told() {
    let arguments = [
        "explain",
        "resnet18",
        "-p",
        "zoo",
        "--gpu",
        "l4",
        "--set",
        "batchsize=64",
    ];
    for format in [&[][..], &["--message-format", "json"]] {
        let output = common::output(&[&arguments, format].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("no input `batchsize`"), "{said}");
        assert!(said.contains("did you mean `batch_size`?"), "{said}");
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn models_of_one_name_are_told_apart_by_their_packages() {
    let both = [
        &selected("retained-loss-before")[..],
        &["-p", "retained-loss-after", "--gpu", "l4"],
    ]
    .concat();
    let told = |model: &str| {
        let output = common::output(&[&["explain", model], &both[..]].concat());
        let said = common::unhindered(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(if model.contains('/') { 0 } else { 2 }),
            "{said}"
        );
        said + &String::from_utf8_lossy(&output.stdout)
    };
    let none = told("nothing");
    assert!(
        none.contains("retained-loss-before/charted") && none.contains("retained-loss-after/charted"),
        "{none}"
    );
    assert!(told("charted").contains("matches several models"));
    let one = told("retained-loss-before/charted");
    assert!(one.starts_with("retained-loss-before/charted"), "{one}");
}

#[test]
fn an_unknown_model_is_told_with_the_nearest_name() {
    let output = common::output(&["explain", "resnet81", "-p", "zoo", "--gpu", "l4"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("resnet18"), "{said}");
    let output = common::output(&["explain", "resnet18*", "-p", "zoo", "--gpu", "l4"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("matches several models"), "{said}");
}

#[test]
fn a_page_is_of_all_models_that_a_glob_means_with_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let report = |arguments: &[&str]| {
        let mut command = common::vram(&[
            "report",
            "--gpu",
            "l4",
            "--manifest-path",
            common::retained_loss(),
            "-p",
            "retained-loss-before",
            "-p",
            "retained-loss-after",
            "-o",
        ]);
        command.arg(&page).args(arguments).output().unwrap()
    };
    let output = report(&["-m", "retained*/charted", "--compare", "--leak", "--lines"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    let (_, json) = text.split_once("id=\"data\">").unwrap();
    let (json, _) = json.split_once("</script>").unwrap();
    let drawn: serde_json::Value = serde_json::from_str(json).unwrap();
    let names: Vec<_> = drawn["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["name"])
        .collect();
    assert_eq!(names, ["retained-loss-before/charted", "retained-loss-after/charted"]);
    for model in drawn["models"].as_array().unwrap() {
        let found = if model["name"] == *names[1] { "yes" } else { "no" };
        assert_eq!(model["leak"]["found"], found, "{}", model["name"]);
        let lines = model["lines"].as_array().unwrap();
        assert!(!lines.is_empty() && lines.iter().all(|line| line["text"].is_string()));
        assert_eq!(model["commit_date"].is_string(), model["commit"].is_string());
    }
    // Each model is shown once, in the order of the options.
    let output = report(&["-m", "*after/charted", "-m", "retained*/charted"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    assert_eq!(text.matches("\"package\":\"retained-loss-").count(), 2);
    assert!(text.find("retained-loss-after/charted") < text.find("retained-loss-before/charted"));
    let output = report(&["-m", "retained-loss-*/charted", "-m", "nowhere"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no model matches nowhere"), "{said}");
    // Each model is named once.
    assert_eq!(said.matches("retained-loss-before/charted").count(), 1, "{said}");
}

#[test]
fn a_measurement_is_explained_as_an_estimate_is_and_its_live_is_the_same() {
    let gpu = gpu_folder(&(builtin("l4") + "context=200000000\nmodule_each=65536\n"));
    let folder = tempfile::tempdir().unwrap();
    // An archive, because Cargo would build all of Burn again if the GPU's `CUDA_PATH` were set.
    let archive = folder.path().join("models.tar.zst");
    let package = selected("retained-loss-before");
    // With Burn 0.22, every build can be explained.
    let features = match common::is_burn_0_22() {
        true => &[][..],
        false => &["--features", "cargo-vram/explain"],
    };
    let package = [&["archive"][..], &package, features, &["-o"]].concat();
    let output = common::vram(&package).arg(&archive).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = folder.path().join("explanation.json");
    let mut command = common::vram(&["explain", "charted", "--measure", "--message-format", "json", "-o"]);
    command.arg(&file).arg("--archive-file").arg(&archive);
    gpu.apply(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Explanation = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(measured.run.mode, Mode::Measure);
    adds_up(&measured);
    let estimated = explain_of("retained-loss-before", &["charted", "--gpu", "l4"]);
    assert_eq!(measured.peak.live, estimated.peak.live);
    let shapes = |of: &Explanation| -> Vec<_> {
        let layers = of.layers.iter();
        layers.map(|layer| (layer.path.clone(), layer.output.clone())).collect()
    };
    assert_eq!(shapes(&measured), shapes(&estimated));
}

#[test]
fn a_model_that_panics_is_told_as_far_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("explanation.json");
    let model = [
        "explain",
        "vgg16_inference",
        "-p",
        "zoo",
        "--gpu",
        "l4",
        "--set",
        "image_size=8",
    ];
    let mut command = common::vram(&model);
    command.args(["--message-format", "json", "-o"]).arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(101), "{said}");
    let json = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{said}"));
    common::is_valid("explanation", &json);
    let explanation: Explanation = serde_json::from_str(&json).unwrap();
    assert!(
        explanation.partial.as_ref().unwrap().raw().contains("panicked"),
        "{explanation:?}"
    );
    assert!(
        explanation
            .layers
            .iter()
            .any(|layer| layer.path == "features.block1_conv1")
    );
}

#[test]
fn a_model_without_fusion_is_explained_as_whole_as_one_with_it() {
    if common::is_burn_0_22() {
        // In Burn 0.22, fusion is a feature of Burn, which another feature cannot switch off.
        return;
    }
    // `--no-fusion` needs another build, which these models share.
    for model in ["sequential", "vgg16", "resnet18_train_step", "transformer_inference"] {
        // Two steps: what the first one leaves is there in the second.
        let model_of = [model, "--gpu", "l4", "--set", "batch_size=2", "--lines", "--steps", "2"];
        let of = |more: &[&str]| explain(&[&model_of, more].concat());
        let (fused, unfused) = (of(&[]), of(&["--no-fusion"]));
        assert!(!unfused.run.features.unwrap().fusion && unfused.partial.is_none());
        adds_up(&unfused);
        let rows = |explanation: &Explanation| {
            let row = |layer: &Layer| {
                (
                    layer.path.clone(),
                    layer.output.clone(),
                    layer.parameters,
                    layer.feature_bytes,
                )
            };
            explanation.layers.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(rows(&unfused), rows(&fused), "{model}");
        assert!(!unfused.lines.is_empty(), "{model}");
        if model == "resnet18_train_step" {
            the_lines_add_up(&unfused);
        }
        // The memory after the last step is exact: a missed free, or a tensor in a wrong category, would show here.
        let left = |explanation: &Explanation, category| *bytes(explanation, category).last().unwrap();
        let parameters = unfused.run.parameters.unwrap();
        let named = left(&unfused, Category::Parameter) + left(&unfused, Category::Buffer);
        assert_eq!(named, parameters.bytes.0, "{model}");
        // Values that the optimizer keeps per learnable parameter: SGD none, SGD with momentum one, Adam two.
        let values = match model {
            "vgg16" => 2,
            "resnet18_train_step" => 1,
            _ => 0,
        };
        let states = left(&unfused, Category::OptimizerState);
        assert_eq!(states, values * parameters.learnable * 4, "{model}");
        // Burn counts a reused slice of its persistent pool with an error of less than 512 bytes.
        let live = unfused.timeline.live.last().unwrap().0;
        assert!(left(&unfused, Category::Unattributed) * 100_000 <= live, "{model}");
    }
}

#[test]
fn a_backend_trait_of_the_models_own_is_implemented_for_the_observed_backend() {
    if common::is_burn_0_22() {
        // Models for Burn 0.22 have no backend parameter, so they have no backend traits.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("explanation.json");
    let run = |command: &[&str], package: &str| {
        let broken = [
            "--manifest-path",
            &common::manifest("fixtures/broken"),
            "--gpu",
            "l4",
            "-p",
            package,
        ];
        common::output(&[command, &broken].concat())
    };
    let written = [
        "explain",
        "doubled",
        "--message-format",
        "json",
        "-o",
        file.to_str().unwrap(),
    ];
    let explained = |package| run(&written, package);
    let output = explained("backend-trait");
    assert!(output.status.success(), "{}", common::said(&output));
    let explanation: Explanation = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    adds_up(&explanation);
    assert_eq!(
        explanation.layers.iter().map(|layer| layer.parameters).sum::<u64>(),
        1024 * 1024 + 1024
    );
    let is_recorded = |tensor: &cargo_vram::explain::TensorLife| tensor.operation == "doubled";
    assert!(explanation.tensors.iter().any(is_recorded));
    // If the observed backend lacks a trait of the target, the error shows how to implement it, and that `check` works
    // without it.
    let output = explained("backend-trait-unexplained");
    let said = common::said(&output);
    assert_eq!(output.status.code(), Some(101), "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("cargo_vram::explained! {"), "{said}");
    let output = run(&["estimate"], "backend-trait-unexplained");
    assert!(output.status.success(), "{}", common::said(&output));
}
