//! Runs the clauses in a child process and watches it. If the provider ends that process, its current clauses run again,
//! each alone in a process. Thus the faulty clause is found. Then the run continues with the remaining clauses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dat_conformance::{DEADLINE, Met, Report, Row, Verdict, clauses};

use super::subject::{arguments, filter};
use super::worker::{Line, MARK, title};
use crate::args::Conformance;
use crate::child::{self, ChildGuard, crash};
use crate::failure::{Context as _, Failure, Outcome};
use crate::output::Shared;

/// Crashes after which the run gives up.
const MOST_LOST: usize = 100;

/// Interval of checks whether a silent process still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Time limit for a process to end after its last line.
const TO_END: Duration = Duration::from_secs(30);

/// One process and its progress.
#[derive(Default)]
struct Run {
    label: Option<String>,
    running: BTreeSet<u16>,
    rows: BTreeMap<u16, Row>,
    codes: BTreeSet<u32>,
    met: BTreeSet<Met>,
    done: bool,
    refused: Option<Failure>,
    /// How it crashed, if it did.
    lost: Option<String>,
}

/// Runs the clauses and calls `ended` for each.
pub fn run(shared: &Shared, asked: &Conformance, ended: &dyn Fn(&Row)) -> Outcome<Report> {
    let start = Instant::now();
    let chosen: Vec<u16> = filter(asked)?.taken().map(|clause| clause.number).collect();
    let mut report = Report {
        label: called(asked),
        rows: Vec::new(),
        runs: asked.repeat,
        codes: BTreeSet::new(),
        met: BTreeSet::new(),
        took: Duration::ZERO,
        lost: Vec::new(),
    };
    let mut rows = BTreeMap::new();
    let mut filters = asked.filters.clone();
    for _ in 0..MOST_LOST {
        let mut run = process(shared, asked, &filters, ended)?;
        match run.refused.take() {
            Some(failure) if rows.is_empty() => return Err(failure),
            Some(failure) => report.lost.push(failure.to_string()),
            None => {}
        }
        let (opened, stuck) = (run.label.is_some(), run.rows.is_empty() && run.running.is_empty());
        report.label = run.label.take().unwrap_or(report.label);
        report.codes.append(&mut run.codes);
        report.met.append(&mut run.met);
        rows.append(&mut run.rows);
        match run.lost.take() {
            Some(how) if run.running.is_empty() => {
                let when = match (opened, run.done) {
                    (false, _) => "while the provider was loaded and opened",
                    (_, false) => "between clauses",
                    (_, true) => "after the last clause",
                };
                report.lost.push(format!("{when} the process ended: {how}"));
            }
            Some(how) => {
                let blamed = alone(shared, asked, &run.running, &mut rows, &mut report, ended)?;
                if !blamed {
                    let names: Vec<String> = run.running.iter().map(|number| name(*number)).collect();
                    let names = names.join(", ");
                    report.lost.push(format!("{how}, while {names} ran; alone each of them ends in order"));
                }
            }
            None => {}
        }
        filters = chosen.iter().filter(|number| !rows.contains_key(number)).map(|n| name(*n)).collect();
        if filters.is_empty() || stuck {
            break;
        }
    }
    if !filters.is_empty() {
        report.lost.push(format!("{} clauses were not run: {}", filters.len(), filters.join(" ")));
    }
    report.rows = rows.into_values().collect();
    report.took = start.elapsed();
    Ok(report)
}

/// Runs each of these clauses in a process of its own. Returns whether one of them crashed.
fn alone(
    shared: &Shared,
    asked: &Conformance,
    clauses: &BTreeSet<u16>,
    rows: &mut BTreeMap<u16, Row>,
    report: &mut Report,
    ended: &dyn Fn(&Row),
) -> Outcome<bool> {
    let mut blamed = false;
    for number in clauses {
        let start = Instant::now();
        let mut run = process(shared, asked, &[name(*number)], ended)?;
        report.codes.append(&mut run.codes);
        report.met.append(&mut run.met);
        let row = match (run.lost, run.rows.remove(number)) {
            (None, Some(row)) => row,
            (lost, _) => {
                blamed = true;
                let how = lost.or(run.refused.map(|failure| failure.to_string())).unwrap_or_default();
                let verdict = Verdict::Failed(format!("the process that ran it ended: {how}"));
                let row = Row {
                    number: *number,
                    title: title(*number),
                    verdict,
                    failures: 1,
                    took: start.elapsed(),
                };
                ended(&row);
                row
            }
        };
        rows.insert(*number, row);
    }
    Ok(blamed)
}

