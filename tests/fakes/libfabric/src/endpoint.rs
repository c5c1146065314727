//! An endpoint: what is posted on it, and how messages and one-sided operations reach its peer.
//!
//! # Safety
//! The functions have the promises of the calls that use them: objects live, and memory of an operation is as long as its
//! vectors say until it completed.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{copy, null_mut};

use libc::{iovec, ssize_t};
use libfabric_sys::consts::*;
use libfabric_sys::types::*;

use crate::info::SEGMENTS;
use crate::queues::{Completions, Event, Events};
use crate::world::World;

pub const OK: ssize_t = 0;
pub const INVALID: ssize_t = -libc::EINVAL as ssize_t;
pub const AGAIN: ssize_t = -libc::EAGAIN as ssize_t;

/// An endpoint.
#[repr(C)]
pub struct Endpoint {
    pub base: fid_ep,
    pub events: *mut Events,
    pub port: u16,
    pub peer: *mut Endpoint,
    pub connected: bool,
    /// Its request to connect, until that is answered.
    pub asked: *mut Request,
    pub sends: Bound,
    pub recvs: Bound,
    /// What requests are posted with that say nothing themselves.
    pub flags: u64,
    pub posted: VecDeque<Receive>,
    pub limit: usize,
    /// Messages that found no receive.
    pub waiting: VecDeque<(Vec<u8>, Mark)>,
}

/// A completion queue, and whether it reports only operations that request it.
#[derive(Clone, Copy)]
pub struct Bound {
    pub queue: *mut Completions,
    pub selective: bool,
}

impl Bound {
    /// An operation is done.
    pub unsafe fn tell(
        self,
        context: *mut c_void,
        asked: u64,
        flags: u64,
        (len, data, error): (usize, u64, c_int),
    ) {
        if error != 0 || !self.selective || asked & FI_COMPLETION != 0 {
            // SAFETY: the callers': bound before anything was posted, and open as long as its endpoints.
            if let Some(queue) = unsafe { self.queue.as_mut() } {
                queue.push(context, flags, len, data, error);
            }
        }
    }
}

/// A posted receive.
#[derive(Clone, Copy)]
pub struct Receive {
    pub context: *mut c_void,
    pub flags: u64,
    pub count: usize,
    pub segments: [iovec; SEGMENTS],
}

/// Immediate data, and whether there is any.
pub type Mark = Option<u64>;

/// An unanswered request; known by its head alone.
#[repr(C)]
pub struct Request {
    pub base: fid,
    /// The requester; null when it is gone.
    pub from: *mut Endpoint,
}

impl Endpoint {
    /// Ends the connection, if there is one, and gives back what is posted. The lock is held.
    pub unsafe fn hang_up(&mut self) {
        // SAFETY: the callers': an open endpoint, and so its peer and their queues.
        unsafe {
            if std::mem::replace(&mut self.connected, false)
                && let Some(peer) = self.peer.as_mut()
                && std::mem::replace(&mut peer.connected, false)
            {
                peer.tell(Event::new(FI_SHUTDOWN));
                peer.give_back();
            }
            self.give_back();
        }
    }

    /// Reports an event at the queue it is bound to.
    pub unsafe fn tell(&mut self, event: Event) {
        let of = (&raw mut *self).cast();
        // SAFETY: the callers': event queues outlive what is bound to them.
        if let Some(events) = unsafe { self.events.as_mut() } {
            events.push(Event { of, ..event });
        }
    }

    pub unsafe fn give_back(&mut self) {
        for receive in std::mem::take(&mut self.posted) {
            // SAFETY: as above.
            unsafe { self.recvs.tell(receive.context, 0, FI_RECV | FI_MSG, (0, 0, libc::ECANCELED)) };
        }
    }

    pub unsafe fn receive(&mut self, segments: &[iovec], context: *mut c_void, flags: u64) -> ssize_t {
        if segments.len() > SEGMENTS {
            return INVALID;
        }
        if self.posted.len() >= self.limit {
            return AGAIN;
        }
        let nothing = iovec { iov_base: null_mut(), iov_len: 0 };
        let mut receive = Receive { context, flags, count: segments.len(), segments: [nothing; SEGMENTS] };
        for (place, segment) in receive.segments.iter_mut().zip(segments) {
            *place = *segment;
        }
        match self.waiting.pop_front() {
            Some((bytes, mark)) => {
                let whole = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                // SAFETY: the callers'.
                unsafe { self.fill(&receive, &[whole], mark) };
            }
            None => self.posted.push_back(receive),
        }
        OK
    }

