//! Compiles generic code of Burn 0.21 that most models need, once for all builds of models.
//!
//! rustc compiles generic code in the first crate that needs it. Without this crate, that is the crate of the models,
//! which is compiled after every edit. This crate has no features of cargo-vram, so that a build with other features
//! (`cargo vram explain`) does not compile most of it again. It is optimized as dependencies are, so passes are faster.
//! All values stay the same.
//!
//! rustc shares generic code between crates only at `opt-level` 0, 1, s and z. At other levels, this crate is empty.
//! See docs/design/builds.md.

/// Makes rustc compile the functions of this crate, and runs none of them.
#[inline(never)]
pub fn instantiate() {
    #[cfg(shared)]
    {
        cargo_vram_kernels_0_21::instantiate();
        std::hint::black_box(generics::ALL);
    }
}

#[cfg(shared)]
mod generics {
    use burn::backend::cuda::CudaDevice;
    use burn::backend::{Autodiff, Cuda};
    use burn::module::AutodiffModule;
    use burn::nn::conv::Conv2dConfig;
    use burn::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
    use burn::nn::pool::{AdaptiveAvgPool2dConfig, AvgPool2dConfig, MaxPool2dConfig};
    use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
    use burn::nn::{BatchNormConfig, DropoutConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};
    use burn::tensor::activation::{gelu, relu, sigmoid, softmax};
    use burn::tensor::backend::AutodiffBackend;
    use burn::tensor::ops::FloatTensorOps;
    use burn::tensor::{Distribution, FloatDType, Int, Shape, Tensor};

    type Untracked = Cuda;
    type Tracked = Autodiff<Untracked>;

    pub(super) const ALL: [fn(); 4] = [operations, training, images, texts];

    /// Compiles fusion's streams and searches, the memory's pages and the fused kernels of matrix products.
    fn operations() {
        let device = CudaDevice::default();
        let tensor = || Untracked::float_zeros(Shape::new([1]), &device, FloatDType::F32);
        let sum = Untracked::float_add(tensor(), tensor());
        drop(Untracked::float_matmul(sum, tensor()));
    }

    /// Compiles what training steps of small models use: parameters, activations, losses, gradients and optimizers.
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

    /// Compiles convolutions, batch norms and pools.
    fn images() {
        let device = CudaDevice::default();
        let images = Tensor::<Tracked, 4>::zeros([1, 1, 1, 1], &device);
        let images = Conv2dConfig::new([1, 1], [1, 1]).init(&device).forward(images);
        let images = BatchNormConfig::new(1).init(&device).forward(images);
        let images = MaxPool2dConfig::new([1, 1]).init().forward(images);
        let images = AvgPool2dConfig::new([1, 1]).init().forward(images);
        let images = AdaptiveAvgPool2dConfig::new([1, 1]).init().forward(images);
        let images = DropoutConfig::new(0.5).init().forward(images);
        images.flatten::<2>(1, 3).mean().backward();
    }

    /// Compiles attention and layer norms.
    fn texts() {
        let device = CudaDevice::default();
        let encoder = TransformerEncoderConfig::new(1, 1, 1, 1).init::<Tracked>(&device);
        let padding = Tensor::<Tracked, 2, Int>::zeros([1, 1], &device).equal_elem(0);
        let input = TransformerEncoderInput::new(Tensor::zeros([1, 1, 1], &device)).mask_pad(padding);
        encoder.forward(input).mean().backward();
    }

    fn step<M: AutodiffModule<Tracked>>(
        mut optimizer: impl Optimizer<M, Tracked>,
        module: M,
        gradients: &mut <Tracked as AutodiffBackend>::Gradients,
    ) -> M {
        let gradients = GradientsParams::from_module(gradients, &module);
        optimizer.step(0.0, module, gradients)
    }
}
