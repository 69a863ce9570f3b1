//! Chooses the line that a cause points at. See docs/design/naming-the-line.md.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::changes::{EditedLine, SourceChanges, words};
use super::input::ReadSource;
use super::roots::SizeChange;
use super::syntax::{SourceFunction, SourceFunctions};
use crate::explain::{Explanation, SourceLocation, TensorLife};
use crate::report::GrowthPlace;

/// The smallest number that alone says that a new line makes a tensor larger. Smaller ones stand in many lines.
const TELLING: u64 = 8;

/// Words that stand in lines about an optimizer.
const OPTIMIZERS: [&str; 8] = [
    "optim", "adam", "sgd", "momentum", "rmsprop", "adagrad", "lbfgs", "muon",
];

/// Words that stand in lines that keep a tensor.
const KEEPERS: [&str; 7] = ["clone", "push", "insert", "extend", "Some", "replace", "collect"];

/// Names of functions that say nothing about which function is called.
pub(super) const COMMON: [&str; 4] = ["new", "init", "forward", "default"];

/// What is known about a cause.
#[derive(Debug, Default)]
pub(super) struct CauseEvidence<'a> {
    /// The user's lines that asked for the tensor, the innermost first.
    pub(super) frames: Cow<'a, [SourceLocation]>,
    /// How the tensor's size changed.
    pub(super) sizes: Vec<SizeChange>,
    /// The path of the tensor's module.
    pub(super) module: Option<&'a str>,
    pub(super) kind: TracedCause,
}

/// The kinds of causes that leave traces in different lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum TracedCause {
    /// A module that only one side has.
    Module,
    /// A parameter. Burn makes it when it is first used, so its frames are not those of the layer's configuration.
    Parameter,
    /// State of the optimizer, which Burn makes in its own step.
    OptimizerState,
    /// A tensor that exists longer than before, by whatever holds it.
    Kept,
    /// Any other tensor.
    #[default]
    Tensor,
}

/// The workspace's source files, each read and parsed once.
pub(super) struct SourceFiles<'a> {
    read: Option<ReadSource<'a>>,
    /// The lines that the explanation knows.
    texts: BTreeMap<(&'a str, u32), &'a str>,
    files: RefCell<BTreeMap<String, Rc<SourceFile>>>,
}

/// The text of a file, and its functions if it is Rust.
#[derive(Default)]
pub(super) struct SourceFile {
    lines: Vec<String>,
    pub(super) functions: SourceFunctions,
    /// The numbers of the lines of `models!`, from its name to its closing bracket.
    declaration: Range<u32>,
}

/// Returns the lines of `models!(a, b)`; an empty range if there is none.
fn declaration(lines: &[String]) -> Range<u32> {
    let Some(first) = lines
        .iter()
        .position(|line| line.contains("models!") && !line.trim_start().starts_with("//"))
    else {
        return 0..0;
    };
    let last = lines[first..].iter().position(|line| line.contains([')', '}', ']']));
    let number = |index: usize| u32::try_from(index).map_or(u32::MAX, |index| index.saturating_add(1));
    number(first)..number(first + last.unwrap_or(0)).saturating_add(1)
}

impl SourceFile {
    /// Returns a line by its number, from 1.
    pub(super) fn line(&self, number: u32) -> Option<&str> {
        let line = self.lines.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        Some(line.trim())
    }
}

impl<'a> SourceFiles<'a> {
    pub(super) fn new(read: Option<ReadSource<'a>>, explanation: &'a Explanation) -> Self {
        let texts = explanation.texts.iter();
        Self {
            read,
            texts: texts
                .map(|text| ((text.file.raw(), text.line), text.text.raw()))
                .collect(),
            files: RefCell::default(),
        }
    }

    pub(super) fn file(&self, name: &str) -> Rc<SourceFile> {
        if let Some(file) = self.files.borrow().get(name) {
            return Rc::clone(file);
        }
        let text = self.read.and_then(|read| read(name)).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let file = Rc::new(SourceFile {
            declaration: declaration(&lines),
            lines,
            functions: match name.ends_with(".rs") {
                true => SourceFunctions::parse(&text).unwrap_or_default(),
                false => SourceFunctions::default(),
            },
        });
        self.files.borrow_mut().insert(name.to_owned(), Rc::clone(&file));
        file
    }

