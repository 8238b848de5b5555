//! Packing of the second operand: rows of W or X cut into panels as wide as a register tile.

use crate::workspace::Region;

/// Rows `first_row..first_row + rows` of a row-major operand, columns of some panels of it, to be packed.
pub(crate) struct PackRows<'a> {
    /// The operand's row at an index, or `None` for a row of zeros (padding).
    pub(crate) source: &'a (dyn Fn(usize) -> Option<&'a [f32]> + Sync),
    pub(crate) rows: std::ops::Range<usize>,
    /// Columns of the operand, of which the last panel may have only some.
    pub(crate) columns: std::ops::Range<usize>,
    pub(crate) to: Region,
    /// Elements from one panel to the next.
    pub(crate) panel_elems: usize,
}

/// Packs the rows into panels of `WIDTH` columns; what a panel has beyond `columns` becomes zero.
///
/// # Safety
/// No other thread may touch these rows of the panels meanwhile.
#[inline(always)]
pub(crate) unsafe fn pack_rows<const WIDTH: usize>(task: &PackRows<'_>) {
    for row in task.rows.clone() {
        let source = (task.source)(row).map_or(&[][..], |source| &source[task.columns.clone()]);
        let panels = task.columns.len().div_ceil(WIDTH);
        for panel in 0..panels {
            let to = task.to.piece(panel * task.panel_elems + row * WIDTH, WIDTH).cast::<[f32; WIDTH]>();
            let columns = source.get(panel * WIDTH..).unwrap_or(&[]);
            let values = match columns.first_chunk::<WIDTH>() {
                Some(values) => *values,
                None => padded(columns),
            };
            // SAFETY: `piece` checked the bounds; the caller promised that nobody else touches this row.
            unsafe { to.write(values) };
        }
    }
}

fn padded<const WIDTH: usize>(columns: &[f32]) -> [f32; WIDTH] {
    let mut values = [0.0; WIDTH];
    values[..columns.len()].copy_from_slice(columns);
    values
}
