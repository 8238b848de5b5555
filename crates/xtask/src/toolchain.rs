//! The tools that turn a kernel written in Rust into a cubin, in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Wheels, pinned: the assembler and the three it calls, the headers that building cutile needs, and libclang for the
/// bindings that it generates from them.
pub(crate) const WHEELS: [&str; 9] = [
    "nvidia-cuda-tileiras==13.5.37",
    "nvidia-cuda-nvcc==13.5.37",
    "nvidia-nvvm==13.5.37",
    "nvidia-nvjitlink==13.5.37",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-cuda-cccl==13.3.5.0.6",
    "nvidia-curand==10.4.5.25",
    "libclang==18.1.1",
];

/// An installed toolchain.
pub(crate) struct Toolchain {
    site: PathBuf,
    build: PathBuf,
    gcc_include: PathBuf,
}

impl Toolchain {
    /// Installs the wheels under `folder` unless they are there already.
    pub(crate) fn install(folder: &Path) -> Result<Self> {
        let site = folder.join("site");
        let marker = folder.join("wheels.txt");
        let wanted = WHEELS.join("\n");
        if std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
            return Self::at(folder, site);
        }
        if site.exists() {
            std::fs::remove_dir_all(&site).with_context(|| format!("removing {}", site.display()))?;
        }
        std::fs::create_dir_all(folder)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&site).args(WHEELS);
        run(&mut pip)?;
        std::fs::write(&marker, wanted)?;
        Self::at(folder, site)
    }

    fn at(folder: &Path, site: PathBuf) -> Result<Self> {
        // libclang ships without its compiler's own headers; gcc's stddef.h serves.
        let printed = Command::new("gcc").arg("-print-file-name=include").output().context("gcc is needed")?;
        let gcc_include = PathBuf::from(String::from_utf8(printed.stdout)?.trim());
        Ok(Self { site, build: folder.join("build"), gcc_include })
    }

    fn cuda(&self) -> PathBuf {
        self.site.join("nvidia/cu13")
    }

    /// The program of the kernels crate, built.
    pub(crate) fn frontend(&self, root: &Path) -> Result<PathBuf> {
        let manifest = root.join("crates/cuda-kernels/Cargo.toml");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(manifest);
        self.set_env(&mut cargo);
        run(&mut cargo)?;
        Ok(self.build.join("release/qkv-rope-cuda-kernels"))
    }

    /// The assembler.
    pub(crate) fn assembler(&self) -> PathBuf {
        self.cuda().join("bin/tileiras")
    }

    /// The assembler of PTX.
    pub(crate) fn ptx_assembler(&self) -> PathBuf {
        self.cuda().join("bin/ptxas")
    }

    /// Makes a command find the toolchain.
    pub(crate) fn set_env(&self, command: &mut Command) {
        command
            .env("CUDA_TOOLKIT_PATH", self.cuda())
            .env("LIBCLANG_PATH", self.site.join("clang/native"))
            .env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{}", self.gcc_include.display()))
            .env("CARGO_TARGET_DIR", &self.build);
    }

    /// What `tileiras --version` says, in one line.
    pub(crate) fn assembler_version(&self) -> Result<String> {
        let printed = Command::new(self.assembler()).arg("--version").output().context("running tileiras")?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        let line = text.lines().map(str::trim).find(|line| line.contains("release") || line.contains("V13"));
        Ok(line.unwrap_or("unknown").to_owned())
    }
}

/// Runs to a successful end.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
