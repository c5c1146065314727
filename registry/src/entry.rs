//! Contents of a registry: entries, chains, routes, their locations, and diagnostics.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dat_layers::Spec;
use serde::{Deserialize, Serialize};

/// A provider under a name: one `[provider.NAME]` of a `plugins.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The IA name.
    pub name: String,
    /// A file name to search for, a path, or `builtin:NAME`.
    pub library: String,
    /// Parameters for the provider, values as text.
    pub params: BTreeMap<String, String>,
    /// Layers between the application and the provider. The first is next to the application.
    pub layers: Vec<Spec>,
    /// Whether listings accept that this machine cannot load or use it.
    pub optional: bool,
    /// One line of description; may be empty.
    pub description: String,
    /// Required SHA-256 of the library, in lower-case hex.
    pub sha256: Option<String>,
    /// Where it is defined.
    pub defined: Location,
    /// The scope it was defined in.
    pub scope: Scope,
    /// Where later scopes define the same name; those definitions are not used.
    pub overrides: Vec<Location>,
    /// The `[registry] search` of the defining file, made absolute.
    pub search: Vec<PathBuf>,
}

/// A chain of names, tried in order: one line of `[chain]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Its name; chains and providers share one name space.
    pub name: String,
    /// Names of providers.
    pub steps: Vec<String>,
    /// Where it is defined.
    pub defined: Location,
    /// The scope it was defined in.
    pub scope: Scope,
    /// Where later scopes define the same name.
    pub overrides: Vec<Location>,
}

/// A name over names: one `[route.NAME]`. A connect takes the first child that reaches the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Its name; routes, chains and providers share one name space.
    pub name: String,
    /// Providers for peers of this host, in order.
    pub near: Vec<String>,
    /// Providers for peers of other hosts, in order.
    pub far: Vec<String>,
    /// One line of description; may be empty.
    pub description: String,
    /// Where it is defined.
    pub defined: Location,
    /// The scope it was defined in.
    pub scope: Scope,
    /// Where later scopes define the same name.
    pub overrides: Vec<Location>,
}

impl Route {
    /// Its children in the order of a connect, and whether each is near.
    pub fn children(&self) -> impl Iterator<Item = (&str, bool)> {
        let near = self.near.iter().map(|name| (name.as_str(), true));
        near.chain(self.far.iter().map(|name| (name.as_str(), false)))
    }
}

/// Where something is written. Lines and columns count from 1; a line of 0 means the whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Which scope a definition comes from. Earlier variants win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// The file the program named.
    Explicit,
    /// The file `DAT_PLUGINS` names.
    Environment,
    /// `$XDG_CONFIG_HOME/dat`.
    User,
    /// `/etc/dat`.
    System,
    /// `/usr/share/dat/plugins.d`.
    Vendor,
    /// The built-in default.
    Default,
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It cannot be used.
    Error,
    /// It was left out on purpose.
    Note,
}

/// An error or note about a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error or note.
    pub severity: Severity,
    /// Where.
    pub location: Location,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl Entry {
    /// The entry as it is written in a `plugins.toml`.
    pub fn to_toml(&self) -> String {
        let mut text = format!("[provider.{}]\nlibrary = {}\n", quoted(&self.name), quoted(&self.library));
        if !self.params.is_empty() {
            let _ = writeln!(text, "params = {{ {} }}", pairs(&self.params).join(", "));
        }
        if !self.layers.is_empty() {
            let layers: Vec<String> = self.layers.iter().map(layer_to_toml).collect();
            let _ = writeln!(text, "layers = [{}]", layers.join(", "));
        }
        if self.optional {
            text.push_str("optional = true\n");
        }
        if !self.description.is_empty() {
            let _ = writeln!(text, "description = {}", quoted(&self.description));
        }
        if let Some(sha256) = &self.sha256 {
            let _ = writeln!(text, "sha256 = {}", quoted(sha256));
        }
        text
    }

    /// The folder relative paths of this entry start from.
    pub(crate) fn folder(&self) -> &Path {
        self.defined.file.parent().unwrap_or(Path::new(""))
    }
}

impl Location {
    /// A whole file.
    pub(crate) fn of_file(file: &Path) -> Location {
        Location { file: file.to_owned(), line: 0, column: 0 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match (self.line, self.column) {
            (0, _) => Ok(()),
            (line, 0) => write!(f, ":{line}"),
            (line, column) => write!(f, ":{line}:{column}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Explicit => "explicit file",
            Scope::Environment => "DAT_PLUGINS",
            Scope::User => "user",
            Scope::System => "system",
            Scope::Vendor => "vendor",
            Scope::Default => "built-in default",
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// The bytes a name may have, DAT's terminating NUL included.
const NAME_MAX: usize = 256;

/// The reason why `name` is not a valid IA name, if any.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the name is empty".into());
    }
    if name.len() >= NAME_MAX {
        return Some(format!("the name has {} bytes, at most {} are allowed", name.len(), NAME_MAX - 1));
    }
    let control = name.chars().find(|c| c.is_control())?;
    Some(format!("the name contains the control character {control:?}"))
}

fn pairs(params: &BTreeMap<String, String>) -> Vec<String> {
    params.iter().map(|(key, value)| format!("{} = {}", quoted(key), quoted(value))).collect()
}

fn layer_to_toml(layer: &Spec) -> String {
    if layer.params.is_empty() {
        return quoted(&layer.name);
    }
    format!("{{ name = {}, {} }}", quoted(&layer.name), pairs(&layer.params).join(", "))
}

/// `text` as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
