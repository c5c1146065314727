//! Posting. Every operation goes the same way: [`PostSide::admit`], the segments, [`EpInner::submit`].
//!
//! One uncontended lock, checks by direct index, one slot of a ring, one call into the provider. Nothing allocates once
//! connected. A receive posted before that is kept here, which may allocate.
//!
//! One split: [`EpInner::post_several`] is apart from posts of one segment, which would otherwise reserve its 32
//! segments on the stack too. `inline(always)` on the steps between makes the operation a constant in each caller, so
//! that the checks of other operations fall away.

use std::sync::Arc;

use dat_plugin::host::{Channel, Remote};
use dat_plugin::{PostFlag, Segment, Status};
use dat_types::{CompletionFlags, DtoOperation, LmrTriplet, Result, RmrTriplet};

use super::inner::{Ep, EpInner};
use super::kind::{Kind, READ, RECV, SEND, WRITE};
use super::post_error as refuse;
use super::post_side::{PostGuard, PostSide, Segments, token};
use crate::base::deferred::DeferredList;
use crate::base::ring::{Work, WorkRing};
use crate::base::segments::segment_error;
use crate::base::states::Verdict;
use crate::base::{deferred, error};

/// A post as the consumer gave it.
pub(super) struct Post<'a> {
    pub(super) kind: &'a Kind,
    pub(super) iov: &'a [LmrTriplet],
    pub(super) cookie: u64,
    pub(super) flags: CompletionFlags,
    pub(super) remote: RmrTriplet,
    pub(super) immediate: u32,
}

impl<'a> Post<'a> {
    #[inline]
    pub(super) fn new(
        kind: &'a Kind,
        iov: &'a [LmrTriplet],
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Post<'a> {
        Post { kind, iov, cookie, flags, remote, immediate: 0 }
    }
}

impl Ep {
    /// `dat_ep_post_send`. The segments may be forgotten on return; their memory belongs to the provider until the
    /// completion.
    #[inline]
    pub fn post_send(&self, iov: &[LmrTriplet], cookie: u64, flags: CompletionFlags) -> Result<()> {
        self.0.post(Post::new(&SEND, iov, cookie, RmrTriplet::default(), flags)).map(drop)
    }

    /// `dat_ep_post_rdma_write`: all local bytes to `remote`.
    #[inline]
    pub fn post_rdma_write(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.0.post(Post::new(&WRITE, iov, cookie, remote, flags)).map(drop)
    }

    /// `dat_ep_post_rdma_read`: `remote.length` bytes into the local segments (decision D-15).
    #[inline]
    pub fn post_rdma_read(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.0.post(Post::new(&READ, iov, cookie, remote, flags)).map(drop)
    }

    /// `dat_ep_post_recv`. Allowed in every state; flushed at once when disconnected.
    #[inline]
    pub fn post_recv(&self, iov: &[LmrTriplet], cookie: u64, flags: CompletionFlags) -> Result<()> {
        self.0.post(Post::new(&RECV, iov, cookie, RmrTriplet::default(), flags)).map(drop)
    }
}

impl EpInner {
    /// Posts any operation on segments. Gives the post's number in its direction.
    #[inline(always)]
    pub(super) fn post(self: &Arc<EpInner>, post: Post<'_>) -> Result<u64> {
        let kind = post.kind;
        if self.fork.forked() {
            return Err(error::forked(kind.call));
        }
        let side = self.post.lock();
        side.admit(self, kind, post.iov.len(), post.flags)?;
        match post.iov {
            [single] if single.length != 0 => {
                let one = side.segment(single, kind.access).map_err(|e| segment_error(kind.call, e))?;
                self.post_admitted(side, &post, std::slice::from_ref(&one), single.length.into())
            }
            _ => self.post_several(side, &post),
        }
    }

    /// A post of none or several segments.
    #[cold]
    fn post_several(self: &Arc<EpInner>, side: PostGuard<'_>, post: &Post<'_>) -> Result<u64> {
        let kind = post.kind;
        let mut segments = Segments::new();
        let total = side.resolve(post.iov, kind.access, &mut segments);
        let total = total.map_err(|e| segment_error(kind.call, e))?;
        self.post_admitted(side, post, &segments, total)
    }

