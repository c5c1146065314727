//! The result of a run, for people, for other programs, and for test servers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use dat_types::{ReturnCode, Subtype};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clause::{BY_ENGINE, BY_TYPE, NOT_YET, name};
use crate::codes::{Met, Unmet, in_table, unmet};

/// How one clause ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not hold: what was seen.
    Failed(String),
    /// The clause is about an optional feature that the provider does not offer: which.
    NotSupported(String),
    /// The situation of the clause cannot arise with this provider, or cannot be arranged: why.
    NotApplicable(String),
    /// It does not hold, which is known: why.
    ExpectedFailure(String),
    /// It holds although it was expected not to; the expectation must go.
    UnexpectedPass(String),
}

/// One clause of a run.
#[derive(Clone, Debug)]
pub struct Row {
    /// The clause.
    pub number: u16,
    /// What it demands.
    pub title: &'static str,
    /// How it ended; the worst of several runs.
    pub verdict: Verdict,
    /// In how many runs it ended badly.
    pub failures: u32,
    /// How long it took.
    pub took: Duration,
}

/// A run over one provider.
#[derive(Clone, Debug)]
pub struct Report {
    /// The provider's label.
    pub label: String,
    /// What ran, by number.
    pub rows: Vec<Row>,
    /// How many times each ran.
    pub runs: u32,
    /// The values of all return codes of refused calls the clauses met, in this process.
    pub codes: BTreeSet<u32>,
    /// Which call gave which type of them.
    pub met: BTreeSet<Met>,
    /// How long the run took.
    pub took: Duration,
    /// Processes the provider ended, where no clause can be blamed alone.
    pub lost: Vec<String>,
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::NotSupported(_) => "not supported",
            Verdict::NotApplicable(_) => "not applicable",
            Verdict::ExpectedFailure(_) => "expected failure",
            Verdict::UnexpectedPass(_) => "UNEXPECTED PASS",
        }
    }

    fn text(&self) -> &str {
        match self {
            Verdict::Passed => "",
            Verdict::Failed(text)
            | Verdict::NotSupported(text)
            | Verdict::NotApplicable(text)
            | Verdict::ExpectedFailure(text)
            | Verdict::UnexpectedPass(text) => text,
        }
    }

    pub(crate) fn is_bad(&self) -> bool {
        matches!(self, Verdict::Failed(_) | Verdict::UnexpectedPass(_))
    }

    /// The worse of two runs counts.
    fn rank(&self) -> u8 {
        match self {
            Verdict::Failed(_) => 4,
            Verdict::UnexpectedPass(_) => 3,
            Verdict::ExpectedFailure(_) => 2,
            // A clause that could not be tried once but held another time was tried.
            Verdict::Passed => 1,
            Verdict::NotSupported(_) | Verdict::NotApplicable(_) => 0,
        }
    }
}

impl Report {
    /// Whether the provider conforms: clauses ran, none failed, none passed against expectation, no process was lost.
    pub fn conforming(&self) -> bool {
        self.ran() > 0 && self.lost.is_empty() && !self.rows.iter().any(|row| row.verdict.is_bad())
    }

    /// Adds another run over the same clauses.
    pub(crate) fn merge(&mut self, other: Report) {
        for (row, new) in self.rows.iter_mut().zip(other.rows) {
            row.failures += new.failures;
            row.took = row.took.max(new.took);
            if new.verdict.rank() > row.verdict.rank() {
                row.verdict = new.verdict;
            }
        }
        self.runs += other.runs;
        self.codes.extend(other.codes);
        self.met.extend(other.met);
        self.took += other.took;
        self.lost.extend(other.lost);
    }

    /// The return codes of the calls that no clause met.
    pub fn unmet(&self) -> Vec<Unmet> {
        unmet(&self.met)
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.rows.iter().filter(|row| which(&row.verdict)).count()
    }

