//! Who asked for an operation: the user's line, the modules around it, and the function of Burn that they called.

use std::collections::HashMap;
use std::path::Path;

use super::trace::{Operation, ReadTrace};
use super::types::SourceLocation;
use crate::protocol::SourceSymbol;

/// A call of a module's function on the way to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleCall {
    /// The module's type: `Conv2d`.
    pub(super) kind: String,
    /// The stack address of the call, which distinguishes it from other calls.
    pub(super) stack: u64,
}

/// Who asked for an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TracedCall {
    /// The innermost line of the user's own code.
    pub(super) source: Option<SourceLocation>,
    /// The lines of the user's own code that called the function of `source`, the innermost first.
    pub(super) callers: Vec<SourceLocation>,
    /// The modules, the outermost first.
    pub(super) modules: Vec<ModuleCall>,
    /// The function that the innermost module called, such as `flatten`, and its stack address.
    pub(super) function: Option<(String, u64)>,
    /// The address in the innermost module from which it called that function.
    pub(super) site: u64,
    /// Whether the operation is part of one of Burn's losses. A model may compute its loss in a function of its own.
    pub(super) is_loss: bool,
}

/// Reads the calls of a trace. It reads each stack once.
pub(super) struct Calls<'a> {
    trace: &'a ReadTrace,
    root: &'a Path,
    /// Known calls, by stack.
    known: HashMap<u32, TracedCall>,
    /// Known calls of backward operations, by their stack and by the stack of the forward call.
    linked: HashMap<(u32, u32), TracedCall>,
}

impl<'a> Calls<'a> {
    /// Creates a reader. `root` is the folder of the user's own code.
    pub(super) fn new(trace: &'a ReadTrace, root: &'a Path) -> Self {
        Self {
            trace,
            root,
            known: HashMap::new(),
            linked: HashMap::new(),
        }
    }

    /// Finds who asked for an operation. A gradient gets the lines of its forward call, if that call is known.
    pub(super) fn of(&mut self, operation: &Operation) -> TracedCall {
        let Some(forward) = operation.forward else {
            return self.by_stack(operation.stack);
        };
        if let Some(call) = self.linked.get(&(operation.stack, forward)) {
            return call.clone();
        }
        let (backward, forward_call) = (self.by_stack(operation.stack), self.by_stack(forward));
        // The line of `loss.backward()` says little, but more than no line.
        let call = match forward_call.source {
            None => backward,
            Some(_) => TracedCall {
                source: forward_call.source,
                callers: forward_call.callers,
                ..backward
            },
        };
        self.linked.insert((operation.stack, forward), call.clone());
        call
    }

    fn by_stack(&mut self, stack: u32) -> TracedCall {
        if let Some(call) = self.known.get(&stack) {
            return call.clone();
        }
        let call = self.read(stack);
        self.known.insert(stack, call.clone());
        call
    }

    fn read(&self, stack: u32) -> TracedCall {
        let mut call = TracedCall::default();
        // The outermost frame first.
        let mut frames: Vec<_> = self.trace.frames_of(stack).collect();
        frames.reverse();
        for (frame, symbol) in frames {
            // The loops and the observed backend stand between the user's code and Burn, and are neither.
            if self.is_own(symbol) {
                continue;
            }
            if let Some(source) = self.source(symbol)
                && let Some(caller) = call.source.replace(source)
            {
                call.callers.insert(0, caller);
            }
            let path = without_generics(&symbol.function);
            call.is_loss |= is_loss(&path);
            if let Some(kind) = module_type(&path) {
                // `BatchNorm::forward` calls `forward_train` of the same module: that is one call.
                let same = call.modules.last().is_some_and(|last| last.kind == kind);
                if !same {
                    call.modules.push(ModuleCall {
                        kind,
                        stack: frame.stack,
                    });
                }
                // A function that called this module is further out than the module itself, so it no longer
                // counts.
                call.function = None;
                call.site = frame.address;
            } else if call.function.is_none() && is_of_burns_interface(&path) {
                let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                call.function = Some((name, frame.stack));
            }
        }
        call
    }

    /// Whether a function belongs to cargo-vram.
    fn is_own(&self, symbol: &SourceSymbol) -> bool {
        let home = symbol
            .file
            .as_ref()
            .is_some_and(|file| file.starts_with(&self.trace.home));
        // Without debug information there is no file, and only the name shows it.
        home || symbol.function.starts_with("cargo_vram::")
    }

