//! Outstanding work of one direction of an endpoint: what the consumer gave with a post, kept until it completes.
//!
//! One producer: the poster, under the endpoint's post lock. One consumer: the thread that takes completions, under the
//! lock of the event dispatcher. Posts are numbered from 0 without end. The provider knows a post by the low half of its
//! number, the token. Work completes in post order, so the oldest is the next to complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use dat_types::{CompletionFlags, DtoCompletion, DtoOperation, DtoStatus, EventData, ObjectId};
use parking_lot::Mutex;

use super::status_map;

/// What is kept of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) cookie: u64,
    pub(crate) operation: DtoOperation,
    pub(crate) flags: CompletionFlags,
}

/// Marks work that was posted unsignalled: the provider need not report its success.
const UNSIGNALLED: u32 = 1 << 31;

const DRAINING: u8 = 1;
const EARLY: u8 = 2;

/// Smaller rings post every request signalled: there is little to save, and an unsignalled request keeps its slot until
/// the next signalled one completes.
const UNSIGNALLED_FROM: u32 = 32;

pub(crate) struct WorkRing {
    slots: Box<[Slot]>,
    /// Most outstanding; the slots may be more.
    limit: u32,
    /// The endpoint's completion attribute for this direction.
    pub(crate) mode: CompletionFlags,
    /// Number of the next post. Written by the producer.
    posted: AtomicU64,
    /// Number of the oldest work that has not completed. Written by the consumer, with `Release`: a thread that sees
    /// work as complete also sees what the provider wrote before.
    completed: AtomicU64,
    /// [`DRAINING`], [`EARLY`]; 0 in all ordinary cases.
    care: AtomicU8,
    /// The status of the first piece that failed since the connection began; 0 for none.
    failed: AtomicU8,
    /// Another ring took its place and its outstanding work.
    replaced: AtomicBool,
    /// Most requests in a row that are posted unsignalled.
    most_unsignalled: u32,
    /// How many requests in a row were posted unsignalled last.
    unsignalled: AtomicU32,
    /// The windows of the binds among it by their numbers, oldest first. Suppressed binds are removed lazily.
    binds: Mutex<VecDeque<(u64, ObjectId)>>,
}

#[derive(Default)]
struct Slot {
    cookie: AtomicU64,
    /// Operation in the low byte, flags above, [`UNSIGNALLED`].
    meta: AtomicU32,
}

impl WorkRing {
    pub(crate) fn new(limit: u32, mode: CompletionFlags) -> WorkRing {
        WorkRing::starting_at(0, limit, mode)
    }

    fn starting_at(number: u64, limit: u32, mode: CompletionFlags) -> WorkRing {
        let slots = (limit.max(1) as usize).next_power_of_two();
        WorkRing {
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            limit,
            mode,
            posted: AtomicU64::new(number),
            completed: AtomicU64::new(number),
            care: AtomicU8::new(0),
            failed: AtomicU8::new(0),
            replaced: AtomicBool::new(false),
            most_unsignalled: if limit < UNSIGNALLED_FROM { 0 } else { limit / 4 },
            unsignalled: AtomicU32::new(0),
            binds: Mutex::default(),
        }
    }

    /// A ring of another size and mode that takes over the outstanding work under the same numbers. Neither producer nor
    /// consumer is at work: there is no channel.
    pub(crate) fn replace(&self, limit: u32, mode: CompletionFlags) -> WorkRing {
        let ring = WorkRing::starting_at(self.completed.load(Ordering::Acquire), limit, mode);
        // Before the work leaves this ring, which must not look like its completion.
        self.replaced.store(true, Ordering::Release);
        while let Some(work) = self.flush_one() {
            ring.push(work);
        }
        ring
    }

    /// Producer: the bind about to be pushed is of this window.
    pub(crate) fn push_bind(&self, rmr: ObjectId) {
        let mut binds = self.binds.lock();
        // The consumer may be making the event of the one it took out last.
        let done = self.completed.load(Ordering::Acquire);
        while binds.front().is_some_and(|(number, _)| number + 1 < done) {
            binds.pop_front();
        }
        binds.push_back((self.posted.load(Ordering::Relaxed), rmr));
    }

