//! What was written: YAML as a tree in which everything knows where it stands.
//!
//! Of YAML this takes mappings and scalars, and lists to be told apart. Anchors, aliases, tags, merge keys and further
//! documents are refused, so that a limit stands where it is read and a small file stays small.

use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};

use super::problem::{Problem, Problems};
use super::source::{Source, Span};

/// The format itself takes six levels.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Nothing, or `null`.
    Null,
    /// Text, quoted or not: the format gives each key its type, so `"1"` and `1` are one.
    Scalar(String),
    Mapping(Vec<(Key, Node)>),
    /// Nothing in the format takes a list, so its items are not kept.
    List,
    /// Already reported: what is made of it would be a mistake of ours.
    Refused,
}

impl Kind {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::Mapping(_) => "a mapping",
            Self::List => "a list",
            Self::Refused => "something refused",
        }
    }
}

/// A key of a mapping.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Span,
}

/// Reading cannot go on; the reason has been reported.
struct Stop;

/// The root of the document; nothing where it cannot be read to its end.
pub(super) fn parse(source: &Arc<Source>, problems: &mut Problems) -> Option<Node> {
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
    source: &'a Source,
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
                (Event::StreamEnd, span) if matches!(root.kind, Kind::Null) => {
                    return Err(self.empty(span));
                }
                (Event::StreamEnd, _) => return Ok(root),
                (Event::DocumentStart(_), span) => {
                    self.problems.push(
                        Problem::new("budgets::second-document", "a second YAML document starts here".to_owned())
                            .at(span, "starts here")
                            .help("a budget file is one document: remove this `---`, or move what follows into a file of its own"),
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
            Problem::new("budgets::empty", "the file holds no budgets".to_owned())
                .at(start, "the file starts here")
                .help("start with `version: 1`, or remove the file and let `cargo vram init` write one"),
        );
        Stop
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                // Lines and columns, and not the scanner's own index, which some comments lead astray.
                let start = self.source.offset(span.start.line(), span.start.col());
                let end = self.source.offset(span.end.line(), span.end.col());
                Ok((event, Span::new(start, end)))
            }
            Some(Err(error)) => {
                self.syntax(&error);
                Err(Stop)
            }
            // Unreached: the stream's end comes first, and nobody reads past it.
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
            info if info.contains("unknown anchor") => alias(span),
            "recursion limit exceeded" => too_deep(span),
            info => Problem::new("budgets::syntax", format!("this is not YAML: {info}"))
                .at(span, "here")
                .help("nothing after this place could be read; mistakes further down show once it is mended"),
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
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = match (refused, null) {
                    (true, _) => Kind::Refused,
                    (false, true) => Kind::Null,
                    (false, false) => Kind::Scalar(text.into_owned()),
                };
                Ok(Node { span, kind })
            }
            Event::SequenceStart(anchor, tag) => {
                let refused = self.decorated(anchor, tag.is_some(), span);
                loop {
                    let (event, item) = self.next()?;
                    if event == Event::SequenceEnd {
                        let kind = if refused { Kind::Refused } else { Kind::List };
                        return Ok(Node { span, kind });
                    }
                    self.node(event, item, depth + 1)?;
                }
            }
            Event::MappingStart(anchor, tag) => {
                let refused = self.decorated(anchor, tag.is_some(), span);
                let entries = self.entries(depth)?;
                // A block mapping has no bracket to point at, so its first key stands for it.
                let span = if span.len == 0 {
                    entries.first().map_or(span, |(key, _)| key.span)
                } else {
                    span
                };
                let kind = if refused { Kind::Refused } else { Kind::Mapping(entries) };
                Ok(Node { span, kind })
            }
            Event::Alias(_) => {
                self.problems.push(alias(span));
                Ok(Node {
                    span,
                    kind: Kind::Refused,
                })
            }
            // Unreached: between a document's start and end the parser gives values alone.
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
            // What is not written stands nowhere; its key does.
            if matches!(value.kind, Kind::Null)
                && !matches!(self.source.slice(value.span), "~" | "null" | "Null" | "NULL")
            {
                value.span = key.span;
            }
            match key.kind {
                Kind::Scalar(text) if text == "<<" => self.problems.push(
                    Problem::new("budgets::merge-key", "merge keys are not supported".to_owned())
                        .at(key.span, "merge key")
                        .help("write the keys out: each limit stands where it is read"),
                ),
                Kind::Scalar(text) => entries.push((Key { text, span: key.span }, value)),
                Kind::Refused => {}
                kind => self.problems.push(
                    Problem::new(
                        "budgets::bad-key",
                        format!("a key is a name, and this is {}", kind.name()),
                    )
                    .at(key.span, "as a key")
                    .help("write `name: value`"),
                ),
            }
        }
    }

    /// Reports an anchor or a tag. With a tag, nothing is known of the value.
    fn decorated(&mut self, anchor: usize, tag: bool, span: Span) -> bool {
        if anchor != 0 {
            self.problems.push(
                Problem::new("budgets::anchor", "anchors are not supported".to_owned())
                    .at(span, "this has an anchor")
                    .help("remove the `&name`, and write the value out where it is needed"),
            );
        }
        if tag {
            self.problems.push(
                Problem::new("budgets::tag", "tags are not supported".to_owned())
                    .at(span, "this has a tag")
                    .help("remove the `!tag`: each key knows the type of its value"),
            );
        }
        tag
    }
}

fn alias(span: Span) -> Problem {
    Problem::new("budgets::alias", "aliases are not supported".to_owned())
        .at(span, "alias")
        .help("write the value out: each limit stands where it is read")
}

fn too_deep(span: Span) -> Problem {
    Problem::new(
        "budgets::too-deep",
        format!("values are nested deeper than {MAX_DEPTH} levels"),
    )
    .at(span, "here")
    .help("no key of a budget file is that deep: a bracket may be open above")
}
