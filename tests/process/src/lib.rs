//! What the process tests share: a peer process to start, stop and kill; both sides of a connection; and a look at what
//! a process holds.
//!
//! Every test file is a process of its own, because they count descriptors and memory. The other side is `dat-peer`.
#![deny(unsafe_code)]

mod adapter;
mod crowd;
mod descriptors;
pub mod fork;
mod holdings;
mod link;
pub mod peer;
mod random;
pub mod server;
mod service;
mod surroundings;

pub use adapter::{Domain, open};
pub use crowd::Crowd;
pub use descriptors::descriptors;
pub use holdings::Holdings;
pub use link::{Link, Load, pattern, sum};
pub use peer::Peer;
pub use random::{random, random_time, setting};
pub use server::{Note, Server};
pub use surroundings::alone;

use std::time::Duration;

/// Longer than anything takes unless it hangs.
pub const LONG: Duration = Duration::from_secs(20);
