//! The documents agree with the tree: quoted code, decision records, and the tables of ARCHITECTURE.md. Links are checked
//! with the specification, in `conformance/tests/specification`.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn code_of_the_tutorial_is_code_of_the_examples() {
    let examples = read("examples/tutorial_server.rs") + &read("examples/tutorial_client.rs");
    let blocks = code_blocks(&read("docs/tutorial.md"), "rust");
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    for block in blocks {
        assert!(examples.contains(&block), "docs/tutorial.md shows what no example has:\n{block}");
    }
}

#[test]
fn the_first_program_of_the_readme_is_the_example() {
    let blocks = code_blocks(&read("README.md"), "rust,no_run");
    let example = read("examples/first.rs");
    let (_, program) =
        example.split_once("unsafe_code)]\n\n").expect("the example begins with its attributes");
    assert_eq!(blocks.first().map(String::as_str), Some(program));
}

#[test]
fn each_decision_record_has_its_parts_and_a_line_in_the_index() {
    let index = read("docs/adr/README.md");
    let mut records: Vec<PathBuf> = files(&root().join("docs/adr"), "md");
    records.retain(|path| path.file_name().is_some_and(|name| name != "README.md"));
    records.sort();
    assert!(records.len() >= 40, "{} records", records.len());
    for (i, path) in records.iter().enumerate() {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let text = read_path(path);
        let title = text.lines().next().unwrap_or_default();
        assert!(name.starts_with(&format!("{:04}-", i + 1)), "{name}: numbers have no gap");
        assert!(title.starts_with(&format!("# {:04}. ", i + 1)), "{name}: {title}");
        for part in ["- Status: ", "- Date: 20", "## Context", "## Decision", "## Consequences"] {
            assert!(text.contains(part), "{name} has no {part:?}");
        }
        let row = format!("| [{:04}]({name}) | {} |", i + 1, &title[8..]);
        assert!(index.contains(&row), "docs/adr/README.md has no row {row}");
    }
}

#[test]
fn the_unsafe_table_of_the_architecture_is_complete() {
    let rows = section_rows(&read("ARCHITECTURE.md"), "## Unsafe");
    let mut listed = BTreeMap::new();
    for row in &rows {
        for krate in quoted(&row[0]) {
            listed.insert(krate, row[1] != "none");
        }
    }
    let found = crates_with_unsafe();
    for (krate, has) in &found {
        match listed.get(krate) {
            Some(says) => assert_eq!(says, has, "{krate}: the table's word on `unsafe` is wrong"),
            None => assert!(!has, "{krate} has `unsafe` and no row in ARCHITECTURE.md, \"Unsafe\""),
        }
    }
    let unknown: Vec<_> = listed.keys().filter(|krate| !found.contains_key(*krate)).collect();
    assert!(unknown.is_empty(), "no such crates: {unknown:?}");
    assert!(found.values().filter(|has| **has).count() > 10, "{found:?}");
}

#[test]
fn paths_in_the_architecture_exist() {
    let text = read("ARCHITECTURE.md");
    let mut paths = 0;
    for word in quoted(&text).into_iter().flat_map(|word| expanded(&word)) {
        let top = word.split('/').next().unwrap_or_default();
        if word.contains('/') && !word.contains(' ') && root().join(top).is_dir() {
            paths += 1;
            assert!(root().join(&word).exists(), "ARCHITECTURE.md names {word}, which does not exist");
        }
    }
    assert!(paths > 25, "{paths} paths were found");
}

/// Crates of the tree by name, and whether their sources have the keyword `unsafe`. Integration tests do not count.
fn crates_with_unsafe() -> BTreeMap<String, bool> {
    let mut manifests = Vec::new();
    walk(&root(), &mut |path| {
        if path.file_name().is_some_and(|name| name == "Cargo.toml") {
            manifests.push(path.to_owned());
        }
    });
    let folders: BTreeSet<PathBuf> =
        manifests.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
    let mut found = BTreeMap::new();
    for manifest in &manifests {
        let text = read_path(manifest);
        let Some(name) = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        else {
            continue; // The workspace's own.
        };
        let folder = manifest.parent().expect("a folder");
        let mut has = false;
        walk(folder, &mut |path| {
            let owner = path.ancestors().skip(1).find(|above| folders.contains(*above));
            let tests = folder.join("tests");
            if owner == Some(folder)
                && !path.starts_with(tests)
                && path.extension().is_some_and(|e| e == "rs")
            {
                has |= has_keyword(&read_path(path), "unsafe");
            }
        });
        found.insert(name.to_owned(), has);
    }
    assert!(found.len() > 25, "{found:?}");
    found
}

/// Whether `word` occurs outside comments and literals.
fn has_keyword(text: &str, word: &str) -> bool {
    let code = without_comments_and_literals(text);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(is_name) && !code[at + word.len()..].starts_with(is_name))
}

fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) =
            raw_string(rest).filter(|_| !code.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        {
            length
        } else if c == '"' {
            string(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal that begins here; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        // An escape: its end is the next quote after the escaped character.
        Some((_, '\\')) => text[3..].find('\'').map_or(text.len(), |at| at + 4),
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// The length of a raw string that begins here.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r').or_else(|| text.strip_prefix("br"))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text.len() - body.len() + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

#[test]
fn the_keyword_is_found_in_code_only() {
    assert!(has_keyword("fn a() { unsafe { b() } }", "unsafe"));
    for text in [
        "// unsafe",
        "/* a /* unsafe */ */",
        "\"unsafe\"",
        "r#\"\" unsafe\"#",
        "unsafe_code",
        "\"\\\" unsafe\"",
    ] {
        assert!(!has_keyword(text, "unsafe"), "{text}");
    }
    for text in
        ["let quote = '\"'; unsafe {}", "let quote = '\\''; unsafe {}", "fn a<'b>(_: &'b str) { unsafe {} }"]
    {
        assert!(has_keyword(text, "unsafe"), "{text}");
    }
}

/// Rows of the first table below a heading, without its two header lines.
fn section_rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = text.split_once(&format!("\n{heading}\n")).expect("the heading");
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.skip(2).map(cells).collect()
}

/// What stands between back quotes, outside code blocks.
fn quoted(text: &str) -> Vec<String> {
    text.split("```")
        .step_by(2)
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// `a/{b,c}` as `a/b` and `a/c`.
fn expanded(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
    let Some((list, after)) = rest.split_once('}') else { return vec![word.to_owned()] };
    list.split(',').map(|item| format!("{before}{item}{after}")).collect()
}

fn code_blocks(text: &str, language: &str) -> Vec<String> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'))
        .map(|b| format!("{b}\n"))
        .collect()
}

/// Files of one folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let items = fs::read_dir(folder).expect("a folder").map(|item| item.expect("an item").path());
    items.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

/// Visits all files below a folder, build output and hidden ones aside.
fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for item in fs::read_dir(folder).expect("a folder") {
        let path = item.expect("an item").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() { walk(&path, visit) } else { visit(&path) }
    }
}

fn read(path: &str) -> String {
    read_path(&root().join(path))
}

fn read_path(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tree").to_owned()
}
