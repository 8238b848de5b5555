//! A session: a problem's layout and workspace, kept for many calls.

use qkv_rope_op::{Error, Inputs, Output, Outputs, Problem, Requested, Session, Write};

use crate::blocking::Layout;
use crate::call::Call;
use crate::kernel::{CHUNK, Kernel};
use crate::threads::Pool;
use crate::workspace::Workspace;

/// A problem prepared for the CPU: its layout and its workspace.
pub(crate) struct CpuSession<'b> {
    problem: Problem,
    layout: Layout,
    kernel: Kernel,
    workspace: Workspace,
    pool: &'b Pool,
}

impl<'b> CpuSession<'b> {
    /// Maps the workspace of `layout`, which must be for `kernel` and `problem`.
    pub(crate) fn new(kernel: Kernel, layout: Layout, pool: &'b Pool, problem: &Problem) -> std::io::Result<Self> {
        let workspace = Workspace::new(&region_lens(&layout, problem))?;
        Ok(Self { problem: *problem, layout, kernel, workspace, pool })
    }
}

/// Lengths of the workspace's regions, in elements, in the order of [`Call::new`].
pub(crate) fn region_lens(layout: &Layout, problem: &Problem) -> [usize; 5] {
    let outputs = &problem.outputs;
    let when = |needed: bool, elems: usize| if needed { elems } else { 0 };
    let block_columns = layout.block_panels * layout.width;
    [
        layout.chunks * layout.chunk_column_stride_elems(),
        when(outputs.any_weight(), layout.block_panels * layout.hidden_panel_elems()),
        when(outputs.grad_hidden.is_some(), layout.block_panels * layout.weight_panel_elems()),
        when(sums_hidden_aside(layout, outputs), layout.block_tokens * block_columns),
        when(sums_weights_aside(layout, problem), layout.chunks * CHUNK * block_columns),
    ]
}

/// Whether grad_hidden is summed in scratch memory, to be added to the output once.
pub(crate) fn sums_hidden_aside(layout: &Layout, outputs: &Requested) -> bool {
    outputs.grad_hidden == Some(Write::Accumulate) && layout.chunks > layout.block_chunks()
}

/// Whether weight gradients that accumulate are summed in scratch memory.
pub(crate) fn sums_weights_aside(layout: &Layout, problem: &Problem) -> bool {
    let outputs = &problem.outputs;
    let accumulates =
        [outputs.grad_q_weight, outputs.grad_k_weight, outputs.grad_v_weight].contains(&Some(Write::Accumulate));
    accumulates && problem.dims.tokens() > layout.block_tokens.min(layout.block_chunks() * CHUNK)
}

impl Session for CpuSession<'_> {
    fn backward(&mut self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        self.problem.validate(inputs, outputs)?;
        if self.problem.dims.tokens() == 0 || self.layout.chunks == 0 || self.layout.panels == 0 {
            clear(outputs);
            return Ok(());
        }
        let call = Call::new(self.problem, &self.layout, self.kernel, self.pool, &mut self.workspace, inputs, outputs);
        self.pool.install(|| call.run());
        Ok(())
    }
}

/// Writes the empty sum to every output that is overwritten.
fn clear(outputs: &mut Outputs<'_>) {
    fn zero<const RANK: usize>(output: &mut Output<'_, RANK>, leading: &[usize]) {
        if output.write == Write::Overwrite {
            output.view.row_mut(leading).fill(0.0);
        }
    }
    if let Some(output) = &mut outputs.grad_hidden {
        let [batch, seq, _] = output.view.shape();
        for row in 0..batch * seq {
            zero(output, &[row / seq, row % seq]);
        }
    }
    for output in [&mut outputs.grad_q_weight, &mut outputs.grad_k_weight, &mut outputs.grad_v_weight] {
        let Some(output) = output else { continue };
        for row in 0..output.view.shape()[0] {
            zero(output, &[row]);
        }
    }
}

#[cfg(test)]
mod tests;