    fn unsupported(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::NotSupported(_)))
    }

    fn inapplicable(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::NotApplicable(_)))
    }

    /// Clauses that were tested: all but those not supported and those not applicable.
    pub fn ran(&self) -> usize {
        self.rows.len() - self.unsupported() - self.inapplicable()
    }

    /// Clauses that passed.
    pub fn passed(&self) -> usize {
        self.count(|verdict| *verdict == Verdict::Passed)
    }

    /// One line: the row of the matrix provider × clauses.
    pub fn matrix_row(&self) -> String {
        let mut line = format!(
            "{}  clauses {}: run {} / passed {} / expected failures {} / not supported {} / n/a {}",
            self.label,
            self.rows.len(),
            self.ran(),
            self.passed(),
            self.count(|verdict| matches!(verdict, Verdict::ExpectedFailure(_))),
            self.unsupported(),
            self.inapplicable(),
        );
        let bad = self.count(Verdict::is_bad);
        if bad > 0 {
            let _ = write!(line, " / FAILED {bad}");
        }
        line
    }

    /// All there is to say, for people. Passed clauses in full only with `verbose`.
    pub fn to_text(&self, verbose: bool) -> String {
        let mut out = String::new();
        for row in &self.rows {
            if row.verdict == Verdict::Passed && !verbose {
                continue;
            }
            let _ = write!(out, "{} {:16} {}", name(row.number), row.verdict.word(), row.title);
            if !row.verdict.text().is_empty() {
                let _ = write!(out, "\n                       {}", row.verdict.text());
            }
            if self.runs > 1 && row.verdict.is_bad() {
                let _ = write!(out, "\n                       in {} of {} runs", row.failures, self.runs);
            }
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "not written yet {} / excluded by types {}, by the engine {} / return codes met {}, by call {} of {} / {} took {:.1} s",
            not_yet(),
            BY_TYPE.len(),
            BY_ENGINE.len(),
            self.codes.len(),
            in_table() - self.unmet().len(),
            in_table(),
            if self.runs == 1 { "one run".to_owned() } else { format!("{} runs", self.runs) },
            self.took.as_secs_f64()
        );
        for lost in &self.lost {
            let _ = writeln!(out, "LOST: {lost}");
        }
        if self.ran() == 0 {
            out.push_str("no clause ran: that proves nothing and counts as a failure\n");
        }
        out.push_str(&self.matrix_row());
        out.push('\n');
        out
    }

    /// For other programs.
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "clause": name(row.number),
                    "title": row.title,
                    "verdict": row.verdict.word().to_lowercase(),
                    "message": row.verdict.text(),
                    "failures": row.failures,
                    "milliseconds": row.took.as_secs_f64() * 1e3,
                })
            })
            .collect();
        let pending: Vec<Value> = NOT_YET
            .iter()
            .map(|(first, last, reason)| json!({"first": first, "last": last, "reason": reason}))
            .collect();
        let excluded = |clauses: &[(u16, &str)]| -> Vec<Value> {
            clauses.iter().map(|(number, reason)| json!({"clause": number, "reason": reason})).collect()
        };
        let unmet: Vec<Value> = self
            .unmet()
            .iter()
            .map(|unmet| {
                let code = ReturnCode::error(unmet.code, Subtype::None).to_string();
                json!({"call": unmet.call, "code": code, "reason": unmet.reason})
            })
            .collect();
        json!({
            "provider": self.label,
            "conforming": self.conforming(),
            "ran": self.ran(),
            "passed": self.passed(),
            "not_supported": self.unsupported(),
            "not_applicable": self.inapplicable(),
            "runs": self.runs,
            "seconds": self.took.as_secs_f64(),
            "return_codes": self.codes.iter().map(|code| ReturnCode(*code).to_string()).collect::<Vec<_>>(),
            "return_codes_of_calls": in_table(),
            "return_codes_not_met": unmet,
            "clauses": rows,
            "lost": self.lost,
            "not_written_yet": pending,
            "ruled_out_by_types": excluded(BY_TYPE),
            "ruled_out_by_engine": excluded(BY_ENGINE),
        })
    }

    /// For test servers that read JUnit's XML.
    pub fn to_junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            escaped(&self.label),
            self.rows.len() + self.lost.len(),
            self.count(Verdict::is_bad) + self.lost.len(),
            self.rows.len() - self.ran()
                + self.count(|verdict| matches!(verdict, Verdict::ExpectedFailure(_))),
            self.took.as_secs_f64()
        );
        for row in &self.rows {
            let _ = write!(
                out,
                "  <testcase classname=\"{}\" name=\"{} {}\" time=\"{:.3}\"",
                escaped(&self.label),
                name(row.number),
                escaped(row.title),
                row.took.as_secs_f64()
            );
            let text = escaped(row.verdict.text());
            let _ = match &row.verdict {
                Verdict::Passed => writeln!(out, "/>"),
                bad if bad.is_bad() => writeln!(out, "><failure message=\"{text}\"/></testcase>"),
                other => writeln!(out, "><skipped message=\"{}: {text}\"/></testcase>", other.word()),
            };
        }
        for lost in &self.lost {
            let (label, lost) = (escaped(&self.label), escaped(lost));
            let _ = writeln!(
                out,
                "  <testcase classname=\"{label}\" name=\"a process was lost\"><failure message=\"{lost}\"/></testcase>"
            );
        }
        out.push_str("</testsuite>\n");
        out
    }
}

