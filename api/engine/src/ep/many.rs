//! Several posts in one call: one lock, one call into the provider for up to 16 of them.

use std::sync::Arc;

use dat_plugin::host::{Batch, Channel, RecvBatch, Remote};
use dat_plugin::{Opcode, PostFlag, Segment, Status};
use dat_types::{CompletionFlags, LmrTriplet, Result, RmrTriplet};

use super::inner::{Ep, EpInner};
use super::kind::{Kind, RECV, SEND};
use super::post::{Post, wire_flags};
use super::post_error as refuse;
use super::post_side::{PostSide, Segments, token};
use crate::base::ring::Work;
use crate::base::states::Verdict;

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
        self.0.post_many::<Batch>(&SEND, posts)
    }

    /// Receives, as [`Ep::post_recv`] one by one up to the first that fails: how many were posted, and why no more.
    pub fn post_recv_many(&self, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        self.0.post_many::<RecvBatch>(&RECV, posts)
    }
}

impl EpInner {
    /// Posts in batches what can be. Any other post is posted by itself, which does what it needs or says what is wrong.
    fn post_many<B: PostBatch>(
        self: &Arc<EpInner>,
        kind: &Kind,
        posts: &[Posting<'_>],
    ) -> (usize, Result<()>) {
        let mut done = 0;
        while done < posts.len() {
            let (posted, result) = self.post_batches::<B>(kind, &posts[done..]);
            done += posted;
            if result.is_err() {
                return (done, result);
            }
            if let Some(next) = posts.get(done) {
                match self.post(Post::new(kind, next.iov, next.cookie, RmrTriplet::default(), next.flags)) {
                    Ok(_) => done += 1,
                    Err(error) => return (done, Err(error)),
                }
            }
        }
        (done, Ok(()))
    }

    /// Posts up to the first that is not like the others.
    fn post_batches<B: PostBatch>(&self, kind: &Kind, posts: &[Posting<'_>]) -> (usize, Result<()>) {
        if self.fork.forked() {
            return (0, Ok(()));
        }
        let side = self.post.lock();
        // What has to be looked at after each post is posted one by one.
        let one_by_one =
            if kind.is_receive() { side.soft_mark.min(side.hard_mark) < u32::MAX } else { side.eager };
        let connected = side.verdict(kind) == Verdict::Ok && !one_by_one;
        let Some(channel) = side.channel.as_ref().filter(|_| connected) else { return (0, Ok(())) };
        let mut batch = B::new();
        let mut done = 0;
        loop {
            batch.clear();
            for post in &posts[done..] {
                if !side.add_to(&mut batch, self, kind, post) {
                    break;
                }
            }
            let wanted = batch.len();
            let (posted, status) = batch.post(channel);
            let bytes = posts[done..].iter().take(posted).map(Posting::bytes).sum();
            self.counts.posted.add(kind.operation, posted as u64, bytes);
            done += posted;
            let left = wanted - posted;
            match status {
                _ if wanted == 0 => return (done, Ok(())),
                _ if left == 0 => {}
                // The rest is in the ring and flushed with it.
                Status::NOT_CONNECTED => return (done + left, Ok(())),
                status => {
                    (0..left).for_each(|_| side.ring(kind).unpush());
                    return match status {
                        // Posted by itself, the next one finds out what can be done about it.
                        Status::NO_RESOURCE => (done, Ok(())),
                        _ => (done, Err(refuse::status("dat_ep_post_many", status))),
                    };
                }
            }
        }
    }
}

impl Posting<'_> {
    fn bytes(&self) -> u64 {
        self.iov.iter().map(|segment| u64::from(segment.length)).sum()
    }
}

impl PostSide {
    /// Takes a post into the ring and the batch. `false`: nothing was done, it has to be posted by itself.
    fn add_to(&self, batch: &mut impl PostBatch, ep: &EpInner, kind: &Kind, post: &Posting<'_>) -> bool {
        if self.ring(kind).is_full() || self.admit(ep, kind, post.iov.len(), post.flags).is_err() {
            return false;
        }
        let mut segments = Segments::new();
        let Ok(total) = self.resolve(post.iov, kind.access, &mut segments) else { return false };
        let fits = self.check_length(kind, total, RmrTriplet::default()).is_ok();
        if !fits || !batch.has_room(segments.len()) {
            return false;
        }
        let work = Work { cookie: post.cookie, operation: kind.operation, flags: post.flags };
        let (number, unsignalled) = match kind.is_receive() {
            true => (self.recvs.push(work), false),
            false => self.requests.push_request(work),
        };
        let signal = if unsignalled { PostFlag::UNSIGNALLED } else { PostFlag::NONE };
        batch.add(kind.opcode, wire_flags(post.flags) | signal, token(number), &segments, total);
        true
    }
}

/// Requests or receives on their way to the provider.
trait PostBatch {
    fn new() -> Self;
    fn clear(&mut self);
    fn len(&self) -> usize;
    fn has_room(&self, segments: usize) -> bool;
    /// Adds a post; there is room.
    fn add(&mut self, opcode: Opcode, flags: PostFlag, token: u64, segments: &[Segment], total: u64);
    /// How many the provider accepted, and why no more.
    fn post(&mut self, channel: &Channel) -> (usize, Status);
}

macro_rules! post_batch {
    ($batch:ty, $channel:ident, |$self:ident, $opcode:ident, $flags:ident, $token:ident, $segments:ident, $total:ident| $add:expr) => {
        impl PostBatch for $batch {
            fn new() -> Self {
                <$batch>::new()
            }

            fn clear(&mut self) {
                <$batch>::clear(self);
            }

            fn len(&self) -> usize {
                <$batch>::len(self)
            }

            fn has_room(&self, segments: usize) -> bool {
                <$batch>::has_room(self, segments)
            }

            fn add(
                &mut $self,
                $opcode: Opcode,
                $flags: PostFlag,
                $token: u64,
                $segments: &[Segment],
                $total: u64,
            ) {
                // It fits: the caller asked `has_room`.
                let _ = $add;
            }

            fn post(&mut self, channel: &Channel) -> (usize, Status) {
                channel.$channel(self)
            }
        }
    };
}

post_batch!(Batch, post_batch, |self, opcode, flags, token, segments, total| self.push(
    opcode,
    flags,
    token,
    segments,
    total,
    Remote::default()
));
post_batch!(RecvBatch, post_recv_batch, |self, _opcode, _flags, token, segments, total| self.push(
    PostFlag::NONE,
    token,
    segments,
    total
));
