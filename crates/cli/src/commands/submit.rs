//! `submit`: a run bundle to somebody's index.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::manifest::shown;
use kernelproof_index::{bundle, intake, verify};
use serde::{Deserialize, Serialize};

use crate::args::JsonTo;
use crate::failure::{Exit, Failure};
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  KERNELPROOF_TOKEN=... kernelproof submit records/runs/2026-12-01-cpu-avx512-0123456789ab --to https://index.example

Verifies the bundle here, then sends it. The server verifies it again and stores all of it or nothing; sending it once more changes \
nothing. The run enters as reported or reproducible: more takes another run.

Exit codes: 0 the index has it, 1 the bundle is refused, 2 it cannot be read, 3 the server cannot be reached or says no.";

/// Send a run bundle to an index
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SubmitArgs {
    /// Folder of the run
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Address of the site
    #[arg(long, value_name = "URL")]
    to: String,
    /// The token that the site's owner gave you
    #[arg(long, env = "KERNELPROOF_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What the server says of a stored bundle.
#[derive(Debug, Deserialize, Serialize)]
struct Stored {
    run: String,
    href: String,
    outcome: String,
    trust: String,
    missing: Vec<String>,
}

/// What the server says of anything else.
#[derive(Debug, Deserialize)]
struct Problem {
    title: String,
    detail: String,
}

/// A slow line needs a minute for the largest bundle.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest answer that is read.
const LONGEST_ANSWER_BYTES: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn execute(args: &SubmitArgs) -> anyhow::Result<Exit> {
    let (verification, _) = verify(&args.bundle)?;
    if !verification.findings.is_empty() {
        let lines: Vec<String> = verification.findings.iter().map(|finding| format!("  {}", shown(finding))).collect();
        output::note(&format!("{}: not sent, it does not verify\n{}", args.bundle.display(), lines.join("\n")));
        return Ok(Exit::CheckFailed);
    }
    let (files, _) = bundle::read(&args.bundle)?;
    let archive =
        intake::pack(&files).map_err(|error| Failure::input(format!("{}: {error}", args.bundle.display())))?;
    let site = args.to.trim_end_matches('/');
    let (status, text) = send(site, &args.token, &archive)?;
    match status {
        200 | 201 => {
            let stored: Stored = serde_json::from_str(&text).context("the server's answer cannot be understood")?;
            let what = if stored.outcome == "known" { "known already" } else { "stored" };
            let text = format!("{site}{}: {what}, {}", shown(&stored.href), shown(&stored.trust));
            output::result(args.json.then_some(JsonTo::Stdout).as_ref(), &stored, &text)?;
            Ok(Exit::Success)
        }
        400 | 413 | 422 => {
            output::note(&format!("{}: refused: {}", args.bundle.display(), problem(&text)));
            Ok(Exit::CheckFailed)
        }
        status => Err(Failure::unavailable(format!("{site}: answers {status}: {}", problem(&text))).into()),
    }
}

fn problem(text: &str) -> String {
    match serde_json::from_str::<Problem>(text) {
        Ok(Problem { title, detail }) => shown(&format!("{title}: {detail}")),
        Err(_) => shown(text),
    }
}

/// The status and the body of the answer.
fn send(site: &str, token: &str, archive: &[u8]) -> anyhow::Result<(u16, String)> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    let agent: ureq::Agent = config.timeout_global(Some(PATIENCE)).build().into();
    let request = agent.post(format!("{site}/runs")).header("Authorization", format!("Bearer {token}"));
    let request = request.content_type("application/x-tar");
    let unreachable = |error: ureq::Error| Failure::unavailable(format!("{site}: cannot be reached: {error}"));
    let mut response = request.send(archive).map_err(unreachable)?;
    let body = response.body_mut().with_config().limit(LONGEST_ANSWER_BYTES).read_to_string().map_err(unreachable)?;
    Ok((response.status().as_u16(), body))
}
