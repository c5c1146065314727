//! The entries of the specification: `- <a id="c-117"></a>**C-117: title**. Text`.

use std::collections::BTreeMap;

/// What one identifier means.
pub struct Entry {
    pub title: String,
    pub chapter: String,
}

/// A test of the suite.
pub struct Test {
    pub id: String,
    pub title: String,
    pub chapter: String,
}

pub struct Spec {
    entries: BTreeMap<String, Entry>,
    chapters: Vec<String>,
}

impl Spec {
    /// Reads chapters (name, text). The list has a line for each fault.
    pub fn parse(chapters: &[(String, String)]) -> (Spec, Vec<String>) {
        let (mut entries, mut faults) = (BTreeMap::new(), Vec::new());
        for (chapter, text) in chapters {
            for item in items(text) {
                match entry(&item) {
                    Ok((id, title)) => {
                        let new = Entry { title, chapter: chapter.clone() };
                        if let Some(old) = entries.insert(id.clone(), new) {
                            faults.push(format!("{id} stands in {chapter} and in {}", old.chapter));
                        }
                    }
                    Err(fault) => faults.push(format!("{chapter}: {fault}: {item}")),
                }
            }
        }
        let chapters = chapters.iter().map(|(name, _)| name.clone()).collect();
        (Spec { entries, chapters }, faults)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub fn has_chapter(&self, name: &str) -> bool {
        self.chapters.iter().any(|chapter| chapter == name)
    }

    /// Faults between the clauses here and the tests and reasons of the suite.
    pub fn against(&self, tests: &[Test], reasons: &[(String, String)]) -> Vec<String> {
        let mut faults = Vec::new();
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for test in tests {
            *count.entry(&test.id).or_default() += 1;
            match self.entries.get(&test.id) {
                None => faults.push(format!("{} has a test and no text in docs/spec", test.id)),
                Some(entry) => {
                    if entry.title != test.title {
                        faults.push(format!(
                            "{}: the test's title is {:?}, the clause's {:?}",
                            test.id, test.title, entry.title
                        ));
                    }
                    if entry.chapter != test.chapter {
                        faults.push(format!(
                            "{}: the test is in {:?}, the clause in {:?}",
                            test.id, test.chapter, entry.chapter
                        ));
                    }
                }
            }
        }
        for (id, reason) in reasons {
            *count.entry(id).or_default() += 1;
            if !self.entries.contains_key(id) {
                faults.push(format!("{id} has a reason to have no test, and no text in docs/spec"));
            }
            if reason.trim().is_empty() {
                faults.push(format!("{id} has neither a test nor a reason"));
            }
        }
        for id in self.entries.keys().filter(|id| id.starts_with(['C', 'P'])) {
            match count.get(id.as_str()) {
                Some(1) => {}
                None => faults.push(format!("{id} has neither a test nor a reason")),
                Some(n) => faults.push(format!("{id} has {n} tests and reasons; one is expected")),
            }
        }
        faults
    }
}

/// List items that begin with an anchor, their lines joined.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("- <a ") {
            items.push(line.to_owned());
            inside = true;
        } else if inside && line.starts_with("  ") {
            let item = items.last_mut().unwrap();
            item.push(' ');
            item.push_str(line.trim());
        } else {
            inside = false;
        }
    }
    items
}

fn entry(item: &str) -> Result<(String, String), String> {
    let form = "the form is: - <a id=\"c-117\"></a>**C-117: title**. Text";
    let rest = item.strip_prefix("- <a id=\"").ok_or(form)?;
    let (anchor, rest) = rest.split_once("\"></a>**").ok_or(form)?;
    let (id, rest) = rest.split_once(": ").ok_or(form)?;
    let (title, text) = rest.split_once("**. ").ok_or(form)?;
    if anchor != id.to_lowercase() {
        return Err(format!("anchor {anchor:?} does not belong to {id}"));
    }
    if crate::ids::used(id).len() != 1 {
        return Err(format!("{id:?} is no identifier"));
    }
    match title.is_empty() || text.trim().is_empty() {
        true => Err(format!("{id} has no title or no text")),
        false => Ok((id.to_owned(), title.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Spec, Vec<String>) {
        Spec::parse(&[("one".to_owned(), text.to_owned())])
    }

    fn test(id: &str, title: &str, chapter: &str) -> Test {
        Test { id: id.into(), title: title.into(), chapter: chapter.into() }
    }

    const GOOD: &str = "- <a id=\"c-001\"></a>**C-001: a\n  title**. A text.\n\nother\n";

    #[test]
    fn an_entry_over_two_lines_is_read() {
        let (spec, faults) = parse(GOOD);
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(spec.get("C-001").unwrap().title, "a title");
    }

    #[test]
    fn malformed_entries_are_faults() {
        for bad in [
            "- <a id=\"c-002\"></a>**C-001: title**. Text",
            "- <a id=\"c-001\"></a>**C-001: title**.",
            "- <a id=\"c-001\"></a>**C-001: title**. ",
            "- <a id=\"c-1\"></a>**C-1: title**. Text",
            "- <a id=\"c-001\"></a>C-001: title. Text",
        ] {
            assert_eq!(parse(bad).1.len(), 1, "{bad}");
        }
        assert_eq!(parse(&GOOD.repeat(2)).1.len(), 1, "an entry that stands twice");
    }

    #[test]
    fn clauses_and_tests_that_differ_are_faults() {
        let (spec, _) = parse(GOOD);
        let good = || test("C-001", "a title", "one");
        assert!(spec.against(&[good()], &[]).is_empty());
        let reason = |text: &str| ("C-001".to_owned(), text.to_owned());
        assert!(spec.against(&[], &[reason("because")]).is_empty());
        for (tests, reasons) in [
            (vec![], vec![]),
            (vec![], vec![reason(" ")]),
            (vec![good()], vec![reason("because")]),
            (vec![good(), good()], vec![]),
            (vec![test("C-001", "another title", "one")], vec![]),
            (vec![test("C-001", "a title", "two")], vec![]),
            (vec![good(), test("C-002", "a title", "one")], vec![]),
            (vec![good()], vec![("C-002".to_owned(), "because".to_owned())]),
        ] {
            assert_eq!(spec.against(&tests, &reasons).len(), 1);
        }
    }
}
