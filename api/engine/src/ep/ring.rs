//! Outstanding work of one direction of an endpoint: what the consumer gave with a post, kept until it completes.
//!
//! One producer (the poster, under the endpoint's post lock), one consumer (whoever takes completions, under the lock
//! of the event dispatcher). Tokens count up from 0 without end; work completes in post order, so the oldest token is
//! the next to complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use dat_types::{CompletionFlags, DtoCompletion, DtoOperation, DtoStatus, EventData, ObjectId};
use parking_lot::Mutex;

/// What is kept of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) cookie: u64,
    pub(crate) operation: DtoOperation,
    pub(crate) flags: CompletionFlags,
}

/// Marks work whose success the provider may keep silent.
const SILENT: u32 = 1 << 31;

/// Rings below this size hear of every request: there is little to save, and every place counts.
const QUIET_FROM: u32 = 32;

pub(crate) struct WorkRing {
    slots: Box<[Slot]>,
    /// Most outstanding; the slots may be more.
    limit: u32,
    /// The endpoint's completion attribute for this direction.
    pub(crate) mode: CompletionFlags,
    posted: AtomicU32,
    completed: AtomicU32,
    /// A graceful disconnect waits for the last of it.
    draining: AtomicBool,
    /// A piece of it failed since the connection began.
    failed: AtomicBool,
    /// Most in a row that the provider need not complete when they succeed.
    quiet: u32,
    /// How many of those were posted last, without another between.
    run: AtomicU32,
    /// The windows of the binds among it by their tokens, oldest first. Of a bind nobody was told of it stays a while.
    binds: Mutex<VecDeque<(u32, ObjectId)>>,
}

#[derive(Default)]
struct Slot {
    cookie: AtomicU64,
    /// Operation in the low byte, flags above, [`SILENT`].
    meta: AtomicU32,
}

impl WorkRing {
    pub(crate) fn new(limit: u32, mode: CompletionFlags) -> WorkRing {
        let slots = (limit.max(1) as usize).next_power_of_two();
        WorkRing {
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            limit,
            mode,
            posted: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            quiet: if limit < QUIET_FROM { 0 } else { limit / 4 },
            run: AtomicU32::new(0),
            binds: Mutex::default(),
        }
    }

    /// Producer: the bind about to be pushed is of this window.
    pub(crate) fn push_bind(&self, rmr: ObjectId) {
        let mut binds = self.binds.lock();
        // The consumer may be making the event of the one it took out last.
        let last = self.completed.load(Ordering::Acquire).wrapping_sub(1);
        while binds.front().is_some_and(|(token, _)| is_before(*token, last)) {
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
        let last = self.completed.load(Ordering::Relaxed).wrapping_sub(1);
        let mut binds = self.binds.lock();
        while binds.front().is_some_and(|(token, _)| is_before(*token, last)) {
            binds.pop_front();
        }
        match binds.front() {
            Some((token, rmr)) if *token == last => {
                let rmr = *rmr;
                binds.pop_front();
                rmr
            }
            _ => ObjectId(0),
        }
    }

    /// Work not yet completed.
    #[inline(always)]
    pub(crate) fn outstanding(&self) -> u32 {
        // In this order, so that work posted and completed in between cannot make the difference negative.
        let completed = self.completed.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).wrapping_sub(completed)
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.limit
    }

    /// Producer: takes work in and gives its token. There is room: the caller asked [`WorkRing::is_full`].
    #[inline(always)]
    pub(crate) fn push(&self, work: Work) -> u32 {
        self.take_in(work, 0)
    }

    /// Producer: as [`WorkRing::push`], of a request: also whether its success may be kept silent.
    #[inline(always)]
    pub(crate) fn push_request(&self, work: Work) -> (u32, bool) {
        if self.quiet == 0 {
            return (self.take_in(work, 0), false);
        }
        let run = self.run.load(Ordering::Relaxed);
        let silent = work.flags.contains(CompletionFlags::SUPPRESS) && run < self.quiet;
        self.run.store(if silent { run + 1 } else { 0 }, Ordering::Relaxed);
        (self.take_in(work, if silent { SILENT } else { 0 }), silent)
    }

