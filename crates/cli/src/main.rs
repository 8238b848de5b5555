//! `kernelproof`: runs, checks and times the backward pass of the QKV projection with rotary embedding.
//!
//! One file per command in `commands`; what several share has its own module. Only `output` prints.

mod args;
mod bundles;
mod candidate;
mod commands;
mod contest;
mod device;
mod evaluator;
mod failure;
mod interrupt;
mod library;
mod machine;
mod output;
mod peak;
mod progress;
mod python;
mod report;
mod tensors;

use clap::Parser as _;

use args::{Cli, Command};
use failure::Exit;

fn main() {
    let cli = Cli::parse();
    let exit = match dispatch(cli.command) {
        Ok(exit) => exit,
        Err(error) if error.is::<output::Closed>() => Exit::Success,
        Err(error) => {
            output::note(&failure::describe(&error));
            failure::exit_of(&error)
        }
    };
    std::process::exit(exit as i32);
}

fn dispatch(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => commands::run::execute(&args),
        Command::Inputs(args) => commands::inputs::execute(&args),
        Command::Quick(args) => commands::quick::execute(&args),
        Command::Check(args) => commands::check::execute(&args),
        Command::Bench(args) => commands::bench::execute(&args),
        Command::Compare(args) => commands::compare::execute(&args),
        Command::Eval(args) => commands::eval::execute(&args),
        Command::Report(args) => commands::report::execute(&args),
        Command::Replay(args) => commands::replay::execute(&args),
        Command::Verify(args) => commands::verify::execute(&args),
        Command::Index(args) => commands::index::execute(&args),
        Command::Serve(args) => commands::serve::execute(&args),
        Command::Site(args) => commands::site::execute(&args),
        Command::Submit(args) => commands::submit::execute(&args),
        Command::Plan(args) => commands::plan::execute(&args),
        Command::Peak(args) => commands::peak::execute(&args),
        Command::Cases(args) => commands::cases::execute(&args),
        Command::Completions(args) => commands::completions::execute(&args),
    }
}
