//! What a Rust user would write without this project: un-rotate all gradients into one matrix U, then two products
//! with a crate for matrix products.
//!
//! The rivals are given what helps them: weights already stacked and gradients of weights left stacked, so that two
//! large products do the work of six; all buffers allocated and touched before the clock starts.

mod products;
mod unrotate;

use std::num::NonZeroUsize;

use anyhow::Context as _;
use kernelproof_eval::measure::{Clock, Contestant, Reason};
use qkv_rope_op::{OwnedInputs, OwnedOutputs, Tensor};

use super::{Entrant, InputSets};
pub(crate) use products::{Product, set_matrixmultiply_threads};

/// A rival prepared for a case.
pub(crate) struct Rival<'a> {
    product: Product,
    pool: rayon::ThreadPool,
    inputs: &'a InputSets,
    /// The three weights of each set, stacked: N x E.
    weights: Vec<Vec<f32>>,
    set: usize,
    /// T x N.
    unrotated: Vec<f32>,
    /// T x E.
    grad_hidden: Vec<f32>,
    /// N x E.
    grad_weights: Vec<f32>,
}

impl<'a> Rival<'a> {
    /// Allocates and touches what the rival needs.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub(crate) fn new(product: Product, threads: NonZeroUsize, inputs: &'a InputSets) -> anyhow::Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build();
        let dims = inputs.problem.dims;
        let touched = |elems: usize| vec![f32::NAN; elems];
        Ok(Self {
            product,
            pool: pool.context("threads for a rival cannot be started")?,
            inputs,
            weights: inputs.all().iter().map(stacked_weights).collect(),
            set: 0,
            unrotated: touched(dims.tokens() * dims.rows()),
            grad_hidden: touched(dims.tokens() * dims.hidden()),
            grad_weights: touched(dims.rows() * dims.hidden()),
        })
    }

    fn compute(&mut self) {
        let Self { product, pool, inputs, weights, set, unrotated, grad_hidden, grad_weights } = self;
        let (dims, pairing) = (inputs.problem.dims, inputs.problem.pairing);
        let (tokens, rows, hidden) = (dims.tokens(), dims.rows(), dims.hidden());
        let set = *set;
        let (tensors, weights) = (&inputs.all()[set], &weights[set]);
        let states = tensors.tensor(Tensor::HiddenStates).unwrap_or_default();
        pool.install(|| {
            unrotate::unrotate(tensors, pairing, unrotated);
            product.multiply([tokens, rows, hidden], unrotated, weights, grad_hidden);
            product.multiply_transposed([rows, tokens, hidden], unrotated, states, grad_weights);
        });
    }
}

fn stacked_weights(inputs: &OwnedInputs) -> Vec<f32> {
    let weights = [Tensor::QWeight, Tensor::KWeight, Tensor::VWeight];
    weights.into_iter().filter_map(|tensor| inputs.tensor(tensor)).flatten().copied().collect()
}

impl Contestant for Rival<'_> {
    fn name(&self) -> String {
        self.product.name().to_owned()
    }

    fn prepare(&mut self, round: u64) -> Result<(), Reason> {
        self.set = self.inputs.index_of(round);
        Ok(())
    }

    fn run_once(&mut self, clock: &dyn Clock) -> Result<u64, Reason> {
        let start_ns = clock.now_ns();
        self.compute();
        Ok(clock.now_ns() - start_ns)
    }
}

impl Entrant for Rival<'_> {
    fn version(&self) -> Option<String> {
        Some(self.product.version().to_owned())
    }

    fn threads(&self) -> usize {
        self.product.threads(self.pool.current_num_threads())
    }

    fn outputs(&mut self) -> anyhow::Result<OwnedOutputs> {
        self.set = 0;
        self.compute();
        let mut outputs = OwnedOutputs::poisoned(&self.inputs.problem, 0);
        if let Some(target) = outputs.tensor_mut(Tensor::GradHiddenStates) {
            target.copy_from_slice(&self.grad_hidden);
        }
        let mut stacked = self.grad_weights.as_slice();
        for tensor in [Tensor::GradQWeight, Tensor::GradKWeight, Tensor::GradVWeight] {
            let Some(target) = outputs.tensor_mut(tensor) else { continue };
            let (part, rest) = stacked.split_at(target.len());
            target.copy_from_slice(part);
            stacked = rest;
        }
        Ok(outputs)
    }
}
