//! The schema of `plugins.toml`. Parses a text to entries, chains and routes, or to all errors with line and column.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dat_layers::Spec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::entry::{Chain, Diagnostic, Entry, Location, Route, Scope, Severity, name_fault};

const TOP: &[&str] = &["provider", "chain", "route", "registry"];
const PROVIDER: &[&str] = &["library", "params", "layers", "optional", "description", "sha256"];
const ROUTE: &[&str] = &["near", "far", "description"];
const REGISTRY: &[&str] = &["search"];

/// The most children of a route.
const MOST_CHILDREN: usize = 16;

/// Contents of one file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub entries: Vec<Entry>,
    pub chains: Vec<Chain>,
    pub routes: Vec<Route>,
}

/// Parses one file. `path` is absolute, or a name for a text. Relative folders start from its parent.
pub(crate) fn parse(path: &Path, scope: Scope, text: &str) -> Result<File, Vec<Diagnostic>> {
    let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut reader = Reader { path, scope, text, lines, diagnostics: Vec::new() };
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            reader.complain(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
        }
        return Err(reader.diagnostics);
    }
    let file = reader.file(root.get_ref());
    if reader.diagnostics.is_empty() {
        return Ok(file);
    }
    reader.diagnostics.sort_by_key(|diagnostic| (diagnostic.location.line, diagnostic.location.column));
    Err(reader.diagnostics)
}

struct Reader<'a> {
    path: &'a Path,
    scope: Scope,
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    diagnostics: Vec<Diagnostic>,
}

type Value<'a> = Spanned<DeValue<'a>>;
type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

