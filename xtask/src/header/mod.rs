//! `include/dat_plugin.h`: the plugin interface for C, printed from the Rust source of `dat-plugin`, which is the only
//! place it is written down. A test of that crate compiles the header and compares every size, offset and constant.

mod lex;
mod parse;
mod print;

use std::fs;

use crate::root;

/// The file, from the root.
pub const FILE: &str = "include/dat_plugin.h";

/// What is read, in the order it is printed. The traits have the words for the tables' functions.
const SOURCES: [&str; 7] = [
    "provider.rs",
    "wire/numbers.rs",
    "wire/request.rs",
    "wire/event.rs",
    "wire/attr.rs",
    "ops.rs",
    "note.rs",
];

/// The header's text.
pub fn text() -> Result<String, String> {
    let mut source = parse::Source::default();
    for name in SOURCES.iter().chain(&["module.rs"]) {
        let path = root().join("api/plugin/src").join(name);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        source.read(&text).map_err(|what| format!("{}: {what}", path.display()))?;
    }
    print::header(&source)
}

/// Major and minor version of the interface, as in `1.1`.
pub fn version() -> Result<String, String> {
    let text = text()?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define DATP_ABI_")?.strip_prefix(name));
        line.map(str::trim).ok_or(format!("the header has no {name}"))
    };
    Ok(format!("{}.{}", number("MAJOR")?, number("MINOR")?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_header_in_the_tree_is_the_one_the_source_gives() {
        let printed = super::text().expect("the source is understood");
        let there = std::fs::read_to_string(crate::root().join(super::FILE)).expect("it is there");
        assert!(printed == there, "{} is out of date; run `cargo xtask docs`", super::FILE);
    }

    #[test]
    fn the_authors_book_has_every_function() {
        let book =
            std::fs::read_to_string(crate::root().join("docs/plugin-authors.md")).expect("it is there");
        let begin = book.find("## Every function").expect("the section");
        let length = book[begin..].find("\n## Capabilities").expect("its end");
        let book = &book[begin..begin + length];
        let header = super::text().expect("the source is understood");
        let names = header.match_indices("(*").filter_map(|(at, _)| {
            let (name, rest) = header[at + 2..].split_once(')')?;
            rest.starts_with('(').then_some(name.trim_end_matches('_'))
        });
        // What the host offers is not an author's to write.
        let functions: Vec<&str> = names.filter(|name| !["log", "push"].contains(name)).collect();
        assert!(functions.len() > 40, "{functions:?}");
        let told = |name: &str| {
            ["`", "::"]
                .iter()
                .any(|before| ["(", "`"].iter().any(|after| book.contains(&format!("{before}{name}{after}"))))
        };
        let missing: Vec<&str> = functions.into_iter().filter(|name| !told(name)).collect();
        assert!(missing.is_empty(), "not in the table of docs/plugin-authors.md: {missing:?}");
    }
}
