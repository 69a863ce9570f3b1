//! `cargo vram list`: lists the declared models, or those of an archive.

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use super::exit::Exit;
use super::options::{ArchiveOptions, Format, OutputOptions, Packages};
use super::terminal;
use crate::cli::error::CliError;
use crate::cli::session;
use crate::cli::session::source::ModelSource;
use crate::protocol::Task;
use crate::render;
use crate::untrusted::{Foreign, PlainName};

/// List the models that the workspace declares, or the models of an archive
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram list
  cargo vram list --message-format json
  cargo vram list --archive-file models.tar.zst
      list the models of the archive's manifest, without running its programs")]
pub(super) struct ListCommand {
    #[command(flatten)]
    archive: ArchiveOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    packages: Packages,
}

#[derive(Serialize)]
struct ListedModel<'a> {
    package: &'a PlainName,
    model: &'a PlainName,
    task: Task,
    target: &'a Foreign,
    burn: &'a Foreign,
}

impl ListCommand {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let source = ModelSource::open(&self.packages, self.archive.file())?;
        let (declared, problems) = match &source {
            // By the manifest: to look into an archive must not run its programs.
            ModelSource::Archive(brought) => (brought.listed(), Vec::new()),
            ModelSource::Workspace(_) => {
                // Only a built program knows the models that its `models!` declares.
                let folder = source.scratch(None)?;
                let (built, mut problems) = source.built(&self.packages)?;
                let (declared, unlisted) = source.list(&built, folder.path())?;
                problems.extend(unlisted);
                (declared, problems)
            }
        };
        let models: Vec<_> = declared
            .iter()
            .map(|model| ListedModel {
                package: &model.built.target.package,
                model: &model.name,
                task: model.task,
                target: &model.built.target.name,
                burn: &model.built.target.burn,
            })
            .collect();
        let text = match self.output.message_format {
            Format::Json => session::json(&models)?,
            // A header without rows says nothing.
            Format::Human if models.is_empty() => String::new(),
            Format::Human => {
                let mut table = Table::new();
                table
                    .load_preset(comfy_table::presets::NOTHING)
                    .set_header(["package", "model", "task", "target", "burn"]);
                for model in &models {
                    let task = if model.task == Task::Train { "train" } else { "infer" };
                    let [package, name] = [model.package, model.model].map(PlainName::as_str);
                    let [target, burn] = [model.target, model.burn].map(ToString::to_string);
                    table.add_row([package, name, task, &target, &burn]);
                }
                format!("{table}\n")
            }
        };
        session::put(&text, self.output.message_format, self.output.output.as_deref())?;
        let mut exit = Exit::Success;
        for problem in &problems {
            terminal::remark(&render::terminal::report::problem(problem));
            exit = exit.or(Exit::from_code(&problem.code));
        }
        Ok(exit)
    }
}