/// How many clauses have no test yet.
fn not_yet() -> usize {
    NOT_YET.iter().map(|(first, last, _)| (last - first + 1) as usize).sum()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let row = |verdict: &Verdict| Row {
            number: 7,
            title: "a < b",
            verdict: verdict.clone(),
            failures: u32::from(verdict.is_bad()),
            took: Duration::ZERO,
        };
        let rows = verdicts.iter().map(row).collect();
        let (codes, met, lost) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Report { label: "x".into(), rows, runs: 1, codes, met, took: Duration::ZERO, lost }
    }

    #[test]
    fn only_a_run_that_ran_and_did_not_fail_conforms() {
        assert!(!report(&[]).conforming());
        assert!(!report(&[Verdict::NotSupported("r".into())]).conforming());
        assert!(!report(&[Verdict::NotApplicable("r".into())]).conforming());
        assert!(report(&[Verdict::Passed, Verdict::ExpectedFailure("r".into())]).conforming());
        assert!(!report(&[Verdict::Passed, Verdict::UnexpectedPass("r".into())]).conforming());
        assert!(!report(&[Verdict::Passed, Verdict::Failed("m".into())]).conforming());
        let lost = Report { lost: vec!["a process".into()], ..report(&[Verdict::Passed]) };
        assert!(!lost.conforming() && lost.to_text(false).contains("LOST: a process"));
        assert!(lost.to_junit().contains("tests=\"2\" failures=\"1\""), "{}", lost.to_junit());
    }

    #[test]
    fn the_worst_of_several_runs_counts() {
        let mut sum = report(&[Verdict::Passed, Verdict::NotSupported("n".into())]);
        sum.merge(report(&[Verdict::Failed("once".into()), Verdict::Passed]));
        sum.merge(report(&[Verdict::Passed, Verdict::Passed]));
        assert!(!sum.conforming());
        assert_eq!((sum.runs, sum.passed(), sum.rows[0].failures), (3, 1, 1));
        assert!(sum.to_text(false).contains("in 1 of 3 runs"), "{}", sum.to_text(false));
    }

    #[test]
    fn forms_carry_the_same_counts_and_escape_text() {
        let report = report(&[
            Verdict::Passed,
            Verdict::Failed("\"<&>\"".into()),
            Verdict::NotSupported("n".into()),
            Verdict::NotApplicable("a".into()),
        ]);
        assert_eq!(
            report.matrix_row(),
            "x  clauses 4: run 2 / passed 1 / expected failures 0 / not supported 1 / n/a 1 / FAILED 1"
        );
        assert_eq!(report.to_json()["passed"], 1);
        let junit = report.to_junit();
        assert!(junit.contains("tests=\"4\" failures=\"1\" skipped=\"2\""));
        assert!(junit.contains("&quot;&lt;&amp;&gt;&quot;") && junit.contains("a &lt; b"));
    }
}
