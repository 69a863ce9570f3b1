//! Burn's own backend, with every operation observed on the user's thread, within the user's call, before fusion.
//!
//! Only explanations use it. A model holds the same memory with it and without it.

#[cfg(feature = "distributed")]
mod distributed;
mod forward;
mod looks;
mod seen;
mod tensor;

use std::marker::PhantomData;

use burn_backend21::tensor::FloatTensor;
use burn21::tensor::backend::{Backend, BackendTypes, DTypeUsageSet, ExecutionError};
use burn21::tensor::{DType, TensorData};

#[cfg(feature = "distributed")]
pub(in crate::probe) use distributed::in_order;
pub(super) use looks::{expect, forget, look, watched};
pub(super) use seen::Numbered;
use seen::Seen;
use tensor::{Argument, Primitive};

/// The backend that is observed.
type Inner = super::Underlying;

/// The bound of a type parameter that only makes [`Observed`] generic. Its operations are then compiled in the models'
/// own crate, and only those that are used. All 418 operations, with what Burn makes of each, took 400 MB and six
/// minutes of processor time.
#[doc(hidden)]
pub trait Lazy: Clone + Default + std::fmt::Debug + Send + Sync + 'static {}

impl Lazy for () {}

/// Burn's CUDA backend with every operation recorded. `cargo vram explain` runs models on it.
///
/// If a model needs a backend trait of your own, implement the trait for this type with
/// [`explained!`](crate::explained).
#[derive(Debug, Clone, Default)]
pub struct Observed<L: Lazy = ()>(PhantomData<L>);

impl<L: Lazy> Observed<L> {
    /// Runs an operation of your own on Burn's backend, and records it as `name` with its inputs and its output.
    ///
    /// Call this for each kernel of a backend trait of your own. `run` gets the inputs as tensors of `ObservedBackend`
    /// and returns the output. Float, integer and boolean tensors have the same type here.
    pub fn operation<const N: usize>(
        name: &'static str,
        inputs: [FloatTensor<Self>; N],
        run: impl FnOnce([FloatTensor<Inner>; N]) -> FloatTensor<Inner>,
    ) -> FloatTensor<Self> {
        let seen = Seen::new(name, &[&&inputs[..]]);
        seen.made::<L, _>(name, run(inputs.map(Argument::into_inner)))
    }
}

impl<L: Lazy> BackendTypes for Observed<L> {
    type Device = <Inner as BackendTypes>::Device;
    type FloatTensorPrimitive = <<Inner as BackendTypes>::FloatTensorPrimitive as Primitive>::Observed;
    type FloatElem = <Inner as BackendTypes>::FloatElem;
    type IntTensorPrimitive = <<Inner as BackendTypes>::IntTensorPrimitive as Primitive>::Observed;
    type IntElem = <Inner as BackendTypes>::IntElem;
    type BoolTensorPrimitive = <<Inner as BackendTypes>::BoolTensorPrimitive as Primitive>::Observed;
    type BoolElem = <Inner as BackendTypes>::BoolElem;
    type QuantizedTensorPrimitive = <<Inner as BackendTypes>::QuantizedTensorPrimitive as Primitive>::Observed;
}

impl<L: Lazy> Backend for Observed<L> {
    // All methods are passed on, also those with a default: the defaults are not those of Burn's CUDA
    // backend. See docs/design/explanations.md.
    fn ad_enabled(device: &Self::Device) -> bool {
        Inner::ad_enabled(device)
    }

    fn memory_persistent_allocations<Output: Send, Input: Send, Func: Fn(Input) -> Output + Send>(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        Inner::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        Inner::memory_cleanup(device);
    }

    fn name(device: &Self::Device) -> String {
        Inner::name(device)
    }

    fn seed(device: &Self::Device, seed: u64) {
        Inner::seed(device, seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        // A synchronisation runs all postponed operations. So look before it, with reports on, and after it.
        forget();
        look(device);
        let done = Inner::sync(device);
        look(device);
        done
    }

    fn staging<'a, Iter>(data: Iter, device: &Self::Device)
    where
        Iter: Iterator<Item = &'a mut TensorData>,
    {
        Inner::staging(data, device);
    }

    fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
        Inner::supports_dtype(device, dtype)
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        Inner::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        Inner::device_count(type_id)
    }
}
