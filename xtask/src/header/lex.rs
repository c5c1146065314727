//! Rust source as words: enough of the language for declarations.

/// A word of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A line of documentation, without its slashes.
    Doc(String),
    /// A name, keyword or number.
    Name(String),
    /// Everything else, a character at a time.
    Mark(char),
}

/// Takes the source apart. Strings, plain comments and lifetimes are left out: declarations need none.
pub fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let line = rest.find('\n').unwrap_or(rest.len());
        if let Some(doc) = rest[..line].strip_prefix("///") {
            words.push(Word::Doc(doc.trim().to_owned()));
            rest = &rest[line..];
        } else if rest.starts_with("//") {
            rest = &rest[line..];
        } else if first == '"' {
            rest = &rest[string_end(rest)..];
        } else if first == '\'' {
            rest = &rest[quote_end(rest)..];
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            words.push(Word::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                words.push(Word::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    words
}

/// Behind the closing quote.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Behind a character or a lifetime.
fn quote_end(text: &str) -> usize {
    let inner: Vec<char> = text.chars().skip(1).take(2).collect();
    match inner.as_slice() {
        ['\\', _] => text[2..].find('\'').map_or(text.len(), |at| at + 3),
        [_, '\''] => 1 + inner[0].len_utf8() + 1,
        _ => 1 + text[1..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len() - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_taken_apart() {
        let name = |text: &str| Word::Name(text.into());
        let found = words("/// Doc.\npub a: &'static [u8; 4], // no\nextern \"C\" b'\\0' 'x' c");
        let expected = [
            Word::Doc("Doc.".into()),
            name("pub"),
            name("a"),
            Word::Mark(':'),
            Word::Mark('&'),
            Word::Mark('['),
            name("u8"),
            Word::Mark(';'),
            name("4"),
            Word::Mark(']'),
            Word::Mark(','),
            name("extern"),
            name("b"),
            name("c"),
        ];
        assert_eq!(found, expected);
    }
}
