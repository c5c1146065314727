//! Import of uDAPL's `dat.conf`: one entry per line, eight fields (spec: registry).

use std::collections::BTreeMap;
use std::path::Path;

use crate::entry::{Diagnostic, Entry, Location, Scope, Severity, name_fault};

/// Names of the eight fields, in order.
const FIELDS: [&str; 8] = [
    "IA name",
    "API version",
    "thread safety",
    "default",
    "library",
    "provider version",
    "IA parameters",
    "platform parameters",
];

/// Reads all lines. Unusable ones are skipped, with a diagnostic.
pub(crate) fn import(text: &str, file: &str) -> (Vec<Entry>, Vec<Diagnostic>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut diagnostics = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let location = Location { file: Path::new(file).to_owned(), line: i + 1, column: 0 };
        let entry = match entry(line, location.clone()) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err((severity, message)) => {
                diagnostics.push(Diagnostic { severity, location, message });
                continue;
            }
        };
        match entries.iter().find(|earlier| earlier.name == entry.name) {
            None => entries.push(entry),
            Some(earlier) => {
                let message = format!(
                    "{:?} is defined at {} already; uDAPL would try {:?} when that library does not load. Here a name \
                     is one provider: give this one another name, and list both in a chain",
                    entry.name, earlier.defined, entry.library
                );
                diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
            }
        }
    }
    (entries, diagnostics)
}

type Fault = (Severity, String);

fn entry(line: &str, defined: Location) -> Result<Option<Entry>, Fault> {
    let error = |message: String| (Severity::Error, message);
    let note = |message: String| (Severity::Note, message);
    let fields = fields(line).map_err(error)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let Ok([name, api, threads, default, library, version, ia_params, platform_params]) =
        <[String; 8]>::try_from(fields.clone())
    else {
        let missing = FIELDS.get(fields.len()).map(|field| format!(", the next would be the {field}"));
        let missing = missing.unwrap_or_default();
        return Err(error(format!("{} fields, 8 are required{missing}", fields.len())));
    };
    if let Some(at) = fields.iter().position(|field| field.contains('\0')) {
        return Err(error(format!("the {} contains a NUL", FIELDS[at])));
    }
    if let Some(fault) = name_fault(&name) {
        return Err(error(fault));
    }
    let Some((kind, major)) = api_version(&api) else {
        return Err(error(format!("API version {api:?}, required is the form u2.0 or k2.0")));
    };
    if !matches!(threads.as_str(), "threadsafe" | "nonthreadsafe") {
        return Err(error(format!("thread safety {threads:?}, required is threadsafe or nonthreadsafe")));
    }
    if !matches!(default.as_str(), "default" | "nondefault") {
        return Err(error(format!("{default:?} where default or nondefault is required")));
    }
    if library.is_empty() {
        return Err(error("the library is empty".into()));
    }
    if !is_provider_version(&version) {
        return Err(error(format!("provider version {version:?}, required is the form dapl.2.0")));
    }
    if kind == 'k' {
        return Err(note(format!("{name:?} is an entry for kernels, left out")));
    }
    if major != 2 {
        return Err(note(format!("{name:?} is for API {api}, left out: this library is 2.0")));
    }
    if default == "nondefault" {
        return Err(note(format!("{name:?} is nondefault, left out as uDAPL does")));
    }
    let mut params = BTreeMap::new();
    for (key, value) in [("ia_params", ia_params), ("platform_params", platform_params)] {
        if !value.is_empty() {
            params.insert(key.to_owned(), value);
        }
    }
    let description = format!("imported from {defined}, provider version {version}");
    Ok(Some(Entry {
        name,
        library,
        params,
        optional: false,
        description,
        sha256: None,
        defined,
        scope: Scope::Explicit,
        overrides: Vec::new(),
        layers: Vec::new(),
        search: Vec::new(),
    }))
}

/// Kind and major version of `u2.0`.
fn api_version(text: &str) -> Option<(char, u32)> {
    let kind = text.chars().next().filter(|c| matches!(c, 'u' | 'k'))?;
    let (major, minor) = text[1..].split_once('.')?;
    minor.parse::<u32>().ok()?;
    Some((kind, major.parse().ok()?))
}

/// Whether it has the form id.major.minor.
fn is_provider_version(text: &str) -> bool {
    let mut parts = text.rsplitn(3, '.');
    let mut number = || parts.next().is_some_and(|part| part.parse::<u32>().is_ok());
    number() && number() && parts.next().is_some_and(|id| !id.is_empty())
}

