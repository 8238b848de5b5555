use std::cell::Cell;

use qkv_rope_op::reference::backward;
use qkv_rope_op::{Inputs, Outputs};

use super::*;
use crate::measure::MonotonicClock;

/// What a subject does besides computing the right values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    None,
    /// Takes no time at all.
    Instant,
    /// Is wrong in one row from this call on.
    WrongFrom(u32),
    /// Writes half of its outputs only when it is let run on.
    Late,
    /// Writes past an output.
    Outside,
    /// Makes its device do something else from this call on.
    OtherActivitiesFrom(u32),
    /// Ends at this call.
    CrashesAt(u32),
}

struct Exact {
    habit: Habit,
    problem: Option<Problem>,
    memory: Vec<f32>,
    calls: u32,
    unwritten: Option<Places>,
}

fn exact(habit: Habit) -> Exact {
    Exact { habit, problem: None, memory: Vec::new(), calls: 0, unwritten: None }
}

fn write(problem: &Problem, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let gradients = backward(problem, inputs).expect("the judge gives what fits");
    let dims = problem.dims;
    let hidden = outputs.grad_hidden.as_mut().expect("all are wanted");
    let rows = gradients.grad_hidden.expect("all are wanted");
    for (token, row) in rows.chunks(dims.hidden()).enumerate() {
        let to = hidden.view.row_mut(&[token / dims.seq(), token % dims.seq()]);
        to.iter_mut().zip(row).for_each(|(to, &from)| *to = from as f32);
    }
    let weights = [
        (&mut outputs.grad_q_weight, gradients.grad_q_weight),
        (&mut outputs.grad_k_weight, gradients.grad_k_weight),
        (&mut outputs.grad_v_weight, gradients.grad_v_weight),
    ];
    for (output, values) in weights {
        let (output, values) = (output.as_mut().expect("all are wanted"), values.expect("all are wanted"));
        for (row, values) in values.chunks(dims.hidden()).enumerate() {
            output.view.row_mut(&[row]).iter_mut().zip(values).for_each(|(to, &from)| *to = from as f32);
        }
    }
}

impl Subject for Exact {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        self.problem = Some(*problem);
        self.memory = vec![0.0; layout.len_elems()];
        Ok(())
    }

    fn memory(&mut self) -> &mut [f32] {
        &mut self.memory
    }

    fn call(&mut self, places: &Places, clock: &dyn Clock) -> Result<u64, Fault> {
        let start_ns = clock.now_ns();
        self.calls += 1;
        if self.habit == Habit::CrashesAt(self.calls) {
            return Err(Fault { status: Status::Crashed, detail: "it is gone".to_owned() });
        }
        let problem = self.problem.expect("it was begun");
        let (inputs, mut outputs) = places.views(problem.dims, &mut self.memory);
        write(&problem, &inputs, &mut outputs);
        let span = places.spans()[12];
        match self.habit {
            Habit::WrongFrom(call) if self.calls >= call => self.memory[span.start..][..4].fill(3.0),
            Habit::Late => {
                self.memory[span.start..][..span.len / 2].fill(f32::NAN);
                self.unwritten = Some(*places);
            }
            Habit::Outside => self.memory[span.start + span.len] = 0.0,
            _ => {}
        }
        let fastest_ns = u64::from(self.habit != Habit::Instant);
        Ok((clock.now_ns() - start_ns).max(1) * fastest_ns)
    }

    fn activities(&self) -> Option<Vec<String>> {
        let Habit::OtherActivitiesFrom(call) = self.habit else { return None };
        Some(vec!["prep".to_owned(), if self.calls >= call { "cheat" } else { "product" }.to_owned()])
    }

    fn settle(&mut self) {
        if let (Some(places), Some(problem)) = (self.unwritten, self.problem) {
            let (inputs, mut outputs) = places.views(problem.dims, &mut self.memory);
            write(&problem, &inputs, &mut outputs);
        }
    }
}

/// An exact subject on a device: its tensors are in `device`, and the judge sees `mirror`.
struct Remote {
    inner: Exact,
    mirror: Vec<f32>,
    outputs_from: usize,
    kept: Vec<(Vec<f32>, Places)>,
    carried_elems: usize,
}

impl Remote {
    fn poison(&mut self, places: &Places) {
        self.inner.memory[self.outputs_from..].fill(f32::from_bits(Places::GUARD));
        for span in &places.spans()[9..] {
            self.inner.memory[span.start..span.start + span.len].fill(f32::from_bits(Places::POISON));
        }
    }
}

