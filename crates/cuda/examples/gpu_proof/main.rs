//! Proves the GPU backend on the GPU of this machine: `gpu_proof check` compares with f64 (`large` does so
//! on tensors of more than 2^31 elements), `gpu_proof bits` looks for
//! results that differ between runs or memory layouts, `gpu_proof time` measures. Each prints one JSON object a line and
//! ends with exit code 1 when something failed. bench/gpu/run.sh calls them in order.

mod check;
mod layouts;
mod timing;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use qkv_rope_cuda::Gpu;

fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let chore = args.next().context("usage: gpu_proof check|large|small|outliers|bits|time [number]")?;
    let number = args.next().map(|text| text.parse::<usize>()).transpose()?;
    let gpu = Gpu::open(0)?;
    let failures = match chore.as_str() {
        "check" => check::all(&gpu, number.unwrap_or(300))?,
        "large" => check::large(&gpu)?,
        "small" => check::small(&gpu)?,
        "outliers" => check::outliers(&gpu)?,
        "bits" => layouts::all(&gpu, number.unwrap_or(100))?,
        "time" => timing::all(&gpu, number.unwrap_or(50))?,
        other => bail!("unknown chore {other:?}, expected check, large, small, outliers, bits or time"),
    };
    emit(&serde_json::json!({ "chore": chore, "failures": failures }));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stdout, reason = "the output of this program is its result")]
fn emit(value: &serde_json::Value) {
    println!("{value}");
}
