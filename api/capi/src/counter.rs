//! Counts that programs ask for by `dat_ib_query_counters`. The numbers are those of the headers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::Kind;

/// How many an IA, an endpoint and an event dispatcher have.
pub const IA_ALL: usize = 85;
pub const EP_ALL: usize = 24;
pub const EVD_ALL: usize = 10;

pub const IA_CR_ACCEPTED: usize = 18;
pub const IA_CR_REJECTED: usize = 19;
pub const EP_CONNECT: usize = 0;
pub const EP_DISCONNECT: usize = 1;
/// Posts have two counts: how many, then their bytes.
pub const EP_SEND: usize = 2;
pub const EP_POST_RECV: usize = 6;
pub const EP_WRITE: usize = 8;
pub const EP_WRITE_IMMEDIATE: usize = 10;
pub const EP_READ: usize = 12;
pub const EP_CMP_SWAP: usize = 14;
pub const EP_FETCH_ADD: usize = 15;
pub const EP_RECV: usize = 16;
pub const EP_RECV_IMMEDIATE: usize = 20;
pub const EP_RECV_WRITTEN: usize = 22;
pub const EVD_WAIT: usize = 0;
pub const EVD_DEQUEUE: usize = 3;
pub const EVD_FOUND: usize = 4;
pub const EVD_NOT_FOUND: usize = 5;

/// The IA's counts of objects made and freed.
pub fn of_kind(kind: Kind) -> Option<(usize, usize)> {
    match kind {
        Kind::Pz => Some((0, 1)),
        Kind::Lmr => Some((2, 3)),
        Kind::Rmr => Some((4, 5)),
        Kind::Psp => Some((6, 8)),
        Kind::Rsp => Some((9, 10)),
        Kind::Evd => Some((11, 12)),
        Kind::Ep => Some((13, 14)),
        Kind::Srq => Some((15, 16)),
        Kind::Cr => Some((17, usize::MAX)),
        Kind::Ia | Kind::Cno | Kind::Csp => None,
    }
}

/// Counters of one object. An increment is no atomic operation: two threads that post to one endpoint at the same
/// instant may count as one, and a post stays as fast as it was.
pub struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Counters<N> {
        Counters([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Counters<N> {
    /// Adds to one.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(counter) = self.0.get(index) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// All values; set back to 0 if asked.
    pub fn read(&self, reset: bool) -> Vec<u64> {
        let read = |counter: &AtomicU64| match reset {
            true => counter.swap(0, Ordering::Relaxed),
            false => counter.load(Ordering::Relaxed),
        };
        self.0.iter().map(read).collect()
    }

    /// One value, or `None` for a number there is none of.
    pub fn read_one(&self, index: usize, reset: bool) -> Option<u64> {
        let counter = self.0.get(index)?;
        Some(if reset { counter.swap(0, Ordering::Relaxed) } else { counter.load(Ordering::Relaxed) })
    }
}
