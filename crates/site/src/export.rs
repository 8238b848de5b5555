//! The site as files that any file server shows, or a browser without one: found by following its own links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt as _;

use crate::Site;

/// A file of the export: its path with `/` between folders, and its contents.
pub type File = (String, Vec<u8>);

/// Why an export is not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A page leads to an address that has no answer.
    #[error("{from}: leads to {to}, which answers {status}")]
    Broken {
        /// The page.
        from: String,
        /// The address.
        to: String,
        /// The status code.
        status: u16,
    },
    /// An answer broke off.
    #[error("{path}: {why}")]
    Answer {
        /// Its address.
        path: String,
        /// What was said.
        why: String,
    },
    /// What was to be done with a file failed.
    #[error("{path} cannot be written")]
    Write {
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// What an export consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Beside what links reach, from the first page on.
const ROOTS: [&str; 4] = ["/", "/search", "/api", "/openapi.json"];

/// Hands every file of the export to `write`, each once. Links in them are relative; what only a server can answer (the search
/// of words, `resolve`, forms) is marked as such or done by the script.
///
/// # Errors
/// When a link of the site is broken, and when `write` fails.
pub async fn export(
    site: &Arc<Site>,
    mut write: impl FnMut(&str, &[u8]) -> std::io::Result<()>,
) -> Result<Exported, ExportError> {
    let mut waiting: VecDeque<(String, String)> = ROOTS.map(|path| (path.to_owned(), path.to_owned())).into();
    let mut seen: BTreeSet<String> = ROOTS.map(str::to_owned).into();
    let mut exported = Exported::default();
    while let Some((path, from)) = waiting.pop_front() {
        let (text, is_html) = fetch(site, &path, &from).await?;
        let text = if is_html {
            let text = String::from_utf8_lossy(&text).into_owned();
            for target in links(&text) {
                if seen.insert(target.clone()) {
                    waiting.push_back((target, path.clone()));
                }
            }
            relative(&text, &path).into_bytes()
        } else {
            text
        };
        let file = file_of(&path);
        write(&file, &text).map_err(|source| ExportError::Write { path: file, source })?;
        exported = Exported { files: exported.files + 1, bytes: exported.bytes + text.len() };
    }
    Ok(exported)
}

async fn fetch(site: &Arc<Site>, path: &str, from: &str) -> Result<(Vec<u8>, bool), ExportError> {
    let broken = |why: String| ExportError::Answer { path: path.to_owned(), why };
    let request = Request::get(path).body(Body::empty()).map_err(|error| broken(error.to_string()))?;
    let response = match site.clone().service().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    if status != StatusCode::OK {
        return Err(ExportError::Broken { from: from.to_owned(), to: path.to_owned(), status: status.as_u16() });
    }
    let media_type = response.headers().get(axum::http::header::CONTENT_TYPE);
    let is_html = media_type.is_some_and(|found| found.as_bytes().starts_with(b"text/html"));
    let body =
        axum::body::to_bytes(response.into_body(), usize::MAX).await.map_err(|error| broken(error.to_string()))?;
    Ok((body.to_vec(), is_html))
}

/// Attributes of our templates that hold addresses. Text of others cannot forge one: quotes in it are escaped.
const ATTRIBUTES: [&str; 3] = ["href=\"/", "src=\"/", "action=\"/"];

/// The places of addresses in a page: where each begins, and where its closing quote is.
fn places(page: &str) -> BTreeMap<usize, usize> {
    let found = ATTRIBUTES.iter().flat_map(|attribute| page.match_indices(attribute));
    let begins = found.map(|(at, attribute)| at + attribute.len() - 1);
    begins.filter_map(|begin| Some((begin, begin + page[begin..].find('"')?))).collect()
}

/// Own addresses that a page leads to and a file can answer.
fn links(page: &str) -> BTreeSet<String> {
    let targets = places(page).into_iter().map(|(begin, end)| &page[begin..end]);
    let plain = targets.map(|target| target.split('#').next().unwrap_or_default());
    plain
        .filter(|target| !target.is_empty() && !target.contains('?') && !only_served(target))
        .map(str::to_owned)
        .collect()
}

/// What has an answer only where something computes it.
fn only_served(path: &str) -> bool {
    matches!(path, "/resolve" | "/compare")
}

/// The page with relative addresses, marked as exported.
fn relative(page: &str, path: &str) -> String {
    let up = "../".repeat(file_of(path).matches('/').count());
    let mut text = String::with_capacity(page.len());
    let mut done = 0;
    for (begin, end) in places(page) {
        let target = &page[begin..end];
        let (target, rest) = target.split_at(target.find(['#', '?']).unwrap_or(target.len()));
        text.push_str(&page[done..begin]);
        text.push_str(&up);
        text.push_str(&file_of(target));
        text.push_str(rest);
        done = end;
    }
    text.push_str(&page[done..]);
    text.replacen("<html lang=\"en\">", "<html lang=\"en\" data-static>", 1)
}

/// The file that answers an address.
fn file_of(path: &str) -> String {
    let path = path.trim_start_matches('/');
    let last = path.rsplit('/').next().unwrap_or_default();
    let has_type = [".json", ".svg", ".css", ".js", ".atom", ".csv", ".log"].iter().any(|end| last.ends_with(end));
    match path {
        "" => "index.html".to_owned(),
        path if has_type => path.to_owned(),
        path => format!("{path}.html"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_relative_files() {
        assert_eq!(file_of("/"), "index.html");
        assert_eq!(file_of("/runs/0123"), "runs/0123.html");
        assert_eq!(file_of("/runs/0123.json"), "runs/0123.json");
        let page = r##"<html lang="en"><a href="/">x</a><a href="/runs/a#cases">y</a><a href="#z">z</a>"##;
        let expected = r##"<html lang="en" data-static><a href="../index.html">x</a><a href="../runs/a.html#cases">y</a><a href="#z">z</a>"##;
        assert_eq!(relative(page, "/operations/op"), expected);
    }

    #[test]
    fn questions_are_left_to_servers() {
        let page = r#"<a href="/search?q=rope"></a><form action="/resolve"></form><a href="/a"></a><img src="/b.svg">"#;
        assert_eq!(links(page), BTreeSet::from(["/a".to_owned(), "/b.svg".to_owned()]));
    }
}
