//! `cargo vram list`: the declared models, or those of an archive.

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use super::exit::Exit;
use super::options::{Archive, Format, Loudness, Output, Packages};
use super::source::Source;
use super::{Stopped, pipeline, terminal};
use crate::protocol::Task;
use crate::report::human;

/// List the models that the workspace declares, or those of an archive
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram list
  cargo vram list --message-format json
  cargo vram list --archive-file models.tar.zst    what it says is in it: none of its programs is run")]
pub(super) struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    archive: Archive,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Serialize)]
struct Model<'a> {
    package: &'a str,
    model: &'a str,
    task: Task,
    target: &'a str,
    burn: &'a str,
}

impl List {
    pub(super) fn run(&self, loudness: Loudness) -> Result<Exit, Stopped> {
        let source = Source::open(&self.packages, self.archive.file())?;
        let (declared, problems) = match &source {
            Source::Archive(brought) => (brought.listed(), Vec::new()),
            Source::Workspace(_) => {
                let folder = source.scratch(None)?;
                let (built, mut problems) = source.built(&self.packages, loudness)?;
                let (declared, unlisted) = source.list(&built, folder.path())?;
                problems.extend(unlisted);
                (declared, problems)
            }
        };
        let models: Vec<_> = declared
            .iter()
            .map(|model| Model {
                package: &model.built.target.package,
                model: &model.name,
                task: model.task,
                target: &model.built.target.name,
                burn: &model.built.target.burn,
            })
            .collect();
        let text = match self.output.message_format {
            Format::Json => pipeline::json(&models)?,
            // A header alone says nothing.
            Format::Human if models.is_empty() => String::new(),
            Format::Human => {
                let mut table = Table::new();
                table
                    .load_preset(comfy_table::presets::NOTHING)
                    .set_header(["package", "model", "task", "target", "burn"]);
                for model in &models {
                    let task = if model.task == Task::Train { "train" } else { "infer" };
                    table.add_row([model.package, model.model, task, model.target, model.burn]);
                }
                format!("{table}\n")
            }
        };
        pipeline::put(&text, self.output.output.as_deref())?;
        let mut exit = Exit::Success;
        for problem in &problems {
            terminal::remark(&human::problem(problem));
            exit = exit.or(Exit::of_code(&problem.code));
        }
        Ok(exit)
    }
}
