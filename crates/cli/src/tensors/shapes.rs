//! From the tensors of a file to a problem: which sizes they mean, and whether they agree on them.

use qkv_rope_op::{Dims, Error, Inputs, Requested, Tensor, View};

use super::reader::{Stored, TensorFile};
use crate::failure::Failure;

/// Where sizes come from, for messages.
const SOURCES: &str = "B, H, S, D are read from grad_query, K from grad_key, E from hidden_states, R from cos";

/// The sizes that a file's tensors mean. Every known tensor in the file is checked against them, needed or not.
///
/// B, H, S and D are read from `grad_query`, K from `grad_key`, E from `hidden_states` or else `q_weight`, R from
/// `cos`; all other extents must agree.
///
/// # Errors
/// Names the tensor that is missing or has another shape than the others imply.
pub(crate) fn dims_of(file: &TensorFile, requested: Requested) -> anyhow::Result<Dims> {
    require_inputs(file, requested)?;
    let shape = |tensor| file.shape(tensor).unwrap_or_default();
    let &[batch, query_heads, seq, head_dim] = ranked::<4>(Tensor::GradQuery, shape(Tensor::GradQuery))?;
    let &[_, kv_heads, _, _] = ranked::<4>(Tensor::GradKey, shape(Tensor::GradKey))?;
    let rotary_dim = table_columns(shape(Tensor::Cos))?;
    let hidden = hidden_of(file)?;
    let dims = Dims::new(batch, seq, hidden, query_heads, kv_heads, head_dim)
        .and_then(|dims| dims.with_rotary_dim(rotary_dim))
        .map_err(|error| Failure::input(format!("{}: {error}", file.path().display())).help(SOURCES))?;
    for tensor in Tensor::INPUTS {
        if let Some(found) = file.shape(tensor) {
            agree(tensor, found, dims)?;
        }
    }
    Ok(dims)
}

/// Views of a file's tensors, which `dims_of` has checked.
///
/// # Errors
/// When a view cannot be made; not after `dims_of`.
pub(crate) fn inputs_of<'a>(tensors: &'a [(Tensor, Stored<'a>)], dims: Dims) -> anyhow::Result<Inputs<'a>> {
    let stored = |tensor| tensors.iter().find(|(name, _)| *name == tensor).map(|(_, stored)| stored);
    let needed = |tensor: Tensor| stored(tensor).ok_or_else(|| Failure::input(format!("{tensor}: missing")));
    let optional_weight =
        |tensor| stored(tensor).map(|stored| View::contiguous(&stored.data, extents(dims, tensor))).transpose();
    let hidden_states = stored(Tensor::HiddenStates)
        .map(|stored| View::contiguous(&stored.data, extents(dims, Tensor::HiddenStates)))
        .transpose()?;
    Ok(Inputs {
        grad_query: View::contiguous(&needed(Tensor::GradQuery)?.data, extents(dims, Tensor::GradQuery))?,
        grad_key: View::contiguous(&needed(Tensor::GradKey)?.data, extents(dims, Tensor::GradKey))?,
        grad_value: View::contiguous(&needed(Tensor::GradValue)?.data, extents(dims, Tensor::GradValue))?,
        hidden_states,
        q_weight: optional_weight(Tensor::QWeight)?,
        k_weight: optional_weight(Tensor::KWeight)?,
        v_weight: optional_weight(Tensor::VWeight)?,
        cos: table(needed(Tensor::Cos)?, dims)?,
        sin: table(needed(Tensor::Sin)?, dims)?,
    })
}

fn require_inputs(file: &TensorFile, requested: Requested) -> anyhow::Result<()> {
    for tensor in Tensor::INPUTS {
        if file.shape(tensor).is_some() {
            continue;
        }
        let needed_by = match tensor {
            Tensor::QWeight | Tensor::KWeight | Tensor::VWeight => {
                requested.grad_hidden.map(|_| Tensor::GradHiddenStates)
            }
            Tensor::HiddenStates => [Tensor::GradQWeight, Tensor::GradKWeight, Tensor::GradVWeight]
                .into_iter()
                .find(|&output| requested.get(output).is_some()),
            _ => return Err(missing(tensor, file).into()),
        };
        if let Some(needed_by) = needed_by {
            return Err(Error::MissingInput { tensor, needed_by }.into());
        }
    }
    Ok(())
}

fn missing(tensor: Tensor, file: &TensorFile) -> Failure {
    let names: Vec<&str> = file.names().collect();
    let found = if names.is_empty() { "no tensors".to_owned() } else { names.join(", ") };
    Failure::input(format!("{tensor}: missing, {} holds {found}", file.path().display()))
}

fn hidden_of(file: &TensorFile) -> anyhow::Result<usize> {
    if let Some(shape) = file.shape(Tensor::HiddenStates) {
        let &[_, _, hidden] = ranked::<3>(Tensor::HiddenStates, shape)?;
        return Ok(hidden);
    }
    let &[_, hidden] = ranked::<2>(Tensor::QWeight, file.shape(Tensor::QWeight).unwrap_or_default())?;
    Ok(hidden)
}

fn table_columns(shape: &[usize]) -> Result<usize, Failure> {
    match shape {
        [_, columns] | [_, _, columns] => Ok(*columns),
        _ => Err(Failure::input(format!("cos: found shape {shape:?}, expected [S, R], [1, S, R] or [B, S, R]"))),
    }
}

fn ranked<const RANK: usize>(tensor: Tensor, shape: &[usize]) -> Result<&[usize; RANK], Failure> {
    shape.try_into().map_err(|_| {
        let letters = letters(tensor);
        Failure::input(format!("{tensor}: found shape {shape:?}, expected {RANK} dimensions {letters}"))
    })
}

fn letters(tensor: Tensor) -> &'static str {
    match tensor {
        Tensor::GradQuery => "[B, H, S, D]",
        Tensor::GradKey | Tensor::GradValue => "[B, K, S, D]",
        Tensor::HiddenStates | Tensor::GradHiddenStates => "[B, S, E]",
        Tensor::QWeight | Tensor::GradQWeight => "[H*D, E]",
        Tensor::KWeight | Tensor::VWeight | Tensor::GradKWeight | Tensor::GradVWeight => "[K*D, E]",
        Tensor::Cos | Tensor::Sin => "[B, S, R]",
    }
}

fn agree(tensor: Tensor, found: &[usize], dims: Dims) -> Result<(), Failure> {
    let expected = dims.shape(tensor);
    let table = matches!(tensor, Tensor::Cos | Tensor::Sin);
    let shared_table =
        table && (found == &expected[1..] || (found.len() == 3 && found[0] == 1 && found[1..] == expected[1..]));
    if found == expected || shared_table {
        return Ok(());
    }
    let message = format!("{tensor}: found shape {found:?}, expected {expected:?}, which is {}", letters(tensor));
    Err(Failure::input(message).help(format!("the file says {dims}: {SOURCES}")))
}

fn table<'a>(stored: &'a Stored<'_>, dims: Dims) -> Result<View<'a, 3>, Error> {
    let per_batch = stored.shape.len() == 3 && stored.shape[0] == dims.batch();
    let (seq, columns) = (dims.seq(), dims.rotary_dim());
    let batch_stride = if per_batch { seq * columns } else { 0 };
    View::new(&stored.data, [dims.batch(), seq, columns], [batch_stride, columns, 1])
}

fn extents<const RANK: usize>(dims: Dims, tensor: Tensor) -> [usize; RANK] {
    dims.shape(tensor).try_into().expect("callers ask for the rank that the contract gives the tensor")
}
