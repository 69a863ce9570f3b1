//! Writes operations to the trace: their inputs, their outputs, and from where the program called them.

use burn_backend21::DType;
use burn_backend21::ops::{
    DeformConv2dBackward, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
};
use burn_cubecl21::CubeRuntime;
use burn_cubecl21::tensor::CubeTensor;
use burn_fusion21::{FusionRuntime, FusionTensor};
use burn21::tensor::{Shape, TensorPrimitive};

use super::tensor::{ObservedTensor, Output};
use super::{Lazy, Observed, looks};
use crate::probe::trace;
use crate::protocol::{HeldTensor, Made};

/// A tensor of the observed backend, of any kind.
pub(in crate::probe::burn_0_21) trait Numbered {
    /// Returns the tensor's number, if the model is traced.
    fn number(&self) -> Option<u64>;

    /// Returns the tensor's number, shape, element type and bytes.
    fn made(&self) -> Option<Made>;

    /// Returns the tensor's memory, if that is known at once.
    fn held(&self) -> Option<HeldTensor>;

    /// Looks at fusion's tensors, after all operations that were asked for so far.
    fn look(&self);
}

impl<R: FusionRuntime> Numbered for FusionTensor<R> {
    fn number(&self) -> Option<u64> {
        Some(self.id.value())
    }

    fn made(&self) -> Option<Made> {
        Some(made(self.id.value(), &self.shape, self.dtype))
    }

    fn held(&self) -> Option<HeldTensor> {
        None
    }

    fn look(&self) {
        looks::send(&self.client, self.number(), false);
    }
}

impl<R: CubeRuntime> Numbered for ObservedTensor<CubeTensor<R>> {
    fn number(&self) -> Option<u64> {
        self.id()
    }

    fn made(&self) -> Option<Made> {
        let tensor = self.inner();
        Some(made(self.id()?, tensor.meta.shape(), tensor.dtype))
    }

    fn held(&self) -> Option<HeldTensor> {
        Some(HeldTensor {
            tensor: self.id()?,
            // Burn shows the number of a piece of memory only in its debug output.
            memory: trace::memory_number(&format!("{:?}", self.inner().handle.memory))?,
        })
    }

    // Without fusion, `at_once` has already written what this look would find.
    fn look(&self) {}
}

fn made(id: u64, shape: &Shape, dtype: DType) -> Made {
    Made {
        id,
        bytes: shape.num_elements() as u64 * dtype.size() as u64,
        shape: shape.iter().map(|side| *side as u64).collect(),
        dtype: dtype.name().to_owned(),
    }
}

/// A value that contains tensors.
pub(super) trait Tensors {
    /// Calls `seen` with each of the tensors.
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered));
}

impl<R: FusionRuntime> Tensors for FusionTensor<R> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        seen(self);
    }
}

impl<R: CubeRuntime> Tensors for ObservedTensor<CubeTensor<R>> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        seen(self);
    }
}

impl<T: Tensors + ?Sized> Tensors for &T {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        (**self).each(seen);
    }
}

impl<T: Tensors> Tensors for Option<T> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        self.iter().for_each(|one| one.each(seen));
    }
}

impl<T: Tensors> Tensors for [T] {
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
        impl<L: Lazy> Tensors for $type {
            fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
                $(self.$field.each(seen);)*
            }
        }
    };
}

tensors!(DeformConv2dBackward<Observed<L>>: x_grad, offset_grad, weight_grad, mask_grad, bias_grad);
tensors!(MaxPool1dBackward<Observed<L>>: x_grad);
tensors!(MaxPool1dWithIndices<Observed<L>>: output, indices);
tensors!(MaxPool2dBackward<Observed<L>>: x_grad);
tensors!(MaxPool2dWithIndices<Observed<L>>: output, indices);

impl<L: Lazy> Tensors for TensorPrimitive<Observed<L>> {
    fn each(&self, seen: &mut dyn FnMut(&dyn Numbered)) {
        match self {
            Self::Float(tensor) | Self::QFloat(tensor) => seen(tensor),
        }
    }
}

/// An operation that has begun: the numbers of its input tensors, if the model is traced.
pub(super) struct Seen(Option<Vec<u64>>);

impl Seen {
    /// Records that an operation begins.
    pub(super) fn new(name: &'static str, inputs: &[&dyn Tensors]) -> Self {
        Self(trace::is_on().then(|| {
            if looks::ARE_FUSED {
                looks::asking(name);
            } else {
                // What the program dropped since the last operation is gone before this one runs.
                looks::at_once(Vec::new());
            }
            let mut numbers = Vec::new();
            for input in inputs {
                input.each(&mut |tensor| numbers.extend(tensor.number()));
            }
            numbers
        }))
    }

    /// Writes the operation to the trace, with the tensors that it made. Returns these as tensors of the observed
    /// backend.
    pub(super) fn made<L: Lazy, T: Output<L>>(self, name: &str, made: T) -> T::Observed
    where
        T::Observed: Tensors,
    {
        // A pass without a trace ends here, with nothing but the wrapped tensors.
        let made = made.observed();
        let Some(inputs) = self.0 else { return made };
        let (mut outputs, mut held) = (Vec::new(), Vec::new());
        made.each(&mut |tensor| {
            outputs.extend(tensor.made());
            held.extend(tensor.held());
        });
        looks::asked(name, &outputs);
        trace::operation(name, inputs, outputs);
        if !looks::ARE_FUSED {
            looks::at_once(held);
            return made;
        }
        let mut looked = false;
        made.each(&mut |tensor| {
            // One look sees the whole table, so only the first output asks for one.
            if !std::mem::replace(&mut looked, true) {
                tensor.look();
            }
        });
        made
    }
}

/// Looks before the host reads a tensor, because fusion then runs all postponed operations.
pub(super) fn read(tensor: &dyn Tensors) {
    if trace::is_on() {
        // A read makes fusion run everything, so no history says what comes next.
        looks::forget();
        if !looks::ARE_FUSED {
            looks::at_once(Vec::new());
        }
        tensor.each(&mut |tensor| tensor.look());
    }
}
