//! The biased lock of the data path, for the engine and for providers.
//!
//! Nearly every lock on the data path is taken by one thread only: the one that posts to an endpoint and polls its event
//! dispatcher. An atomic exchange costs that thread some 20 cycles and waits until all its earlier stores have left the
//! processor. Seven exchanges in half a round trip cost as much as the transfer of the message.
//!
//! So the lock is biased: a thread that keeps taking it becomes its bias owner and takes it with plain loads and stores.
//! When another thread comes, it revokes the bias with a memory barrier in all threads of the process (`membarrier`), which
//! costs microseconds. After each revocation the rebias threshold doubles.
//!
//! With [`BiasPolicy::SingleThread`] ([`Lock::single_threaded`], [`Lock::set_bias`]) the first thread is the bias owner at
//! once, and again with its first take after a revocation. The threshold does not grow. If the choice is wrong, each take by
//! another thread costs a `membarrier`; mutual exclusion still holds.
//!
//! # Why it is exclusive
//! The bias owner writes `inside`, then reads `owner`. A revoking thread writes `owner`, makes the barrier, then reads
//! `inside`. The barrier orders the owner's two accesses as a full fence would. So either the owner sees the revocation, or
//! the revoking thread sees that the owner is inside and waits. All other threads exclude each other by `held`.
//!
//! A revoked owner may have been stopped in the middle and write its `inside` later. So each owner has a slot of its own, and
//! the slot goes to another thread only after its thread was seen to know of the revocation. The models check all this under
//! loom, with fences in place of the system call.
//!
//! # Without membarrier
//! Before [`prepare`], and on systems without `membarrier`, there is no bias owner, and this is an ordinary spin lock.

mod backoff;
mod barrier;
mod lock;
pub mod membarrier;
mod thread;

pub use barrier::{available, prepare};
pub use lock::{BiasPolicy, Guard, Lock};
