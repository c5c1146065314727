//! What was observed, and what is wrong with it.

use std::collections::BTreeMap;
use std::fmt;

use dat_types::Error;

/// What was observed: the answer of each step, and the events of each endpoint and direction. Choices the specification
/// leaves are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub(crate) answers: Vec<String>,
    pub(crate) events: Vec<[Vec<String>; 3]>,
    /// What refusals say.
    pub(crate) texts: Vec<String>,
    /// Low watermark events.
    pub(crate) notices: Vec<String>,
    /// How often a feature was refused that the provider says it lacks.
    pub(crate) refused: BTreeMap<&'static str, u64>,
}

/// A provider does not do what the specification says, or not what another one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Which provider.
    pub label: String,
    /// At or after which step.
    pub step: usize,
    /// What was seen and what should have been.
    pub what: String,
}

impl Disagreement {
    /// The same for disagreements of the same kind: numbers and what programs differ in are left out.
    pub fn kind(&self) -> String {
        let what = self.what.split_once("}: ").map_or(self.what.as_str(), |(_, what)| what);
        let letters = what.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        format!("{}: {letters}", self.label)
    }
}

/// What an error says to people and programs, without numbers and names that differ from run to run, and without the
/// provider's own words, which follow a colon.
pub(super) fn text_of(error: &Error) -> String {
    let message = error.message().unwrap_or_default();
    let message = message.split_once(": ").map_or(message, |(ours, _)| ours);
    let words: Vec<&str> = message
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()))
        .collect();
    format!("{} {:?} {}", error.call().unwrap_or("-"), error.subtype(), words.join(" "))
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, step {}: {}", self.label, self.step, self.what)
    }
}

impl Trace {
    /// Which features were refused: from there on traces go apart.
    pub(crate) fn lacks(&self) -> Vec<&'static str> {
        self.refused.keys().copied().collect()
    }

    /// How often each answer and event occurs, without cookies, lengths and places: what programs really do.
    pub fn kinds(&self) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        let answers = self.answers.iter().cloned();
        let events = self.events.iter().flatten().flatten().map(|event| {
            let letters = |word: &&str| word.starts_with(|c: char| c.is_alphabetic() || c == '[');
            event
                .split_whitespace()
                .take_while(|word| *word != "on")
                .filter(letters)
                .collect::<Vec<_>>()
                .join(" ")
        });
        let notices = self.notices.iter().map(|_| "low watermark".to_owned());
        for kind in answers.chain(events).chain(notices) {
            *out.entry(kind).or_insert(0) += 1;
        }
        out
    }

    /// Where two differ.
    pub(crate) fn difference(&self, other: &Trace) -> String {
        let answers = self.answers.iter().zip(&other.answers).enumerate().find(|(_, (a, b))| a != b);
        if let Some((step, (a, b))) = answers {
            return format!("step {step} gives {b} instead of {a}");
        }
        for (index, (a, b)) in self.events.iter().zip(&other.events).enumerate() {
            if let Some((a, b)) = a.iter().zip(b).find(|(a, b)| a != b) {
                return format!("endpoint {index} gives {b:?} instead of {a:?}");
            }
        }
        if let Some((a, b)) = self.texts.iter().zip(&other.texts).find(|(a, b)| a != b) {
            return format!("says {b:?} instead of {a:?}");
        }
        if self.notices != other.notices {
            return format!("low watermarks of {:?} instead of {:?}", other.notices, self.notices);
        }
        "the traces have different lengths".into()
    }
}

#[cfg(test)]
mod tests {
    use dat_types::{ReturnType, Subtype};

    use super::*;

    fn text(subtype: Subtype, message: &str) -> String {
        text_of(&Error::new("dat_ep_connect", ReturnType::InvalidState, subtype, message))
    }

    #[test]
    fn texts_differ_by_words_and_not_by_numbers() {
        let one = text(Subtype::Arg2, "endpoint 12 is CONNECTED: errno 5 of ours");
        assert_eq!(one, text(Subtype::Arg2, "endpoint 7 is CONNECTED: what another provider adds"));
        assert_ne!(one, text(Subtype::Arg2, "endpoint 12 is UNCONNECTED"));
        assert_ne!(one, text(Subtype::Arg3, "endpoint 12 is CONNECTED"));
    }

    #[test]
    fn a_difference_of_texts_is_reported() {
        let trace = |text: &str| Trace { texts: vec![text.to_owned()], ..Trace::default() };
        assert_ne!(trace("a"), trace("b"));
        assert_eq!(trace("a").difference(&trace("b")), "says \"b\" instead of \"a\"");
    }
}
