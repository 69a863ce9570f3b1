//! What categories and phases are called in pictures, and their colours: in one place for all of them.
//!
//! The colours are those of Okabe and Ito, which people with any colour vision tell apart, and greys for what is no
//! tensor's.

use crate::explain::Category;
use crate::report::Phase;

/// How something is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swatch {
    /// Its name in JSON and in style sheets.
    pub(crate) key: &'static str,
    /// Its name for people.
    pub(crate) label: &'static str,
    /// `#rrggbb`; readable on white and on black.
    pub(crate) color: &'static str,
    /// What it is, in half a sentence.
    pub(crate) meaning: &'static str,
}

/// What live bytes consist of, from the bottom of a stack to its top: what stays first, so that it lies flat.
pub(crate) const STACK: [Category; 10] = [
    Category::Parameter,
    Category::Buffer,
    Category::OptimizerState,
    Category::Gradient,
    Category::Input,
    Category::Activation,
    Category::ActivationGradient,
    Category::Workspace,
    Category::Alignment,
    Category::Unattributed,
];

/// What is on top of live bytes.
pub(crate) const ABOVE: [Category; 3] = [Category::Fragmentation, Category::Context, Category::Modules];

/// All phases, in order.
pub(crate) const PHASES: [Phase; 6] = [
    Phase::Context,
    Phase::Model,
    Phase::Batch,
    Phase::Forward,
    Phase::Backward,
    Phase::Optimizer,
];

/// How a category is shown.
pub(crate) const fn category(category: Category) -> Swatch {
    let (key, label, color, meaning) = match category {
        Category::Parameter => ("parameter", "parameters", "#0072b2", "learnable parameters"),
        Category::Buffer => ("buffer", "buffers", "#56b4e9", "parameters that receive no gradient"),
        Category::Gradient => ("gradient", "gradients", "#d55e00", "gradients of parameters"),
        Category::OptimizerState => (
            "optimizer_state",
            "optimizer state",
            "#cc79a7",
            "what the optimizer keeps from step to step",
        ),
        Category::Activation => ("activation", "activations", "#009e73", "what forward makes"),
        Category::ActivationGradient => (
            "activation_gradient",
            "activation gradients",
            "#e69f00",
            "what backward makes on its way to the parameters' gradients",
        ),
        Category::Input => ("input", "inputs", "#f0e442", "the batch"),
        Category::Workspace => (
            "workspace",
            "workspace",
            "#7b4fb5",
            "held within an operation, or within a phase for no layer",
        ),
        Category::Alignment => ("alignment", "alignment", "#a9adb3", "rows and tensors are rounded up"),
        Category::Unattributed => ("unattributed", "unattributed", "#71767d", "not known what it is for"),
        Category::Fragmentation => ("fragmentation", "fragmentation", "#c9ccd1", "reserved less live"),
        Category::Context => (
            "context",
            "context",
            "#545b66",
            "what the process holds before its first tensor",
        ),
        Category::Modules => ("modules", "modules", "#8a92a0", "what loaded kernels take"),
    };
    Swatch {
        key,
        label,
        color,
        meaning,
    }
}

/// How a phase is shown.
pub(crate) const fn phase(phase: Phase) -> Swatch {
    let (key, label, color, meaning) = match phase {
        Phase::Context => ("context", "context", "#8a92a0", "before the model is made"),
        Phase::Model => ("model", "model", "#0072b2", "the model is made and moved to the device"),
        Phase::Batch => ("batch", "batch", "#b8a900", "the step's inputs are made"),
        Phase::Forward => ("forward", "forward", "#009e73", "from inputs to loss"),
        Phase::Backward => ("backward", "backward", "#d55e00", "from loss to gradients"),
        Phase::Optimizer => ("optimizer", "optimizer", "#cc79a7", "gradients applied to parameters"),
    };
    Swatch {
        key,
        label,
        color,
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for each in STACK.into_iter().chain(ABOVE) {
            assert_eq!(serde_json::to_value(each).unwrap(), category(each).key);
            assert_eq!(STACK.contains(&each), each.is_live());
        }
        for each in PHASES {
            assert_eq!(serde_json::to_value(each).unwrap(), phase(each).key);
        }
    }

    #[test]
    fn no_two_categories_have_one_colour() {
        let mut colors: Vec<_> = STACK
            .into_iter()
            .chain(ABOVE)
            .map(|each| category(each).color)
            .collect();
        colors.sort_unstable();
        colors.dedup();
        assert_eq!(colors.len(), STACK.len() + ABOVE.len());
    }
}
