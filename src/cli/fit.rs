//! `cargo vram fit`: the largest input that trains on a card, or the cards that a model fits on.

mod advise;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use camino::Utf8PathBuf;
use clap::Args;
use miette::Diagnostic;
use thiserror::Error;

use super::exit::Exit;
use super::options::{Archive, Format, Inputs, Loudness, Output, Packages, Running};
use super::pipeline::{self, Ran};
use super::what_if::{self, WhatIfs};
use super::{Stopped, cases, terminal};
use crate::budget::{Percent, parse_percent};
use crate::bytes::Bytes;
use crate::driver::DriverLibrary;
use crate::fit::{CardFit, Ended, FIT_VERSION, Fit as Answer, Probe, Range, Tried};
use crate::gpu::Profile;
use crate::recording::Recordings;
use crate::report::fit::{human, svg};
use crate::report::human::text::named;
use crate::report::{ErrorCode, Gpu, Run};
use crate::run::{Case, Hardware, Launches, plan};
use crate::workspace::WHAT_IF;

/// Find what fits: the largest batch on a card, or the cards for a batch
///
/// With --gpu, searches for the largest `batch_size` (or other input: --vary) with which a model runs on that card, cold and
/// warm. Without, tells for every card whether the model fits, and by how much. Every figure is an estimate on a virtual
/// GPU; no card is needed.
#[derive(Debug, Args)]
#[command(mut_arg("model", |model| model.hide(true)))]
#[command(mut_arg("gpu", |gpu| gpu.help(
    "The card, such as `l4` or `h200` (`cargo vram gpus` lists them), or `all`"
)))]
#[command(override_usage = "cargo vram fit [OPTIONS] <MODEL>")]
#[command(after_help = "\
Examples:
  cargo vram fit resnet18 --gpu l4                         the largest batch that trains on an L4
  cargo vram fit resnet18 --gpu l4 --warm                  once autotune's choices are cached
  cargo vram fit resnet18 --gpu l4 --headroom 10%          and leaves a tenth of the card free
  cargo vram fit transformer --gpu h200 --vary seq_len     another input
  cargo vram fit resnet18 --gpu l4 --vary image_size --multiple-of 32 --set batch_size=64
  cargo vram fit resnet18 --set batch_size=64              which cards suffice, the smallest first
  cargo vram fit resnet18 --gpu t4 --set batch_size=256 --advise   what would make it fit
  cargo vram fit resnet18 --gpu all --vary batch_size      the largest batch on every card
  cargo vram fit resnet18 --gpu l4 --dtype f32,f16         what if floats were half as long
  cargo vram fit resnet18 --gpu l4 --svg fit.svg           peaks by batch as a picture

Exit codes:
  0    something fits, and what does is told
  100  nothing fits: not even the smallest value, or not on any card
  101  could not complete: a build failed, or the model cannot be run
  2    command line, configuration or versions unusable")]
