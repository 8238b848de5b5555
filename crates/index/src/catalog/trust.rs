//! Trust of a run among the others, with the facts that gave it.

use serde::Serialize;

use crate::environment::Environment;
use crate::identity::Digest;
use crate::trust::Trust;

use super::run::{Origin, RunFacts};

/// The level, and why it is no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrustFacts {
    /// How far it can be trusted.
    pub level: Trust,
    /// What speaks for this level, a sentence each.
    pub because: Vec<String>,
    /// What is missing for the next level, a sentence each; empty at the highest.
    pub missing: Vec<String>,
    /// Runs of the same implementation in the same cohort that agree with it.
    pub agreeing: Vec<Digest>,
    /// Set when it was not verified again on what its device runs now.
    pub stale: Option<Stale>,
}

/// A record that was not verified again on the current driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// Driver (or kernel of the operating system, on a CPU) that it met.
    pub found: String,
    /// The one that the device's latest run met.
    pub current: String,
    /// That latest run.
    pub seen_in: Digest,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not verified again on {} (it ran on {})", self.current, self.found)
    }
}

/// Two runs agree when the interval of their ratio does not leave this band around 1.
const AGREEMENT: f64 = 0.05;

/// More agreeing runs than this say nothing more.
const MOST_AGREEING: usize = 16;

/// What is known of a device from its latest committed run.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) driver: String,
    pub(crate) run: Digest,
}

/// The driver that a run met (its CUDA version where no management library told more); on a CPU the kernel of the operating system.
pub(crate) fn driver(environment: &Environment) -> &str {
    match &environment.gpu {
        Some(gpu) => gpu.driver.as_deref().unwrap_or(&gpu.cuda),
        None => environment.software.get("driver").unwrap_or(&environment.kernel),
    }
}

/// The trust of `run` among `peers`: the eligible runs of the same implementation in the same cohort, itself left out.
pub(crate) fn trust(run: &RunFacts, ranks: bool, peers: &[&RunFacts], current: Option<&Current>) -> TrustFacts {
    let agreeing = if ranks { agreeing(run, peers) } else { Vec::new() };
    // What this project ran itself and another run confirms, or the other way round: the same facts give the same level.
    let ours = run.origin == Origin::Records;
    let confirmed = agreeing.iter().find(|peer| ours || peer.origin == Origin::Records);
    let other_party = agreeing.iter().find(|peer| party(peer) != party(run));
    let other_machine = agreeing.iter().find(|peer| machine(&peer.environment) != machine(&run.environment));
    let second = other_party.or(other_machine);
    let mut because = Vec::new();
    let mut level = Trust::Reported;
    let mut missing: Vec<String> = run.missing.iter().map(|what| format!("not known: {what}")).collect();
    if missing.is_empty() {
        level = Trust::Reproducible;
        because.push("source, licence, install recipe, identities and all samples are there".to_owned());
        match confirmed {
            Some(peer) => {
                level = Trust::Verified;
                because.push(format!(
                    "run again by this project's evaluator with the same result: run {}",
                    peer.id.short()
                ));
            }
            None if !ranks => missing.push("a run that does not rank is not verified".to_owned()),
            None => missing.push("no second run with the same result, at least one of both by this project".to_owned()),
        }
        if level == Trust::Verified {
            match second {
                Some(peer) => {
                    level = Trust::Replicated;
                    let who = if party(peer) == party(run) { "on a second machine" } else { "by a second party" };
                    because.push(format!("run again {who} with the same result: run {}", peer.id.short()));
                }
                None => missing.push("no run by a second party or on a second machine with the same result".to_owned()),
            }
        }
    } else {
        because.push("someone says so, in a bundle that is whole and consistent".to_owned());
    }
    let found = driver(&run.environment);
    let renewed = |current: &Current| agreeing.iter().any(|peer| driver(&peer.environment) == current.driver);
    let stale = current.filter(|current| current.driver != found && !renewed(current));
    TrustFacts {
        level,
        because,
        missing,
        agreeing: agreeing.iter().map(|peer| peer.id).collect(),
        stale: stale.map(|Current { driver, run }| Stale {
            found: found.to_owned(),
            current: driver.clone(),
            seen_in: *run,
        }),
    }
}

/// Committed runs first: they weigh more, and there may be more than are kept.
fn agreeing<'a>(run: &RunFacts, peers: &[&'a RunFacts]) -> Vec<&'a RunFacts> {
    let Some(time_ns) = run.time_ns() else { return Vec::new() };
    let agrees = |peer: &&&RunFacts| {
        let ratio = peer.time_ns().and_then(|other| other.over(time_ns));
        ratio.is_some_and(|ratio| !ratio.differs_by(AGREEMENT))
    };
    let (committed, sent): (Vec<&RunFacts>, Vec<&RunFacts>) =
        peers.iter().filter(agrees).partition(|peer| peer.origin == Origin::Records);
    // At most half of each kind where there are many, so that neither crowds the other out.
    let kept = MOST_AGREEING / 2;
    committed.into_iter().take(kept).chain(sent.into_iter().take(kept)).collect()
}

/// Who made a run: this project, or a submitter.
fn party(run: &RunFacts) -> Option<&str> {
    match &run.origin {
        Origin::Records => None,
        Origin::Submission { submitter, .. } => Some(submitter),
    }
}

/// What tells two machines apart that have the same device: the board of a GPU, otherwise the host. Software changes on one
/// machine too.
fn machine(environment: &Environment) -> (Option<&str>, &str, u64, u64, u64, Option<&str>) {
    let Environment { cpu, threads_available, last_level_cache_bytes, memory_bytes, virtualisation, gpu, .. } =
        environment;
    match gpu {
        Some(gpu) => (Some(gpu.board.as_str()), "", 0, 0, 0, None),
        None => {
            let host = (*threads_available, *last_level_cache_bytes, *memory_bytes);
            (None, cpu, host.0, host.1, host.2, virtualisation.as_deref())
        }
    }
}