    /// Whether a line is part of `models!`.
    fn is_declaration(&self, file: &str, line: u32) -> bool {
        let known = self.texts.get(&(file, line));
        known.is_some_and(|text| text.contains("models!")) || self.file(file).declaration.contains(&line)
    }

    pub(super) fn text(&self, file: &str, line: u32) -> Option<String> {
        if let Some(text) = self.texts.get(&(file, line)) {
            return Some((*text).to_owned());
        }
        self.file(file).line(line).map(str::to_owned)
    }
}

/// Chooses lines.
pub(super) struct LineNaming<'a> {
    pub(super) changes: &'a SourceChanges,
    pub(super) sources: SourceFiles<'a>,
}

/// A file and a line in it.
pub(super) type SourcePlace = (String, u32);

impl LineNaming<'_> {
    /// Returns the line that explains a cause; `None` if nothing is known about it.
    pub(super) fn place(&self, evidence: &CauseEvidence<'_>) -> Option<GrowthPlace> {
        // Every tensor of a model has the line of `models!` on its stack, so it says nothing.
        let frames = evidence.frames.iter();
        let frames = frames.filter(|frame| !self.sources.is_declaration(frame.file.raw(), frame.line));
        let evidence = &CauseEvidence {
            frames: frames.cloned().collect(),
            sizes: evidence.sizes.clone(),
            ..*evidence
        };
        let edited_frame = || self.edited_frame(&evidence.frames);
        let found = match evidence.kind {
            TracedCause::Parameter => self
                .by_size(evidence, exactly)
                .or_else(|| self.by_module(evidence))
                .or_else(|| self.by_size(evidence, in_ratio))
                .or_else(|| self.by_new_number(evidence))
                .or_else(|| self.by_mention(&evidence.frames))
                .or_else(|| self.only_number(&evidence.frames))
                .or_else(edited_frame),
            TracedCause::Module => self
                .by_module(evidence)
                .or_else(|| self.only_number(&evidence.frames))
                .or_else(edited_frame),
            TracedCause::OptimizerState => self.by_words(&evidence.frames, &OPTIMIZERS).or_else(edited_frame),
            TracedCause::Kept => edited_frame()
                .or_else(|| self.by_keeper(&evidence.frames))
                .or_else(|| self.beside_removed(&evidence.frames)),
            TracedCause::Tensor => self
                .by_size(evidence, exactly)
                .or_else(edited_frame)
                .or_else(|| self.by_size(evidence, in_ratio))
                .or_else(|| self.by_new_number(evidence))
                .or_else(|| self.by_mention(&evidence.frames))
                .or_else(|| self.beside_removed(&evidence.frames)),
        };
        let (file, line) = found.or_else(|| self.innermost(&evidence.frames))?;
        Some(self.shown(file, line))
    }

    /// Returns a line with its text.
    pub(super) fn shown(&self, file: String, line: u32) -> GrowthPlace {
        let edited = self.changes.at(&file, line);
        let text = edited.map(|edited| edited.text.clone());
        GrowthPlace {
            edited: edited.is_some() || self.changes.is_beside_removed(&file, line),
            text: text.or_else(|| self.sources.text(&file, line)).map(Into::into),
            file: file.into(),
            line,
        }
    }

    /// Returns the innermost line of the stack that the change edits.
    fn edited_frame(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        let frame = frames
            .iter()
            .find(|frame| self.changes.at(frame.file.raw(), frame.line).is_some())?;
        Some((frame.file.raw().to_owned(), frame.line))
    }

    /// Returns the innermost line of the stack. Generated files come last.
    fn innermost(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        let mut own = frames.iter().filter(|frame| !frame.file.raw().starts_with("target/"));
        let frame = own.next().or_else(|| frames.first())?;
        Some((frame.file.raw().to_owned(), frame.line))
    }

    /// Returns the first of the lines that are nearest to the stack. Of equally near ones, a line that makes something
    /// comes first.
    fn nearest(&self, frames: &[SourceLocation], lines: Vec<SourcePlace>) -> Option<SourcePlace> {
        let makes = |(file, line): &SourcePlace| self.changes.at(file, *line).is_some_and(EditedLine::makes);
        // The last of equal ones is the maximum, so the order is turned around.
        let ranked = lines.into_iter().rev();
        ranked.max_by_key(|line| (distance(frames, line), makes(line)))
    }

    fn edited_lines(&self, is_meant: impl Fn(&EditedLine) -> bool) -> Vec<SourcePlace> {
        self.edited_lines_of(|_, edited| is_meant(edited))
    }

    fn edited_lines_of(&self, is_meant: impl Fn(&str, &EditedLine) -> bool) -> Vec<SourcePlace> {
        let edited = self.changes.edited().filter(|(file, _, edited)| is_meant(file, edited));
        let edited = edited.filter(|(file, line, _)| !self.sources.is_declaration(file, *line));
        edited.map(|(file, line, _)| (file.to_owned(), line)).collect()
    }

    /// Finds an edited line whose numbers, or whose element type, changed as the tensor's did.
    fn by_size(
        &self,
        evidence: &CauseEvidence<'_>,
        is_same: fn(&SizeChange, (u64, u64)) -> bool,
    ) -> Option<SourcePlace> {
        let explains = |file: &str, line: &EditedLine| {
            let is_rust = file.ends_with(".rs");
            // A ratio alone says little. A limit or a version in a configuration file often doubles, too.
            let is_same = if is_rust { is_same } else { exactly };
            // A parameter's size is a multiple of what its line says: two layers may grow in one ratio.
            let is_plausible = |size: &SizeChange, (before, _): (u64, u64)| {
                let is_multiple = size.size().is_none_or(|size| size.is_multiple_of(before));
                is_multiple || evidence.kind != TracedCause::Parameter
            };
            evidence.sizes.iter().any(|size| match size {
                SizeChange::Dimension(..) => {
                    let mut numbers = line.changed_numbers().into_iter();
                    numbers.any(|pair| is_same(size, pair) && is_plausible(size, pair))
                }
                SizeChange::Dtype(before, after) => is_rust && names_dtype(line, before, after),
            })
        };
        self.nearest(&evidence.frames, self.edited_lines_of(explains))
    }

    /// Finds a new line with the tensor's new size.
    fn by_new_number(&self, evidence: &CauseEvidence<'_>) -> Option<SourcePlace> {
        let sizes: BTreeSet<u64> = evidence
            .sizes
            .iter()
            .filter_map(|size| match size {
                SizeChange::Dimension(_, after) => Some(*after).filter(|after| *after >= TELLING),
                SizeChange::Dtype(..) => None,
            })
            .collect();
        let explains =
            |line: &EditedLine| line.before.is_none() && line.numbers().iter().any(|number| sizes.contains(number));
        self.nearest(&evidence.frames, self.edited_lines(explains))
    }

    /// Finds an edited line with the name of the module's field: `fc3` for `head.fc3`.
    fn by_module(&self, evidence: &CauseEvidence<'_>) -> Option<SourcePlace> {
        let segments = evidence
            .module?
            .rsplit('.')
            .filter(|segment| segment.parse::<u64>().is_err());
        segments.into_iter().find_map(|segment| {
            // A declared field has the name, too, but the configuration has the size.
            self.nearest(&evidence.frames, self.edited_lines(|line| line.mentions(segment)))
        })
    }

    /// Finds an edited line with one of these words, whatever their case.
    fn by_words(&self, frames: &[SourceLocation], wanted: &[&str]) -> Option<SourcePlace> {
        let has = |line: &EditedLine| {
            let mut new = line.new_words().map(str::to_lowercase);
            new.any(|word| wanted.iter().any(|wanted| word.contains(wanted)))
        };
        self.nearest(frames, self.edited_lines(has))
    }

    /// Finds an edited definition that a line of the stack names: a constant, or a function with an edited body.
    fn by_mention(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        frames.iter().find_map(|frame| {
            let text = self.sources.text(frame.file.raw(), frame.line)?;
            let mentioned: BTreeSet<&str> = words(&text).collect();
            let explains = |(file, line): &SourcePlace| {
                let edited = self.changes.at(file, *line);
                let defined = edited.and_then(|edited| defined(&edited.text));
                let functions = self.sources.file(file);
                let mut around = functions.functions.at(*line);
                let is_around = |function: &SourceFunction| {
                    let is_called = mentioned.contains(function.name.as_str())
                        && text.contains(&format!("{}(", function.name))
                        // Almost every type has functions of these names.
                        && !COMMON.contains(&function.name.as_str());
                    // The frame's own function does not count: its line does not call it.
                    is_called && (*file != frame.file || !function.has(frame.line))
                };
                // A variable is known only in its own function. Many functions have an `x`.
                let reaches = |is_local: bool| {
                    let own = functions.functions.at(*line).next();
                    // Without the file, or in one that cannot be parsed, the nearest function is not known.
                    !is_local
                        || *file == frame.file && own.map_or(line.abs_diff(frame.line) < 8, |own| own.has(frame.line))
                };
                let is_mentioned = |(name, is_local)| mentioned.contains(name) && reaches(is_local);
                defined.is_some_and(is_mentioned) || around.any(is_around)
            };
            let lines = self.edited_lines(|_| true).into_iter().filter(explains).collect();
            self.nearest(std::slice::from_ref(frame), lines)
        })
    }

    /// Returns the only edited line with another number, if there is only one and it is in a file of the stack.
    fn only_number(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        match self.edited_lines(|line| !line.changed_numbers().is_empty()).as_slice() {
            [only] if frames.iter().any(|frame| frame.file == only.0) => Some(only.clone()),
            _ => None,
        }
    }

    /// Finds an edited line that uses the value which a line of the stack binds, or a function that gets this value.
    fn by_keeper(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        frames.iter().find_map(|frame| {
            let file = self.sources.file(frame.file.raw());
            file.functions.at(frame.line).find_map(|function| {
                let bound = function.bound_at(frame.line);
                self.keeper(frame.file.raw(), function, &bound).or_else(|| {
                    let called = function.called_with(&bound);
                    let found = called
                        .into_iter()
                        .filter_map(|name| self.keeper_in(frame, name))
                        .collect();
                    self.nearest(std::slice::from_ref(frame), found)
                })
            })
        })
    }

    /// Finds an edited line within a function that uses one of these names. A line that keeps values comes first.
    fn keeper(&self, file: &str, function: &SourceFunction, names: &BTreeSet<String>) -> Option<SourcePlace> {
        let edited = self
            .changes
            .edited()
            .filter(|(name, line, _)| *name == file && function.has(*line));
        let using: Vec<_> = edited
            .filter(|(.., edited)| words(&edited.text).any(|word| names.contains(word)))
            .collect();
        let keeps = |edited: &EditedLine| words(&edited.text).any(|word| KEEPERS.contains(&word));
        let found = using
            .iter()
            .find(|(.., edited)| keeps(edited))
            .or_else(|| using.first())?;
        Some((found.0.to_owned(), found.1))
    }

    /// Finds an edited line in a function of this name that uses one of its parameters.
    fn keeper_in(&self, frame: &SourceLocation, name: &str) -> Option<SourcePlace> {
        let found = self.changes.files().filter_map(|file| {
            let source = self.sources.file(file);
            let mut functions = source.functions.named(name);
            functions.find_map(|function| self.keeper(file, function, &function.parameters))
        });
        self.nearest(std::slice::from_ref(frame), found.collect())
    }

    /// Returns the innermost line of the stack beside a removed line.
    fn beside_removed(&self, frames: &[SourceLocation]) -> Option<SourcePlace> {
        let frame = frames
            .iter()
            .find(|frame| self.changes.is_beside_removed(frame.file.raw(), frame.line))?;
        Some((frame.file.raw().to_owned(), frame.line))
    }
}

