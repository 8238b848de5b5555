//! Compiles every row for every architecture.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};
use qkv_rope_cuda::archive::Archive;
use qkv_rope_cuda::kernel::{Arch, Hints, KERNELS, Kernel, Source};
use sha2::{Digest, Sha256};

use crate::archive;
use crate::cubin;
use crate::lock::{Entry, Lock, Made, Origin};
use crate::toolchain::Toolchain;

/// What is wanted of the compiled kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Archives and lock file.
    Write,
    /// A comparison with those that are there.
    Check,
    /// Archives of kernels that are instrumented for memcheck; the lock file stays, so that they cannot pass for others.
    Instrument,
}

impl Mode {
    pub(crate) fn of(check: bool, instrument: bool) -> Self {
        match (check, instrument) {
            (true, _) => Self::Check,
            (false, true) => Self::Instrument,
            (false, false) => Self::Write,
        }
    }
}

struct Compiler<'a> {
    tools: &'a Toolchain,
    frontend: PathBuf,
    work: PathBuf,
    origin: Origin,
    /// What is there already.
    committed: Lock,
    mode: Mode,
}

/// Compiles the rows of `archs`; writes or compares as `mode` says. Kernels made of tiles take minutes: those that the
/// lock file says are of these sources are kept where they are only to be written.
pub(crate) fn kernels(root: &Path, tools: &Toolchain, archs: &[Arch], jobs: usize, mode: Mode) -> Result<()> {
    let work = tempdir(root)?;
    let folder = root.join("crates/cuda/cubins");
    std::fs::create_dir_all(&folder)?;
    let lock_path = folder.join("cubins.lock");
    let origin = Origin {
        source: source_digest(root)?,
        ptx: ptx_digest(),
        cutile: cutile_version(root)?,
        tileiras: tools.assembler_version()?,
    };
    let mut compiler =
        Compiler { tools, frontend: PathBuf::new(), work, origin, committed: Lock::read(&lock_path)?, mode };
    let kept = archs.iter().map(|&arch| compiler.keeps_all(arch)).collect::<Result<Vec<_>>>()?;
    if kept.contains(&false) {
        compiler.frontend = tools.frontend(root)?;
    }
    let mut made = Lock::default();
    let mut spilled = Vec::new();
    for &arch in archs {
        let rows = compiler.all(arch, jobs)?;
        let mut entries = BTreeMap::new();
        for (kernel, cubin) in &rows {
            let resources = cubin::resources(cubin).with_context(|| format!("{kernel} for {arch}"))?;
            if kernel.must_not_spill(arch) && resources.stack_frame != 0 {
                spilled.push(format!("{kernel} for {arch}: a stack frame of {} bytes", resources.stack_frame));
            }
            let entry = Entry { sha256: hex(&Sha256::digest(cubin)), bytes: cubin.len(), resources };
            entries.insert(kernel.to_string(), entry);
        }
        made.0.insert(arch.name().to_owned(), Made { origin: compiler.origin.clone(), cubins: entries });
        if mode == Mode::Instrument || mode == Mode::Write && spilled.is_empty() {
            let named: Vec<_> = rows.into_iter().map(|(kernel, cubin)| (kernel.to_string(), cubin)).collect();
            let bytes = archive::write(&folder.join(format!("{arch}.zst")), &named)?;
            report(&format!("{arch}: {} cubins, {bytes} bytes packed", named.len()));
        }
    }
    if mode == Mode::Instrument {
        return Ok(());
    }
    ensure!(spilled.is_empty(), "registers are spilled where the table says they must not be:\n{}", spilled.join("\n"));
    let mut lock = compiler.committed;
    if mode == Mode::Check {
        let differences = lock.differences(&made);
        let found = differences.join("\n");
        ensure!(differences.is_empty(), "the committed cubins are not those of these sources:\n{found}");
        report(&format!("{} architectures as committed", made.0.len()));
        return Ok(());
    }
    lock.0.append(&mut made.0);
    lock.write(&lock_path)
}

