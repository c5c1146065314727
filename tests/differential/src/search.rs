//! Many seeds: the first disagreement, made short, with the command that shows it again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::{Disagreement, Patience, Program, Subject, compare, generate, shrink};

/// How long a failing program is made shorter.
const SHRINKING: Duration = Duration::from_secs(60);

/// What a search has done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs run, each on every subject.
    pub programs: u64,
    /// Steps in them.
    pub steps: usize,
    /// How often each answer and event occurred.
    pub kinds: BTreeMap<String, u64>,
    /// How many steps were refused because a provider says that it lacks a feature, by provider and feature.
    pub refused: BTreeMap<String, u64>,
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
    /// Whether time was up before nothing more could go.
    pub cut_short: bool,
}

/// Runs the programs of `count` seeds from `first` on. `on_disagreement` of a seed's disagreement says whether to go on; if not, it is
/// made short, which takes a while.
pub fn search(
    first: u64,
    count: u64,
    subjects: &[Subject],
    mut on_disagreement: impl FnMut(u64, &Disagreement) -> bool,
) -> Result<Tally, Box<Found>> {
    let mut tally = Tally::default();
    for seed in first..first.saturating_add(count) {
        let program = generate(seed);
        tally.programs += 1;
        tally.steps += program.0.len();
        match compare(&program, subjects, Patience::FULL) {
            Ok(agreement) => {
                let kinds = agreement.first.kinds();
                for (into, from) in [(&mut tally.kinds, kinds), (&mut tally.refused, agreement.refused)] {
                    for (key, count) in from {
                        *into.entry(key).or_insert(0) += count;
                    }
                }
            }
            Err(disagreement) if on_disagreement(seed, &disagreement) => {}
            Err(disagreement) => return Err(Box::new(Found::new(seed, &program, disagreement, subjects))),
        }
    }
    Ok(tally)
}

impl Found {
    fn new(seed: u64, program: &Program, first: Disagreement, subjects: &[Subject]) -> Found {
        let kind = first.kind();
        let shows = |program: &Program, patience| {
            compare(program, subjects, patience).err().filter(|found| found.kind() == kind)
        };
        let until = Instant::now() + SHRINKING;
        let fails =
            |program: &Program| Instant::now() < until && shows(program, Patience::SHRINKING).is_some();
        // Steps after the disagreement do not matter, unless it depends on timing.
        let cut = Program(program.0.iter().take(first.step + 1).cloned().collect());
        let short = shrink(if fails(&cut) { &cut } else { program }, fails);
        let cut_short = Instant::now() >= until;
        let again = shows(&short, Patience::FULL);
        Found { seed, first, short, again, cut_short }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} disagrees: {}", self.seed, self.first)?;
        let end = if self.cut_short { " when time was up" } else { "" };
        write!(f, "shrunk to {} steps{end}:\n{}", self.short.0.len(), self.short)?;
        match &self.again {
            Some(again) => writeln!(f, "{again}"),
            None => writeln!(f, "which agreed when it was run again: it depends on timing"),
        }
    }
}
