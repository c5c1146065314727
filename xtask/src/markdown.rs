//! Tables in Markdown, and pages that have some between marks.

use crate::report::Result;
use std::fmt::Write as _;

use fs_err as fs;

use crate::root::root;

/// The page about performance.
pub const PAGE: &str = "docs/performance.md";

/// The page with a table between its marks.
pub fn with_table(text: &str, name: &str, table: &str) -> Result<String> {
    between(text, PAGE, [&format!("<!-- table: {name} -->\n"), "<!-- end of table -->"], table)
}

/// The text of a file, with `new` between two marks.
pub fn between(text: &str, file: &str, marks: [&str; 2], new: &str) -> Result<String> {
    let lacks = |mark: &str| format!("{file} has no {mark:?}");
    let (before, rest) = text.split_once(marks[0]).ok_or_else(|| lacks(marks[0]))?;
    let (_, after) = rest.split_once(marks[1]).ok_or_else(|| lacks(marks[1]))?;
    Ok(format!("{before}{}{new}{}{after}", marks[0], marks[1]))
}

/// Writes `new` between two marks of a file of the repository.
pub fn put(file: &str, marks: [&str; 2], new: &str) -> Result<()> {
    let path = root().join(file);
    let text = between(&fs::read_to_string(&path)?, file, marks, new)?;
    Ok(fs::write(path, text)?)
}

/// A table of Markdown whose columns are aligned in its source.
pub struct Markdown {
    rows: Vec<Vec<String>>,
    right: usize,
}

impl Markdown {
    /// Columns from `right` on are numbers.
    pub fn new(heads: &[&str], right: usize) -> Markdown {
        Markdown { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()], right }
    }

    /// Adds a row, of as many cells as there are heads.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| width(column).max(3)).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = match column >= self.right {
                    true => write!(out, "| {cell:>width$} "),
                    false => write!(out, "| {cell:<width$} "),
                };
            }
            out.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let line = "-".repeat(width - 1);
                    let _ = match column >= self.right {
                        true => write!(out, "| {line}: "),
                        false => write!(out, "| {line}- "),
                    };
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stands_between_its_marks() {
        let text =
            "a\n<!-- table: x -->\nold\n<!-- end of table -->\nb\n<!-- table: y -->\n<!-- end of table -->\n";
        let new = with_table(text, "x", "new\n").expect("the marks are there");
        assert!(new.starts_with("a\n<!-- table: x -->\nnew\n<!-- end of table -->\nb\n"), "{new}");
        let new = with_table(text, "y", "new\n").expect("the marks are there");
        assert!(
            new.ends_with("<!-- table: y -->\nnew\n<!-- end of table -->\n") && new.contains("old"),
            "{new}"
        );
        assert!(with_table(text, "z", "").is_err());
    }
}