impl Compiler<'_> {
    /// Whether tiles that are there already are of these sources and tools, and are wanted as they are.
    fn may_keep(&self, arch: Arch) -> bool {
        let same = |known: &Made| {
            let (known, now) = (&known.origin, &self.origin);
            (&known.source, &known.cutile, &known.tileiras) == (&now.source, &now.cutile, &now.tileiras)
        };
        self.mode == Mode::Write && self.committed.0.get(arch.name()).is_some_and(same)
    }

    /// The cubin that is there, if it is the one of the lock file and may be kept.
    fn kept<'c>(&self, arch: Arch, kernel: Kernel, embedded: &'c Archive) -> Option<&'c [u8]> {
        let cubin = embedded.get(&kernel.to_string())?;
        let entry = self.committed.0.get(arch.name())?.cubins.get(&kernel.to_string())?;
        (self.may_keep(arch) && entry.sha256 == hex(&Sha256::digest(cubin))).then_some(cubin)
    }

    fn keeps_all(&self, arch: Arch) -> Result<bool> {
        let embedded = Archive::of(arch)?;
        let mut tiles = KERNELS.iter().filter(|kernel| kernel.targets(arch) && kernel.source() == Source::Tiles);
        Ok(tiles.all(|&kernel| self.kept(arch, kernel, &embedded).is_some()))
    }

    fn all(&self, arch: Arch, jobs: usize) -> Result<Vec<(Kernel, Vec<u8>)>> {
        let embedded = Archive::of(arch)?;
        let queue = Mutex::new(KERNELS.iter().copied().filter(|kernel| kernel.targets(arch)).collect::<Vec<_>>());
        let done = Mutex::new(Vec::new());
        let next = || queue.lock().map(|mut queue| queue.pop()).ok().flatten();
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    while let Some(kernel) = next() {
                        let result = match (kernel.ptx(), self.kept(arch, kernel, &embedded)) {
                            (Some(ptx), _) => self.ptx(kernel, &ptx),
                            (None, Some(cubin)) => Ok(cubin.to_vec()),
                            (None, None) => self.tiles(kernel, arch),
                        };
                        let result = result.with_context(|| format!("{kernel} for {arch}"));
                        if let Ok(mut done) = done.lock() {
                            done.push((kernel, result));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().map_err(|_| anyhow::anyhow!("a compilation panicked"))?;
        done.sort_by_key(|(kernel, _)| KERNELS.iter().position(|row| row == kernel));
        done.into_iter().map(|(kernel, result)| Ok((kernel, result?))).collect()
    }

    fn ptx(&self, kernel: Kernel, ptx: &str) -> Result<Vec<u8>> {
        let text = self.work.join(format!("{kernel}.ptx"));
        let cubin = self.work.join(format!("{kernel}.cubin"));
        std::fs::write(&text, ptx)?;
        let mut assembler = Command::new(self.tools.ptx_assembler());
        assembler.args(["-arch=sm_90a", "-O3"]).arg(&text).arg("-o").arg(&cubin);
        quietly(&mut assembler)?;
        std::fs::read(&cubin).context("the assembler wrote no cubin")
    }

    fn tiles(&self, kernel: Kernel, arch: Arch) -> Result<Vec<u8>> {
        let bytecode = self.work.join(format!("{kernel}-{arch}.bc"));
        let cubin = self.work.join(format!("{kernel}-{arch}.cubin"));
        let constants: Vec<_> = kernel.constants().iter().map(u32::to_string).collect();
        let mut frontend = Command::new(&self.frontend);
        self.tools.set_env(&mut frontend);
        frontend.args([kernel.module(), kernel.function(), &constants.join(","), &hints(kernel.hints()), arch.name()]);
        frontend.arg(&bytecode);
        quietly(&mut frontend)?;
        let mut assembler = Command::new(self.tools.assembler());
        assembler.args(["--gpu-name", arch.name(), "-O3"]);
        if self.mode == Mode::Instrument {
            assembler.arg("--sanitize=memcheck");
        }
        assembler.arg(&bytecode).arg("-o").arg(&cubin);
        quietly(&mut assembler)?;
        std::fs::read(&cubin).context("the assembler wrote no cubin")
    }
}

fn hints(Hints { warps, cluster, occupancy }: Hints) -> String {
    let named = [("warps", warps), ("cluster", cluster), ("occupancy", occupancy)];
    let set: Vec<_> = named.iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))).collect();
    if set.is_empty() { "-".to_owned() } else { set.join(",") }
}

