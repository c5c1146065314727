//! Many seeds: the first disagreement, made short, with the command that shows it again.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Disagreement, Program, Subject, compare, generate, shrink};

/// What a search has done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs run, each on every subject.
    pub programs: u64,
    /// Steps in them.
    pub steps: usize,
    /// How often each answer and event occurred.
    pub kinds: BTreeMap<String, u64>,
}

/// A disagreement, made short.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of the program.
    pub seed: u64,
    /// What it showed.
    pub first: Disagreement,
    /// The shortest program found that shows the same kind of disagreement.
    pub short: Program,
    /// What that one shows; none: it depends on timing.
    pub again: Option<Disagreement>,
}

/// Runs the programs of `count` seeds from `first` on. `told` of a seed's disagreement says whether to go on.
pub fn search(
    first: u64,
    count: u64,
    subjects: &[Subject],
    mut told: impl FnMut(u64, &Disagreement) -> bool,
) -> Result<Tally, Box<Found>> {
    let mut tally = Tally::default();
    for seed in first..first.saturating_add(count) {
        let program = generate(seed);
        tally.programs += 1;
        tally.steps += program.0.len();
        match compare(&program, subjects) {
            Ok(trace) => {
                for (kind, count) in trace.kinds() {
                    *tally.kinds.entry(kind).or_insert(0) += count;
                }
            }
            Err(disagreement) if told(seed, &disagreement) => {}
            Err(disagreement) => return Err(Box::new(Found::new(seed, &program, disagreement, subjects))),
        }
    }
    Ok(tally)
}

impl Found {
    fn new(seed: u64, program: &Program, first: Disagreement, subjects: &[Subject]) -> Found {
        let kind = first.kind();
        let shows = |program: &Program| compare(program, subjects).err().filter(|found| found.kind() == kind);
        let short = shrink(program, |program| shows(program).is_some());
        let again = shows(&short);
        Found { seed, first, short, again }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} disagrees: {}", self.seed, self.first)?;
        write!(f, "shrunk to {} steps:\n{}", self.short.0.len(), self.short)?;
        match &self.again {
            Some(again) => writeln!(f, "{again}"),
            None => writeln!(f, "which agreed when it was run again: it depends on timing"),
        }
    }
}
