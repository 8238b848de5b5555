//! One block of memory for the tensors of a call, so that every call finds them elsewhere and what is around the outputs
//! can be watched.

use qkv_rope_op::{Dims, Inputs, OwnedInputs, OwnedOutputs, Tensor, View, ViewMut};
use qkv_rope_op::{Output, Outputs};
use rand::{Rng, RngExt as _};
use rayon::prelude::*;

use super::subject::Extent;

/// Elements before and after each output that nobody may write.
const GUARD_ELEMS: usize = 16;
/// Elements that are worth a task of their own.
const PART_ELEMS: usize = 1 << 18;
/// What the guards hold: a NaN that no computation gives.
const GUARD: u32 = 0xffc0_6a4d;
/// What outputs hold before a call.
const POISON: f32 = f32::NAN;
/// Tensors move by multiples of this.
const STEP_BYTES: usize = 256;
/// Tensors move by at most this.
const MOST_BYTES: usize = 2048;
/// Slots begin at multiples of a page.
const PAGE_ELEMS: usize = 4096 / size_of::<f32>();

/// The elements of a tensor in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: usize,
    /// How many.
    pub len: usize,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// Room for the thirteen tensors of a problem, wherever a call puts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    slots: [Span; 13],
    len_elems: usize,
}

/// Where the tensors of one call are: the nine inputs, then the four outputs, each in the order of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    spans: [Span; 13],
}

impl Layout {
    /// The distance that tensors move by, and the most they move, in bytes.
    pub const OFFSET_BYTES: [usize; 2] = [STEP_BYTES, MOST_BYTES];

    /// Room for the tensors of these sizes.
    pub fn new(dims: Dims) -> Self {
        let mut len_elems = 0;
        let slots = tensors().map(|tensor| {
            let len = dims.elems(tensor);
            let slot = Span { start: len_elems, len };
            len_elems += (len + 2 * GUARD_ELEMS + MOST_BYTES / size_of::<f32>()).next_multiple_of(PAGE_ELEMS);
            slot
        });
        Self { dims, slots, len_elems }
    }

    /// Elements of the block.
    pub fn len_elems(&self) -> usize {
        self.len_elems
    }

    /// Where each tensor's room begins, and its elements, in the order of the contract.
    pub fn slots(&self) -> [Span; 13] {
        self.slots
    }

    /// Sizes of the problem.
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// New places, each tensor for itself.
    pub(super) fn draw(&self, rng: &mut impl Rng) -> Places {
        let step = STEP_BYTES / size_of::<f32>();
        let shift =
            |slot: Span| Span { start: slot.start + step * rng.random_range(1..=MOST_BYTES / STEP_BYTES), ..slot };
        Places { spans: self.slots.map(shift) }
    }
}

fn tensors() -> [Tensor; 13] {
    let mut all = Tensor::INPUTS.into_iter().chain(Tensor::OUTPUTS);
    std::array::from_fn(|_| all.next().expect("nine inputs and four outputs"))
}

impl Places {
    /// Bits around outputs before a call.
    pub const GUARD: u32 = GUARD;
    /// Bits of outputs before a call.
    pub const POISON: u32 = POISON.to_bits();
    /// Elements of a guard on either side.
    pub const GUARD_ELEMS: usize = GUARD_ELEMS;

    /// Where each tensor is, in the order of the contract.
    pub fn spans(&self) -> [Span; 13] {
        self.spans
    }

    /// An output, or for an input all of it, with the guards around it.
    pub fn watched(&self, tensor: Tensor) -> std::ops::Range<usize> {
        let span = tensors().into_iter().zip(self.spans).find(|(other, _)| *other == tensor);
        let span = span.map_or_else(Span::default, |(_, span)| span);
        span.start.saturating_sub(GUARD_ELEMS)..span.start + span.len + GUARD_ELEMS
    }

    fn inputs(&self) -> impl Iterator<Item = (Tensor, Span)> {
        Tensor::INPUTS.into_iter().zip(self.spans)
    }