    /// Producer: takes back the last [`WorkRing::push_bind`].
    pub(crate) fn unpush_bind(&self) {
        self.binds.lock().pop_back();
    }

    /// Consumer: the window of the bind that was just taken out.
    fn pop_bind(&self) -> ObjectId {
        let done = self.completed.load(Ordering::Relaxed);
        let mut binds = self.binds.lock();
        while binds.front().is_some_and(|(number, _)| number + 1 < done) {
            binds.pop_front();
        }
        match binds.front().copied() {
            Some((number, rmr)) if number + 1 == done => {
                binds.pop_front();
                rmr
            }
            _ => ObjectId(0),
        }
    }

    /// Work not yet completed.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        // In this order, so that work posted and completed in between cannot make the difference negative.
        let completed = self.completed.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).wrapping_sub(completed) as u32
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.limit
    }

    /// Producer: takes work in and gives its number. There is room: the caller called [`WorkRing::is_full`].
    #[inline]
    pub(crate) fn push(&self, work: Work) -> u64 {
        self.store(work, 0)
    }

    /// Producer: as [`WorkRing::push`], for a request. Also gives whether to post it unsignalled: its success is
    /// suppressed, and a request before it was signalled not long ago.
    // `inline(always)`: the operation is a constant where it is posted; it saves 24 instructions of a send.
    #[inline(always)]
    pub(crate) fn push_request(&self, work: Work) -> (u64, bool) {
        if self.most_unsignalled == 0 {
            return (self.store(work, 0), false);
        }
        let run = self.unsignalled.load(Ordering::Relaxed);
        let unsignalled = work.flags.contains(CompletionFlags::SUPPRESS) && run < self.most_unsignalled;
        self.unsignalled.store(if unsignalled { run + 1 } else { 0 }, Ordering::Relaxed);
        (self.store(work, if unsignalled { UNSIGNALLED } else { 0 }), unsignalled)
    }

    #[inline]
    fn store(&self, work: Work, mark: u32) -> u64 {
        let number = self.posted.load(Ordering::Relaxed);
        let slot = self.slot(number);
        slot.cookie.store(work.cookie, Ordering::Relaxed);
        slot.meta.store(work.operation as u32 | work.flags.bits() << 8 | mark, Ordering::Relaxed);
        self.posted.store(number.wrapping_add(1), Ordering::Release);
        number
    }

    /// Producer: takes back the last push, which the provider did not accept.
    pub(crate) fn unpush(&self) {
        let number = self.posted.load(Ordering::Relaxed);
        self.posted.store(number.wrapping_sub(1), Ordering::Release);
        // It may have been signalled in place of those before it, so the next request is.
        self.unsignalled.store(self.most_unsignalled, Ordering::Relaxed);
    }

    /// Consumer: takes out the work of `token`, which is the oldest if the provider keeps the order. Older unsignalled
    /// work is done with it. `None`: `token` is not outstanding, or older work is that was signalled.
    #[inline]
    pub(crate) fn complete(&self, token: u32) -> Option<Work> {
        let next = self.completed.load(Ordering::Relaxed);
        let posted = self.posted.load(Ordering::Acquire);
        let ahead = u64::from(token.wrapping_sub(next as u32));
        if ahead >= posted.wrapping_sub(next) || (ahead != 0 && !self.are_unsignalled(next, ahead)) {
            return None;
        }
        let number = next.wrapping_add(ahead);
        let work = self.work(number);
        self.completed.store(number.wrapping_add(1), Ordering::Release);
        Some(work)
    }

    /// Whether all of the `count` posts from `first` on are unsignalled.
    #[cold]
    fn are_unsignalled(&self, first: u64, count: u64) -> bool {
        (first..first + count).all(|number| self.slot(number).meta.load(Ordering::Relaxed) & UNSIGNALLED != 0)
    }

    /// Consumer: takes out the oldest work, if there is any.
    pub(crate) fn flush_one(&self) -> Option<Work> {
        self.complete(self.completed.load(Ordering::Relaxed) as u32)
    }

    /// The event of work that was just taken out.
    #[inline]
    pub(crate) fn event(
        &self,
        ep: ObjectId,
        work: Work,
        status: DtoStatus,
        length: u64,
        value: u32,
    ) -> EventData {
        let Work { cookie, operation, .. } = work;
        if operation == DtoOperation::BindMw {
            return EventData::RmrBind { rmr: self.pop_bind(), cookie, status };
        }
        EventData::Dto(DtoCompletion { ep, cookie, status, operation, length, value })
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn work(&self, number: u64) -> Work {
        let slot = self.slot(number);
        let meta = slot.meta.load(Ordering::Relaxed);
        Work {
            cookie: slot.cookie.load(Ordering::Relaxed),
            operation: operation(meta & 0xFF),
            flags: CompletionFlags::from_bits_retain((meta & !UNSIGNALLED) >> 8),
        }
    }

    /// Consumer: a piece of it failed. The first failure counts.
    #[cold]
    pub(crate) fn set_failed(&self, status: DtoStatus) {
        let _ = self.failed.compare_exchange(0, status as u8, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A connection begins: nothing has failed.
    pub(crate) fn clear_failed(&self) {
        self.failed.store(0, Ordering::Release);
    }

    /// The status of the first piece that failed on this connection.
    pub(crate) fn failure(&self) -> Option<DtoStatus> {
        status_map::failure(self.failed.load(Ordering::Acquire))
    }

    /// A graceful disconnect waits for the last of it, or does not.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.set_care(DRAINING, draining);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.care.load(Ordering::Relaxed) & DRAINING != 0
    }

    /// Completions have to wait for the connection event, or may be seen. Under the lock of the dispatcher where it
    /// completes, once completions can come.
    pub(crate) fn set_early(&self, early: bool) {
        self.set_care(EARLY, early);
    }

    pub(crate) fn is_early(&self) -> bool {
        self.care.load(Ordering::Relaxed) & EARLY != 0
    }

    fn set_care(&self, bit: u8, on: bool) {
        match on {
            true => self.care.fetch_or(bit, Ordering::Release),
            false => self.care.fetch_and(!bit, Ordering::Release),
        };
    }

    /// Whether a completion of it has to be looked at more closely.
    #[inline]
    pub(crate) fn needs_care(&self) -> bool {
        self.care.load(Ordering::Relaxed) != 0
    }

    /// The number of the next post: see [`WorkRing::has_completed`].
    pub(crate) fn mark(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// Whether everything posted before `mark` has completed.
    pub(crate) fn is_past(&self, mark: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= mark
    }

    /// Whether the post of this number has completed. `None`: another ring took this one's place and knows.
    pub(crate) fn has_completed(&self, number: u64) -> Option<bool> {
        let done = self.is_past(number.wrapping_add(1));
        // In this order: work leaves a replaced ring after it was marked.
        (!self.replaced.load(Ordering::Acquire)).then_some(done)
    }
}

#[inline]
fn operation(value: u32) -> DtoOperation {
    OPERATIONS.get(value as usize).copied().unwrap_or(DtoOperation::Receive)
}

/// What a slot's low byte says. A table, because the branches of a `match` would be guessed wrong where operations
/// alternate.
const OPERATIONS: [DtoOperation; 12] = {
    let posted = [
        DtoOperation::Send,
        DtoOperation::RdmaWrite,
        DtoOperation::RdmaRead,
        DtoOperation::BindMw,
        DtoOperation::RdmaWriteImmed,
        DtoOperation::FetchAdd,
        DtoOperation::CmpSwap,
    ];
    let mut table = [DtoOperation::Receive; 12];
    let mut at = 0;
    while at < posted.len() {
        table[posted[at] as usize] = posted[at];
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn work(cookie: u64) -> Work {
        Work { cookie, operation: DtoOperation::Receive, flags: CompletionFlags::SUPPRESS }
    }

    #[test]
    fn work_comes_back_in_order_and_whole() {
        let ring = WorkRing::new(3, CompletionFlags::empty());
        for round in 0..10u64 {
            let tokens: Vec<u32> = (0..3).map(|i| ring.push(work(round * 3 + i)) as u32).collect();
            assert!(ring.is_full());
            assert_eq!(ring.complete(tokens[1]), None, "out of order");
            for (i, token) in tokens.into_iter().enumerate() {
                assert_eq!(ring.complete(token), Some(work(round * 3 + i as u64)));
            }
            assert_eq!(ring.flush_one(), None);
        }
    }

    #[test]
    fn a_mark_is_passed_when_all_before_it_completed() {
        let ring = WorkRing::new(4, CompletionFlags::empty());
        let token = ring.push(work(1)) as u32;
        let mark = ring.mark();
        ring.push(work(2));
        assert!(!ring.is_past(mark));
        ring.complete(token);
        assert!(ring.is_past(mark));
    }

    #[test]
    fn a_completion_covers_unsignalled_work_before_it_and_no_other() {
        let ring = WorkRing::new(64, CompletionFlags::empty());
        let signalled = Work { flags: CompletionFlags::empty(), ..work(9) };
        for round in 0..10 {
            let pushed: Vec<_> = (0..5)
                .map(|i| ring.push_request(if i == 3 { signalled } else { work(i) }))
                .map(|(number, unsignalled)| (number as u32, unsignalled))
                .collect();
            assert_eq!(pushed.iter().map(|p| p.1).collect::<Vec<_>>(), [true, true, true, false, true]);
            assert_eq!(ring.complete(pushed[4].0), None, "the fourth was signalled and has not completed");
            assert_eq!(ring.complete(pushed[3].0), Some(signalled), "round {round}");
            assert_eq!(ring.complete(pushed[2].0), None, "done already");
            assert_eq!((ring.outstanding(), ring.complete(pushed[4].0)), (1, Some(work(4))));
        }
        let unsignalled = (0..64).map(|i| ring.push_request(work(i)).1).collect::<Vec<_>>();
        let longest = unsignalled.split(|unsignalled| !unsignalled).map(<[bool]>::len).max();
        assert_eq!((longest, ring.is_full()), (Some(16), true));
    }

    #[test]
    fn every_operation_comes_back_as_it_was_posted() {
        let ring = WorkRing::new(64, CompletionFlags::empty());
        assert_eq!(ring.complete(0), None, "nothing was posted");
        for operation in OPERATIONS {
            let posted = Work { operation, ..work(3) };
            let token = ring.push(posted) as u32;
            assert_eq!(ring.complete(token.wrapping_add(1)), None, "not posted yet");
            assert_eq!(ring.complete(token), Some(posted));
        }
    }

    #[test]
    fn an_unpushed_number_is_given_again() {
        let ring = WorkRing::new(4, CompletionFlags::empty());
        let number = ring.push(work(1));
        ring.unpush();
        assert_eq!((ring.push(work(2)), ring.complete(number as u32)), (number, Some(work(2))));
    }

    #[test]
    fn tokens_wrap_and_numbers_do_not() {
        let start = u64::from(u32::MAX) - 1;
        let ring = WorkRing::starting_at(start, 4, CompletionFlags::empty());
        for number in start..start + 4 {
            assert_eq!(ring.push(work(number)), number);
        }
        for number in start..start + 4 {
            assert_eq!(ring.has_completed(number), Some(false));
            assert_eq!(ring.complete(number as u32), Some(work(number)));
            assert_eq!(ring.has_completed(number), Some(true));
        }
    }

    #[test]
    fn a_replaced_ring_does_not_say_that_work_completed() {
        let old = WorkRing::new(2, CompletionFlags::empty());
        let (first, second) = (old.push(work(1)), old.push(work(2)));
        assert_eq!(old.complete(first as u32), Some(work(1)));
        let new = old.replace(4, CompletionFlags::UNSIGNALLED);
        assert_eq!((old.has_completed(second), new.has_completed(second)), (None, Some(false)));
        assert_eq!(new.has_completed(first), Some(true));
        assert_eq!(new.complete(second as u32), Some(work(2)));
        assert_eq!(new.has_completed(second), Some(true));
    }
}
