//! Several posts in one call: one lock, one call into the provider.

use arrayvec::ArrayVec;
use dat_engine::Posting;
use dat_types::{CompletionFlags, Result};

use super::endpoint::Ep;
use crate::Ia;
use crate::local;
use crate::region::Slice;

/// Most posts of one call of the engine.
const CHUNK: usize = 16;

impl Ep {
    /// Receives, one into each slice, with its cookie (the highest bit must be 0): as [`Ep::recv_into`] one by one, up to
    /// the first that fails. Gives how many were posted, and why no more.
    pub fn recv_each(&self, posts: &[(Slice, u64)]) -> (usize, Result<()>) {
        in_chunks(&self.0.ia, posts, CompletionFlags::empty(), |chunk| self.0.engine.post_recv_many(chunk))
    }

    /// Sends, one from each slice, with its cookie and these flags for all; otherwise as [`Ep::recv_each`].
    pub fn send_each(&self, posts: &[(Slice, u64)], flags: CompletionFlags) -> (usize, Result<()>) {
        in_chunks(&self.0.ia, posts, flags, |chunk| self.0.engine.post_send_many(chunk))
    }
}

fn in_chunks(
    ia: &Ia,
    posts: &[(Slice, u64)],
    flags: CompletionFlags,
    post: impl Fn(&[Posting<'_>]) -> (usize, Result<()>),
) -> (usize, Result<()>) {
    let mut done = 0;
    for chunk in posts.chunks(CHUNK) {
        let mut triplets = ArrayVec::<_, CHUNK>::new();
        let mut refused = Ok(());
        for (slice, cookie) in chunk {
            match local::check_cookie(*cookie).and_then(|()| slice.triplet_on(ia)) {
                Ok(triplet) => triplets.push((triplet, *cookie)),
                Err(error) => {
                    refused = Err(error);
                    break;
                }
            }
        }
        let list: ArrayVec<Posting<'_>, CHUNK> = triplets
            .iter()
            .map(|(triplet, cookie)| Posting { iov: std::slice::from_ref(triplet), cookie: *cookie, flags })
            .collect();
        let (posted, result) = post(&list);
        done += posted;
        if let Err(error) = result.and(refused) {
            return (done, Err(error));
        }
    }
    (done, Ok(()))
}
