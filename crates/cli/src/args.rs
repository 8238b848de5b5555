//! The command line: what every command shares, and the list of commands.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use qkv_rope_cpu::Isa;
use qkv_rope_op::{Case, Dims, Pairing, Precision, Problem, SUITE};

use crate::commands;
use crate::failure::Failure;

const AFTER_HELP: &str = "\
Start here:
  kernelproof quick                            check and time the suite, save a JSON file and a plot
  kernelproof inputs --case s1024b2 -o in.safetensors
  kernelproof run in.safetensors -o out.safetensors

Exit codes:
  0  done
  1  a check failed
  2  wrong usage, or a file that cannot be read, understood or written
  3  the device, or a program that a command needs, is not available, or cannot run the problem
  130  stopped by Ctrl-C; what was measured has been written

Results go to stdout, progress and errors to stderr. `--help` of each command shows examples.";

/// The backward pass of the QKV projection with rotary embedding: run it, check it, time it.
///
/// Given the gradients of query, key and value it computes those of the hidden states and of the three projection
/// weights, as every layer of a Llama-style model needs them in training.
#[derive(Debug, Parser)]
#[command(name = "kernelproof", version = version(), after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant per file in `commands`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(commands::run::RunArgs),
    Inputs(commands::inputs::InputsArgs),
    Quick(commands::quick::QuickArgs),
    Check(commands::check::CheckArgs),
    Bench(commands::bench::BenchArgs),
    Compare(commands::compare::CompareArgs),
    Eval(commands::eval::EvalArgs),
    Report(commands::report::ReportArgs),
    Replay(commands::replay::ReplayArgs),
    Verify(commands::verify::VerifyArgs),
    Index(commands::index::IndexArgs),
    Serve(commands::serve::ServeArgs),
    Site(commands::site::SiteArgs),
    Submit(commands::submit::SubmitArgs),
    Plan(commands::plan::PlanArgs),
    Peak(commands::peak::PeakArgs),
    Cases(commands::cases::CasesArgs),
    Completions(commands::completions::CompletionsArgs),
}

fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("KERNELPROOF_COMMIT"), ", ", env!("KERNELPROOF_RUSTC"), ")")
}

/// Where `--json` sends its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonTo {
    Stdout,
    File(PathBuf),
}

/// `--json` of commands that take no files.
#[derive(Clone, Debug, Args)]
pub(crate) struct JsonArg {
    /// Print JSON instead of a table, or write it to FILE beside the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_parser = parse_json_to)]
    pub(crate) json: Option<JsonTo>,
}

fn parse_json_to(text: &str) -> Result<JsonTo, std::convert::Infallible> {
    Ok(if text == "-" { JsonTo::Stdout } else { JsonTo::File(PathBuf::from(text)) })
}

/// Which device computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Device {
    /// This machine's processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl Device {
    /// How operands are rounded when the user does not say: f32-class results on either device.
    fn default_precision(self) -> PrecisionArg {
        match self {
            Self::Cpu => PrecisionArg::Ieee,
            Self::Cuda(_) => PrecisionArg::Split,
        }
    }
}

/// Reads `cpu`, `cuda` or `cuda:1`.
pub(crate) fn parse_device(text: &str) -> Result<Device, String> {
    let ordinal = match text {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => "0",
        _ => text.strip_prefix("cuda:").unwrap_or_default(),
    };
    ordinal.parse().map(Device::Cuda).map_err(|_| "expected cpu, cuda or cuda:N".to_owned())
}

/// The device and how it is used.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// The device that computes: cpu, cuda (the first NVIDIA GPU) or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "cpu")]
    pub(crate) device: Device,
    /// CPU threads [default: all that this process may use]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Instruction set: avx512, avx2 or portable [default: the widest that this processor has]
    #[arg(long, value_name = "ISA", value_parser = parse_isa)]
    pub(crate) isa: Option<Isa>,
}

/// More threads than any machine has cores; beyond it is a slip of the finger.
const MOST_THREADS: usize = 4096;

/// Reads a number of threads.
pub(crate) fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse::<NonZeroUsize>().ok().filter(|count| count.get() <= MOST_THREADS);
    count.ok_or_else(|| format!("expected a whole number from 1 to {MOST_THREADS}"))
}

/// Reads an instruction set's name.
pub(crate) fn parse_isa(text: &str) -> Result<Isa, String> {
    text.parse::<Isa>()
}

/// How exact, and which elements are rotated together.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ModeArgs {
    /// How operands are rounded [default: ieee on the CPU, split on a GPU]
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionArg>,
    /// Which two elements of a head are rotated together
    #[arg(long, value_enum, default_value_t)]
    pub(crate) style: StyleArg,
}

