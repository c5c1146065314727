//! Identifiers of the specification in any text, and citations of the form `spec: connection, C-117`.

use crate::spec::Spec;

/// All identifiers of `text` with their lines, counted from 1.
pub fn used(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut rest = line;
        let mut before = ' ';
        while let Some(first) = rest.chars().next() {
            let id = if separates(before) { first_id(rest) } else { None };
            if let Some(id) = id {
                found.push((index + 1, id.to_owned()));
                rest = &rest[id.len()..];
                before = 'x';
                continue;
            }
            before = first;
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

fn separates(c: char) -> bool {
    !c.is_alphanumeric() && c != '-' && c != '_'
}

/// The identifier `text` begins with: C-nnn, P-nnn, D-nn, D-nnb, K-n, R-n.
fn first_id(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    let kind = chars.next().filter(|kind| "CPDKR".contains(*kind))?;
    let number = text[1..].strip_prefix('-')?;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let fits = match kind {
        'C' | 'P' => digits == 3,
        'D' => digits == 2,
        _ => (1..=2).contains(&digits),
    };
    let letter = usize::from(kind == 'D' && number[digits..].starts_with('b'));
    let end = 2 + digits + letter;
    let ends = text[end..].chars().next().is_none_or(separates);
    (fits && ends).then(|| &text[..end])
}

/// Identifiers of `text` without an entry, and citations of a chapter that does not hold them.
pub fn faults(path: &str, text: &str, spec: &Spec) -> Vec<String> {
    let unknown = used(text).into_iter().filter(|(_, id)| spec.get(id).is_none());
    let mut faults: Vec<String> =
        unknown.map(|(line, id)| format!("{path}:{line}: {id} has no text in docs/spec")).collect();
    for citation in unwrapped(text).split("(spec: ").skip(1) {
        let name: String = citation.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        let mut rest = &citation[name.len()..];
        // Anything else is code, such as a parameter with this name.
        if name.is_empty() || !rest.starts_with([',', ')']) {
            continue;
        }
        while let Some(id) = rest.strip_prefix(", ").and_then(first_id) {
            if let Some(entry) = spec.get(id).filter(|entry| entry.chapter != name) {
                faults.push(format!("{path}: {id} is in {}, not in {name:?}", entry.chapter));
            }
            rest = &rest[2 + id.len()..];
        }
        if !spec.has_chapter(&name) {
            faults.push(format!("{path}: docs/spec has no chapter {name:?}"));
        }
    }
    faults
}

/// Comments that go over several lines, joined.
fn unwrapped(text: &str) -> String {
    let marks: &[char] = &['/', '!', '*', '#', ' '];
    text.lines()
        .map(|line| line.trim_start().trim_start_matches(marks).trim_end())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<String> {
        used(text).into_iter().map(|(_, id)| id).collect()
    }

    #[test]
    fn identifiers_are_found_and_similar_words_are_not() {
        assert_eq!(
            ids("(C-117), D-06b; K-7 to K-11.\n`P-001` R-3"),
            ["C-117", "D-06b", "K-7", "K-11", "P-001", "R-3"]
        );
        for other in ["C-09", "C-1170", "AC-117", "X-C-117", "C-117x", "C-117-2", "D-6", "K-123", "E-280"] {
            assert!(ids(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn unknown_identifiers_and_wrong_citations_are_faults() {
        let text = "- <a id=\"c-001\"></a>**C-001: title**. Text\n";
        let (spec, _) = Spec::parse(&[("one".into(), text.into()), ("two".into(), String::new())]);
        let count = |text: &str| faults("file", text, &spec).len();
        assert_eq!(count("C-001 (spec: one, C-001) (spec: two)"), 0);
        assert_eq!(count("C-002"), 1);
        assert_eq!(count("(spec: two, C-001)"), 1);
        assert_eq!(count("    /// (spec:\n    /// two,\n    /// C-001)"), 1);
        assert_eq!(count("(spec: three)"), 1);
        assert_eq!(faults("file", "\nC-002", &spec), ["file:2: C-002 has no text in docs/spec"]);
    }
}
