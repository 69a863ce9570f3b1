//! The ways to run out of memory.

use cargo_vram::report::{Pass, Phase, Status};

use crate::common;
use crate::common::{budgets, run};

/// Burn 0.22's page for the weights of `fc1` at 1024 pixels.
const OWN_PAGE: u64 = (8 << 30) + (1 << 20);

#[test]
fn vgg16_at_1024_pixels_runs_out_in_an_optimizer_step() {
    // Burn 0.22 makes pages of the tensors' size, but Burn 0.21's next page is a quarter of the GPU. So Burn 0.22 gets
    // through with 80 GB.
    let (gpu, step) = if common::is_burn_0_22() {
        ("a100-40gb", 2)
    } else {
        ("a100-80gb", 1)
    };
    let (_folder, file) = budgets(&format!(
        "version: 1\ngpu: {gpu}\nmodels:\n  vgg16:\n    inputs: {{ batch_size: 1, image_size: 1024 }}\n    reserved: 1000 GiB\n",
    ));
    let (report, exit, text) = common::report(&["check", "--estimate", "-p", "zoo", "-m", "vgg16", "--budgets", &file]);
    assert_eq!(exit, 100, "{text}");
    assert_eq!(report.status, Status::Fail);
    let run = run(&report, "vgg16");
    assert_eq!(run.parameters.unwrap().count, 2_183_080_744);
    let oom = run.oom.as_ref().unwrap();
    assert_eq!((oom.step, oom.phase), (Some(step), Some(Phase::Optimizer)), "{oom:?}");
    let page = if common::is_burn_0_22() {
        OWN_PAGE
    } else {
        run.gpu.total_bytes.0 / 4
    };
    assert!(oom.requested.unwrap().0.abs_diff(page) < 4096, "{oom:?}");
    assert!(oom.reserved + oom.requested.unwrap() > run.gpu.available_bytes);
    assert_eq!(oom.available, run.gpu.available_bytes - oom.reserved);
    // Live memory is a part of reserved memory, and parameters are a part of live memory.
    let (live, parameters) = (oom.live.unwrap(), run.parameters.unwrap().bytes);
    assert!(live >= parameters && live < oom.reserved, "{oom:?}");
    let unused = oom.reserved - live;
    assert!(
        text.contains(&format!("{live} live, {unused} reserved but unallocated")),
        "{text}"
    );
    assert_eq!(oom.tensor, None, "no tensor is too large: the driver refused a page");
    assert!(oom.kernel.is_some());
    assert!(
        text.contains(&format!("out of memory: zoo/vgg16 on {gpu} in step {step}, optimizer")),
        "{text}"
    );
}

/// The bytes that an L4 refused in tracel-ai/burn#4005: 867 × 3 × 1024 × 1024 floats.
const REFUSED: u64 = 10_909_384_704;