    #[inline(always)]
    fn take_in(&self, work: Work, mark: u32) -> u32 {
        let token = self.posted.load(Ordering::Relaxed);
        let slot = &self.slots[token as usize & (self.slots.len() - 1)];
        slot.cookie.store(work.cookie, Ordering::Relaxed);
        slot.meta.store(work.operation as u32 | work.flags.bits() << 8 | mark, Ordering::Relaxed);
        self.posted.store(token.wrapping_add(1), Ordering::Release);
        token
    }

    /// Producer: takes back the last push, which the provider did not accept.
    pub(crate) fn unpush(&self) {
        let token = self.posted.load(Ordering::Relaxed);
        self.posted.store(token.wrapping_sub(1), Ordering::Release);
        // Whatever it was, the next request is told of.
        self.run.store(self.quiet, Ordering::Relaxed);
    }

    /// Consumer: the work of `token`, which is the oldest if the provider keeps the order. Older work whose success was
    /// kept silent is done.
    #[inline]
    pub(crate) fn complete(&self, token: u32) -> Option<Work> {
        let mut taking = self.taking();
        let work = taking.peek(token)?;
        taking.take(token);
        Some(work)
    }

    /// Consumer: the work of `token` if it is the oldest, with none kept silent before it, and `wanted`; else nothing
    /// changes.
    #[inline(always)]
    pub(crate) fn complete_next(&self, token: u32, wanted: impl FnOnce(&Work) -> bool) -> Option<Work> {
        let next = self.completed.load(Ordering::Relaxed);
        if token != next || self.posted.load(Ordering::Acquire) == next {
            return None;
        }
        let work = self.work(token);
        if !wanted(&work) {
            return None;
        }
        self.completed.store(next.wrapping_add(1), Ordering::Release);
        Some(work)
    }

    /// Consumer: begins to take out several, of which a poster hears when the result is dropped.
    #[inline]
    pub(crate) fn taking(&self) -> Taking<'_> {
        let next = self.completed.load(Ordering::Relaxed);
        Taking { ring: self, next, posted: self.posted.load(Ordering::Acquire) }
    }

    /// Whether all work from `from` to before `to` could succeed without a word.
    #[cold]
    fn is_silent(&self, from: u32, to: u32) -> bool {
        let slot = |token: u32| &self.slots[token as usize & (self.slots.len() - 1)];
        (0..to.wrapping_sub(from))
            .all(|i| slot(from.wrapping_add(i)).meta.load(Ordering::Relaxed) & SILENT != 0)
    }

    /// Consumer: the oldest work, whatever it is.
    pub(crate) fn flush_one(&self) -> Option<Work> {
        let next = self.completed.load(Ordering::Relaxed);
        if self.posted.load(Ordering::Acquire) == next { None } else { self.complete(next) }
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

    #[inline(always)]
    fn work(&self, token: u32) -> Work {
        let slot = &self.slots[token as usize & (self.slots.len() - 1)];
        let meta = slot.meta.load(Ordering::Relaxed);
        Work {
            cookie: slot.cookie.load(Ordering::Relaxed),
            operation: operation(meta & 0xFF),
            flags: CompletionFlags::from_bits_retain((meta & !SILENT) >> 8),
        }
    }

    pub(crate) fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Where posting stands: see [`WorkRing::is_past`].
    pub(crate) fn mark(&self) -> u32 {
        self.posted.load(Ordering::Acquire)
    }

    /// Whether everything posted before `mark` has completed.
    pub(crate) fn is_past(&self, mark: u32) -> bool {
        (self.completed.load(Ordering::Acquire).wrapping_sub(mark) as i32) >= 0
    }
}

