//! Chores of this repository, run as `cargo xtask <chore>`.

mod archive;
mod build;
mod cubin;
mod lock;
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};
use qkv_rope_cuda::kernel::Arch;

#[derive(Parser)]
#[command(about = "Chores of this repository")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Compile the GPU kernels to the cubins that the cuda crate embeds. Needs Python's pip and a C compiler, no GPU.
    Kernels {
        /// Compile and compare with what is committed, writing nothing.
        #[arg(long)]
        check: bool,
        /// Instrument kernels made of tiles for compute-sanitizer's memcheck: to be built against, never to be committed.
        #[arg(long, conflicts_with = "check")]
        instrument: bool,
        /// Only these architectures (`sm_90`); all by default.
        #[arg(long = "arch", value_parser = parse_arch)]
        archs: Vec<Arch>,
        /// Where the tools are installed.
        #[arg(long, default_value = "target/kernels-toolchain")]
        toolchain: PathBuf,
        /// Compilations at a time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
    },
}

fn parse_arch(name: &str) -> Result<Arch, String> {
    Arch::ALL.into_iter().find(|arch| arch.name() == name).ok_or_else(|| {
        let known: Vec<_> = Arch::ALL.into_iter().map(Arch::name).collect();
        format!("unknown architecture `{name}`, known are {}", known.join(", "))
    })
}

fn main() -> Result<()> {
    let Args { chore } = Args::parse();
    let Chore::Kernels { check, instrument, archs, toolchain, jobs } = chore;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let archs = if archs.is_empty() { Arch::ALL.to_vec() } else { archs };
    let tools = toolchain::Toolchain::install(&root.join(toolchain))?;
    let mode = build::Mode::of(check, instrument);
    build::kernels(&root, &tools, &archs, jobs, mode)
}