#[test]
fn a_tensor_larger_than_a_quarter_of_the_gpu_never_reaches_the_driver() {
    let (_folder, file) = budgets(
        "version: 1\ngpu: l4\nmodels:\n  resnet18_inference:\n    inputs: { batch_size: 867, image_size: 1024 }\n    reserved: 100 GiB\n",
    );
    let (report, exit, text) = common::report(&[
        "check",
        "--estimate",
        "-p",
        "zoo",
        "-m",
        "resnet18_inference",
        "--budgets",
        &file,
    ]);
    assert_eq!(exit, 100, "{text}");
    let run = run(&report, "resnet18_inference");
    let oom = run.oom.as_ref().unwrap();
    assert_eq!(oom.requested.unwrap().0, REFUSED);
    let tensor = oom.tensor.as_ref().unwrap();
    assert_eq!(tensor.largest.0, 5_914_755_072, "a quarter of the L4");
    assert!(
        oom.reserved + oom.requested.unwrap() < run.gpu.available_bytes,
        "the GPU has enough free memory: {oom:?}"
    );
    // The message names the rule, the tensor's bytes, and the command that shows its line.
    for words in [
        "allocates at most 5.51 GiB (5914755072 B) for one tensor",
        "this tensor needs 10.16 GiB (10909384704 B)",
        "such a tensor needs a GPU with at least 40.64 GiB",
        "`cargo vram explain zoo/resnet18_inference --gpu l4 --set batch_size=867",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_refusal_inside_autotune_is_no_out_of_memory() {
    // On a large GPU, autotune's candidates take more memory than these small GPUs have.
    let arguments = ["estimate", "-p", "zoo", "-m", "sequential"];
    let (large, exit, text) = common::report(&[&arguments[..], &["--gpu", "l4"]].concat());
    assert_eq!(exit, 0, "{text}");
    let tried = run(&large, "sequential").peaks.cold.reserved.unwrap();
    // On the first GPU, a candidate's tensor is larger than any page. On the second, the driver refuses a page.
    for total in ["2600 MiB", "6 GiB"] {
        let (_folder, file) = budgets(&format!(
            "version: 1\ngpu: small\ngpu_profiles:\n  small: {{ like: l4, total: {total} }}\nmodels:\n  sequential:\n    inputs: {{ batch_size: 1 }}\n    reserved: 3 GiB\n",
        ));
        let (report, exit, text) = common::report(&[
            "check",
            "--estimate",
            "-p",
            "zoo",
            "-m",
            "sequential",
            "--budgets",
            &file,
        ]);
        assert_eq!(exit, 0, "{text}");
        let run = run(&report, "sequential");
        assert_eq!(run.oom, None);
        assert!(
            run.gpu.available_bytes < tried,
            "the candidates of the large GPU would fit: {run:?}"
        );
        assert!(run.peaks.cold.reserved.unwrap() <= run.gpu.available_bytes);
    }
}

#[test]
fn where_every_candidate_is_refused_it_is_out_of_memory() {
    // With a batch of 120, Burn 0.22 frees memory and gets through.
    let (batch_size, step) = if common::is_burn_0_22() { (150, 1) } else { (120, 0) };
    let (_folder, file) = budgets(&format!(
        "version: 1\ngpu: l4\nmodels:\n  vgg16:\n    inputs: {{ batch_size: {batch_size} }}\n    reserved: 100 GiB\n"
    ));
    let (report, exit, text) = common::report(&["check", "--estimate", "-p", "zoo", "-m", "vgg16", "--budgets", &file]);
    assert_eq!(exit, 100, "{text}");
    let oom = run(&report, "vgg16").oom.as_ref().unwrap();
    assert_eq!((oom.pass, oom.step), (Pass::Cold, Some(step)), "{oom:?}");
    assert!(oom.requested.unwrap() > oom.available, "{oom:?}");
}

#[test]
fn vgg16_at_1024_pixels_gets_through_where_a_page_holds_three_of_its_largest_tensor() {
    if common::is_burn_0_22() {
        // Pages of Burn 0.22 have the size of their tensors on every GPU, so this edge does not exist.
        return;
    }
    // The weights of `fc1` have 8 GiB, and Burn's largest page is a quarter of the GPU. From 96 GiB on, one page holds
    // the parameter and both of Adam's states. Below that, a page holds only two of these tensors, and the third takes
    // another page.
    for (total, exit_code) in [("98303 MiB", 100), ("96 GiB", 0)] {
        let (_folder, file) = budgets(&format!(
            "version: 1\ngpu: edge\ngpu_profiles:\n  edge: {{ like: h200, total: {total} }}\nmodels:\n  vgg16:\n    inputs: {{ batch_size: 1, image_size: 1024 }}\n    reserved: 1000 GiB\n",
        ));
        let arguments = ["check", "--estimate", "-p", "zoo", "-m", "vgg16", "--budgets", &file];
        let (report, exit, text) = common::report(&arguments);
        assert_eq!(exit, exit_code, "{text}");
        let oom = run(&report, "vgg16").oom.as_ref().map(|oom| (oom.step, oom.phase));
        assert_eq!(
            oom,
            (exit_code == 100).then_some((Some(1), Some(Phase::Optimizer))),
            "{text}"
        );
    }
}
