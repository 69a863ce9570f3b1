//! `cargo vram list`: the declared models.

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use super::exit::Exit;
use super::options::{Format, Loudness, Output, Packages};
use super::{Stopped, pipeline, terminal};
use crate::protocol::Task;
use crate::report::human;

/// List the models that the workspace declares
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo vram list
  cargo vram list --message-format json")]
pub(super) struct List {
    #[command(flatten)]
    output: Output,
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
        let prepared = pipeline::prepare(&self.packages, None, None)?;
        let folder = prepared.source.scratch(None)?;
        let found = pipeline::models(&prepared, &self.packages, None, loudness, folder.path())?;
        let models: Vec<_> = found
            .declared
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
        for problem in &found.problems {
            terminal::remark(&human::problem(problem));
            exit = exit.or(Exit::of_code(&problem.code));
        }
        Ok(exit)
    }
}
