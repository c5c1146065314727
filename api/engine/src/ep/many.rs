//! Several posts in one call: one lock, one call into the provider.

use std::sync::Arc;

use dat_plugin::host::{Batch, RecvBatch, Remote};
use dat_plugin::{Access, Opcode, PostFlag, Status};
use dat_types::{CompletionFlags, DtoOperation, LmrTriplet, Result};

use super::post::{PostSide, Segments, wire_flags};
use super::ring::{Work, WorkRing};
use super::states::Verdict;
use super::{Ep, EpInner};

/// One of several posts.
#[derive(Clone, Copy, Debug)]
pub struct Posting<'a> {
    /// The local segments.
    pub iov: &'a [LmrTriplet],
    /// Comes back in the completion.
    pub cookie: u64,
    /// Completion flags.
    pub flags: CompletionFlags,
}

impl Ep {
    /// Sends, as [`Ep::post_send`] one by one up to the first that fails: how many were posted, and why no more.
    pub fn post_send_many(&self, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        self.0.post_many(posts, EpInner::send_together, |post| {
            self.post_send(post.iov, post.cookie, post.flags)
        })
    }

    /// Receives, as [`Ep::post_recv`] one by one up to the first that fails: how many were posted, and why no more.
    pub fn post_recv_many(&self, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        self.0.post_many(posts, EpInner::recv_together, |post| {
            self.post_recv(post.iov, post.cookie, post.flags)
        })
    }
}

impl EpInner {
    /// Posts together what is in order; whatever is not, is posted by itself, which says what is wrong with it or what
    /// has to be done first.
    fn post_many(
        self: &Arc<EpInner>,
        posts: &[Posting<'_>],
        together: impl Fn(&EpInner, &[Posting<'_>]) -> (usize, Result<()>),
        alone: impl Fn(&Posting<'_>) -> Result<()>,
    ) -> (usize, Result<()>) {
        let mut done = 0;
        while done < posts.len() {
            let (accepted, result) = together(self, &posts[done..]);
            done += accepted;
            if result.is_err() {
                return (done, result);
            }
            if let Some(next) = posts.get(done) {
                match alone(next) {
                    Ok(()) => done += 1,
                    failed => return (done, failed),
                }
            }
        }
        (done, Ok(()))
    }

    fn send_together(&self, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        if self.fork.forked() {
            return (0, Ok(()));
        }
        let side = self.post.lock();
        let Some(channel) = side.channel.as_ref().filter(|_| !side.freed && side.request == Verdict::Ok)
        else {
            return (0, Ok(()));
        };
        if side.eager {
            return (0, Ok(()));
        }
        let mut batch = Batch::new();
        let mut all = 0;
        loop {
            batch.clear();
            for post in &posts[all..] {
                let mut segments = Segments::new();
                let Some(total) = side.ready(post, true, &mut segments) else { break };
                if !batch.has_room(segments.len()) {
                    break;
                }
                let (token, silent) = side.requests.push_request(post.work(DtoOperation::Send));
                let quiet = if silent { PostFlag::UNSIGNALLED } else { PostFlag::NONE };
                let wire = wire_flags(post.flags) | quiet;
                // There is room, just checked.
                let _ = batch.push(Opcode::SEND, wire, token.into(), &segments, total, Remote::default());
            }
            let wanted = batch.len();
            let (posted, status) = channel.post_batch(&mut batch);
            let done = &posts[all..][..posted.min(posts.len() - all)];
            self.counts.posted.add(DtoOperation::Send, posted as u64, done.iter().map(Posting::bytes).sum());
            all += posted;
            if let Some(result) = side.leftover(&side.requests, &mut all, wanted - posted, status) {
                return (all, result);
            }
            if wanted == 0 {
                return (all, Ok(()));
            }
        }
    }

    fn recv_together(&self, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        if self.fork.forked() {
            return (0, Ok(()));
        }
        let side = self.post.lock();
        let plain = side.recv == Verdict::Ok && !side.freed && !side.shared;
        let marked = side.soft_mark.min(side.hard_mark) < u32::MAX;
        let Some(channel) = side.channel.as_ref().filter(|_| plain && !marked) else { return (0, Ok(())) };
        let mut batch = RecvBatch::new();
        let mut all = 0;
        loop {
            batch.clear();
            for post in &posts[all..] {
                let mut segments = Segments::new();
                let Some(total) = side.ready(post, false, &mut segments) else { break };
                if !batch.has_room(segments.len()) {
                    break;
                }
                let token = side.recvs.push(post.work(DtoOperation::Receive)).into();
                // There is room, just checked.
                let _ = batch.push(PostFlag::NONE, token, &segments, total);
            }
            let wanted = batch.len();
            let (posted, status) = channel.post_recv_batch(&mut batch);
            let done = &posts[all..][..posted.min(posts.len() - all)];
            self.counts.posted.add(
                DtoOperation::Receive,
                posted as u64,
                done.iter().map(Posting::bytes).sum(),
            );
            all += posted;
            if let Some(result) = side.leftover(&side.recvs, &mut all, wanted - posted, status) {
                return (all, result);
            }
            if wanted == 0 {
                return (all, Ok(()));
            }
        }
    }
}

impl Posting<'_> {
    #[inline]
    fn bytes(&self) -> u64 {
        self.iov.iter().map(|segment| u64::from(segment.length)).sum()
    }

    #[inline]
    fn work(&self, operation: DtoOperation) -> Work {
        Work { cookie: self.cookie, operation, flags: self.flags }
    }
}

impl PostSide {
    /// Total length and segments of a post there is nothing to say about; `None` for all others.
    #[inline(always)]
    fn ready(&self, post: &Posting<'_>, send: bool, segments: &mut Segments) -> Option<u64> {
        let (ring, most_iov, known, access) = match send {
            true => {
                let known = CompletionFlags::SUPPRESS
                    | CompletionFlags::SOLICITED_WAIT
                    | CompletionFlags::BARRIER_FENCE;
                (&self.requests, self.limits.send_iov, known, Access::LOCAL_READ)
            }
            false => (&self.recvs, self.limits.recv_iov, CompletionFlags::empty(), Access::LOCAL_WRITE),
        };
        if ring.is_full() || !known.contains(post.flags) || post.iov.len() > most_iov as usize {
            return None;
        }
        let total = match post.iov {
            [single] if single.length != 0 => {
                segments.push(self.segment(single, access).ok()?);
                u64::from(single.length)
            }
            iov => self.resolve(iov, access, segments).ok()?,
        };
        (!send || total <= self.limits.message).then_some(total)
    }

    /// Deals with posts that are in the ring but were not accepted. `Some`: there is no going on.
    fn leftover(&self, ring: &WorkRing, all: &mut usize, left: usize, status: Status) -> Option<Result<()>> {
        match status {
            _ if left == 0 => None,
            // They are flushed with the rest.
            Status::NOT_CONNECTED => {
                *all += left;
                Some(Ok(()))
            }
            _ => {
                (0..left).for_each(|_| ring.unpush());
                Some(match status {
                    // By itself the next one finds out what can be done about that.
                    Status::NO_RESOURCE => Ok(()),
                    _ => Err(self.refused("dat_ep_post_many", status)),
                })
            }
        }
    }
}
