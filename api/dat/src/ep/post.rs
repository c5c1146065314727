//! Posting operations.

use std::ops::RangeBounds;

use arrayvec::ArrayVec;
use dat_types::{CompletionFlags, Error, LmrTriplet, Result, ReturnType, RmrTriplet, Subtype};

use super::inflight::MARK;
use super::{Ep, Owner};
use crate::Buffer;
use crate::region::{Slice, bounds};

/// Most segments of one post, whatever the provider.
pub(crate) const MAX_SEGMENTS: usize = 32;

/// An operation on regions, to be posted. Must be used: nothing happens before [`Post::post`].
#[must_use = "nothing happens before it is posted"]
#[derive(Debug)]
pub struct Post<'a> {
    pub(super) ep: &'a Owner,
    what: What,
    segments: &'a [Slice],
    pub(super) cookie: u64,
    pub(super) flags: CompletionFlags,
}

/// A post of a buffer that was not accepted: why, and the buffer.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// Given back.
    pub buffer: Buffer,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Refused> for Error {
    /// Drops the buffer.
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Recv,
    Send,
    Write(RmrTriplet),
    Read(RmrTriplet),
    SendImmediate(u32),
    WriteImmediate(RmrTriplet, u32),
    SendInvalidate(u32),
    ReadInto(RmrTriplet, RmrTriplet),
    FetchAdd(RmrTriplet, u64),
    CompareSwap(RmrTriplet, u64, u64),
}

impl Ep {
    /// Receives into a buffer. It is the endpoint's until the completion; [`Ep::reclaim`] gives it back. On failure it
    /// comes back at once.
    pub fn recv(&self, buffer: Buffer) -> std::result::Result<(), Refused> {
        let iov = [buffer.triplet(0, u32::try_from(buffer.len()).unwrap_or(u32::MAX))];
        self.with_buffer(buffer, |engine, cookie| engine.post_recv(&iov, cookie, CompletionFlags::empty()))
    }

    /// Sends a part of a buffer, as [`Ep::recv`].
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub fn send(&self, buffer: Buffer, range: impl RangeBounds<usize>) -> std::result::Result<(), Refused> {
        let (offset, len) = bounds(buffer.len(), range);
        let iov = [buffer.triplet(offset, len)];
        self.with_buffer(buffer, |engine, cookie| engine.post_send(&iov, cookie, CompletionFlags::empty()))
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
        let (offset, len) = bounds(buffer.len(), range);
        let iov = [buffer.triplet(offset, len)];
        let flags = CompletionFlags::empty();
        self.with_buffer(buffer, |engine, cookie| engine.post_rdma_write(&iov, cookie, remote, flags))
    }

    /// Reads a peer's memory into a buffer, as [`Ep::recv`].
    pub fn read(&self, buffer: Buffer, remote: RmrTriplet) -> std::result::Result<(), Refused> {
        let iov = [buffer.triplet(0, u32::try_from(buffer.len()).unwrap_or(u32::MAX))];
        let flags = CompletionFlags::empty();
        self.with_buffer(buffer, |engine, cookie| engine.post_rdma_read(&iov, cookie, remote, flags))
    }

    /// A receive into regions, to be posted.
    #[inline]
    pub fn recv_into<'a>(&'a self, segments: &'a [Slice]) -> Post<'a> {
        Post::new(&self.0, What::Recv, segments)
    }

    /// A send from regions, to be posted.
    #[inline]
    pub fn send_from<'a>(&'a self, segments: &'a [Slice]) -> Post<'a> {
        Post::new(&self.0, What::Send, segments)
    }

    /// An RDMA write from regions to a peer's memory, to be posted.
    #[inline]
    pub fn write_from<'a>(&'a self, segments: &'a [Slice], remote: RmrTriplet) -> Post<'a> {
        Post::new(&self.0, What::Write(remote), segments)
    }

    /// An RDMA read of `remote.length` bytes of a peer's memory into regions, to be posted.
    #[inline]
    pub fn read_into<'a>(&'a self, segments: &'a [Slice], remote: RmrTriplet) -> Post<'a> {
        Post::new(&self.0, What::Read(remote), segments)
    }

    fn with_buffer(
        &self,
        buffer: Buffer,
        post: impl FnOnce(&dat_engine::Ep, u64) -> Result<()>,
    ) -> std::result::Result<(), Refused> {
        // In before the post: its completion may be taken by another thread before the post returns.
        let cookie = self.0.inflight.put(buffer);
        match post(&self.0.engine, cookie) {
            Ok(()) => Ok(()),
            Err(error) => {
                let buffer =
                    self.0.inflight.take(cookie).expect("put there above; its cookie was told to nobody");
                Err(Refused { error, buffer })
            }
        }
    }
}

impl<'a> Post<'a> {
    #[inline(always)]
    pub(super) fn new(ep: &'a Owner, what: What, segments: &'a [Slice]) -> Post<'a> {
        Post { ep, what, segments, cookie: 0, flags: CompletionFlags::empty() }
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
    #[inline(always)]
    pub fn post(self) -> Result<()> {
        if self.cookie & MARK != 0 {
            return Err(COOKIE);
        }
        if let [one] = self.segments {
            return self.hand_over(&[one.0]);
        }
        if self.segments.len() > MAX_SEGMENTS {
            return Err(too_many_segments());
        }
        let iov: ArrayVec<LmrTriplet, MAX_SEGMENTS> = self.segments.iter().map(|slice| slice.0).collect();
        self.hand_over(&iov)
    }

    // What is posted is known where it is called, so that of the four ways one is left.
    #[inline(always)]
    fn hand_over(&self, iov: &[LmrTriplet]) -> Result<()> {
        let engine = &self.ep.engine;
        match self.what {
            What::Recv => engine.post_recv(iov, self.cookie, self.flags),
            What::Send => engine.post_send(iov, self.cookie, self.flags),
            What::Write(remote) => engine.post_rdma_write(iov, self.cookie, remote, self.flags),
            What::Read(remote) => engine.post_rdma_read(iov, self.cookie, remote, self.flags),
            what => self.hand_over_extended(what, iov),
        }
    }
}

pub(crate) const COOKIE: Error = Error::fixed(
    "dat_ep_post",
    ReturnType::InvalidParameter,
    Subtype::Arg4,
    "cookies with the highest bit set are taken by buffers; use one below 2^63",
);

/// Whether a cookie is of those that buffers go by.
pub(crate) fn cookie_taken(cookie: u64) -> bool {
    cookie & MARK != 0
}

#[cold]
pub(crate) fn too_many_segments() -> Error {
    TOO_MANY
}

const TOO_MANY: Error = Error::fixed(
    "dat_ep_post",
    ReturnType::InvalidParameter,
    Subtype::Arg2,
    "more than 32 segments in one post",
);