    #[inline(always)]
    fn post_admitted(
        self: &Arc<EpInner>,
        side: PostGuard<'_>,
        post: &Post<'_>,
        segments: &[Segment],
        total: u64,
    ) -> Result<u64> {
        let Post { kind, remote, flags, cookie, immediate, .. } = *post;
        side.check_length(kind, total, remote)?;
        let work = Work { cookie, operation: kind.operation, flags };
        self.submit(side, kind, work, (post.iov, total), |channel, token, signal| {
            if kind.is_receive() {
                return channel.post_recv(PostFlag::NONE, token, segments, total);
            }
            let len = if kind.operation == DtoOperation::RdmaRead { remote.length } else { 0 };
            let target = Remote { addr: remote.address, rkey: remote.context, len };
            channel.post_imm(
                kind.opcode,
                wire_flags(flags) | signal,
                token,
                segments,
                total,
                target,
                immediate,
            )
        })
    }

    /// Takes checked work into its ring and has `post` give it to the provider. `iov` is what a receive without a
    /// channel is kept by, `total` its bytes.
    #[inline(always)]
    pub(super) fn submit<'a>(
        self: &'a Arc<EpInner>,
        mut side: PostGuard<'a>,
        kind: &Kind,
        work: Work,
        (iov, total): (&[LmrTriplet], u64),
        post: impl FnOnce(&Channel, u64, PostFlag) -> Status,
    ) -> Result<u64> {
        if side.ring(kind).is_full() {
            side = self.wait_for_room(side, kind)?;
        }
        let (number, unsignalled) = match kind.is_receive() {
            true => (side.recvs.push(work), false),
            false => side.requests.push_request(work),
        };
        let Some(channel) = side.channel.as_ref().filter(|_| side.verdict(kind) == Verdict::Ok) else {
            return self.post_unconnected(side, kind, number, iov, total);
        };
        let signal = if unsignalled { PostFlag::UNSIGNALLED } else { PostFlag::NONE };
        let status = post(channel, token(number), signal);
        if status.0 < 0 {
            return side.not_accepted(kind, number, status);
        }
        self.counts.posted.add(work.operation, 1, total);
        if side.needs_care(kind) {
            self.after_post(side, kind);
        }
        Ok(number)
    }

    /// Takes completions, which frees slots of the ring.
    #[cold]
    fn wait_for_room<'a>(self: &'a Arc<EpInner>, side: PostGuard<'a>, kind: &Kind) -> Result<PostGuard<'a>> {
        drop(side);
        self.make_room();
        let side = self.post.lock();
        match side.ring(kind).is_full() {
            false => Ok(side),
            true => Err(refuse::full(kind.call)),
        }
    }

    /// Work in the ring that no channel takes: a receive is kept until there is one, or everything is flushed.
    #[cold]
    fn post_unconnected(
        self: &Arc<EpInner>,
        mut side: PostGuard<'_>,
        kind: &Kind,
        number: u64,
        iov: &[LmrTriplet],
        total: u64,
    ) -> Result<u64> {
        match side.verdict(kind) {
            Verdict::Flush => match side.flush_now(self, !kind.is_receive()) {
                true => Ok(number),
                false => Err(refuse::full(kind.call)),
            },
            Verdict::Ok if kind.is_receive() => {
                side.store(number, kind.access, iov);
                self.counts.posted.add(DtoOperation::Receive, 1, total);
                let marked = side.recvs.outstanding() > side.soft_mark;
                drop(side);
                if marked {
                    self.check_marks();
                }
                Ok(number)
            }
            // The state changed while room was made.
            _ => {
                side.ring(kind).unpush();
                Err(self.post_refused(kind, &side))
            }
        }
    }

    /// Takes completions the provider has, so that work that is done leaves the rings.
    #[cold]
    pub(super) fn make_room(&self) {
        let evds = {
            let side = self.post.lock();
            if let Some(channel) = &side.channel {
                channel.settle();
            }
            [side.request_evd.clone(), side.recv_evd.clone()]
        };
        let mut deferred = DeferredList::new();
        for evd in evds.into_iter().flatten() {
            let mut core = evd.0.core.lock();
            evd.0.drain_to(&mut core, &mut deferred, 0);
        }
        deferred::run(deferred);
    }

    /// The dispatcher could overflow, or a mark of the receives was passed.
    #[cold]
    fn after_post(self: &Arc<EpInner>, side: PostGuard<'_>, kind: &Kind) {
        drop(side);
        match kind.is_receive() {
            true => self.check_marks(),
            false => self.make_room(),
        }
    }
}

