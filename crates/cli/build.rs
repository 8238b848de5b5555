//! Records which sources and which compiler made this binary, for the records it writes.

use std::process::Command;

/// What the binary is made from.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD changes with every commit and checkout.
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    // Sources that were changed since the commit are not the commit's.
    for sources in SOURCES {
        println!("cargo::rerun-if-changed=../../{sources}");
    }
    let mut commit = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let mut status = vec!["-C", "../..", "status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(SOURCES);
    if output("git", &status).is_some_and(|changed| !changed.is_empty()) {
        commit.push_str("-dirty");
    }
    println!("cargo::rustc-env=KERNELPROOF_COMMIT={commit}");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KERNELPROOF_RUSTC={version}");
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=KERNELPROOF_PROFILE={profile}");
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
