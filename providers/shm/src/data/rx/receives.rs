//! Posted receives, a channel's own or out of a shared queue.

use std::sync::Arc;

use dat_kit::MemSpan;
use dat_plugin::{ChannelAttr, PostFlag, RecvRequest, Status};

use crate::data::conn::Conn;
use crate::data::recv::Recv;
use crate::data::srq::Shared;

/// Completions kept of a channel whose receives are shared, while its application is away.
const SHARED: u32 = 64;

/// The receives of a channel, in post order. Those of a shared queue are taken one by one, when a message is there.
pub(super) struct Receives {
    recvs: Box<[Recv]>,
    segs: Box<[MemSpan]>,
    max_segs: usize,
    capacity: usize,
    /// How many may be posted here: none if they are shared, or once the channel stopped.
    places: u64,
    head: u64,
    tail: u64,
    srq: Option<Arc<Shared>>,
    closed: bool,
}

impl Receives {
    pub(super) fn new(attr: &ChannelAttr, srq: Option<Arc<Shared>>) -> Receives {
        let (max_recvs, max_segs) = match &srq {
            None => (attr.max_recvs, attr.max_recv_segments),
            Some(srq) => (SHARED, srq.max_segs),
        };
        let capacity = max_recvs.max(1) as usize;
        let slots = if srq.is_none() { capacity.next_power_of_two() } else { 1 };
        let max_segs = max_segs.max(1) as usize;
        Receives {
            recvs: vec![Recv::default(); slots].into_boxed_slice(),
            segs: vec![MemSpan::default(); slots * max_segs].into_boxed_slice(),
            max_segs,
            capacity,
            places: if srq.is_none() { capacity as u64 } else { 0 },
            head: 0,
            tail: 0,
            srq,
            closed: false,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.srq.clone()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.places = 0;
    }

    /// The hot arm of a post: one segment, and room. `saved` completions still take a place each. `false`: nothing was
    /// done.
    #[inline]
    pub(super) fn post_one(&mut self, request: &RecvRequest, saved: usize) -> bool {
        let [segment] = request.segments() else { return false };
        let poisoned = request.flags.contains(PostFlag::POISON);
        if poisoned || self.tail - self.head + saved as u64 >= self.places {
            return false;
        }
        let slot = self.slot(self.tail);
        let Some(recv) = self.recvs.get_mut(slot) else { return false };
        let room = segment.len().saturating_add(1);
        *recv = Recv { token: request.token, one: MemSpan::from(segment), room, nsegs: 1 };
        self.tail += 1;
        true
    }

    /// Any receive.
    pub(super) fn post(&mut self, request: &RecvRequest, saved: usize) -> Result<(), Status> {
        let segments = request.segments();
        if self.tail - self.head + saved as u64 >= self.places || segments.len() > self.max_segs {
            return Err(self.refusal(segments.len()));
        }
        let slot = self.slot(self.tail);
        self.recvs[slot] = Recv::new(request);
        if segments.len() > 1 {
            for (to, segment) in self.segs[slot * self.max_segs..].iter_mut().zip(segments) {
                *to = MemSpan::from(segment);
            }
        }
        self.tail += 1;
        Ok(())
    }

    #[cold]
    fn refusal(&self, segments: usize) -> Status {
        if self.closed {
            Status::NOT_CONNECTED
        } else if segments > self.max_segs || self.srq.is_some() {
            Status::INVALID
        } else {
            Status::NO_RESOURCE
        }
    }

    /// Uses the oldest receive for a message of `len` bytes, if it has one segment with room: its token, and where the
    /// bytes go.
    #[inline]
    pub(super) fn take_short(&mut self, len: usize) -> Option<(u64, *mut u8)> {
        let recv = self.recvs.get(self.slot(self.head))?;
        if self.head == self.tail || len as u64 >= recv.room.into() || recv.nsegs != 1 {
            return None;
        }
        self.head += 1;
        Some((recv.token, recv.one.addr() as *mut u8))
    }

    /// The oldest receive. If there is none, one out of the shared queue.
    pub(super) fn front(&mut self, conn: &Conn) -> Option<Recv> {
        if self.is_empty() {
            let srq = self.srq.as_ref()?;
            let recv = srq.take(conn, &mut self.segs[..self.max_segs])?;
            self.recvs[0] = recv;
            self.tail += 1;
        }
        Some(self.recvs[self.slot(self.head)])
    }

    /// The scatter list of the oldest receive.
    pub(super) fn list(&self) -> &[MemSpan] {
        let slot = self.slot(self.head);
        self.recvs[slot].list(&self.segs[slot * self.max_segs..])
    }

    /// Goes past the oldest receive; gives its token.
    #[inline]
    pub(super) fn pop(&mut self) -> u64 {
        let token = self.recvs[self.slot(self.head)].token;
        self.head += 1;
        token
    }

    /// Gives back what was taken out of the shared queue for a message that never came whole.
    pub(super) fn give_back(&mut self) {
        if let Some(srq) = &self.srq
            && !self.is_empty()
        {
            let slot = self.slot(self.head);
            srq.give_back(self.recvs[slot], self.list());
            self.head = self.tail;
        }
    }

    #[inline]
    fn slot(&self, index: u64) -> usize {
        index as usize & (self.recvs.len() - 1)
    }
}
