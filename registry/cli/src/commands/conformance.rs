//! `dat conformance`: does this provider conform?
//!
//! The clauses are the library's (`dat-conformance`); here is which provider they are run over, and the telling. Peers
//! are this same binary, started with a hidden command, unless the provider does not connect processes.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use dat::engine::Plugin;
use dat::plugin::Config;
use dat_conformance::{Expected, Filter, Options, PeerCommand, Report, Subject, peer_main, run_with};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Conformance, Tested};
use crate::failure::{Context, Failure, Outcome};
use crate::output::Shared;

/// The run could not be made, which says nothing about the provider.
const NOT_RUN: u8 = 2;

/// Runs the suite and reports.
pub fn run(shared: &Shared, asked: &Conformance) -> ExitCode {
    match report(shared, asked) {
        Ok(report) if report.conforming() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            shared.tell(&failure);
            ExitCode::from(NOT_RUN)
        }
    }
}

/// The started peer: performs commands from standard input.
pub fn peer(shared: &Shared, tested: &Tested) -> Outcome<ExitCode> {
    let (plugin, config) = provider(shared, tested)?;
    Ok(peer_main(&plugin, &config))
}

fn report(shared: &Shared, asked: &Conformance) -> Outcome<Report> {
    let (plugin, config) = provider(shared, &asked.tested)?;
    let expected = match &asked.expected {
        Some(file) => Expected::read(file).map_err(Failure::new)?,
        None => Expected::default(),
    };
    let filter = Filter::prefixes(asked.filters.iter().cloned());
    if filter.count() == 0 {
        return Err(Failure::new("--filter takes no clause; clauses are C-001 and up, as in --filter C-09"));
    }
    let name = config.ia_name.clone();
    let subject = Subject::new(name.clone(), plugin, config)
        .scaled(asked.scale)
        .discovered(again(shared, &asked.tested, &name)?)
        .map_err(|reason| Failure::new(reason).because_of(format!("{name} does not open")))?;
    let bar = progress(u64::from(asked.repeat) * filter.count() as u64);
    let ended = |_: &dat_conformance::Row| bar.inc(1);
    let options = Options { repeat: asked.repeat, progress: &ended };
    let report = run_with(subject, &filter, &expected, &options);
    bar.finish_and_clear();
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

/// The plugin and how to open it: a configured name, found and checked as for applications, or a library.
fn provider(shared: &Shared, tested: &Tested) -> Outcome<(Plugin, Config)> {
    let (plugin, mut config) = match (&tested.name, &tested.plugin) {
        (Some(name), _) => configured(shared, name)?,
        (None, Some(path)) => library(path, tested.ia_name.as_deref())?,
        (None, None) => return Err(Failure::new("name a provider, or a library with --plugin")),
    };
    config.params.extend(tested.params.iter().cloned());
    Ok((plugin, config))
}

fn configured(shared: &Shared, name: &str) -> Outcome<(Plugin, Config)> {
    let registry = shared.registry()?;
    let opened = registry.open_device(name).map_err(dat::Error::from)?;
    let params = registry.entry(&opened.ia_name).map(|entry| entry.params.clone()).unwrap_or_default();
    Ok((opened.plugin, Config { ia_name: opened.ia_name, params }))
}

fn library(path: &Path, name: Option<&str>) -> Outcome<(Plugin, Config)> {
    let plugin = Plugin::load(path).map_err(|error| {
        Failure::new(error.to_string()).because_of(format!("{} does not load", path.display()))
    })?;
    let ia_name = name.unwrap_or(plugin.name()).to_owned();
    Ok((plugin, Config { ia_name, ..Config::default() }))
}

/// This command again, as a peer over the same provider: for a chain, over the step that opened.
fn again(shared: &Shared, tested: &Tested, ia_name: &str) -> Outcome<PeerCommand> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut args = Vec::new();
    let mut say = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    if let Some(file) = &shared.plugins {
        say(&["--plugins", &file.to_string_lossy()]);
    }
    say(&["conformance-peer"]);
    if let Some(path) = &tested.plugin {
        say(&["--plugin", &path.to_string_lossy(), "--ia-name", ia_name]);
    }
    for (key, value) in &tested.params {
        say(&["--param", &format!("{key}={value}")]);
    }
    if tested.plugin.is_none() {
        say(&["--", ia_name]);
    }
    Ok(PeerCommand { program, args })
}

/// On standard error, when that is a terminal.
fn progress(clauses: u64) -> ProgressBar {
    let bar = ProgressBar::new(clauses);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} clauses") {
        bar.set_style(style);
    }
    bar
}
