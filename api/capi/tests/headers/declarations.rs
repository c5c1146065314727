//! What a set of C headers declares, as the preprocessor shows it: enough of C's grammar for the headers of uDAPL.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Programs include these three; they include the others.
pub const INCLUDES: &str = "#include <stddef.h>\n#include <stdint.h>\n#include <stdarg.h>\n#include <stdio.h>\n\
     #include <netinet/in.h>\n#include <dat2/udat.h>\n#include <dat2/dat_registry.h>\n#include <dat2/dat_ib_extensions.h>\n";

/// The declarations, each by its name.
#[derive(Default)]
pub struct Declarations {
    pub enumerators: Vec<String>,
    /// `struct tag`, `union tag`: the members with their types.
    pub composites: BTreeMap<String, Vec<(String, String)>>,
    /// `enum tag`.
    pub enumerations: Vec<String>,
    /// Types, with their declarations, unless these have a body.
    pub types: BTreeMap<String, Option<String>>,
    /// Functions, with their prototypes.
    pub functions: BTreeMap<String, String>,
    /// Macros, with the number of their parameters, if they have any.
    pub macros: BTreeMap<String, Option<usize>>,
}

/// Runs the C compiler on a source, with these headers before those of the system.
pub fn compile(
    folder: &Path,
    headers: Option<&Path>,
    source: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let file = folder.join("source.c");
    std::fs::write(&file, source).expect("written");
    let mut command = Command::new("cc");
    if let Some(headers) = headers {
        command.arg("-I").arg(headers);
    }
    let ran = command.args(arguments).arg(&file).current_dir(folder).output();
    let ran = ran.expect("a C compiler named cc; install gcc");
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
    }
}

impl Declarations {
    /// Of the headers in this folder, or of those the system has.
    pub fn read(folder: &Path, headers: Option<&Path>) -> Declarations {
        let text = compile(folder, headers, INCLUDES, &["-std=gnu11", "-E", "-dD"]).expect("preprocessed");
        let mut all = Declarations::default();
        let (mut ours, mut code) = (false, String::new());
        for line in text.lines() {
            if let Some(marker) = line.strip_prefix("# ") {
                ours = marker.contains("/dat2/");
            } else if ours {
                match line.strip_prefix("#define ") {
                    Some(definition) => all.macro_of(definition),
                    None if line.starts_with('#') => {}
                    None => code = code + line + "\n",
                }
            }
        }
        let tokens = tokens(&code);
        let mut rest = tokens.as_slice();
        while !rest.is_empty() {
            let (declaration, after) = split_first(rest);
            all.declaration(declaration);
            rest = after;
        }
        all
    }

    fn macro_of(&mut self, definition: &str) {
        let end = definition.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let (name, rest) = definition.split_at(end.unwrap_or(definition.len()));
        // A guard against including a file twice.
        if (name.ends_with("_H") || name.ends_with("_H_")) && rest.trim().is_empty() {
            return;
        }
        let parameters = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        self.macros.insert(name.to_owned(), parameters.map(|(names, _)| names.split(',').count()));
    }

    fn declaration(&mut self, tokens: &[String]) {
        let is_type = tokens.first().is_some_and(|first| first == "typedef");
        let text = tokens.join(" ");
        let words = &tokens[usize::from(is_type)..];
        let Some(open) = words.iter().position(|token| token == "{") else {
            match is_type {
                true => drop(self.types.insert(declared(words).0, Some(text))),
                false if words.iter().any(|token| token == "(") => {
                    self.functions.insert(words[name_before_parenthesis(words)].clone(), text);
                }
                // A tag alone.
                false => {}
            }
            return;
        };
        if words[0] == "static" {
            self.functions.insert(words[name_before_parenthesis(words)].clone(), tokens[..open].join(" "));
            return;
        }
        let close = words.len() - words.iter().rev().position(|token| token == "}").expect("closed") - 1;
        let tag = words[..2].join(" ");
        let body = &words[open + 1..close];
        if is_type {
            self.types.insert(words[close + 1].clone(), None);
        }
        if words[0] != "enum" {
            self.composites.insert(tag, members(body, ""));
            return;
        }
        self.enumerations.push(tag);
        let names = body.split(|token| token == ",").filter_map(|each| each.first());
        self.enumerators.extend(names.cloned());
    }

