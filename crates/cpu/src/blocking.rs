//! The table of block sizes, and what it makes of one problem.

use qkv_rope_op::{Dims, Requested, Segment};

use crate::isa::Isa;
use crate::kernel::CHUNK;

/// Block sizes of one instruction set. Sums are split at `tokens` and `terms`, so results depend on them; they never depend
/// on the thread count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    /// Most tokens whose U, un-rotated and packed, is alive at once.
    pub(crate) tokens: usize,
    /// Terms of a sum that are added in registers before the output is touched again.
    pub(crate) terms: usize,
    /// Rows of an output that one task computes: its block of U stays in L2.
    pub(crate) task_rows: usize,
    /// Panels of the second operand that one task multiplies by.
    pub(crate) task_panels: usize,
    /// Most bytes of packed weights alive at once; a wider hidden size is computed in several column blocks.
    pub(crate) weight_bytes: usize,
}

impl Blocking {
    /// The row of the table for `isa`. Measured; docs/notes/2026-12-01-cpu-kernels.md has the alternatives.
    pub(crate) fn of(isa: Isa) -> Self {
        let weight_bytes = 20 << 20;
        match isa {
            Isa::Avx512 => Self { tokens: 768, terms: 768, task_rows: 256, task_panels: 8, weight_bytes },
            Isa::Avx2 => Self { tokens: 512, terms: 512, task_rows: 256, task_panels: 16, weight_bytes },
            Isa::Portable => Self { tokens: 512, terms: 512, task_rows: 256, task_panels: 24, weight_bytes },
        }
    }
}

/// One of the three stacked projections, as columns of packed U and rows of packed W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedSegment {
    pub(crate) of: Segment,
    /// Rows of the weight: heads · D.
    pub(crate) rows: usize,
    /// The first chunk column of U that belongs to it; each segment begins a chunk of its own.
    pub(crate) first_chunk: usize,
    /// Chunk columns, the last one padded with zeros.
    pub(crate) chunks: usize,
    /// Whether its weight gradient is wanted.
    pub(crate) weight_grad: bool,
}

/// The sizes that follow from a problem and a row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) blocking: Blocking,
    /// Columns of a panel.
    pub(crate) width: usize,
    pub(crate) segments: Vec<PackedSegment>,
    /// Chunk columns of all segments.
    pub(crate) chunks: usize,
    /// Tokens of a block, a multiple of 8; the last block may have fewer.
    pub(crate) block_tokens: usize,
    /// Panels of a column block of the hidden size; the last block may have fewer.
    pub(crate) block_panels: usize,
    /// Panels of the whole hidden size.
    pub(crate) panels: usize,
}

impl Layout {
    /// The layout for a kernel of this `width`.
    pub(crate) fn new(blocking: Blocking, width: usize, dims: Dims, outputs: &Requested) -> Self {
        let segments = segments(dims, outputs);
        let chunks = segments.last().map_or(0, |last| last.first_chunk + last.chunks);
        let blocks = dims.tokens().div_ceil(blocking.tokens).max(1);
        let block_tokens = dims.tokens().div_ceil(blocks).next_multiple_of(CHUNK);
        let panels = dims.hidden().div_ceil(width);
        let panel_bytes = chunks * CHUNK * width * size_of::<f32>();
        let most = (blocking.weight_bytes / panel_bytes.max(1)).max(1);
        let block_panels = panels.div_ceil(panels.div_ceil(most).max(1));
        Self { blocking, width, segments, chunks, block_tokens, block_panels, panels }
    }

    /// Elements from one chunk column of packed U to the next. The two tokens of padding make it an odd number of
    /// cache lines, so that the chunks of one token fall into different cache sets.
    pub(crate) fn chunk_column_stride_elems(&self) -> usize {
        (self.block_tokens + 2) * CHUNK
    }

    /// Elements of one panel of packed weights.
    pub(crate) fn weight_panel_elems(&self) -> usize {
        self.chunks * CHUNK * self.width
    }

    /// Elements of one panel of packed hidden states.
    pub(crate) fn hidden_panel_elems(&self) -> usize {
        self.block_tokens * self.width
    }

    /// Chunks along a sum that are added in registers before the output is touched again.
    pub(crate) fn block_chunks(&self) -> usize {
        self.blocking.terms / CHUNK
    }
}

/// The projections that any requested output needs.
fn segments(dims: Dims, outputs: &Requested) -> Vec<PackedSegment> {
    let mut first_chunk = 0;
    let mut segments = Vec::new();
    for of in dims.segments() {
        let rows = of.rows(dims).len();
        let weight_grad = outputs.get(of.weight_gradient).is_some();
        if rows == 0 || !(weight_grad || outputs.grad_hidden.is_some()) {
            continue;
        }
        let chunks = rows.div_ceil(CHUNK);
        segments.push(PackedSegment { of, rows, first_chunk, chunks, weight_grad });
        first_chunk += chunks;
    }
    segments
}
