//! `cargo vram completions`: prints completions for a shell.

use clap::Args;
use clap_complete::Shell;

use super::exit::Exit;
use super::{program, terminal};
use crate::cli::error::CliError;

/// Print completions for a shell
///
/// They complete the program `cargo-vram`, and in zsh also `cargo vram`, because Cargo's own completions there ask for those of a
/// subcommand.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  cargo vram completions bash > ~/.local/share/bash-completion/completions/cargo-vram
  cargo vram completions zsh > ~/.zfunc/_cargo-vram
  cargo vram completions fish > ~/.config/fish/completions/cargo-vram.fish")]
pub(super) struct Completions {
    /// Print completions for this shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// Returns the script.
    fn script(&self) -> String {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program(), "cargo-vram", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }

    pub(super) fn run(&self) -> Result<Exit, CliError> {
        terminal::show_document(&self.script());
        Ok(Exit::Success)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_every_command_and_its_options() {
        for shell in Shell::value_variants() {
            let script = Completions { shell: *shell }.script();
            for word in ["estimate", "explain", "partition", "deny-edits"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
