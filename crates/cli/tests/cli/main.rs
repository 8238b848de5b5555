//! The binary as a user meets it: every command, every exit code, every error message.

mod bench;
mod bundles;
mod check;
mod eval;
mod files;
mod hostile;
mod index;
mod messages;
mod plain;
mod readme;
mod run;
mod site;
