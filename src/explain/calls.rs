//! Who asked for an operation: the user's line, the modules around it, and the function of Burn's that they called.

use std::collections::HashMap;
use std::path::Path;

use super::trace::{Operation, Trace};
use super::types::Source;
use crate::protocol::Symbol;

/// A module's function on the way to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleCall {
    /// The module's type: `Conv2d`.
    pub(super) kind: String,
    /// Where the call's stack is, which tells one call from another.
    pub(super) stack: u64,
}

/// Who asked for an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// The innermost line of the user's own code.
    pub(super) source: Option<Source>,
    /// The lines of the user's own code that called its function, the innermost first.
    pub(super) callers: Vec<Source>,
    /// The modules, the outermost first.
    pub(super) modules: Vec<ModuleCall>,
    /// The function that the innermost module called, and where its stack is: `flatten`.
    pub(super) function: Option<(String, u64)>,
    /// From where it called it.
    pub(super) site: u64,
    /// Whether it is part of one of Burn's losses, which a model may compute in a function of its own.
    pub(super) is_loss: bool,
}

/// Reads the calls of a trace; each stack is read once.
pub(super) struct Calls<'a> {
    trace: &'a Trace,
    root: &'a Path,
    /// By the stack.
    known: HashMap<u32, Call>,
    /// Of backward operations: by the stack, and by that of the forward call.
    linked: HashMap<(u32, u32), Call>,
}

impl<'a> Calls<'a> {
    /// `root`: the folder of the user's own code.
    pub(super) fn new(trace: &'a Trace, root: &'a Path) -> Self {
        Self {
            trace,
            root,
            known: HashMap::new(),
            linked: HashMap::new(),
        }
    }

    /// Who asked for it; for a gradient, whose line is known, who asked for what it is the gradient of.
    pub(super) fn of(&mut self, operation: &Operation) -> Call {
        let Some(forward) = operation.forward else {
            return self.by_stack(operation.stack);
        };
        if let Some(call) = self.linked.get(&(operation.stack, forward)) {
            return call.clone();
        }
        let (backward, forward_call) = (self.by_stack(operation.stack), self.by_stack(forward));
        let call = match forward_call.source {
            None => backward,
            Some(_) => Call {
                source: forward_call.source,
                callers: forward_call.callers,
                ..backward
            },
        };
        self.linked.insert((operation.stack, forward), call.clone());
        call
    }

    fn by_stack(&mut self, stack: u32) -> Call {
        if let Some(call) = self.known.get(&stack) {
            return call.clone();
        }
        let call = self.read(stack);
        self.known.insert(stack, call.clone());
        call
    }

    fn read(&self, stack: u32) -> Call {
        let mut call = Call::default();
        // The outermost first.
        let mut frames: Vec<_> = self.trace.frames_of(stack).collect();
        frames.reverse();
        for (frame, symbol) in frames {
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
                let same = call.modules.last().is_some_and(|last| last.kind == kind);
                if !same {
                    call.modules.push(ModuleCall {
                        kind,
                        stack: frame.stack,
                    });
                }
                call.function = None;
                call.site = frame.address;
            } else if call.function.is_none() && is_of_burns_interface(&path) {
                let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                call.function = Some((name, frame.stack));
            }
        }
        call
    }

    /// Whether it is this library's own.
    fn is_own(&self, symbol: &Symbol) -> bool {
        let home = symbol
            .file
            .as_ref()
            .is_some_and(|file| file.starts_with(&self.trace.home));
        home || symbol.function.starts_with("cargo_vram::")
    }

    fn source(&self, symbol: &Symbol) -> Option<Source> {
        // What `#[derive(Module)]` writes is at the user's line, and not the user's.
        if symbol.function.contains(" as burn_core::module::") {
            return None;
        }
        let file = Path::new(symbol.file.as_ref()?).strip_prefix(self.root).ok()?;
        Some(Source {
            file: file.to_string_lossy().into_owned(),
            line: symbol.line?,
            function: symbol.function.clone(),
        })
    }
}

/// `a::B<C>::d` → `a::B::d`, `<a::B<C> as e::F>::d` → `a::B::d`.
fn without_generics(function: &str) -> String {
    // A trait's function: what counts is the type that has it.
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

/// The type of the module whose function it is: `burn_nn::modules::conv::conv2d::Conv2d::forward` → `Conv2d`. A module of the
/// user's own is known by a function `forward…`.
fn module_type(path: &str) -> Option<String> {
    let mut segments = path.rsplit("::");
    let function = segments.next()?;
    let kind = segments.next()?;
    let is_type = kind.starts_with(|c: char| c.is_ascii_uppercase());
    let krate = path.split("::").next().unwrap_or_default();
    let is_module = krate == "burn_nn" || (function.starts_with("forward") && !is_burns(krate));
    (is_type && is_module).then(|| kind.to_owned())
}

/// Whether it is a function of one of Burn's losses: `burn_nn::loss::cross_entropy::CrossEntropyLoss::forward`.
fn is_loss(path: &str) -> bool {
    let mut segments = path.split("::");
    is_burns(segments.next().unwrap_or_default()) && segments.any(|segment| segment == "loss")
}

fn is_burns(krate: &str) -> bool {
    krate.starts_with("burn_") || krate.starts_with("cube") || ["burn", "core", "std", "alloc"].contains(&krate)
}

/// Whether people call it: functions of tensors, and those beside them.
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
