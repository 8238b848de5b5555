//! The arithmetic ceiling of an instruction set: a loop of nothing but multiply-adds on registers.

use std::hint::black_box;

use crate::isa::Isa;
use crate::unrotate::{FUSED, multiply_add};

/// A loop whose every instruction is a multiply-add, independent enough to fill the pipelines. The clock is the caller's.
#[derive(Clone, Copy, Debug)]
pub struct FmaLoop {
    isa: Isa,
}

impl FmaLoop {
    /// The loop of an instruction set.
    ///
    /// # Panics
    /// When the machine lacks it.
    pub fn new(isa: Isa) -> Self {
        assert!(isa.is_available(), "this processor has no {isa}");
        Self { isa }
    }

    /// Runs the loop on the calling thread and returns the floating-point operations done.
    pub fn run(&self, iterations: u64) -> u64 {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` checked that the machine has it.
            Isa::Avx512 => unsafe { avx512(iterations) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2(iterations) },
            _ => portable(iterations),
        }
    }
}

/// A function that keeps `SUMS` vectors in registers and multiplies and adds to all of them, over and over.
#[cfg(target_arch = "x86_64")]
macro_rules! multiply_adds {
    ($name:ident, $features:literal, $sums:literal, $lanes:literal, $set1:ident, $fmadd:ident) => {
        #[target_feature(enable = $features)]
        fn $name(iterations: u64) -> u64 {
            use std::arch::x86_64::{$fmadd, $set1};
            let (factor, addend) = ($set1(black_box(0.5)), $set1(black_box(1.0)));
            let mut sums = [addend; $sums];
            for _ in 0..iterations {
                for sum in &mut sums {
                    *sum = $fmadd(*sum, factor, addend);
                }
            }
            black_box(sums);
            2 * $lanes * $sums * iterations
        }
    };
}

#[cfg(target_arch = "x86_64")]
multiply_adds!(avx512, "avx512f", 24, 16, _mm512_set1_ps, _mm512_fmadd_ps);
#[cfg(target_arch = "x86_64")]
multiply_adds!(avx2, "avx2,fma", 12, 8, _mm256_set1_ps, _mm256_fmadd_ps);

/// As the compiler vectorises it for the build's target.
fn portable(iterations: u64) -> u64 {
    const LANES: usize = 4;
    const SUMS: usize = 10;
    let (factor, addend) = (black_box(0.5_f32), black_box(1.0_f32));
    let mut sums = [[addend; LANES]; SUMS];
    for _ in 0..iterations {
        for sum in &mut sums {
            *sum = std::array::from_fn(|lane| multiply_add::<FUSED>(sum[lane], factor, addend));
        }
    }
    black_box(sums);
    2 * (LANES * SUMS) as u64 * iterations
}
