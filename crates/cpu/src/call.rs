//! One call: block by block of tokens un-rotate, pack and multiply, in tasks that threads share out.

use std::ops::Range;

use qkv_rope_op::{Dims, Inputs, Outputs, Problem, Tensor, View, Write};

use crate::blocking::{Layout, PackedSegment};
use crate::kernel::{CHUNK, Kernel, SumOver};
use crate::pack::PackRows;
use crate::product::{Factor, Product, Rows, merge_row};
use crate::session::{sums_hidden_aside, sums_weights_aside};
use crate::threads::Pool;
use crate::unrotate::{Rotary, Unrotate};
use crate::workspace::{Region, Workspace};

/// Rows or tokens that one packing task handles: enough to stream, few enough to share out.
const PACK_ROWS: usize = 64;

/// Heads that one un-rotation task handles.
const PACK_HEADS: usize = 8;

/// An output as tasks see it.
#[derive(Clone, Copy)]
struct Target {
    rows: Rows,
    write: Write,
}

/// Everything that the tasks of one call share.
pub(crate) struct Call<'a> {
    dims: Dims,
    layout: &'a Layout,
    kernel: Kernel,
    pool: &'a Pool,
    segments: Vec<SegmentCall<'a>>,
    hidden_states: Option<View<'a, 3>>,
    grad_hidden: Option<Target>,
    packed_u: Region,
    packed_hidden: Region,
    packed_weights: Region,
    hidden_aside: Option<Rows>,
    weights_aside: Option<Rows>,
}

/// A projection with its tensors.
struct SegmentCall<'a> {
    segment: PackedSegment,
    grad: View<'a, 4>,
    rotary: Option<Rotary<'a>>,
    weight: Option<View<'a, 2>>,
    grad_weight: Option<Target>,
}

/// What one thread does at a time. Ranges are those of the block, but for tokens of a gradient.
enum Task {
    PackWeights { rows: Range<usize> },
    PackHidden { rows: Range<usize> },
    PackGradient { segment: usize, heads: Range<usize>, tokens: Range<usize> },
    MultiplyHidden { tokens: Range<usize>, panels: Range<usize> },
    MultiplyWeight { segment: usize, chunks: Range<usize>, panels: Range<usize> },
}

