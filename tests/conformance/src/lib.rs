//! One test per clause of the DAT contract, written once and run over any provider.
//!
//! A [`Subject`] says how to open an interface adapter of the provider under test. [`run`] runs the clauses against it:
//! side A in this process, by calls of the engine, side B through a [`peer`], which is a second adapter of this process
//! or a process of its own. The [`Report`] counts every clause, run or not: passed, failed, expected to fail, not
//! supported, not written yet, and ruled out by the type system.
//!
//! A program that runs peers as processes starts itself again with an argument of its own and calls [`peer_main`].
#![deny(unsafe_code)]

mod bench;
mod check;
mod clause;
mod clauses;
mod codes;
mod expected;
mod kit;
mod os;
pub mod peer;
mod report;
mod runner;
mod side;
mod subject;

pub use check::{Outcome, Stop};
pub use clause::{BY_TYPE, Clause, LAST_CLAUSE, NOT_YET, Need, clauses};
pub use codes::{Met, TABLE, Unmet, stale_reasons};
pub use expected::Expected;
pub use peer::peer_main;
pub use report::{Report, Row, Verdict};
pub use runner::{DEADLINE, Filter, Options, run, run_with};
pub use subject::{PeerCommand, Subject};
