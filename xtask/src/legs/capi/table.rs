//! The table program x provider x result, from the reports the columns leave below the target directory.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cases::{CASES, COLUMNS};
use super::field::Passed;
use crate::cargo::target_dir;
use crate::markdown::between;
use crate::root::root;

/// Where the table is kept in the repository, and between which marks.
const SAVED: &str = "docs/c-library.md";
const MARKS: [&str; 2] = ["<!-- programs -->\n", "<!-- end of programs -->"];

/// How one run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed(String),
    Refused(String),
    /// It is not installed.
    NotRun(String),
    Failed(String),
}

impl From<Result<Passed, String>> for Verdict {
    fn from(result: Result<Passed, String>) -> Verdict {
        match result {
            Ok(Passed::Done(note)) => Verdict::Passed(note),
            Ok(Passed::Refused(need)) => Verdict::Refused(need.words().to_owned()),
            Err(message) => Verdict::Failed(message),
        }
    }
}

impl Verdict {
    /// As a cell of the table.
    pub fn words(&self) -> String {
        match self {
            Verdict::Passed(note) if note.is_empty() => "passed".to_owned(),
            Verdict::Passed(note) => format!("passed, {note}"),
            Verdict::Refused(why) => format!("refused: {why}"),
            Verdict::NotRun(why) => format!("NOT RUN: {why}"),
            Verdict::Failed(message) => format!("FAILED: {message}"),
        }
    }

    fn to_json(&self) -> Value {
        let (verdict, note) = match self {
            Verdict::Passed(note) => ("passed", note),
            Verdict::Refused(note) => ("refused", note),
            Verdict::NotRun(note) => ("not run", note),
            Verdict::Failed(note) => ("failed", note),
        };
        json!({ "verdict": verdict, "note": note })
    }

    fn from_json(value: &Value) -> Verdict {
        let note = value["note"].as_str().unwrap_or_default().to_owned();
        match value["verdict"].as_str() {
            Some("passed") => Verdict::Passed(note),
            Some("refused") => Verdict::Refused(note),
            Some("not run") => Verdict::NotRun(note),
            _ => Verdict::Failed(note),
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
    pub fn summary(&self, name: &str) -> Result<String, String> {
        let count = |wanted: fn(&Verdict) -> bool| self.verdicts.iter().filter(|found| wanted(found)).count();
        let passed = count(|found| matches!(found, Verdict::Passed(_)));
        let refused = count(|found| matches!(found, Verdict::Refused(_)));
        let failed: Vec<String> = CASES
            .iter()
            .zip(&self.verdicts)
            .filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_)))
            .map(|(case, verdict)| format!("{} ({})", case.shown(), verdict.words()))
            .collect();
        let left = match count(|found| matches!(found, Verdict::NotRun(_))) {
            0 => String::new(),
            left => format!(", {left} NOT RUN"),
        };
        let words = format!("{name} {passed} passed, {refused} refused{left} ({} s)", self.seconds);
        if passed == 0 {
            return Err(format!("{words}: none passed"));
        }
        if self.verdicts.len() != CASES.len() {
            return Err(format!("{words}: {} of {} runs", self.verdicts.len(), CASES.len()));
        }
        if failed.is_empty() {
            return Ok(words);
        }
        Err(format!("{words}, {} FAILED: {}", failed.len(), failed.join("; ")))
    }

    /// Writes the report.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        let results: Vec<Value> = self.verdicts.iter().map(Verdict::to_json).collect();
        let text = json!({ "results": results, "seconds": self.seconds }).to_string();
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Reads one.
    pub fn read(file: &Path) -> Result<Results, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let results = value["results"].as_array().map_or(&[][..], Vec::as_slice);
        let verdicts = results.iter().map(Verdict::from_json).collect();
        Ok(Results { verdicts, seconds: value["seconds"].as_u64().unwrap_or(0) })
    }
}

/// Where the reports are; made if it is not there.
pub fn reports() -> Result<PathBuf, String> {
    let folder = target_dir()?.join("programs");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
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
pub fn save(page: &str) -> Result<(), String> {
    let file = root().join(SAVED);
    let text = fs::read_to_string(&file).map_err(|error| format!("{SAVED}: {error}"))?;
    fs::write(&file, between(&text, SAVED, MARKS, page)?).map_err(|error| format!("{SAVED}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(verdict: Verdict) -> Results {
        Results { verdicts: vec![verdict; CASES.len()], seconds: 3 }
    }

    #[test]
    fn what_failed_or_is_missing_is_told() {
        assert!(all(Verdict::Passed(String::new())).summary("shm").is_ok());
        let mut one = all(Verdict::Passed(String::new()));
        one.verdicts[2] = Verdict::Failed("no".to_owned());
        let told = one.summary("shm").expect_err("one failed");
        assert!(told.contains(&format!("1 FAILED: {} (FAILED: no)", CASES[2].shown())), "{told}");
        one.verdicts[2] = Verdict::NotRun("not here".to_owned());
        let told = one.summary("shm").expect("none failed");
        assert!(told.starts_with(&format!("shm {} passed, 0 refused, 1 NOT RUN", CASES.len() - 1)), "{told}");
        assert!(all(Verdict::NotRun("not here".to_owned())).summary("shm").is_err(), "nothing ran");
        one.verdicts.truncate(2);
        assert!(one.summary("shm").expect_err("two of many").contains("2 of "));
    }

    #[test]
    fn a_report_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut results = all(Verdict::Passed("17 cases".to_owned()));
        results.verdicts[0] = Verdict::Refused("no such thing".to_owned());
        results.verdicts[1] = Verdict::Failed("too much".to_owned());
        results.verdicts[2] = Verdict::NotRun("not here".to_owned());
        let file = report_of(folder.path(), "shm");
        results.write(&file).expect("written");
        let read = Results::read(&file).expect("read");
        assert_eq!((read.verdicts, read.seconds), (results.verdicts, 3));
    }

    #[test]
    fn the_table_has_every_program_and_says_what_did_not_run() {
        let page = render(&[("shm", Some(all(Verdict::Passed(String::new())))), ("ibverbs", None)]);
        assert_eq!(page.lines().count(), CASES.len() + 3);
        assert!(page.contains("| `dtest -p -b 65536` | passed | NOT RUN |"), "{page}");
        assert!(
            page.ends_with(&format!("| all | {} passed, 0 refused | NOT RUN |\n", CASES.len())),
            "{page}"
        );
    }
}
