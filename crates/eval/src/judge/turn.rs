//! One call with everything around it: new places, new contents, poison, cold caches; then a look at what it did.

use qkv_rope_op::{OwnedInputs, OwnedOutputs, Problem};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::Bench;
use super::arena::{Layout, Places};
use super::subject::{Fault, Subject};
use crate::check::Failure;
use crate::evaluation::Status;

/// The calls of one case.
pub(super) struct Turns<'s> {
    pub(super) subject: &'s mut dyn Subject,
    pub(super) problem: Problem,
    layout: Layout,
    /// Seeded secretly; draws places, contents, samples and the audited call.
    pub(super) rng: ChaCha8Rng,
    /// What the last call wrote, copied when it returned.
    pub(super) outputs: OwnedOutputs,
    places: Option<Places>,
}

impl<'s> Turns<'s> {
    pub(super) fn new(subject: &'s mut dyn Subject, problem: Problem, layout: Layout, secret_seed: u64) -> Self {
        let outputs = OwnedOutputs::poisoned(&problem, 0);
        Self { subject, problem, layout, rng: ChaCha8Rng::seed_from_u64(secret_seed), outputs, places: None }
    }

    /// Makes one call; its time in ns, and what it did that no call may do. Inputs that lie on a device are held against what
    /// they were only if `all` of its block is carried back.
    pub(super) fn call(
        &mut self,
        inputs: &OwnedInputs,
        bench: &mut Bench<'_>,
        all: bool,
    ) -> Result<(u64, Vec<Failure>), Fault> {
        let places = self.layout.draw(&mut self.rng);
        self.subject.point(&places)?;
        places.fill(self.subject.memory(), inputs);
        self.subject.stage(&places)?;
        bench.flush.flush();
        let time_ns = self.subject.call(&places, bench.clock)?;
        self.subject.collect(all)?;
        let memory = self.subject.memory();
        places.collect(memory, &mut self.outputs);
        let changed = places.changed_input(memory, inputs).map(|tensor| Failure::InputChanged { tensor });
        let outside = places.written_outside(memory).map(|tensor| Failure::WrittenOutside { tensor });
        self.places = Some(places);
        Ok((time_ns, changed.into_iter().chain(outside).collect()))
    }

    /// Whether the outputs of the last call change after it has returned.
    pub(super) fn still_writing(&mut self) -> bool {
        self.subject.settle();
        let Some(places) = self.places else { return false };
        !places.still(self.subject.memory(), &self.outputs)
    }

    /// The verdict on failures, of which there is at least one; `wrong` is what wrong values are called here.
    pub(super) fn fault(&mut self, failures: &[Failure], wrong: Status) -> Fault {
        let detail = failures.iter().map(Failure::to_string).collect::<Vec<_>>().join("; ");
        if self.still_writing() {
            let detail = format!("outputs changed after the call had returned; {detail}");
            return Fault { status: Status::LateOutput, detail };
        }
        // What a call did to memory says more than the values that follow from it.
        let order = [Status::InputChanged, Status::WrittenOutside, Status::AllZero, Status::NonFinite];
        let found: Vec<Status> = failures.iter().map(Status::of).collect();
        let first = order.into_iter().find(|status| found.contains(status));
        let status = match first {
            Some(Status::InputChanged | Status::WrittenOutside) => first,
            _ if wrong == Status::WrongWhenTimed => None,
            _ => first,
        };
        Fault { status: status.unwrap_or(wrong), detail }
    }
}
