//! `check`: correctness against f64.
use crate::failure::Exit;
use clap::Args;

/// Check outputs against f64
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {}

pub(crate) fn execute(_: &CheckArgs) -> anyhow::Result<Exit> {
    Ok(Exit::Success)
}
