//! What a Rust source file declares and names, read from its tokens: child modules, imports, items and paths.
//! Macro arguments are tokens like any others, so paths inside them count too.

use crate::report::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A module: a file, or an inline `mod name { ... }` in one.
#[derive(Default)]
pub struct Source {
    pub children: Vec<Child>,
    pub imports: Vec<Import>,
    /// Paths of two or more segments outside imports.
    pub paths: Vec<Named>,
    /// Items defined here.
    pub defined: BTreeSet<String>,
    /// Every identifier outside imports.
    pub mentioned: BTreeSet<String>,
}

/// A module declared in another.
pub struct Child {
    pub name: String,
    pub body: Body,
}

/// Where a module's text is.
pub enum Body {
    Inline(Source),
    /// In a file of its own; the path of a `#[path]` attribute, if it has one.
    File(Option<PathBuf>),
}

/// A path and the line it stands on.
#[derive(Clone)]
pub struct Named {
    pub path: Vec<String>,
    pub line: usize,
}

/// One leaf of a `use`.
pub struct Import {
    pub from: Named,
    /// The name it has here; `*` imports everything, `_` only methods.
    pub name: String,
    /// Whether it is visible outside this module.
    pub public: bool,
}

impl Source {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Source> {
        let text = fs_err::read_to_string(file)?;
        Source::parse(&text)
    }

    /// Reads a text.
    pub fn parse(text: &str) -> Result<Source> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        let mut source = Source::default();
        source.tokens(tokens);
        Ok(source)
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut attributes = Attributes::default();
        let mut public = false;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    at += 1 + usize::from(is_punct(tokens.get(at + 1), '!'));
                    if let Some(group) = group(tokens.get(at), Delimiter::Bracket) {
                        attributes.read(group);
                        at += 1;
                    }
                    continue;
                }
                _ if attributes.test => at = item_end(&tokens, at),
                TokenTree::Ident(word) if word == "pub" => {
                    public = true;
                    at += 1 + usize::from(group(tokens.get(at + 1), Delimiter::Parenthesis).is_some());
                    continue;
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = item_end(&tokens, at);
                    self.import(&tokens[at + 1..end], &mut Vec::new(), public);
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" && ident(tokens.get(at + 1)).is_some() => {
                    let name = ident(tokens.get(at + 1)).unwrap_or_default();
                    let body = match group(tokens.get(at + 2), Delimiter::Brace) {
                        Some(group) => {
                            let mut inline = Source::default();
                            inline.tokens(group.stream());
                            Body::Inline(inline)
                        }
                        None => Body::File(attributes.path.take()),
                    };
                    self.children.push(Child { name, body });
                    at += 3;
                }
                TokenTree::Ident(_) => at = self.path(&tokens, at),
                TokenTree::Group(inner) => {
                    self.tokens(inner.stream());
                    at += 1;
                }
                _ => at += 1,
            }
            (attributes, public) = (Attributes::default(), false);
        }
    }

    /// A path, or a single identifier, which may be an item's name.
    fn path(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let (path, end) = segments(tokens, start);
        self.mentioned.extend(path.iter().cloned());
        let keyword = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        if path.len() > 1 {
            self.paths.push(Named { path, line: line(&tokens[start]) });
        } else if keyword.contains(&path[0].as_str()) {
            self.defined.extend(ident(tokens.get(end)));
        } else if path[0] == "macro_rules" && is_punct(tokens.get(end), '!') {
            self.defined.extend(ident(tokens.get(end + 1)));
        }
        end
    }

    /// The leaves of an import's tree.
    fn import(&mut self, tokens: &[TokenTree], prefix: &mut Vec<String>, public: bool) {
        for branch in tokens.split(|token| is_punct(Some(token), ',')).filter(|branch| !branch.is_empty()) {
            let line = line(&branch[0]);
            let start = branch.iter().position(|token| !is_punct(Some(token), ':')).unwrap_or(branch.len());
            let (mut path, mut end) = match ident(branch.get(start)) {
                Some(_) => segments(branch, start),
                None => (Vec::new(), start),
            };
            let depth = prefix.len();
            // `use a::b::{self, c}` imports `a::b` itself.
            if depth > 0 && path.first().is_some_and(|first| first == "self") {
                path.remove(0);
            }
            prefix.append(&mut path);
            while is_punct(branch.get(end), ':') {
                end += 1;
            }
            if let Some(group) = group(branch.get(end), Delimiter::Brace) {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                self.import(&inner, prefix, public);
            } else {
                let renamed = (ident(branch.get(end)).as_deref() == Some("as")).then(|| branch.get(end + 1));
                let name = match renamed {
                    Some(name) => ident(name).unwrap_or_else(|| "_".to_owned()),
                    None if is_punct(branch.get(end), '*') => "*".to_owned(),
                    None => prefix.last().cloned().unwrap_or_default(),
                };
                self.imports.push(Import { from: Named { path: prefix.clone(), line }, name, public });
            }
            prefix.truncate(depth);
        }
    }
}

/// What the attributes of the next item say.
#[derive(Default)]
struct Attributes {
    /// Compiled in tests only.
    test: bool,
    path: Option<PathBuf>,
}

impl Attributes {
    fn read(&mut self, attribute: &Group) {
        let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
        match ident(tokens.first()).as_deref() {
            Some("cfg") => self.test |= group(tokens.get(1), Delimiter::Parenthesis).is_some_and(needs_test),
            Some("test") => self.test = true,
            Some("path") => {
                let text = tokens.get(2).map(|text| text.to_string()).unwrap_or_default();
                self.path = Some(PathBuf::from(text.trim_matches('"')));
            }
            _ => {}
        }
    }
}

/// Whether a condition is `test`, or `all(...)` with `test` in it.
fn needs_test(condition: &Group) -> bool {
    let tokens: Vec<TokenTree> = condition.stream().into_iter().collect();
    tokens.split(|token| is_punct(Some(token), ',')).any(|term| match term {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(inner)] => word == "all" && needs_test(inner),
        _ => false,
    })
}

/// The identifiers of a path, and the index behind it. Generic arguments end it.
fn segments(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut at = start;
    while let Some(name) = ident(tokens.get(at)) {
        path.push(name);
        at += 1;
        let goes_on = is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':');
        if !goes_on || ident(tokens.get(at + 2)).is_none() {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// The index behind an item: behind its `;`, or behind its body.
fn item_end(tokens: &[TokenTree], start: usize) -> usize {
    let import = ident(tokens.get(start)).as_deref() == Some("use");
    let ends = |token: &TokenTree| {
        is_punct(Some(token), ';') || !import && group(Some(token), Delimiter::Brace).is_some()
    };
    tokens[start..].iter().position(ends).map_or(tokens.len(), |length| start + length + 1)
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}
