//! Tensors in files: reading a call's inputs without copying them, writing its outputs all or nothing.

mod reader;
mod shapes;
mod writer;

pub(crate) use reader::{Stored, TensorFile};
pub(crate) use shapes::{dims_of, inputs_of};
pub(crate) use writer::{Named, write};
