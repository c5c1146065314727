//! Posting: the hot path of the requesting side.
//!
//! One uncontended lock, checks by direct index, one slot of a ring, one call into the provider. Nothing allocates
//! once connected; a receive posted before that is kept here, which may allocate.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dat_plugin::host::{Channel, Remote, SpanError, SpanTable};
use dat_plugin::{Access, Caps, Opcode, PostFlag, Segment, Status};
use dat_types::{
    CompletionFlags, DtoOperation, EpAttr, EpState, Error, LmrTriplet, Result, ReturnType, RmrTriplet,
    Subtype,
};

use super::ring::{Work, WorkRing};
use super::states::{Operation, Verdict, verdict};
use super::{Ep, EpInner, MAX_IOV, attr::Wiring};
use crate::error;
use crate::evd::Evd;
use crate::ia::IaInner;
use crate::lock::Guard;
use crate::pz::{Pz, ZONE_MISMATCH};
use crate::sequel::{self, Sequels};
use crate::status_map;

/// What posting looks at, under one lock.
pub(super) struct PostSide {
    pub(super) channel: Option<Channel>,
    pub(super) requests: Arc<WorkRing>,
    pub(super) recvs: Arc<WorkRing>,
    pub(super) request_evd: Option<Evd>,
    pub(super) recv_evd: Option<Evd>,
    /// What the device can do.
    pub(super) caps: Caps,
    /// Receives come out of a shared queue.
    pub(super) shared: bool,
    /// More receives posted than this are told once; `u32::MAX` is never.
    pub(super) soft_mark: u32,
    /// More receives posted than this break the connection.
    pub(super) hard_mark: u32,
    /// The protection zone's number; `None` without a zone.
    pub(super) domain: Option<u32>,
    pub(super) spans: Arc<SpanTable>,
    /// Completions are taken after each post, because the dispatcher could overflow.
    pub(super) eager: bool,
    pub(super) freed: bool,
    state: EpState,
    pub(super) request: Verdict,
    pub(super) recv: Verdict,
    pub(super) limits: Limits,
    /// Receives posted before there is a channel; their tokens are the ring's.
    stored: Vec<Stored>,
}

struct Stored {
    token: u32,
    segments: Vec<LmrTriplet>,
}

pub(super) struct Limits {
    pub(super) message: u64,
    rdma: u64,
    pub(super) send_iov: u32,
    pub(super) recv_iov: u32,
    read_iov: u32,
    write_iov: u32,
    reads: u32,
}

pub(super) type Segments = ArrayVec<Segment, MAX_IOV>;

/// The post side, held.
pub(super) type PostGuard<'a> = Guard<'a, PostSide>;

impl PostSide {
    pub(super) fn new(
        ia: &IaInner,
        attr: &EpAttr,
        wiring: &Wiring,
        pz: Option<&Pz>,
        state: EpState,
        shared: bool,
    ) -> PostSide {
        let mut side = PostSide {
            channel: None,
            requests: Arc::new(WorkRing::new(0, CompletionFlags::empty())),
            recvs: Arc::new(WorkRing::new(0, CompletionFlags::empty())),
            request_evd: None,
            recv_evd: None,
            caps: ia.attr().caps,
            shared,
            soft_mark: u32::MAX,
            hard_mark: u32::MAX,
            domain: pz.map(|pz| pz.0.domain),
            spans: ia.spans.clone(),
            eager: false,
            freed: false,
            state,
            request: verdict(Operation::PostRequest, state),
            recv: verdict(Operation::PostRecv, state),
            limits: Limits {
                message: 0,
                rdma: 0,
                send_iov: 0,
                recv_iov: 0,
                read_iov: 0,
                write_iov: 0,
                reads: 0,
            },
            stored: Vec::new(),
        };
        side.configure(attr, wiring);
        side
    }

    /// Takes over attributes and dispatchers. Without a channel only; receives posted before are kept.
    pub(super) fn configure(&mut self, attr: &EpAttr, wiring: &Wiring) {
        let or_same = |iov: u32| if iov == 0 { attr.max_request_iov } else { iov };
        self.limits = Limits {
            message: attr.max_message_size,
            rdma: attr.max_rdma_size,
            send_iov: attr.max_request_iov,
            recv_iov: attr.max_recv_iov,
            read_iov: or_same(attr.max_rdma_read_iov),
            write_iov: or_same(attr.max_rdma_write_iov),
            reads: attr.max_rdma_read_out,
        };
        self.requests = Arc::new(WorkRing::new(attr.max_request_dtos, attr.request_completion_flags));
        let recvs = WorkRing::new(attr.max_recv_dtos, attr.recv_completion_flags);
        for stored in &mut self.stored {
            if let Some(work) = self.recvs.flush_one() {
                stored.token = recvs.push(work);
            }
        }
        self.recvs = Arc::new(recvs);
        self.request_evd = wiring.request.clone();
        self.recv_evd = wiring.recv.clone();
    }

