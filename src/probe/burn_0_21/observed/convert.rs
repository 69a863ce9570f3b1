//! What holds tensors of a backend is of another type for each, though the tensors are the same.

use burn::tensor::TensorPrimitive;
use burn_backend::ops::{
    DeformConv2dBackward, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
};

use super::{Inner, Lazy, Observed};

/// The same for the other backend.
pub(super) trait Convert<Other> {
    /// Makes it so.
    fn convert(self) -> Other;
}

macro_rules! same {
    ($name:ident { $($field:ident),* }) => {
        impl<L: Lazy> Convert<$name<Observed<L>>> for $name<Inner> {
            fn convert(self) -> $name<Observed<L>> {
                $name { $($field: self.$field),* }
            }
        }
    };
}

same!(DeformConv2dBackward {
    x_grad,
    offset_grad,
    weight_grad,
    mask_grad,
    bias_grad
});
same!(MaxPool1dBackward { x_grad });
same!(MaxPool1dWithIndices { output, indices });
same!(MaxPool2dBackward { x_grad });
same!(MaxPool2dWithIndices { output, indices });

impl<L: Lazy> Convert<TensorPrimitive<Observed<L>>> for TensorPrimitive<Inner> {
    fn convert(self) -> TensorPrimitive<Observed<L>> {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        }
    }
}

impl<L: Lazy> Convert<TensorPrimitive<Inner>> for TensorPrimitive<Observed<L>> {
    fn convert(self) -> TensorPrimitive<Inner> {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        }
    }
}
