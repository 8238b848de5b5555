//! `completions`: what a shell needs to complete this command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Exit;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof completions bash > ~/.local/share/bash-completion/completions/kernelproof
  kernelproof completions zsh > ~/.zfunc/_kernelproof
  kernelproof completions fish > ~/.config/fish/completions/kernelproof.fish";

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn execute(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kernelproof", &mut script);
    output::print(String::from_utf8(script)?.trim_end())?;
    Ok(Exit::Success)
}
