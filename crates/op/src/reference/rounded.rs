//! The same products from operands rounded as a precision says; see [`crate::rounding`].

use super::Reference;
use super::product::{Left, TILE_F64};
use super::rotation::Terms;
use crate::rounding::Operand;

impl Reference<'_> {
    /// Rows `tokens` of grad_hidden from rounded operands.
    pub(crate) fn rounded_grad_hidden(&self, tokens: &[usize]) -> Vec<f64> {
        let terms = self.problem.dims.rows();
        self.rounded(tokens, terms, |&token| self.u_row_terms(token), |row| self.weight_row(row))
    }

    /// Rows `rows` of the stacked weight gradients from rounded operands.
    pub(crate) fn rounded_grad_weight(&self, rows: &[usize]) -> Vec<f64> {
        let terms = self.problem.dims.tokens();
        self.rounded(rows, terms, |&row| self.u_column_terms(row), |token| self.hidden_row(token))
    }

    fn rounded<'r, I: Iterator<Item = Terms>>(
        &self,
        rows: &[usize],
        terms: usize,
        left_row: impl Fn(&usize) -> I,
        right: impl Fn(usize) -> &'r [f32] + Copy,
    ) -> Vec<f64> {
        let precision = self.problem.precision;
        let operand = move |value: f32| Operand::of(precision, value);
        let (mut high, mut low) = (Left::zeros(rows.len(), terms), Left::zeros(rows.len(), terms));
        for (index, row) in rows.iter().enumerate() {
            high.set_row(index, left_row(row).map(|terms| operand(terms.value() as f32).high));
            low.set_row(index, left_row(row).map(|terms| operand(terms.value() as f32).low));
        }
        let columns = self.problem.dims.hidden();
        let both = |value| operand(value).high + operand(value).low;
        let mut products = high.times::<TILE_F64, _>(columns, right, both);
        if precision == crate::Precision::Split {
            let rest = low.times::<TILE_F64, _>(columns, right, |value| operand(value).high);
            products.iter_mut().zip(rest).for_each(|(product, rest)| *product += rest);
        }
        products
    }
}
