//! `dat conformance`: does this provider conform?
//!
//! `dat-conformance` has the clauses. This module selects the provider and prints the report. The clauses run in a child
//! process ([`mod@worker`]), so a crash of the provider is a verdict ([`watched`]). Peers are processes of this binary with a
//! hidden command, if the provider connects processes.

mod subject;
mod watched;
mod worker;

use std::fs;
use std::process::ExitCode;

use dat_conformance::{Report, Row, peer_main};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Conformance, Tested};
use crate::failure::{Context, Outcome};
use crate::output::Shared;
use subject::{Subjected, clauses_here, filter, provider};

/// The suite did not run. There is no verdict on the provider.
const NOT_RUN: u8 = 2;

/// Runs the suite and reports.
pub fn run(shared: &Shared, asked: &Conformance) -> ExitCode {
    match report(shared, asked) {
        Ok(report) if report.conforming() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            shared.report(&failure);
            ExitCode::from(NOT_RUN)
        }
    }
}

/// The process that runs the clauses, and reports in lines.
pub fn worker(shared: &Shared, asked: &Conformance) -> Outcome<ExitCode> {
    worker::run(shared, asked)
}

/// The started peer: performs commands from standard input.
pub fn peer(shared: &Shared, tested: &Tested) -> Outcome<ExitCode> {
    let Subjected { plugin, config, .. } = provider(shared, tested)?;
    Ok(peer_main(&plugin, &config))
}

fn report(shared: &Shared, asked: &Conformance) -> Outcome<Report> {
    let clauses = filter(asked)?.count() as u64;
    let bar = progress(u64::from(asked.repeat) * clauses);
    let ended = |_: &Row| bar.inc(1);
    let report = match asked.in_process {
        true => clauses_here(shared, asked, |_| (), &|_| (), &ended),
        false => watched::run(shared, asked, &ended),
    };
    bar.finish_and_clear();
    let report = report?;
    if let Some(file) = &asked.junit {
        fs::write(file, report.to_junit()).context(|| format!("{} cannot be written", file.display()))?;
    }
    shared.print(|| report.to_json(), || text(&report, asked.all))?;
    Ok(report)
}

fn text(report: &Report, all: bool) -> String {
    let verdict = if report.conforming() { "conforms" } else { "does NOT conform" };
    format!("{}{} {verdict}", report.to_text(all), report.label)
}

/// On standard error, when that is a terminal.
fn progress(clauses: u64) -> ProgressBar {
    let bar = ProgressBar::new(clauses);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} clauses") {
        bar.set_style(style);
    }
    bar
}