    /// Every name a program may use.
    pub fn names(&self) -> Vec<&String> {
        let sets = self.types.keys().chain(self.functions.keys()).chain(self.macros.keys());
        sets.chain(&self.enumerators).chain(self.composites.keys()).chain(&self.enumerations).collect()
    }

    /// Each macro's expansion, its arguments being `a0`, `a1`, without what does not matter: parentheses, blanks, `const`
    /// in casts, the mark for what is an extension, and a cast that the prototype of `dat_extension_op` makes too.
    pub fn expansions(&self, folder: &Path, headers: Option<&Path>) -> BTreeMap<String, String> {
        let mut source = INCLUDES.to_owned();
        for (name, parameters) in &self.macros {
            let arguments: Vec<String> =
                (0..parameters.unwrap_or(0)).map(|number| format!("a{number}")).collect();
            let call =
                if parameters.is_some() { format!("({})", arguments.join(",")) } else { String::new() };
            source += &format!("@ \"{name}\" {name}{call}\n");
        }
        let text = compile(folder, headers, &source, &["-std=gnu11", "-E", "-P"]).expect("preprocessed");
        let each = text.lines().skip_while(|line| !line.starts_with('@')).collect::<Vec<_>>().join("\n");
        let pairs = each.split('@').filter_map(|one| one.trim().strip_prefix('"')?.split_once('"'));
        let plain = |text: &str| {
            let left_out = ["(", ")", "const", "__extension__", "DAT_IB_OP"];
            let words = tokens(text).into_iter().filter(|token| !left_out.contains(&token.as_str()));
            let balanced = text.matches('(').count() == text.matches(')').count();
            let words = words.chain((!balanced).then(|| "parentheses do not match".to_owned()));
            words.collect::<Vec<_>>().join(" ")
        };
        pairs.map(|(name, text)| (name.to_owned(), plain(text))).collect()
    }
}

/// The words and signs of C code.
fn tokens(code: &str) -> Vec<String> {
    let (mut all, mut word) = (Vec::new(), String::new());
    let mut quoted = false;
    for letter in code.chars() {
        quoted ^= letter == '"';
        if quoted || letter == '"' || letter.is_alphanumeric() || letter == '_' || letter == '.' {
            word.push(letter);
            continue;
        }
        if !word.is_empty() {
            all.push(std::mem::take(&mut word));
        }
        if !letter.is_whitespace() {
            all.push(letter.to_string());
        }
    }
    all.extend((!word.is_empty()).then_some(word));
    all.retain(|token| token != "__extension__" && token != "extern");
    all
}

/// The first declaration and what follows it: up to a semicolon or the end of a function's body.
fn split_first(tokens: &[String]) -> (&[String], &[String]) {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return (&tokens[..at], &tokens[at + 1..]),
            _ => {}
        }
        if token == "}" && depth == 0 && tokens[0] == "static" {
            return (&tokens[..=at], &tokens[at + 1..]);
        }
    }
    (tokens, &[])
}

fn name_before_parenthesis(words: &[String]) -> usize {
    words.iter().position(|token| token == "(").expect("a function") - 1
}

/// The name that a declaration without a body declares, and its type.
fn declared(words: &[String]) -> (String, String) {
    // `char ( * NAME ) [40]` and `void ( * NAME ) ( ... )`, or the last word before any bounds.
    let pointer = words.windows(2).position(|pair| pair[0] == "(" && pair[1] == "*");
    let at = match pointer {
        Some(at) => at + 2,
        None => words.iter().position(|token| token == "[").unwrap_or(words.len()) - 1,
    };
    let others: Vec<&str> =
        words.iter().enumerate().filter(|(each, _)| *each != at).map(|(_, word)| word.as_str()).collect();
    (words[at].clone(), others.join(" "))
}

/// The members of a structure or union, with those of nested ones, by the path that `offsetof` takes.
fn members(body: &[String], prefix: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (member, after) = split_first(rest);
        rest = after;
        let Some(open) = member.iter().position(|token| token == "{") else {
            let (name, kind) = declared(member);
            all.push((format!("{prefix}{name}"), kind));
            continue;
        };
        let close = member.iter().rposition(|token| token == "}").expect("closed");
        let inner = match member.get(close + 1) {
            Some(name) => format!("{prefix}{name}."),
            None => prefix.to_owned(),
        };
        all.push((format!("{inner}*"), member[..open].join(" ")));
        all.extend(members(&member[open + 1..close], &inner));
    }
    all
}
