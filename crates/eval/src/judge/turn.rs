//! One call with everything around it: new places, new contents, poison, cold caches; then a look at what it did.

use qkv_rope_op::{OwnedInputs, OwnedOutputs, Problem, Tensor};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Bench;
use super::arena::{Layout, Places};
use super::contents::{Contents, Mixture, SETS, slot};
use super::subject::{Extent, Fault, Subject};
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
    /// What was looked at after it.
    pub(super) extent: Extent,
}

/// Where the inputs of a call come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// They are new.
    Given(&'a OwnedInputs),
    /// They are made of sets that are kept.
    Mixed(&'a OwnedInputs, &'a Mixture),
}

impl<'s> Turns<'s> {
    pub(super) fn new(subject: &'s mut dyn Subject, problem: Problem, layout: Layout, secret_seed: u64) -> Self {
        let outputs = OwnedOutputs::poisoned(&problem, 0);
        Self {
            subject,
            problem,
            layout,
            rng: ChaCha8Rng::seed_from_u64(secret_seed),
            outputs,
            places: None,
            extent: Extent::All,
        }
    }

    /// Makes one call; its time in ns, and what it did that no call may do. What is remote is looked at as far as `extent`
    /// says, everything else in full.
    pub(super) fn call(
        &mut self,
        source: Source<'_>,
        bench: &mut Bench<'_>,
        extent: Extent,
    ) -> Result<(u64, Vec<Failure>), Fault> {
        let places = self.layout.draw(&mut self.rng);
        let remote = self.subject.is_remote();
        self.extent = if remote { extent } else { Extent::All };
        self.subject.point(&places)?;
        let inputs = match source {
            Source::Mixed(inputs, mixture) if remote => {
                self.subject.compose(&places, mixture)?;
                inputs
            }
            Source::Given(inputs) | Source::Mixed(inputs, _) => {
                places.fill(self.subject.memory(), inputs);
                self.subject.stage(&places)?;
                inputs
            }
        };
        bench.flush.flush();
        let time_ns = self.subject.call(&places, bench.clock)?;
        self.subject.collect(&places, self.extent)?;
        let memory = self.subject.memory();
        places.collect(memory, &mut self.outputs, self.extent);
        let changed = if self.extent == Extent::All { places.changed_input(memory, inputs) } else { None };
        let changed = changed.map(|tensor| Failure::InputChanged { tensor });
        let outside = places.written_outside(memory, self.extent).map(|tensor| Failure::WrittenOutside { tensor });
        self.places = Some(places);
        Ok((time_ns, changed.into_iter().chain(outside).collect()))
    }

    /// Lets what is remote keep the sets that timed calls are put together from.
    pub(super) fn keep(&mut self, contents: &mut Contents) -> Result<(), Fault> {
        if !self.subject.is_remote() {
            return Ok(());
        }
        for (set, negated) in (0..SETS).flat_map(|set| [(set, false), (set, true)]) {
            let places = self.layout.draw(&mut self.rng);
            self.subject.point(&places)?;
            places.fill(self.subject.memory(), contents.set(set, negated));
            self.subject.stage(&places)?;
            self.subject.keep(slot(set, negated), &places)?;
        }
        Ok(())
    }

    /// One output or, in one call of ten, everything: drawn secretly.
    pub(super) fn draw_extent(&mut self) -> Extent {
        if self.rng.random_ratio(1, 10) {
            return Extent::All;
        }
        let index = self.rng.random_range(0..Tensor::OUTPUTS.len());
        Extent::One(Tensor::OUTPUTS[index])
    }

    /// Whether the outputs of the last call change after it has returned.
    pub(super) fn still_writing(&mut self) -> bool {
        self.subject.settle();
        let Some(places) = self.places else { return false };
        !places.still(self.subject.memory(), &self.outputs, self.extent)
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