/// Runs these clauses in a process.
fn process(shared: &Shared, asked: &Conformance, filters: &[String], ended: &dyn Fn(&Row)) -> Outcome<Run> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut command = Command::new(&program);
    command.args(words(shared, asked, filters));
    let (mut child, errors, lines) = child::start(&mut command)?;
    let mut run = Run::default();
    let most = DEADLINE.mul_f64(2.0 * asked.scale.max(1.0)) + TO_END;
    let status = watch(&mut child, &lines, &mut run, most, ended)?;
    run.lost = match status {
        None => Some(format!("it said nothing for {most:?} and was ended")),
        Some(status) if run.done || run.refused.is_some() => crash(status, &errors),
        Some(status) => Some(crash(status, &errors).unwrap_or("exit status 0, in the middle".into())),
    };
    errors.rest();
    Ok(run)
}

/// Reads until the process has ended. None if it did not.
fn watch(
    child: &mut ChildGuard,
    lines: &Receiver<String>,
    run: &mut Run,
    most: Duration,
    ended: &dyn Fn(&Row),
) -> Outcome<Option<ExitStatus>> {
    let mut last_line = Instant::now();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                run.read_line(&line, ended);
                last_line = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => return child.wait(TO_END),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.0.try_wait()? {
                    while let Ok(line) = lines.recv_timeout(LOOK) {
                        run.read_line(&line, ended);
                    }
                    return Ok(Some(status));
                }
                if last_line.elapsed() > most {
                    return Ok(None);
                }
            }
        }
    }
}

impl Run {
    fn read_line(&mut self, line: &str, ended: &dyn Fn(&Row)) {
        let said = line.split_once(MARK).map(|(before, said)| (before, serde_json::from_str::<Line>(said)));
        let (before, said) = match said {
            Some((before, Ok(said))) => (before, Some(said)),
            _ => (line, None),
        };
        // Output of the plugin itself.
        if !before.is_empty() {
            eprintln!("{before}");
        }
        match said {
            Some(Line::Opened(label)) => self.label = Some(label),
            Some(Line::Begun(number)) => drop(self.running.insert(number)),
            Some(Line::Ended(told)) => {
                let row = told.row();
                self.running.remove(&row.number);
                ended(&row);
                self.rows.insert(row.number, row);
            }
            Some(Line::Done { rows, codes, met }) => {
                let rows = rows.into_iter().map(|told| told.row());
                self.rows = rows.map(|row| (row.number, row)).collect();
                (self.codes, self.met, self.done) = (codes, met, true);
            }
            Some(Line::Refused(failure)) => self.refused = Some(Failure::of_json(&failure)),
            None => {}
        }
    }
}

fn words(shared: &Shared, asked: &Conformance, filters: &[String]) -> Vec<String> {
    let mut args = vec!["-v".to_owned(); shared.verbose.into()];
    args.extend(arguments(shared, "conformance-worker", &asked.tested));
    let mut say = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    if let Some(name) = &asked.tested.ia_name {
        say(&["--ia-name", name]);
    }
    for clause in filters {
        say(&["--filter", clause]);
    }
    if let Some(file) = &asked.expected {
        say(&["--expected", &file.to_string_lossy()]);
    }
    say(&["--repeat", &asked.repeat.to_string(), "--scale", &asked.scale.to_string()]);
    if let Some(name) = &asked.tested.name {
        say(&["--", name]);
    }
    args
}

fn name(number: u16) -> String {
    clauses().iter().find(|clause| clause.number == number).map_or_else(String::new, |clause| clause.name())
}

/// The tested provider, before its name is known.
fn called(asked: &Conformance) -> String {
    let path = || asked.tested.plugin.as_ref().map(|path| path.display().to_string());
    asked.tested.name.clone().or_else(path).unwrap_or_default()
}
