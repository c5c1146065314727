//! Several posts in one call of the provider.

use arrayvec::ArrayVec;

use crate::abi::{Opcode, PostFlag, RecvRequest, Remote, Request, Segment};

/// Most posts of one batch.
pub const BATCH: usize = 16;

/// Most segments of all posts of one batch.
const SEGMENTS: usize = 64;

/// Requests collected for [`super::Channel::post_batch`].
pub type Batch = List<Request>;

/// Receives collected for [`super::Channel::post_recv_batch`].
pub type RecvBatch = List<RecvRequest>;

/// Posts and the segments they name. Lives on the stack, segments are copied in, nothing is allocated, and nothing is
/// written but what is posted.
pub struct List<T> {
    posts: ArrayVec<T, BATCH>,
    segments: ArrayVec<Segment, SEGMENTS>,
}

impl<T: Copy> List<T> {
    /// An empty one.
    #[inline]
    pub fn new() -> List<T> {
        List { posts: ArrayVec::new(), segments: ArrayVec::new() }
    }

    /// How many posts are collected.
    #[inline]
    pub fn len(&self) -> usize {
        self.posts.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Whether one more post with `segments` segments fits.
    #[inline]
    pub fn has_room(&self, segments: usize) -> bool {
        !self.posts.is_full() && self.segments.remaining_capacity() >= segments
    }

    /// Forgets them.
    #[inline]
    pub fn clear(&mut self) {
        self.posts.clear();
        self.segments.clear();
    }

    #[inline]
    fn add(&mut self, post: T, segments: &[Segment]) -> bool {
        if !self.has_room(segments.len()) {
            return false;
        }
        // Written out for the commonest number: a copy of any number is a call.
        if let [one] = segments {
            self.segments.push(*one);
        } else {
            self.segments.extend(segments.iter().copied());
        }
        self.posts.push(post);
        true
    }
}

impl<T: Copy> Default for List<T> {
    fn default() -> List<T> {
        List::new()
    }
}

impl Batch {
    /// Adds a request; `false`: no room, post the batch first.
    #[must_use]
    #[inline]
    pub fn push(
        &mut self,
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: Remote,
    ) -> bool {
        self.add(Request::new(opcode, flags, token, segments, total, remote, 0), segments)
    }

    /// The requests, with their segments where they are now.
    pub(super) fn requests(&mut self) -> &[Request] {
        let mut next = self.segments.as_ptr();
        for post in &mut self.posts {
            post.segs = next;
            next = next.wrapping_add(post.nsegs as usize);
        }
        &self.posts
    }
}

impl RecvBatch {
    /// Adds a receive; `false`: no room, post the batch first.
    #[must_use]
    #[inline]
    pub fn push(&mut self, flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> bool {
        self.add(RecvRequest::new(flags, token, segments, total), segments)
    }

    /// The receives, with their segments where they are now.
    pub(super) fn requests(&mut self) -> &[RecvRequest] {
        let mut next = self.segments.as_ptr();
        for post in &mut self.posts {
            post.segs = next;
            next = next.wrapping_add(post.nsegs as usize);
        }
        &self.posts
    }
}
