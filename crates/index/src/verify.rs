//! Verification: every digest and every figure of a bundle is computed again, and every fact is held against the others.
//!
//! It shows that a bundle is whole, unaltered and consistent. It cannot show that the times were taken: only another run does.

mod complete;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::bundle::{self, Bundle, BundleError, FIGURES, Files, RUN, SOLUTION};
use crate::environment::Environment;
use crate::figures::Figures;
use crate::identity::Digest;
use crate::implementation::Implementation;
use crate::manifest::{Manifest, ManifestError, Spec};
use crate::protocol::Protocol;
use crate::strict::{self, ROUNDING};
use crate::trust::Standing;

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// The bundle's folder.
    pub folder: PathBuf,
    /// Identity of the run; `None` when the bundle cannot be understood.
    pub run: Option<Digest>,
    /// Everything that is wrong, each beginning with the file; empty when nothing is.
    pub findings: Vec<String>,
    /// What the run deserves; `None` when something is wrong.
    pub standing: Option<Standing>,
    /// The figures, computed here; `None` when the bundle cannot be understood.
    pub figures: Option<Figures>,
}

/// Verifies the bundle in `folder`, and returns it where it can be understood.
///
/// # Errors
/// When it cannot be read, or is no bundle, or holds what no bundle may.
pub fn verify(folder: &Path) -> Result<(Verification, Option<Bundle>), BundleError> {
    let (files, altered) = bundle::read(folder)?;
    Ok(verify_files(folder, &files, &altered))
}

/// As [`verify`], of files that are in memory, with what [`bundle::read`] or [`bundle::unpacked`] found altered.
pub fn verify_files(folder: &Path, files: &Files, altered: &[BundleError]) -> (Verification, Option<Bundle>) {
    let unreadable =
        |findings| Verification { folder: folder.to_owned(), run: None, findings, standing: None, figures: None };
    if !altered.is_empty() {
        return (unreadable(altered.iter().map(ToString::to_string).collect()), None);
    }
    let bundle = match Bundle::parse(files) {
        Ok(bundle) => bundle,
        Err(error) => return (unreadable(vec![error.with_cause()]), None),
    };
    let mut findings = Vec::new();
    if let Err(error) = hold_together(folder, files, &bundle, &mut findings) {
        findings.push(format!("{}: {error}", folder.display()));
    }
    let verification = Verification {
        // The file was just found to be the canonical JSON of the run.
        run: files.all().get(RUN).map(|text| Digest::of(text)),
        standing: findings.is_empty().then(|| Standing::of(&bundle)),
        figures: Some(Figures::of(&bundle.run.spec.evaluation)),
        ..unreadable(findings)
    };
    (verification, Some(bundle))
}

fn hold_together(
    folder: &Path,
    files: &Files,
    bundle: &Bundle,
    findings: &mut Vec<String>,
) -> Result<(), ManifestError> {
    let mut find = |file: &str, what: String| findings.push(format!("{}: {what}", files.path(file).display()));
    for what in identities(bundle)? {
        find("run.json", what);
    }
    let evaluation = &bundle.run.spec.evaluation;
    let manifests = [
        ("implementation.json", differs(&bundle.implementation, Implementation::of(evaluation)?)?),
        ("protocol.json", differs(&bundle.protocol, Protocol::from(&evaluation.protocol))?),
        ("environment.json", differs(&bundle.environment, Environment::from(evaluation))?),
    ];
    for (file, difference) in manifests {
        if let Some(difference) = difference {
            find(file, format!("is not what the run says: {difference}"));
        }
    }
    if let Some(what) = solution(bundle) {
        find(SOLUTION, what);
    }
    if let Some(what) = figures(files, bundle) {
        find(FIGURES, what);
    }
    for what in complete::findings(&bundle.suite.spec, evaluation) {
        find("run.json", what);
    }
    // A folder may be called anything, but not by the digits of another run.
    let id = files.all().get(RUN).map_or_else(|| bundle.run.digest(), |text| Ok(Digest::of(text)))?;
    let (expected, found) =
        (bundle.name_with(id), folder.file_name().and_then(|name| name.to_str()).unwrap_or_default());
    let digits = |name: &str| name.rsplit_once('-').map_or(name, |(_, digits)| digits).to_owned();
    let is_short_digest = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_short_digest(&digits(found)) && digits(found) != digits(&expected) {
        findings.push(format!("{}: is named after another run, expected {expected}", folder.display()));
    }
    Ok(())
}

/// The digests inside the run against the files beside it.
fn identities(bundle: &Bundle) -> Result<Vec<String>, ManifestError> {
    let run = &bundle.run.spec;
    let pairs = [
        ("operation", run.operation, bundle.operation.digest()?),
        ("suite", run.suite, bundle.suite.digest()?),
        ("suite.operation", bundle.suite.spec.operation, bundle.operation.digest()?),
        ("implementation", run.implementation, bundle.implementation.digest()?),
        ("protocol", run.protocol, bundle.protocol.digest()?),
        ("environment", run.environment, bundle.environment.digest()?),
    ];
    let wrong = pairs.into_iter().filter(|(_, says, is)| says != is);
    let mut found: Vec<String> =
        wrong.map(|(field, says, is)| format!("spec.{field}: found {says}, expected {is} as in the file")).collect();
    let logs = bundle.logs.iter().map(|(name, text)| (name.clone(), Digest::of(text))).collect();
    if run.logs != logs {
        found.push(format!("spec.logs: found {:?}, expected {logs:?} as in the files", run.logs));
    }
    Ok(found)
}

fn differs<S: Spec>(manifest: &Manifest<S>, expected: S) -> Result<Option<String>, ManifestError> {
    let value = |spec: &S| serde_json::to_value(spec).map_err(crate::identity::NotCanonical::from);
    let difference = strict::difference("spec", &value(&manifest.spec)?, &value(&expected)?, 0.0);
    Ok(difference.map(|difference| difference.to_string()))
}

/// What is wrong with the solution's file: it must be the one that was evaluated.
fn solution(bundle: &Bundle) -> Option<String> {
    let found = Digest::of(bundle.solution.as_ref()?);
    let expected = bundle.implementation.spec.source.digest;
    let differs = || format!("found {found}, expected {} as the implementation says", told(expected));
    (Some(found) != expected).then(differs)
}

fn told(digest: Option<Digest>) -> String {
    digest.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string())
}

/// What is wrong with the stored figures: they are computed again from the samples.
fn figures(files: &Files, bundle: &Bundle) -> Option<String> {
    let Some(text) = files.all().get(FIGURES) else { return Some("is missing".to_owned()) };
    let found: Value = match serde_json::from_slice(text) {
        Ok(found) => found,
        Err(error) => return Some(error.to_string()),
    };
    let expected = match serde_json::to_value(Figures::of(&bundle.run.spec.evaluation)) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("cannot be computed: {error}")),
    };
    let difference = strict::difference("figures", &found, &expected, ROUNDING)?;
    Some(format!("is not what the samples give: {difference}"))
}