    /// Copies a message to a receive and reports it.
    pub unsafe fn fill(&mut self, receive: &Receive, from: &[iovec], mark: Mark) {
        // SAFETY: the callers': memory of both sides' operations.
        unsafe {
            let done = match scatter(from, &receive.segments[..receive.count]) {
                Some(len) => (len, mark.unwrap_or(0), 0),
                None => (0, 0, FI_ETRUNC),
            };
            let data = if mark.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
            self.recvs.tell(receive.context, receive.flags, FI_RECV | FI_MSG | data, done);
        }
    }

    /// A message without context is not reported.
    pub unsafe fn message(
        &mut self,
        segments: &[iovec],
        mark: Mark,
        context: Option<*mut c_void>,
        flags: u64,
    ) -> ssize_t {
        // SAFETY: the callers': a connected endpoint has a peer, and it is open.
        unsafe {
            if !self.connected {
                return -libc::ENOTCONN as ssize_t;
            }
            let peer = &mut *self.peer;
            match peer.posted.pop_front() {
                Some(receive) => peer.fill(&receive, segments, mark),
                None => peer.waiting.push_back((gather(segments), mark)),
            }
            if let Some(context) = context {
                self.sends.tell(context, flags, FI_SEND | FI_MSG, (0, 0, 0));
            }
        }
        OK
    }

    /// Writes or reads the peer's memory, and tells the peer of a write with immediate data.
    pub unsafe fn remote(
        &mut self,
        world: &World,
        segments: &[iovec],
        target: &fi_rma_iov,
        (reads, mark): (bool, Mark),
        (context, flags): (Option<*mut c_void>, u64),
    ) -> ssize_t {
        // SAFETY: as for `message`; the range is that of registered memory.
        unsafe {
            if !self.connected {
                return -libc::ENOTCONN as ssize_t;
            }
            let len = segments.iter().map(|segment| segment.iov_len).sum();
            let place = world.locate(target.key, target.addr, len as u64);
            let error = match place {
                Some(mut place) => {
                    for segment in segments {
                        match reads {
                            true => copy(place, segment.iov_base.cast(), segment.iov_len),
                            false => copy(segment.iov_base.cast(), place, segment.iov_len),
                        }
                        place = place.add(segment.iov_len);
                    }
                    0
                }
                None => libc::EACCES,
            };
            if let Some(data) = mark
                && error == 0
            {
                let peer = &*self.peer;
                let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
                peer.recvs.tell(null_mut(), FI_COMPLETION, flags, (len, data, 0));
            }
            if error != 0 || context.is_some() {
                let kind = if reads { FI_READ } else { FI_WRITE };
                self.sends.tell(context.unwrap_or(null_mut()), flags, FI_RMA | kind, (0, 0, error));
            }
        }
        OK
    }
}

/// Copies stretch by stretch: the bytes copied, or nothing when they do not fit.
unsafe fn scatter(from: &[iovec], to: &[iovec]) -> Option<usize> {
    let sum = |list: &[iovec]| list.iter().map(|segment| segment.iov_len).sum::<usize>();
    let total = sum(from);
    if total > sum(to) {
        return None;
    }
    let mut targets = to.iter();
    let (mut at, mut room) = (null_mut::<u8>(), 0);
    for segment in from {
        let (mut source, mut left) = (segment.iov_base.cast::<u8>(), segment.iov_len);
        while left > 0 {
            if room == 0 {
                // The sum says that there is another one.
                let next = targets.next()?;
                (at, room) = (next.iov_base.cast(), next.iov_len);
            }
            let count = left.min(room);
            // SAFETY: within both stretches, which the callers vouch for.
            unsafe {
                copy(source, at, count);
                (source, at) = (source.add(count), at.add(count));
            }
            (left, room) = (left - count, room - count);
        }
    }
    Some(total)
}

unsafe fn gather(from: &[iovec]) -> Vec<u8> {
    // SAFETY: the callers'.
    let stretch = |segment: &iovec| unsafe {
        std::slice::from_raw_parts(segment.iov_base.cast::<u8>(), segment.iov_len)
    };
    from.iter().filter(|segment| segment.iov_len > 0).flat_map(stretch).copied().collect()
}
