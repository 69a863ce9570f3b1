//! Tensors of the observed backend: with fusion, Burn's own; without fusion, Burn's own with a number.
//!
//! Fusion numbers its tensors. Without fusion, tensors get a number here, which also reports when the last clone of a
//! tensor is dropped. The number is beside the tensor, so Burn's reference counts of memory stay the same.
//!
//! With fusion the types stay Burn's own, because models choose kernels by them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use burn_backend21::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward, DeformConvOptions,
    GridSampleOptions, InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward,
    MaxPool2dWithIndices, UnfoldOptions,
};
use burn_backend21::quantization::QuantScheme;
use burn_backend21::tensor::IndexingUpdateOp;
use burn_backend21::{Distribution, QTensorPrimitive, Scalar};
use burn_cubecl21::CubeRuntime;
use burn_cubecl21::tensor::CubeTensor;
use burn_fusion21::{FusionRuntime, FusionTensor};
use burn21::tensor::{BoolDType, DType, FloatDType, IntDType, Shape, TensorData, TensorMetadata, TensorPrimitive};

use super::{Inner, Lazy, Observed};
use crate::probe::trace;

/// A tensor of a backend without fusion, with its own number.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct ObservedTensor<T> {
    inner: T,
    /// `None` if the model is not traced.
    // An `Arc` beside the handle, not around it: Burn reuses memory in place by its own counts.
    // See docs/design/explanations.md.
    number: Option<Arc<Number>>,
}

impl<T> ObservedTensor<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            number: trace::is_on().then(|| Arc::new(Number::next())),
        }
    }

    pub(super) fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the number by which the trace knows the tensor.
    pub(super) fn id(&self) -> Option<u64> {
        self.number.as_ref().map(|number| number.0)
    }
}

/// A number that no other tensor of the process has.
#[derive(Debug)]
struct Number(u64);

impl Number {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

static DROPPED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

impl Drop for Number {
    fn drop(&mut self) {
        // Only noted here. A tensor may be dropped on any thread, and the trace needs the drops in line with
        // operations.
        DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// Returns the numbers of the tensors that were dropped since the last call.
pub(super) fn dropped() -> Vec<u64> {
    let mut numbers = std::mem::take(&mut *DROPPED.lock().unwrap_or_else(PoisonError::into_inner));
    // Several threads may have dropped tensors, in an order that differs from run to run.
    numbers.sort_unstable();
    numbers
}

impl<T: TensorMetadata> TensorMetadata for ObservedTensor<T> {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }
}

impl<T: QTensorPrimitive> QTensorPrimitive for ObservedTensor<T> {
    fn scheme(&self) -> &QuantScheme {
        self.inner.scheme()
    }

    fn default_scheme() -> QuantScheme {
        T::default_scheme()
    }
}

/// An argument of an operation.
pub(super) trait Argument {
    /// The type that the operation of Burn's own backend takes instead.
    type Inner;

    fn into_inner(self) -> Self::Inner;
}

impl<R: FusionRuntime> Argument for FusionTensor<R> {
    // Not wrapped: some models choose their kernels by the `TypeId` of a tensor.
    type Inner = Self;

    fn into_inner(self) -> Self {
        self
    }
}

impl<T> Argument for ObservedTensor<T> {
    type Inner = T;

    fn into_inner(self) -> T {
        self.inner
    }
}

/// A tensor of Burn's own backend.
#[doc(hidden)]
pub trait Primitive {
    /// The type of the same tensor on [`Observed`].
    type Observed: TensorMetadata + QTensorPrimitive + 'static;

    /// Turns the tensor into one of [`Observed`].
    fn into_observed(self) -> Self::Observed;

    /// Returns the tensor of Burn's own backend that `observed` contains.
    fn of(observed: &Self::Observed) -> &Self;
}

impl<R: FusionRuntime> Primitive for FusionTensor<R> {
    type Observed = Self;

    fn into_observed(self) -> Self {
        self
    }

    fn of(observed: &Self) -> &Self {
        observed
    }
}

impl<R: CubeRuntime> Primitive for CubeTensor<R> {
    type Observed = ObservedTensor<Self>;

    fn into_observed(self) -> Self::Observed {
        ObservedTensor::new(self)
    }

    fn of(observed: &Self::Observed) -> &Self {
        &observed.inner
    }
}

impl<T: Argument> Argument for Option<T> {
    type Inner = Option<T::Inner>;

    fn into_inner(self) -> Self::Inner {
        self.map(T::into_inner)
    }
}

impl<T: Argument> Argument for Vec<T> {
    type Inner = Vec<T::Inner>;

    fn into_inner(self) -> Self::Inner {
        self.into_iter().map(T::into_inner).collect()
    }
}

impl<L: Lazy> Argument for TensorPrimitive<Observed<L>> {
    type Inner = TensorPrimitive<Inner>;

    fn into_inner(self) -> Self::Inner {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor.into_inner()),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor.into_inner()),
        }
    }
}

macro_rules! unchanged {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<$($generic)*> Argument for $type {
            type Inner = Self;

            fn into_inner(self) -> Self {
                self
            }
        }
    )*};
}

// Type by type, because a blanket implementation would overlap with those for tensors.
unchanged! {
    [] bool;
    [] usize;
    [] f64;
    [const N: usize] [usize; N];
    ['a, T: ?Sized] &'a T;
    [] Range<i64>;
    [] Shape;
    [] Scalar;
    [] TensorData;
    [] FloatDType;
    [] IntDType;
    [] BoolDType;
    [] Distribution;
    [] IndexingUpdateOp;
    [] GridSampleOptions;
    [] InterpolateOptions;
    [] UnfoldOptions;
    [] AttentionModuleOptions;
    [const N: usize] ConvOptions<N>;
    [const N: usize] ConvTransposeOptions<N>;
    [const N: usize] DeformConvOptions<N>;
}

/// The result of an operation.
pub(super) trait Output<L: Lazy> {
    /// The type of the same result on [`Observed`].
    type Observed;

    fn observed(self) -> Self::Observed;
}

impl<L: Lazy, T: Primitive> Output<L> for T {
    type Observed = T::Observed;

    fn observed(self) -> Self::Observed {
        self.into_observed()
    }
}

impl<L: Lazy, T: Output<L>> Output<L> for Option<T> {
    type Observed = Option<T::Observed>;

    fn observed(self) -> Self::Observed {
        self.map(T::observed)
    }
}

impl<L: Lazy, T: Output<L>, U: Output<L>> Output<L> for (T, U) {
    type Observed = (T::Observed, U::Observed);

    fn observed(self) -> Self::Observed {
        (self.0.observed(), self.1.observed())
    }
}

impl<L: Lazy> Output<L> for TensorPrimitive<Inner> {
    type Observed = TensorPrimitive<Observed<L>>;

    fn observed(self) -> Self::Observed {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor.into_observed()),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor.into_observed()),
        }
    }
}

macro_rules! outputs {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl<L: Lazy> Output<L> for $name<Inner> {
            type Observed = $name<Observed<L>>;

            fn observed(self) -> Self::Observed {
                $name { $($field: Output::<L>::observed(self.$field)),* }
            }
        }
    )*};
}

outputs! {
    DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad }
    MaxPool1dBackward { x_grad }
    MaxPool1dWithIndices { output, indices }
    MaxPool2dBackward { x_grad }
    MaxPool2dWithIndices { output, indices }
}
