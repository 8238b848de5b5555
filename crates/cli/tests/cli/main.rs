//! The binary as a user meets it: every command, every exit code, every error message.

mod bench;
mod check;
mod files;
mod hostile;
mod messages;
mod plain;
mod run;
