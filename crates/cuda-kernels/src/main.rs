//! Turns one kernel row into Tile IR bytecode. `cargo xtask kernels` calls it once per row and architecture.

mod casting;
mod finish;
mod heads;
mod powers;
mod prep;
mod product;
mod settle;
mod views;
mod words;

use anyhow::{Context, Result, bail};
use cutile::compile_api::KernelCompiler;
use cutile::cutile_compiler::ast::Module;
use cutile::cutile_compiler::hints::{CompileOptions, DebugInfoLevel};

/// The compiler recurses deeply on unrolled tile expressions.
const STACK_BYTES: usize = 256 << 20;

struct Request {
    module: String,
    function: String,
    constants: Vec<String>,
    arch: String,
    options: CompileOptions,
    out: String,
}

fn main() -> Result<()> {
    let request = Request::from_args(std::env::args().skip(1))?;
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || compile(request))?;
    match worker.join() {
        Ok(result) => result,
        Err(_) => bail!("the kernel compiler panicked"),
    }
}

impl Request {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut next = |what: &str| args.next().with_context(|| format!("missing argument: {what}"));
        let module = next("module")?;
        let function = next("function")?;
        let constants = next("constants, comma separated")?.split(',').map(str::to_owned).collect();
        let hints = next("hints: warps=4,cluster=2,occupancy=6 or -")?;
        let arch = next("architecture")?;
        let out = next("output file")?;
        let mut options = CompileOptions::new().debug_info(DebugInfoLevel::None).opt_level(3);
        for hint in hints.split(',').filter(|hint| *hint != "-") {
            let (name, value) = hint.split_once('=').with_context(|| format!("hint `{hint}` has no value"))?;
            let value: i32 = value.parse().with_context(|| format!("hint `{hint}` is not a number"))?;
            options = match name {
                "warps" => options.num_worker_warps_per_cta(value),
                "cluster" => options.num_cta_in_cga(value),
                "occupancy" => options.occupancy(value),
                _ => bail!("unknown hint `{name}`"),
            };
        }
        Ok(Self { module, function, constants, arch, options, out })
    }
}

fn compile(request: Request) -> Result<()> {
    let ast: fn() -> Module = match request.module.as_str() {
        "finish" => finish::finish::__module_ast_self,
        "prep" => prep::prep::__module_ast_self,
        "settle" => settle::settle::__module_ast_self,
        "product" => product::product::__module_ast_self,
        other => bail!("unknown module `{other}`"),
    };
    let artifacts = KernelCompiler::new(ast, &request.module, &request.function)
        .generics(request.constants)
        .target(&request.arch)
        .options(request.options)
        .compile()
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let bytecode = artifacts.bytecode().map_err(|error| anyhow::anyhow!("{error}"))?;
    std::fs::write(&request.out, bytecode).with_context(|| request.out.clone())
}
