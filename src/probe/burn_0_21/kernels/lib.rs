//! Compiles the definitions of Burn 0.21's kernels, once for all builds of models.
//!
//! A kernel's definition is generic code that writes the kernel's source. It is most of Burn's generic code, and it runs
//! mostly when a kernel is compiled. So it has a crate of its own, which need not be optimized: the crate
//! `cargo-vram-generics-0_21` has what every pass runs, and takes the kernels from here. Estimates do not change.
//!
//! rustc shares generic code between crates only at `opt-level` 0, 1, s and z. At other levels, this crate is empty.
//! See docs/design/builds.md.

/// Makes rustc compile the definitions here. It takes pointers to functions and calls none of them.
#[inline(never)]
pub fn instantiate() {
    #[cfg(shared)]
    kernels::all();
}

#[cfg(shared)]
mod kernels {
    use std::hint::black_box;

    use burn_backend::ops::{FloatTensorOps, IntTensorOps, ModuleOps};
    use burn_cubecl::CubeBackend;
    use cubecl::cuda::CudaRuntime;

    /// The backend below fusion. It launches the kernels.
    type Unfused = CubeBackend<CudaRuntime, f32, i32, u8>;

    /// Names the operations whose kernels have most of the code. Taking a pointer makes rustc compile the function.
    pub(super) fn all() {
        black_box(<Unfused as FloatTensorOps<Unfused>>::float_matmul as fn(_, _) -> _);
        black_box(<Unfused as IntTensorOps<Unfused>>::int_matmul as fn(_, _) -> _);
        black_box(<Unfused as FloatTensorOps<Unfused>>::float_sum_dim as fn(_, _) -> _);
        black_box(<Unfused as FloatTensorOps<Unfused>>::float_argmax as fn(_, _, _) -> _);
        black_box(<Unfused as FloatTensorOps<Unfused>>::float_select as fn(_, _, _) -> _);
        black_box(<Unfused as FloatTensorOps<Unfused>>::float_gather as fn(_, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::conv2d as fn(_, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::conv2d_x_backward as fn(_, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::conv2d_weight_backward as fn(_, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::avg_pool2d as fn(_, _, _, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::avg_pool2d_backward as fn(_, _, _, _, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::adaptive_avg_pool2d as fn(_, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::adaptive_avg_pool2d_backward as fn(_, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::max_pool2d as fn(_, _, _, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::max_pool2d_with_indices as fn(_, _, _, _, _, _) -> _);
        black_box(<Unfused as ModuleOps<Unfused>>::max_pool2d_with_indices_backward as fn(_, _, _, _, _, _, _, _) -> _);
    }
}
