//! Random programs of DAT calls. They run over providers; results are compared with a small reference model of the
//! specification, and between providers.
//!
//! A [`Program`] is a list of [`Step`]s over fixed slots: two adapters, two endpoints on each, a few dispatchers, zones
//! and regions. Slots may be empty or stale, so programs contain wrong calls. Any subsequence of a program is a program,
//! so a failing program can be [`shrunk`](mod@shrink).
//!
//! What makes a trace independent of timing:
//! - After every step the [`Model`] knows which events must come, and the runner waits for all of them. A burst of posts
//!   on one endpoint is one step. Only requests without a receive at the peer stay outstanding.
//! - Events are compared for each endpoint and direction. Their order across streams is free, unless it is specified.
//! - Where the specification leaves a choice, the model has a set of answers, and only the set enters the trace. Examples
//!   are the one of several wrong arguments that is reported, and the event at the far end of a broken connection.
//! - A step without a defined outcome in the present state is left out over every provider.
#![forbid(unsafe_code)]

mod compare;
mod expect;
mod generate;
mod model;
mod program;
mod pulse;
mod run;
mod search;
mod shrink;
mod subject;
mod watch;
mod world;

pub use compare::{Agreement, compare};
pub use generate::{Random, generate};
pub use model::{Limits, Model};
pub use program::{Attrs, Far, Program, Segment, Shape, Step};
pub use run::{Disagreement, Trace};
pub use search::{Found, Tally, search};
pub use shrink::shrink;
pub use subject::{Patience, Subject};
