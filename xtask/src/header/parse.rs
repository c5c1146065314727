//! Declarations out of words: structures that cross the boundary, numbers with names, and what traits say of methods.

use std::collections::BTreeMap;

use super::lex::{Word, words};

/// Everything found, in the order of the source.
#[derive(Debug, Default)]
pub struct Source {
    pub structs: Vec<Struct>,
    pub numbers: Vec<Numbers>,
    /// `const NAME: T = VALUE;`
    pub consts: BTreeMap<String, (Vec<String>, String)>,
    /// By trait and method.
    pub methods: BTreeMap<(String, String), Vec<String>>,
}

/// A `#[repr(C)]` structure.
#[derive(Debug)]
pub struct Struct {
    pub name: String,
    pub docs: Vec<String>,
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub docs: Vec<String>,
    pub of: Type,
}

/// A type made by `constants!`.
#[derive(Debug)]
pub struct Numbers {
    pub name: String,
    pub docs: Vec<String>,
    pub int: String,
    pub values: Vec<(String, Vec<String>, String)>,
}

/// A type as declarations have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// The last part of its path.
    Named(String),
    Pointer {
        constant: bool,
        to: Box<Type>,
    },
    Array {
        of: Box<Type>,
        count: String,
    },
    Function {
        arguments: Vec<(String, Type)>,
        result: Option<Box<Type>>,
    },
}

type Result<T> = std::result::Result<T, String>;

impl Source {
    /// Adds what a file declares.
    pub fn read(&mut self, text: &str) -> Result<()> {
        let mut reader = Reader { words: words(text), at: 0 };
        let (mut docs, mut repr_c) = (Vec::new(), false);
        while let Some(word) = reader.next() {
            match word {
                Word::Doc(line) => docs.push(line),
                Word::Mark('#') => repr_c |= reader.attribute()?.iter().any(|word| word == "repr"),
                Word::Name(name) => match name.as_str() {
                    "pub" | "unsafe" => {
                        reader.skip_group('(', ')')?;
                    }
                    "struct" if repr_c => {
                        self.structs.push(reader.structure(std::mem::take(&mut docs))?);
                        repr_c = false;
                    }
                    "const" => reader.constant(std::mem::take(&mut docs), &mut self.consts)?,
                    "trait" => reader.methods(&mut self.methods)?,
                    "constants" if reader.is('!') => {
                        reader.expect('!')?;
                        self.numbers.extend(reader.numbers()?);
                    }
                    "macro_rules" | "impl" | "fn" | "mod" | "enum" => {
                        reader.skip_to_block()?;
                        docs.clear();
                    }
                    _ => {
                        docs.clear();
                        repr_c = false;
                    }
                },
                Word::Mark(_) => {
                    docs.clear();
                    repr_c = false;
                }
            }
        }
        Ok(())
    }
}

struct Reader {
    words: Vec<Word>,
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<Word> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn is(&self, mark: char) -> bool {
        self.words.get(self.at) == Some(&Word::Mark(mark))
    }

    fn take(&mut self, mark: char) -> bool {
        let there = self.is(mark);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, mark: char) -> Result<()> {
        match self.take(mark) {
            true => Ok(()),
            false => Err(format!("{mark:?} expected, found {:?}", self.words.get(self.at))),
        }
    }

    fn name(&mut self) -> Result<String> {
        match self.next() {
            Some(Word::Name(name)) => Ok(name),
            other => Err(format!("a name expected, found {other:?}")),
        }
    }

    fn take_name(&mut self, wanted: &str) -> bool {
        let there = matches!(self.words.get(self.at), Some(Word::Name(name)) if name == wanted);
        self.at += usize::from(there);
        there
    }

    fn docs(&mut self) -> Result<Vec<String>> {
        let mut docs = Vec::new();
        loop {
            match self.words.get(self.at) {
                Some(Word::Doc(line)) => {
                    docs.push(line.clone());
                    self.at += 1;
                }
                Some(Word::Mark('#')) => {
                    self.at += 1;
                    self.attribute()?;
                }
                _ => return Ok(docs),
            }
        }
    }

