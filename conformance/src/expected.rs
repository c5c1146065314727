//! Failures that are known, with their reasons: `conformance/expected/NAME.toml`, lines of `C-nnn = "reason"`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::catalog::clauses;

/// Clauses expected to fail. If a listed clause passes, the run fails and the line must be removed.
#[derive(Clone, Debug, Default)]
pub struct Expected(BTreeMap<u16, String>);

impl Expected {
    /// Reads a file. Unknown clauses and empty reasons are errors.
    pub fn read(path: &Path) -> Result<Expected, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Expected::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The same of a file's text.
    pub fn parse(text: &str) -> Result<Expected, String> {
        let table: BTreeMap<String, String> = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut out = BTreeMap::new();
        for (name, reason) in table {
            let Some(number) =
                clauses().iter().find(|clause| clause.name() == name).map(|clause| clause.number)
            else {
                return Err(format!(
                    "{name:?} is no clause with a test; clauses are C-001 and up, P-001 and up"
                ));
            };
            if reason.trim().is_empty() {
                return Err(format!("{name} has no reason"));
            }
            out.insert(number, reason);
        }
        Ok(Expected(out))
    }

    /// Why this clause is expected to fail.
    pub fn reason(&self, clause: u16) -> Option<&str> {
        self.0.get(&clause).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_bad_ones_refused() {
        let expected = Expected::parse("C-007 = \"known\"").unwrap();
        assert_eq!(expected.reason(7), Some("known"));
        assert_eq!(expected.reason(8), None);
        assert!(Expected::parse(&format!("C-{} = \"x\"", 999)).is_err());
        assert!(Expected::parse("C-007 = \" \"").is_err());
        assert!(Expected::parse("nonsense").is_err());
    }
}
