//! The lock of the data path, for the engine and for providers.
//!
//! Nearly every lock on the data path is only ever taken by one thread: the one that posts to an endpoint and polls its
//! dispatcher. An atomic exchange costs such a thread some 20 cycles and, worse, waits until all its earlier stores have
//! left the processor; seven of them in a half round trip cost as much as the transfer of the message. So a lock that
//! one thread keeps taking makes that thread its favourite: the favourite takes it with plain loads and stores. When
//! another thread comes, it revokes that and makes a memory barrier in all threads of the process (`membarrier`), which
//! costs microseconds, so a thread must earn the place again, each time by taking the lock twice as often in a row.
//!
//! # Why it is exclusive
//! The favourite writes `inside`, then reads `favourite`; who revokes writes `favourite`, makes the barrier, then reads
//! `inside`. The barrier makes the order of the favourite's two accesses as good as one with a full fence, so either the
//! favourite sees that it is none any more, or the other one sees that it is inside and waits. All others exclude each
//! other, and whoever revokes or appoints, by `held`. The models below go through it with fences in place of the
//! system call.
//!
//! # Where there is no such barrier
//! Before [`prepare`] was called, and on systems without `membarrier`, nobody becomes a favourite, and the lock is an ordinary spin lock.

mod barrier;
mod lock;
mod thread;

pub use barrier::prepare;
pub use lock::{Guard, Lock};
