//! Who is judged: something that computes on a block of memory when told to.

use qkv_rope_op::{Backend, Problem, Session, Tensor};

use super::arena::{Layout, Places};
use super::contents::Mixture;
use crate::evaluation::Status;
use crate::measure::Clock;

/// Why a judgement ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The verdict.
    pub status: Status,
    /// What happened, in words.
    pub detail: String,
}

/// How much of the block is looked at after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Inputs too.
    All,
    /// All outputs and what is around them.
    Outputs,
    /// One output and what is around it.
    One(Tensor),
}

impl Extent {
    /// Whether an output is in it.
    pub fn has(self, output: Tensor) -> bool {
        !matches!(self, Self::One(one) if one != output)
    }
}

fn not_remote() -> Fault {
    Fault { status: Status::Inconclusive, detail: "asked to keep inputs on a device, where there is none".to_owned() }
}

/// An implementation as the judge sees it.
pub trait Subject {
    /// Prepares for a problem, whose tensors will lie in a block of `layout`.
    ///
    /// # Errors
    /// When it cannot run the problem.
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault>;

    /// Untimed work that does not need the contents, such as making tensor objects for these addresses.
    ///
    /// # Errors
    /// When it could not.
    fn point(&mut self, places: &Places) -> Result<(), Fault> {
        let _ = places;
        Ok(())
    }

    /// Untimed work once the tensors are in place, such as carrying the inputs to a device and poisoning the outputs there,
    /// as [`Places::POISON`] and [`Places::GUARD`] say.
    ///
    /// # Errors
    /// When it could not.
    fn stage(&mut self, places: &Places) -> Result<(), Fault> {
        let _ = places;
        Ok(())
    }

    /// The block. Nothing that belongs to the implementation runs while the judge holds it.
    fn memory(&mut self) -> &mut [f32];

    /// Computes once and returns the time it took, in nanoseconds.
    ///
    /// # Errors
    /// Whatever made the call fail.
    fn call(&mut self, places: &Places, clock: &dyn Clock) -> Result<u64, Fault>;

    /// Untimed work right after a call that makes the block hold what the call left, such as carrying it back from a
    /// device in the order of its stream; no more than `extent` will be looked at.
    ///
    /// # Errors
    /// When it could not.
    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        let _ = (places, extent);
        Ok(())
    }

    /// Whether the block is a mirror of memory on a device, so that carrying it takes long. Then contents are put together
    /// there, with [`Subject::keep`] and [`Subject::compose`], and less is looked at.
    fn is_remote(&self) -> bool {
        false
    }

    /// Keeps the inputs that were just staged at `places`, as number `slot` of [`Mixture::SLOTS`]. Only asked of what is remote.
    ///
    /// # Errors
    /// When it could not.
    fn keep(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        let _ = (slot, places);
        Err(not_remote())
    }

    /// As [`Subject::stage`], with inputs put together from those that were kept. Only asked of what is remote.
    ///
    /// # Errors
    /// When it could not.
    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        let _ = (places, mixture);
        Err(not_remote())
    }

    /// What the last call made its device do, an entry for each activity in any order; `None` where nobody knows.
    fn activities(&self) -> Option<Vec<String>> {
        None
    }

    /// Lets whatever still runs go on for a moment, to see whether it writes.
    fn settle(&mut self) {}

    /// After the last call of a case.
    ///
    /// # Errors
    /// When the implementation is found to have interfered with the judgement.
    fn end(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl<S: Subject + ?Sized> Subject for &mut S {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        (**self).begin(problem, layout)
    }

    fn point(&mut self, places: &Places) -> Result<(), Fault> {
        (**self).point(places)
    }

    fn stage(&mut self, places: &Places) -> Result<(), Fault> {
        (**self).stage(places)
    }

    fn memory(&mut self) -> &mut [f32] {
        (**self).memory()
    }

    fn call(&mut self, places: &Places, clock: &dyn Clock) -> Result<u64, Fault> {
        (**self).call(places, clock)
    }

    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        (**self).collect(places, extent)
    }

    fn is_remote(&self) -> bool {
        (**self).is_remote()
    }

    fn keep(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        (**self).keep(slot, places)
    }

    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        (**self).compose(places, mixture)
    }

    fn activities(&self) -> Option<Vec<String>> {
        (**self).activities()
    }

    fn settle(&mut self) {
        (**self).settle();
    }

    fn end(&mut self) -> Result<(), Fault> {
        (**self).end()
    }
}

/// A backend in this process, timed right around its call.
pub struct InProcess<'b> {
    backend: &'b dyn Backend,
    prepared: Option<(Problem, Box<dyn Session + 'b>)>,
    memory: Vec<f32>,
}

impl<'b> InProcess<'b> {
    /// A backend that has not seen a problem yet.
    pub fn new(backend: &'b dyn Backend) -> Self {
        Self { backend, prepared: None, memory: Vec::new() }
    }
}

impl std::fmt::Debug for InProcess<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("backend", &self.backend.name()).finish_non_exhaustive()
    }
}

impl From<qkv_rope_op::Error> for Fault {
    fn from(error: qkv_rope_op::Error) -> Self {
        let status = match error {
            qkv_rope_op::Error::Refused { .. } => Status::Unsupported,
            _ => Status::CallFailed,
        };
        Self { status, detail: error.to_string() }
    }
}

impl Subject for InProcess<'_> {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        // The old workspace goes before the new one comes.
        self.prepared = None;
        self.prepared = Some((*problem, self.backend.session(problem)?));
        self.memory.clear();
        self.memory.resize(layout.len_elems(), 0.0);
        Ok(())
    }

    fn memory(&mut self) -> &mut [f32] {
        &mut self.memory
    }

    fn call(&mut self, places: &Places, clock: &dyn Clock) -> Result<u64, Fault> {
        let Some((problem, session)) = &mut self.prepared else {
            return Err(Fault { status: Status::Inconclusive, detail: "called before a problem was begun".to_owned() });
        };
        let (inputs, mut outputs) = places.views(problem.dims, &mut self.memory);
        let start_ns = clock.now_ns();
        session.backward(&inputs, &mut outputs)?;
        Ok(clock.now_ns() - start_ns)
    }
}
