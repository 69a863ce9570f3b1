//! Parses YAML into a tree whose nodes have positions.
//!
//! It accepts mappings and scalars. It parses lists only to report them, because no key takes one. Anchors, aliases,
//! tags, merge keys and second documents are errors: a reader must see each limit where it applies, and a small file
//! must not expand into a large tree.

use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};

use super::problem::{BudgetProblem, Problems};
use super::source::{BudgetText, Span};

/// The depth limit of nested values. A valid file needs six levels.
const MAX_DEPTH: usize = 16;

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) kind: NodeKind,
}

/// The kind of a value, with its content.
#[derive(Debug)]
pub(super) enum NodeKind {
    /// No value, or `null`.
    Null,
    /// Text, quoted or not. Each key has a fixed type, so `"1"` and `1` mean the same.
    Scalar(String),
    Mapping(Vec<(Key, Node)>),
    /// A list. No key takes a list, so its items are dropped.
    List,
    /// An alias, or a value with a tag. It was reported already, so readers must not report it again.
    Refused,
}

impl NodeKind {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "an empty value",
            Self::Scalar(_) => "a single value",
            Self::Mapping(_) => "a mapping",
            Self::List => "a list",
            Self::Refused => "an unsupported value",
        }
    }
}

/// A key of a mapping.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Span,
}

/// A mistake after which parsing cannot continue. It has been reported.
struct Stop;

