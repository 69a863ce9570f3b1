//! Burn's own backend, with every operation seen: on the user's thread, in the user's own code, before fusion.
//!
//! It is of use only to tell where memory goes: what a model holds is the same with it and without.

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

/// What is observed.
type Inner = super::Underlying;

/// What only makes [`Observed`] generic: its operations are then compiled where they are used, in the models' own crate and
/// those alone. All 418 of them with what Burn makes of each were 400 MB and six minutes of processor time.
pub trait Lazy: Clone + Default + std::fmt::Debug + Send + Sync + 'static {}

impl Lazy for () {}

/// Burn's CUDA backend, observed.
#[derive(Debug, Clone, Default)]
pub struct Observed<L: Lazy = ()>(PhantomData<L>);

impl<L: Lazy> Observed<L> {
    /// Runs an operation of your own on the observed backend, and records it under this name with its inputs and its output.
    ///
    /// A backend trait of your own calls it for each of its kernels. Tensors of floats, integers and booleans have one type here.
    pub fn operation<const N: usize>(
        name: &'static str,
        inputs: [FloatTensor<Self>; N],
        run: impl FnOnce([FloatTensor<Inner>; N]) -> FloatTensor<Inner>,
    ) -> FloatTensor<Self> {
        let seen = Seen::of(name, &[&&inputs[..]]);
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
