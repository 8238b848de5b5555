//! Bundles: all that belongs to one run in one folder, whole or absent.
//!
//! | file | holds |
//! |---|---|
//! | `operation.json`, `suite.json`, `implementation.json`, `protocol.json`, `environment.json` | manifests |
//! | `run.json` | the run's manifest, with every sample |
//! | `figures.json` | what is computed from it |
//! | `solution.json` | the solution that was run, where it is one; its digest is part of the implementation |
//! | `*.log` | what was printed |
//! | `SHA256SUMS` | the digests of the others, for `sha256sum -c` |
//!
//! Manifests are stored as their canonical JSON, so the digest of a file is the identity of what it holds.

mod error;
pub(crate) mod files;
mod read;
mod write;

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::Evaluation;

pub use error::BundleError;
pub use files::{Files, SUMS};
pub use read::{read, unpacked};
pub use write::{Written, write};

use crate::environment::Environment;
use crate::figures::Figures;
use crate::identity::Digest;
use crate::implementation::Implementation;
use crate::manifest::{Manifest, ManifestError, Spec};
use crate::operation::Operation;
use crate::protocol::Protocol;
use crate::run::Run;
use crate::suite::Suite;

const OPERATION: &str = "operation.json";
const SUITE: &str = "suite.json";
const IMPLEMENTATION: &str = "implementation.json";
const PROTOCOL: &str = "protocol.json";
const ENVIRONMENT: &str = "environment.json";
pub(crate) const RUN: &str = "run.json";
pub(crate) const SOLUTION: &str = "solution.json";
pub(crate) const FIGURES: &str = "figures.json";

/// The operation of this project, as committed.
const OUR_OPERATION: &str = include_str!("../../../records/operations/qkv-rope-backward.json");

/// One run with everything that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    /// What was computed.
    pub operation: Manifest<Operation>,
    /// On which cases.
    pub suite: Manifest<Suite>,
    /// By whom.
    pub implementation: Manifest<Implementation>,
    /// By which rules.
    pub protocol: Manifest<Protocol>,
    /// Where.
    pub environment: Manifest<Environment>,
    /// What was seen.
    pub run: Manifest<Run>,
    /// The solution's file, where the implementation is one and may be handed on.
    pub solution: Option<Vec<u8>>,
    /// What was printed, by file name.
    pub logs: BTreeMap<String, Vec<u8>>,
}

/// What belongs to a run beside the evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {
    /// The solution's file.
    pub solution: Option<Vec<u8>>,
    /// What was printed, by file name.
    pub logs: BTreeMap<String, Vec<u8>>,
}

impl Bundle {
    /// The bundle of an evaluation of this project's suite.
    ///
    /// # Errors
    /// When the evaluation holds something that no record may.
    pub fn of(evaluation: Evaluation, attached: Attached) -> Result<Self, ManifestError> {
        let Attached { solution, logs } = attached;
        let operation = Manifest::new(Manifest::<Operation>::parse(OUR_OPERATION.as_bytes())?.spec);
        let suite = Manifest::new(Suite::ours(operation.digest()?));
        let implementation = Manifest::new(Implementation::of(&evaluation)?);
        let protocol = Manifest::new(Protocol::from(&evaluation.protocol));
        let environment = Manifest::new(Environment::from(&evaluation));
        let run = Manifest::new(Run {
            operation: operation.digest()?,
            suite: suite.digest()?,
            implementation: implementation.digest()?,
            protocol: protocol.digest()?,
            environment: environment.digest()?,
            evaluation,
            logs: logs.iter().map(|(name, text)| (name.clone(), Digest::of(text))).collect(),
        });
        implementation.spec.validate()?;
        protocol.spec.validate()?;
        environment.spec.validate()?;
        run.spec.validate()?;
        Ok(Self { operation, suite, implementation, protocol, environment, run, solution, logs })
    }

    /// The name of its folder: day, implementation, and the first digits of the run's identity.
    ///
    /// # Errors
    /// When the run has no identity.
    pub fn name(&self) -> Result<String, ManifestError> {
        Ok(self.name_with(self.run.digest()?))
    }

    /// As [`Bundle::name`], where the run's identity is at hand.
    pub(crate) fn name_with(&self, run: Digest) -> String {
        let Evaluation { observed, implementation, .. } = &self.run.spec.evaluation;
        let day = observed.get(..10).unwrap_or("undated");
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let implementation: String = implementation.name.chars().map(plain).take(40).collect();
        format!("{day}-{implementation}-{}", run.short())
    }

    /// All its files.
    ///
    /// # Errors
    /// When something in it has no canonical form.
    pub fn files(&self) -> Result<Files, ManifestError> {
        let mut files = self.logs.clone();
        files.extend(self.solution.iter().map(|text| (SOLUTION.to_owned(), text.clone())));
        let manifests = [
            (OPERATION, self.operation.canonical()?),
            (SUITE, self.suite.canonical()?),
            (IMPLEMENTATION, self.implementation.canonical()?),
            (PROTOCOL, self.protocol.canonical()?),
            (ENVIRONMENT, self.environment.canonical()?),
            (RUN, self.run.canonical()?),
            (FIGURES, figures_text(&self.run.spec.evaluation)?),
        ];
        files.extend(manifests.map(|(name, text)| (name.to_owned(), text)));
        Ok(Files::new(files))
    }

    /// The bundle that these files hold.
    ///
    /// # Errors
    /// Names the file and the field that is missing or wrong.
    pub fn parse(files: &Files) -> Result<Self, BundleError> {
        let logs = files.all().iter().filter(|(name, _)| name.ends_with(".log"));
        Ok(Self {
            operation: manifest(files, OPERATION)?,
            suite: manifest(files, SUITE)?,
            implementation: manifest(files, IMPLEMENTATION)?,
            protocol: manifest(files, PROTOCOL)?,
            environment: manifest(files, ENVIRONMENT)?,
            run: manifest(files, RUN)?,
            solution: files.all().get(SOLUTION).cloned(),
            logs: logs.map(|(name, text)| (name.clone(), text.clone())).collect(),
        })
    }
}

fn figures_text(evaluation: &Evaluation) -> Result<Vec<u8>, ManifestError> {
    let figures =
        serde_json::to_string_pretty(&Figures::of(evaluation)).map_err(crate::identity::NotCanonical::from)?;
    Ok((figures + "\n").into_bytes())
}

fn manifest<S: Spec>(files: &Files, name: &'static str) -> Result<Manifest<S>, BundleError> {
    let wrong = |source: ManifestError| BundleError::Manifest { file: files.path(name), source };
    let text = files.all().get(name).ok_or_else(|| BundleError::refused(files.path(name), "is missing"))?;
    let manifest = Manifest::read(text).map_err(wrong)?;
    let canonical = manifest.canonical().map_err(|source| wrong(source.into()))?;
    if canonical != *text {
        return Err(BundleError::refused(files.path(name), "is not its own canonical JSON (RFC 8785)"));
    }
    Ok(manifest)
}
