//! The process that runs the clauses: it says of each that it begins and how it ended, a line each, so that whoever
//! started it knows where it was lost. Whatever else is on its standard output is the provider's.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use dat_conformance::{Met, Report, Row, Verdict, clauses};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clauses_here;
use crate::args::Conformance;
use crate::failure::{Failure, Outcome};
use crate::output::{Shared, print};

/// Stands before each line, wherever a provider's output left off.
pub const MARK: &str = "dat-conformance-worker ";

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Line {
    /// The provider is open, under this name in reports.
    Opened(String),
    /// A clause begins.
    Begun(u16),
    /// A clause ended.
    Ended(Told),
    /// All of them did.
    Done { rows: Vec<Told>, codes: BTreeSet<u32>, met: BTreeSet<Met> },
    /// The run could not be made: the failure as JSON.
    Refused(Value),
}

/// A row without what every process knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    number: u16,
    verdict: Verdict,
    failures: u32,
    took: Duration,
}

impl Told {
    fn of(row: &Row) -> Told {
        Told { number: row.number, verdict: row.verdict.clone(), failures: row.failures, took: row.took }
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

/// Runs what it is asked to.
pub fn run(shared: &Shared, asked: &Conformance) -> Outcome<ExitCode> {
    // It does not outlive who started it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::new(error.to_string()))?;
    let report = clauses_here(
        shared,
        asked,
        |label| say(&Line::Opened(label.to_owned())),
        &|clause| say(&Line::Begun(clause.number)),
        &|row| say(&Line::Ended(Told::of(row))),
    );
    say(&match report {
        Ok(Report { rows, codes, met, .. }) => {
            Line::Done { rows: rows.iter().map(Told::of).collect(), codes, met }
        }
        Err(failure) => Line::Refused(failure.to_json()),
    });
    Ok(ExitCode::SUCCESS)
}

/// Nobody may be listening any more; then nothing is left to be said.
fn say(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        let _ = print(&format!("{MARK}{text}"));
    }
}
