//! Reads mappings and scalars of the tree, and reports each mistake once.

use std::collections::{BTreeSet, HashMap};

use super::problem::{BudgetProblem, Problems};
use super::scalar::{Bad, size};
use super::source::{BudgetText, Span, Spanned};
use super::tree::{Key, Node, NodeKind};
use super::types::Limit;
use crate::bytes::Bytes;
use crate::names::{quoted, suggest};

/// The entries of a mapping whose keys are names that the user chose. Each name occurs once.
pub(super) type Entries<'t> = Vec<(&'t Key, &'t Node)>;

/// The entries of a mapping with a fixed set of keys. Each key occurs once; unknown keys were reported.
pub(super) struct KnownFields<'t>(HashMap<&'t str, (&'t Key, &'t Node)>);

impl<'t> KnownFields<'t> {
    pub(super) fn get(&self, key: &str) -> Option<&'t Node> {
        self.0.get(key).map(|&(_, node)| node)
    }

    fn key(&self, key: &str) -> Option<Span> {
        self.0.get(key).map(|(key, _)| key.span)
    }
}

/// Reads the tree and collects its mistakes.
pub(super) struct FieldReader<'s> {
    pub(super) source: &'s BudgetText,
    pub(super) problems: Problems,
}

impl FieldReader<'_> {
    /// Reads a mapping whose keys the user chose. Messages call it `what` and show `example` as a correct line.
    pub(super) fn entries<'t>(&mut self, node: &'t Node, what: &str, example: &str) -> Option<Entries<'t>> {
        let NodeKind::Mapping(entries) = &node.kind else {
            self.wrong_type(node, what, "a mapping", example);
            return None;
        };
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut unique = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            match seen.get(key.text.as_str()) {
                None => {
                    seen.insert(&key.text, key.span);
                    unique.push((key, node));
                }
                Some(&first) => self.problems.push(
                    BudgetProblem::new("budgets::duplicate-key", format!("duplicate key {}", quoted(&key.text)))
                        .at(key.span, "second here")
                        .at(first, "first here")
                        .help("remove one of the two"),
                ),
            }
        }
        Some(unique)
    }

    /// Reads a mapping with a fixed set of keys, and reports unknown keys.
    pub(super) fn fields<'t>(
        &mut self,
        node: &'t Node,
        what: &str,
        known: &[&str],
        example: &str,
    ) -> Option<KnownFields<'t>> {
        let entries = self.entries(node, what, example)?;
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
            let mut problem = BudgetProblem::new(
                "budgets::unknown-key",
                format!("{} is not a key of {what}", quoted(&key.text)),
            )
            .at(key.span, "unknown key");
            if let Some(help) = suggest(&key.text, known.iter().copied()) {
                problem = problem.help(help);
            }
            self.problems.push(problem);
        }
        Some(KnownFields(
            entries
                .into_iter()
                .map(|(key, node)| (key.text.as_str(), (key, node)))
                .collect(),
        ))
    }

    /// Reads a scalar and converts it with `parse`.
    pub(super) fn scalar<T>(
        &mut self,
        node: &Node,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, Bad>,
        expected: &str,
        example: &str,
    ) -> Option<Spanned<T>> {
        let NodeKind::Scalar(text) = &node.kind else {
            self.wrong_type(node, what, expected, example);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Spanned { value, span: node.span }),
            Err(Bad { code, message, help }) => {
                self.problems
                    .push(BudgetProblem::new(code, message).at(node.span, "here").help(help));
                None
            }
        }
    }

    /// Reads a limit: a size, or a mapping with `fail`, `warn` or both.
    pub(super) fn size_limit(&mut self, node: &Node, metric: &str) -> Option<Limit<Bytes>> {
        let what = format!("`{metric}`");
        if matches!(node.kind, NodeKind::Scalar(_)) {
            let fail = self.size(node, &what)?;
            return Some(Limit {
                warn: None,
                fail: Some(fail),
            });
        }
        let example = format!("`{metric}: 2 GiB` or `{metric}: {{ fail: 2 GiB, warn: 1.8 GiB }}`");
        if !matches!(node.kind, NodeKind::Mapping(_)) {
            self.wrong_type(node, &what, "a size or a mapping", &example);
            return None;
        }
        let fields = self.fields(node, &what, &["fail", "warn"], &example)?;
        self.warn_and_fail(&fields, node.span, &what, &example, |reader, node, what| {
            reader.size(node, what)
        })
    }

    /// Reads `warn` and `fail` of a mapping, and reports a `warn` above `fail`.
    pub(super) fn warn_and_fail<T: Ord + Copy>(
        &mut self,
        fields: &KnownFields<'_>,
        span: Span,
        what: &str,
        example: &str,
        mut parse: impl FnMut(&mut Self, &Node, &str) -> Option<Spanned<T>>,
    ) -> Option<Limit<T>> {
        // The keys, not their values: a wrong value is reported by `parse`, and must not count as no limit,
        // too.
        if fields.key("warn").or(fields.key("fail")).is_none() {
            self.problems.push(
                BudgetProblem::new("budgets::no-limit", format!("{what} has neither `fail` nor `warn`"))
                    .at(span, "no limit here")
                    .help(format!("write {example}")),
            );
            return None;
        }
        let warn = fields.get("warn").and_then(|node| parse(self, node, "`warn`"));
        let fail = fields.get("fail").and_then(|node| parse(self, node, "`fail`"));
        if let (Some(warn), Some(fail)) = (warn, fail)
            && warn.value > fail.value
        {
            let text = |span| quoted(self.source.slice(span));
            self.problems.push(
                BudgetProblem::new(
                    "budgets::warn-above-fail",
                    format!(
                        "{what} warns above {} but fails above {}, so it never warns",
                        text(warn.span),
                        text(fail.span)
                    ),
                )
                .at(warn.span, "warns above this")
                .at(fail.span, "fails above this")
                .help("set `warn` below `fail`, or remove `warn`"),
            );
        }
        (warn.is_some() || fail.is_some()).then_some(Limit { warn, fail })
    }

    pub(super) fn size(&mut self, node: &Node, what: &str) -> Option<Spanned<Bytes>> {
        self.scalar(node, what, size, "a size", "a number and a unit, such as `900 MiB`")
    }

    /// Reports a GPU ID that is neither built in nor described in `gpu_profiles`. Reading continues.
    pub(super) fn known_gpu(&mut self, id: &str, span: Span, known: &BTreeSet<&str>) {
        if !known.contains(id) {
            const ALL: &str = "run `cargo vram gpus` to list the built-in GPUs, or add your GPU to `gpu_profiles`";
            let help = suggest(id, known.iter().copied()).map_or(ALL.to_owned(), |near| format!("{near}\n{ALL}"));
            self.problems.push(
                BudgetProblem::new("budgets::unknown-gpu", format!("unknown GPU {}", quoted(id)))
                    .at(span, "not a known GPU")
                    .help(help),
            );
        }
    }

    /// Reads a scalar as text.
    pub(super) fn text(&mut self, node: &Node, what: &str, example: &str) -> Option<Spanned<String>> {
        self.scalar(node, what, |text| Ok(text.to_owned()), "a name", example)
    }

    pub(super) fn bad_name(&mut self, name: &str, span: Span, help: &str) {
        let message = format!("{} is not a valid name", quoted(name));
        self.problems.push(
            BudgetProblem::new("budgets::bad-name", message)
                .at(span, "here")
                .help(help),
        );
    }

    fn wrong_type(&mut self, node: &Node, what: &str, expected: &str, example: &str) {
        let (found, label) = match &node.kind {
            NodeKind::Refused => return,
            NodeKind::Null => ("it has no value".to_owned(), "no value"),
            kind => (format!("this is {}", kind.name()), "here"),
        };
        let message = format!("{what} must be {expected}, but {found}");
        let problem = BudgetProblem::new("budgets::wrong-type", message).at(node.span, label);
        self.problems.push(problem.help(format!("write {example}")));
    }
}
