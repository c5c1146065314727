//! Counting what objects do. A counter costs a load and a store where a lock is held anyway, so that it never slows down
//! what it counts; a reset remembers where the count stood and writes to none.

use std::sync::atomic::{AtomicU64, Ordering};

use dat_types::{DtoOperation, EpCounter, EvdCounter, IaCounter, Result, Subtype};
use parking_lot::Mutex;

use crate::ep::{Ep, EpInner};
use crate::evd::Evd;
use crate::ia::{Ia, IaInner};

/// A count of one writer at a time: whoever holds the lock its owner is under.
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

    fn put(&self, out: &mut [u64], times: EpCounter, bytes: EpCounter) {
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
    pub(crate) received: Received,
    /// Under the endpoint's control lock.
    pub(crate) connects: Count,
    pub(crate) disconnects: Count,
    base: Base,
}

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Posted {
    send: Pair,
    recv: Pair,
    write: Pair,
    read: Pair,
    write_immed: Pair,
    fetch_adds: Count,
    compare_swaps: Count,
}

impl Posted {
    /// So many of this kind were handed to the provider.
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
    plain: Pair,
    immed: Pair,
    write_immed: Pair,
}

impl Received {
    /// So many receives were used by messages without anything beside.
    #[inline]
    pub(crate) fn add_plain(&self, times: u64, bytes: u64) {
        self.plain.add(times, bytes);
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
struct Base(Mutex<Vec<u64>>);

impl Base {
    /// `now` since the last reset.
    fn since(&self, now: Vec<u64>, reset: bool) -> Vec<u64> {
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

impl EpInner {
    fn count(&self, reset: bool) -> Vec<u64> {
        use EpCounter as C;
        let mut out = vec![0; C::ALL.len()];
        let EpCounts { posted, received, connects, disconnects, base } = &self.counts;
        out[C::Connect as usize] = connects.get();
        out[C::Disconnect as usize] = disconnects.get();
        posted.send.put(&mut out, C::PostSend, C::PostSendData);
        posted.recv.put(&mut out, C::PostRecv, C::PostRecvData);
        posted.write.put(&mut out, C::PostWrite, C::PostWriteData);
        posted.write_immed.put(&mut out, C::PostWriteImm, C::PostWriteImmData);
        posted.read.put(&mut out, C::PostRead, C::PostReadData);
        out[C::PostCmpSwap as usize] = posted.compare_swaps.get();
        out[C::PostFetchAdd as usize] = posted.fetch_adds.get();
        received.plain.put(&mut out, C::Recv, C::RecvData);
        received.immed.put(&mut out, C::RecvImm, C::RecvImmData);
        received.write_immed.put(&mut out, C::RecvRdmaImm, C::RecvRdmaImmData);
        base.since(out, reset)
    }
}

impl Ep {
    /// What happened on it since it was made or the counters were last reset, by [`EpCounter`]. A snapshot while others
    /// post and poll.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        self.handle_type()?;
        Ok(self.0.count(reset))
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
pub(crate) struct EvdBase(Base);

impl Evd {
    /// What happened on it since it was made or the counters were last reset, by [`EvdCounter`].
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        use EvdCounter as C;
        self.alive("dat_extension_op", Subtype::Handle1)?;
        let mut out = vec![0; C::ALL.len()];
        {
            let core = self.0.core.lock();
            let counts = &core.counts;
            for (counter, value) in [
                (C::Wait, counts.waits),
                (C::WaitBlocked, counts.waits_blocked),
                (C::WaitNotify, counts.waits_notified),
                (C::Dequeue, counts.dequeues),
                (C::DequeueFound, counts.dequeues_found),
                (C::DequeueNotFound, counts.dequeues - counts.dequeues_found),
                (C::DequeuePoll, counts.polls),
                (C::DequeuePollFound, counts.polls_found),
                (C::ConnCallback, counts.connection_events),
                (C::DtoCallback, counts.polls_found),
            ] {
                out[counter as usize] = value;
            }
        }
        Ok(self.0.counted.0.since(out, reset))
    }
}

/// What an adapter counts, on calls that take their time anyway.
pub(crate) struct IaCounts {
    counts: Vec<AtomicU64>,
    base: Base,
}

impl Default for IaCounts {
    fn default() -> IaCounts {
        let counts = IaCounter::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        IaCounts { counts, base: Base::default() }
    }
}

impl IaInner {
    /// It happened once more.
    pub(crate) fn count(&self, counter: IaCounter) {
        self.count_by(counter, 1);
    }

    pub(crate) fn count_by(&self, counter: IaCounter, more: u64) {
        self.counts.counts[counter as usize].fetch_add(more, Ordering::Relaxed);
    }
}

impl Ia {
    /// What happened on it since it was opened or the counters were last reset, by [`IaCounter`]. What only hardware
    /// could count stays 0.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        self.device("dat_extension_op")?;
        let ia = &self.inner;
        let out = ia.counts.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Ok(ia.counts.base.since(out, reset))
    }
}
