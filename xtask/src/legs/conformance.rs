//! The clauses of the contract over every provider of the tree, and the matrix of the results.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::root;

/// A provider under test: its label and what the runner is told. Peers of a plugin are processes of their own, which
/// load it as applications do.
struct Subject {
    name: &'static str,
    how: How,
}

enum How {
    Linked,
    Plugin(&'static str),
}

const SUBJECTS: [Subject; 2] = [
    Subject { name: "loopback0", how: How::Linked },
    Subject { name: "shm0", how: How::Plugin("libdat_shm.so") },
];

/// Where the matrix is kept in the repository.
const SAVED: &str = "docs/conformance.md";

/// Builds the runner and the plugins, runs each provider, prints the matrix and keeps it under the target directory,
/// with `save` in `docs/` too.
pub fn run(save: bool) -> Report {
    cargo().args(["build", "-p", "dat-conformance", "-p", "dat-shm"]).run()?;
    let built = target_dir()?.join("debug");
    let out = target_dir()?.join("conformance");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut failures = Vec::new();
    let mut reports = Vec::new();
    for subject in &SUBJECTS {
        let json = out.join(format!("{}.json", subject.name));
        // What an earlier run left must not be taken for the result of this one.
        let _ = fs::remove_file(&json);
        if let Err(message) = runner(subject, &built, &json).run() {
            failures.push(format!("{}: {message}", subject.name));
        }
        match read(&json) {
            Ok(report) if report["ran"].as_u64().unwrap_or(0) == 0 => {
                failures.push(format!("{}: no clause ran", subject.name));
            }
            Ok(report) => reports.push(report),
            Err(message) => failures.push(message),
        }
    }
    if save {
        // Takes minutes, and needs an emulated machine or a device; so only for the page that is kept.
        match super::rdma::run() {
            Ok(Outcome::Passed(_)) => reports.push(read(&out.join(super::rdma::REPORT))?),
            Ok(Outcome::NotRun(why)) => println!("ibverbs: NOT RUN: {why}"),
            Err(message) => failures.push(message),
        }
    }
    let page = page(&reports);
    println!("\n{page}");
    write(&out.join("matrix.md"), &page)?;
    match save {
        true => write(&root().join(SAVED), &page)?,
        false if fs::read_to_string(root().join(SAVED)).ok().as_ref() != Some(&page) => {
            println!("{SAVED} has other results; `cargo xtask conformance --save` writes these there");
        }
        false => {}
    }
    match failures.is_empty() {
        true => Ok(Outcome::passed(format!("{}; reports in {}", words(&reports), out.display()))),
        false => Err(failures.join("; ")),
    }
}

fn runner(subject: &Subject, built: &Path, json: &Path) -> Run {
    let mut arguments: Vec<PathBuf> = match subject.how {
        How::Linked => vec!["loopback".into()],
        How::Plugin(file) => vec!["--plugin".into(), built.join(file)],
    };
    let expected = root().join(format!("tests/expected/{}.toml", subject.name));
    if expected.exists() {
        arguments.extend(["--expected".into(), expected]);
    }
    arguments.extend(["--name".into(), subject.name.into(), "--json".into(), json.to_owned()]);
    arguments.extend(["--junit".into(), json.with_extension("junit.xml")]);
    Run::new(&built.join("dat-conformance").to_string_lossy()).args(arguments)
}

fn read(json: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(json).map_err(|error| format!("{}: {error}", json.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The matrix, and every clause that did not simply pass.
fn page(reports: &[Value]) -> String {
    let mut out = String::from(
        "# Conformance\n\nWritten by `cargo xtask conformance --save`. Clauses of the contract (C) and tests at the plugin interface \
         (P) for each provider. The same of any other one: `dat conformance NAME`.\n\n\
         | provider | clauses | run | passed | expected failures | not supported | failed |\n|---|---|---|---|---|---|---|\n",
    );
    for report in reports {
        let count = |verdicts: &[&str]| with(report, verdicts).count();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            text(&report["provider"]),
            clauses(report).len(),
            report["ran"],
            report["passed"],
            count(&["expected failure"]),
            count(&["not supported"]),
            count(&BAD),
        );
    }
    if let Some(report) = reports.first() {
        let pending: u64 = list(&report["not_written_yet"]).iter().map(span).sum();
        let by_type = list(&report["ruled_out_by_types"]).len();
        let _ = writeln!(
            out,
            "\nFurther clauses: {pending} not written yet, {by_type} ruled out by Rust's types."
        );
    }
    for report in reports {
        let _ = writeln!(out, "\n## {}\n", text(&report["provider"]));
        let notable: Vec<&Value> =
            with(report, &["expected failure", "not supported"]).chain(with(report, &BAD)).collect();
        if notable.is_empty() {
            out.push_str("All clauses that ran passed.\n");
        }
        for clause in notable {
            let (number, title) = (text(&clause["clause"]), text(&clause["title"]));
            let _ = writeln!(
                out,
                "- {number} {}: {title} ({})",
                text(&clause["verdict"]),
                text(&clause["message"])
            );
        }
    }
    if let Some(report) = reports.first() {
        out.push_str(
            "\n## Ruled out by Rust's types\n\nCalls these clauses are about cannot be written in Rust.\n\n",
        );
        for clause in list(&report["ruled_out_by_types"]) {
            let _ = writeln!(
                out,
                "- C-{:03}: {}",
                clause["clause"].as_u64().unwrap_or(0),
                text(&clause["reason"])
            );
        }
    }
    out
}

const BAD: [&str; 2] = ["failed", "unexpected pass"];

fn words(reports: &[Value]) -> String {
    let one =
        |report: &Value| format!("{} {}/{}", text(&report["provider"]), report["passed"], report["ran"]);
    reports.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn with<'a>(report: &'a Value, verdicts: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    clauses(report).iter().filter(|clause| verdicts.contains(&text(&clause["verdict"])))
}

fn clauses(report: &Value) -> &[Value] {
    list(&report["clauses"])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// How many clauses a range holds.
fn span(range: &Value) -> u64 {
    let number = |key: &str| range[key].as_u64().unwrap_or(0);
    (number("last") + 1).saturating_sub(number("first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_and_names_what_did_not_pass() {
        let report = serde_json::json!({
            "provider": "shm0", "ran": 2, "passed": 1,
            "clauses": [
                {"clause": "C-001", "title": "a", "verdict": "passed", "message": ""},
                {"clause": "C-002", "title": "b", "verdict": "failed", "message": "seen c"},
                {"clause": "C-003", "title": "d", "verdict": "not supported", "message": "no e"},
            ],
            "not_written_yet": [{"first": 10, "last": 12, "reason": "later"}],
            "ruled_out_by_types": [{"clause": 9, "reason": "no null"}],
        });
        let page = page(&[report]);
        assert!(page.contains("| shm0 | 3 | 2 | 1 | 0 | 1 | 1 |"), "{page}");
        assert!(page.contains("3 not written yet, 1 ruled out"), "{page}");
        assert!(page.contains("- C-002 failed: b (seen c)") && !page.contains("C-001"), "{page}");
        assert!(page.contains("- C-009: no null"), "{page}");
    }
}
