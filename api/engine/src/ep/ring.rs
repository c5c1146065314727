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
    /// The windows of the binds among it, oldest first.
    binds: Mutex<VecDeque<ObjectId>>,
}

#[derive(Default)]
struct Slot {
    cookie: AtomicU64,
    /// Operation in the low byte, flags above.
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
            binds: Mutex::default(),
        }
    }

    /// Producer: the bind about to be pushed is of this window.
    pub(crate) fn push_bind(&self, rmr: ObjectId) {
        self.binds.lock().push_back(rmr);
    }

    /// Producer: takes back the last [`WorkRing::push_bind`].
    pub(crate) fn unpush_bind(&self) {
        self.binds.lock().pop_back();
    }

    /// Consumer: the window of the bind that was just taken out.
    fn pop_bind(&self) -> ObjectId {
        self.binds.lock().pop_front().unwrap_or(ObjectId(0))
    }

    /// Work not yet completed.
    pub(crate) fn outstanding(&self) -> u32 {
        // In this order, so that work posted and completed in between cannot make the difference negative.
        let completed = self.completed.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).wrapping_sub(completed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.limit
    }

    /// Producer: takes work in and gives its token. There is room: the caller asked [`WorkRing::is_full`].
    #[inline]
    pub(crate) fn push(&self, work: Work) -> u32 {
        let token = self.posted.load(Ordering::Relaxed);
        let slot = &self.slots[token as usize & (self.slots.len() - 1)];
        slot.cookie.store(work.cookie, Ordering::Relaxed);
        slot.meta.store(work.operation as u32 | work.flags.bits() << 8, Ordering::Relaxed);
        self.posted.store(token.wrapping_add(1), Ordering::Release);
        token
    }

    /// Producer: takes back the last push, which the provider did not accept.
    pub(crate) fn unpush(&self) {
        let token = self.posted.load(Ordering::Relaxed);
        self.posted.store(token.wrapping_sub(1), Ordering::Release);
    }

    /// Consumer: the oldest work, which is `token`'s if the provider keeps the order.
    #[inline]
    pub(crate) fn complete(&self, token: u32) -> Option<Work> {
        let next = self.completed.load(Ordering::Relaxed);
        if token != next || self.posted.load(Ordering::Acquire) == next {
            return None;
        }
        Some(self.pop(next))
    }

    /// Consumer: the oldest work, whatever it is.
    pub(crate) fn flush_one(&self) -> Option<Work> {
        let next = self.completed.load(Ordering::Relaxed);
        (self.posted.load(Ordering::Acquire) != next).then(|| self.pop(next))
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
    fn pop(&self, next: u32) -> Work {
        let slot = &self.slots[next as usize & (self.slots.len() - 1)];
        let meta = slot.meta.load(Ordering::Relaxed);
        let work = Work {
            cookie: slot.cookie.load(Ordering::Relaxed),
            operation: operation(meta & 0xFF),
            flags: CompletionFlags::from_bits_retain(meta >> 8),
        };
        self.completed.store(next.wrapping_add(1), Ordering::Release);
        work
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

#[inline]
fn operation(value: u32) -> DtoOperation {
    match value {
        0 => DtoOperation::Send,
        1 => DtoOperation::RdmaWrite,
        2 => DtoOperation::RdmaRead,
        5 => DtoOperation::BindMw,
        8 => DtoOperation::RdmaWriteImmed,
        10 => DtoOperation::FetchAdd,
        11 => DtoOperation::CmpSwap,
        _ => DtoOperation::Receive,
    }
}

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
    fn an_unpushed_token_is_given_again() {
        let ring = WorkRing::new(4, CompletionFlags::empty());
        let token = ring.push(work(1));
        ring.unpush();
        assert_eq!((ring.push(work(2)), ring.complete(token)), (token, Some(work(2))));
    }
}
