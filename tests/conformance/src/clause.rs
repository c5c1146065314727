//! The table of clauses: those with a test, those not written yet, and those the types of the engine rule out.

use crate::bench::Bench;
use crate::check::Outcome;
use crate::clauses as chapters;

/// One clause of the contract and its test.
pub struct Clause {
    /// The number: 7 is C-007.
    pub number: u16,
    /// What it demands.
    pub title: &'static str,
    /// What it takes to test it, beyond opening the provider.
    pub needs: &'static [Need],
    pub(crate) run: fn(&Bench) -> Outcome,
}

/// What a clause needs of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A provider that fails on demand.
    Faults,
}

/// The last clause of the contract.
pub const LAST_CLAUSE: u16 = 372;

/// All clauses with a test, by number.
pub fn clauses() -> Vec<&'static Clause> {
    let chapters: [&'static [Clause]; 14] = [
        chapters::a_ep_create::CLAUSES,
        chapters::a_completion_modes::CLAUSES,
        chapters::b_connect::CLAUSES,
        chapters::b_connect_data::CLAUSES,
        chapters::d_disconnect::CLAUSES,
        chapters::d_disconnect_states::CLAUSES,
        chapters::e_modify::CLAUSES,
        chapters::e_modify_states::CLAUSES,
        chapters::f_endpoint::CLAUSES,
        chapters::g_service_points::CLAUSES,
        chapters::h_evd::CLAUSES,
        chapters::i_transfer::CLAUSES,
        chapters::j_memory::CLAUSES,
        chapters::l_ia_registry::CLAUSES,
    ];
    let mut all: Vec<&Clause> = chapters.into_iter().flatten().collect();
    all.sort_by_key(|clause| clause.number);
    all
}

/// Clauses without a test so far: first, last, why.
pub const NOT_YET: &[(u16, u16, &str)] = &[
    (21, 21, "one of its three uses needs reserved service points"),
    (25, 25, "memory windows are not in the engine yet"),
    (51, 51, "needs two providers that offer different qualities of service"),
    (78, 98, "dup_connect is not in the engine yet"),
    (114, 115, "reserved service points are not in the engine yet"),
    (127, 127, "memory windows are not in the engine yet"),
    (143, 143, "reserved service points are not in the engine yet"),
    (188, 189, "reserved service points are not in the engine yet"),
    (190, 198, "shared receive queues are not in the engine yet"),
    (211, 218, "reserved service points are not in the engine yet"),
    (231, 232, "handing requests over is not in the engine yet"),
    (245, 245, "needs a signal handler, which takes unsafe code this crate forbids itself"),
    (258, 270, "consumer notification objects are not in the engine yet"),
    (295, 296, "memory windows are not in the engine yet"),
    (302, 304, "registrations over others, shared and zero-based ones are not in the engine yet"),
    (305, 305, "memory windows are not in the engine yet"),
    (308, 320, "memory windows and memory synchronisation are not in the engine yet"),
    (321, 332, "shared receive queues are not in the engine yet"),
    (334, 336, "opening by name is the registry's, whose own tests cover it"),
    (337, 339, "an async dispatcher handed in at open, and names, are the registry's and the C library's"),
    (343, 343, "an async dispatcher handed in at open is not in the engine yet"),
    (346, 346, "consumer contexts are not in the engine yet"),
    (349, 354, "the registry's own tests cover it"),
    (355, 362, "extensions are not in the engine yet"),
    (363, 368, "common service points, scoped windows and related providers are not in the engine yet"),
];

/// Clauses about calls that cannot be written with the engine's types; the C library has to test them.
pub const BY_TYPE: &[(u16, &str)] = &[
    (35, "the new endpoint is a return value, not a pointer that could be null"),
    (43, "private data is a slice: length and pointer agree"),
    (44, "the length of a slice is never negative"),
    (45, "private data is a slice: length and pointer agree"),
    (59, "an address is of a known family by its type"),
    (60, "an address is a value, not a pointer that could be null"),
    (102, "the flag is an enumeration; `CloseFlags::from_raw` refuses 7"),
    (132, "the parameters are a reference, which is never null"),
    (177, "a query takes no mask"),
    (179, "the status is a return value, not pointers that could be null"),
    (201, "the flag is an enumeration; `PspFlags::from_raw` refuses 5"),
    (345, "a query takes no mask and returns a value"),
    (347, "a handle's type is its Rust type"),
    (371, "queries take no mask"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_is_accounted_for_exactly_once() {
        let mut seen = vec![0u32; LAST_CLAUSE as usize + 1];
        for clause in clauses() {
            seen[clause.number as usize] += 1;
        }
        for (first, last, reason) in NOT_YET {
            assert!(!reason.is_empty());
            for number in *first..=*last {
                seen[number as usize] += 1;
            }
        }
        for (number, _) in BY_TYPE {
            seen[*number as usize] += 1;
        }
        let wrong: Vec<String> = (1..=LAST_CLAUSE as usize)
            .filter(|number| seen[*number] != 1)
            .map(|number| format!("C-{number:03} {} times", seen[number]))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