    /// The names in `[...]`, behind the `#`.
    fn attribute(&mut self) -> Result<Vec<String>> {
        self.take('!');
        let from = self.at;
        self.skip_group('[', ']')?;
        let names = self.words[from..self.at].iter().filter_map(|word| match word {
            Word::Name(name) => Some(name.clone()),
            _ => None,
        });
        Ok(names.collect())
    }

    /// A group with what is nested in it, if one begins here.
    fn skip_group(&mut self, open: char, close: char) -> Result<()> {
        let mut depth = 0;
        while depth > 0 || (depth == 0 && self.is(open)) {
            match self.next() {
                Some(Word::Mark(mark)) if mark == open => depth += 1,
                Some(Word::Mark(mark)) if mark == close => depth -= 1,
                Some(_) => {}
                None => return Err(format!("{close:?} is missing")),
            }
            if depth == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Up to the end of the block that follows, or to the semicolon before one.
    fn skip_to_block(&mut self) -> Result<()> {
        while self.at < self.words.len() {
            if self.is('{') {
                return self.skip_group('{', '}');
            }
            if self.take(';') {
                return Ok(());
            }
            self.at += 1;
        }
        Ok(())
    }

    fn structure(&mut self, docs: Vec<String>) -> Result<Struct> {
        let name = self.name()?;
        self.expect('{')?;
        let mut fields = Vec::new();
        while !self.take('}') {
            let docs = self.docs()?;
            if self.take('}') {
                break;
            }
            if self.take_name("pub") {
                self.skip_group('(', ')')?;
            }
            let name = self.name()?;
            self.expect(':')?;
            fields.push(Field { name, docs, of: self.of()? });
            self.take(',');
        }
        Ok(Struct { name, docs, fields })
    }

    fn of(&mut self) -> Result<Type> {
        if self.take('*') {
            let constant = self.name()? == "const";
            return Ok(Type::Pointer { constant, to: Box::new(self.of()?) });
        }
        if self.take('&') {
            return Ok(Type::Pointer { constant: true, to: Box::new(self.of()?) });
        }
        if self.take('[') {
            let of = Box::new(self.of()?);
            self.expect(';')?;
            let count = self.name()?;
            self.expect(']')?;
            return Ok(Type::Array { of, count });
        }
        let mut name = self.name()?;
        while ["unsafe", "extern"].contains(&name.as_str()) {
            name = self.name()?;
        }
        if name == "fn" {
            return self.function();
        }
        while self.take(':') {
            self.expect(':')?;
            name = self.name()?;
        }
        Ok(Type::Named(name))
    }

    fn function(&mut self) -> Result<Type> {
        self.expect('(')?;
        let mut arguments = Vec::new();
        while !self.take(')') {
            let name = self.name()?;
            self.expect(':')?;
            arguments.push((name, self.of()?));
            self.take(',');
        }
        let result = match self.take('-') {
            true => {
                self.expect('>')?;
                Some(Box::new(self.of()?))
            }
            false => None,
        };
        Ok(Type::Function { arguments, result })
    }

    /// Of constants only those with a number or a name as value matter.
    fn constant(
        &mut self,
        docs: Vec<String>,
        consts: &mut BTreeMap<String, (Vec<String>, String)>,
    ) -> Result<()> {
        let Some(Word::Name(name)) = self.next() else { return Ok(()) };
        if !self.take(':') {
            return Ok(());
        }
        let mut last = String::new();
        let mut simple = 0;
        while self.at < self.words.len() && !self.take(';') {
            match self.next() {
                Some(Word::Mark('=')) => simple = 0,
                Some(Word::Mark('{')) => {
                    self.at -= 1;
                    self.skip_group('{', '}')?;
                    simple += 1;
                }
                Some(Word::Name(value)) => {
                    last = value;
                    simple += 1;
                }
                _ => simple += 2,
            }
        }
        if simple == 1 && last.chars().all(|c| c.is_ascii_digit()) {
            consts.insert(name, (docs, last));
        } else if name == "ABI_MINOR" {
            // The current one is what stands last: older ones are chosen by a feature.
            let block = &self.words[..self.at];
            let value = block.iter().rev().find_map(|word| match word {
                Word::Name(text) if text.chars().all(|c| c.is_ascii_digit()) => Some(text.clone()),
                _ => None,
            });
            consts.insert(name, (docs, value.ok_or("ABI_MINOR has no number")?));
        }
        Ok(())
    }

    /// The body of `constants!`.
    fn numbers(&mut self) -> Result<Vec<Numbers>> {
        self.expect('{')?;
        let mut list = Vec::new();
        while !self.take('}') {
            let docs = self.docs()?;
            let name = self.name()?;
            self.expect('(')?;
            let int = self.name()?;
            self.expect(')')?;
            self.expect('{')?;
            let mut values = Vec::new();
            while !self.take('}') {
                let docs = self.docs()?;
                let name = self.name()?;
                self.expect('=')?;
                let sign = if self.take('-') { "-" } else { "" };
                let value = format!("{sign}{}", self.name()?);
                self.expect(';')?;
                values.push((name, docs, value));
            }
            list.push(Numbers { name, docs, int, values });
        }
        Ok(list)
    }

    /// What a trait says of its methods.
    fn methods(&mut self, methods: &mut BTreeMap<(String, String), Vec<String>>) -> Result<()> {
        let of = self.name()?;
        while !self.is('{') && self.at < self.words.len() {
            self.at += 1;
        }
        self.expect('{')?;
        let mut docs = Vec::new();
        while !self.take('}') {
            match self.next() {
                Some(Word::Doc(line)) => docs.push(line),
                Some(Word::Name(name)) if name == "fn" => {
                    let name = self.name()?;
                    methods.insert((of.clone(), name), std::mem::take(&mut docs));
                    self.skip_to_block()?;
                }
                Some(Word::Mark(';')) => docs.clear(),
                Some(_) => {}
                None => return Err(format!("trait {of} does not end")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_numbers_and_methods_are_found() {
        let mut source = Source::default();
        source
            .read(
                "macro_rules! constants { ($a:ty) => { pub struct $a; } }\n\
                 constants! {\n /// Doc.\n A(i32) {\n /// One.\n ONE = -1;\n }\n}\n\
                 /// S.\n#[repr(C)]\n#[derive(Clone)]\npub struct S {\n /// f.\n pub(crate) f: [u8; MOST],\n\
                 pub g: unsafe extern \"C\" fn(a: *const x::Y, n: usize) -> A,\n}\n\
                 struct NotC { f: u8 }\n pub const MOST: usize = 512;\n\
                 pub const ABI_MINOR: u32 = if cfg!(feature = \"x\") { 0 } else { 3 };\n\
                 pub trait T: Send {\n type X: Y;\n /// M.\n fn m(&self) -> u8 { 7 }\n /// N.\n fn n(&self);\n}\n",
            )
            .expect("understood");
        assert_eq!(source.numbers[0].values[0], ("ONE".into(), vec!["One.".into()], "-1".into()));
        assert_eq!(source.structs.len(), 1);
        let fields = &source.structs[0].fields;
        assert_eq!(fields[0].docs, ["f."]);
        let named = |name: &str| Type::Named(name.into());
        assert_eq!(fields[0].of, Type::Array { of: Box::new(named("u8")), count: "MOST".into() });
        let pointer = Type::Pointer { constant: true, to: Box::new(named("Y")) };
        let arguments = vec![("a".into(), pointer), ("n".into(), named("usize"))];
        assert_eq!(fields[1].of, Type::Function { arguments, result: Some(Box::new(named("A"))) });
        assert_eq!(source.consts["MOST"].1, "512");
        assert_eq!(source.consts["ABI_MINOR"].1, "3");
        assert_eq!(source.methods[&("T".into(), "n".into())], ["N."]);
        assert_eq!(source.methods[&("T".into(), "m".into())], ["M."]);
    }
}
