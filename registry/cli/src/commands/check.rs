//! `dat check`: is this configuration file right?

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use dat::registry::{Chain, Diagnostic, Entry, Registry, Severity};
use serde_json::json;

use crate::args::{Check, Format};
use crate::failure::{Context, Outcome};
use crate::output::Shared;

/// Reports everything that is wrong; fails if anything is.
pub fn run(shared: &Shared, check: &Check) -> Outcome<ExitCode> {
    let file = check.file.display();
    let guessed =
        if check.file.extension().is_some_and(|ext| ext == "conf") { Format::DatConf } else { Format::Toml };
    let findings = match check.format.unwrap_or(guessed) {
        Format::Toml => toml(&check.file),
        Format::DatConf => {
            let text = fs::read_to_string(&check.file).context(|| format!("{file} cannot be read"))?;
            let (entries, diagnostics) = Registry::import_dat_conf(&text, &file.to_string());
            Findings { entries, chains: Vec::new(), diagnostics }
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
            })
        },
        || findings.text(&file.to_string(), ok, check.to_toml),
    )?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Findings {
    entries: Vec<Entry>,
    chains: Vec<Chain>,
    diagnostics: Vec<Diagnostic>,
}

fn toml(file: &Path) -> Findings {
    match Registry::from_file(file) {
        Ok(registry) => Findings {
            entries: registry.entries().to_vec(),
            chains: registry.chains().to_vec(),
            diagnostics: Vec::new(),
        },
        Err(error) => Findings { entries: Vec::new(), chains: Vec::new(), diagnostics: error.diagnostics },
    }
}

impl Findings {
    fn text(&self, file: &str, ok: bool, to_toml: bool) -> String {
        let mut text = String::new();
        if to_toml {
            // Remarks as comments, so that the output stays a plugins.toml.
            self.diagnostics.iter().for_each(|remark| text.push_str(&format!("# {remark}\n")));
            self.entries.iter().for_each(|entry| text.push_str(&format!("{}\n", entry.to_toml())));
            return text;
        }
        for diagnostic in &self.diagnostics {
            let kind = if diagnostic.severity == Severity::Error { "error" } else { "note" };
            text.push_str(&format!("{kind}: {diagnostic}\n"));
        }
        if ok {
            let (providers, chains) = (self.entries.len(), self.chains.len());
            text.push_str(&format!("{file}: correct; providers: {providers}, chains: {chains}\n"));
        }
        text
    }
}
