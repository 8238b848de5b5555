//! On the CPU: the gradients that candle's own automatic differentiation gives, and errors that name the tensor.

use candle_core::{D, Device, Result, Tensor, Var};
use qkv_rope::{Pairing, Precision};
use qkv_rope_candle::{Gradients, Layer, backward};

const B: usize = 2;
const S: usize = 7;
const E: usize = 24;
const H: usize = 4;
const K: usize = 2;
const D_HEAD: usize = 8;

fn normal(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0_f32, 1.0, shape, &Device::Cpu)
}

/// One part of the layer as people write it: [B, heads, S, D], rotated where there are tables.
fn part(hidden: &Tensor, weight: &Tensor, heads: usize, tables: Option<(&Tensor, &Tensor)>) -> Result<Tensor> {
    let x = hidden.broadcast_matmul(&weight.t()?)?.reshape((B, S, heads, D_HEAD))?.transpose(1, 2)?;
    let Some((cos, sin)) = tables else { return Ok(x) };
    let (first, second) = (x.narrow(D::Minus1, 0, D_HEAD / 2)?, x.narrow(D::Minus1, D_HEAD / 2, D_HEAD / 2)?);
    let turned = Tensor::cat(&[&second.neg()?, &first], D::Minus1)?;
    x.broadcast_mul(&cos.unsqueeze(1)?)? + turned.broadcast_mul(&sin.unsqueeze(1)?)?
}

struct Case {
    grads: [Tensor; 3],
    hidden: Var,
    weights: [Var; 3],
    tables: [Tensor; 2],
}

impl Case {
    fn random() -> Result<Self> {
        let weight = |heads: usize| Var::from_tensor(&normal(&[heads * D_HEAD, E])?);
        Ok(Self {
            grads: [
                // Stored [B, S, H, D], as attention leaves it.
                normal(&[B, S, H, D_HEAD])?.transpose(1, 2)?,
                normal(&[B, K, S, D_HEAD])?,
                normal(&[B, K, 1, D_HEAD])?.broadcast_as((B, K, S, D_HEAD))?,
            ],
            hidden: Var::from_tensor(&normal(&[B, S, E])?)?,
            weights: [weight(H)?, weight(K)?, weight(K)?],
            tables: [normal(&[1, S, D_HEAD])?, normal(&[1, S, D_HEAD])?],
        })
    }

    fn layer(&self) -> Layer<'_> {
        let [grad_query, grad_key, grad_value] = &self.grads;
        let [q_weight, k_weight, v_weight] = &self.weights;
        let [cos, sin] = &self.tables;
        let hidden_states = &self.hidden;
        Layer { grad_query, grad_key, grad_value, hidden_states, q_weight, k_weight, v_weight, cos, sin }
    }

    /// What candle's own differentiation gives.
    fn expected(&self) -> Result<[Tensor; 4]> {
        let tables = Some((&self.tables[0], &self.tables[1]));
        let parts = [
            part(&self.hidden, &self.weights[0], H, tables)?,
            part(&self.hidden, &self.weights[1], K, tables)?,
            part(&self.hidden, &self.weights[2], K, None)?,
        ];
        let mut loss = Tensor::zeros((), candle_core::DType::F32, &Device::Cpu)?;
        for (part, grad) in parts.iter().zip(&self.grads) {
            loss = (loss + (part * grad)?.sum_all()?)?;
        }
        let found = loss.backward()?;
        let of = |var: &Var| found.get(var).cloned().ok_or_else(|| candle_core::Error::Msg("no gradient".to_owned()));
        Ok([of(&self.hidden)?, of(&self.weights[0])?, of(&self.weights[1])?, of(&self.weights[2])?])
    }
}

fn apart(found: &Tensor, expected: &Tensor) -> Result<f32> {
    let square = |tensor: Tensor| tensor.sqr()?.sum_all()?.to_scalar::<f32>();
    Ok((square((found - expected)?)? / square(expected.clone())?).sqrt())
}

#[test]
fn gradients_are_those_of_candle() -> Result<()> {
    let case = Case::random()?;
    let Gradients { hidden_states, q_weight, k_weight, v_weight } =
        backward(&case.layer(), Pairing::HalfSplit, Precision::Ieee)?;
    for (found, expected) in [hidden_states, q_weight, k_weight, v_weight].iter().zip(case.expected()?) {
        assert_eq!(found.dims(), expected.dims());
        let apart = apart(found, &expected)?;
        assert!(apart < 2e-6, "{apart}");
    }
    Ok(())
}

#[test]
fn any_memory_gives_the_same_bits() -> Result<()> {
    let case = Case::random()?;
    let plain = backward(&case.layer(), Pairing::Interleaved, Precision::Ieee)?;
    let columns = case.weights[0].t()?.contiguous()?.t()?;
    let inside = Tensor::cat(&[&*case.hidden, &*case.hidden], 0)?.narrow(0, B, B)?;
    let moved = Layer { q_weight: &columns, hidden_states: &inside, ..case.layer() };
    let moved = backward(&moved, Pairing::Interleaved, Precision::Ieee)?;
    let bits = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    assert_eq!(bits(&plain.hidden_states)?, bits(&moved.hidden_states)?);
    assert_eq!(bits(&plain.q_weight)?, bits(&moved.q_weight)?);
    Ok(())
}

#[test]
fn what_is_wrong_is_named() -> Result<()> {
    let case = Case::random()?;
    let says = |layer: &Layer<'_>, precision| {
        backward(layer, Pairing::HalfSplit, precision).expect_err("a mistake").to_string()
    };
    let short = case.weights[1].narrow(0, 0, 3)?;
    let text = says(&Layer { k_weight: &short, ..case.layer() }, Precision::Ieee);
    assert!(text.contains("k_weight: found shape [3, 24], expected [16, 24]"), "{text}");
    let double = case.tables[1].to_dtype(candle_core::DType::F64)?;
    let text = says(&Layer { sin: &double, ..case.layer() }, Precision::Ieee);
    assert!(text.contains("sin: found F64, expected F32"), "{text}");
    let text = says(&case.layer(), Precision::Fast);
    assert!(text.contains("its precision is ieee"), "{text}");
    Ok(())
}
