//! Rows that are rounded without being un-rotated.

use super::*;

/// One row that is rounded without being un-rotated, in units of the kernel's vector.
pub(super) struct Cast {
    pub(super) from: Reg,
    pub(super) to: Reg,
    /// The thread's first unit and the distance to its next.
    pub(super) first: Reg,
    pub(super) step: Reg,
    pub(super) units: Reg,
    pub(super) when: Reg,
    pub(super) vector: u32,
}

/// Units of a row of X that a thread has under way beside its gradients.
const X_UNDER_WAY: u32 = 2;
/// Units of the weights that a thread has under way.
pub(super) const W_UNDER_WAY: u32 = 4;

impl Cast {
    /// The loads of a round of units from `unit` on.
    pub(super) fn load(&self, asm: &mut Asm, unit: Reg) -> Vec<(Vec<Reg>, Reg, Reg)> {
        let mut at = asm.set(unit);
        let mut loaded = Vec::new();
        for _ in 0..X_UNDER_WAY {
            let inside = asm.pred();
            op!(asm, "setp.lt.and.u32 {inside}, {at}, {}, {};", self.units, self.when);
            let from = asm.bits64();
            op!(asm, "mad.wide.u32 {from}, {at}, {}, {};", 4 * self.vector, self.from);
            loaded.push((load(asm, from, Reads::Once, self.vector, inside), at, inside));
            at = asm.bin("add.u32", at, self.step);
        }
        loaded
    }

    fn store(&self, asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2], top: Reg) {
        for (values, unit, inside) in loaded {
            add_largest(asm, top, values);
            let to = asm.bits64();
            op!(asm, "mad.wide.u32 {to}, {unit}, {}, {};", 2 * self.vector, self.to);
            store_rounded(asm, to, 0, values, factors, *inside);
        }
    }

    /// Rounds what the first round of loads brought, then the rest of the row; returns the largest magnitude's bits.
    pub(super) fn finish(&self, asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2]) -> Reg {
        let top = asm.set(0);
        self.store(asm, loaded, factors, top);
        let unit = asm.bits32();
        op!(asm, "mad.lo.u32 {unit}, {}, {X_UNDER_WAY}, {};", self.step, self.first);
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let over = asm.test("ge.u32", unit, self.units);
        op!(asm, "@{over} bra {done};");
        let loaded = self.load(asm, unit);
        self.store(asm, &loaded, factors, top);
        op!(asm, "mad.lo.u32 {unit}, {}, {X_UNDER_WAY}, {unit};", self.step);
        op!(asm, "bra {again};");
        asm.place(done);
        top
    }
}
