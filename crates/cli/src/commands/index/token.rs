//! `index token`: who may submit.

use clap::{Args, Subcommand};
use kernelproof_index::manifest::shown;
use kernelproof_index::token::Token;
use rand::RngExt as _;
use serde::Serialize;

use crate::args::JsonTo;
use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index token new someone
  kernelproof index token revoke someone --reason 'it was in a log'

A token is 256 random bits. It is printed once; the index keeps only its SHA-256.";

/// Let somebody submit runs, or no longer
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token for somebody and print it once
    New {
        /// Who; shown beside what is submitted
        submitter: String,
        #[command(flatten)]
        library: LibraryArgs,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Take back all tokens of somebody
    Revoke {
        /// Who
        submitter: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        library: LibraryArgs,
    },
}

#[derive(Debug, Serialize)]
struct New<'a> {
    submitter: &'a str,
    token: &'a str,
}

/// Longest name of a submitter.
const LONGEST_NAME: usize = 64;

/// Runs the command.
pub(super) fn execute(args: &TokenArgs) -> anyhow::Result<Exit> {
    let now = || jiff::Timestamp::now().to_string();
    match &args.command {
        TokenCommand::New { submitter, library, json } => {
            if submitter.trim().is_empty() || submitter.chars().count() > LONGEST_NAME || shown(submitter) != *submitter
            {
                let message = format!(
                    "submitter: found {:?}, expected 1 to {LONGEST_NAME} printable characters",
                    shown(submitter)
                );
                return Err(Failure::input(message).into());
            }
            let token = Token::of(rand::rng().random());
            library.store()?.add_token(&token, submitter, &now())?;
            let new = New { submitter, token: token.reveal() };
            output::result(json.then_some(JsonTo::Stdout).as_ref(), &new, new.token)?;
            output::note("this is the only time that the token is shown");
            Ok(Exit::Success)
        }
        TokenCommand::Revoke { submitter, reason, library } => {
            let revoked = library.existing_store()?.revoke_tokens(submitter, &now(), reason)?;
            if revoked == 0 {
                return Err(Failure::input(format!("{submitter}: has no token")).into());
            }
            output::print(&format!("{submitter}: {revoked} taken back"))?;
            Ok(Exit::Success)
        }
    }
}
