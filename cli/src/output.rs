//! Standard output: text or JSON, and tables.

use std::io::{self, Write};
use std::path::PathBuf;

use dat::IaBuilder;
use dat::registry::Registry;
use serde_json::Value;

use crate::failure::{Failure, Outcome};

/// Options of all commands.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The registry file to read, and no other.
    pub plugins: Option<PathBuf>,
    /// JSON instead of text.
    pub json: bool,
    /// How much is logged.
    pub verbose: u8,
}

impl Shared {
    /// The registry.
    pub fn registry(&self) -> Outcome<Registry> {
        Ok(match &self.plugins {
            Some(file) => Registry::from_file(file)?,
            None => Registry::open()?,
        })
    }

    /// An adapter to be opened.
    pub fn ia(&self, name: &str) -> IaBuilder {
        let builder = IaBuilder::new(name);
        match &self.plugins {
            Some(file) => builder.plugins(file),
            None => builder,
        }
    }

    /// Prints a failure to standard error, and as JSON with `--json`.
    pub fn report(&self, failure: &Failure) {
        if self.json {
            // Standard error has the message too, so a failed print loses nothing.
            let _ = print(&format!("{:#}", failure.to_json()));
        }
        eprintln!("{failure}");
    }

    /// Prints one of the two.
    pub fn print(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
        match self.json {
            true => print(&format!("{:#}", json())),
            false => print(&text()),
        }
    }
}

/// Prints a text and a line end. A closed pipe is not an error: `dat providers | head -1`.
pub fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Rows under headings, columns aligned; numbers to the right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: usize,
}

impl Table {
    /// A table whose columns from `right` on are numbers.
    pub fn new(headings: &[&str], right: usize) -> Table {
        Table { rows: vec![headings.iter().map(|&h| h.to_owned()).collect()], right }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column >= self.right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}
