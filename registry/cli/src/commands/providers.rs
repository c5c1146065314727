//! `dat providers`: every configured name, and how far it gets. Plugins are loaded by a child, so that one that crashes or
//! hangs is a line of the list like any other.

use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dat::registry::{Chain, Entry, ProviderStatus, State};
use serde_json::json;

use crate::child::{self, Ended, crash};
use crate::failure::{Context as _, Failure, Outcome};
use crate::output::{Shared, Table, print};

/// How long one provider may take to load and open.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a child may take to end that said all it had to.
const TO_END: Duration = Duration::from_secs(5);

/// How often it is looked whether a silent child is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Stands before each line of the child's, wherever a plugin's output left off.
const MARK: &str = "dat-providers-child ";

/// Lists them. Having found out is success, whatever was found.
pub fn run(shared: &Shared) -> Outcome<ExitCode> {
    let registry = shared.registry()?;
    let mut providers = Vec::new();
    // A child gets as far as the first plugin it is lost to; the next one goes on behind that.
    while providers.len() < registry.entries().len() {
        if let Some(why) = tell(shared, &registry.entries()[providers.len()..], &mut providers)?
            && let Some(entry) = registry.entries().get(providers.len())
        {
            providers.push(ProviderStatus::lost(entry, why));
        }
    }
    let chains = registry.chains();
    shared.print(|| json!({ "providers": providers, "chains": chains }), || text(&providers, chains))?;
    Ok(ExitCode::SUCCESS)
}

/// The child: says how far each gets as soon as it knows, in a line of JSON.
pub fn child(shared: &Shared, skip: usize) -> Outcome<ExitCode> {
    let registry = shared.registry()?;
    for entry in registry.entries().iter().skip(skip) {
        let status = serde_json::to_string(&registry.status_of(entry));
        print(&format!("{MARK}{}", status.map_err(|error| Failure::new(error.to_string()))?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has a child tell of the providers that are left. Gives why it did not get to the end of them.
fn tell(shared: &Shared, left: &[Entry], told: &mut Vec<ProviderStatus>) -> Outcome<Option<String>> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut command = Command::new(&program);
    command.args(vec!["-v"; shared.verbose.into()]);
    if let Some(file) = &shared.plugins {
        command.arg("--plugins").arg(file);
    }
    command.arg("providers-child").arg(told.len().to_string());
    let (mut child, heard, lines) = child::start(&mut command)?;
    for entry in left {
        let status = match next(&mut child, &lines)? {
            Next::Told(status) => *status,
            Next::Ended => {
                let status = child.wait(TO_END)?;
                let how = status.and_then(|status| crash(status, &heard)).unwrap_or("exit status 0".into());
                heard.rest();
                return Ok(Some(format!("it ended the process that loaded and opened it: {how}")));
            }
            Next::Silent => {
                let why = format!("it did not load and open within {PATIENCE:?}; the process was ended");
                return Ok(Some(why));
            }
        };
        if status.name != entry.name {
            return Err(Failure::new("the configuration was changed while it was read; try again"));
        }
        told.push(status);
    }
    // Its end is not waited for long: all it had to say was said.
    child.wait(TO_END)?;
    heard.rest();
    Ok(None)
}

/// What came of waiting for the next provider.
enum Next {
    Told(Box<ProviderStatus>),
    Ended,
    Silent,
}

fn next(child: &mut Ended, lines: &Receiver<String>) -> Outcome<Next> {
    let deadline = Instant::now() + PATIENCE;
    let mut ended = false;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                let (before, told) = line.split_once(MARK).unwrap_or((&line, ""));
                // The provider's own, which has no business there.
                if !before.is_empty() {
                    eprintln!("{before}");
                }
                if let Ok(status) = serde_json::from_str(told) {
                    return Ok(Next::Told(status));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::Ended),
            // What it said last may still have been on its way.
            Err(RecvTimeoutError::Timeout) if ended => return Ok(Next::Ended),
            Err(RecvTimeoutError::Timeout) => ended = child.0.try_wait()?.is_some(),
        }
        if Instant::now() > deadline {
            return Ok(Next::Silent);
        }
    }
}

fn text(providers: &[ProviderStatus], chains: &[Chain]) -> String {
    if providers.is_empty() {
        return "No provider is configured; docs/plugins-toml.md tells how to add one.".into();
    }
    let mut table =
        Table::new(&["NAME", "STATUS", "PLUGIN", "VERSION", "ABI", "LIBRARY", "REASON"], usize::MAX);
    for provider in providers {
        let dash = || "-".to_owned();
        let (plugin, version, abi) = match &provider.plugin {
            Some(facts) => {
                (facts.name.clone(), facts.version.clone(), format!("{}.{}", facts.abi.0, facts.abi.1))
            }
            None => (dash(), dash(), dash()),
        };
        let optional = if provider.optional && provider.state != State::Usable { " (optional)" } else { "" };
        let reason = provider.reason.lines().next().unwrap_or_default().to_owned();
        let status = format!("{}{optional}", provider.state);
        table.row(vec![
            provider.name.clone(),
            status,
            plugin,
            version,
            abi,
            provider.library.clone(),
            reason,
        ]);
    }
    let mut text = table.text();
    for chain in chains {
        text.push_str(&format!(
            "chain {}: {} ({})\n",
            chain.name,
            chain.steps.join(", then "),
            chain.defined
        ));
    }
    text
}