/// Splits a line: blanks separate, double quotes group, a backslash in quotes escapes quote and backslash, `#` outside
/// quotes ends the line.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut field: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '#' => break,
            '"' => quoted(&mut chars, field.get_or_insert_default())?,
            c if c.is_whitespace() => fields.extend(field.take()),
            c => field.get_or_insert_default().push(c),
        }
    }
    fields.extend(field);
    Ok(fields)
}

/// Takes the rest of a quoted part, the closing quote included.
fn quoted(chars: &mut std::str::Chars<'_>, field: &mut String) -> Result<(), String> {
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok(()),
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => field.push(c),
                Some(c) => field.extend(['\\', c]),
                None => break,
            },
            c => field.push(c),
        }
    }
    Err("a double quote is not closed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = concat!(
        "# a comment\n\n",
        "ofa-v2-mlx4_0-1u u2.0 nonthreadsafe default libdaploucm.so.2 dapl.2.0 \"mlx4_0 1\" \"\"\n",
        "OpenIB-cma u1.2 nonthreadsafe default libdaplcma.so.1 dapl.1.2 \"ib0 0\" \"\"\n",
        "kern k2.0 threadsafe default x.so dapl.2.0 \"\" \"\"\n",
        "second u2.0 threadsafe nondefault x.so dapl.2.0 \"\" \"\"\n",
        "\"a name\" u2.0 threadsafe default \"/opt/x y.so\" dapl.2.0 \"say \\\"hi\\\" \\\\\" \"p\" # end\n",
    );

    #[test]
    fn lines_as_found_in_the_field_are_read() {
        let (entries, remarks) = import(REAL, "/etc/dat.conf");
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["ofa-v2-mlx4_0-1u", "a name"]);
        assert_eq!(entries[0].library, "libdaploucm.so.2");
        assert_eq!(entries[0].params["ia_params"], "mlx4_0 1");
        assert_eq!(entries[0].defined.to_string(), "/etc/dat.conf:3");
        assert_eq!(entries[1].params["ia_params"], "say \"hi\" \\");
        assert_eq!(entries[1].params["platform_params"], "p");
        let lines: Vec<_> = remarks.iter().map(|remark| (remark.location.line, remark.severity)).collect();
        assert_eq!(lines, [(4, Severity::Note), (5, Severity::Note), (6, Severity::Note)]);
    }

    #[test]
    fn a_malformed_line_is_named_and_the_good_ones_around_it_stay() {
        let good = |name: &str| format!("{name} u2.0 threadsafe default x.so dapl.2.0 \"\" \"\"\n");
        let bad = [
            "x u2.0 threadsafe default x.so dapl.2.0 \"\"",
            "x v2.0 threadsafe default x.so dapl.2.0 \"\" \"\"",
            "x u2 threadsafe default x.so dapl.2.0 \"\" \"\"",
            "x u2.0 safe default x.so dapl.2.0 \"\" \"\"",
            "x u2.0 threadsafe maybe x.so dapl.2.0 \"\" \"\"",
            "x u2.0 threadsafe default \"\" dapl.2.0 \"\" \"\"",
            "x u2.0 threadsafe default x.so 2.0 \"\" \"\"",
            "x u2.0 threadsafe default x.so dapl.2.0 \"\" \"a\0b\"",
            "x u2.0 threadsafe default x.so dapl.2.0 \"\" \"",
            "x u2.0 threadsafe default x.so dapl.2.0 \"\" \"\" more",
            "\u{fc} \u{fc}2.0 threadsafe default x.so dapl.2.0 \"\" \"\"",
        ];
        for line in bad {
            let (entries, remarks) = import(&format!("{}{line}\n{}", good("a"), good("b")), "f");
            assert_eq!(entries.len(), 2, "{line}");
            assert_eq!(remarks.len(), 1, "{line}");
            assert_eq!((remarks[0].location.line, remarks[0].severity), (2, Severity::Error), "{line}");
        }
    }

    #[test]
    fn a_second_line_of_the_same_name_is_not_dropped_silently() {
        let line = |library: &str| format!("x u2.0 threadsafe default {library} dapl.2.0 \"\" \"\"\n");
        let (entries, remarks) = import(&(line("a.so") + &line("b.so")), "f");
        assert_eq!(entries[0].library, "a.so");
        assert!(remarks[0].to_string().starts_with("f:2: \"x\" is defined at f:1 already"), "{}", remarks[0]);
    }

    #[test]
    fn what_is_imported_reads_back_from_plugins_toml() {
        let (entries, _) = import(REAL, "/etc/dat.conf");
        let toml: String = entries.iter().map(|entry| entry.to_toml() + "\n").collect();
        let again = crate::scopes::text("x", &toml).expect("valid").entries;
        assert_eq!(again.len(), 2);
        assert!(again.iter().all(|entry| entries.iter().any(|e| e.params == entry.params)));
    }
}
