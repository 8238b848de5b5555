//! `peak`: what this machine can do at most, measured.

use std::num::NonZeroUsize;

use clap::Args;
use kernelproof_eval::bandwidth::Buffers;
use kernelproof_eval::measure::{Clock, Contestant, MonotonicClock};
use kernelproof_eval::statistics;
use qkv_rope_cpu::Isa;
use serde::Serialize;

use crate::args::{JsonArg, parse_isa, parse_threads};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::machine::{self, Build, Machine};
use crate::output;
use crate::peak::PeakLoop;
use crate::report::record::PeakRecord;
use crate::report::table::Table;

const AFTER_HELP: &str = "\
Examples:
  kernelproof peak
  kernelproof peak --threads 1 --isa avx2 --json

The FMA peak comes from a loop of independent multiply-adds on registers; the bandwidths from reading a buffer and \
from copying one to another, each 8 times the last-level cache. A copy counts each byte read and each byte written.";

/// Buffers are this many times the last-level cache, so that at most an eighth of a pass is served from it.
const CACHES: usize = 8;

/// Measure the FMA peak and the memory bandwidth of this machine
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PeakArgs {
    /// Measure with this many threads only [default: each count up to what this process may use]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// Measure this instruction set only: avx512, avx2 or portable [default: each that this processor has]
    #[arg(long, value_name = "ISA", value_parser = parse_isa)]
    isa: Option<Isa>,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    #[command(flatten)]
    json: JsonArg,
}

/// What was measured, as data.
#[derive(Debug, Serialize)]
struct PeakReport {
    schema: &'static str,
    machine: Machine,
    build: Build,
    fma: Vec<PeakRecord>,
    memory: Vec<MemoryRecord>,
}

#[derive(Debug, Serialize)]
struct MemoryRecord {
    what: &'static str,
    threads: usize,
    bytes: u64,
    samples_ns: Vec<u64>,
}

/// Runs the command.
pub(crate) fn execute(args: &PeakArgs) -> anyhow::Result<Exit> {
    let (machine, clock) = (Machine::here(), MonotonicClock::default());
    let isas = args.isa.map_or_else(Isa::available, |isa| vec![isa]);
    if let Some(isa) = isas.iter().find(|isa| !isa.is_available()) {
        let has: Vec<String> = Isa::available().iter().map(Isa::to_string).collect();
        let message = format!("this processor has no {isa}, only {}", has.join(", "));
        return Err(Failure::unavailable(message).into());
    }
    let counts = thread_counts(args.threads);
    interrupt::listen()?;
    let mut fma = Vec::new();
    for &isa in &isas {
        for &threads in &counts {
            fma.push(measure_fma(isa, threads, args.samples, &clock)?);
        }
    }
    let mut memory = Vec::new();
    for &threads in &counts {
        memory.extend(measure_memory(&machine, threads, args.samples, &clock));
    }
    let report = PeakReport { schema: "kernelproof.peak/1", machine, build: Build::this(), fma, memory };
    output::result(args.json.json.as_ref(), &report, &table(&report))?;
    Ok(if interrupt::requested() { Exit::Interrupted } else { Exit::Success })
}

/// 1, 2, 4, … and all, or only what was asked for.
fn thread_counts(asked: Option<NonZeroUsize>) -> Vec<NonZeroUsize> {
    if let Some(threads) = asked {
        return vec![threads];
    }
    let all = machine::threads_available();
    let powers = std::iter::successors(Some(1_usize), |threads| threads.checked_mul(2));
    let counts = powers.take_while(|&threads| threads < all).chain([all]);
    counts.filter_map(NonZeroUsize::new).collect()
}

fn measure_fma(isa: Isa, threads: NonZeroUsize, samples: u32, clock: &dyn Clock) -> anyhow::Result<PeakRecord> {
    let mut peak = PeakLoop::new(isa, threads, clock)?;
    let mut samples_ns = Vec::new();
    for _ in 0..samples {
        if interrupt::requested() {
            break;
        }
        samples_ns.push(peak.run_once(clock).map_err(|reason| anyhow::anyhow!(reason))?);
    }
    Ok(PeakRecord { isa: isa.to_string(), threads: threads.get(), flops: peak.flops(), samples_ns })
}

fn measure_memory(machine: &Machine, threads: NonZeroUsize, samples: u32, clock: &dyn Clock) -> [MemoryRecord; 2] {
    let mut buffers = Buffers::new(CACHES * machine.last_level_cache_bytes, threads.get());
    let record = |what| MemoryRecord { what, threads: threads.get(), bytes: 0, samples_ns: Vec::new() };
    let mut records = [record("read"), record("copy")];
    for _ in 0..samples {
        if interrupt::requested() {
            break;
        }
        let transfers = [buffers.read(clock), buffers.copy(clock)];
        for (record, transfer) in records.iter_mut().zip(transfers) {
            record.bytes = transfer.bytes;
            record.samples_ns.push(transfer.time_ns);
        }
    }
    records
}

fn table(report: &PeakReport) -> String {
    let heading =
        format!("{}, {} threads, {}", report.machine.cpu, report.machine.threads_available, report.machine.os);
    let mut table = Table::new(&["what", "threads", "median", "best"]);
    let mut row = |what: String, threads: usize, amount: u64, samples: &[u64], unit: &str| {
        let rate = |time_ns: Option<f64>| {
            time_ns.map_or_else(|| "-".to_owned(), |time_ns| format!("{:.1} {unit}", amount as f64 / time_ns))
        };
        let best = samples.iter().min().map(|&time_ns| time_ns as f64);
        table.row([what, threads.to_string(), rate(statistics::median(samples)), rate(best)]);
    };
    for peak in &report.fma {
        row(format!("FMA peak, {}", peak.isa), peak.threads, peak.flops, &peak.samples_ns, "GFLOP/s");
    }
    for memory in &report.memory {
        row(format!("memory {}", memory.what), memory.threads, memory.bytes, &memory.samples_ns, "GB/s");
    }
    format!("{heading}\n\n{table}")
}