    pub(super) fn enter(&mut self, state: EpState) {
        self.state = state;
        self.request = verdict(Operation::PostRequest, state);
        self.recv = verdict(Operation::PostRecv, state);
        self.requests.set_draining(state == EpState::DisconnectPending);
    }

    /// Hands the receives kept so far to `channel`. Nothing changes here: if the connection comes to nothing before it
    /// began, they are still kept.
    pub(super) fn hand_over(&self, channel: &Channel) -> std::result::Result<(), Status> {
        for stored in &self.stored {
            let mut segments = Segments::new();
            // What was right when it was posted may have been freed since, or the zone changed: such a receive fails
            // when a message would use it (decision D-32).
            let total = self.resolve(&stored.segments, Access::LOCAL_WRITE, &mut segments);
            let (flags, total) = match total {
                Ok(total) => (PostFlag::NONE, total),
                Err(_) => {
                    segments.clear();
                    (PostFlag::POISON, 0)
                }
            };
            match channel.post_recv(flags, stored.token.into(), &segments, total) {
                status if status.0 < 0 => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    /// They are the channel's now.
    pub(super) fn forget_stored(&mut self) {
        self.stored.clear();
    }

    /// Most segments of a receive kept so far.
    pub(super) fn stored_iov(&self) -> usize {
        self.stored.iter().map(|stored| stored.segments.len()).max().unwrap_or(0)
    }

    pub(super) fn stored(&self) -> usize {
        self.stored.len()
    }

    /// The registered segment a triplet that is not empty names.
    #[inline(always)]
    pub(super) fn segment(
        &self,
        triplet: &LmrTriplet,
        access: Access,
    ) -> std::result::Result<Segment, SpanError> {
        let domain = self.domain.ok_or(SpanError::Domain)?;
        self.spans.segment(triplet.context, triplet.address, triplet.length, domain, access)
    }

    /// Registered segments for what the consumer named; empty ones are left out. Gives the total length.
    #[inline]
    pub(super) fn resolve(
        &self,
        iov: &[LmrTriplet],
        access: Access,
        out: &mut Segments,
    ) -> std::result::Result<u64, SpanError> {
        let mut total = 0;
        for triplet in iov {
            if triplet.length == 0 {
                continue;
            }
            let segment = self.segment(triplet, access)?;
            total += u64::from(triplet.length);
            // The number of segments was checked against a limit that is at most the capacity.
            let _ = out.try_push(segment);
        }
        Ok(total)
    }
}

/// The parts of a request that differ by operation.
pub(super) struct Kind {
    pub(super) call: &'static str,
    pub(super) operation: DtoOperation,
    pub(super) opcode: Opcode,
    pub(super) access: Access,
    pub(super) flags: CompletionFlags,
}

/// A request whose segments are yet to be looked up.
struct Asked<'a> {
    kind: &'a Kind,
    cookie: u64,
    remote: RmrTriplet,
    flags: CompletionFlags,
    immediate: u32,
}

pub(super) const REQUEST_FLAGS: CompletionFlags =
    CompletionFlags::SUPPRESS.union(CompletionFlags::UNSIGNALLED).union(CompletionFlags::BARRIER_FENCE);

const SEND: Kind = Kind {
    call: "dat_ep_post_send",
    operation: DtoOperation::Send,
    opcode: Opcode::SEND,
    access: Access::LOCAL_READ,
    flags: REQUEST_FLAGS.union(CompletionFlags::SOLICITED_WAIT),
};
const WRITE: Kind = Kind {
    call: "dat_ep_post_rdma_write",
    operation: DtoOperation::RdmaWrite,
    opcode: Opcode::WRITE,
    access: Access::LOCAL_READ,
    flags: REQUEST_FLAGS,
};
const READ: Kind = Kind {
    call: "dat_ep_post_rdma_read",
    operation: DtoOperation::RdmaRead,
    opcode: Opcode::READ,
    access: Access::LOCAL_WRITE,
    flags: REQUEST_FLAGS,
};

impl Ep {
    /// `dat_ep_post_send`. The segments may be forgotten on return; their memory belongs to the provider until the
    /// completion.
    #[inline]
    pub fn post_send(&self, iov: &[LmrTriplet], cookie: u64, flags: CompletionFlags) -> Result<()> {
        self.0.post_request(&SEND, iov, cookie, RmrTriplet::default(), flags, 0)
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
        self.0.post_request(&WRITE, iov, cookie, remote, flags, 0)
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
        self.0.post_request(&READ, iov, cookie, remote, flags, 0)
    }

    /// `dat_ep_post_recv`. Allowed in every state; flushed at once when disconnected.
    #[inline]
    pub fn post_recv(&self, iov: &[LmrTriplet], cookie: u64, flags: CompletionFlags) -> Result<()> {
        self.0.post_receive(iov, cookie, flags)
    }
}

impl EpInner {
    /// Inlined into its callers, for each of which most of it is constant.
    #[inline(always)]
    pub(super) fn post_request(
        &self,
        kind: &Kind,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
        immediate: u32,
    ) -> Result<()> {
        let call = kind.call;
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        let side = self.post.lock();
        side.check_flags(self, call, kind.flags, flags)?;
        let most_iov = match kind.operation {
            DtoOperation::Send => side.limits.send_iov,
            DtoOperation::RdmaRead => side.limits.read_iov,
            _ => side.limits.write_iov,
        };
        if iov.len() > most_iov as usize {
            return Err(side.unless_freed(self, call, too_many_segments(call, iov.len(), most_iov)));
        }
        side.check_state(self, call)?;
        // Made where it is used, or it would be put into memory on the short way too.
        let asked = || Asked { kind, cookie, remote, flags, immediate };
        match iov {
            [single] if single.length != 0 => {
                let one = side.segment(single, kind.access).map_err(|e| span_error(call, e))?;
                self.submit_asked(side, asked(), std::slice::from_ref(&one), single.length.into())
            }
            _ => self.post_request_of_many(side, asked(), iov),
        }
    }

    /// Of any number of segments. Apart, because it needs room on the stack that a request of one does not.
    #[inline(never)]
    fn post_request_of_many(&self, side: PostGuard<'_>, asked: Asked<'_>, iov: &[LmrTriplet]) -> Result<()> {
        let mut segments = Segments::new();
        let total = side.resolve(iov, asked.kind.access, &mut segments);
        let total = total.map_err(|e| span_error(asked.kind.call, e))?;
        self.submit_asked(side, asked, &segments, total)
    }

    #[inline(always)]
    fn submit_asked(
        &self,
        side: PostGuard<'_>,
        asked: Asked<'_>,
        segments: &[Segment],
        total: u64,
    ) -> Result<()> {
        let Asked { kind, cookie, remote, flags, immediate } = asked;
        let call = kind.call;
        let most = match kind.operation {
            DtoOperation::Send => side.limits.message,
            _ => side.limits.rdma,
        };
        if total > most {
            return Err(too_long(call, total, most));
        }
        let mut target = Remote { addr: remote.address, rkey: remote.context, len: 0 };
        if kind.operation != DtoOperation::Send {
            check_lengths(kind, total, remote, side.limits.reads)?;
            if kind.operation == DtoOperation::RdmaRead {
                target.len = remote.length;
            }
        }
        let wire = wire_flags(flags);
        self.submit(side, call, Work { cookie, operation: kind.operation, flags }, |channel, token, quiet| {
            let status =
                channel.post_imm(kind.opcode, wire | quiet, token, segments, total, target, immediate);
            if status.0 >= 0 {
                self.counts.posted.add(kind.operation, 1, total);
            }
            status
        })
    }

    /// Takes a checked request into the ring and has `post` hand it to the provider.
    #[inline(always)]
    pub(super) fn submit<'a>(
        &'a self,
        mut side: PostGuard<'a>,
        call: &'static str,
        work: Work,
        post: impl FnOnce(&Channel, u64, PostFlag) -> Status,
    ) -> Result<()> {
        if side.requests.is_full() {
            drop(side);
            self.make_room();
            side = self.post.lock();
            if side.requests.is_full() {
                return Err(full(call));
            }
        }
        let (token, silent) = side.requests.push_request(work);
        if matches!(side.request, Verdict::Flush) {
            return if side.flush_now(self, true) { Ok(()) } else { Err(full(call)) };
        }
        let Some(channel) = &side.channel else {
            // The state changed while room was made.
            side.requests.unpush();
            return Err(self.post_refused(call, &side));
        };
        let quiet = if silent { PostFlag::UNSIGNALLED } else { PostFlag::NONE };
        let status = post(channel, token.into(), quiet);
        if status.0 < 0 {
            return side.not_accepted(call, status, true);
        }
        if side.eager {
            drop(side);
            self.make_room();
        }
        Ok(())
    }

    #[inline]
    fn post_receive(
        self: &Arc<EpInner>,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        const CALL: &str = "dat_ep_post_recv";
        if self.fork.forked() {
            return Err(error::forked(CALL));
        }
        let side = self.post.lock();
        let unsignalled = side.recvs.mode == CompletionFlags::UNSIGNALLED;
        if !(flags.is_empty() || (unsignalled && flags == CompletionFlags::UNSIGNALLED)) {
            return Err(side.unless_freed(self, CALL, bad_flags(CALL, flags)));
        }
        if iov.len() > side.limits.recv_iov as usize {
            let error = too_many_segments(CALL, iov.len(), side.limits.recv_iov);
            return Err(side.unless_freed(self, CALL, error));
        }
        if side.freed || side.shared {
            return Err(self.recv_refused(CALL, &side));
        }
        let work = Work { cookie, operation: DtoOperation::Receive, flags };
        match iov {
            [single] if single.length != 0 => {
                let one = side.segment(single, Access::LOCAL_WRITE).map_err(|e| span_error(CALL, e))?;
                self.submit_receive(side, work, iov, std::slice::from_ref(&one), single.length.into())
            }
            _ => self.post_receive_of_many(side, work, iov),
        }
    }

    /// Of any number of segments. Apart, because it needs room on the stack that a receive of one does not.
    #[inline(never)]
    fn post_receive_of_many(
        self: &Arc<EpInner>,
        side: PostGuard<'_>,
        work: Work,
        iov: &[LmrTriplet],
    ) -> Result<()> {
        const CALL: &str = "dat_ep_post_recv";
        let mut segments = Segments::new();
        let total = side.resolve(iov, Access::LOCAL_WRITE, &mut segments);
        self.submit_receive(side, work, iov, &segments, total.map_err(|e| span_error(CALL, e))?)
    }

    /// Takes a checked receive into the ring and hands it to the provider.
    #[inline(always)]
    fn submit_receive<'a>(
        self: &'a Arc<EpInner>,
        mut side: PostGuard<'a>,
        work: Work,
        iov: &[LmrTriplet],
        segments: &[Segment],
        total: u64,
    ) -> Result<()> {
        const CALL: &str = "dat_ep_post_recv";
        if side.recvs.is_full() {
            drop(side);
            self.make_room();
            side = self.post.lock();
            if side.recvs.is_full() {
                return Err(full(CALL));
            }
        }
        let token = side.recvs.push(work);
        if matches!(side.recv, Verdict::Flush) {
            return if side.flush_now(self, false) { Ok(()) } else { Err(full(CALL)) };
        }
        let Some(channel) = &side.channel else {
            side.stored.push(Stored { token, segments: iov.to_vec() });
            self.counts.posted.add(DtoOperation::Receive, 1, total);
            let marked = side.recvs.outstanding() > side.soft_mark;
            drop(side);
            if marked {
                self.check_marks();
            }
            return Ok(());
        };
        let status = channel.post_recv(PostFlag::NONE, token.into(), segments, total);
        if status.0 < 0 {
            return side.not_accepted(CALL, status, false);
        }
        self.counts.posted.add(DtoOperation::Receive, 1, total);
        if side.recvs.outstanding() > side.soft_mark.min(side.hard_mark) {
            drop(side);
            self.check_marks();
        }
        Ok(())
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
        let mut sequels = Sequels::new();
        for evd in evds.into_iter().flatten() {
            let mut core = evd.0.core.lock();
            evd.0.harvest_to(&mut core, &mut sequels, 0);
        }
        sequel::perform(sequels);
    }

