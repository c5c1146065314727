//! Posts of memory that has one owner. Only who holds the region can post it, and can ask whether the provider still
//! uses it. A program that keeps the region to itself may therefore look at the memory by reference.

use std::sync::Arc;

use dat_types::{CompletionFlags, Result, RmrTriplet};

use super::inner::{Ep, EpInner};
use super::kind::{Kind, READ, RECV, SEND, WRITE};
use super::post::Post;
use crate::memory::lmr::ExclusiveLmr;

/// What to do with memory that has one owner.
#[derive(Clone, Copy, Debug)]
pub enum Transfer {
    /// Receive into it.
    Recv,
    /// Send from it.
    Send,
    /// Write it to a peer's memory.
    Write(RmrTriplet),
    /// Read a peer's memory into it.
    Read(RmrTriplet),
}

/// Names a post for [`Ep::has_completed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostNumber {
    receive: bool,
    number: u64,
}

impl Ep {
    /// Posts `length` bytes at `offset` of a region that has one owner, with default completion flags.
    pub fn post_exclusive(
        &self,
        transfer: Transfer,
        region: &ExclusiveLmr,
        (offset, length): (u64, u32),
        cookie: u64,
    ) -> Result<PostNumber> {
        let (kind, remote) = match transfer {
            Transfer::Recv => (RECV, RmrTriplet::default()),
            Transfer::Send => (SEND, RmrTriplet::default()),
            Transfer::Write(remote) => (WRITE, remote),
            Transfer::Read(remote) => (READ, remote),
        };
        let kind = Kind { access: kind.access | ExclusiveLmr::ACCESS, ..kind };
        let iov = [region.triplet(offset, length)];
        let number = self.0.post(Post::new(&kind, &iov, cookie, remote, CompletionFlags::empty()))?;
        Ok(PostNumber { receive: kind.is_receive(), number })
    }

    /// Whether a post has completed: from then on the provider does not touch its memory. A completion that was
    /// not taken from its dispatcher does not count. Takes no lock in the usual case.
    pub fn has_completed(&self, post: PostNumber) -> bool {
        self.0.has_completed(post)
    }
}

impl EpInner {
    fn has_completed(self: &Arc<EpInner>, post: PostNumber) -> bool {
        let [requests, recvs] = &self.first_rings;
        let ring = if post.receive { recvs } else { requests };
        ring.has_completed(post.number).unwrap_or_else(|| {
            let side = self.post.lock();
            let ring = if post.receive { &side.recvs } else { &side.requests };
            ring.has_completed(post.number) == Some(true)
        })
    }
}