/// Returns the user's lines that led to a tensor, the innermost first.
pub(super) fn frames<'a>(explanation: &'a Explanation, tensor: &'a TensorLife) -> &'a [SourceLocation] {
    let stack = tensor.stack.and_then(|stack| explanation.stacks.get(stack as usize));
    match (stack, &tensor.source) {
        (Some(stack), _) => stack,
        // Explanations of older versions have only one line per tensor.
        (None, Some(source)) => std::slice::from_ref(source),
        (None, None) => &[],
    }
}

/// Returns how near a line is to a stack, the nearest with the largest value: on the stack, in one of its files, and then
/// by the number of folders that their paths have in common. Rust code comes before configuration files.
fn distance(frames: &[SourceLocation], (file, line): &SourcePlace) -> (bool, bool, usize, bool) {
    let on_stack = frames.iter().any(|frame| frame.file == *file && frame.line == *line);
    let in_file = frames.iter().any(|frame| frame.file == *file);
    let shared = |frame: &SourceLocation| {
        let both = frame.file.raw().split('/').zip(file.split('/'));
        both.take_while(|(one, other)| one == other).count()
    };
    let folders = frames.iter().map(shared).max().unwrap_or(0);
    (on_stack, in_file, folders, file.ends_with(".rs"))
}

fn exactly(size: &SizeChange, (before, after): (u64, u64)) -> bool {
    *size == SizeChange::Dimension(before, after)
}

