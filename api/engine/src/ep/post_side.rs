//! What posting looks at, under the endpoint's post lock: the channel, the rings, limits, and receives kept until there
//! is a channel.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dat_plugin::host::{Channel, SpanError, SpanTable};
use dat_plugin::{Access, Caps, PostFlag, Segment, Status};
use dat_types::{CompletionFlags, EpAttr, EpState, LmrTriplet};

use super::attr::Wiring;
use crate::adapter::inner::IaInner;
use crate::base::lock::Guard;
use crate::base::ring::WorkRing;
use crate::base::segments::MAX_IOV;
use crate::base::states::{Operation, Verdict, verdict};
use crate::evd::inner::Evd;
use crate::memory::pz::Pz;

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
    /// More receives posted than this raise one asynchronous event; `u32::MAX` is never.
    pub(super) soft_mark: u32,
    /// More receives posted than this break the connection.
    pub(super) hard_mark: u32,
    /// The protection zone's number; `None` without a zone.
    pub(super) domain: Option<u32>,
    pub(super) spans: Arc<SpanTable>,
    /// Completions are taken after each post, because the dispatcher could overflow.
    pub(super) eager: bool,
    pub(super) freed: bool,
    pub(super) state: EpState,
    /// What the state says to a request.
    pub(super) request: Verdict,
    /// What the state says to a receive.
    pub(super) recv: Verdict,
    pub(super) limits: Limits,
    stored: Vec<Stored>,
}

/// A receive posted before there is a channel.
struct Stored {
    number: u64,
    access: Access,
    segments: Vec<LmrTriplet>,
}

pub(super) struct Limits {
    pub(super) message: u64,
    pub(super) rdma: u64,
    pub(super) send_iov: u32,
    pub(super) recv_iov: u32,
    pub(super) read_iov: u32,
    pub(super) write_iov: u32,
    /// RDMA reads outstanding.
    pub(super) reads: u32,
}

pub(super) type Segments = ArrayVec<Segment, MAX_IOV>;

/// The post side, locked.
pub(super) type PostGuard<'a> = Guard<'a, PostSide>;

/// What the provider knows a post by.
#[inline]
pub(super) fn token(number: u64) -> u64 {
    (number as u32).into()
}

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
        side.enter(state);
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
        let requests = self.requests.replace(attr.max_request_dtos, attr.request_completion_flags);
        let recvs = self.recvs.replace(attr.max_recv_dtos, attr.recv_completion_flags);
        (self.requests, self.recvs) = (Arc::new(requests), Arc::new(recvs));
        self.request_evd = wiring.request.clone();
        self.recv_evd = wiring.recv.clone();
    }

    pub(super) fn enter(&mut self, state: EpState) {
        self.state = state;
        self.request = verdict(Operation::PostRequest, state);
        self.recv = match self.shared {
            true => Verdict::InvalidState,
            false => verdict(Operation::PostRecv, state),
        };
        self.requests.set_draining(state == EpState::DisconnectPending);
    }

    /// Keeps a receive until there is a channel.
    pub(super) fn store(&mut self, number: u64, access: Access, iov: &[LmrTriplet]) {
        self.stored.push(Stored { number, access, segments: iov.to_vec() });
    }

    /// Posts the receives kept until now to `channel`. They stay kept, in case the connection fails before it begins.
    pub(super) fn post_stored(&self, channel: &Channel) -> std::result::Result<(), Status> {
        for stored in &self.stored {
            let mut segments = Segments::new();
            // Memory may have been freed since the post, or the zone changed. Such a receive fails when a message
            // would use it (decision D-32).
            let total = self.resolve(&stored.segments, stored.access, &mut segments);
            let (flags, total) = match total {
                Ok(total) => (PostFlag::NONE, total),
                Err(_) => {
                    segments.clear();
                    (PostFlag::POISON, 0)
                }
            };
            match channel.post_recv(flags, token(stored.number), &segments, total) {
                status if status.0 < 0 => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    /// The rings of both directions: requests, receives.
    pub(super) fn rings(&self) -> [Arc<WorkRing>; 2] {
        [self.requests.clone(), self.recvs.clone()]
    }

    /// They are the channel's now.
    pub(super) fn forget_stored(&mut self) {
        self.stored.clear();
    }

    /// Most segments of a kept receive.
    pub(super) fn stored_iov(&self) -> usize {
        self.stored.iter().map(|stored| stored.segments.len()).max().unwrap_or(0)
    }

    pub(super) fn stored(&self) -> usize {
        self.stored.len()
    }

    /// The registered segment of a triplet that is not empty.
    #[inline]
    pub(super) fn segment(
        &self,
        triplet: &LmrTriplet,
        access: Access,
    ) -> std::result::Result<Segment, SpanError> {
        let domain = self.domain.ok_or(SpanError::Domain)?;
        self.spans.segment(triplet.context, triplet.address, triplet.length, domain, access)
    }

    /// Registered segments of the consumer's triplets; empty ones are left out. Gives the total length.
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