impl Reader<'_> {
    fn file(&mut self, root: &DeTable<'_>) -> File {
        self.known_keys(root, TOP, "at the top of the file");
        let mut search = Vec::new();
        if let Some(table) = root.get("registry").and_then(|value| self.table(value, "[registry]")) {
            self.known_keys(table, REGISTRY, "in [registry]");
            if let Some(value) = table.get("search") {
                search = self.folders(value);
            }
        }
        let mut file = File::default();
        if let Some(table) = root.get("provider").and_then(|value| self.table(value, "[provider]")) {
            file.entries = table.iter().filter_map(|(key, value)| self.entry(key, value, &search)).collect();
        }
        if let Some(table) = root.get("chain").and_then(|value| self.table(value, "[chain]")) {
            file.chains = table.iter().filter_map(|(key, value)| self.chain(key, value)).collect();
        }
        if let Some(table) = root.get("route").and_then(|value| self.table(value, "[route]")) {
            file.routes = table.iter().filter_map(|(key, value)| self.route(key, value)).collect();
        }
        self.one_name_each(&file);
        file
    }

    /// Providers, chains and routes share one name space.
    fn one_name_each(&mut self, file: &File) {
        let entries = file.entries.iter().map(|entry| ("provider", &entry.name, &entry.defined));
        let chains = file.chains.iter().map(|chain| ("chain", &chain.name, &chain.defined));
        let routes = file.routes.iter().map(|route| ("route", &route.name, &route.defined));
        let all: Vec<_> = entries.chain(chains).chain(routes).collect();
        for (nth, (what, name, location)) in all.iter().enumerate() {
            if let Some((other, _, at)) = all[..nth].iter().find(|(_, earlier, _)| earlier == name) {
                let message = format!("the {what} {name:?} has the name of the {other} defined at {at}");
                let location = (*location).clone();
                self.diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
            }
        }
    }

    fn entry(&mut self, key: &Key<'_>, value: &Value<'_>, search: &[PathBuf]) -> Option<Entry> {
        let name = self.name(key)?;
        let section = format!("[provider.{name}]");
        let table = self.table(value, &section)?;
        self.known_keys(table, PROVIDER, &format!("in {section}"));
        let Some(library) = table.get("library") else {
            self.complain(
                key.span(),
                format!("{section} has no library; write library = \"libdat_{name}.so\""),
            );
            return None;
        };
        let library = self.string(library, "library")?;
        if library.is_empty() || library == "builtin:" || library.contains('\0') {
            self.complain(table["library"].span(), format!("library = {library:?} names no library"));
            return None;
        }
        let mut entry = Entry {
            name,
            library,
            params: BTreeMap::new(),
            layers: Vec::new(),
            optional: false,
            description: String::new(),
            sha256: None,
            defined: self.location(key.span()),
            scope: self.scope,
            overrides: Vec::new(),
            search: search.to_vec(),
        };
        if let Some(value) = table.get("params") {
            entry.params = self.params(value, "params");
        }
        if let Some(value) = table.get("layers") {
            entry.layers = self.layers(value);
        }
        if let Some(value) = table.get("optional") {
            match value.get_ref().as_bool() {
                Some(optional) => entry.optional = optional,
                None => self.wrong_type(value, "optional", "true or false"),
            }
        }
        if let Some(value) = table.get("description") {
            entry.description = self.string(value, "description").unwrap_or_default();
        }
        if let Some(value) = table.get("sha256") {
            entry.sha256 = self.digest(value);
        }
        Some(entry)
    }

    fn chain(&mut self, key: &Key<'_>, value: &Value<'_>) -> Option<Chain> {
        let name = self.name(key)?;
        let what = format!("the chain {name:?}");
        let steps = self.providers(value, &name, &what, &mut Vec::new())?;
        if steps.is_empty() {
            self.complain(value.span(), format!("the chain {name:?} has no step"));
        }
        let defined = self.location(key.span());
        Some(Chain { name, steps, defined, scope: self.scope, overrides: Vec::new() })
    }

    fn route(&mut self, key: &Key<'_>, value: &Value<'_>) -> Option<Route> {
        let name = self.name(key)?;
        let section = format!("[route.{name}]");
        let table = self.table(value, &section)?;
        self.known_keys(table, ROUTE, &format!("in {section}"));
        let (what, mut named) = (format!("the route {name:?}"), Vec::new());
        let mut list = |reader: &mut Self, key| match table.get(key) {
            Some(value) => reader.providers(value, key, &what, &mut named),
            None => Some(Vec::new()),
        };
        let (near, far) = (list(self, "near")?, list(self, "far")?);
        match near.len() + far.len() {
            0 => self.complain(key.span(), format!("{what} has no child; write near = [\"shm0\"]")),
            1..=MOST_CHILDREN => {}
            _ => self.complain(key.span(), format!("{what} has more than {MOST_CHILDREN} children")),
        }
        let description = table.get("description").and_then(|value| self.string(value, "description"));
        Some(Route {
            name,
            near,
            far,
            description: description.unwrap_or_default(),
            defined: self.location(key.span()),
            scope: self.scope,
            overrides: Vec::new(),
        })
    }

    /// A list of providers, none of them in `named` already.
    fn providers(
        &mut self,
        value: &Value<'_>,
        key: &str,
        what: &str,
        named: &mut Vec<String>,
    ) -> Option<Vec<String>> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, key, "a list of provider names");
            return None;
        };
        let mut names = Vec::new();
        for item in items.iter() {
            let name = self.string(item, "a name in this list")?;
            if named.contains(&name) {
                self.complain(item.span(), format!("{what} names {name:?} twice"));
            }
            named.push(name.clone());
            names.push(name);
        }
        Some(names)
    }

    /// A list of names, or of tables of a name and parameters.
    fn layers(&mut self, value: &Value<'_>) -> Vec<Spec> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, "layers", "a list of layers");
            return Vec::new();
        };
        items.iter().filter_map(|item| self.layer(item)).collect()
    }

    fn layer(&mut self, item: &Value<'_>) -> Option<Spec> {
        let spec = match item.get_ref() {
            DeValue::String(name) => Spec::new(name.to_string()),
            DeValue::Table(_) => {
                let mut params = self.params(item, "layers");
                let Some(name) = params.remove("name") else {
                    self.complain(
                        item.span(),
                        "this layer has no name; write { name = \"faults\", … }".into(),
                    );
                    return None;
                };
                Spec { name, params }
            }
            _ => {
                self.wrong_type(item, "a layer", "a name or a table with a name");
                return None;
            }
        };
        if let Err(failure) = spec.check() {
            self.complain(item.span(), failure.message);
            return None;
        }
        Some(spec)
    }

    fn params(&mut self, value: &Value<'_>, name: &str) -> BTreeMap<String, String> {
        let Some(table) = self.table(value, name) else { return BTreeMap::new() };
        let mut params = BTreeMap::new();
        for (key, value) in table.iter() {
            let text = match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Boolean(value) => Some(value.to_string()),
                DeValue::Float(value) => Some(value.as_str().to_owned()),
                DeValue::Integer(value) => {
                    i64::from_str_radix(value.as_str(), value.radix()).ok().map(|value| value.to_string())
                }
                _ => None,
            };
            match text {
                Some(text) if text.contains('\0') => {
                    self.complain(value.span(), format!("{name}.{} contains a NUL", key.get_ref()));
                }
                Some(text) => {
                    params.insert(key.get_ref().to_string(), text);
                }
                None if value.get_ref().is_integer() => {
                    let what = format!("{name}.{} is beyond 64 bits; a string may be longer", key.get_ref());
                    self.complain(value.span(), what);
                }
                None => {
                    let what = format!("{name}.{}", key.get_ref());
                    self.wrong_type(value, &what, "a string, a 64-bit integer, a float, true or false");
                }
            }
        }
        params
    }

    fn folders(&mut self, value: &Value<'_>) -> Vec<PathBuf> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, "search", "a list of folders");
            return Vec::new();
        };
        let base = self.path.parent().unwrap_or(Path::new(""));
        items
            .iter()
            .filter_map(|item| self.string(item, "a folder of search"))
            .map(|f| base.join(f))
            .collect()
    }

    fn digest(&mut self, value: &Value<'_>) -> Option<String> {
        let text = self.string(value, "sha256")?.to_ascii_lowercase();
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(text);
        }
        self.complain(value.span(), "sha256 takes the 64 hexadecimal digits that sha256sum prints".into());
        None
    }

    fn name(&mut self, key: &Key<'_>) -> Option<String> {
        let name = key.get_ref().to_string();
        if let Some(fault) = name_fault(&name) {
            self.complain(key.span(), format!("this is not a valid IA name: {fault}"));
            return None;
        }
        Some(name)
    }

    fn string(&mut self, value: &Value<'_>, what: &str) -> Option<String> {
        let text = value.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(value, what, "a string");
        }
        text
    }

    fn table<'v, 'i>(&mut self, value: &'v Value<'i>, what: &str) -> Option<&'v DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, what, "a table");
        }
        table
    }

    fn wrong_type(&mut self, value: &Value<'_>, what: &str, allowed: &str) {
        let found = value.get_ref().type_str();
        self.complain(value.span(), format!("{what} takes {allowed}, not this {found}"));
    }

    fn known_keys(&mut self, table: &DeTable<'_>, known: &[&str], place: &str) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let hint = crate::error::nearest(name, known.iter().copied())
                .map(|nearest| format!("; did you mean {nearest:?}?"))
                .unwrap_or_default();
            let message = format!("unknown key {name:?} {place}{hint}; allowed are: {}", known.join(", "));
            self.complain(key.span(), message);
        }
    }

    fn complain(&mut self, span: Range<usize>, message: String) {
        let location = self.location(span);
        self.diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
    }

    fn location(&self, span: Range<usize>) -> Location {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let before = self.text.get(self.lines[line - 1]..span.start).unwrap_or_default();
        Location { file: self.path.to_owned(), line, column: before.chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<File, Vec<String>> {
        parse(Path::new("/etc/dat/plugins.toml"), Scope::System, text).map_err(|list| {
            list.iter().map(|d| format!("{}:{}: {}", d.location.line, d.location.column, d.message)).collect()
        })
    }

    fn fault(text: &str) -> String {
        let list = read(text).expect_err("a mistake");
        assert_eq!(list.len(), 1, "{list:?}");
        list[0].clone()
    }

    #[test]
    fn all_of_the_schema_is_read() {
        let file = read(concat!(
            "[registry]\nsearch = [\"/usr/lib/dat\", \"lib\"]\n",
            "[provider.shm0]\nlibrary = \"libdat_shm.so\"\n",
            "params = { address = \"127.0.0.1\", ring = 0x4000, ratio = 0.5, huge = true, low = -1 }\n",
            "layers = [\"count\", { name = \"faults\", seed = 7, delay_us = 100 }]\n",
            "optional = true\ndescription = \"fast\"\n",
            "sha256 = \"00000000000000000000000000000000000000000000000000000000000000AB\"\n",
            "[chain]\nfast = [\"ib0\", \"shm0\"]\n",
            "[route.fabric0]\nnear = [\"shm0\"]\nfar = [\"ib0\", \"tcp\"]\ndescription = \"any\"\n",
        ))
        .expect("valid");
        let entry = &file.entries[0];
        assert_eq!(entry.library, "libdat_shm.so");
        let params: Vec<_> = entry.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(params, ["address=127.0.0.1", "huge=true", "low=-1", "ratio=0.5", "ring=16384"]);
        let layers: Vec<_> = entry.layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(layers, ["count", "faults"]);
        assert_eq!(entry.layers[1].params["delay_us"], "100");
        assert!(entry.optional);
        assert_eq!(entry.description, "fast");
        assert!(entry.sha256.as_ref().is_some_and(|digest| digest.ends_with("ab")));
        assert_eq!(entry.search, [PathBuf::from("/usr/lib/dat"), PathBuf::from("/etc/dat/lib")]);
        assert_eq!((entry.defined.line, entry.defined.column), (3, 11));
        assert_eq!(file.chains[0].steps, ["ib0", "shm0"]);
        let children: Vec<_> = file.routes[0].children().collect();
        assert_eq!(children, [("shm0", true), ("ib0", false), ("tcp", false)]);
        assert_eq!(file.routes[0].description, "any");
    }

    #[test]
    fn an_entry_written_as_toml_reads_back_the_same() {
        let text = "[provider.\"a \\\"b\\\" \\u0041\"]\nlibrary = \"/x\\\\y.so\"\nparams = { \"k.1\" = \"v\\tw\" }\n\
                    layers = [\"trace\", { name = \"faults\", drop_after = 3 }]\n";
        let entry = read(text).expect("valid").entries.remove(0);
        let again = read(&entry.to_toml()).expect("valid");
        assert_eq!(again.entries[0], entry);
    }

    #[test]
    fn each_mistake_is_named_with_its_place_and_what_is_allowed() {
        let p = "[provider.a]\nlibrary = \"x.so\"\n";
        assert_eq!(
            fault(&format!("{p}libary = \"y\"\n")),
            "3:1: unknown key \"libary\" in [provider.a]; did you mean \"library\"?; allowed are: library, params, \
             layers, optional, description, sha256"
        );
        assert_eq!(
            fault("colour = 1\n"),
            "1:1: unknown key \"colour\" at the top of the file; allowed are: provider, chain, route, registry"
        );
        assert_eq!(
            fault(&format!("{p}optional = 1\n")),
            "3:12: optional takes true or false, not this integer"
        );
        assert_eq!(fault("[provider.a]\nlibrary = 3\n"), "2:11: library takes a string, not this integer");
        assert_eq!(fault("provider = 3\n"), "1:12: [provider] takes a table, not this integer");
        assert!(fault("[provider.a]\n").starts_with("1:11: [provider.a] has no library"));
        assert!(fault("[provider.\"\"]\nlibrary = \"x\"\n").contains("the name is empty"));
        assert!(fault(&format!("[provider.{}]\nlibrary = \"x\"\n", "n".repeat(256))).contains("256 bytes"));
        assert!(fault(&format!("{p}sha256 = \"12\"\n")).starts_with("3:10: sha256 takes the 64"));
        assert!(fault(&format!("{p}params = {{ a = [1] }}\n")).contains("params.a takes a string"));
        assert!(fault(&format!("{p}params = {{ a = 99999999999999999999 }}\n")).contains("beyond 64 bits"));
        assert!(
            fault(&format!("{p}layers = [\"trase\"]\n")).starts_with("3:11: there is no layer \"trase\"")
        );
        assert!(fault(&format!("{p}layers = [{{ seed = 1 }}]\n")).contains("this layer has no name"));
        assert!(fault(&format!("{p}layers = [7]\n")).contains("a layer takes a name or a table"));
        assert!(fault(&format!("{p}layers = \"trace\"\n")).contains("layers takes a list of layers"));
        let unknown = fault(&format!("{p}layers = [{{ name = \"count\", x = 1 }}]\n"));
        assert!(unknown.contains("unknown parameter \"x\"; there are none"), "{unknown}");
        let unknown = fault(&format!("{p}layers = [{{ name = \"faults\", delay = 1 }}]\n"));
        assert!(unknown.contains("unknown parameter \"delay\""), "{unknown}");
        assert!(fault("[chain]\nc = []\n").contains("has no step"));
        assert!(
            fault("[chain]\nc = [\"a\", \"a\"]\n").starts_with("2:11: the chain \"c\" names \"a\" twice")
        );
        assert!(fault(&format!("{p}[chain]\na = [\"b\"]\n")).contains("name of the provider defined at"));
        assert!(fault(&format!("{p}[route.a]\nfar = [\"b\"]\n")).contains("name of the provider defined at"));
        assert!(
            fault("[chain]\nr = [\"b\"]\n[route.r]\nfar = [\"b\"]\n")
                .contains("name of the chain defined at")
        );
        assert!(fault("[route.r]\n").contains("has no child"));
        assert!(fault("[route.r]\nnear = \"a\"\n").contains("near takes a list of provider names"));
        assert!(fault("[route.r]\nnear = [\"a\"]\nfar = [\"a\"]\n").contains("names \"a\" twice"));
        assert!(fault("[route.r]\nclose = [\"a\"]\nfar = [\"b\"]\n").contains("unknown key \"close\""));
        let many: Vec<String> = (0..17).map(|nth| format!("\"p{nth}\"")).collect();
        assert!(
            fault(&format!("[route.r]\nfar = [{}]\n", many.join(", "))).contains("more than 16 children")
        );
    }

    #[test]
    fn a_name_defined_twice_and_broken_toml_are_named_with_their_line() {
        let twice = "[provider.a]\nlibrary = \"x\"\n[provider.a]\nlibrary = \"y\"\n";
        assert!(read(twice).expect_err("duplicate")[0].starts_with("3:"), "{:?}", read(twice));
        assert!(read("[provider.a\nlibrary = \"x\"\n").expect_err("broken")[0].starts_with("1:"));
    }

    #[test]
    fn several_mistakes_are_all_reported_in_order() {
        let list = read("[provider.b]\nx = 1\nlibrary = 2\n[chain]\nc = 3\n").expect_err("mistakes");
        let lines: Vec<_> = list.iter().map(|text| text.split(':').next().unwrap_or_default()).collect();
        assert_eq!(lines, ["2", "3", "5"]);
    }
}
