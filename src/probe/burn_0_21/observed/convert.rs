//! What holds tensors of a backend is of another type for each, though the tensors are the same.

use burn::tensor::TensorPrimitive;
use burn_backend::ops::{
    DeformConv2dBackward, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
};

use super::{Inner, Observed};

/// The same for the other backend.
pub(super) trait Convert {
    /// What it is there.
    type Other;

    /// Makes it so.
    fn convert(self) -> Self::Other;
}

macro_rules! same {
    ($name:ident { $($field:ident),* }) => {
        impl Convert for $name<Inner> {
            type Other = $name<Observed>;

            fn convert(self) -> Self::Other {
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

impl Convert for TensorPrimitive<Inner> {
    type Other = TensorPrimitive<Observed>;

    fn convert(self) -> Self::Other {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        }
    }
}

impl Convert for TensorPrimitive<Observed> {
    type Other = TensorPrimitive<Inner>;

    fn convert(self) -> Self::Other {
        match self {
            Self::Float(tensor) => TensorPrimitive::Float(tensor),
            Self::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
        }
    }
}