    fn source(&self, symbol: &SourceSymbol) -> Option<SourceLocation> {
        // Code from `#[derive(Module)]` has the user's line, but the user did not write it.
        if symbol.function.contains(" as burn_core::module::") {
            return None;
        }
        // Code outside of the workspace belongs to a dependency. The user's line is the one that called it.
        let file = Path::new(symbol.file.as_ref()?).strip_prefix(self.root).ok()?;
        Some(SourceLocation {
            file: file.to_string_lossy().into_owned().into(),
            line: symbol.line?,
            function: symbol.function.clone().into(),
        })
    }
}

/// Removes the generics of a path: `a::B<C>::d` becomes `a::B::d`, and `<a::B<C> as e::F>::d` becomes `a::B::d`.
fn without_generics(function: &str) -> String {
    // For a function of a trait, the type that implements the trait counts.
    let function = function.strip_prefix('<').unwrap_or(function);
    let mut path = String::new();
    let mut depth = 0_u32;
    let mut is_trait = false;
    for word in function.split_inclusive([' ', '<', '>']) {
        let (text, end) = word.split_at(word.len() - word.chars().next_back().map_or(0, char::len_utf8));
        let (text, end) = if [" ", "<", ">"].contains(&end) {
            (text, end)
        } else {
            (word, "")
        };
        if depth == 0 && text == "as" {
            is_trait = true;
        } else if depth == 0 && (!is_trait || text.starts_with("::")) {
            path.push_str(text);
        }
        match end {
            "<" => depth += 1,
            ">" if depth == 0 => is_trait = false,
            ">" => depth -= 1,
            _ => {}
        }
    }
    path
}

/// Returns the type of the module whose function this is: `burn_nn::modules::conv::conv2d::Conv2d::forward` gives
/// `Conv2d`. A module of the user's own is recognised by a function whose name begins with `forward`.
fn module_type(path: &str) -> Option<String> {
    let mut segments = path.rsplit("::");
    let function = segments.next()?;
    let kind = segments.next()?;
    let is_type = kind.starts_with(|c: char| c.is_ascii_uppercase());
    let krate = path.split("::").next().unwrap_or_default();
    let is_module = krate == "burn_nn" || (function.starts_with("forward") && !is_burns(krate));
    (is_type && is_module).then(|| kind.to_owned())
}

/// Whether a function belongs to one of Burn's losses: `burn_nn::loss::cross_entropy::CrossEntropyLoss::forward`.
fn is_loss(path: &str) -> bool {
    let mut segments = path.split("::");
    is_burns(segments.next().unwrap_or_default()) && segments.any(|segment| segment == "loss")
}

fn is_burns(krate: &str) -> bool {
    krate.starts_with("burn_") || krate.starts_with("cube") || ["burn", "core", "std", "alloc"].contains(&krate)
}

/// Whether a function is part of Burn's public tensor interface.
fn is_of_burns_interface(path: &str) -> bool {
    path.starts_with("burn_tensor::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_loses_its_generics_and_keeps_the_type_that_has_the_function() {
        assert_eq!(without_generics("zoo::ResNet<B>::forward"), "zoo::ResNet::forward");
        assert_eq!(
            without_generics("<a::Tensor<B,_,K> as core::ops::arith::Add<E>>::add"),
            "a::Tensor::add"
        );
        assert_eq!(
            without_generics("a::float::<impl b::Numeric<B> for c::Float>::mean"),
            "a::float::::mean"
        );
        assert_eq!(without_generics("main"), "main");
    }

    #[test]
    fn a_loss_is_one_of_burns() {
        for path in [
            "burn_nn::loss::cross_entropy::CrossEntropyLoss::forward",
            "burn_tensor::tensor::loss::cross_entropy_with_logits",
        ] {
            assert!(is_loss(path), "{path}");
        }
        for path in [
            "zoo::loss::Head::forward",
            "burn_nn::modules::linear::Linear::forward",
            "loss",
        ] {
            assert!(!is_loss(path), "{path}");
        }
    }

    #[test]
    fn modules_are_burns_own_and_whoever_goes_forward() {
        assert_eq!(
            module_type("burn_nn::modules::norm::batch::BatchNorm::forward_train").as_deref(),
            Some("BatchNorm")
        );
        assert_eq!(module_type("zoo::resnet18::ResNet::forward").as_deref(), Some("ResNet"));
        assert_eq!(module_type("zoo::resnet18::ResNet::new"), None);
        assert_eq!(module_type("zoo::dense_block"), None);
    }
}
