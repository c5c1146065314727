//! `explain`: every candidate for a name, with every verdict and its reason.

use std::fmt;
use std::path::PathBuf;

use dat_plugin::Probe;
use dat_plugin::host::{Plugin, inspect};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Location, Route, Scope, name_fault};
use crate::error::OpenError;
use crate::open::{builtin_name, config, load_file, locate, plugin_line, unknown};
use crate::registry::Registry;
use crate::search::{self, Looked};
use crate::trust::{Trusted, check_library};

/// How a name is resolved, and why. Printable and serialisable.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The requested name.
    pub name: String,
    /// Where the chain of this name is defined, if it is one.
    pub chain: Option<Location>,
    /// The route of this name, if it is one.
    pub route: Option<Route>,
    /// The candidates in order. A name that is neither chain nor route has one.
    pub candidates: Vec<Candidate>,
    /// The candidate that an open takes; of a route the first one.
    pub chosen: Option<String>,
    /// The outcome in one sentence.
    pub verdict: String,
}

/// One provider, step by step. A step that was not reached has no verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The IA name.
    pub name: String,
    /// As configured.
    pub library: String,
    /// Where it is configured.
    pub defined: Location,
    /// In which scope.
    pub scope: Scope,
    /// Definitions of the same name that are not used.
    pub overrides: Vec<Location>,
    /// Where the library was looked for.
    pub looked: Vec<Looked>,
    /// The file.
    pub file: Option<PathBuf>,
    /// Whether it was found.
    pub found: Verdict,
    /// Whether it is trusted.
    pub trust: Option<Verdict>,
    /// The file's note, read without running the file.
    pub note: Option<Verdict>,
    /// Whether it was loaded.
    pub load: Option<Verdict>,
    /// The loaded plugin.
    pub plugin: Option<PluginFacts>,
    /// Devices or mechanisms of the provider, usable or not, with reasons.
    pub probes: Vec<ProbeVerdict>,
    /// Whether a device opened.
    pub open: Option<Verdict>,
    /// Whether a chain continues after this candidate.
    pub chain_goes_on: bool,
}

/// Yes or no, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether it passed.
    pub ok: bool,
    /// Why.
    pub reason: String,
}

/// Identity of a loaded plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFacts {
    /// Short name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// One line for people.
    pub description: String,
    /// The interface it was built for: major, minor.
    pub abi: (u32, u32),
    /// Its file; none when it is linked in.
    pub path: Option<PathBuf>,
}

/// The provider's verdict on one device or mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeVerdict {
    /// What it is.
    pub candidate: String,
    /// Whether it works here.
    pub usable: bool,
    /// Why, or why not.
    pub reason: String,
}

impl Registry {
    /// All candidates for this name with their verdicts: file, trust, loader, probes, open. It loads and opens them, and
    /// closes them again.
    pub fn explain(&self, name: &str) -> Explanation {
        explain(self, name)
    }
}

fn explain(registry: &Registry, name: &str) -> Explanation {
    let mut explanation = Explanation {
        name: name.to_owned(),
        chain: None,
        route: None,
        candidates: Vec::new(),
        chosen: None,
        verdict: String::new(),
    };
    if let Some(reason) = name_fault(name) {
        explanation.verdict = OpenError::InvalidName { name: name.to_owned(), reason }.to_string();
        return explanation;
    }
    let entries: Vec<&Entry> = match registry.chain(name) {
        Some(chain) => {
            explanation.chain = Some(chain.defined.clone());
            chain.steps.iter().filter_map(|step| registry.entry(step)).collect()
        }
        None => {
            explanation.route =
                registry.entry(name).is_none().then(|| registry.route(name).cloned()).flatten();
            match &explanation.route {
                Some(route) => route.children().filter_map(|(child, _)| registry.entry(child)).collect(),
                None => registry.entry(name).into_iter().collect(),
            }
        }
    };
    if entries.is_empty() {
        explanation.verdict = unknown(registry, name).to_string();
        return explanation;
    }
    explanation.candidates = entries.into_iter().map(|entry| candidate(registry, entry)).collect();
    if explanation.route.is_some() {
        explain_route(registry, &mut explanation);
        return explanation;
    }
    let stop = explanation.candidates.iter().position(|c| c.opens() || !c.chain_goes_on);
    explanation.verdict = match stop.map(|at| &explanation.candidates[at]) {
        Some(candidate) if candidate.opens() => {
            explanation.chosen = Some(candidate.name.clone());
            format!("{name} opens as {}", candidate.name)
        }
        Some(candidate) if explanation.chain.is_some() => {
            format!("{name} does not open: {} is a mistake, so the chain stops there", candidate.name)
        }
        _ => format!("{name} does not open"),
    };
    explanation
}

