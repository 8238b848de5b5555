//! What the process tells its caller: exit codes, and errors with a way out.

use std::error::Error as StdError;

/// How the process ends. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success = 0,
    /// A check failed; what failed has been printed.
    CheckFailed = 1,
    /// Wrong usage, or a file that cannot be read, understood or written.
    BadInput = 2,
    /// The device, the backend or a program it needs is not there, or cannot run the problem.
    Unavailable = 3,
    /// Stopped by Ctrl-C; what was measured has been written.
    Interrupted = 130,
}

/// An error that knows its exit code and, often, what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    help: Option<String>,
}

impl Failure {
    /// An error in what the user gave.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self { exit: Exit::BadInput, message: message.into(), help: None }
    }

    /// Something this machine or this build lacks.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unavailable, message: message.into(), help: None }
    }

    /// Something that was checked and is wrong.
    pub(crate) fn check(message: impl Into<String>) -> Self {
        Self { exit: Exit::CheckFailed, message: message.into(), help: None }
    }

    /// Adds what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Failure {}

/// The exit code that an error asks for.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    use qkv_rope_op::Error::{Failed, Refused};
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.exit;
    }
    match error.downcast_ref::<qkv_rope_op::Error>() {
        Some(Refused { .. } | Failed { .. }) => Exit::Unavailable,
        _ => Exit::BadInput,
    }
}

/// The error as a person reads it: the outermost message, its causes, and what to do.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("\n  cause: {cause}"));
    }
    if let Some(help) = error.downcast_ref::<Failure>().and_then(|failure| failure.help.as_deref()) {
        text.push_str(&format!("\n  help: {help}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_failure_keeps_its_exit_code_and_help_under_context() {
        let error = anyhow::Error::new(Failure::unavailable("no torch").help("install it"));
        let error = Err::<(), _>(error).context("pytorch").expect_err("it is an error");
        assert_eq!(exit_of(&error), Exit::Unavailable);
        assert_eq!(describe(&error), "error: pytorch\n  cause: no torch\n  help: install it");
    }

    #[test]
    fn a_refusal_is_not_the_users_mistake() {
        let refused = qkv_rope_op::Error::Refused { backend: "cpu".into(), why: "no".into() };
        assert_eq!(exit_of(&refused.into()), Exit::Unavailable);
        let dims = qkv_rope_op::Error::Dims { why: "odd".into() };
        assert_eq!(exit_of(&dims.into()), Exit::BadInput);
    }
}
