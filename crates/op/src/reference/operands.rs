//! The two sides of both products: U from the gradients and tables, W and X from the inputs.

use super::Reference;
use super::product::Left;
use super::rotation::{Terms, unrotated};
use crate::dims::Segment;
use crate::error::Tensor;
use crate::view::View;

/// One column of U: an element of a head.
#[derive(Clone, Copy)]
struct Column {
    segment: Segment,
    head: usize,
    element: usize,
}

/// Rows of U (or of its transpose) as the left side of a product, and what their errors are relative to.
pub(super) struct LeftRows {
    pub(super) values: Left<f64>,
    pub(super) magnitudes: Left<f64>,
}

impl<'a> Reference<'a> {
    /// Rows `tokens` of U.
    pub(super) fn u_rows(&self, tokens: &[usize]) -> LeftRows {
        let columns: Vec<Column> = (0..self.problem.dims.rows()).map(|row| self.column(row)).collect();
        let mut rows = LeftRows::zeros(tokens.len(), columns.len());
        for (index, &token) in tokens.iter().enumerate() {
            self.for_each_term(token, &columns, |column, terms| rows.set(index, column, terms));
        }
        rows
    }

    /// Rows `rows` of the transpose of U: columns of U.
    pub(super) fn u_columns(&self, rows: &[usize]) -> LeftRows {
        let columns: Vec<Column> = rows.iter().map(|&row| self.column(row)).collect();
        let tokens = self.problem.dims.tokens();
        let mut rows = LeftRows::zeros(columns.len(), tokens);
        for token in 0..tokens {
            self.for_each_term(token, &columns, |column, terms| rows.set(column, token, terms));
        }
        rows
    }

    /// Calls `visit` with each of `columns` by its place among them, at one token.
    fn for_each_term(&self, token: usize, columns: &[Column], mut visit: impl FnMut(usize, Terms)) {
        let same_head = |a: &Column, b: &Column| a.segment == b.segment && a.head == b.head;
        let mut first = 0;
        for columns in columns.chunk_by(same_head) {
            let Column { segment, head, .. } = columns[0];
            let gradient = self.gradient(&segment, head, token);
            let (cos, sin) = self.tables(&segment, token);
            for (index, column) in columns.iter().enumerate() {
                visit(first + index, unrotated(self.problem.pairing, gradient, cos, sin, column.element));
            }
            first += columns.len();
        }
    }

    fn column(&self, row: usize) -> Column {
        let segment = self.segment(row);
        let (row, elements) = (row - segment.first_row, self.problem.dims.head_dim());
        Column { segment, head: row / elements, element: row % elements }
    }

    fn segment(&self, row: usize) -> Segment {
        let dims = self.problem.dims;
        let segment = dims.segments().into_iter().find(|segment| segment.rows(dims).contains(&row));
        segment.unwrap_or_else(|| panic!("row {row} of {}", dims.rows()))
    }

    /// A head of the gradients as given, D elements.
    pub(super) fn gradient(&self, segment: &Segment, head: usize, token: usize) -> &'a [f32] {
        let [batch, seq] = self.place(token);
        let view = match segment.gradient {
            Tensor::GradQuery => &self.inputs.grad_query,
            Tensor::GradKey => &self.inputs.grad_key,
            _ => &self.inputs.grad_value,
        };
        view.row(&[batch, head, seq])
    }

    /// The tables of a token, R elements each; empty for heads that are not rotated.
    pub(super) fn tables(&self, segment: &Segment, token: usize) -> (&'a [f32], &'a [f32]) {
        if !segment.rotated {
            return (&[], &[]);
        }
        let place = self.place(token);
        (self.inputs.cos.row(&place), self.inputs.sin.row(&place))
    }

    /// Row `token` of X.
    pub(super) fn hidden_row(&self, token: usize) -> &'a [f32] {
        needed(self.inputs.hidden_states).row(&self.place(token))
    }

    /// Row `row` of W.
    pub(super) fn weight_row(&self, row: usize) -> &'a [f32] {
        let segment = self.segment(row);
        let view = match segment.weight {
            Tensor::QWeight => self.inputs.q_weight,
            Tensor::KWeight => self.inputs.k_weight,
            _ => self.inputs.v_weight,
        };
        needed(view).row(&[row - segment.first_row])
    }

    fn place(&self, token: usize) -> [usize; 2] {
        [token / self.problem.dims.seq(), token % self.problem.dims.seq()]
    }
}

fn needed<const RANK: usize>(view: Option<View<'_, RANK>>) -> View<'_, RANK> {
    view.expect("the problem asks for an output that needs this input, as documented")
}

impl LeftRows {
    fn zeros(rows: usize, terms: usize) -> Self {
        Self { values: Left::zeros(rows, terms), magnitudes: Left::zeros(rows, terms) }
    }

    fn set(&mut self, row: usize, term: usize, terms: Terms) {
        self.values.set(row, term, terms.value());
        self.magnitudes.set(row, term, terms.magnitude());
    }
}
