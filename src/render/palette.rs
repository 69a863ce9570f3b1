//! The names, meanings and colours of categories and phases, shared by all pictures.
//!
//! The colours are those of Okabe and Ito, which people with any colour vision can distinguish. Memory outside tensors
//! is grey.

use crate::explain::Category;
use crate::report::Phase;

/// How a picture shows a category or a phase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swatch {
    /// The name in JSON and in style sheets.
    pub(crate) key: &'static str,
    /// The name that users see.
    pub(crate) label: &'static str,
    /// The colour as `#rrggbb`; readable on white and on black.
    pub(crate) color: &'static str,
    /// A short description.
    pub(crate) meaning: &'static str,
}

impl Swatch {
    /// Returns the number, from 16, of the terminal colour that is nearest to [`color`](Self::color).
    ///
    /// Uses the palette of 256 colours, because nearly all terminals have it. Whether a terminal shows all 16 million
    /// colours cannot be detected.
    pub(crate) const fn terminal(&self) -> u8 {
        let color = self.color.as_bytes();
        let wanted = [channel(color, 1), channel(color, 3), channel(color, 5)];
        // Users choose the colours below 16 in their terminal, so their values are unknown.
        let (mut nearest, mut least) = (16, u32::MAX);
        let mut number = 16;
        // `while`, because a `const fn` cannot use `for`.
        while number < 256 {
            let has = terminal_color(number);
            let distance = square(wanted[0], has[0]) + square(wanted[1], has[1]) + square(wanted[2], has[2]);
            if distance < least {
                (nearest, least) = (number, distance);
            }
            number += 1;
        }
        nearest as u8
    }
}

/// Returns the value of two hexadecimal digits of `#rrggbb`.
const fn channel(color: &[u8], at: usize) -> u32 {
    const fn digit(byte: u8) -> u32 {
        match byte {
            b'0'..=b'9' => (byte - b'0') as u32,
            b'a'..=b'f' => (byte - b'a') as u32 + 10,
            _ => panic!("a colour must be #rrggbb in lower case"),
        }
    }
    digit(color[at]) * 16 + digit(color[at + 1])
}

/// Returns red, green and blue of a colour from 16 to 255: first a cube with six levels per side, then 24 greys.
const fn terminal_color(number: u32) -> [u32; 3] {
    // xterm's levels, which are not evenly spaced: the first step is wider.
    const LEVELS: [u32; 6] = [0, 95, 135, 175, 215, 255];
    if number >= 232 {
        return [8 + (number - 232) * 10; 3];
    }
    let at = number - 16;
    [
        LEVELS[(at / 36) as usize],
        LEVELS[(at / 6 % 6) as usize],
        LEVELS[(at % 6) as usize],
    ]
}

const fn square(one: u32, other: u32) -> u32 {
    let distance = one.abs_diff(other);
    distance * distance
}

/// All phases, in order.
pub(crate) const PHASES: [Phase; 9] = [
    Phase::Context,
    Phase::Model,
    Phase::Batch,
    Phase::Forward,
    Phase::Backward,
    Phase::Optimizer,
    Phase::Training,
    Phase::Validation,
    Phase::Between,
];

