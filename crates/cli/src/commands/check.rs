//! `check`: correctness against f64.
use clap::Args;
use crate::failure::Exit;

/// Check outputs against f64
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {}

pub(crate) fn execute(_: &CheckArgs) -> anyhow::Result<Exit> {
    Ok(Exit::Success)
}
