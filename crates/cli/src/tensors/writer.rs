//! Writing tensors: a whole safetensors file or none.

use std::io::Write as _;
use std::path::Path;

use qkv_rope_op::Tensor;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::output;

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// Its name.
    pub(crate) tensor: Tensor,
    /// Its shape.
    pub(crate) shape: &'a [usize],
    /// Row-major elements, as many as the shape says.
    pub(crate) data: &'a [f32],
}

/// Writes the tensors in the order given, all or nothing.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, tensors: &[Named<'_>]) -> anyhow::Result<()> {
    let header = header(tensors)?;
    output::replace(path, |file| {
        let mut file = std::io::BufWriter::new(file);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        for tensor in tensors {
            write_floats(&mut file, tensor.data)?;
        }
        file.flush()
    })
}

/// The JSON header, padded so that the data after it is aligned to 8 bytes.
fn header(tensors: &[Named<'_>]) -> anyhow::Result<String> {
    let mut offset = 0;
    let infos = tensors.iter().map(|tensor| {
        let start = offset;
        offset += size_of_val(tensor.data);
        let info = TensorInfo { dtype: Dtype::F32, shape: tensor.shape.to_vec(), data_offsets: (start, offset) };
        (tensor.tensor.name().to_owned(), info)
    });
    let metadata = Metadata::new(None, infos.collect())?;
    let mut header = serde_json::to_string(&metadata)?;
    let padding = header.len().next_multiple_of(8) - header.len();
    header.extend(std::iter::repeat_n(' ', padding));
    Ok(header)
}

fn write_floats(file: &mut impl std::io::Write, data: &[f32]) -> std::io::Result<()> {
    if cfg!(target_endian = "little") {
        return file.write_all(bytemuck::cast_slice(data));
    }
    data.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))
}
