//! Compiles generic code of Burn in this crate that nearly every model needs.
//!
//! rustc compiles generic code in the first crate that needs it. Without this file, that is the crate of the models,
//! which is compiled after every edit: 26,000 functions for a network with two layers, of which 1,600 are left with it.
//! This crate is also optimized as dependencies are, so passes are faster. All values stay the same.
//!
//! rustc shares generic code between crates only at `opt-level` 0 and 1. So builds without debug assertions, such as
//! `--release`, leave this file out. See docs/design/builds.md.

use burn21::module::AutodiffModule;
use burn21::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
use burn21::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn21::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn21::tensor::activation::{gelu, relu, sigmoid, softmax};
use burn21::tensor::backend::AutodiffBackend;
use burn21::tensor::ops::FloatTensorOps;
use burn21::tensor::{Distribution, FloatDType, Int, Shape, Tensor};
use cubecl21::cuda::CudaDevice;

use super::{ModelBackend, Tracked};

/// Makes rustc compile the functions below in this crate, and runs none of them.
///
pub(super) fn instantiate() {
    std::hint::black_box((operations as fn(), training as fn()));
}

/// Brings in fusion's streams and searches, the memory's pages and the kernels of matrix products.
fn operations() {
    let device = CudaDevice::default();
    let tensor = || ModelBackend::float_zeros(Shape::new([1]), &device, FloatDType::F32);
    let sum = ModelBackend::float_add(tensor(), tensor());
    drop(ModelBackend::float_matmul(sum, tensor()));
}

/// Brings in what training steps of small models use: parameters, activations, losses, gradients and optimizers.
fn training() {
    let device = CudaDevice::default();
    let linear: Linear<Tracked> = LinearConfig::new(1, 1).init(&device);
    let embedding: Embedding<Tracked> = EmbeddingConfig::new(1, 1).init(&device);
    let input = Tensor::<Tracked, 2>::random([1, 1], Distribution::Default, &device);
    let targets = Tensor::<Tracked, 1, Int>::zeros([1], &device);
    let embedded = embedding
        .forward(targets.clone().unsqueeze())
        .mean_dim(1)
        .squeeze_dim(1);
    let hidden = gelu(relu(linear.forward(input))) + sigmoid(embedded);
    let output = softmax(hidden, 1).powf_scalar(2.0).mul_scalar(2.0);
    let losses = CrossEntropyLossConfig::new()
        .init(&device)
        .forward(output.clone(), targets)
        + MseLoss::new().forward(output.clone(), output, Reduction::Mean);
    let mut gradients = losses.backward();
    losses.into_scalar();
    let linear = step(AdamConfig::new().init(), linear, &mut gradients);
    let linear = step(AdamWConfig::new().init(), linear, &mut gradients);
    step(SgdConfig::new().init(), linear, &mut gradients);
}

fn step<M: AutodiffModule<Tracked>>(
    mut optimizer: impl Optimizer<M, Tracked>,
    module: M,
    gradients: &mut <Tracked as AutodiffBackend>::Gradients,
) -> M {
    let gradients = GradientsParams::from_module(gradients, &module);
    optimizer.step(0.0, module, gradients)
}
