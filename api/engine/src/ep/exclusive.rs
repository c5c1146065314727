//! Posts of memory that has one owner. Only who holds the region can post it, and can ask whether the provider still
//! uses it. A program that keeps the region to itself may therefore look at the memory by reference.

use std::sync::Arc;

use dat_plugin::Access;
use dat_types::{CompletionFlags, Result, RmrTriplet};

use super::inner::{Ep, EpInner};
use super::kind::{Kind, READ, RECV, SEND, WRITE};
use super::post::Post;
use crate::memory::lmr::ExclusiveLmr;

/// Names a post for [`Ep::has_completed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostNumber {
    receive: bool,
    number: u64,
}

impl Ep {
    /// Receives into a range of a region that has one owner.
    pub fn recv_exclusive(
        &self,
        region: &ExclusiveLmr,
        range: (u64, u32),
        cookie: u64,
    ) -> Result<PostNumber> {
        self.post_exclusive::<0>(region, range, cookie, RmrTriplet::default())
    }

    /// Sends a range of a region that has one owner.
    pub fn send_exclusive(
        &self,
        region: &ExclusiveLmr,
        range: (u64, u32),
        cookie: u64,
    ) -> Result<PostNumber> {
        self.post_exclusive::<1>(region, range, cookie, RmrTriplet::default())
    }

    /// Writes a range of a region that has one owner to a peer's memory.
    pub fn write_exclusive(
        &self,
        region: &ExclusiveLmr,
        range: (u64, u32),
        cookie: u64,
        remote: RmrTriplet,
    ) -> Result<PostNumber> {
        self.post_exclusive::<2>(region, range, cookie, remote)
    }

    /// Reads a peer's memory into a range of a region that has one owner.
    pub fn read_exclusive(
        &self,
        region: &ExclusiveLmr,
        range: (u64, u32),
        cookie: u64,
        remote: RmrTriplet,
    ) -> Result<PostNumber> {
        self.post_exclusive::<3>(region, range, cookie, remote)
    }

    /// Posts, with default completion flags. `KIND` makes the operation a constant, as it is in posts of regions.
    fn post_exclusive<const KIND: usize>(
        &self,
        region: &ExclusiveLmr,
        (offset, length): (u64, u32),
        cookie: u64,
        remote: RmrTriplet,
    ) -> Result<PostNumber> {
        let kind = const { &exclusive([RECV, SEND, WRITE, READ][KIND]) };
        let iov = [region.triplet(offset, length)];
        let number = self.0.post(Post::new(kind, &iov, cookie, remote, CompletionFlags::empty()))?;
        Ok(PostNumber { receive: kind.is_receive(), number })
    }

    /// Whether a post has completed: from then on the provider does not touch its memory. A completion that was
    /// not taken from its dispatcher does not count. Takes no lock in the usual case.
    #[inline]
    pub fn has_completed(&self, post: PostNumber) -> bool {
        self.0.has_completed(post)
    }
}

/// The same operation on memory that has one owner.
const fn exclusive(kind: Kind) -> Kind {
    Kind { access: Access(kind.access.0 | ExclusiveLmr::ACCESS.0), ..kind }
}

impl EpInner {
    #[inline]
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