/// Where the work is: a block of tokens and a block of panels of the hidden size.
struct Block {
    tokens: Range<usize>,
    panels: Range<usize>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        problem: Problem,
        layout: &'a Layout,
        kernel: Kernel,
        pool: &'a Pool,
        workspace: &mut Workspace,
        inputs: &Inputs<'a>,
        outputs: &mut Outputs<'_>,
    ) -> Self {
        let regions = workspace.regions();
        let aside = |region: Region, needed: bool| {
            let columns = layout.block_panels * layout.width;
            needed.then(|| Rows::matrix(region.piece(0, 0), columns))
        };
        let grad_hidden = outputs.grad_hidden.as_mut().map(|output| {
            let [batch_stride, seq_stride, _] = output.view.strides();
            let rows = Rows::grouped(output.view.as_mut_ptr(), problem.dims.seq(), [batch_stride, seq_stride]);
            Target { rows, write: output.write }
        });
        Self {
            dims: problem.dims,
            layout,
            kernel,
            pool,
            segments: segment_calls(problem, layout, inputs, outputs),
            hidden_states: inputs.hidden_states,
            grad_hidden,
            packed_u: regions[0],
            packed_hidden: regions[1],
            packed_weights: regions[2],
            hidden_aside: aside(regions[3], sums_hidden_aside(layout, &problem.outputs)),
            weights_aside: aside(regions[4], sums_weights_aside(layout, &problem)),
        }
    }

    pub(crate) fn run(&self) {
        let tokens = self.dims.tokens();
        for panel in (0..self.layout.panels).step_by(self.layout.block_panels) {
            let panels = panel..self.layout.panels.min(panel + self.layout.block_panels);
            for token in (0..tokens).step_by(self.layout.block_tokens) {
                let tokens = token..tokens.min(token + self.layout.block_tokens);
                self.run_block(&Block { tokens, panels: panels.clone() });
            }
        }
    }

    /// The weights are packed once, among the first products that do not need them: packing waits for memory, and one
    /// thread that packs uses as much of it as all would.
    fn run_block(&self, block: &Block) {
        self.share_out(block, self.block_packs(block));
        let mut products = self.weight_products(block);
        if block.tokens.start == 0 {
            self.share_out(block, mixed(products, self.weight_packs()));
            products = Vec::new();
        }
        self.share_out(block, self.hidden_products(block).chain(products).collect());
    }

    /// Performs the tasks on all threads and returns when the last has ended.
    fn share_out(&self, block: &Block, tasks: Vec<Task>) {
        self.pool.share_out(&tasks, |task| self.perform(block, task));
    }

    /// Packing of the weights.
    fn weight_packs(&self) -> Vec<Task> {
        let rows = if self.grad_hidden.is_some() { self.layout.chunks * CHUNK } else { 0 };
        split(0..rows, PACK_ROWS, CHUNK).map(|rows| Task::PackWeights { rows }).collect()
    }

    /// Packing of U and of the hidden states of a block.
    fn block_packs(&self, block: &Block) -> Vec<Task> {
        let mut tasks = Vec::new();
        for tokens in split(block.tokens.clone(), PACK_ROWS, CHUNK) {
            for (segment, call) in self.segments.iter().enumerate() {
                let heads = split(0..call.segment.of.heads, PACK_HEADS, 1);
                tasks.extend(heads.map(|heads| Task::PackGradient { segment, heads, tokens: tokens.clone() }));
            }
        }
        if self.segments.iter().any(|call| call.grad_weight.is_some()) {
            let rows = split(0..block.tokens.len().next_multiple_of(CHUNK), PACK_ROWS, CHUNK);
            tasks.extend(rows.map(|rows| Task::PackHidden { rows }));
        }
        tasks
    }

    fn hidden_products(&self, block: &Block) -> impl Iterator<Item = Task> {
        let tokens = if self.grad_hidden.is_some() { block.tokens.len() } else { 0 };
        let (panels, blocking) = (block.panels.clone(), self.layout.blocking);
        split(0..tokens, blocking.task_rows, CHUNK).flat_map(move |tokens| {
            let panels = split(panels.clone(), blocking.task_panels, 1);
            panels.map(move |panels| Task::MultiplyHidden { tokens: tokens.clone(), panels })
        })
    }

    fn weight_products(&self, block: &Block) -> Vec<Task> {
        let blocking = &self.layout.blocking;
        let mut tasks = Vec::new();
        for (segment, call) in self.segments.iter().enumerate().filter(|(_, call)| call.grad_weight.is_some()) {
            for chunks in split(0..call.segment.chunks, blocking.task_rows / CHUNK, 1) {
                let panels = split(block.panels.clone(), blocking.task_panels, 1);
                tasks.extend(panels.map(|panels| Task::MultiplyWeight { segment, chunks: chunks.clone(), panels }));
            }
        }
        tasks
    }

    fn perform(&self, block: &Block, task: &Task) {
        match task {
            Task::PackWeights { rows } => self.pack_weights(block, rows),
            Task::PackHidden { rows } => self.pack_hidden(block, rows),
            Task::PackGradient { segment, heads, tokens } => self.pack_gradient(block, *segment, heads, tokens),
            Task::MultiplyHidden { tokens, panels } => self.multiply_hidden(block, tokens, panels),
            Task::MultiplyWeight { segment, chunks, panels } => self.multiply_weight(block, *segment, chunks, panels),
        }
    }

    fn pack_weights(&self, block: &Block, rows: &Range<usize>) {
        let task = PackRows {
            source: &|row| self.weight_row(row),
            rows: rows.clone(),
            columns: self.columns(&block.panels),
            to: self.packed_weights,
            panel_elems: self.layout.weight_panel_elems(),
        };
        // SAFETY: the kernel was chosen for this machine; row ranges of tasks do not overlap.
        unsafe { (self.kernel.pack)(&task) };
    }

    fn pack_hidden(&self, block: &Block, rows: &Range<usize>) {
        let task = PackRows {
            source: &|row| self.hidden_row(block, row),
            rows: rows.clone(),
            columns: self.columns(&block.panels),
            to: self.packed_hidden,
            panel_elems: self.layout.hidden_panel_elems(),
        };
        // SAFETY: as above.
        unsafe { (self.kernel.pack)(&task) };
    }

    /// Row `row` of the stacked weights, each segment padded to whole chunks.
    fn weight_row(&self, row: usize) -> Option<&'a [f32]> {
        let call = self.segments.iter().rev().find(|call| call.segment.first_chunk * CHUNK <= row)?;
        let row = row - call.segment.first_chunk * CHUNK;
        let weight = call.weight.filter(|_| row < call.segment.rows)?;
        Some(weight.row(&[row]))
    }

    fn hidden_row(&self, block: &Block, row: usize) -> Option<&'a [f32]> {
        let token = block.tokens.start + row;
        let hidden = self.hidden_states.filter(|_| token < block.tokens.end)?;
        Some(hidden.row(&[token / self.dims.seq(), token % self.dims.seq()]))
    }

    fn pack_gradient(&self, block: &Block, segment: usize, heads: &Range<usize>, tokens: &Range<usize>) {
        let call = &self.segments[segment];
        let last = tokens.end == block.tokens.end;
        let padding = if last { block.tokens.len().next_multiple_of(CHUNK) - block.tokens.len() } else { 0 };
        let task = Unrotate {
            dims: self.dims,
            grad: call.grad,
            rotary: call.rotary,
            heads: heads.clone(),
            tokens: tokens.clone(),
            padding,
            to: self.packed_u,
            to_offset_elems: call.segment.first_chunk * self.layout.chunk_column_stride_elems(),
            column_stride_elems: self.layout.chunk_column_stride_elems(),
            block_start: block.tokens.start,
        };
        // SAFETY: the kernel was chosen for this machine; tasks differ in tokens or heads, so in elements of U.
        unsafe { (self.kernel.unrotate)(&task) };
    }

    /// Columns of the hidden size that some panels cover.
    fn columns(&self, panels: &Range<usize>) -> Range<usize> {
        panels.start * self.layout.width..self.dims.hidden().min(panels.end * self.layout.width)
    }

    fn multiply_hidden(&self, block: &Block, tokens: &Range<usize>, panels: &Range<usize>) {
        let Some(target) = self.grad_hidden else { return };
        let columns = self.columns(panels);
        let panel_elems = self.layout.weight_panel_elems();
        let first_panel = (panels.start - block.panels.start) * panel_elems;
        let output = target.rows.at_column(columns.start);
        let aside =
            self.hidden_aside.map(|rows| rows.at_column((panels.start - block.panels.start) * self.layout.width));
        let product = Product {
            kernel: self.kernel,
            u: Factor {
                base: self.packed_u.piece(tokens.start * CHUNK, 0),
                tile_stride_elems: CHUNK * CHUNK,
                sum_stride_elems: self.layout.chunk_column_stride_elems(),
                sum_over: SumOver::Columns,
            },
            panels: self.packed_weights.piece(first_panel, 0),
            panel_stride_elems: panel_elems,
            columns: columns.len(),
            rows: tokens.len(),
            sum_chunks: self.layout.chunks,
            block_chunks: self.layout.block_chunks(),
            to: aside.unwrap_or(output),
            first_row: if aside.is_some() { tokens.start } else { block.tokens.start + tokens.start },
            add: aside.is_none() && target.write == Write::Accumulate,
        };
        // SAFETY: packing has ended, so U and the panels are only read; tasks differ in tokens or panels, so in
        // elements of the output, whose shape was validated; the kernel was chosen for this machine.
        unsafe { product.run() };
        if let Some(aside) = aside {
            // SAFETY: as above.
            unsafe {
                add_rows(aside, tokens.start, output, block.tokens.start + tokens.start, tokens.len(), columns.len())
            };
        }
    }

    fn multiply_weight(&self, block: &Block, segment: usize, chunks: &Range<usize>, panels: &Range<usize>) {
        let call = &self.segments[segment];
        let Some(target) = call.grad_weight else { return };
        let columns = self.columns(panels);
        let panel_elems = self.layout.hidden_panel_elems();
        let first_chunk = call.segment.first_chunk + chunks.start;
        let column_stride_elems = self.layout.chunk_column_stride_elems();
        let output = target.rows.at_column(columns.start);
        let aside = self
            .weights_aside
            .filter(|_| target.write == Write::Accumulate)
            .map(|rows| rows.at_column((panels.start - block.panels.start) * self.layout.width));
        let (first_row, aside_row) = (chunks.start * CHUNK, first_chunk * CHUNK);
        let rows = (chunks.end * CHUNK).min(call.segment.rows) - first_row;
        let sum_chunks = block.tokens.len().div_ceil(CHUNK);
        let product = Product {
            kernel: self.kernel,
            u: Factor {
                base: self.packed_u.piece(first_chunk * column_stride_elems, 0),
                tile_stride_elems: column_stride_elems,
                sum_stride_elems: CHUNK * CHUNK,
                sum_over: SumOver::Tokens,
            },
            panels: self.packed_hidden.piece((panels.start - block.panels.start) * panel_elems, 0),
            panel_stride_elems: panel_elems,
            columns: columns.len(),
            rows,
            sum_chunks,
            block_chunks: self.layout.block_chunks(),
            to: aside.unwrap_or(output),
            first_row: if aside.is_some() { aside_row } else { first_row },
            add: block.tokens.start > 0 || (aside.is_none() && target.write == Write::Accumulate),
        };
        // SAFETY: packing has ended, so U and the panels are only read; tasks differ in rows or panels, so in elements
        // of the output, whose shape was validated; the kernel was chosen for this machine.
        unsafe { product.run() };
        if let Some(aside) = aside.filter(|_| block.tokens.end == self.dims.tokens()) {
            // SAFETY: as above.
            unsafe { add_rows(aside, aside_row, output, first_row, rows, columns.len()) };
        }
    }
}

