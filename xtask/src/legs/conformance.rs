//! The clauses of the specification over the providers that need nothing of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::matrix;
use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::output;
use crate::process::Run;
use crate::root::root;

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

/// Builds the runner and the plugins and runs each provider; with `save` those of other legs too, and keeps the matrix.
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
        match matrix::read(&json) {
            Ok(report) if report["ran"].as_u64().unwrap_or(0) == 0 => {
                failures.push(format!("{}: no clause ran", subject.name));
            }
            Ok(report) => reports.push(report),
            Err(message) => failures.push(message),
        }
    }
    if save {
        // Takes minutes, and needs an emulated machine or a device; so only for the page that is kept.
        for (name, leg) in
            [("libfabric", super::libfabric::run as fn() -> Report), ("ibverbs", super::rdma::run)]
        {
            match leg() {
                Ok(Outcome::Passed(_)) => {}
                Ok(Outcome::NotRun(why)) => output::show(&format!("{name}: NOT RUN: {why}")),
                Err(message) => failures.push(message),
            }
        }
        matrix::run(true)?;
    }
    match failures.is_empty() {
        true => Ok(Outcome::passed(format!("{}; reports in {}", matrix::words(&reports), out.display()))),
        false => Err(failures.join("; ")),
    }
}

fn runner(subject: &Subject, built: &Path, json: &Path) -> Run {
    let mut arguments: Vec<PathBuf> = match subject.how {
        How::Linked => vec!["loopback".into()],
        How::Plugin(file) => vec!["--plugin".into(), built.join(file)],
    };
    let expected = root().join(format!("conformance/expected/{}.toml", subject.name));
    if expected.exists() {
        arguments.extend(["--expected".into(), expected]);
    }
    arguments.extend(["--name".into(), subject.name.into(), "--json".into(), json.to_owned()]);
    arguments.extend(["--junit".into(), json.with_extension("junit.xml")]);
    Run::new(&built.join("dat-conformance").to_string_lossy()).args(arguments)
}