/// Parses the document and returns its root. Returns `None` if a mistake stops the parser before the end.
pub(super) fn parse(source: &Arc<BudgetText>, problems: &mut Problems) -> Option<Node> {
    // See docs/design/budget-yaml.md for what serde-saphyr could not do.
    let parser = Parser::new_from_str(source.text());
    Builder {
        parser,
        source,
        problems,
    }
    .document()
    .ok()
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a BudgetText,
    problems: &'a mut Problems,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Node, Stop> {
        loop {
            match self.next()? {
                (Event::StreamStart, _) => {}
                (Event::DocumentStart(_), _) => break,
                (_, span) => return Err(self.empty(span)),
            }
        }
        let (event, span) = self.next()?;
        let root = self.node(event, span, 0)?;
        loop {
            match self.next()? {
                (Event::StreamEnd, span) if matches!(root.kind, NodeKind::Null) => {
                    return Err(self.empty(span));
                }
                (Event::StreamEnd, _) => return Ok(root),
                (Event::DocumentStart(_), span) => {
                    self.problems.push(
                        BudgetProblem::new(
                            "budgets::second-document",
                            "the file has a second YAML document".to_owned(),
                        )
                        .at(span, "starts here")
                        .help("remove this `---`, or move the second document to another file"),
                    );
                    return Err(Stop);
                }
                _ => {}
            }
        }
    }

    fn empty(&mut self, span: Span) -> Stop {
        let start = Span::new(0, span.offset.min(1));
        self.problems.push(
            BudgetProblem::new("budgets::empty", "the file has no budgets".to_owned())
                .at(start, "the file starts here")
                .help("write `version: 1` and your budgets, or delete the file and run `cargo vram init`"),
        );
        Stop
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                // Use lines and columns: the scanner's own index is wrong after some comments.
                let start = self.source.offset(span.start.line(), span.start.col());
                let end = self.source.offset(span.end.line(), span.end.col());
                Ok((event, Span::new(start, end)))
            }
            Some(Err(error)) => {
                self.syntax(&error);
                Err(Stop)
            }
            // Unreachable: the end of the stream comes first, and the caller stops there.
            None => Err(Stop),
        }
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = self.source.offset(error.marker().line(), error.marker().col());
        let width = self
            .source
            .text()
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .filter(|c| !c.is_control())
            .map_or(0, char::len_utf8);
        let span = Span::new(at, at + width);
        let problem = match error.info() {
            // An alias without its anchor never becomes an event: the parser itself refuses it.
            info if info.contains("unknown anchor") => alias(span),
            // The scanner runs ahead of the events, and counts open brackets in eight bits.
            "recursion limit exceeded" => too_deep(span),
            info => BudgetProblem::new("budgets::syntax", format!("invalid YAML: {info}"))
                .at(span, "here")
                .help("fix this first; mistakes after this position are not found until then"),
        };
        self.problems.push(problem);
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Stop> {
        if depth > MAX_DEPTH {
            self.problems.push(too_deep(span));
            return Err(Stop);
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.decorated(anchor, tag.is_some(), span);
                // A quoted `"null"` is text.
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = match (refused, null) {
                    (true, _) => NodeKind::Refused,
                    (false, true) => NodeKind::Null,
                    (false, false) => NodeKind::Scalar(text.into_owned()),
                };
                Ok(Node { span, kind })
            }
            Event::SequenceStart(anchor, tag) => {
                let refused = self.decorated(anchor, tag.is_some(), span);
                loop {
                    let (event, item) = self.next()?;
                    if event == Event::SequenceEnd {
                        let kind = if refused { NodeKind::Refused } else { NodeKind::List };
                        return Ok(Node { span, kind });
                    }
                    // The item is dropped, but mistakes in it are reported together with all others.
                    self.node(event, item, depth + 1)?;
                }
            }
            Event::MappingStart(anchor, tag) => {
                let refused = self.decorated(anchor, tag.is_some(), span);
                let entries = self.entries(depth)?;
                // A block mapping has no bracket to point at, so point at its first key.
                let span = if span.len == 0 {
                    entries.first().map_or(span, |(key, _)| key.span)
                } else {
                    span
                };
                let kind = if refused {
                    NodeKind::Refused
                } else {
                    NodeKind::Mapping(entries)
                };
                Ok(Node { span, kind })
            }
            Event::Alias(_) => {
                self.problems.push(alias(span));
                Ok(Node {
                    span,
                    kind: NodeKind::Refused,
                })
            }
            // Unreachable: between the start and the end of a document, the parser returns only values.
            _ => Err(Stop),
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Stop> {
        let mut entries = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let mut value = self.node(event, span, depth + 1)?;
            // An empty value has no text to point at, so point at its key.
            if matches!(value.kind, NodeKind::Null)
                && !matches!(self.source.slice(value.span), "~" | "null" | "Null" | "NULL")
            {
                value.span = key.span;
            }
            match key.kind {
                NodeKind::Scalar(text) if text == "<<" => self.problems.push(
                    BudgetProblem::new("budgets::merge-key", "merge keys are not supported".to_owned())
                        .at(key.span, "merge key")
                        .help("write out the keys that you want to merge"),
                ),
                NodeKind::Scalar(text) => entries.push((Key { text, span: key.span }, value)),
                NodeKind::Refused => {}
                kind => self.problems.push(
                    BudgetProblem::new(
                        "budgets::bad-key",
                        format!("a key must be a name, but this is {}", kind.name()),
                    )
                    .at(key.span, "used as a key")
                    .help("write `name: value`"),
                ),
            }
        }
    }

    /// Reports an anchor or a tag. Returns whether there is a tag, because a tag may change the meaning of the value.
    fn decorated(&mut self, anchor: usize, tag: bool, span: Span) -> bool {
        if anchor != 0 {
            self.problems.push(
                BudgetProblem::new("budgets::anchor", "anchors are not supported".to_owned())
                    .at(span, "this has an anchor")
                    .help("remove the `&name`, and write out the value at each place that needs it"),
            );
        }
        if tag {
            self.problems.push(
                BudgetProblem::new("budgets::tag", "tags are not supported".to_owned())
                    .at(span, "this has a tag")
                    .help("remove the `!tag`: the key determines the type of its value"),
            );
        }
        tag
    }
}

fn alias(span: Span) -> BudgetProblem {
    BudgetProblem::new("budgets::alias", "aliases are not supported".to_owned())
        .at(span, "alias")
        .help("write out the value")
}

fn too_deep(span: Span) -> BudgetProblem {
    BudgetProblem::new(
        "budgets::too-deep",
        format!("values are nested deeper than {MAX_DEPTH} levels"),
    )
    .at(span, "here")
    .help("check for an open bracket above: no key of a budget file is nested this deep")
}
