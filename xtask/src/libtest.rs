//! What programs of tests print, read line by line: which tests failed, what each of those printed, and how many there
//! were. What a test printed is shown after all of them and may look like anything, the output of other programs of
//! tests included: nothing in it counts as a result.

use std::collections::BTreeSet;

/// Where in a program's output the reader is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    /// Between programs.
    #[default]
    Outside,
    /// A line for each test.
    Results,
    /// What tests printed.
    Quoted,
}

/// Reads the output of any number of programs of tests, one after another.
#[derive(Default)]
pub struct Reader {
    part: Part,
    /// The number of tests that the program announced.
    expected: u64,
    /// The program's tests.
    names: BTreeSet<String>,
    failures: Vec<Failure>,
    /// Whether the last failure's output goes on.
    within: bool,
    passed: u64,
    ignored: u64,
    /// Programs after which another began before their results.
    cut_short: usize,
}

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub name: String,
    /// What it printed.
    pub output: Vec<String>,
}

impl Reader {
    /// The next line. Returns whether it is one between programs, which is no test's.
    pub fn line(&mut self, line: &str) -> bool {
        match self.part {
            Part::Outside => self.outside(line),
            Part::Results => {
                self.result(line);
                false
            }
            Part::Quoted => {
                self.quoted(line);
                false
            }
        }
    }

    /// The tests that failed, with what each printed.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// How many passed, and how many were left out.
    pub fn counts(&self) -> (u64, u64) {
        (self.passed, self.ignored)
    }

    /// How many programs printed no result: each was killed or crashed.
    pub fn cut_short(&self) -> usize {
        self.cut_short + usize::from(self.part != Part::Outside)
    }

    fn outside(&mut self, line: &str) -> bool {
        let Some(expected) = begins(line) else { return true };
        (self.part, self.expected, self.within) = (Part::Results, expected, false);
        self.names.clear();
        false
    }

    fn result(&mut self, line: &str) {
        if let Some((name, failed)) = verdict(line) {
            self.names.insert(name.to_owned());
            if failed {
                self.failures.push(Failure { name: name.to_owned(), output: Vec::new() });
            }
        } else if matches!(line, "successes:" | "failures:") {
            self.part = Part::Quoted;
        } else if begins(line).is_some() {
            self.cut_short += 1;
            self.outside(line);
        } else {
            self.ends(line);
        }
    }

    fn quoted(&mut self, line: &str) {
        if self.ends(line) {
            return;
        }
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = header.filter(|name| self.names.contains(*name)) {
            // The blocks of this program's failed tests; put last, to be gone on with.
            let own = |failure: &Failure| failure.name == name && failure.output.is_empty();
            let at = self.failures.iter().rposition(own);
            self.within = at.is_some();
            if let Some(at) = at {
                self.failures[at..].rotate_left(1);
            }
        } else if let Some(last) = self.failures.last_mut().filter(|_| self.within) {
            last.output.push(line.to_owned());
        }
    }

    /// Whether the line is the program's last, with as many tests as it announced.
    fn ends(&mut self, line: &str) -> bool {
        let Some(result) = line.strip_prefix("test result: ").filter(|rest| rest.contains("; finished in "))
        else {
            return false;
        };
        let number = |what: &str| {
            let part = result.split(['.', ';']).map(str::trim).find_map(|part| part.strip_suffix(what));
            part.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (passed, ignored) = (number(" passed"), number(" ignored"));
        if passed + ignored + number(" failed") + number(" measured") != self.expected {
            return false;
        }
        self.passed += passed;
        self.ignored += ignored;
        self.part = Part::Outside;
        if let Some(last) = self.failures.last_mut() {
            // The list of names at the end is no test's.
            let list = last.output.iter().rposition(|line| line == "failures:");
            last.output.truncate(list.filter(|_| self.within).unwrap_or(last.output.len()));
        }
        self.within = false;
        true
    }
}

/// The number of tests of a program that begins.
fn begins(line: &str) -> Option<u64> {
    let number = line.strip_prefix("running ")?;
    number.strip_suffix(" tests").or(number.strip_suffix(" test"))?.parse().ok()
}

/// The test a line of results is about, and whether it failed.
fn verdict(line: &str) -> Option<(&str, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), verdict == "FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (Reader, Vec<bool>) {
        let mut reader = Reader::default();
        let outside = lines.iter().map(|line| reader.line(line)).collect();
        (reader, outside)
    }

    const FAILED: [&str; 21] = [
        "running 4 tests",
        "test a ... ok",
        "test b - should panic ... FAILED",
        "test c ... FAILED",
        "test d ... ignored, for want of a device",
        "",
        "successes:",
        "---- a stdout ----",
        "test x::y ... FAILED",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        "---- x::y stdout ----",
        "failures:",
        "",
        "failures:",
        "---- c stdout ----",
        "left: 1",
        "---- x::y stdout ----",
        "---- b stdout ----",
        "right: 2",
        "failures:",
        "    b",
    ];
    const END: &str =
        "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";

    #[test]
    fn only_results_name_failures_and_what_is_quoted_is_theirs() {
        let (mut reader, outside) = read(&FAILED);
        assert!(outside.iter().all(|outside| !outside) && reader.cut_short() == 1);
        assert!(!reader.line(END) && reader.cut_short() == 0);
        assert!(reader.line("error: 1 target failed:"));
        let told: Vec<_> = reader.failures().iter().map(|f| (f.name.as_str(), f.output.as_slice())).collect();
        let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let (of_c, of_b) = (own(&["left: 1", "---- x::y stdout ----"]), own(&["right: 2"]));
        assert_eq!(told, [("c", of_c.as_slice()), ("b", of_b.as_slice())]);
        assert_eq!(reader.counts(), (1, 1));
    }

    #[test]
    fn a_program_that_came_to_no_end_is_noticed() {
        let (mut reader, _) = read(&["running 2 tests", "test a ... ok"]);
        assert_eq!(reader.cut_short(), 1);
        reader.line("running 1 test");
        assert_eq!((reader.cut_short(), reader.counts()), (2, (0, 0)));
    }
}
