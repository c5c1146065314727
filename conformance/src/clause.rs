//! The table of clauses: those with a test, those not written yet, and those excluded by the engine or its types.

use dat_plugin::Caps;

use crate::check::{Outcome, Stop};
use crate::context::TestContext;
use crate::subject::Subject;

/// One clause of the specification and its test.
pub struct Clause {
    /// The number: 7 is C-007.
    pub number: u16,
    /// The module of its test, which names the chapter.
    pub(crate) module: &'static str,
    /// What it demands, as in the specification.
    pub title: &'static str,
    /// What it takes to test it, beyond opening the provider.
    pub needs: &'static [Need],
    pub(crate) run: fn(&TestContext) -> Outcome,
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
    pub(crate) fn unmet(self, subject: &Subject) -> Option<Stop> {
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
        let stop = match self {
            Need::Faults => Stop::NotApplicable,
            _ => Stop::NotSupported,
        };
        (!met).then(|| stop(reason.to_owned()))
    }
}

impl Clause {
    /// The chapter of the specification it belongs to, which is a file of `docs/spec` without its extension.
    pub fn chapter(&self) -> &'static str {
        let chapter = self.module.split("::").skip_while(|part| *part != "clauses").nth(1);
        chapter.unwrap_or(self.module)
    }
}

/// The last clause of the specification.
pub const LAST_CLAUSE: u16 = 377;

/// The clause that inspects the return codes of all others, and so runs last.
pub(crate) const INSPECTS_CODES: u16 = 372;

/// Tests at the plugin interface are numbered from here on: P-001 and up.
pub const PLUGIN: u16 = 1000;

/// A clause's name: `C-007` of DAT, `P-007` at the plugin interface.
pub(crate) fn name(number: u16) -> String {
    match number {
        0..=PLUGIN => format!("C-{number:03}"),
        _ => format!("P-{:03}", number - PLUGIN),
    }
}

/// Clauses without a test yet: first, last, reason.
pub const NOT_YET: &[(u16, u16, &str)] = &[];

/// Clauses about cases that the engine excludes for every provider.
pub const BY_ENGINE: &[(u16, &str)] = &[
    (363, "the engine gives every provider common service points"),
    (365, "the engine gives every provider common connect"),
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
