//! The table of clauses: those with a test, those not written yet, and those the types of the engine rule out.

use dat_plugin::Caps;

use crate::bench::Bench;
use crate::check::Outcome;
use crate::clauses as chapters;
use crate::subject::Subject;

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
    /// Memory windows.
    Windows,
    /// Sends that invalidate a window of the peer's.
    SendInvalidate,
    /// Shared receive queues.
    Srqs,
    /// Atomic operations.
    Atomics,
    /// Immediate data.
    Immediate,
    /// Nothing else of the suite running in this process meanwhile.
    Alone,
}

impl Need {
    /// Why a clause cannot be tried, if `subject` does not have it.
    pub(crate) fn unmet(self, subject: &Subject) -> Option<String> {
        let has = |caps: Caps| subject.caps().contains(caps);
        let (met, reason) = match self {
            Need::Faults => (subject.injects_faults, "the provider cannot be made to fail on demand"),
            Need::Windows => (has(Caps::WINDOWS), "the provider has no memory windows"),
            Need::SendInvalidate => {
                (has(Caps::SEND_INVALIDATE), "the provider has no sends that invalidate windows")
            }
            Need::Srqs => (has(Caps::SRQ), "the provider has no shared receive queues"),
            Need::Atomics => (has(Caps::ATOMICS), "the provider has no atomic operations"),
            Need::Alone => (true, ""),
            Need::Immediate => (has(Caps::IMMEDIATE), "the provider has no immediate data"),
        };
        (!met).then(|| reason.to_owned())
    }
}

/// The last clause of the contract.
pub const LAST_CLAUSE: u16 = 372;

/// Tests at the plugin interface are numbered from here on: P-001 and up.
pub const PLUGIN: u16 = 1000;

/// A clause's name: `C-007` of the contract, `P-007` at the plugin interface.
pub(crate) fn name(number: u16) -> String {
    match number {
        0..=PLUGIN => format!("C-{number:03}"),
        _ => format!("P-{:03}", number - PLUGIN),
    }
}

/// All clauses with a test, by number.
pub fn clauses() -> Vec<&'static Clause> {
    let chapters = [
        chapters::a_ep_create::CLAUSES,
        chapters::a_completion_modes::CLAUSES,
        chapters::b_connect::CLAUSES,
        chapters::b_connect_data::CLAUSES,
        chapters::c_dup_connect::CLAUSES,
        chapters::d_disconnect::CLAUSES,
        chapters::d_disconnect_states::CLAUSES,
        chapters::e_modify::CLAUSES,
        chapters::e_modify_states::CLAUSES,
        chapters::f_endpoint::CLAUSES,
        chapters::g_common::CLAUSES,
        chapters::g_reserved::CLAUSES,
        chapters::g_service_points::CLAUSES,
        chapters::h_cno::CLAUSES,
        chapters::h_evd::CLAUSES,
        chapters::i_transfer::CLAUSES,
        chapters::j_memory::CLAUSES,
        chapters::j_windows::CLAUSES,
        chapters::k_srq::CLAUSES,
        chapters::l_extensions::CLAUSES,
        chapters::l_ia::CLAUSES,
        chapters::l_objects::CLAUSES,
        chapters::l_registry::CLAUSES,
        chapters::p_codes::CLAUSES,
        chapters::p_threads::CLAUSES,
        chapters::p_plugin::CLAUSES,
    ];
    let mut all: Vec<&Clause> = chapters.into_iter().flatten().collect();
    all.sort_by_key(|clause| clause.number);
    all
}

/// Clauses without a test so far: first, last, why.
pub const NOT_YET: &[(u16, u16, &str)] = &[];

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
    (190, "the attributes are a reference, which is never null"),
    (335, "names are opened without version and thread safety; the C library's dat_ia_openv has them"),
    (336, "names are opened without a version; the C library's dat_ia_openv has them"),
    (345, "a query takes no mask and returns a value"),
    (349, "the list of providers is a slice, whose length is its own"),
    (350, "providers are not registered at run time; the C library's registry does that"),
    (351, "providers are not registered at run time; the C library's registry does that"),
    (352, "plugins have no init and fini to count; the C library's registry calls those"),
    (353, "the C library's registry reads DAT_OVERRIDE; this one has DAT_PLUGINS"),
    (359, "an extension's operation is a method of its object, which is never null"),
    (368, "adapters are not compared; the C library's dat_registry_providers_related does that"),
    (371, "queries take no mask"),
];

#[cfg(test)]
mod tests {
    use super::*;

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
