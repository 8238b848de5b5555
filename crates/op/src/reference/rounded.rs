//! The same products from operands rounded as a precision says; see [`crate::rounding`].

use super::Reference;
use super::product::{Left, TILE_F64};
use crate::problem::Precision;
use crate::rounding::Operand;

impl Reference<'_> {
    /// Rows `tokens` of grad_hidden from rounded operands.
    pub(crate) fn rounded_grad_hidden(&self, tokens: &[usize]) -> Vec<f64> {
        self.rounded(&self.u_rows(tokens).values, |row| self.weight_row(row))
    }

    /// Rows `rows` of the stacked weight gradients from rounded operands.
    pub(crate) fn rounded_grad_weight(&self, rows: &[usize]) -> Vec<f64> {
        self.rounded(&self.u_columns(rows).values, |token| self.hidden_row(token))
    }

    fn rounded<'r>(&self, left: &Left<f64>, right: impl Fn(usize) -> &'r [f32] + Copy) -> Vec<f64> {
        let columns = self.problem.dims.hidden();
        let operand = |value: f32| Operand::of(self.problem.precision, value);
        let both = |value| operand(value).high + operand(value).low;
        let high = left.map(|value| operand(value as f32).high);
        let mut products = high.times::<TILE_F64, _>(columns, right, both);
        if self.problem.precision == Precision::Split {
            let low = left.map(|value| operand(value as f32).low);
            let rest = low.times::<TILE_F64, _>(columns, right, |value| operand(value).high);
            products.iter_mut().zip(rest).for_each(|(product, rest)| *product += rest);
        }
        products
    }
}
