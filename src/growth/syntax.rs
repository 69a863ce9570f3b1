//! What the functions of a source file bind and call, to follow a tensor that is kept longer than before.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The functions of a file.
#[derive(Debug, Default)]
pub(super) struct SourceFunctions {
    functions: Vec<SourceFunction>,
}

/// A function or method, with everything within it.
#[derive(Debug)]
pub(super) struct SourceFunction {
    pub(super) name: String,
    /// The first and the last line.
    pub(super) lines: (u32, u32),
    pub(super) parameters: BTreeSet<String>,
    bindings: Vec<Binding>,
    calls: Vec<FunctionCall>,
}

/// A statement that gives a value a name.
#[derive(Debug)]
struct Binding {
    lines: (u32, u32),
    names: BTreeSet<String>,
}

/// A call, with the identifiers in its receiver and its arguments.
#[derive(Debug)]
struct FunctionCall {
    name: String,
    identifiers: BTreeSet<String>,
}

impl SourceFunctions {
    /// Parses a file; `None` if it is not Rust that this version of `syn` knows.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let file = syn::parse_file(text).ok()?;
        let mut functions = Self::default();
        functions.visit_file(&file);
        Some(functions)
    }

    /// Returns the functions around a line, the innermost first.
    pub(super) fn at(&self, line: u32) -> impl Iterator<Item = &SourceFunction> {
        // A function is visited before those within it.
        self.functions.iter().rev().filter(move |function| function.has(line))
    }

    /// Returns the functions of this name.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SourceFunction> {
        self.functions.iter().filter(move |function| function.name == name)
    }

    fn add(&mut self, signature: &syn::Signature, block: &syn::Block, whole: (u32, u32)) {
        let mut within = Within::default();
        within.visit_block(block);
        let parameters = signature.inputs.iter().flat_map(|input| match input {
            syn::FnArg::Typed(typed) => pattern_names(&typed.pat),
            syn::FnArg::Receiver(_) => BTreeSet::new(),
        });
        self.functions.push(SourceFunction {
            name: signature.ident.to_string(),
            lines: whole,
            parameters: parameters.collect(),
            bindings: within.bindings,
            calls: within.calls,
        });
    }
}

impl SourceFunction {
    pub(super) const fn has(&self, line: u32) -> bool {
        self.lines.0 <= line && line <= self.lines.1
    }

    /// Returns the names that the innermost statement of a line binds.
    pub(super) fn bound_at(&self, line: u32) -> BTreeSet<String> {
        let around = self
            .bindings
            .iter()
            .filter(|binding| binding.lines.0 <= line && line <= binding.lines.1);
        let innermost = around.min_by_key(|binding| binding.lines.1 - binding.lines.0);
        innermost.map(|binding| binding.names.clone()).unwrap_or_default()
    }

    /// Returns the names of the functions that are called with one of these identifiers.
    pub(super) fn called_with(&self, identifiers: &BTreeSet<String>) -> BTreeSet<&str> {
        let calls = self
            .calls
            .iter()
            .filter(|call| !call.identifiers.is_disjoint(identifiers));
        calls.map(|call| call.name.as_str()).collect()
    }
}

impl<'ast> Visit<'ast> for SourceFunctions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block, lines(item));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block, lines(item));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block, lines(item));
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Collects the bindings and calls within a function.
#[derive(Default)]
struct Within {
    bindings: Vec<Binding>,
    calls: Vec<FunctionCall>,
}

impl<'ast> Visit<'ast> for Within {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        self.bindings.push(Binding {
            lines: lines(local),
            names: pattern_names(&local.pat),
        });
        visit::visit_local(self, local);
    }

    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        self.bindings.push(Binding {
            lines: lines(assign),
            names: identifiers(&assign.left),
        });
        visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && let Some(last) = path.path.segments.last()
        {
            self.calls.push(FunctionCall {
                name: last.ident.to_string(),
                identifiers: call.args.iter().flat_map(identifiers).collect(),
            });
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.calls.push(FunctionCall {
            name: call.method.to_string(),
            identifiers: call.args.iter().flat_map(identifiers).collect(),
        });
        visit::visit_expr_method_call(self, call);
    }
}

fn line(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn lines(item: &impl Spanned) -> (u32, u32) {
    let span = item.span();
    (line(span.start().line), line(span.end().line))
}

fn pattern_names(pattern: &syn::Pat) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
            self.0.insert(pattern.ident.to_string());
            visit::visit_pat_ident(self, pattern);
        }
    }
    let mut names = Names(BTreeSet::new());
    names.visit_pat(pattern);
    names.0
}

/// Returns the identifiers of an expression, those in macro calls included.
fn identifiers(expression: &syn::Expr) -> BTreeSet<String> {
    struct Identifiers(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Identifiers {
        fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
            self.0.insert(ident.to_string());
        }

        fn visit_macro(&mut self, call: &'ast syn::Macro) {
            collect(call.tokens.clone(), &mut self.0);
            visit::visit_macro(self, call);
        }
    }
    fn collect(tokens: TokenStream, into: &mut BTreeSet<String>) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    into.insert(ident.to_string());
                }
                TokenTree::Group(group) => collect(group.stream(), into),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
    let mut identifiers = Identifiers(BTreeSet::new());
    identifiers.visit_expr(expression);
    identifiers.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
impl Trainer {
    fn step(&mut self, batch: Batch) {
        let output = self
            .model
            .forward(batch.images);
        self.metric.update(output.clone());
        let loss = loss(output);
    }
}

fn free(kept: &mut Vec<Tensor>, loss: Tensor) {
    kept.push(loss);
}
";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_line_within_a_statement_has_the_names_that_the_statement_binds() {
        let functions = SourceFunctions::parse(TEXT).unwrap();
        let step = functions.at(5).next().unwrap();
        assert_eq!((step.name.as_str(), step.lines), ("step", (2, 8)));
        assert_eq!(step.bound_at(5), set(&["output"]));
        assert_eq!(step.bound_at(6), set(&[]));
        assert_eq!(step.parameters, set(&["batch"]));
    }

    #[test]
    fn calls_are_found_by_the_names_that_they_get() {
        let functions = SourceFunctions::parse(TEXT).unwrap();
        let step = functions.at(3).next().unwrap();
        let called: Vec<_> = step.called_with(&set(&["output"])).into_iter().collect();
        assert_eq!(called, ["loss", "update"]);
        assert_eq!(
            functions.named("free").next().unwrap().parameters,
            set(&["kept", "loss"])
        );
        assert!(SourceFunctions::parse("fn (").is_none());
    }
}
