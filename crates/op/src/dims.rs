//! The sizes of one problem, checked once so that no later product can overflow.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Tensor};

/// The seven axes of the operation. Constructed only through [`Dims::new`], which proves that every tensor of the
/// problem is addressable; all later index arithmetic relies on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Axes", into = "Axes")]
pub struct Dims {
    axes: Axes,
}

/// The axes by the letters that records use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Axes {
    #[serde(rename = "B")]
    batch: usize,
    #[serde(rename = "S")]
    seq: usize,
    #[serde(rename = "E")]
    hidden: usize,
    #[serde(rename = "H")]
    query_heads: usize,
    #[serde(rename = "K")]
    kv_heads: usize,
    #[serde(rename = "D")]
    head_dim: usize,
    #[serde(rename = "R")]
    rotary_dim: usize,
}

/// One block of the N stacked rows: the heads that come from one gradient and meet one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The input gradient whose columns these rows are.
    pub gradient: Tensor,
    /// The weight with these rows.
    pub weight: Tensor,
    /// The output with these rows.
    pub weight_gradient: Tensor,
    /// The first of the block's rows among the N.
    pub first_row: usize,
    /// The block's heads; it has `heads * D` rows.
    pub heads: usize,
    /// Whether the gradient is un-rotated first.
    pub rotated: bool,
}

impl Segment {
    /// The block's rows among the N.
    pub fn rows(self, dims: Dims) -> std::ops::Range<usize> {
        self.first_row..self.first_row + self.heads * dims.head_dim()
    }
}

impl TryFrom<Axes> for Dims {
    type Error = Error;

    fn try_from(axes: Axes) -> Result<Self, Error> {
        Self::checked(axes)
    }
}

impl From<Dims> for Axes {
    fn from(dims: Dims) -> Self {
        dims.axes
    }
}

