//! The part of a worker's work that only a GPU needs: its clock, and carrying no more than is looked at.

use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::{Extent, Fault, Mixture, Places, Run};
use kernelproof_gauge::Stopwatch;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{External, inconclusive};
use crate::python::Worker;

/// How a worker times calls on its GPU.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GpuClock {
    timer: Timer,
    /// Bytes that it zeroes before each call.
    pub(crate) flush_bytes: usize,
    /// CUDA version of its PyTorch.
    pub(super) cuda: String,
    pub(super) triton: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Timer {
    Cupti,
    Events,
}

impl GpuClock {
    /// The name of the timer, as protocols give it.
    pub(crate) fn timer(&self) -> &'static str {
        match self.timer {
            Timer::Cupti => Stopwatch::CUPTI,
            Timer::Events => Stopwatch::EVENTS,
        }
    }
}

/// A call on a GPU.
#[derive(Debug, Deserialize)]
struct Answer {
    time_ns: u64,
    activities: Option<Vec<String>>,
    /// Whether something ran on when the stream of the call had ended.
    late: bool,
}

impl External {
    /// One of the steps that only a GPU needs.
    pub(super) fn on_gpu(&mut self, step: &Value) -> Result<(), Fault> {
        if self.limits.gpu.is_none() {
            return Ok(());
        }
        let _: Value = self.ask(step, self.limits.call)?;
        Ok(())
    }

    /// The device's clock gives the time; the one here holds it to what is possible.
    pub(super) fn call_on_gpu(&mut self) -> Result<u64, Fault> {
        let worker = &mut self.running.worker;
        let answer = worker.ask_timed::<Answer>(&json!({"do": "call"}), self.limits.call, Worker::thaw);
        worker.freeze();
        let (Answer { time_ns, activities, late }, wall_ns) = answer.map_err(|error| self.fault(error))?;
        self.activities = activities;
        if time_ns > wall_ns {
            let detail = format!("said that a call took {time_ns} ns, which took {wall_ns} ns here");
            return Err(Fault { status: Status::Tampering, detail });
        }
        if late {
            let detail = "work on another stream went on after the stream of the call had ended".to_owned();
            return Err(Fault { status: Status::LateOutput, detail });
        }
        Ok(time_ns)
    }

    /// Tells the worker to keep what was staged at `places`.
    pub(super) fn keep_on_gpu(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        self.on_gpu(&json!({"do": "keep", "slot": slot}))?;
        self.kept.resize((slot + 1).max(self.kept.len()), None);
        self.kept[slot] = Some(*places);
        Ok(())
    }

    /// Tells the worker which parts of what it keeps make the inputs of a call.
    pub(super) fn compose_on_gpu(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        let byte = |places: &Places, run: &Run| (places.spans()[run.input].start + run.elems.start) * size_of::<f32>();
        let copy = |run: Run| {
            let kept = self.kept.get(run.slot)?.as_ref()?;
            Some([run.slot, byte(kept, &run), byte(places, &run), run.elems.len() * size_of::<f32>()])
        };
        let Some(copies) = mixture.runs().into_iter().map(copy).collect::<Option<Vec<_>>>() else {
            return Err(inconclusive("a set that was not kept is asked for".to_owned()));
        };
        self.on_gpu(&json!({"do": "compose", "copies": copies, "guard": Places::GUARD, "poison": Places::POISON}))
    }

    /// Lets the worker carry back what is looked at, as it was when the call's stream had ended.
    pub(super) fn fetch(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        let outputs = self.outputs_from;
        let elems = match extent {
            Extent::All => [0, usize::MAX],
            Extent::Outputs => [outputs, usize::MAX],
            Extent::One(tensor) => {
                let watched = places.watched(tensor);
                [watched.start, watched.end]
            }
        };
        // A number that every JSON reader has exactly; the worker takes it for the end of the block.
        let bytes = elems.map(|elem| elem.saturating_mul(size_of::<f32>()).min(1 << 52));
        self.on_gpu(&json!({"do": "fetch", "bytes": bytes}))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use kernelproof_eval::judge::{Layout, Subject as _};
    use qkv_rope_op::Problem;

    use super::*;
    use crate::candidate::{Limits, Solution};

    /// What is found of a call on a GPU when a worker, here a shell script, answers as given.
    fn on_gpu(answer: &str) -> Result<u64, Fault> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let python = folder.path().join("python");
        let hello = r#"{"torch":"2","python":"3","threads":1,"gpu":{"timer":"cupti","flush_bytes":7,"cuda":"13.0"}}"#;
        let script = format!(
            "#!/bin/sh\nwhile read line; do case \"$line\" in\n*hello*) echo '{hello}';;\n*\\\"call\\\"*) sleep 0.01; \
             echo '{answer}';;\n*) echo '{{}}';;\nesac; done\n"
        );
        std::fs::write(&python, script).expect("the folder is writable");
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
        let text = br#"{"name": "a", "author": "b", "sources": [{"path": "k.py", "content": ""}],
            "spec": {"languages": ["triton"], "entry_point": "k.py::run"}}"#;
        let limits = Limits {
            python: Some(python),
            threads: NonZeroUsize::MIN,
            call: Duration::from_secs(20),
            memory_bytes: 1 << 30,
            gpu: Some(0),
        };
        let solution = Solution::parse(text).expect("it is a solution");
        let mut external = External::start(solution, limits).expect("a shell is there");
        assert_eq!(external.gpu_clock().map(|clock| (clock.timer(), clock.flush_bytes)), Some((Stopwatch::CUPTI, 7)));
        let problem = Problem::new(qkv_rope_op::Dims::new(1, 2, 4, 2, 1, 4).expect("valid"));
        external.begin(&problem, &Layout::new(problem.dims))?;
        external.on_gpu(&json!({"do": "stage"}))?;
        let time_ns = external.call_on_gpu()?;
        external.on_gpu(&json!({"do": "fetch"}))?;
        assert_eq!(external.activities(), Some(vec!["k".to_owned()]));
        Ok(time_ns)
    }

    #[test]
    fn the_device_gives_the_time_and_the_clock_here_holds_it_to_what_is_possible() {
        assert_eq!(on_gpu(r#"{"time_ns": 5000, "activities": ["k"], "late": false}"#), Ok(5000));
        let longer = on_gpu(r#"{"time_ns": 90000000000, "activities": ["k"], "late": false}"#);
        assert_eq!(longer.expect_err("it cannot be").status, Status::Tampering);
        let late = on_gpu(r#"{"time_ns": 5000, "activities": ["k"], "late": true}"#);
        assert_eq!(late.expect_err("it is not joined").status, Status::LateOutput);
        let nonsense = on_gpu("{}");
        assert_eq!(nonsense.expect_err("it says no time").status, Status::Tampering);
    }
}
