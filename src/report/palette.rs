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

impl Swatch {
    /// The colour of a terminal's 256 that is nearest to [`color`](Self::color): its number, from 16.
    ///
    /// Terminals that show all 16 million colours cannot be told from those that do not; nearly all have these 256.
    pub(crate) const fn terminal(&self) -> u8 {
        let color = self.color.as_bytes();
        let wanted = [channel(color, 1), channel(color, 3), channel(color, 5)];
        // Below 16 is what users choose for their terminal, so nothing is known of those.
        let (mut nearest, mut least) = (16, u32::MAX);
        let mut number = 16;
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

/// Two hexadecimal digits of `#rrggbb`.
const fn channel(color: &[u8], at: usize) -> u32 {
    const fn digit(byte: u8) -> u32 {
        match byte {
            b'0'..=b'9' => (byte - b'0') as u32,
            b'a'..=b'f' => (byte - b'a') as u32 + 10,
            _ => panic!("a colour is #rrggbb, in small letters"),
        }
    }
    digit(color[at]) * 16 + digit(color[at + 1])
}

/// Red, green and blue of one of the colours from 16 to 255: a cube of six levels a side, then 24 greys.
const fn terminal_color(number: u32) -> [u32; 3] {
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

    #[test]
    fn a_terminal_has_the_same_colours_as_nearly_as_it_can_and_none_twice() {
        // As xterm's table of 256 colours has them.
        let nearest = |wanted| category(wanted).terminal();
        assert_eq!(nearest(Category::Parameter), 25, "#005faf for #0072b2");
        assert_eq!(nearest(Category::OptimizerState), 175, "#d787af for #cc79a7");
        assert_eq!(nearest(Category::ActivationGradient), 178, "#d7af00 for #e69f00");
        assert_eq!(nearest(Category::Fragmentation), 252, "#d0d0d0 for #c9ccd1");
        let mut numbers: Vec<_> = STACK.into_iter().chain(ABOVE).map(nearest).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), STACK.len() + ABOVE.len(), "{numbers:?}");
        for wanted in STACK.into_iter().chain(ABOVE) {
            let color = category(wanted).color.as_bytes();
            let has = terminal_color(nearest(wanted).into());
            for (part, has) in [1, 3, 5].map(|at| channel(color, at)).into_iter().zip(has) {
                assert!(part.abs_diff(has) <= 48, "{wanted:?}: {part} is shown as {has}");
            }
        }
    }
}