impl Subject for Remote {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        self.mirror = vec![0.0; layout.len_elems()];
        self.outputs_from = layout.slots()[9].start;
        self.inner.begin(problem, layout)
    }

    fn stage(&mut self, places: &Places) -> Result<(), Fault> {
        self.inner.memory[..self.outputs_from].copy_from_slice(&self.mirror[..self.outputs_from]);
        self.carried_elems += self.outputs_from;
        self.poison(places);
        Ok(())
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn keep(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        assert_eq!(slot, self.kept.len());
        self.kept.push((self.inner.memory[..self.outputs_from].to_vec(), *places));
        Ok(())
    }

    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        for Run { slot, input, elems } in mixture.runs() {
            let (kept, kept_places) = &self.kept[slot];
            let from = &kept[kept_places.spans()[input].start..][elems.clone()];
            self.inner.memory[places.spans()[input].start..][elems].copy_from_slice(from);
        }
        self.poison(places);
        Ok(())
    }

    fn memory(&mut self) -> &mut [f32] {
        &mut self.mirror
    }

    fn call(&mut self, places: &Places, clock: &dyn Clock) -> Result<u64, Fault> {
        self.inner.call(places, clock)
    }

    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        let range = match extent {
            Extent::All => 0..self.mirror.len(),
            Extent::Outputs => self.outputs_from..self.mirror.len(),
            Extent::One(tensor) => places.watched(tensor),
        };
        self.carried_elems += range.len();
        self.mirror[range.clone()].copy_from_slice(&self.inner.memory[range]);
        Ok(())
    }

    fn settle(&mut self) {
        self.inner.settle();
        self.mirror.copy_from_slice(&self.inner.memory);
    }
}

fn remote(habit: Habit) -> Remote {
    Remote { inner: exact(habit), mirror: Vec::new(), outputs_from: 0, kept: Vec::new(), carried_elems: 0 }
}