pub(super) struct Fit {
    /// The model, or package/model
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    fitted: Option<String>,
    /// The input to vary; by default batch_size, where one card is named
    #[arg(long, value_name = "INPUT")]
    vary: Option<String>,
    /// The values to search, such as `1..4096`
    #[arg(long, value_name = "FROM..TO", value_parser = range, default_value = "1..1048576")]
    range: (u64, u64),
    /// Only multiples of this number, such as 32 for the sides of images
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    multiple_of: u64,
    /// Leave the first launch out, in which autotune tries kernels: what fits once its choices are cached
    #[arg(long)]
    warm: bool,
    /// What would make it fit: changes alone and together, those first that cost the least speed. With Burn 0.21, builds the
    /// models with other features of cargo-vram: the first time this takes 1–2 minutes each
    #[arg(long, conflicts_with_all = ["vary", "range", "multiple_of", "svg", "optimizer", "dtype", "accumulate", "infer", "checkpointing", "no_fusion"])]
    advise: bool,
    /// How much of the card is to be left free
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    headroom: Percent,
    /// Draw peaks by input, with the card's memory as a line
    #[arg(long, value_name = "FILE")]
    svg: Option<Utf8PathBuf>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    what_ifs: WhatIfs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

/// Why nothing was searched.
#[derive(Debug, Error, Diagnostic)]
pub(super) enum FitError {
    /// More than one model is meant.
    #[error("`{0}` means several: {1}")]
    #[diagnostic(
        code(fit::several),
        help("name one of them; `package/model` tells models of one name apart")
    )]
    Several(String, String),
    /// The models could not be built or listed.
    #[error("{0}")]
    #[diagnostic(code(fit::problem))]
    Problem(String, #[help] Option<String>),
    /// The model has no such input.
    #[error("{0}")]
    #[diagnostic(code(fit::no_input))]
    NoInput(String, #[help] Option<String>),
    /// It would be set and varied.
    #[error("`{0}` is both set and varied")]
    #[diagnostic(code(fit::set_and_varied), help("leave --set out, or --vary another input"))]
    SetAndVaried(String),
    /// There is no value to try.
    #[error("there is no value to try in {from}..{to}")]
    #[diagnostic(
        code(fit::empty_range),
        help("--range takes the smallest value first, such as 1..4096; --multiple-of leaves out what is none")
    )]
    EmptyRange { from: u64, to: u64 },
}

impl Fit {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let (from, to) = self.range;
        let every_card = self.running.gpu == ["all"];
        let vary = match (&self.vary, self.running.gpu.first()) {
            (Some(input), _) => Some(input.clone()),
            (None, Some(_)) if !every_card && !self.advise => Some("batch_size".to_owned()),
            (None, _) => None,
        };
        let inputs = self.inputs.values();
        if let Some(both) = vary.as_ref().filter(|input| inputs.contains_key(*input)) {
            return Err(FitError::SetAndVaried(both.clone()).into());
        }
        let running = Running {
            model: self.fitted.iter().chain(&self.running.model).cloned().collect(),
            gpu: match every_card {
                true => Vec::new(),
                false => self.running.gpu.clone(),
            },
            ..self.running.clone()
        };
        let packages = match self.advise {
            true => self.packages.with_feature(WHAT_IF),
            false => self.what_ifs.packages(&self.packages),
        };
        let prepared = pipeline::prepare(&packages, self.archive.file(), running.budgets.as_deref())?;
        let profiles: Vec<Profile> = if every_card || (vary.is_none() && running.gpu.is_empty() && !self.advise) {
            let mut all: Vec<_> = prepared.profiles.iter().cloned().collect();
            all.sort_by(|one, other| (one.total.value, &one.id).cmp(&(other.total.value, &other.id)));
            all
        } else {
            vec![cases::declared_card(&prepared, &running)?.clone()]
        };
        match self.advise {
            true => what_if::announce_build(&prepared.source, &[WHAT_IF], loudness),
            false => self.what_ifs.announce(&prepared.source, loudness),
        }
        let folder = prepared.source.scratch(running.keep.as_deref())?;
        let models = pipeline::models(&prepared, &packages, Some(&running), loudness, folder.path())?;
        if let (true, Some(problem)) = (models.selected.is_empty(), models.problems.first()) {
            return Err(FitError::Problem(problem.message.clone(), problem.help.clone()).into());
        }
        let case = {
            let mut found = cases::cases(&prepared, &models, &running, &inputs, &profiles[0])?;
            cases::prefer_exact(&mut found, self.fitted.as_deref().unwrap_or_default());
            match found.as_slice() {
                [one] => one.clone(),
                several => {
                    let names: Vec<_> = several.iter().map(Case::full_name).collect();
                    return Err(FitError::Several(running.model.join(", "), names.join(", ")).into());
                }
            }
        };
        let recordings = pipeline::recordings(&running)?;
        let here = (&prepared, &self.packages, &running);
        let (otherwise, problems) = self
            .what_ifs
            .cases(std::slice::from_ref(&case), here, loudness, folder.path())?;
        if let Some(problem) = problems.first() {
            return Err(FitError::Problem(problem.message.clone(), problem.help.clone()).into());
        }
        let otherwise: Vec<Case> = otherwise.into_iter().flatten().collect();
        let tried = if otherwise.is_empty() {
            vec![case.clone()]
        } else {
            otherwise
        };
        let range = (from, to, self.multiple_of);
        let mut cards = Vec::new();
        let driver = prepared.source.driver()?;
        let search = |number: usize, case: Case| Search {
            driver: driver.clone(),
            recordings: recordings.clone(),
            running: &running,
            folder: folder.path().join(format!("fit-{number}")),
            headroom: self.headroom,
            case,
            warm: self.warm,
            rounds: Cell::new(0),
        };
        if self.advise {
            let rebuilt = || advise::rebuilt(&case, &here, loudness, folder.path());
            let checkpoints = prepared.source.checkpoints(&case.model.built.target);
            cards = advise::advise(&case, &profiles[0], checkpoints, search, rebuilt, loudness)?;
        }
        for (number, case) in tried.into_iter().enumerate().filter(|_| !self.advise) {
            let search = search(number, case);
            cards.extend(match &vary {
                Some(input) => search.searched(&profiles, input, range, loudness)?,
                None => search
                    .table(&profiles, loudness)?
                    .into_iter()
                    .map(|(card, _)| card)
                    .collect(),
            });
        }
        let mut inputs = case.inputs.clone();
        inputs.retain(|name, _| Some(name) != vary.as_ref());
        let report = pipeline::report(None, &prepared, &models, &running, Vec::new());
        let answer = Answer {
            version: FIT_VERSION,
            tool: report.tool,
            commit: report.commit,
            package: case.model.built.target.package.clone(),
            model: case.name().to_owned(),
            inputs,
            vary,
            warm_only: self.warm,
            headroom: self.headroom.to_string(),
            advised: self.advise,
            cards,
        };
        self.show(&answer, loudness)?;
        Ok(exit(&answer))
    }

    fn show(&self, answer: &Answer, loudness: Loudness) -> Result<(), Stopped> {
        let table = human(answer, loudness.quiet);
        let text = match self.output.message_format {
            Format::Human => table.clone(),
            Format::Json => pipeline::json(answer)?,
        };
        if self.output.output.is_some() {
            terminal::show(&table);
        }
        pipeline::put(&text, self.output.output.as_deref())?;
        if let Some(path) = &self.svg {
            pipeline::put(&svg(answer), Some(path))?;
        }
        Ok(())
    }
}

