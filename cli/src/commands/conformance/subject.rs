//! The provider under test, and the clauses over it in this process.

use std::path::Path;

use dat::engine::Plugin;
use dat::plugin::Config;
use dat::registry::layer::{self, Spec};
use dat_conformance::{Clause, Expected, Filter, Options, PeerCommand, Report, Row, Subject, run_with};

use crate::args::{Conformance, Tested};
use crate::failure::{Context, Failure, Outcome};
use crate::output::Shared;

/// The provider under test.
pub struct Subjected {
    pub plugin: Plugin,
    pub config: Config,
    /// Layers over it. The first is next to the suite.
    layers: Vec<Spec>,
}

/// Runs the clauses in this process.
pub fn clauses_here(
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
        .discovered(peer_command(shared, &asked.tested, &name)?)
        .map_err(|reason| Failure::new(reason).because_of(format!("{name} does not open")))?;
    opened(subject.label());
    Ok(run_with(subject, &filter, &expected, &Options { repeat: asked.repeat, begun, progress: ended }))
}

/// The selected clauses.
pub fn filter(asked: &Conformance) -> Outcome<Filter> {
    let filter = Filter::prefixes(asked.filters.iter().cloned());
    match filter.count() {
        0 => {
            Err(Failure::new("--filter selects no clause; clauses begin at C-001, for example --filter C-09"))
        }
        _ => Ok(filter),
    }
}

/// The plugin and how to open it: a configured name, found and checked as for applications, or a library.
pub fn provider(shared: &Shared, tested: &Tested) -> Outcome<Subjected> {
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

/// The provider's name in the report, with its layers.
fn label(name: &str, layers: &[Spec]) -> String {
    match layers {
        [] => name.to_owned(),
        _ => format!("{name} under {}", list(layers)),
    }
}

fn list(layers: &[Spec]) -> String {
    layers.iter().map(Spec::to_string).collect::<Vec<_>>().join(",")
}

/// The command of a peer over the same provider. For a chain, over the step that opened.
fn peer_command(shared: &Shared, tested: &Tested, ia_name: &str) -> Outcome<PeerCommand> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut args = arguments(shared, "conformance-peer", tested);
    match tested.plugin {
        Some(_) => args.extend(["--ia-name".to_owned(), ia_name.to_owned()]),
        None => args.extend(["--".to_owned(), ia_name.to_owned()]),
    }
    Ok(PeerCommand { program, args })
}

/// Arguments of a hidden command over the same provider, up to the provider's name.
pub fn arguments(shared: &Shared, command: &str, tested: &Tested) -> Vec<String> {
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
