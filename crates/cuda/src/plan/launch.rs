//! What a launch is made of: kernels, grids, arguments by name, and the workspace that they share.

use qkv_rope_op::Tensor;
use serde::Serialize;

use crate::kernel::Kernel;

/// Regions of the workspace start at multiples of this many bytes.
pub const WORKSPACE_ALIGNMENT: u64 = 256;

/// A place in device memory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// An input or output of the call.
    Tensor(Tensor),
    /// A byte offset in the workspace.
    Workspace(u64),
    /// The product kernel's task table.
    ProductTable,
    /// The finish kernel's task table.
    FinishTable,
}

/// One kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arg {
    /// An address.
    At(Place),
    /// f32 elements from the workspace's scratch region to a tensor.
    Distance(Tensor),
    /// Stride of a dimension as 32 bits.
    Stride(Tensor, usize),
    /// Stride of a dimension as 64 bits.
    WideStride(Tensor, usize),
    /// An integer of 32 bits.
    Int(i32),
    /// A tensor map, by value.
    Map(MapSpec),
}

/// A matrix of fp16 in the workspace and the boxes that are copied from it, in rows of 128 swizzled bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MapSpec {
    /// Byte offset in the workspace.
    pub at: u64,
    /// Rows of the matrix.
    pub rows: u64,
    /// Elements of a row.
    pub cols: u64,
    /// Bytes from row to row.
    pub pitch_bytes: u64,
    /// Rows of a box.
    pub box_rows: u32,
    /// Elements of a box's row.
    pub box_cols: u32,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Thread blocks; of kernels made of tiles, clusters of them.
    pub grid: u32,
    /// Threads per block; 1 for kernels made of tiles, whose cubins say how many they need.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether it may start before the launch before it has ended: it waits for that itself.
    pub early: bool,
    /// Arguments in order.
    #[serde(skip)]
    pub args: Vec<Arg>,
}

impl Launch {
    pub(super) fn of(kernel: Kernel, grid: u32, args: Vec<Arg>) -> Self {
        Self { kernel, grid, threads: 1, shared_bytes: 0, early: false, args }
    }
}

/// Sizes and offsets of the workspace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Leading terms of U.
    pub u: u64,
    /// Rests of U.
    pub u_rest: u64,
    /// Leading terms of W, then X.
    pub wx: u64,
    /// Rests of W, then X.
    pub wx_rest: u64,
    /// Powers of two.
    pub words: u64,
    /// Scratch slots.
    pub scratch: u64,
    /// All of it.
    pub bytes: u64,
}

/// Takes a region off the workspace: where it starts.
pub(super) fn take(end: &mut u64, elems: usize, bytes: usize) -> u64 {
    let start = *end;
    *end += ((elems * bytes) as u64).next_multiple_of(WORKSPACE_ALIGNMENT);
    start
}

/// A size, which the plan has checked to fit.
pub(super) fn int(value: usize) -> Arg {
    Arg::Int(i32::try_from(value).unwrap_or(i32::MAX))
}