/// Whether anything fits, and everything could be tried.
fn exit(answer: &Answer) -> Exit {
    let fits = |card: &CardFit| card.probes.iter().any(|probe| probe.fits);
    let broken = |card: &CardFit| card.probes.iter().all(|probe| probe.error.is_some());
    if answer.cards.iter().any(fits) {
        Exit::Success
    } else if answer.cards.iter().all(broken) {
        Exit::Incomplete
    } else {
        Exit::OverBudget
    }
}

/// Runs one model with one value after the other.
struct Search<'a> {
    driver: DriverLibrary,
    recordings: Recordings,
    running: &'a Running,
    folder: PathBuf,
    headroom: Percent,
    case: Case,
    /// Whether the first launch is left out.
    warm: bool,
    /// How often models were run.
    rounds: Cell<u32>,
}

impl Search<'_> {
    /// What a process may hold of a card.
    fn room(&self, card: &Profile) -> Bytes {
        let total = card.total.value;
        Bytes(total.0 - self.headroom.of(total).0)
    }

    fn case(&self, card: &Profile, value: Option<(&str, u64)>) -> Case {
        let mut case = self.case.clone();
        case.profile = cases::estimated(card, &self.recordings);
        case.inputs
            .extend(value.map(|(input, value)| (input.to_owned(), value)));
        case
    }

    fn run(&self, cases: &[Case], doing: String, loudness: Loudness) -> Result<Ran, Stopped> {
        let round = self.rounds.replace(self.rounds.get() + 1);
        let on = pipeline::On {
            observed: false,
            doing: Some(doing),
            ..pipeline::On::new(
                &self.driver,
                Hardware::Virtual,
                self.recordings.clone(),
                self.folder.join(format!("round-{round}")),
            )
        };
        let ran = pipeline::run(cases, self.running, on, loudness)?;
        refused(&ran.runs)?;
        Ok(ran)
    }

    /// Every card, with the inputs as they are, and the run that tells.
    fn table(&self, profiles: &[Profile], loudness: Loudness) -> Result<Vec<(CardFit, Run)>, Stopped> {
        let cases: Vec<_> = profiles.iter().map(|card| self.case(card, None)).collect();
        let doing = match profiles {
            [card] => format!("trying {} on {}", self.case.what_if.of(self.case.name()), card.id),
            cards => format!("trying {} on {} GPUs", self.case.name(), cards.len()),
        };
        let runs = self.run(&cases, doing.clone(), loudness)?.runs;
        let mut cards: Vec<_> = profiles
            .iter()
            .zip(&runs)
            .map(|(card, run)| {
                let room = self.room(card);
                CardFit {
                    gpu: run.gpu.clone(),
                    what_if: run.what_if.clone(),
                    room,
                    largest: None,
                    too_large: None,
                    ended: Ended::Found,
                    not_monotonic: Vec::new(),
                    probes: vec![Probe::of(None, run, room, self.warm)],
                }
            })
            .collect();
        // What is too much where memory ends tells how much only where it does not.
        let full: Vec<_> = (0..cards.len())
            .filter(|&at| cards[at].probes[0].out_of_memory)
            .collect();
        let endless = |&at: &usize| Case {
            endless: true,
            ..cases[at].clone()
        };
        let again: Vec<_> = full.iter().map(endless).collect();
        let doing = format!("{doing} without an end of memory");
        let runs_again = match again.is_empty() {
            true => Vec::new(),
            false => self.run(&again, doing, loudness)?.runs,
        };
        for (at, run) in full.into_iter().zip(runs_again) {
            let room = cards[at].room;
            cards[at].probes[0].tell(&run, room, self.warm);
        }
        Ok(cards.into_iter().zip(runs).collect())
    }

    /// The largest value on each card.
    fn searched(
        &self,
        profiles: &[Profile],
        input: &str,
        (from, to, multiple_of): (u64, u64, u64),
        loudness: Loudness,
    ) -> Result<Vec<CardFit>, Stopped> {
        let start = self.case.inputs.get(input).copied();
        let mut cards = Vec::new();
        for card in profiles {
            let range = Range {
                values: from..=to,
                multiple_of,
                start: start.unwrap_or(32),
                room: self.room(card),
            };
            if range.first() > range.last() {
                return Err(FitError::EmptyRange { from, to }.into());
            }
            cards.push(self.card(card, input, &range, loudness)?);
        }
        Ok(cards)
    }

    fn card(&self, card: &Profile, input: &str, range: &Range, loudness: Loudness) -> Result<CardFit, Stopped> {
        let mut search = Searched {
            search: self,
            card,
            input,
            room: range.room,
            probes: BTreeMap::new(),
            tuned: BTreeMap::new(),
            replayed: BTreeMap::new(),
            gpu: None,
            is_cold: false,
            loudness,
        };
        let jobs = self.running.jobs();
        loop {
            let next = range.next(&search.tried(), jobs);
            // Where a process has no other value to try, it tries what fits so far as a first launch.
            let unsettled = search.unsettled().filter(|_| next.len() < jobs);
            if next.is_empty() && unsettled.is_none() {
                break;
            }
            search.probe(&next, unsettled)?;
        }
        let Searched { probes, gpu, .. } = search;
        let (largest, too_large) = boundary(&probes);
        let fits = |(value, probe): (&u64, &Probe)| probe.fits.then_some(*value);
        let smallest_full = probes.iter().find(|(_, probe)| !probe.fits && probe.error.is_none());
        let not_monotonic =
            smallest_full.map_or_else(Vec::new, |(full, _)| probes.range(full..).filter_map(fits).collect());
        let ended = match (largest, too_large) {
            (Some(largest), None) if largest == range.last() => Ended::EndOfRange,
            (Some(largest), Some(too_large)) if too_large == largest + range.multiple_of => Ended::Found,
            (None, Some(too_large)) if too_large == range.first() => Ended::NothingFits,
            _ => Ended::CannotBeRun,
        };
        Ok(CardFit {
            gpu: gpu.ok_or(FitError::Problem("nothing was run".to_owned(), None))?,
            what_if: self.case.what_if.clone(),
            room: range.room,
            largest,
            too_large,
            ended,
            not_monotonic,
            probes: probes.into_values().collect(),
        })
    }
}