    #[cold]
    fn recv_refused(&self, call: &'static str, side: &PostSide) -> Error {
        if side.freed {
            return error::freed(call, Subtype::HandleEp, "endpoint", self.id);
        }
        let message = "the endpoint takes its receives from a shared queue; post them there";
        Error::fixed(call, ReturnType::InvalidState, Subtype::SrqInUse, message)
    }

    #[cold]
    fn post_refused(&self, call: &'static str, side: &PostSide) -> Error {
        match side.freed {
            true => error::freed(call, Subtype::HandleEp, "endpoint", self.id),
            false => self.wrong_state(call, side.state),
        }
    }
}

impl PostSide {
    #[inline(always)]
    fn check_flags(
        &self,
        ep: &EpInner,
        call: &'static str,
        known: CompletionFlags,
        flags: CompletionFlags,
    ) -> Result<()> {
        let unsignalled = flags.contains(CompletionFlags::UNSIGNALLED);
        if !known.contains(flags) || (unsignalled && self.requests.mode != CompletionFlags::UNSIGNALLED) {
            return Err(self.unless_freed(ep, call, bad_flags(call, flags)));
        }
        Ok(())
    }

    /// A bad handle comes before everything else (contract rule R-1).
    #[cold]
    pub(super) fn unless_freed(&self, ep: &EpInner, call: &'static str, error: Error) -> Error {
        match self.freed {
            true => error::freed(call, Subtype::HandleEp, "endpoint", ep.id),
            false => error,
        }
    }