fn explain_route(registry: &Registry, explanation: &mut Explanation) {
    let names = |wanted: bool| {
        let found = explanation.candidates.iter().filter(|candidate| candidate.opens() == wanted);
        found.map(|candidate| candidate.name.as_str()).collect::<Vec<_>>().join(", then ")
    };
    let opened = registry.open_device(&explanation.name);
    let (usable, left_out) = (names(true), names(false));
    explanation.verdict = match &opened {
        Err(error) => error.to_string(),
        Ok(_) if left_out.is_empty() => format!("{} opens over {usable}", explanation.name),
        Ok(_) => format!("{} opens over {usable}; left out: {left_out}", explanation.name),
    };
    if opened.is_ok() {
        explanation.chosen = explanation.candidates.iter().find(|c| c.opens()).map(|c| c.name.clone());
    }
}

/// Does all steps of an open, records each verdict, and closes the device.
pub(crate) fn candidate(registry: &Registry, entry: &Entry) -> Candidate {
    let mut it = Candidate {
        name: entry.name.clone(),
        library: entry.library.clone(),
        defined: entry.defined.clone(),
        scope: entry.scope,
        overrides: entry.overrides.clone(),
        looked: Vec::new(),
        file: None,
        found: Verdict { ok: true, reason: String::new() },
        trust: None,
        note: None,
        load: None,
        plugin: None,
        probes: Vec::new(),
        open: None,
        chain_goes_on: true,
    };
    let Some(plugin) = it.get_plugin(registry, entry) else { return it };
    it.plugin = Some(PluginFacts::of(&plugin));
    let config = config(entry);
    it.probes = plugin.probe(&config).into_iter().map(ProbeVerdict::from).collect();
    let layered = dat_layers::over(plugin, &entry.layers);
    it.open = Some(match layered.and_then(|plugin| plugin.open(&config)) {
        Ok(device) => Verdict { ok: true, reason: device.describe() },
        Err(failure) => {
            let reason = failure.to_string();
            let (name, defined) = (entry.name.clone(), entry.defined.clone());
            it.chain_goes_on = OpenError::NoDevice { name, defined, failure }.is_absence();
            Verdict { ok: false, reason }
        }
    });
    it
}

impl Candidate {
    /// Whether an open succeeds.
    pub fn opens(&self) -> bool {
        self.open.as_ref().is_some_and(|verdict| verdict.ok)
    }

