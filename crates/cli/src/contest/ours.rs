//! A backend of this project as a contestant.

use kernelproof_eval::measure::{Clock, Contestant, Reason};
use qkv_rope_cpu::{CpuBackend, Isa};
use qkv_rope_op::{Backend as _, OwnedOutputs, Session};

use super::{Entrant, InputSets};

/// A prepared session with outputs of its own.
pub(crate) struct Ours<'a> {
    name: String,
    isa: Isa,
    threads: usize,
    session: Box<dyn Session + 'a>,
    inputs: &'a InputSets,
    set: usize,
    outputs: OwnedOutputs,
}

impl<'a> Ours<'a> {
    /// Prepares `backend` for the inputs.
    ///
    /// # Errors
    /// When the backend refuses the problem.
    pub(crate) fn new(
        backend: &'a CpuBackend,
        threads: usize,
        inputs: &'a InputSets,
    ) -> Result<Self, qkv_rope_op::Error> {
        let session = backend.session(&inputs.problem)?;
        let outputs = OwnedOutputs::poisoned(&inputs.problem, 0);
        Ok(Self { name: backend.name(), isa: backend.isa(), threads, session, inputs, set: 0, outputs })
    }
}

impl Contestant for Ours<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn prepare(&mut self, round: u64) -> Result<(), Reason> {
        self.set = self.inputs.index_of(round);
        Ok(())
    }

    fn run_once(&mut self, clock: &dyn Clock) -> Result<u64, Reason> {
        let inputs = self.inputs.all()[self.set].views();
        let mut outputs = self.outputs.views();
        let start_ns = clock.now_ns();
        self.session.backward(&inputs, &mut outputs)?;
        Ok(clock.now_ns() - start_ns)
    }
}

impl Entrant for Ours<'_> {
    fn version(&self) -> Option<String> {
        None
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn isa(&self) -> Option<Isa> {
        Some(self.isa)
    }

    fn outputs(&mut self) -> anyhow::Result<OwnedOutputs> {
        let mut outputs = OwnedOutputs::poisoned(&self.inputs.problem, 0);
        self.session.backward(&self.inputs.first().views(), &mut outputs.views())?;
        Ok(outputs)
    }
}
