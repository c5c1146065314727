//! Random programs of DAT calls, run over providers and compared: with a small reference model written from the
//! contract, and the providers with each other.
//!
//! A [`Program`] is a list of [`Step`]s over fixed places: two adapters, two endpoints on each, a handful of
//! dispatchers, zones and regions. Places may be empty or stale, so wrong calls arise by themselves; any subsequence of
//! a program is a program, so a failing one can be [`shrunk`](mod@shrink).
//!
//! What makes a trace independent of timing:
//! - After every step (a burst of posts on one endpoint counts as one) the [`Model`] knows which events must come, and
//!   the runner waits for all of them. So nothing is under way when the next step is made, except requests the peer has
//!   no receive for, which cannot finish.
//! - Events are compared per endpoint and direction; the order across them is free, except where the contract fixes it.
//! - What the contract leaves open (which of several wrong arguments is named, how the far end of a broken connection is
//!   told) is a set of answers in the model, and only the set enters the trace.
//! - A step whose outcome the contract does not determine in the state at hand is left out, everywhere alike.
#![forbid(unsafe_code)]

mod expect;
mod generate;
mod model;
mod program;
mod run;
mod search;
mod shrink;
mod watch;
mod world;

pub use generate::{Random, generate};
pub use model::{Limits, Model};
pub use program::{Attrs, Far, Program, Segment, Shape, Step};
pub use run::{Agreement, Disagreement, Patience, Subject, Trace, compare};
pub use search::{Found, Tally, search};
pub use shrink::shrink;