fn in_ratio(size: &SizeChange, (before, after): (u64, u64)) -> bool {
    let ratio = size.ratio();
    ratio.is_some() && ratio == SizeChange::Dimension(before, after).ratio()
}

/// Whether a line changes from one element type to another: `DType::F16` to `DType::F32`.
fn names_dtype(line: &EditedLine, before: &str, after: &str) -> bool {
    let has = |text: &str, dtype: &str| words(text).any(|word| word.eq_ignore_ascii_case(dtype));
    let was = line.before.as_deref().unwrap_or_default();
    let gains = has(&line.text, after) && !has(was, after);
    let loses = has(was, before) && !has(&line.text, before);
    // A new line with `f32` may do anything. One with `DType` chooses an element type.
    gains && (line.before.is_some() || has(&line.text, "DType")) || loses
}

/// Returns the name that a line defines: `BATCH` for `pub const BATCH: usize = 64;`. The second value tells whether it is a
/// variable of a function.
fn defined(text: &str) -> Option<(&str, bool)> {
    let mut words = words(text).skip_while(|word| !["const", "static", "fn", "let"].contains(word));
    let keyword = words.next()?;
    let name = words.find(|word| *word != "mut")?;
    Some((name, keyword == "let"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: &str = "\
const BATCH: usize = 64;

fn step(model: &Model, kept: &mut Kept) {
    let input = batch(BATCH);
    let output = model.forward(input);
    kept.update(output.clone());
    output.mean()
}
";
    const KEPT: &str = "\
impl Kept {
    fn update(&mut self, output: Tensor) {
        self.count += 1;
        self.all.push(output);
    }
}
";

    fn frame(file: &str, line: u32) -> SourceLocation {
        SourceLocation {
            file: file.into(),
            line,
            function: "step".into(),
        }
    }

    fn place(diff: &str, evidence: &CauseEvidence<'_>) -> (String, u32, bool) {
        let changes = SourceChanges::parse(diff, Vec::new());
        let explanation = crate::explain::sample::resnet_of(1, 1);
        let read = |file: &str| {
            let files = [
                ("train.rs", TRAIN),
                ("kept.rs", KEPT),
                ("bench.rs", "models!(a);\nrun.train(sgd);\n"),
            ];
            files
                .iter()
                .find(|(name, _)| *name == file)
                .map(|(_, text)| (*text).to_owned())
        };
        let naming = LineNaming {
            changes: &changes,
            sources: SourceFiles::new(Some(&read), &explanation),
        };
        let place = naming.place(evidence).unwrap();
        (place.file.into_raw(), place.line, place.edited)
    }

    fn diff(file: &str, line: u32, before: &str, after: &str) -> String {
        format!("--- a/{file}\n+++ b/{file}\n@@ -{line} +{line} @@\n-{before}\n+{after}\n")
    }

    #[test]
    fn a_variable_of_another_function_is_not_named() {
        // Line 5 of train.rs names `input`.
        let frames = [frame("train.rs", 5)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            kind: TracedCause::Parameter,
            ..CauseEvidence::default()
        };
        let elsewhere = diff("kept.rs", 3, "let input = a;", "let input = b;");
        assert_eq!(place(&elsewhere, &evidence), ("train.rs".to_owned(), 5, false));
        let here = diff("train.rs", 4, "let input = other(BATCH);", "let input = batch(BATCH);");
        assert_eq!(place(&here, &evidence), ("train.rs".to_owned(), 4, true));
    }

    #[test]
    fn the_innermost_edited_line_of_the_stack_is_named_and_without_one_the_innermost() {
        let frames = [frame("model.rs", 7), frame("train.rs", 5), frame("bench.rs", 1)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            ..CauseEvidence::default()
        };
        let edit = diff(
            "train.rs",
            5,
            "let output = model.fast(input);",
            "let output = model.forward(input);",
        );
        assert_eq!(place(&edit, &evidence), ("train.rs".to_owned(), 5, true));
        assert_eq!(place("", &evidence), ("model.rs".to_owned(), 7, false));
        let only = [frame("bench.rs", 1), frame("bench.rs", 2)];
        let evidence = CauseEvidence {
            frames: only.as_slice().into(),
            ..CauseEvidence::default()
        };
        assert_eq!(
            place("", &evidence),
            ("bench.rs".to_owned(), 2, false),
            "not the line of models!"
        );
    }

    #[test]
    fn a_number_that_changed_as_the_tensor_did_is_named_in_any_file() {
        let frames = [frame("train.rs", 4)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            sizes: vec![SizeChange::Dimension(32, 64)],
            ..CauseEvidence::default()
        };
        let edits = diff("train.rs", 1, "const BATCH: usize = 32;", "const BATCH: usize = 64;")
            + &diff("other.rs", 3, "let seed = 3;", "let seed = 4;");
        assert_eq!(place(&edits, &evidence), ("train.rs".to_owned(), 1, true));
        let config = diff("config.toml", 2, "batch = 32 # rows", "batch = 64 # rows");
        assert_eq!(place(&config, &evidence), ("config.toml".to_owned(), 2, true));
        // A product of the number: the same ratio.
        let evidence = CauseEvidence {
            sizes: vec![SizeChange::Dimension(4096, 8192)],
            ..evidence
        };
        assert_eq!(place(&edits, &evidence), ("train.rs".to_owned(), 1, true));
        assert_eq!(
            place(&config, &evidence),
            ("train.rs".to_owned(), 4, false),
            "limits double, too"
        );
    }

    #[test]
    fn a_definition_that_the_stack_uses_is_named() {
        let frames = [frame("train.rs", 4)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            sizes: vec![SizeChange::Dimension(5, 64)],
            ..CauseEvidence::default()
        };
        let edit = diff(
            "train.rs",
            1,
            "const BATCH: usize = few();",
            "const BATCH: usize = many();",
        );
        assert_eq!(place(&edit, &evidence), ("train.rs".to_owned(), 1, true));
    }

    #[test]
    fn a_tensor_that_is_kept_names_the_line_that_keeps_it_also_in_a_function_that_gets_it() {
        let frames = [frame("model.rs", 7), frame("train.rs", 5)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            kind: TracedCause::Kept,
            ..CauseEvidence::default()
        };
        let edits = diff("kept.rs", 3, "self.count += 2;", "self.count += 1;")
            + &diff("kept.rs", 4, "self.last = output.mean();", "self.all.push(output);");
        assert_eq!(place(&edits, &evidence), ("kept.rs".to_owned(), 4, true));
        let edit = diff("train.rs", 6, "kept.count();", "kept.update(output.clone());");
        assert_eq!(place(&edit, &evidence), ("train.rs".to_owned(), 6, true));
    }

    #[test]
    fn a_new_parameter_names_the_line_that_configures_its_module() {
        let frames = [frame("bench.rs", 2)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            module: Some("head.fc3"),
            kind: TracedCause::Module,
            ..CauseEvidence::default()
        };
        let added = "--- a/m.rs\n+++ b/m.rs\n@@ -4,0 +5,2 @@\n+    fc3: Linear<B>,\n+    fc3: LinearConfig::new(4, 4).init(device),\n";
        assert_eq!(place(added, &evidence), ("m.rs".to_owned(), 6, true));
    }

    #[test]
    fn another_element_type_names_the_line_that_sets_it() {
        let frames = [frame("model.rs", 7)];
        let evidence = CauseEvidence {
            frames: frames.as_slice().into(),
            sizes: vec![SizeChange::Dtype("f16".to_owned(), "f32".to_owned())],
            ..CauseEvidence::default()
        };
        let edit = diff("model.rs", 3, "x.cast(DType::F16)", "x.cast(DType::F32)");
        assert_eq!(place(&edit, &evidence), ("model.rs".to_owned(), 3, true));
    }
}
