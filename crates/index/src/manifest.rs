//! What every manifest has in common: an envelope, a kind, an identity, and errors that name the field.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::{Digest, NotCanonical, canonical};
use crate::strict;

/// The version of the kinds that this project defines.
pub const API_VERSION: &str = "kernelproof/v1";

/// A kind of manifest: what is identified by its digest.
pub trait Spec: Serialize + DeserializeOwned {
    /// The manifest's `apiVersion`.
    const API_VERSION: &'static str = API_VERSION;
    /// The manifest's `kind`.
    const KIND: &'static str;

    /// Whether the fields make sense together.
    ///
    /// # Errors
    /// Names the first field that does not.
    fn validate(&self) -> Result<(), Invalid>;
}

/// A manifest: what it says, and what is said about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest<S> {
    api_version: String,
    kind: String,
    /// For people; not part of the identity.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// What the identity is the digest of.
    pub spec: S,
}

/// What may be edited without making another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// A heading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What a reader should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Other names under which it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl Metadata {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A field whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: found {found}, expected {expected}")]
pub struct Invalid {
    /// The path of the field in the manifest.
    pub field: String,
    /// What is there.
    pub found: String,
    /// What should be.
    pub expected: String,
}

impl Invalid {
    /// A finding at `field`, relative to `spec`.
    pub fn new(field: impl std::fmt::Display, found: impl std::fmt::Display, expected: impl Into<String>) -> Self {
        Self { field: shown(&format!("spec.{field}")), found: shown(&found.to_string()), expected: expected.into() }
    }

    /// `Ok` where `holds`, otherwise this finding.
    ///
    /// # Errors
    /// Where it does not hold.
    pub fn unless(
        holds: bool,
        field: impl std::fmt::Display,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(field, found, expected)) }
    }

    /// A text that may not be empty.
    ///
    /// # Errors
    /// Where it is.
    pub fn unless_text(field: &str, text: &str) -> Result<(), Self> {
        Self::unless(!text.trim().is_empty(), field, format!("{text:?}"), "a text")
    }

    /// A list in which nothing occurs twice.
    ///
    /// # Errors
    /// Names what does.
    pub fn unless_distinct<'a>(field: &str, items: impl IntoIterator<Item = &'a str>) -> Result<(), Self> {
        let mut seen = std::collections::BTreeSet::new();
        match items.into_iter().find(|item| !seen.insert(*item)) {
            Some(twice) => Err(Self::new(field, format!("{twice:?} twice"), "each name once")),
            None => Ok(()),
        }
    }
}

/// Why a text is no manifest of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not JSON, or a field is missing, unknown or of the wrong type.
    #[error("{path}: {reason}")]
    Shape {
        /// Path of the field; `.` is the whole.
        path: String,
        /// What was found and expected there.
        reason: String,
    },
    /// Another kind or version of manifest.
    #[error("{field}: found {found:?}, expected {expected:?}")]
    Kind {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// The fields contradict each other.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It has no identity.
    #[error(transparent)]
    NotCanonical(#[from] NotCanonical),
}

impl<S: Spec> Manifest<S> {
    /// A manifest of `spec` without metadata.
    pub fn new(spec: S) -> Self {
        Self { api_version: S::API_VERSION.to_owned(), kind: S::KIND.to_owned(), metadata: Metadata::default(), spec }
    }

    /// Reads and validates a manifest.
    ///
    /// # Errors
    /// Names the field, what was found and what was expected.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        let manifest = Self::read(text)?;
        manifest.digest()?;
        Ok(manifest)
    }

    /// As [`Manifest::parse`], for callers that compute the canonical form themselves: it takes most of the time.
    ///
    /// # Errors
    /// As [`Manifest::parse`], except for a number without a canonical form.
    pub(crate) fn read(text: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Envelope {
            api_version: String,
            kind: String,
        }
        // The kind first: of another kind, every field would be called unknown.
        let Envelope { api_version, kind } = typed(text)?;
        for (field, found, expected) in [("apiVersion", api_version, S::API_VERSION), ("kind", kind, S::KIND)] {
            if found != expected {
                return Err(ManifestError::Kind { field, found: shown(&found), expected });
            }
        }
        let manifest: Self = typed(text)?;
        let found: Value = typed(text)?;
        if let Some(difference) = strict::difference("", &found, &to_value(&manifest)?, 0.0) {
            let field = difference.field.trim_start_matches('.').to_owned();
            return Err(Invalid { field, ..difference }.into());
        }
        manifest.spec.validate()?;
        Ok(manifest)
    }

    /// The identity: SHA-256 of [`Manifest::canonical`].
    ///
    /// # Errors
    /// When a number in it has no canonical form.
    pub fn digest(&self) -> Result<Digest, NotCanonical> {
        Ok(Digest::of(&self.canonical()?))
    }

    /// The canonical JSON of `{apiVersion, kind, spec}`.
    ///
    /// # Errors
    /// When a number in it has no canonical form.
    pub fn canonical(&self) -> Result<Vec<u8>, NotCanonical> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Identified<'a, S> {
            api_version: &'a str,
            kind: &'a str,
            spec: &'a S,
        }
        let Self { api_version, kind, spec, .. } = self;
        canonical(&Identified { api_version, kind, spec })
    }

    /// The manifest as people read it, ending with a line end.
    ///
    /// # Errors
    /// When a number in it is not JSON.
    pub fn text(&self) -> Result<String, NotCanonical> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Longest part of a stranger's text in a message.
const LONGEST_SHOWN: usize = 300;

/// Text from a file as a message may show it: not longer than a few lines, and nothing that steers a terminal.
pub fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(LONGEST_SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if shown.len() < text.len() && text.chars().nth(LONGEST_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

fn to_value<T: Serialize>(value: &T) -> Result<Value, NotCanonical> {
    Ok(serde_json::to_value(value)?)
}

fn typed<T: DeserializeOwned>(text: &[u8]) -> Result<T, ManifestError> {
    let shape = |path: String, error: &serde_json::Error| ManifestError::Shape {
        path: shown(&path),
        reason: shown(&error.to_string()),
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| shape(error.path().to_string(), error.inner()))?;
    reader.end().map_err(|error| shape(".".to_owned(), &error))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_short_and_do_not_steer_a_terminal() {
        assert_eq!(shown("plain ä"), "plain ä");
        assert_eq!(shown("\u{1b}[2J"), "\u{fffd}[2J");
        assert_eq!(shown(&"ä".repeat(1000)).chars().count(), LONGEST_SHOWN + 1);
    }
}
