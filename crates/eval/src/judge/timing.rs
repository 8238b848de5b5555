//! The timed calls.

use qkv_rope_op::OwnedInputs;
use rand::RngExt as _;

use super::contents::Contents;
use super::subject::{Extent, Fault};
use super::turn::{Source, Turns};
use super::{Bench, Rules, go_on, rounds, spot};
use crate::check::{Depth, Failure};
use crate::evaluation::{Activities, Audit, CaseResult, Status};

/// Timed calls between two looks at the machine, so that a device that throttles half-way is seen.
const CALLS_A_LOOK: u32 = 10;

/// Times the case. A call that is wrong ends it.
pub(super) fn time(
    turns: &mut Turns<'_>,
    rules: &Rules,
    bench: &mut Bench<'_>,
    result: &mut CaseResult,
) -> Result<(), Fault> {
    let mut contents = Contents::new(turns.problem.dims, turns.rng.random());
    turns.keep(&mut contents)?;
    let audited = rules.warmup_calls + turns.rng.random_range(0..rules.timed_calls.max(1));
    let telemetry = |after_calls, bench: &Bench<'_>| {
        let mut telemetry = (bench.telemetry)();
        telemetry.after_calls = after_calls;
        telemetry
    };
    result.telemetry.push(telemetry(0, bench));
    for call in 0..rules.warmup_calls + rules.timed_calls {
        let (inputs, mixture) = contents.of_call(call, &mut turns.rng);
        let extent = if call == audited { Extent::All } else { turns.draw_extent() };
        let (time_ns, mut failures) = turns.call(Source::Mixed(inputs, &mixture), bench, extent)?;
        if call >= rules.warmup_calls {
            result.samples_ns.push(time_ns);
            same_activities(turns.subject.activities(), call - rules.warmup_calls, &mut result.activities)?;
        }
        if call == audited {
            let depth = Depth::Sampled { seed: turns.rng.random_range(0..1 << 53) };
            let agreements = rounds::compare(turns, inputs, depth, &mut failures)?;
            let call = call - rules.warmup_calls;
            result.audit = Some(Audit { call, agreements, failures: failures.clone() });
        }
        look(turns, inputs, call, &failures)?;
        result.spot_checked_calls += 1;
        let timed = (call + 1).saturating_sub(rules.warmup_calls);
        if timed > 0 && timed < rules.timed_calls && timed.is_multiple_of(CALLS_A_LOOK) {
            result.telemetry.push(telemetry(timed, bench));
        }
        go_on(bench)?;
    }
    result.telemetry.push(telemetry(rules.timed_calls, bench));
    Ok(())
}

/// Holds what a call did against what the calls before it did. A call that does something else is another computation, and
/// its time is not of the same thing.
fn same_activities(found: Option<Vec<String>>, call: u32, known: &mut Option<Activities>) -> Result<(), Fault> {
    let Some(found) = found.map(|found| Activities::of(&found)) else { return Ok(()) };
    match known {
        None => *known = Some(found),
        Some(known) if *known == found => {}
        Some(known) => {
            let detail = format!("timed call {call} did other things than those before it: {}", known.unlike(&found));
            return Err(Fault { status: Status::Inconclusive, detail });
        }
    }
    Ok(())
}

/// Looks at the outputs of a call that was timed, or will be: `failures` were found already.
pub(super) fn look(turns: &mut Turns<'_>, inputs: &OwnedInputs, call: u32, failures: &[Failure]) -> Result<(), Fault> {
    if !failures.is_empty() {
        return Err(turns.fault(failures, Status::WrongWhenTimed));
    }
    spot::look(&turns.problem, inputs, &turns.outputs, turns.extent, &mut turns.rng).map_err(|detail| {
        let status = if turns.still_writing() { Status::LateOutput } else { Status::WrongWhenTimed };
        Fault { status, detail: format!("call {call} of those timed: {detail}") }
    })
}
