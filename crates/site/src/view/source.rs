//! Figures that others report: in their words, in their own tables, beside ours and never among them.

use kernelproof_index::catalog::{Catalog, ExternalEntry, SourceTable};
use serde::Serialize;
use utoipa::ToSchema;

use super::address;
use super::cohort::seconds;
use crate::plot::{History, HistoryPoint};

/// A table of another source: same hardware, workload and protocol by its own names.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SourceView {
    /// First digits of its identity.
    pub slug: String,
    /// The document.
    pub document: String,
    /// The source's name of the hardware.
    pub hardware: String,
    /// The source's name of the workload.
    pub workload: String,
    /// The source's name of the protocol.
    pub protocol: String,
    /// Latest day on which it was read or observed.
    pub last_observed: String,
    /// What is known to be called by a wrong name, or missing, in all its rows.
    pub caveats: Vec<String>,
    /// Fastest first.
    pub rows: Vec<SourceLine>,
    /// The history as a picture.
    #[serde(skip)]
    pub history_svg: Option<String>,
    /// The rows that were the fastest when they appeared.
    pub history: Vec<SourceLine>,
}

/// A row of another source's table.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SourceLine {
    /// Place among the rows with a time.
    pub rank: Option<usize>,
    /// Its page.
    pub href: String,
    /// The source's name of the implementation.
    pub implementation: String,
    /// The time that the source ranks it by, in ns.
    pub time_ns: Option<f64>,
    /// The figures in the source's own digits, such as `81.9µs`.
    pub figures: Vec<[String; 2]>,
    /// Its time over that of the first row.
    pub ratio_to_first: Option<f64>,
    /// When the source says that it was measured.
    pub observed: Option<String>,
    /// Why it no longer counts, where a correction says so.
    pub corrected: Option<String>,
}

impl SourceLine {
    /// A figure of another source.
    pub fn of(entry: &ExternalEntry, rank: Option<usize>, ratio_to_first: Option<f64>) -> Self {
        Self {
            rank,
            href: address::external(&entry.slug),
            implementation: entry.spec.implementation.clone(),
            time_ns: entry.time_ns,
            figures: entry.spec.figures.iter().map(|figure| [figure.name.clone(), figure.text.clone()]).collect(),
            ratio_to_first,
            observed: entry.spec.observed.clone(),
            corrected: entry.corrected.as_ref().map(ToString::to_string),
        }
    }

    /// The source's own digits of the time that it ranks by.
    pub fn text(&self) -> &str {
        self.figures.first().map_or("–", |[_, text]| text)
    }

    /// The figure that the source gives beside it, such as `66% SOL`; all others are on the figure's page.
    pub fn second(&self) -> Option<&[String; 2]> {
        self.figures.get(1)
    }

    /// The ratio with two decimals, as far as a source without samples can be read.
    pub fn ratio(&self) -> String {
        self.ratio_to_first.map_or_else(String::new, |ratio| format!("{ratio:.2}\u{202f}×"))
    }
}

impl SourceView {
    /// A table of the catalog.
    pub fn of(catalog: &Catalog, table: &SourceTable) -> Self {
        let rows = table
            .rows
            .iter()
            .filter_map(|row| Some(SourceLine::of(catalog.external(&row.external)?, row.rank, row.ratio_to_first)));
        let history = table.history.iter().filter_map(|id| Some(SourceLine::of(catalog.external(id)?, None, None)));
        let mut view = Self {
            slug: table.slug.clone(),
            document: table.document.clone(),
            hardware: table.hardware.clone(),
            workload: table.workload.clone(),
            protocol: table.protocol.clone(),
            last_observed: table.last_observed.clone(),
            caveats: table.caveats.clone(),
            rows: rows.collect(),
            history: history.collect(),
            history_svg: None,
        };
        view.history_svg = view.draw();
        view
    }

    fn draw(&self) -> Option<String> {
        let is_record = |row: &SourceLine| self.history.iter().any(|record| record.href == row.href);
        let mut points: Vec<HistoryPoint<'_>> = self
            .rows
            .iter()
            .filter_map(|row| {
                Some(HistoryPoint {
                    at_s: seconds(row.observed.as_deref()?)?,
                    value_ns: row.time_ns?,
                    name: &row.implementation,
                    record: is_record(row),
                })
            })
            .collect();
        points.sort_by(|one, other| one.at_s.total_cmp(&other.at_s).then(other.value_ns.total_cmp(&one.value_ns)));
        let id = format!("history-{}", self.slug);
        let title = format!("What {} reported on {}", self.document, self.hardware);
        History { id: &id, title: &title, points: &points }.svg()
    }
}