    #[inline(always)]
    fn check_state(&self, ep: &EpInner, call: &'static str) -> Result<()> {
        match self.request {
            Verdict::Ok => Ok(()),
            Verdict::Flush if !self.freed => Ok(()),
            _ => Err(ep.post_refused(call, self)),
        }
    }

    /// What every request is checked for.
    pub(super) fn check_request(
        &self,
        ep: &EpInner,
        call: &'static str,
        known: CompletionFlags,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.check_flags(ep, call, known, flags)?;
        self.check_state(ep, call)
    }

    /// The provider did not take it. A channel that has stopped is no error here: the work is flushed with the rest.
    #[cold]
    fn not_accepted(&self, call: &'static str, status: Status, request: bool) -> Result<()> {
        if status == Status::NOT_CONNECTED {
            return Ok(());
        }
        if request {
            self.requests.unpush()
        } else {
            self.recvs.unpush()
        };
        Err(self.refused(call, status))
    }

    pub(super) fn refused(&self, call: &'static str, status: Status) -> Error {
        let (kind, subtype) = status_map::returned(status);
        match status {
            Status::NO_RESOURCE => full(call),
            Status::FORKED => error::forked(call),
            _ => Error::new(call, kind, subtype, format!("the provider refused the post: {status:?}")),
        }
    }
}