/// The world around a judge, which stops it after `calls` calls.
fn with_bench<T>(calls: u32, judging: impl FnOnce(&mut Bench<'_>, Problem) -> T) -> T {
    let left = Cell::new(calls);
    let mut watch = || {
        left.set(left.get() - 1);
        if left.get() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut bench = Bench {
        clock: &MonotonicClock::default(),
        flush: &mut CacheFlush::new(0, 1),
        telemetry: &|| Telemetry { stolen_ticks: Some(3), busy_ticks: Some(5), ..Telemetry::default() },
        least_ns: &|_| 1.0,
        watch: &mut watch,
    };
    judging(&mut bench, Problem::new(Dims::new(2, 7, 20, 4, 2, 8).expect("valid")))
}

fn judged_with(habit: Habit, rules: &Rules, calls: u32) -> CaseResult {
    with_bench(calls, |bench, problem| {
        judge(&mut exact(habit), problem, rules, bench, ("small", "2026-01-01T00:00:00Z"))
    })
}

fn status(habit: Habit) -> Status {
    judged_with(habit, &Rules::full(200, 9), 1000).status
}

#[test]
fn what_is_right_passes_with_all_its_samples() {
    let result = judged_with(Habit::None, &Rules::full(200, 9), 1000);
    assert_eq!((result.status, result.detail.as_deref()), (Status::Passed, None));
    assert_eq!((result.rounds.len(), result.samples_ns.len(), result.spot_checked_calls), (10, 50, 60));
    assert_eq!((result.rounds[0].seed, result.rounds[0].repeatable), (200, Some(true)));
    assert!(result.audit.is_some_and(|audit| audit.call < 50 && audit.failures.is_empty()));
    assert_eq!(result.telemetry.last().map(|telemetry| telemetry.after_calls), Some(50));
}

#[test]
fn secret_seeds_change_all_but_the_first_round() {
    let seeds = |secret| {
        let rules = Rules { check_rounds: 3, warmup_calls: 0, timed_calls: 1, ..Rules::full(200, secret) };
        judged_with(Habit::None, &rules, 1000).rounds.iter().map(|round| round.seed).collect::<Vec<u64>>()
    };
    assert_eq!(seeds(1), seeds(1));
    assert_eq!(seeds(1)[0], seeds(2)[0]);
    assert_ne!(seeds(1)[1..], seeds(2)[1..]);
}

#[test]
fn each_habit_gets_its_status() {
    assert_eq!(status(Habit::Instant), Status::ImpossibleTime);
    assert_eq!(status(Habit::WrongFrom(1)), Status::WrongValues);
    assert_eq!(status(Habit::WrongFrom(5)), Status::WrongValues);
    assert_eq!(status(Habit::WrongFrom(15)), Status::WrongWhenTimed);
    assert_eq!(status(Habit::Late), Status::LateOutput);
    assert_eq!(status(Habit::Outside), Status::WrittenOutside);
    assert_eq!(status(Habit::CrashesAt(30)), Status::Crashed);
    assert_eq!(status(Habit::OtherActivitiesFrom(30)), Status::Inconclusive);
}

#[test]
fn on_a_device_the_same_is_found_with_less_carried() {
    let judged = |subject: &mut Remote| {
        with_bench(1000, |bench, problem| {
            judge(subject, problem, &Rules::full(200, 9), bench, ("small", "2026-01-01T00:00:00Z"))
        })
    };
    let mut honest = remote(Habit::None);
    let result = judged(&mut honest);
    assert_eq!((result.status, result.detail.as_deref()), (Status::Passed, None));
    assert_eq!((result.samples_ns.len(), result.spot_checked_calls, honest.kept.len()), (50, 60, Mixture::SLOTS));
    assert!(honest.carried_elems < 71 * honest.mirror.len(), "half of both ways in every call");
    let found = [Habit::WrongFrom(5), Habit::WrongFrom(15), Habit::Late, Habit::Outside]
        .map(|habit| judged(&mut remote(habit)).status);
    assert_eq!(found, [Status::WrongValues, Status::WrongWhenTimed, Status::LateOutput, Status::WrittenOutside]);
}

#[test]
fn what_every_timed_call_did_is_in_the_result() {
    // Compiling in the first call may do other things.
    let result = judged_with(Habit::OtherActivitiesFrom(2), &Rules::full(200, 9), 1000);
    let activities = result.activities.expect("they are known");
    assert_eq!(activities.iter().collect::<Vec<_>>(), [("cheat", 1), ("prep", 1)]);
    let looks: Vec<u32> = result.telemetry.iter().map(|telemetry| telemetry.after_calls).collect();
    assert_eq!(looks, [0, 10, 20, 30, 40, 50]);
}

#[test]
fn a_stop_is_no_verdict() {
    let result = judged_with(Habit::None, &Rules::full(200, 9), 30);
    assert_eq!(result.status, Status::Inconclusive);
    assert!(result.median_ns().is_none() && !result.may_rank());
}

#[test]
fn a_backend_in_this_process_is_refused_what_it_cannot_run() {
    struct Refuses;
    impl qkv_rope_op::Backend for Refuses {
        fn name(&self) -> String {
            "refuses".to_owned()
        }
        fn plan(&self, _: &Problem) -> Result<qkv_rope_op::Plan, qkv_rope_op::Error> {
            Err(qkv_rope_op::Error::Refused { backend: self.name(), why: "no".to_owned() })
        }
        fn session(&self, problem: &Problem) -> Result<Box<dyn qkv_rope_op::Session + '_>, qkv_rope_op::Error> {
            self.plan(problem).map(|_| unreachable!("it refuses"))
        }
    }
    let mut subject = InProcess::new(&Refuses);
    let problem = Problem::new(Dims::new(1, 2, 4, 2, 1, 4).expect("valid"));
    let fault = subject.begin(&problem, &Layout::new(problem.dims)).expect_err("it refuses");
    assert_eq!(fault.status, Status::Unsupported);
}

fn duelled(second: Habit) -> Result<Duel, (usize, Fault)> {
    let rules = Rules { warmup_calls: 2, timed_calls: 9, ..Rules::quick(200, 3) };
    let mut sides = [exact(Habit::None), exact(second), exact(Habit::None)];
    let [first, second, again] = &mut sides;
    with_bench(1000, |bench, problem| duel([first, second, again], problem, &rules, bench))
}

#[test]
fn a_duel_has_all_samples_of_all_sides() {
    let duel = duelled(Habit::None).expect("both are right");
    assert_eq!(duel.samples_ns.map(|samples| samples.len()), [9; SIDES]);
}

#[test]
fn a_duel_names_the_side_that_was_wrong() {
    let (side, fault) = duelled(Habit::WrongFrom(9)).expect_err("the second is wrong");
    assert_eq!((side, fault.status), (1, Status::WrongWhenTimed));
}