/// Runs to a successful end; shows what the program said only when it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn source_digest(root: &Path) -> Result<String> {
    let folder = root.join("crates/cuda-kernels");
    let mut files: Vec<_> =
        std::fs::read_dir(folder.join("src"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.push(folder.join("Cargo.toml"));
    files.push(folder.join("Cargo.lock"));
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        digest.update(format!("{name} {}\n", text.len()));
        digest.update(text);
    }
    for kernel in KERNELS.iter().filter(|kernel| kernel.source() == Source::Tiles) {
        digest.update(format!("{kernel} {:?} {:?}\n", kernel.constants(), kernel.hints()));
    }
    Ok(hex(&digest.finalize()))
}

/// Of the text of all kernels that are PTX.
fn ptx_digest() -> String {
    let mut digest = Sha256::new();
    for kernel in KERNELS {
        if let Some(ptx) = kernel.ptx() {
            digest.update(format!("{kernel} {}\n{ptx}", ptx.len()));
        }
    }
    hex(&digest.finalize())
}

fn cutile_version(root: &Path) -> Result<String> {
    let manifest = std::fs::read_to_string(root.join("crates/cuda-kernels/Cargo.toml"))?;
    let manifest: toml::Table = toml::from_str(&manifest)?;
    let version = manifest.get("dependencies").and_then(|table| table.get("cutile")).and_then(toml::Value::as_str);
    Ok(version.context("crates/cuda-kernels/Cargo.toml names no cutile version")?.trim_start_matches('=').to_owned())
}

fn tempdir(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/kernels-work");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[expect(clippy::print_stdout, reason = "a chore reports to its terminal")]
fn report(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be checked without the compiler: the cubins that the library embeds are those of the lock file, which is
    /// of these sources, and none spills where it must not. `cargo xtask kernels --check` compiles them again.
    #[test]
    fn committed_cubins_are_of_these_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let lock = Lock::read(&root.join("crates/cuda/cubins/cubins.lock")).expect("a readable lock file");
        let (source, cutile) =
            (source_digest(&root).expect("readable sources"), cutile_version(&root).expect("pinned"));
        for arch in Arch::ALL {
            let Made { origin, cubins } = &lock.0[arch.name()];
            assert_eq!((&origin.source, &origin.cutile), (&source, &cutile), "{arch}: run `cargo xtask kernels`");
            assert_eq!(origin.ptx, ptx_digest(), "{arch}: run `cargo xtask kernels`");
            let archive = Archive::of(arch).expect("an embedded archive");
            for &kernel in KERNELS.iter().filter(|kernel| kernel.targets(arch)) {
                let cubin = archive.get(&kernel.to_string()).expect("an embedded cubin");
                let resources = cubin::resources(cubin).expect("a cubin with its resources");
                let spills = kernel.must_not_spill(arch) && resources.stack_frame != 0;
                assert!(!spills, "{kernel} for {arch} spills {} bytes", resources.stack_frame);
                let entry = Entry { sha256: hex(&Sha256::digest(cubin)), bytes: cubin.len(), resources };
                assert_eq!(cubins.get(&kernel.to_string()), Some(&entry), "{kernel} for {arch}");
            }
        }
    }
}
