//! Reading mappings and scalars of the tree, with one report for each mistake.

use std::collections::{BTreeSet, HashMap};

use super::problem::{Problem, Problems};
use super::scalar::{Bad, size};
use super::source::{Source, Span, Spanned};
use super::tree::{Key, Kind, Node};
use super::types::Limit;
use crate::bytes::Bytes;
use crate::names::{quoted, suggest};

/// The entries of a mapping whose keys are names that the user chose: none twice.
pub(super) type Entries<'t> = Vec<(&'t Key, &'t Node)>;

/// The entries of a mapping whose keys are known: none twice, none unknown.
pub(super) struct Fields<'t>(HashMap<&'t str, (&'t Key, &'t Node)>);

impl<'t> Fields<'t> {
    pub(super) fn get(&self, key: &str) -> Option<&'t Node> {
        self.0.get(key).map(|&(_, node)| node)
    }

    fn key(&self, key: &str) -> Option<Span> {
        self.0.get(key).map(|(key, _)| key.span)
    }
}

/// Reads the tree and keeps what is wrong with it.
pub(super) struct Reader<'s> {
    pub(super) source: &'s Source,
    pub(super) problems: Problems,
}

impl Reader<'_> {
    /// A mapping with names of the user's own. `what` is the key it belongs to, `example` a line that would be right.
    pub(super) fn entries<'t>(&mut self, node: &'t Node, what: &str, example: &str) -> Option<Entries<'t>> {
        let Kind::Mapping(entries) = &node.kind else {
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
                    Problem::new(
                        "budgets::duplicate-key",
                        format!("the key {} stands here twice", quoted(&key.text)),
                    )
                    .at(key.span, "again here")
                    .at(first, "first here")
                    .help("keep one of the two"),
                ),
            }
        }
        Some(unique)
    }

    /// A mapping with known keys.
    pub(super) fn fields<'t>(
        &mut self,
        node: &'t Node,
        what: &str,
        known: &[&str],
        example: &str,
    ) -> Option<Fields<'t>> {
        let entries = self.entries(node, what, example)?;
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
            let mut problem = Problem::new(
                "budgets::unknown-key",
                format!("{} is not a key of {what}", quoted(&key.text)),
            )
            .at(key.span, "unknown key");
            if let Some(help) = suggest(&key.text, known.iter().copied()) {
                problem = problem.help(help);
            }
            self.problems.push(problem);
        }
        Some(Fields(
            entries
                .into_iter()
                .map(|(key, node)| (key.text.as_str(), (key, node)))
                .collect(),
        ))
    }

    /// A scalar, and what `parse` makes of it.
    pub(super) fn scalar<T>(
        &mut self,
        node: &Node,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, Bad>,
        expected: &str,
        example: &str,
    ) -> Option<Spanned<T>> {
        let Kind::Scalar(text) = &node.kind else {
            self.wrong_type(node, what, expected, example);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Spanned { value, span: node.span }),
            Err(Bad { code, message, help }) => {
                self.problems
                    .push(Problem::new(code, message).at(node.span, "here").help(help));
                None
            }
        }
    }

    /// A size, or a mapping of sizes to warn and fail above.
    pub(super) fn size_limit(&mut self, node: &Node, metric: &str) -> Option<Limit<Bytes>> {
        let what = format!("`{metric}`");
        if matches!(node.kind, Kind::Scalar(_)) {
            let fail = self.size(node, &what)?;
            return Some(Limit {
                warn: None,
                fail: Some(fail),
            });
        }
        let example = format!("`{metric}: 2 GiB` or `{metric}: {{ fail: 2 GiB, warn: 1.8 GiB }}`");
        if !matches!(node.kind, Kind::Mapping(_)) {
            self.wrong_type(node, &what, "a size or a mapping", &example);
            return None;
        }
        let fields = self.fields(node, &what, &["fail", "warn"], &example)?;
        self.warn_and_fail(&fields, node.span, &what, &example, |reader, node, what| {
            reader.size(node, what)
        })
    }

    /// `warn` and `fail` of a mapping, the first not above the second.
    pub(super) fn warn_and_fail<T: Ord + Copy>(
        &mut self,
        fields: &Fields<'_>,
        span: Span,
        what: &str,
        example: &str,
        mut parse: impl FnMut(&mut Self, &Node, &str) -> Option<Spanned<T>>,
    ) -> Option<Limit<T>> {
        if fields.key("warn").or(fields.key("fail")).is_none() {
            self.problems.push(
                Problem::new("budgets::no-limit", format!("{what} has neither `fail` nor `warn`"))
                    .at(span, "limits nothing")
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
                Problem::new(
                    "budgets::warn-above-fail",
                    format!(
                        "{what} warns above {} and fails above {}, so it never warns",
                        text(warn.span),
                        text(fail.span)
                    ),
                )
                .at(warn.span, "warns above this")
                .at(fail.span, "fails above this")
                .help("let `warn` be below `fail`, or leave it out"),
            );
        }
        (warn.is_some() || fail.is_some()).then_some(Limit { warn, fail })
    }

    pub(super) fn size(&mut self, node: &Node, what: &str) -> Option<Spanned<Bytes>> {
        self.scalar(node, what, size, "a size", "a number and a unit, such as `900 MiB`")
    }

    /// A card that exists; otherwise the mistake is reported, and the rest goes on.
    pub(super) fn known_gpu(&mut self, id: &str, span: Span, known: &BTreeSet<&str>) {
        if !known.contains(id) {
            const ALL: &str = "`cargo vram gpus` lists the built-in ones, and `gpu_profiles` describes others";
            let help = suggest(id, known.iter().copied()).map_or(ALL.to_owned(), |near| format!("{near}\n{ALL}"));
            self.problems.push(
                Problem::new("budgets::unknown-gpu", format!("there is no GPU {}", quoted(id)))
                    .at(span, "unknown GPU")
                    .help(help),
            );
        }
    }

    /// A name.
    pub(super) fn text(&mut self, node: &Node, what: &str, example: &str) -> Option<Spanned<String>> {
        self.scalar(node, what, |text| Ok(text.to_owned()), "a name", example)
    }

    pub(super) fn bad_name(&mut self, name: &str, span: Span, help: &str) {
        let message = format!("{} is not a name", quoted(name));
        self.problems
            .push(Problem::new("budgets::bad-name", message).at(span, "here").help(help));
    }

    fn wrong_type(&mut self, node: &Node, what: &str, expected: &str, example: &str) {
        let (found, label) = match &node.kind {
            Kind::Refused => return,
            Kind::Null => ("nothing is given".to_owned(), "without a value"),
            kind => (format!("this is {}", kind.name()), "here"),
        };
        let message = format!("{what} takes {expected}, and {found}");
        let problem = Problem::new("budgets::wrong-type", message).at(node.span, label);
        self.problems.push(problem.help(format!("write {example}")));
    }
}
