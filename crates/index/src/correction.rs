//! Corrections: what is said later about something that is stored. Nothing is edited; a correction is one more manifest.

use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// Something stored is taken back, or something else stands in its stead. Either stays visible with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// Identity of the run or external run that is corrected.
    pub target: Digest,
    /// What becomes of it.
    pub action: Action,
    /// Why, for those who read it years later.
    pub reason: String,
    /// When, UTC, RFC 3339.
    pub decided: String,
}

/// What becomes of the target of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// It no longer counts.
    Retract,
    /// Another run counts in its stead.
    Supersede {
        /// That run.
        by: Digest,
    },
}

impl Spec for Correction {
    const KIND: &'static str = "Correction";

    fn validate(&self) -> Result<(), Invalid> {
        Invalid::unless_text("reason", &self.reason)?;
        let is_utc = self.decided.ends_with('Z') && self.decided.parse::<jiff::Timestamp>().is_ok();
        Invalid::unless(
            is_utc,
            "decided",
            format!("{:?}", self.decided),
            "a time in UTC such as 2026-12-01T10:00:00Z",
        )?;
        match self.action {
            Action::Supersede { by } => {
                Invalid::unless(by != self.target, "action.by", by, "another run than the one that is corrected")
            }
            Action::Retract => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    fn example(action: Action) -> Manifest<Correction> {
        Manifest::new(Correction {
            target: Digest::of(b"run"),
            action,
            reason: "a neighbour used the same core".to_owned(),
            decided: "2026-12-01T10:00:00Z".to_owned(),
        })
    }

    #[test]
    fn both_kinds_survive_their_text() {
        for action in [Action::Retract, Action::Supersede { by: Digest::of(b"other") }] {
            let text = example(action).text().expect("it is JSON");
            assert_eq!(Manifest::parse(text.as_bytes()).expect("it is a correction"), example(action));
        }
    }

    #[test]
    fn a_run_cannot_supersede_itself_and_a_reason_is_needed() {
        let error = example(Action::Supersede { by: Digest::of(b"run") }).spec.validate().expect_err("it is itself");
        assert!(error.to_string().contains("spec.action.by"), "{error}");
        let mut silent = example(Action::Retract);
        silent.spec.reason = " ".to_owned();
        assert!(silent.spec.validate().is_err());
        let mut local = example(Action::Retract);
        local.spec.decided = "2026-12-01T10:00:00+01:00".to_owned();
        assert!(local.spec.validate().is_err());
    }
}
