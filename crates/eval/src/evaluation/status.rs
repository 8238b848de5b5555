//! How the judgement of one case ended.

use serde::{Deserialize, Serialize};

use crate::check::Failure;

/// One word for each way a case can end. Only [`Status::Passed`] has a time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Status {
    /// Right in every call that was looked at, and timed.
    Passed,
    /// It cannot run this problem, or not on this device.
    Unsupported,
    /// Its source could not be compiled or imported.
    CompileError,
    /// A call raised an error.
    CallFailed,
    /// The process that ran it ended.
    Crashed,
    /// A call took longer than the limit.
    TimedOut,
    /// It asked for more memory than the limit.
    OutOfMemory,
    /// An output is not a plain tensor of its shape.
    WrongShape,
    /// An output has another element type.
    WrongDtype,
    /// Elements are NaN, infinite or never written.
    NonFinite,
    /// An output is nothing but zeros.
    AllZero,
    /// An input was changed.
    InputChanged,
    /// Memory around an output was written.
    WrittenOutside,
    /// Values are outside the bounds in a checked round.
    WrongValues,
    /// Right when checked, wrong when timed.
    WrongWhenTimed,
    /// Outputs were still being written after the call had returned.
    LateOutput,
    /// Clocks or functions of the harness were replaced.
    Tampering,
    /// A time of 0, or below what the device could do at best.
    ImpossibleTime,
    /// Stopped from outside before there was a verdict.
    Inconclusive,
}

impl Status {
    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Unsupported => "unsupported",
            Self::CompileError => "compile-error",
            Self::CallFailed => "call-failed",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed-out",
            Self::OutOfMemory => "out-of-memory",
            Self::WrongShape => "wrong-shape",
            Self::WrongDtype => "wrong-dtype",
            Self::NonFinite => "non-finite",
            Self::AllZero => "all-zero",
            Self::InputChanged => "input-changed",
            Self::WrittenOutside => "written-outside",
            Self::WrongValues => "wrong-values",
            Self::WrongWhenTimed => "wrong-when-timed",
            Self::LateOutput => "late-output",
            Self::Tampering => "tampering",
            Self::ImpossibleTime => "impossible-time",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// The status that a failed check stands for.
    pub fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Call { .. } => Self::CallFailed,
            Failure::InputChanged { .. } => Self::InputChanged,
            Failure::WrittenOutside { .. } => Self::WrittenOutside,
            Failure::Misplaced { .. } => Self::NonFinite,
            Failure::AllZero { .. } => Self::AllZero,
            _ => Self::WrongValues,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        for status in [Status::Passed, Status::WrongWhenTimed, Status::OutOfMemory, Status::CompileError] {
            assert_eq!(serde_json::to_value(status).expect("it is plain data"), status.name());
        }
    }
}
