//! One test per clause of the DAT specification (`docs/spec`), written once and run over any provider.
//!
//! A [`Subject`] opens interface adapters of the provider under test. [`run`] runs the clauses against it. End A is in
//! this process and uses the engine. End B is driven through a [`peer`]: a second adapter of this process, or a process.
//! The [`Report`] counts every clause: passed, failed, expected to fail, not supported, not applicable, not written yet,
//! and excluded by the engine or its types.
//!
//! A program that runs peers as processes starts itself again with an argument of its own and calls [`peer_main`].
#![deny(unsafe_code)]

mod catalog;
mod check;
mod clause;
mod clauses;
mod codes;
mod context;
mod expected;
mod fixture;
mod local;
mod os;
mod outcome;
pub mod peer;
mod report;
mod runner;
mod subject;

pub use catalog::clauses;
pub use check::{Outcome, Stop};
pub use clause::{BY_ENGINE, BY_TYPE, Clause, LAST_CLAUSE, NOT_YET, Need};
pub use codes::{Met, TABLE, Unmet, stale_reasons};
pub use expected::Expected;
pub use peer::peer_main;
pub use report::{Report, Row, Verdict};
pub use runner::{DEADLINE, Filter, Options, run, run_with};
pub use subject::{PeerCommand, Subject};
