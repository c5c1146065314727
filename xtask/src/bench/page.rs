//! The tables and drawings of the page about performance.

use std::fs;

use serde_json::Value;

use super::results::{FOLDER, RESULTS, RESULTS_VM};
use super::{plots, tables};
use crate::legs::instructions;
use crate::markdown::{PAGE, with_table};
use crate::root::root;

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
    page = with_table(&page, instructions::TABLE, &instructions::kept_table()?)?;
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
