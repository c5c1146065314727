//! `dat conformance`: does this provider conform?
//!
//! The clauses are the library's (`dat-conformance`); here is which provider they are run over, and the telling. They run
//! in a process of their own ([`mod@worker`]), so that a provider that crashes is a verdict ([`watched`]). Peers are this same
//! binary, started with a hidden command, unless the provider does not connect processes.

mod watched;
mod worker;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use dat::engine::Plugin;
use dat::plugin::Config;
use dat::registry::layer::{self, Spec};
use dat_conformance::{
    Clause, Expected, Filter, Options, PeerCommand, Report, Row, Subject, peer_main, run_with,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Conformance, Tested};
use crate::failure::{Context, Failure, Outcome};
use crate::output::Shared;

/// The provider under test.
struct Subjected {
    plugin: Plugin,
    config: Config,
    /// What lies over it, the first one next to the suite.
    layers: Vec<Spec>,
}

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

/// The process that runs the clauses, and says so in lines.
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

/// Runs the clauses in this process.
fn clauses_here(
    shared: &Shared,
    asked: &Conformance,
    opened: impl FnOnce(&str),
    begun: &(dyn Fn(&Clause) + Sync),
    ended: &(dyn Fn(&Row) + Sync),
) -> Outcome<Report> {
    let filter = filter(asked)?;
    let expected = match &asked.expected {
        Some(file) => Expected::read(file).map_err(Failure::new)?,
        None => Expected::default(),
    };
    let Subjected { plugin, config, layers } = provider(shared, &asked.tested)?;
    let name = config.ia_name.clone();
    let subject = Subject::new(label(&name, &layers), plugin, config)
        .scaled(asked.scale)
        .discovered(again(shared, &asked.tested, &name)?)
        .map_err(|reason| Failure::new(reason).because_of(format!("{name} does not open")))?;
    opened(subject.label());
    Ok(run_with(subject, &filter, &expected, &Options { repeat: asked.repeat, begun, progress: ended }))
}

fn filter(asked: &Conformance) -> Outcome<Filter> {
    let filter = Filter::prefixes(asked.filters.iter().cloned());
    match filter.count() {
        0 => Err(Failure::new("--filter takes no clause; clauses are C-001 and up, as in --filter C-09")),
        _ => Ok(filter),
    }
}

fn text(report: &Report, all: bool) -> String {
    let verdict = if report.conforming() { "conforms" } else { "does NOT conform" };
    format!("{}{} {verdict}", report.to_text(all), report.label)
}

/// The plugin and how to open it: a configured name, found and checked as for applications, or a library.
fn provider(shared: &Shared, tested: &Tested) -> Outcome<Subjected> {
    let mut found = match (&tested.name, &tested.plugin) {
        (Some(name), _) => configured(shared, name)?,
        (None, Some(path)) => library(path, tested.ia_name.as_deref())?,
        (None, None) => return Err(Failure::new("name a provider, or a library with --plugin")),
    };
    found.config.params.extend(tested.params.iter().cloned());
    let mut layers: Vec<Spec> = tested.layers.iter().flat_map(|list| list.0.clone()).collect();
    found.plugin = layer::over(found.plugin, &layers).map_err(|failure| Failure::new(failure.message))?;
    layers.append(&mut found.layers);
    Ok(Subjected { layers, ..found })
}

fn configured(shared: &Shared, name: &str) -> Outcome<Subjected> {
    let registry = shared.registry()?;
    let opened = registry.open_device(name).map_err(dat::Error::from)?;
    let entry = registry.entry(&opened.ia_name);
    let params = entry.map(|entry| entry.params.clone()).unwrap_or_default();
    let layers = entry.map(|entry| entry.layers.clone()).unwrap_or_default();
    Ok(Subjected { plugin: opened.plugin, config: Config { ia_name: opened.ia_name, params }, layers })
}

fn library(path: &Path, name: Option<&str>) -> Outcome<Subjected> {
    let plugin = Plugin::load(path).map_err(|error| {
        Failure::new(error.to_string()).because_of(format!("{} does not load", path.display()))
    })?;
    let ia_name = name.unwrap_or(plugin.name()).to_owned();
    Ok(Subjected { plugin, config: Config { ia_name, ..Config::default() }, layers: Vec::new() })
}

/// What the report calls it: a run under layers says so.
fn label(name: &str, layers: &[Spec]) -> String {
    match layers {
        [] => name.to_owned(),
        _ => format!("{name} under {}", list(layers)),
    }
}

fn list(layers: &[Spec]) -> String {
    layers.iter().map(Spec::to_string).collect::<Vec<_>>().join(",")
}

/// This command again, as a peer over the same provider: for a chain, over the step that opened.
fn again(shared: &Shared, tested: &Tested, ia_name: &str) -> Outcome<PeerCommand> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut args = arguments(shared, "conformance-peer", tested);
    match tested.plugin {
        Some(_) => args.extend(["--ia-name".to_owned(), ia_name.to_owned()]),
        None => args.extend(["--".to_owned(), ia_name.to_owned()]),
    }
    Ok(PeerCommand { program, args })
}

/// A hidden command over the same provider, up to the name it is called by.
fn arguments(shared: &Shared, command: &str, tested: &Tested) -> Vec<String> {
    let mut args = Vec::new();
    let mut say = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    if let Some(file) = &shared.plugins {
        say(&["--plugins", &file.to_string_lossy()]);
    }
    say(&[command]);
    if let Some(path) = &tested.plugin {
        say(&["--plugin", &path.to_string_lossy()]);
    }
    for (key, value) in &tested.params {
        say(&["--param", &format!("{key}={value}")]);
    }
    for layers in &tested.layers {
        say(&["--layer", &list(&layers.0)]);
    }
    args
}

/// On standard error, when that is a terminal.
fn progress(clauses: u64) -> ProgressBar {
    let bar = ProgressBar::new(clauses);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} clauses") {
        bar.set_style(style);
    }
    bar
}
