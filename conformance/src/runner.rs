//! Runs clauses: each on a thread of its own with a deadline, several at a time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::catalog::clauses;
use crate::check::Stop;
use crate::clause::{Clause, INSPECTS_CODES, Need, name};
use crate::context::TestContext;
use crate::expected::Expected;
use crate::fixture::{Codes, Fixture, Seen};
use crate::report::{Report, Row, Verdict};
use crate::subject::Subject;

/// How long one clause may take, before scaling.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// How many clauses run at a time. Most of what they do is wait.
const AT_A_TIME: usize = 4;

/// Which clauses to run.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<String>);

impl Filter {
    /// All of them.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Those whose name (`C-007`) begins with one of `prefixes`.
    pub fn prefixes(prefixes: impl IntoIterator<Item = String>) -> Filter {
        Filter(prefixes.into_iter().collect())
    }

    /// How many clauses it takes.
    pub fn count(&self) -> usize {
        self.taken().count()
    }

    /// The clauses it takes.
    pub fn taken(&self) -> impl Iterator<Item = &'static Clause> {
        clauses().into_iter().filter(|clause| self.takes(clause))
    }

    fn takes(&self, clause: &Clause) -> bool {
        let name = clause.name();
        self.0.is_empty() || self.0.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

impl Clause {
    /// As in `C-007`, or `P-007` for a test at the plugin interface.
    pub fn name(&self) -> String {
        name(self.number)
    }
}

/// How to run, beyond which clauses.
pub struct Options<'a> {
    /// How many times in a row: a clause holds when it holds each time.
    pub repeat: u32,
    /// Called for every clause that begins, on any thread.
    pub begun: &'a (dyn Fn(&Clause) + Sync),
    /// Called for every clause that ended, on any thread.
    pub progress: &'a (dyn Fn(&Row) + Sync),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { repeat: 1, begun: &|_| {}, progress: &|_| {} }
    }
}

/// Runs the clauses `filter` takes against `subject`, once.
pub fn run(subject: Subject, filter: &Filter, expected: &Expected) -> Report {
    run_with(subject, filter, expected, &Options::default())
}

/// The same with options.
pub fn run_with(subject: Subject, filter: &Filter, expected: &Expected, options: &Options<'_>) -> Report {
    let subject = Arc::new(subject);
    let mut report = once(&subject, filter, expected, options);
    for _ in 1..options.repeat {
        report.merge(once(&subject, filter, expected, options));
    }
    report
}

/// Clauses that need the process alone run after the others. The clause that inspects all return codes is last.
fn once(subject: &Arc<Subject>, filter: &Filter, expected: &Expected, options: &Options<'_>) -> Report {
    let start = Instant::now();
    let codes = Codes::default();
    let (mut last, first): (Vec<_>, Vec<_>) = clauses()
        .into_iter()
        .filter(|clause| filter.takes(clause))
        .partition(|clause| clause.needs.contains(&Need::Alone) || clause.number == INSPECTS_CODES);
    last.sort_by_key(|clause| clause.number == INSPECTS_CODES);
    let queue = Mutex::new(VecDeque::from(first));
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(clause) = queue.lock().pop_front() else { return };
                    (options.begun)(clause);
                    let row = run_one(subject, clause, &codes, expected);
                    (options.progress)(&row);
                    rows.lock().push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner();
    for clause in last.drain(..) {
        (options.begun)(clause);
        let row = run_one(subject, clause, &codes, expected);
        (options.progress)(&row);
        rows.push(row);
    }
    rows.sort_by_key(|row| row.number);
    let Seen { codes, met } = codes.lock().clone();
    let (label, took) = (subject.label.clone(), start.elapsed());
    Report { label, rows, runs: 1, codes, met, took, lost: Vec::new() }
}

fn run_one(subject: &Arc<Subject>, clause: &'static Clause, codes: &Codes, expected: &Expected) -> Row {
    let start = Instant::now();
    let result = match unmet(subject, clause) {
        Some(stop) => Err(stop),
        None => guarded(subject, clause, codes),
    };
    let verdict = match (result, expected.reason(clause.number)) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(reason)) => Verdict::UnexpectedPass(reason.into()),
        (Err(Stop::NotSupported(reason)), _) => Verdict::NotSupported(reason),
        (Err(Stop::NotApplicable(reason)), _) => Verdict::NotApplicable(reason),
        (Err(Stop::Failed(message)), None) => Verdict::Failed(message),
        (Err(Stop::Failed(message)), Some(reason)) => {
            Verdict::ExpectedFailure(format!("{reason} ({message})"))
        }
    };
    let failures = u32::from(verdict.is_bad());
    Row { number: clause.number, title: clause.title, verdict, failures, took: start.elapsed() }
}

fn unmet(subject: &Subject, clause: &Clause) -> Option<Stop> {
    clause.needs.iter().find_map(|need| need.unmet(subject))
}

/// Runs the clause on a thread of its own: a hang or panic fails the clause and does not end the run.
fn guarded(subject: &Arc<Subject>, clause: &'static Clause, codes: &Codes) -> Result<(), Stop> {
    let fixture = Fixture::new(subject.scale, codes.clone());
    let context = TestContext::new(subject.clone(), fixture.clone());
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().name(clause.name()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| (clause.run)(&context)));
        let result = match result {
            Ok(result) => catch_unwind(AssertUnwindSafe(|| drop(context))).map(|()| result),
            Err(panic) => Err(panic),
        };
        let _ = sender.send(result);
    });
    if let Err(error) = spawned {
        return Err(Stop::Failed(format!("no thread for it: {error}")));
    }
    let deadline = subject.scaled_time(DEADLINE);
    match receiver.recv_timeout(deadline) {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(Stop::Failed(format!("panicked: {}", panic_text(panic.as_ref())))),
        Err(RecvTimeoutError::Timeout) => {
            Err(Stop::Failed(format!("hung for {deadline:?}, waiting for {}", fixture.what())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Stop::Failed("its thread ended without a result".into())),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without a message",
    }
}
