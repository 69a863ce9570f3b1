//! Finds the lines that keep tensors beyond their step or epoch, without a change to compare with.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::words;
use super::input::ReadSource;
use super::naming::{COMMON, SourceFile, SourceFiles, SourcePlace, frames};
use super::syntax::SourceFunction;
use crate::explain::{Explanation, SourceLocation, TensorKeeper};

/// Functions that put a value where it outlives the loop.
const CONTAINERS: [&str; 5] = ["push", "push_back", "insert", "extend", "replace"];

/// Returns the lines that most likely keep the tensors of a leak, each with its tensors. Tensors for which no line is found
/// are left out.
///
/// This looks through the functions that asked for the tensor, from the innermost outwards, for a line that puts the
/// tensor, or what it was made from, into a container.
#[must_use]
pub fn keepers(explanation: &Explanation, read: ReadSource<'_>) -> Vec<TensorKeeper> {
    let Some(leak) = explanation.leak.found() else {
        return Vec::new();
    };
    let sources = SourceFiles::new(Some(read), explanation);
    let mut kept: BTreeMap<SourcePlace, Vec<u32>> = BTreeMap::new();
    for index in &leak.tensors {
        let tensor = &explanation.tensors[*index as usize];
        if let Some(place) = keeping_line(&sources, frames(explanation, tensor)) {
            kept.entry(place).or_default().push(*index);
        }
    }
    let keeper = |((file, line), tensors): (SourcePlace, _)| TensorKeeper {
        text: sources.text(&file, line).unwrap_or_default().into(),
        file: file.into(),
        line,
        tensors,
    };
    kept.into_iter().map(keeper).collect()
}

fn keeping_line(sources: &SourceFiles<'_>, frames: &[SourceLocation]) -> Option<SourcePlace> {
    frames.iter().find_map(|frame| {
        let name = frame.file.raw();
        let file = sources.file(name);
        let function = file.functions.at(frame.line).next()?;
        let text = sources.text(name, frame.line).unwrap_or_default();
        // Every method has a `self`, so that says nothing.
        let told = |names: BTreeSet<String>| names.into_iter().filter(|name| name != "self").collect();
        let bound: BTreeSet<String> = told(function.bound_at(frame.line));
        let mentioned: BTreeSet<String> = told(words(&text).map(str::to_owned).collect());
        let line = container_line(&file, function, frame.line, &bound)
            .or_else(|| within_called(&file, function, &bound))
            .or_else(|| container_line(&file, function, frame.line, &mentioned))?;
        Some((name.to_owned(), line))
    })
}

/// Finds a line of the function that puts one of these names into a container: the first at or after `from`, or else the
/// first of all.
fn container_line(file: &SourceFile, function: &SourceFunction, from: u32, names: &BTreeSet<String>) -> Option<u32> {
    let puts = |line: &u32| {
        let text = file.line(*line).unwrap_or_default();
        let text = text.split("//").next().unwrap_or_default();
        // `x = Some(y)` keeps `y`, and the pattern `Some(y)` does not.
        let is_assigned = text.split_once("= Some(").is_some_and(|(before, _)| {
            let left: Vec<&str> = words(before).collect();
            !left.is_empty() && !left.iter().any(|word| ["if", "while", "match"].contains(word))
        });
        let keeps = is_assigned || words(text).any(|word| CONTAINERS.contains(&word));
        keeps && words(text).any(|word| names.contains(word))
    };
    let all: Vec<u32> = (function.lines.0..=function.lines.1).filter(puts).collect();
    all.iter().find(|line| **line >= from).or_else(|| all.first()).copied()
}

/// Finds such a line in a function of the file that gets one of these names.
fn within_called(file: &SourceFile, function: &SourceFunction, names: &BTreeSet<String>) -> Option<u32> {
    let called = function.called_with(names).into_iter();
    called.filter(|name| !COMMON.contains(name)).find_map(|name| {
        let mut functions = file.functions.named(name);
        functions.find_map(|function| container_line(file, function, function.lines.0, &function.parameters))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: &str = "\
fn train(network: &Network, kept: &mut Kept) {
    let mut losses = Vec::new();
    for batch in batches() {
        let loss = network.loss(batch);
        let output = network.forward(loss.clone());
        kept.update(output);
        losses.push(loss);
        network.step(0.1);
    }
    // network.copies.push(network);
    copies.insert(network.clone());
}

fn read(first: Tensor) {
    let mut iterator = first.parts();
    while let Some(part) = iterator.next() {
        let size = part.size();
    }
    let last = first.end();
    best = Some(last);
}

impl Kept {
    fn update(&mut self, value: Tensor) {
        let size = value.size();
        self.values.push(value);
    }

    fn step(&mut self, other: Tensor) {
        self.network = self.optimizer.step(other);
        self.times.push(now());
    }
}
";

    fn line_of(line: u32) -> Option<u32> {
        let explanation = crate::explain::sample::resnet_of(1, 1);
        let read = |file: &str| (file == "loop.rs").then(|| LOOP.to_owned());
        let sources = SourceFiles::new(Some(&read), &explanation);
        let frame = |file: &str, line| SourceLocation {
            file: file.into(),
            line,
            function: "f".into(),
        };
        // A line of a file that cannot be read comes first.
        let place = keeping_line(&sources, &[frame("burn.rs", 1), frame("loop.rs", line)])?;
        assert_eq!(place.0, "loop.rs");
        Some(place.1)
    }

    #[test]
    fn the_line_that_puts_a_tensor_into_a_container_is_found() {
        // By the name that the line binds.
        assert_eq!(line_of(4), Some(7));
        // In the function that gets it.
        assert_eq!(line_of(5), Some(26));
        // By what the line uses.
        assert_eq!(line_of(8), Some(11));
        assert_eq!(line_of(25), Some(26));
        // An assignment.
        assert_eq!(line_of(19), Some(20));
    }

    #[test]
    fn a_line_without_a_container_is_not_named() {
        // A pattern.
        assert_eq!(line_of(17), None);
        // Another value of the same `self`.
        assert_eq!(line_of(30), None);
        // A line outside of any function.
        assert_eq!(line_of(22), None);
    }
}
