//! A backend that is nothing but the definition, in f32, with a switch for each mistake that others have shipped.

use std::sync::atomic::{AtomicUsize, Ordering};

use qkv_rope_op::rounding::{round11, split11};
use qkv_rope_op::{
    Backend, Cost, Error, Inputs, Output, Outputs, Pairing, Plan, Precision, Problem, Session, View, Write,
};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// The second of a pair has +g*s: the forward rotation with the sign of sin lost.
    SignFlip,
    /// s[i] where s[i+h] belongs and the other way round.
    SinSwapped,
    /// Only the left half of the tables is read.
    LeftHalfOfTables,
    /// The elements past R are 1.0.
    TailIsOne,
    /// Key heads meet the weights of their neighbours.
    WrongHeadMap,
    /// The last token is left out of the weight gradients.
    TokenDropped,
    /// The last row of grad_hidden is not written.
    RowNotWritten,
    /// One element of grad_hidden is NaN.
    OneNan,
    /// Two elements of grad_v_weight trade places.
    OneWrongElement,
    /// Operands are cut to 11 bits instead of rounded.
    Truncated,
    /// One of the two operands is cut to 11 bits instead of rounded.
    HalfTruncated,
    /// Operands are rounded to 11 bits in a mode that forbids it.
    RoundedSecretly,
    /// The sums of the second call run backwards.
    OtherOrderNextTime,
    /// Outputs are added to whatever they held.
    RelyOnZeroedOutputs,
    /// Outputs are overwritten where accumulation was asked for.
    AccumulateIgnored,
    /// The sum starts from the old value, so that every term is rounded against it.
    AccumulateTermByTerm,
    /// NaN and infinities become zero.
    NonFiniteHidden,
    /// All outputs are zero.
    Zeros,
    /// One bit of one element is off.
    OneBit,
    /// The first element of the hidden states is changed.
    InputWritten,
    /// The call returns an error.
    Fails,
}

pub(crate) struct Plain(pub(crate) Bug);

impl Backend for Plain {
    fn name(&self) -> String {
        format!("plain {:?}", self.0)
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        let cost = Cost::of(problem);
        let (steps, notes) = (Vec::new(), Vec::new());
        Ok(Plan { backend: self.name(), problem: *problem, cost, workspace_bytes: 0, steps, notes })
    }

    fn session(&self, problem: &Problem) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(Call { problem: *problem, bug: self.0, calls: AtomicUsize::new(0) }))
    }
}

struct Call {
    problem: Problem,
    bug: Bug,
    calls: AtomicUsize,
}

/// The operands as dense matrices.
struct Dense {
    u: Vec<Vec<f32>>,
    w: Vec<Vec<f32>>,
    x: Vec<Vec<f32>>,
}

impl Session for Call {
    fn backward(&mut self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        self.problem.validate(inputs, outputs)?;
        if self.bug == Bug::Fails {
            return Err(Error::Failed { backend: "plain".to_owned(), why: "told to".to_owned() });
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let dense = self.dense(inputs);
        self.write_hidden(&dense, outputs.grad_hidden.as_mut());
        let weights = [&mut outputs.grad_q_weight, &mut outputs.grad_k_weight, &mut outputs.grad_v_weight];
        for (segment, output) in self.problem.dims.segments().into_iter().zip(weights) {
            output.iter_mut().for_each(|output| self.write_weight(&dense, segment.first_row, output));
        }
        if let (Bug::OneWrongElement, Some(output)) = (self.bug, outputs.grad_v_weight.as_mut()) {
            output.view.row_mut(&[3]).swap(5, 6);
        }
        if self.bug == Bug::InputWritten {
            overwrite_first(inputs.hidden_states);
        }
        Ok(())
    }
}

fn overwrite_first(view: Option<View<'_, 3>>) {
    let address = view.expect("the test gives hidden states").as_ptr().cast_mut();
    // SAFETY: the test that uses this bug makes its hidden states from a mutable pointer and reads them through it.
    unsafe { *address += 1.0 };
}

impl Call {
    fn dense(&self, inputs: &Inputs<'_>) -> Dense {
        let dims = self.problem.dims;
        let token = |token: usize| [token / dims.seq(), token % dims.seq()];
        let weights = [inputs.q_weight, inputs.k_weight, inputs.v_weight].into_iter().flatten();
        let mut w: Vec<Vec<f32>> = weights.flat_map(|view| view.rows().map(<[f32]>::to_vec)).collect();
        if self.bug == Bug::WrongHeadMap {
            w[dims.query_rows()..dims.query_rows() + dims.kv_rows()].rotate_left(dims.head_dim());
        }
        let mut x: Vec<Vec<f32>> =
            inputs.hidden_states.iter().flat_map(|view| view.rows().map(<[f32]>::to_vec)).collect();
        let mut u: Vec<Vec<f32>> = (0..dims.tokens()).map(|index| self.u_row(inputs, token(index))).collect();
        if self.bug == Bug::NonFiniteHidden {
            let all = u.iter_mut().chain(&mut w).chain(&mut x).flatten();
            all.filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        }
        Dense { u, w, x }
    }

