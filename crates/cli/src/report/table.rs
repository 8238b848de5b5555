//! Plain aligned columns: readable in a terminal, in a log and by `awk`.

use comfy_table::{CellAlignment, presets};

/// A table whose first column is text and whose other columns are aligned by what they hold.
#[derive(Debug)]
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// A table with a header.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(header.iter().copied());
        Self(table)
    }

    /// Adds a row. Cells that start with a digit are aligned to the right.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| {
            let is_number = cell.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '<');
            let alignment = if is_number { CellAlignment::Right } else { CellAlignment::Left };
            comfy_table::Cell::new(cell).set_alignment(alignment)
        });
        self.0.add_row(cells.collect::<Vec<_>>());
    }
}

/// Nanoseconds in ms, to 0.1 µs where they are few.
pub(crate) fn milliseconds(time_ns: f64) -> String {
    let time_ms = time_ns / 1e6;
    if time_ms < 1.0 { format!("{time_ms:.4}") } else { format!("{time_ms:.3}") }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.0.lines().map(|line| line.trim_end().to_owned()).collect();
        f.write_str(&lines.join("\n"))
    }
}
