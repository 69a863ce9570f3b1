//! Tells the trace of an operation: of which tensors it made which, and from where it was called.

use burn::tensor::TensorPrimitive;
use burn_backend::ops::{
    DeformConv2dBackward, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use burn_fusion::{FusionRuntime, FusionTensor};

use super::{Inner, Lazy, Observed, looks};
use crate::probe::trace;
use crate::protocol::Made;

/// A tensor of the observed backend, of any kind.
pub(in crate::probe::burn_0_21) trait Numbered {
    /// Its number, which it has where fusion is on.
    fn number(&self) -> Option<u64>;

    /// What there is to know of it.
    fn made(&self) -> Option<Made>;

    /// Looks at fusion's tensors, after all that was asked for so far.
    fn look(&self);
}

impl<R: FusionRuntime> Numbered for FusionTensor<R> {
    fn number(&self) -> Option<u64> {
        Some(self.id.value())
    }

    fn made(&self) -> Option<Made> {
        Some(Made {
            id: self.id.value(),
            bytes: self.shape.num_elements() as u64 * self.dtype.size() as u64,
            shape: self.shape.iter().map(|side| *side as u64).collect(),
            dtype: self.dtype.name().to_owned(),
        })
    }

    fn look(&self) {
        looks::send(&self.client, self.number(), false);
    }
}

impl<R: CubeRuntime> Numbered for CubeTensor<R> {
    fn number(&self) -> Option<u64> {
        None
    }

    fn made(&self) -> Option<Made> {
        None
    }

    fn look(&self) {}
}

/// What holds tensors.
pub(super) trait Tensors {
    /// Shows each of them.
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered));
}

impl<R: FusionRuntime> Tensors for FusionTensor<R> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        seen(self);
    }
}

impl<R: CubeRuntime> Tensors for CubeTensor<R> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        seen(self);
    }
}

impl<T: Tensors> Tensors for &T {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        (**self).each(seen);
    }
}

impl<T: Tensors> Tensors for Option<T> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        self.iter().for_each(|one| one.each(seen));
    }
}

impl<T: Tensors> Tensors for Vec<T> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        self.iter().for_each(|one| one.each(seen));
    }
}

impl<T: Tensors, U: Tensors> Tensors for (T, U) {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        self.0.each(seen);
        self.1.each(seen);
    }
}

macro_rules! tensors {
    ($type:ty: $($field:ident),*) => {
        impl Tensors for $type {
            fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
                $(self.$field.each(seen);)*
            }
        }
    };
}

tensors!(DeformConv2dBackward<Inner>: x_grad, offset_grad, weight_grad, mask_grad, bias_grad);
tensors!(MaxPool1dBackward<Inner>: x_grad);
tensors!(MaxPool1dWithIndices<Inner>: output, indices);
tensors!(MaxPool2dBackward<Inner>: x_grad);
tensors!(MaxPool2dWithIndices<Inner>: output, indices);

impl Tensors for TensorPrimitive<Inner> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        match self {
            Self::Float(tensor) | Self::QFloat(tensor) => seen(tensor),
        }
    }
}

impl<L: Lazy> Tensors for TensorPrimitive<Observed<L>> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        match self {
            Self::Float(tensor) | Self::QFloat(tensor) => seen(tensor),
        }
    }
}

/// An operation on its way: the tensors that it was given.
pub(super) struct Seen(Option<Vec<u64>>);

impl Seen {
    /// An operation begins.
    pub(super) fn of(name: &'static str, inputs: &[&dyn Tensors]) -> Self {
        Self(trace::is_on().then(|| {
            looks::asking(name);
            let mut numbers = Vec::new();
            for input in inputs {
                input.each(&mut |tensor| numbers.extend(tensor.number()));
            }
            numbers
        }))
    }

    /// It made this.
    pub(super) fn made<T: Tensors>(self, name: &str, made: T) -> T {
        let Some(inputs) = self.0 else { return made };
        let mut outputs = Vec::new();
        made.each(&mut |tensor| outputs.extend(tensor.made()));
        looks::asked(name, &outputs);
        trace::operation(name, inputs, outputs);
        let mut looked = false;
        made.each(&mut |tensor| {
            if !std::mem::replace(&mut looked, true) {
                tensor.look();
            }
        });
        made
    }
}

/// The host is about to read a tensor, for which fusion runs all that it put off.
pub(super) fn read(tensor: &dyn Tensors) {
    if trace::is_on() {
        looks::forget();
        tensor.each(&mut |tensor| tensor.look());
    }
}