    fn outputs(&self) -> impl Iterator<Item = (Tensor, Span)> {
        Tensor::OUTPUTS.into_iter().zip(self.spans.into_iter().skip(Tensor::INPUTS.len()))
    }

    /// Copies the inputs here, poisons the outputs and sets their guards.
    pub(super) fn fill(&self, memory: &mut [f32], inputs: &OwnedInputs) {
        for (tensor, span) in self.inputs() {
            copy(inputs.tensor(tensor).unwrap_or_default(), &mut memory[span.range()]);
        }
        for (_, span) in self.outputs() {
            memory[span.start - GUARD_ELEMS..span.start + span.len + GUARD_ELEMS].fill(f32::from_bits(GUARD));
            memory[span.range()].par_chunks_mut(PART_ELEMS).for_each(|part| part.fill(POISON));
        }
    }

    /// Copies outputs out.
    pub(super) fn collect(&self, memory: &[f32], outputs: &mut OwnedOutputs, extent: Extent) {
        for (tensor, span) in self.outputs().filter(|(tensor, _)| extent.has(*tensor)) {
            if let Some(values) = outputs.tensor_mut(tensor) {
                copy(&memory[span.range()], values);
            }
        }
    }

    /// Whether the outputs still are what was copied out, bit for bit.
    pub(super) fn still(&self, memory: &[f32], outputs: &OwnedOutputs, extent: Extent) -> bool {
        self.outputs()
            .filter(|(tensor, _)| extent.has(*tensor))
            .all(|(tensor, span)| same_bits(outputs.tensor(tensor).unwrap_or_default(), &memory[span.range()]))
    }

    /// The first input that is not what it was.
    pub(super) fn changed_input(&self, memory: &[f32], inputs: &OwnedInputs) -> Option<Tensor> {
        let same = |tensor, span: Span| same_bits(inputs.tensor(tensor).unwrap_or_default(), &memory[span.range()]);
        self.inputs().find(|&(tensor, span)| !same(tensor, span)).map(|(tensor, _)| tensor)
    }

    /// The first output around which somebody wrote.
    pub(super) fn written_outside(&self, memory: &[f32], extent: Extent) -> Option<Tensor> {
        let intact = |range: std::ops::Range<usize>| memory[range].iter().all(|value| value.to_bits() == GUARD);
        let holds = |span: Span| {
            let end = span.start + span.len;
            intact(span.start - GUARD_ELEMS..span.start) && intact(end..end + GUARD_ELEMS)
        };
        self.outputs().find(|&(tensor, span)| extent.has(tensor) && !holds(span)).map(|(tensor, _)| tensor)
    }

    /// Views of the tensors for a call in this process.
    ///
    /// # Panics
    /// When `memory` is not a block of this layout, which `dims` gave.
    pub fn views<'m>(&self, dims: Dims, memory: &'m mut [f32]) -> (Inputs<'m>, Outputs<'m>) {
        let (inputs, outputs) = memory.split_at_mut(self.spans[9].start);
        let inputs = &*inputs;
        let mut parts = cut(outputs, self.spans[9].start, self.spans.into_iter().skip(9)).into_iter();
        let inputs = Inputs {
            grad_query: self.input(dims, inputs, 0),
            grad_key: self.input(dims, inputs, 1),
            grad_value: self.input(dims, inputs, 2),
            hidden_states: Some(self.input(dims, inputs, 3)),
            q_weight: Some(self.input(dims, inputs, 4)),
            k_weight: Some(self.input(dims, inputs, 5)),
            v_weight: Some(self.input(dims, inputs, 6)),
            cos: self.input(dims, inputs, 7),
            sin: self.input(dims, inputs, 8),
        };
        let outputs = Outputs {
            grad_hidden: output(dims, Tensor::GradHiddenStates, parts.next()),
            grad_q_weight: output(dims, Tensor::GradQWeight, parts.next()),
            grad_k_weight: output(dims, Tensor::GradKWeight, parts.next()),
            grad_v_weight: output(dims, Tensor::GradVWeight, parts.next()),
        };
        (inputs, outputs)
    }

    fn input<'m, const RANK: usize>(&self, dims: Dims, memory: &'m [f32], index: usize) -> View<'m, RANK> {
        let shape = dims.shape(Tensor::INPUTS[index]).try_into().expect("each field of Inputs has its tensor's rank");
        View::contiguous(&memory[self.spans[index].range()], shape).expect("the span was made for this shape")
    }
}