    fn u_row(&self, inputs: &Inputs<'_>, [batch, seq]: [usize; 2]) -> Vec<f32> {
        let (cos, sin) = (inputs.cos.row(&[batch, seq]), inputs.sin.row(&[batch, seq]));
        let mut row = Vec::new();
        for (view, rotated) in [(&inputs.grad_query, true), (&inputs.grad_key, true), (&inputs.grad_value, false)] {
            for head in 0..view.shape()[1] {
                let mut gradient = view.row(&[batch, head, seq]).to_vec();
                if rotated {
                    self.unrotate(&mut gradient, cos, sin);
                }
                row.append(&mut gradient);
            }
        }
        row
    }

    fn unrotate(&self, gradient: &mut [f32], cos: &[f32], sin: &[f32]) {
        for pair in 0..cos.len() / 2 {
            let (i, j) = match self.problem.pairing {
                Pairing::HalfSplit => (pair, pair + cos.len() / 2),
                Pairing::Interleaved => (2 * pair, 2 * pair + 1),
            };
            let (mut sin_i, mut sin_j, mut cos_j) = (sin[i], sin[j], cos[j]);
            match self.bug {
                Bug::SinSwapped => std::mem::swap(&mut sin_i, &mut sin_j),
                Bug::LeftHalfOfTables => (sin_j, cos_j) = (sin_i, cos[i]),
                _ => {}
            }
            let sign = if self.bug == Bug::SignFlip { -1.0 } else { 1.0 };
            let (a, b) = (gradient[i], gradient[j]);
            gradient[i] = a * cos[i] + b * sin_j;
            gradient[j] = b * cos_j - sign * (a * sin_i);
        }
        if self.bug == Bug::TailIsOne {
            gradient[cos.len()..].fill(1.0);
        }
    }

    fn write_hidden(&self, dense: &Dense, output: Option<&mut Output<'_, 3>>) {
        let Some(output) = output else { return };
        let dims = self.problem.dims;
        let written = if self.bug == Bug::RowNotWritten { dims.tokens() - 1 } else { dims.tokens() };
        for token in 0..written {
            let write = output.write;
            let row = output.view.row_mut(&[token / dims.seq(), token % dims.seq()]);
            for (column, out) in row.iter_mut().enumerate() {
                let terms = dense.u[token].iter().zip(&dense.w).map(|(&u, w)| (u, w[column]));
                self.write(out, write, terms);
            }
        }
        match self.bug {
            Bug::OneNan => output.view.row_mut(&[0, 1])[2] = f32::NAN,
            Bug::OneBit => {
                let element = &mut output.view.row_mut(&[0, 1])[2];
                *element = f32::from_bits(element.to_bits() ^ 1);
            }
            _ => {}
        }
    }

    fn write_weight(&self, dense: &Dense, first_row: usize, output: &mut Output<'_, 2>) {
        let [rows, _] = output.view.shape();
        let tokens = self.problem.dims.tokens() - usize::from(self.bug == Bug::TokenDropped);
        for row in 0..rows {
            let write = output.write;
            for (column, out) in output.view.row_mut(&[row]).iter_mut().enumerate() {
                let terms = (0..tokens).map(|token| (dense.u[token][first_row + row], dense.x[token][column]));
                self.write(out, write, terms);
            }
        }
    }

    fn write(&self, out: &mut f32, write: Write, terms: impl DoubleEndedIterator<Item = (f32, f32)>) {
        let accumulate = match self.bug {
            Bug::RelyOnZeroedOutputs => true,
            Bug::AccumulateIgnored => false,
            _ => write == Write::Accumulate,
        };
        let products = terms.map(|(left, right)| self.product(left, right));
        let start = if self.bug == Bug::AccumulateTermByTerm { *out } else { 0.0 };
        let backwards = self.bug == Bug::OtherOrderNextTime && self.calls.load(Ordering::Relaxed) > 1;
        let sum = if backwards { products.rev().sum() } else { products.fold(start, |sum, product| sum + product) };
        *out = match (self.bug, accumulate) {
            (Bug::Zeros, _) => 0.0,
            (Bug::AccumulateTermByTerm, _) | (_, false) => sum,
            (_, true) => *out + sum,
        };
    }

    fn product(&self, left: f32, right: f32) -> f32 {
        let rounded = |value| round11(value) as f32;
        match (self.bug, self.problem.precision) {
            (Bug::Truncated, _) => truncated(left) * truncated(right),
            (Bug::HalfTruncated, _) => truncated(left) * rounded(right),
            (Bug::RoundedSecretly, _) | (_, Precision::Fast) => rounded(left) * rounded(right),
            (_, Precision::Ieee) => left * right,
            (_, Precision::Split) => {
                let ((a, b), (c, d)) = (split11(left), split11(right));
                (a * c + (a * d + b * c)) as f32
            }
        }
    }
}

fn truncated(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & !0x1fff)
}
