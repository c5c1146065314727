//! Links of the Markdown documents.

use std::collections::HashMap;

use crate::files::Files;

/// How many links were checked, and a line for each that leads nowhere.
pub fn faults(files: &Files) -> (usize, Vec<String>) {
    let documents = || files.all().filter(|(path, _)| path.ends_with(".md"));
    let anchors: HashMap<String, Vec<String>> =
        documents().map(|(path, text)| (path, anchors(text))).collect();
    let (mut count, mut faults) = (0, Vec::new());
    for (path, text) in documents() {
        for (line, target) in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let place = if file.is_empty() { Some(path.clone()) } else { joined(&path, file) };
            let fault = match place {
                None => Some("leads out of the repository".to_owned()),
                Some(place) if !files.exists(&place) => Some(format!("there is no {place}")),
                Some(place) if !anchor.is_empty() => match anchors.get(&place) {
                    Some(known) if known.iter().any(|known| known == anchor) => None,
                    _ => Some(format!("{place} has no anchor {anchor:?}")),
                },
                Some(_) => None,
            };
            faults.extend(fault.map(|fault| format!("{path}:{line}: link {target:?}: {fault}")));
        }
    }
    (count, faults)
}

/// A path relative to the folder of a document.
fn joined(document: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines outside of code, with their numbers; code between backticks is removed.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line.to_owned()));
        }
    }
    lines
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(&line);
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                targets.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
            }
        }
    }
    targets
}

/// Explicit anchors, and those of headings.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        for part in line.split("<a id=\"").skip(1) {
            anchors.extend(part.split('"').next().map(str::to_owned));
        }
        if line.starts_with('#') {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            let heading: String = line.trim_start_matches('#').trim().chars().filter(kept).collect();
            let slug = heading.to_lowercase().replace(' ', "-");
            let again = anchors.iter().filter(|anchor| **anchor == slug).count();
            anchors.push(if again == 0 { slug } else { format!("{slug}-{again}") });
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_and_anchors_are_checked() {
        let other = ("docs/spec/other.md", "# A `b`: c\n<a id=\"c-001\"></a>");
        let check = |text: &str| faults(&Files::of(&[("docs/page.md", text), other]));
        let good = "[x](spec/other.md) [y](spec/other.md#a-b-c) [z](spec/other.md#c-001) [w](#here)\n# Here";
        assert_eq!(check(good), (4, Vec::new()));
        assert_eq!(check("[x](https://example.org/) `[x](none)`\n```\n[x](none)\n```").0, 0);
        for bad in ["[x](none.md)", "[x](spec/other.md#c-002)", "[x](#there)", "[x](../../outside.md)"] {
            assert_eq!(check(bad).1.len(), 1, "{bad}");
        }
    }
}