fn check_lengths(kind: &Kind, total: u64, remote: RmrTriplet, reads: u32) -> Result<()> {
    let call = kind.call;
    if kind.operation == DtoOperation::RdmaRead {
        if reads == 0 {
            let message = "the endpoint has max_rdma_read_out 0, so it cannot read (D-16)";
            return Err(Error::fixed(call, ReturnType::InvalidParameter, Subtype::None, message));
        }
        if total < u64::from(remote.length) {
            let message = "the local segments are shorter than the remote one";
            return Err(Error::fixed(call, ReturnType::LengthError, Subtype::None, message));
        }
    } else if total > u64::from(remote.length) {
        let message = "the remote segment is shorter than the local ones";
        return Err(Error::fixed(call, ReturnType::LengthError, Subtype::None, message));
    }
    Ok(())
}

/// What completion flags ask of the provider.
#[inline(always)]
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

#[cold]
#[inline(never)]
pub(super) fn bad_flags(call: &'static str, flags: CompletionFlags) -> Error {
    let message =
        format!("completion flags {flags:?} are not allowed here, or not with the endpoint's attributes");
    error::parameter(call, Subtype::Arg5, message)
}

#[cold]
#[inline(never)]
fn too_many_segments(call: &'static str, asked: usize, most: u32) -> Error {
    error::parameter(call, Subtype::Arg2, format!("{asked} segments; the endpoint's attributes allow {most}"))
}

#[cold]
#[inline(never)]
fn too_long(call: &'static str, total: u64, most: u64) -> Error {
    error::parameter(call, Subtype::Arg3, format!("{total} bytes; the endpoint's attributes allow {most}"))
}

/// Backpressure: programs meet it in loops, so it allocates nothing.
#[cold]
#[inline(never)]
fn full(call: &'static str) -> Error {
    let message =
        "as many are outstanding as the endpoint's attributes or its dispatcher hold; take completions first";
    Error::fixed(call, ReturnType::InsufficientResources, Subtype::ResourceTep, message)
}

#[cold]
#[inline(never)]
pub(crate) fn span_error(call: &'static str, error: SpanError) -> Error {
    let (kind, subtype, message) = match error {
        SpanError::Unknown => (
            ReturnType::PrivilegesViolation,
            Subtype::None,
            "a segment's lmr_context names no live memory region of this IA",
        ),
        SpanError::Range => {
            (ReturnType::InvalidParameter, Subtype::Arg3, "a segment reaches outside of its memory region")
        }
        SpanError::Domain => {
            (ZONE_MISMATCH.0, ZONE_MISMATCH.1, "a segment's memory region is of another protection zone")
        }
        SpanError::Access => (
            ReturnType::PrivilegesViolation,
            Subtype::None,
            "a segment's memory region lacks the local right: read to send or write, write to receive or read",
        ),
    };
    Error::fixed(call, kind, subtype, message)
}
