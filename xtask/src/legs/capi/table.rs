//! The table program x provider x result, from the reports the columns leave below the target directory.

use crate::report::{Result, Stop};
use fs_err as fs;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cases::{CASES, COLUMNS};
use super::field::Passed;
use crate::cargo::target_folder;
use crate::markdown::put;
use crate::values::list;

/// Where the table is kept in the repository, and between which marks.
const SAVED: &str = "docs/c-library.md";
const MARKS: [&str; 2] = ["<!-- programs -->\n", "<!-- end of programs -->"];

/// How one run ended, and a note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    how: String,
    note: String,
}

const PASSED: &str = "passed";
const REFUSED: &str = "refused";
/// It is not installed.
const NOT_RUN: &str = "NOT RUN";
const FAILED: &str = "FAILED";

impl From<Result<Passed>> for Verdict {
    fn from(result: Result<Passed>) -> Verdict {
        match result {
            Ok(Passed::Done(note)) => Verdict::new(PASSED, &note),
            Ok(Passed::Refused(need)) => Verdict::new(REFUSED, need.words()),
            Err(Stop::NotRun(reason)) => Verdict::new(NOT_RUN, &reason),
            Err(Stop::Failed(message)) => Verdict::new(FAILED, &message),
        }
    }
}

impl Verdict {
    fn new(how: &str, note: &str) -> Verdict {
        Verdict { how: how.to_owned(), note: note.to_owned() }
    }

    /// As a cell of the table.
    pub fn words(&self) -> String {
        match (self.how.as_str(), self.note.as_str()) {
            (how, "") => how.to_owned(),
            (PASSED, note) => format!("{PASSED}, {note}"),
            (how, note) => format!("{how}: {note}"),
        }
    }
}

/// A column's results, one for each case, and how long they took.
pub struct Results {
    pub verdicts: Vec<Verdict>,
    pub seconds: u64,
}

impl Results {
    /// In words: counts, and what failed.
    pub fn summary(&self, name: &str) -> Result<String> {
        let count = |how: &str| self.verdicts.iter().filter(|found| found.how == how).count();
        let (passed, refused) = (count(PASSED), count(REFUSED));
        let failed: Vec<String> = CASES
            .iter()
            .zip(&self.verdicts)
            .filter(|(_, verdict)| verdict.how == FAILED)
            .map(|(case, verdict)| format!("{} ({})", case.shown(), verdict.words()))
            .collect();
        let left = match count(NOT_RUN) {
            0 => String::new(),
            left => format!(", {left} NOT RUN"),
        };
        let words = format!("{name} {passed} passed, {refused} refused{left} ({} s)", self.seconds);
        if passed == 0 {
            fail!("{words}: none passed");
        }
        if self.verdicts.len() != CASES.len() {
            fail!("{words}: {} of {} runs", self.verdicts.len(), CASES.len());
        }
        if failed.is_empty() {
            return Ok(words);
        }
        Err(format!("{words}, {} FAILED: {}", failed.len(), failed.join("; ")).into())
    }

    /// Writes the report.
    pub fn write(&self, file: &Path) -> Result<()> {
        let results: Vec<[&str; 2]> = self.verdicts.iter().map(|found| [&*found.how, &*found.note]).collect();
        let report = json!({ "results": results, "seconds": self.seconds });
        Ok(fs::write(file, report.to_string())?)
    }

    /// Reads one.
    pub fn read(file: &Path) -> Result<Results> {
        let value: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
        let verdict = |found: &Value| {
            Verdict::new(found[0].as_str().unwrap_or_default(), found[1].as_str().unwrap_or_default())
        };
        let verdicts = list(&value["results"]).iter().map(verdict).collect();
        Ok(Results { verdicts, seconds: value["seconds"].as_u64().unwrap_or(0) })
    }
}

/// Where the reports are; made if it is not there.
pub fn reports() -> Result<PathBuf> {
    target_folder("programs")
}

/// The report of a column.
pub fn report_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// The table of all reports. A column without a report shows NOT RUN.
pub fn page(folder: &Path) -> String {
    let columns: Vec<(&str, Option<Results>)> = COLUMNS
        .iter()
        .map(|column| (column.name, Results::read(&report_of(folder, column.name)).ok()))
        .collect();
    render(&columns)
}

fn render(columns: &[(&str, Option<Results>)]) -> String {
    let mut out = String::from("| program |");
    columns.iter().for_each(|(name, _)| out.extend([" ", name, " |"]));
    out.push_str("\n|---|");
    columns.iter().for_each(|_| out.push_str("---|"));
    out.push('\n');
    for (index, case) in CASES.iter().enumerate() {
        let _ = write!(out, "| `{}` |", case.shown());
        for (_, results) in columns {
            let cell = results.as_ref().and_then(|results| results.verdicts.get(index));
            let _ = write!(out, " {} |", cell.map_or_else(|| "NOT RUN".to_owned(), Verdict::words));
        }
        out.push('\n');
    }
    out.push_str("| all |");
    for (name, results) in columns {
        let words = match results.as_ref().map(|results| results.summary("")) {
            None => "NOT RUN".to_owned(),
            Some(Ok(words)) => words.trim().to_owned(),
            Some(Err(_)) => format!("{name} FAILED"),
        };
        let words = words.split(" (").next().unwrap_or_default();
        let _ = write!(out, " {words} |");
    }
    out.push('\n');
    out
}

/// Puts the table into the documentation.
pub fn save(page: &str) -> Result<()> {
    put(SAVED, MARKS, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(verdict: Verdict) -> Results {
        Results { verdicts: vec![verdict; CASES.len()], seconds: 3 }
    }

    #[test]
    fn what_failed_or_is_missing_is_told() {
        assert!(all(Verdict::new(PASSED, "")).summary("shm").is_ok());
        let mut one = all(Verdict::new(PASSED, ""));
        one.verdicts[2] = Verdict::new(FAILED, "no");
        let told = one.summary("shm").expect_err("one failed").words();
        assert!(told.contains(&format!("1 FAILED: {} (FAILED: no)", CASES[2].shown())), "{told}");
        one.verdicts[2] = Verdict::new(NOT_RUN, "not here");
        let told = one.summary("shm").expect("none failed");
        assert!(told.starts_with(&format!("shm {} passed, 0 refused, 1 NOT RUN", CASES.len() - 1)), "{told}");
        assert!(all(Verdict::new(NOT_RUN, "not here")).summary("shm").is_err(), "nothing ran");
        one.verdicts.truncate(2);
        assert!(one.summary("shm").expect_err("two of many").words().contains("2 of "));
    }

    #[test]
    fn a_report_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = all(Verdict::new(PASSED, "17 cases"));
        results.verdicts[0] = Verdict::new(REFUSED, "no such thing");
        results.verdicts[1] = Verdict::new(FAILED, "too much");
        results.verdicts[2] = Verdict::new(NOT_RUN, "not here");
        let file = report_of(folder.path(), "shm");
        results.write(&file).expect("written");
        let read = Results::read(&file).expect("read");
        assert_eq!((read.verdicts, read.seconds), (results.verdicts, 3));
    }

    #[test]
    fn the_table_has_every_program_and_says_what_did_not_run() {
        let page = render(&[("shm", Some(all(Verdict::new(PASSED, "")))), ("ibverbs", None)]);
        assert_eq!(page.lines().count(), CASES.len() + 3);
        assert!(page.contains("| `dtest -p -b 65536` | passed | NOT RUN |"), "{page}");
        assert!(
            page.ends_with(&format!("| all | {} passed, 0 refused | NOT RUN |\n", CASES.len())),
            "{page}"
        );
    }
}
