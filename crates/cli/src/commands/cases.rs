//! `cases`: the suite.

use clap::Args;
use qkv_rope_op::{Cost, Dims, Problem, SUITE};
use serde::Serialize;

use crate::args::JsonArg;
use crate::failure::Exit;
use crate::output;
use crate::report::table::Table;

/// List the cases of the benchmark suite
#[derive(Debug, Args)]
pub(crate) struct CasesArgs {
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    id: String,
    dims: Dims,
    tokens: usize,
    flops: u128,
    min_bytes: u128,
}

/// Runs the command.
pub(crate) fn execute(args: &CasesArgs) -> anyhow::Result<Exit> {
    let rows = SUITE.map(|case| {
        let dims = case.dims();
        let cost = Cost::of(&Problem::new(dims));
        let (flops, min_bytes) = (cost.flops, cost.min_bytes);
        Row { name: case.name(), id: case.id(), dims, tokens: dims.tokens(), flops, min_bytes }
    });
    let mut table = Table::new(&["case", "id", "tokens", "GFLOP", "MB", "sizes"]);
    for row in &rows {
        let (gflop, megabytes) = (row.flops as f64 / 1e9, row.min_bytes as f64 / 1e6);
        table.row([
            row.name.clone(),
            row.id.clone(),
            row.tokens.to_string(),
            format!("{gflop:.2}"),
            format!("{megabytes:.1}"),
            row.dims.to_string(),
        ]);
    }
    output::result(args.json.json.as_ref(), &rows, &table.to_string())?;
    Ok(Exit::Success)
}
