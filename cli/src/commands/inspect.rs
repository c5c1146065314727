//! `dat inspect`: facts of a plugin's file, read without running it. With `--try` a child process loads it.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use dat::registry::inspection::{FileReport, Trial, file, trial};
use serde::Serialize;
use serde_json::json;

use crate::args::Inspect;
use crate::child::{ChildGuard, ErrorOutput, crash};
use crate::failure::{Context as _, Failure, Outcome};
use crate::output::{Shared, Table, print};

/// Result of a load in a child process.
#[derive(Debug, Serialize)]
struct Tried {
    /// Whether it loaded and the child ended in order.
    ok: bool,
    /// How it ended, in one sentence.
    verdict: String,
    /// The child's report, if it got that far.
    #[serde(flatten)]
    trial: Option<Trial>,
}

/// Reads the file, tries it if asked to. Fails when this host would not load it or the load failed.
pub fn run(shared: &Shared, asked: &Inspect) -> Outcome<ExitCode> {
    let report = file(&asked.library);
    // An unloadable file is not tried; the report has the reason.
    let tried = match asked.try_it && report.loads.ok {
        true => Some(try_in_child(&asked.library, asked.timeout)?),
        false => None,
    };
    shared.print(|| json!({ "file": report, "trial": tried }), || text(&report, tried.as_ref()))?;
    let ok = report.loads.ok && tried.is_none_or(|tried| tried.ok);
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The child: loads the plugin and prints the result as one line of JSON.
pub fn child(library: &Path) -> Outcome<ExitCode> {
    let trial = trial(library);
    let line = serde_json::to_string(&trial).map_err(|error| Failure::new(error.to_string()))?;
    print(&line)?;
    Ok(ExitCode::SUCCESS)
}

fn try_in_child(library: &Path, limit: Duration) -> Outcome<Tried> {
    let binary = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let child = Command::new(&binary)
        .arg("inspect-child")
        .arg(library)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("{} cannot be started", binary.display()))?;
    let mut child = ChildGuard(child);
    let errors = ErrorOutput::of(child.0.stderr.take());
    let mut output =
        child.0.stdout.take().ok_or_else(|| Failure::new("the child's output is not readable"))?;
    // Reads have no time-out; the thread ends with the child at the latest.
    let reader = thread::spawn(move || {
        let mut said = String::new();
        let _ = output.read_to_string(&mut said);
        said
    });
    let name = library.display();
    let Some(status) = child.wait(limit)? else {
        let verdict = format!("{name} did not load within {limit:?}; the child was ended");
        return Ok(Tried { ok: false, verdict, trial: None });
    };
    let said = reader.join().unwrap_or_default();
    // A plugin may print during its load. The result is the last line.
    let trial: Option<Trial> = said.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let error = trial.as_ref().and_then(|trial| trial.error.clone());
    let crashed = crash(status, &errors);
    errors.rest();
    let verdict = match (&error, &crashed, &trial) {
        (_, Some(how), None) => format!("{name} ended the child that loaded it: {how}"),
        (_, Some(how), Some(_)) => format!("{name} loaded, and then ended the child: {how}"),
        (Some(error), None, _) => error.clone(),
        (None, None, Some(trial)) => format!("loads in {} µs", trial.load_us),
        (None, None, None) => format!("{name} ended the child that loaded it, with status 0"),
    };
    let ok = error.is_none() && trial.is_some() && crashed.is_none();
    Ok(Tried { ok, verdict, trial })
}

fn text(report: &FileReport, tried: Option<&Tried>) -> String {
    let mut text = String::new();
    if let Some(said) = &report.says {
        let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
        let mut table = Table::new(&["plugin", &said.name], usize::MAX);
        let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        row("version", said.version.clone());
        row("interface", format!("{}.{}", said.abi.0, said.abi.1));
        row("capabilities", said.capabilities.as_deref().map_or("not said".into(), list));
        row("tables", said.root.clone().unwrap_or("none".into()));
        row("needs", list(&said.needed));
        if let Some(path) = &said.run_path {
            row("run path", path.clone());
        }
        text.push_str(&table.text());
    }
    text.push_str(&report.loads.reason);
    if let Some(tried) = tried {
        text.push_str(&format!("\ntried: {}", tried.verdict));
        for probe in tried.trial.iter().flat_map(|trial| &trial.probes) {
            let word = if probe.usable { "usable" } else { "not usable" };
            text.push_str(&format!("\n  {}: {word}: {}", probe.candidate, probe.reason));
        }
    }
    text
}