/// Whether a token was given out before another, neither long ago.
fn is_before(token: u32, other: u32) -> bool {
    (token.wrapping_sub(other) as i32) < 0
}

/// Work being taken out of a ring by its consumer.
pub(crate) struct Taking<'a> {
    ring: &'a WorkRing,
    next: u32,
    posted: u32,
}

impl Taking<'_> {
    /// The work of `token`, as [`WorkRing::complete`] would give it.
    #[inline]
    pub(crate) fn peek(&self, token: u32) -> Option<Work> {
        let ahead = token.wrapping_sub(self.next);
        if ahead >= self.posted.wrapping_sub(self.next) || ahead > 0 && !self.ring.is_silent(self.next, token)
        {
            return None;
        }
        Some(self.ring.work(token))
    }

    /// Takes out the work of a token just looked at.
    #[inline]
    pub(crate) fn take(&mut self, token: u32) {
        self.next = token.wrapping_add(1);
    }
}

impl Drop for Taking<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.completed.store(self.next, Ordering::Release);
    }
}

#[inline(always)]
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
            let tokens: Vec<u32> = (0..3).map(|i| ring.push(work(round * 3 + i))).collect();
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
        let token = ring.push(work(1));
        let mark = ring.mark();
        ring.push(work(2));
        assert!(!ring.is_past(mark));
        ring.complete(token);
        assert!(ring.is_past(mark));
    }

    #[test]
    fn a_completion_tells_of_silent_work_before_it_and_of_no_other() {
        let ring = WorkRing::new(64, CompletionFlags::empty());
        let loud = Work { flags: CompletionFlags::empty(), ..work(9) };
        for round in 0..10 {
            let pushed: Vec<_> =
                (0..5).map(|i| ring.push_request(if i == 3 { loud } else { work(i) })).collect();
            assert_eq!(pushed.iter().map(|p| p.1).collect::<Vec<_>>(), [true, true, true, false, true]);
            assert_eq!(ring.complete(pushed[4].0), None, "the fourth should have been told of");
            assert_eq!(ring.complete(pushed[3].0), Some(loud), "round {round}");
            assert_eq!(ring.complete(pushed[2].0), None, "done already");
            assert_eq!((ring.outstanding(), ring.complete(pushed[4].0)), (1, Some(work(4))));
        }
        let silent = (0..64).map(|i| ring.push_request(work(i)).1).collect::<Vec<_>>();
        let longest = silent.split(|silent| !silent).map(<[bool]>::len).max();
        assert_eq!((longest, ring.is_full()), (Some(16), true));
    }

    #[test]
    fn by_itself_only_the_oldest_is_taken_and_only_if_it_is_wanted() {
        let ring = WorkRing::new(64, CompletionFlags::empty());
        assert_eq!(ring.complete_next(0, |_| true), None, "nothing was posted");
        let first = ring.push(work(1));
        let second = ring.push(work(2));
        assert_eq!(ring.complete_next(second, |_| true), None, "not the oldest");
        assert_eq!(ring.complete_next(first, |work| work.cookie != 1), None, "not wanted");
        assert_eq!((ring.outstanding(), ring.complete_next(first, |_| true)), (2, Some(work(1))));
        assert_eq!(ring.complete_next(first, |_| true), None, "taken");
        assert_eq!((ring.complete_next(second, |_| true), ring.outstanding()), (Some(work(2)), 0));
        for operation in OPERATIONS {
            let posted = Work { operation, ..work(3) };
            let token = ring.push(posted);
            assert_eq!(ring.complete_next(token, |_| true), Some(posted));
        }
    }

    #[test]
    fn an_unpushed_token_is_given_again() {
        let ring = WorkRing::new(4, CompletionFlags::empty());
        let token = ring.push(work(1));
        ring.unpush();
        assert_eq!((ring.push(work(2)), ring.complete(token)), (token, Some(work(2))));
    }
}