fn output<const RANK: usize>(dims: Dims, tensor: Tensor, part: Option<&mut [f32]>) -> Option<Output<'_, RANK>> {
    let shape = dims.shape(tensor).try_into().expect("each field of Outputs has its tensor's rank");
    Some(Output::overwrite(ViewMut::contiguous(part?, shape).expect("the span was made for this shape")))
}

/// The parts of `memory`, whose first element has index `base`, at ascending spans that do not meet.
fn cut(mut memory: &mut [f32], mut base: usize, spans: impl Iterator<Item = Span>) -> Vec<&mut [f32]> {
    let mut parts = Vec::new();
    for span in spans {
        let (_, from) = std::mem::take(&mut memory).split_at_mut(span.start - base);
        let (part, rest) = from.split_at_mut(span.len);
        parts.push(part);
        (memory, base) = (rest, span.start + span.len);
    }
    parts
}

fn copy(from: &[f32], to: &mut [f32]) {
    to.par_chunks_mut(PART_ELEMS).zip(from.par_chunks(PART_ELEMS)).for_each(|(to, from)| to.copy_from_slice(from));
}

fn same_bits(one: &[f32], other: &[f32]) -> bool {
    let same =
        |(one, other): (&[f32], &[f32])| one.iter().zip(other).all(|(one, other)| one.to_bits() == other.to_bits());
    one.len() == other.len() && one.par_chunks(PART_ELEMS).zip(other.par_chunks(PART_ELEMS)).all(same)
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::{Problem, Recipe};
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn what_a_call_must_not_touch_is_watched() {
        let problem = Problem::new(Dims::new(2, 3, 5, 2, 1, 4).expect("valid"));
        let layout = Layout::new(problem.dims);
        let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 1);
        let places = layout.draw(&mut ChaCha8Rng::seed_from_u64(3));
        let mut memory = vec![0.0; layout.len_elems()];
        places.fill(&mut memory, &inputs);
        assert_eq!(
            (places.changed_input(&memory, &inputs), places.written_outside(&memory, Extent::All)),
            (None, None)
        );
        let mut outputs = OwnedOutputs::poisoned(&problem, 0);
        places.collect(&memory, &mut outputs, Extent::All);
        assert!(places.still(&memory, &outputs, Extent::All));
        let key = places.spans()[10];
        memory[key.start + key.len] = 0.0;
        assert_eq!(places.written_outside(&memory, Extent::All), Some(Tensor::GradQWeight));
        assert_eq!(places.written_outside(&memory, Extent::One(Tensor::GradVWeight)), None);
        memory[key.start] = 0.0;
        assert!(!places.still(&memory, &outputs, Extent::Outputs));
        assert!(places.still(&memory, &outputs, Extent::One(Tensor::GradHiddenStates)));
        memory[places.spans()[8].start] += 1.0;
        assert_eq!(places.changed_input(&memory, &inputs), Some(Tensor::Sin));
    }

    #[test]
    fn views_show_each_tensor_where_it_is() {
        let dims = Dims::new(2, 3, 5, 2, 1, 4).expect("valid");
        let layout = Layout::new(dims);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (one, other) = (layout.draw(&mut rng), layout.draw(&mut rng));
        assert_ne!(one, other);
        let mut memory: Vec<f32> = (0..layout.len_elems()).map(|index| index as f32).collect();
        let (inputs, outputs) = one.views(dims, &mut memory);
        let start = |index: usize| one.spans()[index].start as f32;
        assert_eq!(inputs.cos.rows().next().expect("a row")[0], start(7));
        let mut output = outputs.grad_v_weight.expect("all are wanted");
        assert_eq!(output.view.row_mut(&[0])[0], start(12));
        assert_eq!(start(12) % 64.0, 0.0);
    }
}
