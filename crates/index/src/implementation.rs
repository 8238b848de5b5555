//! Implementations: who wrote what, and how anyone gets the very same.

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::{self, Evaluation};
use qkv_rope_op::Precision;
use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// One way of computing an operation. Where and with how many threads it ran is said elsewhere, so that running it again
/// makes no second implementation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Implementation {
    /// Its name, which commands take too.
    pub name: String,
    /// Who wrote it.
    pub author: Option<String>,
    /// Languages that it is written in.
    pub languages: Vec<String>,
    /// Where its source is.
    pub source: Source,
    /// SPDX expression.
    pub licence: Option<String>,
    /// A command that installs or builds it.
    pub install: Option<String>,
    /// What a caller calls.
    pub entry_point: String,
    /// Kinds of devices that it runs on.
    pub devices: Vec<String>,
    /// How it rounds operands.
    pub mode: Precision,
    /// Flags that it was built with.
    pub build_flags: Vec<String>,
    /// Contents of what was run, by name.
    pub binaries: BTreeMap<String, Digest>,
}

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Where it can be fetched.
    pub repository: Option<String>,
    /// Commit, tag or release.
    pub commit: Option<String>,
    /// Contents of the file that was evaluated.
    pub digest: Option<Digest>,
}

impl Implementation {
    /// What an evaluation says of the implementation it judged.
    ///
    /// # Errors
    /// When a digest in it is none.
    pub fn of(evaluation: &Evaluation) -> Result<Self, Invalid> {
        let evaluation::Implementation { name, author, languages, source, licence, install, .. } =
            evaluation.implementation.clone();
        let evaluation::Implementation { entry_point, device, precision, build_flags, binaries, .. } =
            evaluation.implementation.clone();
        let digest = |field: String, text: String| text.parse().map_err(|_| Invalid::new(field, text, "a digest"));
        let binary = |(name, text)| Ok((String::clone(&name), digest(format!("binaries.{name}"), text)?));
        Ok(Self {
            name,
            author,
            languages,
            source: Source {
                repository: source.repository,
                commit: source.commit,
                digest: source.digest.map(|text| digest("source.digest".to_owned(), text)).transpose()?,
            },
            licence,
            install,
            entry_point,
            devices: vec![device],
            mode: precision,
            build_flags,
            binaries: binaries.into_iter().map(binary).collect::<Result<_, Invalid>>()?,
        })
    }
}

impl Spec for Implementation {
    const KIND: &'static str = "Implementation";

    fn validate(&self) -> Result<(), Invalid> {
        Invalid::unless_text("name", &self.name)?;
        Invalid::unless_text("entry_point", &self.entry_point)?;
        let Source { repository, commit, .. } = &self.source;
        let optional = [
            ("author", &self.author),
            ("licence", &self.licence),
            ("install", &self.install),
            ("source.repository", repository),
            ("source.commit", commit),
        ];
        for (field, text) in optional {
            text.as_ref().map_or(Ok(()), |text| Invalid::unless_text(field, text))?;
        }
        Invalid::unless(!self.languages.is_empty(), "languages", "none", "at least one")?;
        Invalid::unless(!self.devices.is_empty(), "devices", "none", "at least one")
    }
}
