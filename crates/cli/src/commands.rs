//! The commands, one file each: its arguments, and `execute`, which does it and returns the exit code.

pub(crate) mod bench;
pub(crate) mod cases;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod eval;
pub(crate) mod index;
pub(crate) mod inputs;
pub(crate) mod peak;
pub(crate) mod plan;
pub(crate) mod quick;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod site;
pub(crate) mod submit;
pub(crate) mod verify;