/// An input that the model has not is no matter of memory.
fn refused(runs: &[Run]) -> Result<(), Stopped> {
    let mut errors = runs.iter().filter_map(|run| run.error.as_ref());
    match errors.find(|error| error.code == ErrorCode::UnknownInput) {
        Some(error) => Err(FitError::NoInput(error.message.clone(), error.help.clone()).into()),
        None => Ok(()),
    }
}

/// The search on one card.
struct Searched<'a> {
    search: &'a Search<'a>,
    card: &'a Profile,
    input: &'a str,
    room: Bytes,
    probes: BTreeMap<u64, Probe>,
    /// Where the choices are that a whole cold pass made, by the range of values that they hold for.
    tuned: BTreeMap<u64, PathBuf>,
    /// Where the choices are that values replayed.
    replayed: BTreeMap<u64, PathBuf>,
    gpu: Option<Gpu>,
    /// Whether the first launch turned out to need more than any later one, so that each value is tried cold.
    is_cold: bool,
    loudness: Loudness,
}

impl Searched<'_> {
    fn tried(&self) -> BTreeMap<u64, Tried> {
        let tried = self.probes.iter();
        tried
            .map(|(value, probe)| (*value, probe.tried(self.room, !self.is_cold)))
            .collect()
    }

    /// The largest value that fits, where it was not tried as a first launch and is to be.
    fn unsettled(&self) -> Option<u64> {
        let (largest, _) = boundary(&self.probes);
        largest.filter(|value| self.probes[value].shares_plan && !self.search.warm)
    }

    /// Tries values, and one that fits as a first launch: with choices made for one near by, where those are all that it takes.
    fn probe(&mut self, values: &[u64], unsettled: Option<u64>) -> Result<(), Stopped> {
        let mut asked: Vec<(u64, Launches)> = Vec::new();
        for &value in values {
            let shared = self.tuned.get(&range_of_choices(value)).filter(|_| !self.is_cold);
            let launches = shared.map_or(Launches::All, |plan| Launches::Later(plan.clone()));
            // One makes choices for all others, which are tried later.
            let is_made = |(other, _): &(u64, Launches)| range_of_choices(*other) == range_of_choices(value);
            if self.is_cold || shared.is_some() || !asked.iter().any(is_made) {
                asked.push((value, launches));
            }
        }
        // Its later launches are known, unless a recording has choices for this very value.
        let recordings = &self.search.recordings;
        let is_recorded = recordings
            .for_estimate(&self.card.id, self.card.like.as_deref())
            .is_some();
        let first = if is_recorded { Launches::All } else { Launches::First };
        asked.extend(unsettled.map(|value| (value, first)));
        self.run(asked)?;
        // Where it does not fit as a first launch, nothing is known of what else only fits otherwise.
        if unsettled.is_some_and(|value| !self.probes[&value].fits) {
            self.is_cold = true;
            self.probes.retain(|_, probe| !(probe.fits && probe.shares_plan));
        }
        Ok(())
    }

    fn run(&mut self, asked: Vec<(u64, Launches)>) -> Result<(), Stopped> {
        let ends = self.search.case.model.built.target.retries_allocations();
        let case = |(value, launches): &(u64, Launches)| Case {
            launches: launches.clone(),
            // A first launch takes what there is, and so needs to know what there is.
            endless: matches!(launches, Launches::Later(_)) && !ends,
            ..self.search.case(self.card, Some((self.input, *value)))
        };
        let cases: Vec<Case> = asked.iter().map(case).collect();
        let ran = self.search.run(&cases, self.doing(&asked), self.loudness)?;
        let mut again = Vec::new();
        let came = ran.runs.iter().zip(ran.choices).zip(ran.unplanned);
        for ((value, launches), ((run, choices), unplanned)) in asked.into_iter().zip(came) {
            let probe = |warm_only| Probe::of(Some(value), run, self.room, warm_only);
            let probe = match launches {
                // The plan lacked choices that it needs.
                Launches::Later(_) if unplanned > 0 => None,
                Launches::Later(plan) => {
                    let probe = probe(true);
                    self.replayed.insert(value, plan);
                    Some(Probe {
                        shares_plan: true,
                        ..probe
                    })
                }
                Launches::First => {
                    let first = self.probes[&value].with_first(&probe(false));
                    // Its own choices may be others, where candidates found less room.
                    let is_known = !first.fits || self.replays(value, &choices);
                    is_known.then_some(first)
                }
                Launches::All => {
                    let probe = probe(self.search.warm);
                    if run.error.is_none() && run.oom.is_none() {
                        self.tuned.insert(range_of_choices(value), choices);
                    }
                    Some(probe)
                }
            };
            match probe {
                Some(probe) => self.add(value, run, probe),
                None => again.push((value, Launches::All)),
            }
        }
        if !again.is_empty() {
            self.run(again)?;
        }
        Ok(())
    }

    /// What is tried: the values, and on which card.
    fn doing(&self, asked: &[(u64, Launches)]) -> String {
        let values: BTreeSet<u64> = asked.iter().map(|(value, _)| *value).collect();
        let values: Vec<_> = values.iter().map(u64::to_string).collect();
        format!(
            "trying {} {} on {}, {} tried before",
            named(self.input),
            values.join(" and "),
            named(&self.card.id),
            self.probes.len(),
        )
    }

    /// Whether a value replayed the choices that its own first launch made.
    fn replays(&self, value: u64, own: &Path) -> bool {
        let replayed = self.replayed.get(&value);
        replayed.is_some_and(|replayed| plan::agree(own, replayed).unwrap_or(false))
    }

    fn add(&mut self, value: u64, run: &Run, probe: Probe) {
        self.gpu.get_or_insert_with(|| run.gpu.clone());
        self.probes.insert(value, probe);
    }
}

/// Autotune makes choices for ranges of sizes, which end at powers of two.
const fn range_of_choices(value: u64) -> u64 {
    value.next_power_of_two()
}

/// The largest value that fits, and the smallest above it that does not.
fn boundary(probes: &BTreeMap<u64, Probe>) -> (Option<u64>, Option<u64>) {
    let largest = probes
        .iter()
        .rev()
        .find(|(_, probe)| probe.fits)
        .map(|(value, _)| *value);
    let too_large = probes
        .range(largest.map_or(0, |largest| largest + 1)..)
        .find(|(_, probe)| !probe.fits && probe.error.is_none());
    (largest, too_large.map(|(value, _)| *value))
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let expected = || "expected the smallest and the largest value, such as 1..4096".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| expected());
    match (number(from)?, number(to)?) {
        (0, _) => Err("the smallest value is 1".to_owned()),
        (from, to) if from > to => Err(format!("{from}..{to} is upside down: the smallest value comes first")),
        range => Ok(range),
    }
}

fn percent(text: &str) -> Result<Percent, String> {
    parse_percent(text)
        .filter(|percent| *percent < Percent::whole(100))
        .ok_or_else(|| "expected a percentage below 100, such as 5%".to_owned())
}
