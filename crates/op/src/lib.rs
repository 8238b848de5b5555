//! The contract of one training operation: the backward pass of multi-head QKV projection with rotary position
//! embedding (grouped-query attention).
//!
//! Given the gradients of query, key and value it returns those of the hidden states and of the three projection
//! weights. This crate says exactly what is computed and how far a result may be from it; it runs no kernel, reads no
//! file and no clock. Backends implement [`Backend`]; everything else in the project is written against that trait.
//!
//! Beside the trait it holds what every judgement needs: seeded [`inputs`], the f64 [`mod@reference`], and the
//! [`rounding`] of operands that the cheaper precisions allow.
//!
//! | letter | meaning |
//! |---|---|
//! | B, S | batch, sequence length; T = B·S tokens |
//! | E | hidden size |
//! | H, K | query heads, key/value heads |
//! | D, R | head size, rotary size (R <= D, both even) |
//! | N | (H + 2K)·D, the rows of the three weights stacked |

mod backend;
mod case;
mod cost;
mod dims;
mod error;
pub mod inputs;
mod outputs;
mod problem;
pub mod reference;
pub mod rounding;
mod view;

pub use backend::{Backend, Plan, Session, Step};
pub use case::{Case, SUITE};
pub use cost::Cost;
pub use dims::{Dims, Segment};
pub use error::{Error, Tensor};
pub use inputs::{OwnedInputs, Recipe};
pub use outputs::OwnedOutputs;
pub use problem::{Inputs, Output, Outputs, Pairing, Partner, Precision, Problem, Requested, Write};
pub use view::{View, ViewMut};
