//! Several posts in one call of the provider.

use super::Remote;
use crate::wire::{Opcode, PostFlag, RecvRequest, Request, Segment};

/// Most posts of one batch.
pub const BATCH: usize = 16;

/// Most segments of all posts of one batch.
const SEGMENTS: usize = 64;

/// Requests collected for [`super::Channel::post_batch`].
pub type Batch = List<Request>;

/// Receives collected for [`super::Channel::post_recv_batch`].
pub type RecvBatch = List<RecvRequest>;

/// Posts and the segments they name. Lives on the stack, segments are copied in, nothing is allocated.
pub struct List<T> {
    posts: [T; BATCH],
    count: usize,
    segments: [Segment; SEGMENTS],
    used: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        List::of(Request::new(Opcode::SEND, PostFlag::NONE, 0, &[], 0, Remote::default(), 0))
    }
}

impl Default for RecvBatch {
    fn default() -> RecvBatch {
        List::of(RecvRequest::new(PostFlag::NONE, 0, &[], 0))
    }
}

impl<T: Copy> List<T> {
    fn of(empty: T) -> List<T> {
        let nothing = Segment { addr: 0, len: 0, lkey: 0 };
        List { posts: [empty; BATCH], count: 0, segments: [nothing; SEGMENTS], used: 0 }
    }

    /// How many posts are collected.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether one more post with so many segments fits.
    pub fn has_room(&self, segments: usize) -> bool {
        self.count < BATCH && SEGMENTS - self.used >= segments
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        (self.count, self.used) = (0, 0);
    }

    /// Room for one more post with these segments; the copy of the segments and the place of the post.
    fn room(&mut self, segments: &[Segment]) -> Option<(&[Segment], &mut T)> {
        if !self.has_room(segments.len()) {
            return None;
        }
        let own = &mut self.segments[self.used..self.used + segments.len()];
        own.copy_from_slice(segments);
        self.used += segments.len();
        self.count += 1;
        Some((own, &mut self.posts[self.count - 1]))
    }
}

impl Batch {
    /// Adds a request; `false`: no room, post the batch first.
    #[must_use]
    pub fn push(
        &mut self,
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: Remote,
    ) -> bool {
        let Some((own, place)) = self.room(segments) else { return false };
        *place = Request::new(opcode, flags, token, own, total, remote, 0);
        true
    }

    /// The requests, with their segments where they are now.
    pub(super) fn requests(&mut self) -> &[Request] {
        let mut next = self.segments.as_ptr();
        for post in &mut self.posts[..self.count] {
            post.segs = next;
            next = next.wrapping_add(post.nsegs as usize);
        }
        &self.posts[..self.count]
    }
}

impl RecvBatch {
    /// Adds a receive; `false`: no room, post the batch first.
    #[must_use]
    pub fn push(&mut self, flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> bool {
        let Some((own, place)) = self.room(segments) else { return false };
        *place = RecvRequest::new(flags, token, own, total);
        true
    }

    /// The receives, with their segments where they are now.
    pub(super) fn requests(&mut self) -> &[RecvRequest] {
        let mut next = self.segments.as_ptr();
        for post in &mut self.posts[..self.count] {
            post.segs = next;
            next = next.wrapping_add(post.nsegs as usize);
        }
        &self.posts[..self.count]
    }
}
