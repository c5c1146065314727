//! The page about performance: its tables are written here, its words are not.

use std::fs;

use serde_json::Value;

use super::{FOLDER, PAGE, RESULTS, RESULTS_VM, plots, tables};
use crate::legs::instructions;
use crate::root;

/// The table of instruction counts, which come from elsewhere.
const INSTRUCTIONS: &str = "instructions";

/// Puts the kept instruction counts into the page, and nothing else.
pub fn write_instructions() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{PAGE}: {error}");
    let page = fs::read_to_string(root().join(PAGE)).map_err(failed)?;
    let page = with_table(&page, INSTRUCTIONS, &instructions::kept_table()?)?;
    fs::write(root().join(PAGE), page).map_err(failed)
}

/// Puts the tables of the kept results between their marks, and draws the drawings.
pub fn write() -> Result<(), String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"));
    let parse = |file: &str| -> Result<Value, String> {
        serde_json::from_str(&read(file)?).map_err(|error| format!("{file}: {error}"))
    };
    let result = parse(RESULTS)?;
    let mut page = read(PAGE)?;
    for (name, table) in tables::named(&result) {
        page = with_table(&page, name, &table)?;
    }
    page = with_table(&page, INSTRUCTIONS, &instructions::kept_table()?)?;
    if let Ok(beside) = parse(RESULTS_VM) {
        page = with_table(&page, "vm", &tables::vm(&beside))?;
    }
    let write = |file: &str, text: &str| {
        fs::write(root().join(file), text).map_err(|error| format!("{file}: {error}"))
    };
    for (name, drawing) in plots::all(&result) {
        write(&format!("{FOLDER}/{name}"), &drawing)?;
    }
    write(PAGE, &page)
}

/// The text with a table between its marks.
pub fn with_table(text: &str, name: &str, table: &str) -> Result<String, String> {
    let marks = [format!("<!-- table: {name} -->\n"), "<!-- end of table -->".to_owned()];
    let lacks = |mark: &str| format!("{PAGE} has no {mark:?} for the table {name}");
    let (before, rest) = text.split_once(&marks[0]).ok_or_else(|| lacks(&marks[0]))?;
    let (_, after) = rest.split_once(&marks[1]).ok_or_else(|| lacks(&marks[1]))?;
    Ok(format!("{before}{}{table}{}{after}", marks[0], marks[1]))
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
            new.contains("old") && new.ends_with("<!-- table: y -->\nnew\n<!-- end of table -->\n"),
            "{new}"
        );
        assert!(with_table(text, "z", "").is_err());
    }
}
