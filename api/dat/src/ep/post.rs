//! Posting operations.

use std::ops::RangeBounds;

use dat_engine::{ExclusiveLmr, PostNumber};
use dat_types::{CompletionFlags, Result, RmrTriplet};

use super::endpoint::{Ep, Inner};
use super::operation::Operation;
use crate::Buffer;
use crate::local;
use crate::refused::Refused;
use crate::region::{Slice, bounds};

/// An operation on regions, to be posted. Must be used: nothing happens before [`Post::post`].
#[must_use = "nothing happens before it is posted"]
#[derive(Debug)]
pub struct Post<'a> {
    ep: &'a Inner,
    operation: Operation,
    segments: &'a [Slice],
    cookie: u64,
    flags: CompletionFlags,
}

impl Ep {
    /// Receives into a buffer. It is the endpoint's until the completion; [`Ep::reclaim`] gives it back. On failure it
    /// comes back at once.
    pub fn recv(&self, buffer: Buffer) -> std::result::Result<(), Refused> {
        self.post_buffer(buffer, .., |engine, lmr, range, cookie| engine.recv_exclusive(lmr, range, cookie))
    }

    /// Sends a part of a buffer, as [`Ep::recv`].
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub fn send(&self, buffer: Buffer, range: impl RangeBounds<usize>) -> std::result::Result<(), Refused> {
        self.post_buffer(buffer, range, |engine, lmr, range, cookie| {
            engine.send_exclusive(lmr, range, cookie)
        })
    }

    /// Writes a part of a buffer to a peer's memory, as [`Ep::recv`].
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub fn write(
        &self,
        buffer: Buffer,
        range: impl RangeBounds<usize>,
        remote: RmrTriplet,
    ) -> std::result::Result<(), Refused> {
        self.post_buffer(buffer, range, |engine, lmr, range, cookie| {
            engine.write_exclusive(lmr, range, cookie, remote)
        })
    }

    /// Reads a peer's memory into a buffer, as [`Ep::recv`].
    pub fn read(&self, buffer: Buffer, remote: RmrTriplet) -> std::result::Result<(), Refused> {
        self.post_buffer(buffer, .., |engine, lmr, range, cookie| {
            engine.read_exclusive(lmr, range, cookie, remote)
        })
    }

    fn post_buffer(
        &self,
        buffer: Buffer,
        range: impl RangeBounds<usize>,
        post: impl FnOnce(&dat_engine::Ep, &ExclusiveLmr, (u64, u32), u64) -> Result<PostNumber>,
    ) -> std::result::Result<(), Refused> {
        let range = bounds(buffer.len(), range);
        let Inner { engine, inflight, .. } = &*self.0;
        inflight.post(buffer, |buffer, cookie| post(engine, buffer.lmr(), range, cookie))
    }

    /// A receive into regions, to be posted.
    #[inline]
    pub fn recv_into<'a>(&'a self, segments: &'a [Slice]) -> Post<'a> {
        Post::new(&self.0, Operation::Recv, segments)
    }

    /// A send from regions, to be posted.
    #[inline]
    pub fn send_from<'a>(&'a self, segments: &'a [Slice]) -> Post<'a> {
        Post::new(&self.0, Operation::Send, segments)
    }

    /// An RDMA write from regions to a peer's memory, to be posted.
    #[inline]
    pub fn write_from<'a>(&'a self, segments: &'a [Slice], remote: RmrTriplet) -> Post<'a> {
        Post::new(&self.0, Operation::Write(remote), segments)
    }

    /// An RDMA read of `remote.length` bytes of a peer's memory into regions, to be posted.
    #[inline]
    pub fn read_into<'a>(&'a self, segments: &'a [Slice], remote: RmrTriplet) -> Post<'a> {
        Post::new(&self.0, Operation::Read(remote), segments)
    }
}

impl<'a> Post<'a> {
    #[inline]
    pub(super) fn new(ep: &'a Inner, operation: Operation, segments: &'a [Slice]) -> Post<'a> {
        Post { ep, operation, segments, cookie: 0, flags: CompletionFlags::empty() }
    }

    /// Comes back in the completion; the highest bit must be 0.
    #[inline]
    pub fn cookie(mut self, cookie: u64) -> Post<'a> {
        self.cookie = cookie;
        self
    }

    /// Completion flags of this post.
    #[inline]
    pub fn flags(mut self, flags: CompletionFlags) -> Post<'a> {
        self.flags = flags;
        self
    }

    /// No event when it succeeds.
    #[inline]
    pub fn suppress(self) -> Post<'a> {
        let flags = self.flags | CompletionFlags::SUPPRESS;
        self.flags(flags)
    }

    /// Posts it. Never blocks; no allocation, no system call unless a sleeping peer must be woken.
    // `inline(always)`: the operation is then a constant where the post is built.
    #[inline(always)]
    pub fn post(self) -> Result<()> {
        local::check_cookie(self.cookie)?;
        let engine = &self.ep.engine;
        match self.segments {
            [one] => {
                let iov = [one.triplet_on(&self.ep.ia)?];
                self.operation.submit(engine, &iov, self.cookie, self.flags)
            }
            _ => self.post_several(),
        }
    }

    /// A post of none or several segments, one copy for all operations.
    #[cold]
    fn post_several(self) -> Result<()> {
        let iov = local::triplets(&self.ep.ia, self.segments)?;
        self.operation.submit(&self.ep.engine, &iov, self.cookie, self.flags)
    }
}
