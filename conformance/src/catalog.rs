//! All clauses of the suite.

use crate::clause::Clause;
use crate::clauses as chapters;

/// All clauses with a test, by number.
pub fn clauses() -> Vec<&'static Clause> {
    let chapters = [
        chapters::adapter::objects::CLAUSES,
        chapters::adapter::open_close::CLAUSES,
        chapters::connection::connect::CLAUSES,
        chapters::connection::connect_data::CLAUSES,
        chapters::connection::disconnect::CLAUSES,
        chapters::connection::disconnect_states::CLAUSES,
        chapters::connection::dup_connect::CLAUSES,
        chapters::endpoint::completion_modes::CLAUSES,
        chapters::endpoint::create::CLAUSES,
        chapters::endpoint::lifecycle::CLAUSES,
        chapters::endpoint::modify::CLAUSES,
        chapters::endpoint::modify_states::CLAUSES,
        chapters::events::dispatchers::CLAUSES,
        chapters::events::notification::CLAUSES,
        chapters::extensions::CLAUSES,
        chapters::memory::regions::CLAUSES,
        chapters::memory::windows::CLAUSES,
        chapters::plugin::channels::CLAUSES,
        chapters::plugin::device::CLAUSES,
        chapters::plugin::process::CLAUSES,
        chapters::plugin::queues::CLAUSES,
        chapters::registry::CLAUSES,
        chapters::return_codes::CLAUSES,
        chapters::service_points::common::CLAUSES,
        chapters::service_points::public::CLAUSES,
        chapters::service_points::reserved::CLAUSES,
        chapters::shared_receive::CLAUSES,
        chapters::threads::CLAUSES,
        chapters::transfer::CLAUSES,
    ];
    let mut all: Vec<&Clause> = chapters.into_iter().flatten().collect();
    all.sort_by_key(|clause| clause.number);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clause::{BY_ENGINE, BY_TYPE, LAST_CLAUSE, NOT_YET, PLUGIN};

    #[test]
    fn every_clause_is_accounted_for_exactly_once() {
        let mut seen = vec![0u32; LAST_CLAUSE as usize + 1];
        for clause in clauses().into_iter().filter(|clause| clause.number <= PLUGIN) {
            seen[clause.number as usize] += 1;
        }
        for (first, last, reason) in NOT_YET {
            assert!(!reason.is_empty());
            for number in *first..=*last {
                seen[number as usize] += 1;
            }
        }
        for (number, _) in BY_TYPE.iter().chain(BY_ENGINE) {
            seen[*number as usize] += 1;
        }
        let wrong: Vec<String> = (1..=LAST_CLAUSE as usize)
            .filter(|number| seen[*number] != 1)
            .map(|number| format!("C-{number:03} {} times", seen[number]))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
