//! Tensors of the observed backend: Burn's own where fusion is on, and Burn's own with a number where it is off.
//!
//! Fusion numbers its tensors. Without fusion they get a number here, and tell when the last of their clones is dropped. The
//! number lies beside the tensor, so Burn's counts of who holds a piece of memory stay as they are.
//!
//! With fusion the types stay Burn's own: models choose kernels by them.

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

/// A tensor of a backend without fusion, with a number of its own.
#[derive(Debug, Clone)]
pub struct ObservedTensor<T> {
    inner: T,
    /// Only where the model is traced.
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

    /// The number by which the trace knows it.
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
        DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// The numbers of tensors that were dropped since this was last called.
pub(super) fn dropped() -> Vec<u64> {
    let mut numbers = std::mem::take(&mut *DROPPED.lock().unwrap_or_else(PoisonError::into_inner));
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
    /// What the observed operation takes in its place.
    type Inner;

    fn into_inner(self) -> Self::Inner;
}

impl<R: FusionRuntime> Argument for FusionTensor<R> {
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

/// A tensor of the backend that is observed.
pub trait Primitive {
    /// The same of the observing backend.
    type Observed: TensorMetadata + QTensorPrimitive + 'static;

    /// Makes one of it.
    fn into_observed(self) -> Self::Observed;

    /// The observed backend's own.
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

/// What an operation makes.
pub(super) trait Output<L: Lazy> {
    /// The same of the observed backend.
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