impl Dims {
    /// Sizes with full rotary embedding (R = D).
    ///
    /// # Errors
    /// [`Error::Dims`] when D is odd or a tensor would not be addressable.
    pub fn new(
        batch: usize,
        seq: usize,
        hidden: usize,
        query_heads: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> Result<Self, Error> {
        Self::checked(Axes { batch, seq, hidden, query_heads, kv_heads, head_dim, rotary_dim: head_dim })
    }

    /// The same sizes with only the first `rotary_dim` elements of each head rotated.
    ///
    /// # Errors
    /// [`Error::Dims`] when R is odd or larger than D.
    pub fn with_rotary_dim(self, rotary_dim: usize) -> Result<Self, Error> {
        Self::checked(Axes { rotary_dim, ..self.axes })
    }

    /// The same heads and hidden size over another batch and sequence length.
    ///
    /// # Errors
    /// [`Error::Dims`] when a tensor would not be addressable.
    pub fn with_tokens(self, batch: usize, seq: usize) -> Result<Self, Error> {
        Self::checked(Axes { batch, seq, ..self.axes })
    }

    fn checked(axes: Axes) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::Dims { why });
        if !axes.head_dim.is_multiple_of(2) {
            return refuse(format!("head size D must be even, found {}", axes.head_dim));
        }
        if !axes.rotary_dim.is_multiple_of(2) {
            return refuse(format!("rotary size R must be even, found {}", axes.rotary_dim));
        }
        if axes.rotary_dim > axes.head_dim {
            return refuse(format!(
                "rotary size R = {} is larger than head size D = {}",
                axes.rotary_dim, axes.head_dim
            ));
        }
        let heads = axes.kv_heads.checked_mul(2).and_then(|kv| kv.checked_add(axes.query_heads));
        let rows = heads.and_then(|heads| heads.checked_mul(axes.head_dim));
        let tokens = axes.batch.checked_mul(axes.seq);
        let (Some(rows), Some(tokens)) = (rows, tokens) else {
            return refuse("B*S or (H + 2K)*D overflows 64 bits".to_owned());
        };
        // The widest tensors: stacked gradients, stacked weights, hidden states, rotary tables.
        let extents = [(tokens, rows), (rows, axes.hidden), (tokens, axes.hidden), (tokens, axes.rotary_dim)];
        for (outer, inner) in extents {
            let bytes = outer.checked_mul(inner).and_then(|elems| elems.checked_mul(size_of::<f32>()));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
                return refuse(format!("a tensor of {outer} x {inner} f32 elements is not addressable"));
            }
        }
        Ok(Self { axes })
    }

    /// B, the batch size.
    pub fn batch(self) -> usize {
        self.axes.batch
    }

    /// S, the sequence length.
    pub fn seq(self) -> usize {
        self.axes.seq
    }

    /// E, the hidden size.
    pub fn hidden(self) -> usize {
        self.axes.hidden
    }

    /// H, the number of query heads.
    pub fn query_heads(self) -> usize {
        self.axes.query_heads
    }

    /// K, the number of key heads, which is that of value heads too.
    pub fn kv_heads(self) -> usize {
        self.axes.kv_heads
    }

    /// D, the elements of one head.
    pub fn head_dim(self) -> usize {
        self.axes.head_dim
    }

    /// R, the leading elements of a head that are rotated.
    pub fn rotary_dim(self) -> usize {
        self.axes.rotary_dim
    }

    /// T = B·S.
    pub fn tokens(self) -> usize {
        self.axes.batch * self.axes.seq
    }

    /// H·D, the rows of the query weight.
    pub fn query_rows(self) -> usize {
        self.axes.query_heads * self.axes.head_dim
    }

    /// K·D, the rows of the key weight and of the value weight.
    pub fn kv_rows(self) -> usize {
        self.axes.kv_heads * self.axes.head_dim
    }

    /// N = (H + 2K)·D, the rows of the three weights stacked.
    pub fn rows(self) -> usize {
        self.query_rows() + 2 * self.kv_rows()
    }

    /// The elements of `tensor`.
    pub fn elems(self, tensor: Tensor) -> usize {
        self.shape(tensor).iter().product()
    }

    /// The three blocks of the N stacked rows, in order: query, key, value.
    pub fn segments(self) -> [Segment; 3] {
        let (query_heads, kv_heads) = (self.query_heads(), self.kv_heads());
        let segment = |gradient, weight, weight_gradient, first_row, heads, rotated| Segment {
            gradient,
            weight,
            weight_gradient,
            first_row,
            heads,
            rotated,
        };
        let (key, value) = (self.query_rows(), self.query_rows() + self.kv_rows());
        [
            segment(Tensor::GradQuery, Tensor::QWeight, Tensor::GradQWeight, 0, query_heads, true),
            segment(Tensor::GradKey, Tensor::KWeight, Tensor::GradKWeight, key, kv_heads, true),
            segment(Tensor::GradValue, Tensor::VWeight, Tensor::GradVWeight, value, kv_heads, false),
        ]
    }

    /// The shape that `tensor` must have, outermost dimension first.
    pub fn shape(self, tensor: Tensor) -> Vec<usize> {
        let Axes { batch, seq, hidden, query_heads, kv_heads, head_dim, rotary_dim } = self.axes;
        match tensor {
            Tensor::GradQuery => vec![batch, query_heads, seq, head_dim],
            Tensor::GradKey | Tensor::GradValue => vec![batch, kv_heads, seq, head_dim],
            Tensor::HiddenStates | Tensor::GradHiddenStates => vec![batch, seq, hidden],
            Tensor::QWeight | Tensor::GradQWeight => vec![self.query_rows(), hidden],
            Tensor::KWeight | Tensor::VWeight | Tensor::GradKWeight | Tensor::GradVWeight => {
                vec![self.kv_rows(), hidden]
            }
            Tensor::Cos | Tensor::Sin => vec![batch, seq, rotary_dim],
        }
    }
}

impl std::fmt::Display for Dims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Axes { batch, seq, hidden, query_heads, kv_heads, head_dim, rotary_dim } = self.axes;
        write!(f, "B={batch} S={seq} E={hidden} H={query_heads} K={kv_heads} D={head_dim} R={rotary_dim}")
    }
}
