//! All cubins of one architecture in one compressed file: they share most of their code.

use std::path::Path;

use anyhow::{Context, Result};
use qkv_rope_cuda::archive::MAGIC;

/// Slow to write, as fast to read as any.
const LEVEL: i32 = 19;

/// Writes `rows`, each a name and a cubin, in the layout that [`qkv_rope_cuda::archive`] reads.
pub(crate) fn write(path: &Path, rows: &[(String, Vec<u8>)]) -> Result<usize> {
    let mut plain = MAGIC.to_vec();
    plain.extend(u32::try_from(rows.len())?.to_le_bytes());
    for (name, cubin) in rows {
        plain.extend(u32::try_from(name.len())?.to_le_bytes());
        plain.extend(name.as_bytes());
        plain.extend(u32::try_from(cubin.len())?.to_le_bytes());
        plain.extend(cubin);
    }
    let packed = zstd::encode_all(plain.as_slice(), LEVEL)?;
    std::fs::write(path, &packed).with_context(|| format!("writing {}", path.display()))?;
    Ok(packed.len())
}
