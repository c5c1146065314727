//! The process that runs the clauses. It prints a line for each start and each end of a clause, so its parent knows where it
//! crashed. All other lines on its standard output are the provider's.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use dat_conformance::{Met, Report, Row, Verdict, clauses};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::subject::clauses_here;
use crate::args::Conformance;
use crate::failure::{Failure, Outcome};
use crate::output::{Shared, print};

/// Marks the lines of this process among a provider's output.
pub const MARK: &str = "dat-conformance-worker ";

/// A line of its output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Line {
    /// The provider is open, under this name in reports.
    Opened(String),
    /// A clause begins.
    Begun(u16),
    /// A clause ended.
    Ended(RowLine),
    /// All of them did.
    Done { rows: Vec<RowLine>, codes: BTreeSet<u32>, met: BTreeSet<Met> },
    /// The run could not be made: the failure as JSON.
    Refused(Value),
}

/// A row without what every process knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowLine {
    number: u16,
    verdict: Verdict,
    failures: u32,
    took: Duration,
}

impl RowLine {
    fn of(row: &Row) -> RowLine {
        RowLine { number: row.number, verdict: row.verdict.clone(), failures: row.failures, took: row.took }
    }

    /// The row again.
    pub fn row(self) -> Row {
        let title = title(self.number);
        Row { number: self.number, title, verdict: self.verdict, failures: self.failures, took: self.took }
    }
}

/// What the clause of this number demands.
pub fn title(number: u16) -> &'static str {
    clauses().iter().find(|clause| clause.number == number).map_or("", |clause| clause.title)
}

/// Runs the requested clauses.
pub fn run(shared: &Shared, asked: &Conformance) -> Outcome<ExitCode> {
    // It does not outlive its parent.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::new(error.to_string()))?;
    let report = clauses_here(
        shared,
        asked,
        |label| say(&Line::Opened(label.to_owned())),
        &|clause| say(&Line::Begun(clause.number)),
        &|row| say(&Line::Ended(RowLine::of(row))),
    );
    say(&match report {
        Ok(Report { rows, codes, met, .. }) => {
            Line::Done { rows: rows.iter().map(RowLine::of).collect(), codes, met }
        }
        Err(failure) => Line::Refused(failure.to_json()),
    });
    Ok(ExitCode::SUCCESS)
}

/// Prints a line. The reader may have ended; that is not an error.
fn say(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        let _ = print(&format!("{MARK}{text}"));
    }
}
