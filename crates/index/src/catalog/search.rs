//! Search over everything that has a name.

use serde::Serialize;

use crate::identity::Digest;

use super::Catalog;
use super::cohort::mode_name;

/// What a hit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HitKind {
    /// An operation.
    Operation,
    /// An implementation.
    Implementation,
    /// A device.
    Device,
    /// A run of ours.
    Run,
    /// A figure of another source.
    External,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// What it is.
    pub kind: HitKind,
    /// Its name in addresses.
    pub slug: String,
    /// Its identity; `None` for a device.
    pub id: Option<Digest>,
    /// What to show.
    pub title: String,
    /// A line about it.
    pub detail: String,
}

/// A hit and the lower-case words that it is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    hit: Hit,
    title: String,
    words: String,
}

impl Entry {
    fn new(hit: Hit, more: impl IntoIterator<Item = String>) -> Self {
        let title = hit.title.to_lowercase();
        let mut words = format!("{title} {} {}", hit.detail.to_lowercase(), hit.slug);
        for more in more {
            words.push(' ');
            words.push_str(&more.to_lowercase());
        }
        Self { hit, title, words }
    }
}

impl Catalog {
    /// At most `most` hits that have every word of `text`: titles that begin with it first, then by kind, then in the order of
    /// the lists (runs: latest first). Nothing for a text without words.
    pub fn search(&self, text: &str, most: usize) -> Vec<&Hit> {
        let text = text.to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            return Vec::new();
        }
        let has_all = |entry: &&Entry| words.iter().all(|word| entry.words.contains(word));
        let (first, rest): (Vec<&Entry>, Vec<&Entry>) =
            self.search.iter().filter(has_all).partition(|entry| entry.title.starts_with(text.trim()));
        first.into_iter().chain(rest).take(most).map(|entry| &entry.hit).collect()
    }
}

/// Everything that can be found, by kind.
pub(super) fn entries(catalog: &Catalog) -> Vec<Entry> {
    let hit = |kind, slug: &str, id, title: &str, detail| Hit {
        kind,
        slug: slug.to_owned(),
        id,
        title: title.to_owned(),
        detail,
    };
    let operations = catalog.operations().iter().map(|entry| {
        let runs = catalog.runs_of(entry.id).count();
        let detail = format!("operation, {}, {runs} runs", entry.spec.family);
        let more = entry.aliases.iter().cloned().chain(entry.description.clone());
        Entry::new(hit(HitKind::Operation, &entry.slug, Some(entry.id), &entry.title, detail), more)
    });
    let implementations = catalog.implementations().iter().map(|entry| {
        let spec = &entry.spec;
        let detail = format!("implementation, {}, {}", mode_name(spec.mode), entry.devices.join(", "));
        let more = spec.author.iter().chain(&spec.languages).chain(&spec.licence).cloned();
        Entry::new(hit(HitKind::Implementation, &entry.slug, Some(entry.id), &spec.name, detail), more)
    });
    let devices = catalog.devices().iter().map(|entry| {
        let detail = format!("device, {}, {} runs", entry.kind, entry.runs.len());
        Entry::new(hit(HitKind::Device, &entry.slug, None, &entry.name, detail), [])
    });
    let runs = catalog.runs().iter().rev().map(|entry| {
        let facts = &entry.facts;
        let detail = format!("run on {}, {}", facts.environment.device, facts.observed);
        let more = [facts.name.clone(), facts.id.hex(), facts.protocol.version.clone()];
        Entry::new(hit(HitKind::Run, &entry.slug, Some(facts.id), &facts.implementation.name, detail), more)
    });
    let externals = catalog.externals().iter().map(|entry| {
        let spec = &entry.spec;
        let detail = format!("reported on {}, {}", spec.hardware, spec.protocol);
        let more = [spec.source.document.clone(), entry.id.hex()];
        Entry::new(hit(HitKind::External, &entry.slug, Some(entry.id), &spec.implementation, detail), more)
    });
    operations.chain(implementations).chain(devices).chain(runs).chain(externals).collect()
}
