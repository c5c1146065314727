//! The lock of the data path, for the engine and for providers.
//!
//! Nearly every lock on the data path is only ever taken by one thread: the one that posts to an endpoint and polls its
//! dispatcher. An atomic exchange costs such a thread some 20 cycles and, worse, waits until all its earlier stores have
//! left the processor; seven of them in a half round trip cost as much as the transfer of the message. So a lock that
//! one thread keeps taking makes that thread its favourite: the favourite takes it with plain loads and stores. When
//! another thread comes, it revokes that and makes a memory barrier in all threads of the process (`membarrier`), which
//! costs microseconds, so a thread must earn the place again, each time by taking the lock twice as often in a row.
//!
//! A lock of which is said that one thread takes it ([`Lock::for_one_thread`]) has that thread for its favourite from the
//! first take on, and again as soon as it comes back after another one took the lock: it makes one exchange then, and no
//! other. The price does not rise, because it is known who will take it next. Where that was said wrongly, every visit of
//! another thread costs the barrier; the lock excludes as it always does.
//!
//! # Why it is exclusive
//! The favourite writes `inside`, then reads `favourite`; who revokes writes `favourite`, makes the barrier, then reads
//! `inside`. The barrier makes the order of the favourite's two accesses as good as one with a full fence, so either the
//! favourite sees that it is none any more, or the other one sees that it is inside and waits. All others exclude each
//! other, and whoever revokes or appoints, by `held`. A favourite has an `inside` of its own, of which there are a few, and
//! a thread that was stopped in the middle may write to it after it was revoked; so another thread gets the place only when
//! the one before was seen to know that it is none. The models below go through it with fences in place of the
//! system call.
//!
//! # Where there is no such barrier
//! Before [`prepare`] was called, and on systems without `membarrier`, nobody becomes a favourite, and the lock is an ordinary spin lock.

mod barrier;
mod lock;
mod thread;

pub use barrier::{available, prepare};
pub use lock::{Guard, Lock};
