//! Several posts in one call: one lock, one call into the provider.

use arrayvec::ArrayVec;
use dat_engine::Posting;
use dat_types::{CompletionFlags, Result};

use super::Ep;
use super::post::{COOKIE, cookie_taken};
use crate::region::Slice;

/// As many are handed on together.
const CHUNK: usize = 16;

impl Ep {
    /// Receives, one into each slice, with its cookie (the highest bit must be 0): as [`Ep::recv_into`] one by one, up to
    /// the first that fails. Gives how many were posted, and why no more.
    pub fn recv_each(&self, posts: &[(Slice, u64)]) -> (usize, Result<()>) {
        in_chunks(posts, CompletionFlags::empty(), |chunk| self.0.engine.post_recv_many(chunk))
    }

    /// Sends, one from each slice, with its cookie and these flags for all; otherwise as [`Ep::recv_each`].
    pub fn send_each(&self, posts: &[(Slice, u64)], flags: CompletionFlags) -> (usize, Result<()>) {
        in_chunks(posts, flags, |chunk| self.0.engine.post_send_many(chunk))
    }
}

fn in_chunks(
    posts: &[(Slice, u64)],
    flags: CompletionFlags,
    post: impl Fn(&[Posting<'_>]) -> (usize, Result<()>),
) -> (usize, Result<()>) {
    let good = posts.iter().take_while(|(_, cookie)| !cookie_taken(*cookie)).count();
    let mut done = 0;
    for chunk in posts[..good].chunks(CHUNK) {
        let list: ArrayVec<Posting<'_>, CHUNK> = chunk
            .iter()
            .map(|(slice, cookie)| Posting { iov: std::slice::from_ref(&slice.0), cookie: *cookie, flags })
            .collect();
        let (posted, result) = post(&list);
        done += posted;
        if result.is_err() {
            return (done, result);
        }
    }
    (done, if good == posts.len() { Ok(()) } else { Err(COOKIE) })
}
