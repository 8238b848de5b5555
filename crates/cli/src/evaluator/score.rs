//! What the exploit suite said of this very program, kept from one command to the next so that records can tell.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::exploits::SelfTest;
use super::facts;
use crate::output;

/// Where it is kept, unless the operating system's place is right.
const VARIABLE: &str = "KERNELPROOF_STATE";

/// Judged rightly, and all that were run; of this program on one kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Score {
    right: u32,
    all: u32,
}

/// Keeps the score of a test that went to its end. Failing to is told, and no reason to fail.
pub(crate) fn keep(test: &SelfTest) {
    if !test.complete {
        return;
    }
    let ((rejected, cheats), (accepted, honest)) = (test.score(true), test.score(false));
    // A few dozen solutions.
    let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let score = Score { right: count(rejected + accepted), all: count(cheats + honest) };
    let Some(path) = path(test.device) else { return };
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(anyhow::Error::from);
    if let Err(error) = written.and_then(|()| output::save_json(&path, &score)) {
        output::note(&format!("the mutation score is not kept for later records: {error:#}"));
    }
}

/// The last score of this program on a kind of device; `None` when the suite was not run there.
pub(super) fn last(device: &str) -> Option<[u32; 2]> {
    let text = std::fs::read(path(device)?).ok()?;
    let score: Score = serde_json::from_slice(&text).ok()?;
    Some([score.right, score.all])
}

/// A file for this program's binary, so that no other build's score is taken for its own.
fn path(device: &str) -> Option<PathBuf> {
    let binary = facts::own_binary().into_values().next()?;
    let digits = binary.strip_prefix("sha256:")?.get(..16)?.to_owned();
    Some(folder()?.join(format!("self-test-{device}-{digits}.json")))
}

fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = variable(VARIABLE).or_else(|| Some(variable("XDG_STATE_HOME")?.join("kernelproof")));
    named.or_else(|| Some(variable("HOME")?.join(".local/state/kernelproof")))
}