impl PostSide {
    /// What every post is checked for before its segments are looked at: capability, flags, number of segments, state.
    #[inline(always)]
    pub(super) fn admit(
        &self,
        ep: &EpInner,
        kind: &Kind,
        segments: usize,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.check_capability(ep, kind)?;
        let mode_needed = flags.contains(CompletionFlags::UNSIGNALLED);
        if !kind.flags.contains(flags)
            || (mode_needed && self.ring(kind).mode != CompletionFlags::UNSIGNALLED)
        {
            return Err(self.unless_freed(ep, kind.call, refuse::flags(kind.call, flags)));
        }
        let most = match kind.operation {
            DtoOperation::Send => self.limits.send_iov,
            DtoOperation::Receive => self.limits.recv_iov,
            DtoOperation::RdmaRead => self.limits.read_iov,
            _ => self.limits.write_iov,
        };
        if segments > most as usize {
            return Err(self.unless_freed(ep, kind.call, refuse::segment_count(kind.call, segments, most)));
        }
        match self.verdict(kind) {
            Verdict::Ok => Ok(()),
            Verdict::Flush if !self.freed => Ok(()),
            _ => Err(ep.post_refused(kind, self)),
        }
    }

    #[inline]
    pub(super) fn check_capability(&self, ep: &EpInner, kind: &Kind) -> Result<()> {
        match self.caps.contains(kind.caps) {
            true => Ok(()),
            false => Err(self.unless_freed(ep, kind.call, refuse::absent(kind))),
        }
    }

    /// The length against the endpoint's limits and the remote segment. A receive has no limit.
    #[inline(always)]
    pub(super) fn check_length(&self, kind: &Kind, total: u64, remote: RmrTriplet) -> Result<()> {
        let most = match kind.operation {
            DtoOperation::Receive => return Ok(()),
            DtoOperation::Send => self.limits.message,
            _ => self.limits.rdma,
        };
        if total > most {
            return Err(refuse::length(kind.call, total, most));
        }
        match kind.operation {
            DtoOperation::Send => Ok(()),
            DtoOperation::RdmaRead if self.limits.reads == 0 => Err(refuse::no_reads(kind.call)),
            DtoOperation::RdmaRead if total < u64::from(remote.length) => {
                Err(refuse::sink_too_short(kind.call))
            }
            DtoOperation::RdmaRead => Ok(()),
            _ if total > u64::from(remote.length) => Err(refuse::target_too_short(kind.call)),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn ring(&self, kind: &Kind) -> &WorkRing {
        if kind.is_receive() { &self.recvs } else { &self.requests }
    }

    /// What the endpoint's state says to such a post.
    #[inline]
    pub(super) fn verdict(&self, kind: &Kind) -> Verdict {
        if kind.is_receive() { self.recv } else { self.request }
    }

    /// Whether something has to be looked at after such a post.
    #[inline]
    pub(super) fn needs_care(&self, kind: &Kind) -> bool {
        match kind.is_receive() {
            true => self.recvs.outstanding() > self.soft_mark.min(self.hard_mark),
            false => self.eager,
        }
    }

    /// A bad handle is reported before everything else.
    #[cold]
    pub(super) fn unless_freed(
        &self,
        ep: &EpInner,
        call: &'static str,
        error: dat_types::Error,
    ) -> dat_types::Error {
        match self.freed {
            true => refuse::freed(call, ep.id),
            false => error,
        }
    }

    /// The provider did not take it. A channel that has stopped is no error here: the work is flushed with the rest.
    #[cold]
    fn not_accepted(&self, kind: &Kind, number: u64, status: Status) -> Result<u64> {
        if status == Status::NOT_CONNECTED {
            return Ok(number);
        }
        self.ring(kind).unpush();
        Err(refuse::status(kind.call, status))
    }
}

/// What completion flags mean to the provider.
#[inline]
pub(super) fn wire_flags(flags: CompletionFlags) -> PostFlag {
    let mut wire = PostFlag::NONE;
    if flags.contains(CompletionFlags::SOLICITED_WAIT) {
        wire = wire | PostFlag::SOLICITED;
    }
    if flags.contains(CompletionFlags::BARRIER_FENCE) {
        wire = wire | PostFlag::FENCE;
    }
    wire
}
