//! Protocols: the rules that samples were taken by, apart from what changes from run to run.

use kernelproof_eval::evaluation::{Evaluator, ProtocolFacts};
use serde::{Deserialize, Serialize};

use crate::manifest::{Invalid, Spec};

/// How samples were taken and by which program. Seeds are facts of a run and not in here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Names the rules; ratios exist only inside one version.
    pub version: String,
    /// A quick run shows that things work. It never ranks.
    pub quick: bool,
    /// Who read the clock, and around what.
    pub timer: String,
    /// Rounds of fresh inputs that outputs were checked on.
    pub check_rounds: u64,
    /// Calls before the timed ones.
    pub warmup_calls: u64,
    /// Timed calls.
    pub timed_calls: u64,
    /// What sums the samples of a case up.
    pub statistic: String,
    /// Bytes written between calls to empty the caches.
    pub flush_bytes: u64,
    /// How far tensors move between calls: multiples of the first number up to the second.
    pub offset_bytes: [u64; 2],
    /// Longest that one call may take.
    pub call_limit_ns: u64,
    /// Most memory that a worker process may allocate.
    pub memory_limit_bytes: Option<u64>,
    /// The program that judged.
    pub evaluator: Evaluator,
}

impl From<&ProtocolFacts> for Protocol {
    fn from(facts: &ProtocolFacts) -> Self {
        // No usize is wider than 64 bits.
        let wide = |value: usize| value as u64;
        Self {
            version: facts.version.clone(),
            quick: facts.quick,
            timer: facts.timer.clone(),
            check_rounds: facts.check_rounds.into(),
            warmup_calls: facts.warmup_calls.into(),
            timed_calls: facts.timed_calls.into(),
            statistic: facts.statistic.clone(),
            flush_bytes: wide(facts.flush_bytes),
            offset_bytes: facts.offset_bytes.map(wide),
            call_limit_ns: facts.call_limit_ns,
            memory_limit_bytes: facts.memory_limit_bytes,
            evaluator: facts.evaluator.clone(),
        }
    }
}

impl Spec for Protocol {
    const KIND: &'static str = "Protocol";

    fn validate(&self) -> Result<(), Invalid> {
        let Evaluator { version, commit, mutation_score, .. } = &self.evaluator;
        let texts = [
            ("version", &self.version),
            ("timer", &self.timer),
            ("evaluator.version", version),
            ("evaluator.commit", commit),
        ];
        texts.into_iter().try_for_each(|(field, text)| Invalid::unless_text(field, text))?;
        Invalid::unless(self.statistic == "median", "statistic", &self.statistic, "median")?;
        Invalid::unless(self.timed_calls > 0, "timed_calls", 0, "at least 1")?;
        if let Some([right, all]) = mutation_score {
            let field = "evaluator.mutation_score";
            Invalid::unless(right <= all, field, format!("{right} of {all}"), "no more than all")?;
        }
        Ok(())
    }
}