    fn get_plugin(&mut self, registry: &Registry, entry: &Entry) -> Option<Plugin> {
        if let Some(provider) = builtin_name(entry) {
            let plugin = registry.builtin.get(provider).cloned();
            let ok = plugin.is_some();
            let reason = if ok { "linked into this program" } else { "not linked into this program" };
            self.found = Verdict { ok, reason: reason.into() };
            return plugin;
        }
        self.looked = search::places(entry, &registry.environment);
        let file = match locate(entry, &self.looked) {
            Ok(file) => file,
            Err(failure) => {
                self.found = Verdict { ok: false, reason: failure.to_string() };
                return None;
            }
        };
        self.found.reason = file.display().to_string();
        self.file = Some(file.clone());
        let trusted = Trusted::of_process(&registry.environment);
        let canonical = match check_library(&file, entry.sha256.as_deref(), &trusted) {
            Ok(canonical) => canonical,
            Err(failure) => {
                self.chain_goes_on = !matches!(failure, crate::error::LoadFailure::Untrusted { .. });
                self.trust = Some(Verdict { ok: false, reason: failure.to_string() });
                return None;
            }
        };
        let pinned = if entry.sha256.is_some() { "; sha256 matches" } else { "" };
        let reason = format!("{}: owners and modes are safe{pinned}", canonical.display());
        self.trust = Some(Verdict { ok: true, reason });
        self.note = Some(match inspect(&canonical) {
            Ok(said) => {
                let (name, version, (major, minor)) = (said.name, said.version, said.abi);
                Verdict { ok: true, reason: format!("{name} {version}, interface {major}.{minor}") }
            }
            Err(error) => Verdict { ok: false, reason: error.to_string() },
        });
        match load_file(&canonical, entry.sha256.is_some()) {
            Ok(plugin) => {
                self.load = Some(Verdict { ok: true, reason: plugin_line(&plugin) });
                Some(plugin)
            }
            Err(failure) => {
                self.load = Some(Verdict { ok: false, reason: failure.to_string() });
                None
            }
        }
    }
}

impl From<Probe> for ProbeVerdict {
    fn from(probe: Probe) -> ProbeVerdict {
        ProbeVerdict { candidate: probe.candidate, usable: probe.usable, reason: probe.reason }
    }
}

impl PluginFacts {
    pub(crate) fn of(plugin: &Plugin) -> PluginFacts {
        PluginFacts {
            name: plugin.name().to_owned(),
            version: plugin.version().to_owned(),
            description: plugin.description().to_owned(),
            abi: plugin.abi(),
            path: plugin.path().map(ToOwned::to_owned),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(defined) = &self.chain {
            let steps: Vec<&str> = self.candidates.iter().map(|c| c.name.as_str()).collect();
            writeln!(f, "{} is a chain, defined at {defined}: {}", self.name, steps.join(", then "))?;
        }
        if let Some(route) = &self.route {
            let list =
                |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", then ") };
            writeln!(
                f,
                "{} is a route, defined at {}: near {}; far {}",
                self.name,
                route.defined,
                list(&route.near),
                list(&route.far)
            )?;
        }
        for candidate in &self.candidates {
            write!(f, "{candidate}")?;
        }
        write!(f, "{}", self.verdict)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: library {:?}, defined at {} ({})",
            self.name, self.library, self.defined, self.scope
        )?;
        for loser in &self.overrides {
            writeln!(f, "  overrides  {loser}")?;
        }
        let taken = self.looked.iter().position(|place| place.exists);
        for (i, place) in self.looked.iter().enumerate() {
            let verdict = match (place.exists, taken == Some(i)) {
                (_, true) => "taken",
                (true, false) => "there, but an earlier place has one",
                (false, _) => "not there",
            };
            writeln!(f, "  looked     {} ({}): {verdict}", place.path.display(), place.because)?;
        }
        line(f, "found", Some(&self.found))?;
        line(f, "trusted", self.trust.as_ref())?;
        line(f, "note", self.note.as_ref())?;
        line(f, "loaded", self.load.as_ref())?;
        for probe in &self.probes {
            let usable = if probe.usable { "usable" } else { "not usable" };
            writeln!(f, "  candidate  {}: {usable}: {}", probe.candidate, probe.reason)?;
        }
        line(f, "opens", self.open.as_ref())
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, verdict: Option<&Verdict>) -> fmt::Result {
    match verdict {
        Some(Verdict { ok, reason }) => {
            writeln!(f, "  {what:<10} {}: {reason}", if *ok { "yes" } else { "no" })
        }
        None => Ok(()),
    }
}
