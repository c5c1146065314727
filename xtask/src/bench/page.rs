//! The tables and drawings of the page about performance.

use crate::report::Result;
use fs_err as fs;

use serde_json::Value;

use super::results::{FOLDER, RESULTS, RESULTS_VM};
use super::{plots, tables};
use crate::legs::instructions;
use crate::markdown::{PAGE, with_table};
use crate::root::root;

/// Puts the tables of the kept results between their marks, and draws the drawings.
pub fn write() -> Result<()> {
    let read = |file: &str| -> Result { Ok(fs::read_to_string(root().join(file))?) };
    let parse = |file: &str| -> Result<Value> { Ok(serde_json::from_str(&read(file)?)?) };
    let result = parse(RESULTS)?;
    let mut page = read(PAGE)?;
    for (name, table) in tables::named(&result) {
        page = with_table(&page, name, &table)?;
    }
    page = with_table(&page, instructions::TABLE, &instructions::kept_table()?)?;
    if let Ok(beside) = parse(RESULTS_VM) {
        page = with_table(&page, "vm", &tables::vm(&beside))?;
    }
    let write = |file: &str, text: &str| fs::write(root().join(file), text);
    for (name, drawing) in plots::all(&result) {
        write(&format!("{FOLDER}/{name}"), &drawing)?;
    }
    Ok(write(PAGE, &page)?)
}