/// Adds rows summed aside to an output, once.
///
/// # Safety
/// Both must hold the rows and columns, and no other thread may touch them.
unsafe fn add_rows(from: Rows, from_row: usize, to: Rows, to_row: usize, rows: usize, columns: usize) {
    for row in 0..rows {
        // SAFETY: promised by the caller; scratch memory was written by the product.
        let sums = unsafe { std::slice::from_raw_parts(from.row(from_row + row), columns) };
        // SAFETY: promised by the caller.
        unsafe { merge_row(to.row(to_row + row), sums, true) };
    }
}

fn segment_calls<'a>(
    problem: Problem,
    layout: &Layout,
    inputs: &Inputs<'a>,
    outputs: &mut Outputs<'_>,
) -> Vec<SegmentCall<'a>> {
    let rotary = Rotary { cos: inputs.cos, sin: inputs.sin, pairing: problem.pairing };
    let segments = layout.segments.iter().map(|&segment| {
        let (grad, weight, output) = match segment.of.gradient {
            Tensor::GradQuery => (inputs.grad_query, inputs.q_weight, &mut outputs.grad_q_weight),
            Tensor::GradKey => (inputs.grad_key, inputs.k_weight, &mut outputs.grad_k_weight),
            _ => (inputs.grad_value, inputs.v_weight, &mut outputs.grad_v_weight),
        };
        let rotary = segment.of.rotated.then_some(rotary);
        let grad_weight = output.as_mut().map(|output| {
            let row_stride = output.view.strides()[0];
            Target { rows: Rows::matrix(output.view.as_mut_ptr(), row_stride), write: output.write }
        });
        SegmentCall { segment, grad, rotary, weight, grad_weight }
    });
    segments.collect()
}

/// Two kinds of task, evenly mixed.
fn mixed(products: Vec<Task>, packs: Vec<Task>) -> Vec<Task> {
    let packs_each = packs.len().div_ceil(products.len().max(1));
    let mut packs = packs.into_iter();
    let mut tasks = Vec::with_capacity(products.len() + packs.len());
    for product in products {
        tasks.push(product);
        tasks.extend(packs.by_ref().take(packs_each));
    }
    tasks.extend(packs);
    tasks
}

/// Cuts a range into pieces of at most `most`, as equal as multiples of `unit` from its start allow.
fn split(range: Range<usize>, most: usize, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let pieces = range.len().div_ceil(most).max(1);
    let step = range.len().div_ceil(pieces).next_multiple_of(unit).max(unit);
    range.clone().step_by(step).map(move |start| start..range.end.min(start + step))
}