impl ModeArgs {
    /// The same with the device's precision where none was asked for.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { precision: self.precision.or(Some(device.default_precision())), ..self }
    }

    /// How operands are rounded; on the CPU unless [`ModeArgs::on`] said otherwise.
    pub(crate) fn precision(self) -> Precision {
        self.precision.unwrap_or_else(|| Device::Cpu.default_precision()).into()
    }

    /// The problem of these sizes with all outputs.
    pub(crate) fn problem(self, dims: Dims) -> Problem {
        Problem { pairing: self.style.into(), precision: self.precision(), ..Problem::new(dims) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// f32 operands and sums (CPU): normwise error at most 2e-6
    Ieee,
    /// Two 11-bit terms per operand (GPU): normwise error at most 2e-6
    Split,
    /// One 11-bit term per operand (GPU): normwise error at most 4e-4
    Fast,
}

impl From<PrecisionArg> for Precision {
    fn from(precision: PrecisionArg) -> Self {
        match precision {
            PrecisionArg::Ieee => Self::Ieee,
            PrecisionArg::Split => Self::Split,
            PrecisionArg::Fast => Self::Fast,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum StyleArg {
    /// Elements i and i + R/2: Llama in Hugging Face's layout, NeoX
    #[default]
    HalfSplit,
    /// Elements 2i and 2i + 1: GPT-J, Llama in Meta's layout
    Interleaved,
}

impl From<StyleArg> for Pairing {
    fn from(style: StyleArg) -> Self {
        match style {
            StyleArg::HalfSplit => Self::HalfSplit,
            StyleArg::Interleaved => Self::Interleaved,
        }
    }
}

/// Which problems a command works on.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// A case of the suite by name or id (`kernelproof cases` lists them); may be repeated
    #[arg(long = "case", value_name = "NAME", value_parser = parse_case, conflicts_with = "all")]
    pub(crate) cases: Vec<Case>,
    /// All sixteen cases of the suite
    #[arg(long)]
    pub(crate) all: bool,
    /// Other sizes, as B=2,S=128,E=512,H=8,K=2,D=64 and R=32 for partial rotary (K defaults to H, R to D); may be
    /// repeated
    #[arg(long = "dims", value_name = "SIZES", value_parser = parse_dims)]
    pub(crate) dims: Vec<Dims>,
}

/// A problem's sizes and the name they are listed under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    /// `s128b2`, or the sizes themselves.
    pub(crate) name: String,
    pub(crate) dims: Dims,
}

impl Workload {
    /// A case of the suite.
    pub(crate) fn case(case: Case) -> Self {
        Self { name: case.name(), dims: case.dims() }
    }

    /// Sizes that may or may not be in the suite.
    pub(crate) fn sizes(dims: Dims) -> Self {
        let case = SUITE.into_iter().find(|case| case.dims() == dims);
        case.map_or_else(|| Self { name: dims.to_string(), dims }, Self::case)
    }
}

impl WorkloadArgs {
    /// What was asked for, in the order of the suite and then of the command line.
    ///
    /// # Errors
    /// When nothing was.
    pub(crate) fn workloads(&self) -> Result<Vec<Workload>, Failure> {
        let cases: Vec<Case> = if self.all { SUITE.to_vec() } else { self.cases.clone() };
        let sizes = self.dims.iter().map(|&dims| Workload::sizes(dims));
        let workloads: Vec<Workload> = cases.into_iter().map(Workload::case).chain(sizes).collect();
        if workloads.is_empty() {
            let failure = Failure::input("no case given");
            return Err(failure.help("name one with --case s1024b2, give --dims, or take them --all"));
        }
        Ok(workloads)
    }
}

/// Finds a case by name or id.
pub(crate) fn parse_case(text: &str) -> Result<Case, String> {
    let names = || SUITE.map(Case::name).join(", ");
    Case::find(text).ok_or_else(|| format!("no such case; there are {}", names()))
}

/// Reads `B=2,S=128,…`; commas, spaces or both between the letters.
pub(crate) fn parse_dims(text: &str) -> Result<Dims, String> {
    let mut axes = [None; 7];
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (letter, value) = part.split_once('=').ok_or_else(|| format!("found {part:?}, expected LETTER=NUMBER"))?;
        let Some(axis) = "BSEHKDR".find(letter).filter(|_| letter.len() == 1) else {
            return Err(format!("found the letter {letter:?}, expected one of B, S, E, H, K, D, R"));
        };
        let value =
            value.parse::<usize>().map_err(|_| format!("{letter}: found {value:?}, expected a whole number"))?;
        if axes[axis].replace(value).is_some() {
            return Err(format!("{letter} is given twice"));
        }
    }
    let [batch, seq, hidden, heads, kv_heads, head_dim, rotary_dim] = axes;
    let need = |axis: Option<usize>, letter: char| axis.ok_or_else(|| format!("{letter} is missing"));
    let (heads, head_dim) = (need(heads, 'H')?, need(head_dim, 'D')?);
    let kv_heads = kv_heads.unwrap_or(heads);
    Dims::new(need(batch, 'B')?, need(seq, 'S')?, need(hidden, 'E')?, heads, kv_heads, head_dim)
        .and_then(|dims| dims.with_rotary_dim(rotary_dim.unwrap_or(head_dim)))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn devices_have_names_and_numbers() {
        assert_eq!(parse_device("cpu"), Ok(Device::Cpu));
        assert_eq!(parse_device("cuda"), Ok(Device::Cuda(0)));
        assert_eq!(parse_device("cuda:3"), Ok(Device::Cuda(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "3"] {
            assert_eq!(parse_device(wrong), Err("expected cpu, cuda or cuda:N".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn sizes_round_trip_through_their_text() {
        for case in SUITE {
            assert_eq!(parse_dims(&case.dims().to_string()), Ok(case.dims()));
        }
        let dims = Dims::new(1, 2, 3, 4, 4, 6).expect("valid");
        assert_eq!(parse_dims("B=1,S=2,E=3,H=4,D=6"), Ok(dims));
        assert_eq!(Workload::sizes(SUITE[3].dims()).name, "s128b64");
    }

    #[test]
    fn wrong_sizes_are_named() {
        let message = |text| parse_dims(text).expect_err("it is wrong");
        assert_eq!(message("B=1,S=2,E=3,H=4"), "D is missing");
        assert_eq!(message("B=1,Q=2"), "found the letter \"Q\", expected one of B, S, E, H, K, D, R");
        assert_eq!(message("B=1,B=2"), "B is given twice");
        assert_eq!(message("B=-1"), "B: found \"-1\", expected a whole number");
        assert_eq!(message("B1"), "found \"B1\", expected LETTER=NUMBER");
        assert!(message("B=1,S=2,E=3,H=4,D=5").contains("even"));
    }
}
