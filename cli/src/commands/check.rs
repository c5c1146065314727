//! `dat check`: reports the errors of a configuration file.

use std::fs;
use std::process::ExitCode;

use dat::registry::{Chain, Diagnostic, Entry, ProviderStatus, Registry, Route, Severity, State};
use serde_json::json;

use super::providers;
use crate::args::{Check, Format};
use crate::failure::{Context, Outcome};
use crate::output::Shared;

/// Reports all errors. Fails if there is one.
pub fn run(shared: &Shared, check: &Check) -> Outcome<ExitCode> {
    let file = check.file.display();
    let guessed =
        if check.file.extension().is_some_and(|ext| ext == "conf") { Format::DatConf } else { Format::Toml };
    let findings = match check.format.unwrap_or(guessed) {
        Format::Toml => toml(shared, check)?,
        Format::DatConf => {
            let text = fs::read_to_string(&check.file).context(|| format!("{file} cannot be read"))?;
            let (entries, diagnostics) = Registry::import_dat_conf(&text, &file.to_string());
            Findings { entries, diagnostics, ..Findings::default() }
        }
    };
    let ok = findings.diagnostics.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    shared.print(
        || {
            json!({
                "file": check.file,
                "ok": ok,
                "diagnostics": findings.diagnostics,
                "providers": findings.entries,
                "chains": findings.chains,
                "routes": findings.routes,
            })
        },
        || findings.text(&file.to_string(), ok, check.to_toml),
    )?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Default)]
struct Findings {
    entries: Vec<Entry>,
    chains: Vec<Chain>,
    routes: Vec<Route>,
    diagnostics: Vec<Diagnostic>,
}

fn toml(shared: &Shared, check: &Check) -> Outcome<Findings> {
    let registry = match Registry::check_file(&check.file) {
        Ok(registry) => registry,
        Err(error) => {
            return Ok(Findings { diagnostics: error.diagnostics, ..Findings::default() });
        }
    };
    let (entries, chains) = (registry.entries().to_vec(), registry.chains().to_vec());
    let routes = registry.routes().to_vec();
    let diagnostics = match check.syntax || check.to_toml {
        true => Vec::new(),
        false => {
            let shared = Shared { plugins: Some(check.file.clone()), ..shared.clone() };
            let statuses = providers::statuses(&shared, &entries, true)?;
            statuses.iter().filter_map(remark).collect()
        }
    };
    Ok(Findings { entries, chains, routes, diagnostics })
}

/// A note about a provider that this machine cannot use. An error if its configuration is wrong or its library missing.
fn remark(status: &ProviderStatus) -> Option<Diagnostic> {
    let missing = status.state == State::Missing && !status.optional;
    let severity = match status.state {
        State::Usable => return None,
        _ if status.mistake || missing => Severity::Error,
        _ => Severity::Note,
    };
    let message = format!("{:?} is not usable here: {}", status.name, status.reason);
    Some(Diagnostic { severity, location: status.defined.clone(), message })
}

impl Findings {
    fn text(&self, file: &str, ok: bool, to_toml: bool) -> String {
        let mut text = String::new();
        if to_toml {
            // Diagnostics as comments, so the output is a plugins.toml.
            self.diagnostics.iter().for_each(|remark| text.push_str(&format!("# {remark}\n")));
            self.entries.iter().for_each(|entry| text.push_str(&format!("{}\n", entry.to_toml())));
            return text;
        }
        for diagnostic in &self.diagnostics {
            let kind = if diagnostic.severity == Severity::Error { "error" } else { "note" };
            text.push_str(&format!("{kind}: {diagnostic}\n"));
        }
        if ok {
            let (providers, chains, routes) = (self.entries.len(), self.chains.len(), self.routes.len());
            text.push_str(&format!(
                "{file}: correct; providers: {providers}, chains: {chains}, routes: {routes}\n"
            ));
        }
        text
    }
}
