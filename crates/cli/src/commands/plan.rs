//! `plan`: what would run, without running it.

use std::num::NonZeroUsize;

use clap::Args;
use kernelproof_eval::bandwidth::Buffers;
use kernelproof_eval::measure::{Contestant, MonotonicClock};
use qkv_rope_cpu::Isa;
use qkv_rope_cuda::CudaBackend;
use qkv_rope_cuda::facts::Facts;
use qkv_rope_op::{Backend, Plan};
use serde::Serialize;

use crate::args::{Device, DeviceArgs, JsonArg, ModeArgs, WorkloadArgs};
use crate::failure::Exit;
use crate::machine::Machine;
use crate::output;
use crate::peak::PeakLoop;
use crate::report::table::Table;

const AFTER_HELP: &str = "\
Examples:
  kernelproof plan --case s1024b2
  kernelproof plan --dims B=1,S=300,E=1024,H=16,K=4,D=80 --json
  kernelproof plan --all --gpu h200 --precision fast
  kernelproof plan --all --measure              floors from this machine's measured peaks
  kernelproof plan --all --peak 230 --bandwidth 40

The floor is the larger of flops / peak and bytes / bandwidth: no implementation on that machine can be faster.";

/// Show what would run for a problem: stages, tiles, bytes and floors
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Plan for a GPU that need not be here: a100, h100, h200, b200, l4, rtx4090 or rtx5090
    #[arg(long, value_name = "GPU", value_parser = parse_gpu, conflicts_with_all = ["device", "measure"])]
    gpu: Option<Facts>,
    /// Arithmetic peak for the floors, in GFLOP/s
    #[arg(long, value_name = "GFLOPS", value_parser = positive, allow_negative_numbers = true, requires = "bandwidth")]
    peak: Option<f64>,
    /// Memory bandwidth for the floors, in GB/s
    #[arg(long, value_name = "GBPS", value_parser = positive, allow_negative_numbers = true, requires = "peak")]
    bandwidth: Option<f64>,
    /// Measure peak and bandwidth of this machine now
    #[arg(long, conflicts_with_all = ["peak", "bandwidth"])]
    measure: bool,
    #[command(flatten)]
    json: JsonArg,
}

/// Peaks that floors are computed from.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ceilings {
    gflops: f64,
    gb_per_s: f64,
    source: &'static str,
}

#[derive(Debug, Serialize)]
struct Planned {
    name: String,
    plan: Plan,
    ceilings: Option<Ceilings>,
    floor_ns: Option<f64>,
}

/// Runs the command.
pub(crate) fn execute(args: &PlanArgs) -> anyhow::Result<Exit> {
    let workloads = args.workload.workloads()?;
    let (backend, mode) = backend(args)?;
    let ceilings = ceilings(args)?;
    let mut planned = Vec::new();
    for workload in workloads {
        let plan = backend.plan(&mode.problem(workload.dims))?;
        let floor_ns = ceilings.map(|ceilings| plan.cost.floor_ns(ceilings.gflops, ceilings.gb_per_s));
        planned.push(Planned { name: workload.name, plan, ceilings, floor_ns });
    }
    let texts: Vec<String> = planned.iter().map(text).collect();
    output::result(args.json.json.as_ref(), &planned, &texts.join("\n\n"))?;
    Ok(Exit::Success)
}

/// The backend that plans, and the mode with its default precision.
fn backend(args: &PlanArgs) -> anyhow::Result<(Box<dyn Backend>, ModeArgs)> {
    match &args.gpu {
        Some(facts) => Ok((Box::new(CudaBackend::planning_for(facts.clone())), args.mode.on(Device::Cuda(0)))),
        None => Ok((args.device.open()?, args.mode.on(args.device.device))),
    }
}

fn parse_gpu(text: &str) -> Result<Facts, String> {
    Facts::named(text).ok_or_else(|| format!("expected one of {}", Facts::NAMES.join(", ")))
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a positive number".to_owned())
}

fn ceilings(args: &PlanArgs) -> anyhow::Result<Option<Ceilings>> {
    if let (Some(gflops), Some(gb_per_s)) = (args.peak, args.bandwidth) {
        return Ok(Some(Ceilings { gflops, gb_per_s, source: "as given" }));
    }
    if !args.measure {
        return Ok(None);
    }
    let isa = args.device.isa.unwrap_or_else(Isa::detect);
    measured(isa, args.device.thread_count()).map(Some)
}

/// The best of a few samples: a ceiling is not an average.
fn measured(isa: Isa, threads: NonZeroUsize) -> anyhow::Result<Ceilings> {
    const SAMPLES: usize = 9;
    let clock = MonotonicClock::default();
    let mut peak = PeakLoop::new(isa, threads, &clock)?;
    let mut buffers = Buffers::new(8 * Machine::here().last_level_cache_bytes, threads.get());
    let (mut gflops, mut gb_per_s) = (0.0_f64, 0.0_f64);
    for _ in 0..SAMPLES {
        let time_ns = peak.run_once(&clock).map_err(|reason| anyhow::anyhow!(reason))?;
        gflops = gflops.max(peak.flops() as f64 / time_ns.max(1) as f64);
        gb_per_s = gb_per_s.max(buffers.read(&clock).bytes_per_ns());
    }
    Ok(Ceilings { gflops, gb_per_s, source: "measured now" })
}

fn text(planned: &Planned) -> String {
    let plan = &planned.plan;
    let (cost, dims) = (plan.cost, plan.problem.dims);
    let mut lines = vec![
        format!("{} by {}", planned.name, plan.backend),
        format!("  sizes      {dims}, T={} N={}", dims.tokens(), dims.rows()),
        format!("  least work {:.3} GFLOP, {:.3} MB", cost.flops as f64 / 1e9, cost.min_bytes as f64 / 1e6),
        format!("  workspace  {:.3} MB", plan.workspace_bytes as f64 / 1e6),
    ];
    if let (Some(ceilings), Some(floor_ns)) = (planned.ceilings, planned.floor_ns) {
        lines.push(format!(
            "  floor      {:.3} ms at {:.1} GFLOP/s and {:.1} GB/s, {}",
            floor_ns / 1e6,
            ceilings.gflops,
            ceilings.gb_per_s,
            ceilings.source
        ));
    }
    lines.extend(plan.notes.iter().map(|note| format!("  note       {note}")));
    let mut table = Table::new(&["stage", "tiles", "times", "GFLOP", "MB"]);
    for step in &plan.steps {
        table.row([
            step.kernel.clone(),
            step.tiles.clone(),
            step.launches.to_string(),
            format!("{:.3}", step.flops as f64 / 1e9),
            format!("{:.3}", step.bytes as f64 / 1e6),
        ]);
    }
    format!("{}\n\n{table}", lines.join("\n"))
}
