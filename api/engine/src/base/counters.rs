//! Counting what objects do. A counter costs a load and a store under a lock that is held anyway. A reset remembers
//! where the count stood and does not write to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_types::{DtoOperation, EpCounter, IaCounter};
use parking_lot::Mutex;

/// A count with one writer at a time: the thread that holds the lock of the object.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of operations and of their bytes.
#[derive(Default)]
pub(crate) struct Pair {
    times: Count,
    bytes: Count,
}

impl Pair {
    #[inline]
    fn add(&self, times: u64, bytes: u64) {
        self.times.add(times);
        self.bytes.add(bytes);
    }

    pub(crate) fn put(&self, out: &mut [u64], times: EpCounter, bytes: EpCounter) {
        out[times as usize] = self.times.get();
        out[bytes as usize] = self.bytes.get();
    }
}

/// What an endpoint counts; three groups, because posting, completing and connecting are done by different threads.
#[derive(Default)]
pub(crate) struct EpCounts {
    /// Under the endpoint's post lock.
    pub(crate) posted: Posted,
    /// Under the lock of the receive dispatcher.
    pub(crate) received: Arc<Received>,
    /// Under the endpoint's control lock.
    pub(crate) connects: Count,
    pub(crate) disconnects: Count,
    pub(crate) base: Base,
}

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Posted {
    pub(crate) send: Pair,
    pub(crate) recv: Pair,
    pub(crate) write: Pair,
    pub(crate) read: Pair,
    pub(crate) write_immed: Pair,
    pub(crate) fetch_adds: Count,
    pub(crate) compare_swaps: Count,
}

impl Posted {
    /// The provider accepted `times` posts of this kind.
    #[inline]
    pub(crate) fn add(&self, operation: DtoOperation, times: u64, bytes: u64) {
        match operation {
            DtoOperation::Send => self.send.add(times, bytes),
            DtoOperation::Receive => self.recv.add(times, bytes),
            DtoOperation::RdmaWrite => self.write.add(times, bytes),
            DtoOperation::RdmaRead => self.read.add(times, bytes),
            DtoOperation::RdmaWriteImmed => self.write_immed.add(times, bytes),
            DtoOperation::FetchAdd => self.fetch_adds.add(times),
            DtoOperation::CmpSwap => self.compare_swaps.add(times),
            _ => {}
        }
    }
}

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Received {
    pub(crate) plain: Pair,
    pub(crate) immed: Pair,
    pub(crate) write_immed: Pair,
}

impl Received {
    /// A receive was used by a message without anything else.
    #[inline]
    pub(crate) fn add_plain(&self, bytes: u64) {
        self.plain.add(1, bytes);
    }

    /// A receive was used.
    #[inline]
    pub(crate) fn add(&self, operation: DtoOperation, bytes: u64) {
        match operation {
            DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => self.plain.add(1, bytes),
            DtoOperation::RecvMsgImmed => self.immed.add(1, bytes),
            DtoOperation::RecvImmed => self.write_immed.add(1, bytes),
            _ => {}
        }
    }
}

/// Where counts stood at the last reset.
#[derive(Default)]
pub(crate) struct Base(Mutex<Vec<u64>>);

impl Base {
    /// `now` since the last reset.
    pub(crate) fn since(&self, now: Vec<u64>, reset: bool) -> Vec<u64> {
        let mut base = self.0.lock();
        let since = |(position, now): (usize, &u64)| {
            now.wrapping_sub(base.get(position).copied().unwrap_or_default())
        };
        let out = now.iter().enumerate().map(since).collect();
        if reset {
            *base = now;
        }
        out
    }
}

/// What a dispatcher counts, under its lock.
#[derive(Default)]
pub(crate) struct EvdCounts {
    pub(crate) waits: u64,
    pub(crate) waits_blocked: u64,
    pub(crate) waits_notified: u64,
    pub(crate) dequeues: u64,
    pub(crate) dequeues_found: u64,
    pub(crate) polls: u64,
    pub(crate) polls_found: u64,
    pub(crate) connection_events: u64,
}

/// What a dispatcher remembers of its last reset.
#[derive(Default)]
pub(crate) struct EvdBase(pub(crate) Base);

/// What an adapter counts, on calls that take their time anyway.
pub(crate) struct IaCounts {
    pub(crate) counts: Vec<AtomicU64>,
    pub(crate) base: Base,
}

impl Default for IaCounts {
    fn default() -> IaCounts {
        let counts = IaCounter::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        IaCounts { counts, base: Base::default() }
    }
}