/// Returns how pictures show a category.
pub(crate) const fn category(category: Category) -> Swatch {
    // The keys are the names in JSON, too. No two colours may map
    // to one colour of a terminal; a test holds both.
    let (key, color, meaning) = match category {
        Category::Parameter => ("parameter", "#0072b2", "learnable parameters"),
        Category::Buffer => ("buffer", "#56b4e9", "parameters that receive no gradient"),
        Category::Gradient => ("gradient", "#d55e00", "gradients of parameters"),
        Category::OptimizerState => (
            "optimizer_state",
            "#cc79a7",
            "values that the optimizer keeps from step to step",
        ),
        Category::Activation => ("activation", "#009e73", "outputs of the forward phase"),
        Category::ActivationGradient => (
            "activation_gradient",
            "#e69f00",
            "intermediate gradients that the backward phase makes",
        ),
        Category::Input => ("input", "#f0e442", "the batch"),
        Category::Workspace => (
            "workspace",
            "#7b4fb5",
            "temporary memory of an operation, or of a phase outside layers",
        ),
        Category::Alignment => ("alignment", "#a9adb3", "padding of rows and tensors"),
        Category::Unattributed => ("unattributed", "#71767d", "purpose unknown"),
        Category::Fragmentation => ("fragmentation", "#c9ccd1", "reserved minus live memory"),
        Category::Context => (
            "context",
            "#545b66",
            "memory that the process holds before its first tensor",
        ),
        Category::Modules => ("modules", "#8a92a0", "loaded kernels"),
    };
    Swatch {
        key,
        label: category.label(),
        color,
        meaning,
    }
}

/// Returns how pictures show a phase.
pub(crate) const fn phase(phase: Phase) -> Swatch {
    let (key, label, color, meaning) = match phase {
        Phase::Context => ("context", "context", "#8a92a0", "before the model is created"),
        Phase::Model => (
            "model",
            "model",
            "#0072b2",
            "the model is created and moved to the device",
        ),
        Phase::Batch => ("batch", "batch", "#b8a900", "the inputs of the step are created"),
        Phase::Forward => ("forward", "forward", "#009e73", "from inputs to loss"),
        Phase::Backward => ("backward", "backward", "#d55e00", "from loss to gradients"),
        Phase::Optimizer => ("optimizer", "optimizer", "#cc79a7", "gradients applied to parameters"),
        Phase::Training => (
            "training",
            "training",
            "#e69f00",
            "a step of an epoch: forward, backward and optimizer",
        ),
        Phase::Validation => ("validation", "validation", "#56b4e9", "a step of the validation"),
        Phase::Between => ("between", "between", "#a9adb3", "between two parts of an epoch"),
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
        for each in Category::STACK.into_iter().chain(Category::ABOVE) {
            assert_eq!(serde_json::to_value(each).unwrap(), category(each).key);
            assert_eq!(Category::STACK.contains(&each), each.is_live());
        }
        for each in PHASES {
            assert_eq!(serde_json::to_value(each).unwrap(), phase(each).key);
        }
    }

    #[test]
    fn no_two_categories_have_one_colour() {
        let mut colors: Vec<_> = Category::STACK
            .into_iter()
            .chain(Category::ABOVE)
            .map(|each| category(each).color)
            .collect();
        colors.sort_unstable();
        colors.dedup();
        assert_eq!(colors.len(), Category::STACK.len() + Category::ABOVE.len());
    }

    #[test]
    fn a_terminal_has_the_same_colours_as_nearly_as_it_can_and_none_twice() {
        // The numbers and values of xterm's palette of 256 colours.
        let nearest = |wanted| category(wanted).terminal();
        assert_eq!(nearest(Category::Parameter), 25, "#005faf for #0072b2");
        assert_eq!(nearest(Category::OptimizerState), 175, "#d787af for #cc79a7");
        assert_eq!(nearest(Category::ActivationGradient), 178, "#d7af00 for #e69f00");
        assert_eq!(nearest(Category::Fragmentation), 252, "#d0d0d0 for #c9ccd1");
        let mut numbers: Vec<_> = Category::STACK
            .into_iter()
            .chain(Category::ABOVE)
            .map(nearest)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(
            numbers.len(),
            Category::STACK.len() + Category::ABOVE.len(),
            "{numbers:?}"
        );
        for wanted in Category::STACK.into_iter().chain(Category::ABOVE) {
            let color = category(wanted).color.as_bytes();
            let has = terminal_color(nearest(wanted).into());
            for (part, has) in [1, 3, 5].map(|at| channel(color, at)).into_iter().zip(has) {
                assert!(part.abs_diff(has) <= 48, "{wanted:?}: {part} is shown as {has}");
            }
        }
    }
}
