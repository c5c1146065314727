//! `dat providers`: every configured name with its state. A child process loads the plugins, so a crash or a hang is a row
//! of the list.

use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dat::registry::{Chain, Entry, ProviderStatus, Registry, Route, State};
use serde_json::json;

use crate::child::{self, ChildGuard, crash};
use crate::failure::{Context as _, Failure, Outcome};
use crate::output::{Shared, Table, print};

/// How long one provider may take to load and open.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time limit for a child to end after its last line.
const TO_END: Duration = Duration::from_secs(5);

/// Interval of checks whether a silent child still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Marks the child's own lines among a plugin's output.
const MARK: &str = "dat-providers-child ";

/// Lists all providers. The list is a success, also with unusable providers.
pub fn run(shared: &Shared) -> Outcome<ExitCode> {
    let registry = shared.registry()?;
    let providers = statuses(shared, registry.entries(), false)?;
    let (chains, routes) = (registry.chains(), registry.routes());
    shared.print(
        || json!({ "providers": providers, "chains": chains, "routes": routes }),
        || text(&providers, chains, routes),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The state of each provider, found out by child processes. `check`: they read the file as `dat check` does.
pub(super) fn statuses(shared: &Shared, entries: &[Entry], check: bool) -> Outcome<Vec<ProviderStatus>> {
    let mut providers = Vec::new();
    // A plugin may crash the child. The next child then continues after that plugin.
    while providers.len() < entries.len() {
        if let Some(why) = report(shared, &entries[providers.len()..], check, &mut providers)?
            && let Some(entry) = entries.get(providers.len())
        {
            providers.push(ProviderStatus::lost(entry, why));
        }
    }
    Ok(providers)
}

/// The child: prints the state of each provider as a line of JSON.
pub fn child(shared: &Shared, check: bool, skip: usize) -> Outcome<ExitCode> {
    let registry = match &shared.plugins {
        Some(file) if check => Registry::check_file(file)?,
        _ => shared.registry()?,
    };
    for entry in registry.entries().iter().skip(skip) {
        let status = serde_json::to_string(&registry.status_of(entry));
        print(&format!("{MARK}{}", status.map_err(|error| Failure::new(error.to_string()))?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has a child report the remaining providers. Returns the reason if the child ended early.
fn report(
    shared: &Shared,
    left: &[Entry],
    check: bool,
    reported: &mut Vec<ProviderStatus>,
) -> Outcome<Option<String>> {
    let program = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut command = Command::new(&program);
    command.args(vec!["-v"; shared.verbose.into()]);
    if let Some(file) = &shared.plugins {
        command.arg("--plugins").arg(file);
    }
    command.arg("providers-child").args(check.then_some("--check")).arg(reported.len().to_string());
    let (mut child, errors, lines) = child::start(&mut command)?;
    for entry in left {
        let status = match next(&mut child, &lines)? {
            Next::Status(status) => *status,
            Next::Ended => {
                let status = child.wait(TO_END)?;
                let how = status.and_then(|status| crash(status, &errors)).unwrap_or("exit status 0".into());
                errors.rest();
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
        reported.push(status);
    }
    // The report is complete, so the wait is short.
    child.wait(TO_END)?;
    errors.rest();
    Ok(None)
}

/// Outcome of waiting for the next provider.
enum Next {
    Status(Box<ProviderStatus>),
    Ended,
    Silent,
}

fn next(child: &mut ChildGuard, lines: &Receiver<String>) -> Outcome<Next> {
    let deadline = Instant::now() + PATIENCE;
    let mut ended = false;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                let (before, told) = line.split_once(MARK).unwrap_or((&line, ""));
                // Output of the plugin itself.
                if !before.is_empty() {
                    eprintln!("{before}");
                }
                if let Ok(status) = serde_json::from_str(told) {
                    return Ok(Next::Status(status));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::Ended),
            // Its last line may arrive after its end.
            Err(RecvTimeoutError::Timeout) if ended => return Ok(Next::Ended),
            Err(RecvTimeoutError::Timeout) => ended = child.0.try_wait()?.is_some(),
        }
        if Instant::now() > deadline {
            return Ok(Next::Silent);
        }
    }
}

fn text(providers: &[ProviderStatus], chains: &[Chain], routes: &[Route]) -> String {
    if providers.is_empty() {
        return "No provider is configured; docs/plugins-toml.md explains how to add one.".into();
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
    for route in routes {
        let children =
            |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", then ") };
        text.push_str(&format!(
            "route {}: near {}; far {} ({})\n",
            route.name,
            children(&route.near),
            children(&route.far),
            route.defined
        ));
    }
    text
}
