//! Who takes part in a benchmark: our backends, and what a user would run instead.

pub(crate) mod gpu;
mod inputs;
mod ours;
pub(crate) mod pytorch;
#[cfg(feature = "rivals")]
pub(crate) mod rivals;
pub(crate) mod tournament;
mod verify;

pub(crate) use inputs::InputSets;
pub(crate) use ours::Ours;

use kernelproof_eval::measure::Contestant;
use qkv_rope_cpu::Isa;
use qkv_rope_op::OwnedOutputs;

/// A contestant that can be listed and checked.
pub(crate) trait Entrant: Contestant {
    /// Version of a rival; `None` for this build.
    fn version(&self) -> Option<String>;

    /// Threads it computes with.
    fn threads(&self) -> usize;

    /// Instruction set, where it was chosen.
    fn isa(&self) -> Option<Isa> {
        None
    }

    /// What the recorded times span.
    fn timer(&self) -> String {
        "wall clock around the call".to_owned()
    }

    /// All four outputs for the first input set.
    ///
    /// # Errors
    /// When it cannot compute them.
    fn outputs(&mut self) -> anyhow::Result<OwnedOutputs>;
}
