//! Shared receive queues (spec: shared_receive).

use std::sync::Arc;

use arrayvec::ArrayVec;
use dat_plugin::host::{self, SpanTable};
use dat_plugin::{Access, Caps, PostFlag, Segment, Status};
use dat_types::{Error, LmrTriplet, ObjectId, Result, ReturnType, SrqAttr, Subtype};

use crate::adapter::inner::Ia;
use crate::adapter::object::{Kind, Life, object};
use crate::base::deferred::{DeferredList, Endpoint};
use crate::base::lock::Lock;
use crate::base::segments::{MAX_IOV, segment_error};
use crate::base::{deferred, error, status_map};
use crate::memory::lmr::ExclusiveLmr;
use crate::memory::pz::{Pz, PzRef};

/// A shared receive queue: receives for several endpoints.
#[derive(Clone)]
pub struct Srq(pub(crate) Arc<SrqInner>);

pub(crate) struct SrqInner {
    life: Life,
    spans: Arc<SpanTable>,
    domain: u32,
    max_iov: u32,
    pz: parking_lot::Mutex<Option<PzRef>>,
    receives: Lock<Receives>,
}

const KIND: Kind = Kind { handle: Subtype::HandleSrq, name: "shared receive queue" };

/// What posting, completing and reaping look at.
struct Receives {
    queue: Option<Arc<host::Srq>>,
    /// Receives by token; a token is free once its receive was taken.
    posts: Vec<Posted>,
    free: Vec<u32>,
    /// Number of the next receive.
    next: u64,
    limit: u32,
    low_watermark: u32,
    /// Posted, not yet taken by an endpoint.
    available: u32,
    /// Taken and completed, the event not yet handed to the consumer.
    unreaped: u32,
}

/// A receive in the queue, or the one before it of the same token.
#[derive(Clone, Copy, Default)]
struct Posted {
    cookie: u64,
    number: u64,
    live: bool,
}

/// Names a receive for [`Srq::has_completed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqPostNumber {
    token: u32,
    number: u64,
}

/// What `dat_srq_query` tells.
#[derive(Clone, Debug)]
pub struct SrqParam {
    /// The IA.
    pub ia: ObjectId,
    /// The protection zone of its receives.
    pub pz: Pz,
    /// The attributes.
    pub attr: SrqAttr,
    /// Receives in it, not taken by an endpoint.
    pub available: u32,
    /// Receives posted whose completion the consumer has not seen.
    pub outstanding: u32,
}

/// A taken receive whose completion is on its way to the consumer; it counts as outstanding until this is dropped.
pub(crate) struct Unreaped(Arc<SrqInner>);

impl Drop for Unreaped {
    fn drop(&mut self) {
        self.0.receives.lock().unreaped -= 1;
    }
}

impl Ia {
    /// `dat_srq_create`.
    pub fn srq_create(&self, pz: &Pz, attr: &SrqAttr) -> Result<Srq> {
        const CALL: &str = "dat_srq_create";
        let device = self.device(CALL)?;
        pz.check(CALL, self.inner.id)?;
        let offered = device.attr();
        if !offered.caps.contains(Caps::SRQ) {
            return Err(error::unsupported(CALL, "this provider has no shared receive queues"));
        }
        let max_iov = offered.max_srq_segments.min(MAX_IOV as u32);
        for (what, value, max) in [
            ("max_recv_dtos", attr.max_recv_dtos, offered.max_srq_depth),
            ("max_recv_iov", attr.max_recv_iov, max_iov),
        ] {
            if value == 0 || value > max {
                let message = format!("{what} is {value}; this provider has 1 to {max}");
                return Err(error::parameter(CALL, Subtype::Arg3, message));
            }
        }
        if attr.low_watermark != 0 {
            let message = "a new queue has low_watermark 0; set it once there are receives in it";
            return Err(error::parameter(CALL, Subtype::Arg3, message));
        }
        let life = Life::new(KIND, &self.inner);
        let mut objects = self.inner.objects.lock();
        if objects.of::<Srq>().len() >= offered.max_srqs as usize {
            let message = format!("the IA has at most {} shared receive queues", offered.max_srqs);
            return Err(error::resources(CALL, Subtype::ResourceSrq, message));
        }
        let wanted = dat_plugin::SrqAttr {
            user: life.id.0,
            depth: attr.max_recv_dtos,
            max_segments: attr.max_recv_iov,
            domain: pz.0.domain,
            reserved: 0,
        };
        let queue = device.open_srq(&wanted).map_err(|failure| error::provider(CALL, failure))?;
        let srq = Srq(Arc::new(SrqInner {
            life,
            spans: self.inner.spans.clone(),
            domain: pz.0.domain,
            max_iov: attr.max_recv_iov,
            pz: parking_lot::Mutex::new(Some(PzRef::new(pz))),
            receives: Lock::new(Receives::new(queue, attr.max_recv_dtos)),
        }));
        objects.of::<Srq>().insert(srq.id(), srq.clone());
        self.inner.count(dat_types::IaCounter::SrqCreate);
        Ok(srq)
    }
}

impl Srq {
    /// `dat_srq_post_recv`. The completion arrives at the endpoint that takes the receive.
    pub fn post_recv(&self, iov: &[LmrTriplet], cookie: u64) -> Result<()> {
        self.post(iov, cookie, Access::LOCAL_WRITE).map(drop)
    }

    /// Posts the first `length` bytes of a region that has one owner, see [`ExclusiveLmr`].
    pub fn post_exclusive(&self, region: &ExclusiveLmr, length: u32, cookie: u64) -> Result<SrqPostNumber> {
        self.post(&[region.triplet(0, length)], cookie, Access::LOCAL_WRITE | ExclusiveLmr::ACCESS)
    }

    /// Whether a receive has completed: from then on the provider does not touch its memory.
    pub fn has_completed(&self, post: SrqPostNumber) -> bool {
        let receives = self.0.receives.lock();
        let known = receives.posts.get(post.token as usize);
        known.is_some_and(|known| known.number != post.number || !known.live)
    }

    fn post(&self, iov: &[LmrTriplet], cookie: u64, access: Access) -> Result<SrqPostNumber> {
        const CALL: &str = "dat_srq_post_recv";
        let srq = &*self.0;
        srq.life.check_fork(CALL)?;
        if iov.len() > srq.max_iov as usize {
            let message = format!("{} segments; the queue's attributes allow {}", iov.len(), srq.max_iov);
            return Err(self.or_gone(CALL, error::parameter(CALL, Subtype::Arg2, message)));
        }
        let mut segments = ArrayVec::<Segment, MAX_IOV>::new();
        let mut total = 0;
        for triplet in iov.iter().filter(|triplet| triplet.length > 0) {
            let LmrTriplet { address, length, context } = *triplet;
            let segment = srq.spans.segment(context, address, length, srq.domain, access);
            // The number of segments was checked against a limit that is at most the capacity.
            let _ =
                segments.try_push(segment.map_err(|error| self.or_gone(CALL, segment_error(CALL, error)))?);
            total += u64::from(length);
        }
        let mut receives = srq.receives.lock();
        let Some(queue) = receives.queue.clone() else { return Err(srq.life.gone(CALL)) };
        if receives.outstanding() >= receives.limit {
            return Err(full(CALL));
        }
        let Some(token) = receives.free.pop() else { return Err(full(CALL)) };
        let number = receives.next;
        receives.next += 1;
        receives.posts[token as usize] = Posted { cookie, number, live: true };
        receives.available += 1;
        let status = queue.post_recv(PostFlag::NONE, token.into(), &segments, total);
        if status.0 < 0 {
            receives.take_back(token);
            return Err(refused(CALL, status));
        }
        Ok(SrqPostNumber { token, number })
    }

    /// A queue that was freed is the first thing to report.
    #[cold]
    fn or_gone(&self, call: &'static str, error: Error) -> Error {
        match self.0.receives.lock().queue {
            Some(_) => error,
            None => self.0.life.gone(call),
        }
    }

    /// `dat_srq_query`.
    pub fn query(&self) -> Result<SrqParam> {
        const CALL: &str = "dat_srq_query";
        self.checked(CALL)?;
        let pz = self.0.pz.lock().as_ref().map(|pz| pz.0.clone()).ok_or_else(|| self.0.life.gone(CALL))?;
        self.0.look();
        let receives = self.0.receives.lock();
        Ok(SrqParam {
            ia: self.0.life.ia,
            pz,
            attr: SrqAttr {
                max_recv_dtos: receives.limit,
                max_recv_iov: self.0.max_iov,
                low_watermark: receives.low_watermark,
            },
            available: receives.available,
            outstanding: receives.outstanding(),
        })
    }

    /// `dat_srq_resize`: not below what is outstanding, nor below the low watermark.
    pub fn resize(&self, max_recv_dtos: u32) -> Result<()> {
        const CALL: &str = "dat_srq_resize";
        self.checked(CALL)?;
        let ia = self.0.life.ia(CALL)?;
        let max = ia.attr().max_srq_depth;
        if max_recv_dtos == 0 || max_recv_dtos > max {
            let message = format!("{max_recv_dtos} receives; this provider has 1 to {max}");
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        self.0.look();
        let mut receives = self.0.receives.lock();
        let (outstanding, low) = (receives.outstanding(), receives.low_watermark);
        if max_recv_dtos < outstanding || max_recv_dtos < low {
            let message = format!("{outstanding} receives are outstanding and the low watermark is {low}");
            return Err(error::state(CALL, Subtype::SrqInUse, message));
        }
        let Some(queue) = receives.queue.clone() else { return Err(self.0.life.gone(CALL)) };
        match queue.resize(max_recv_dtos) {
            status if status.0 < 0 => Err(refused(CALL, status)),
            _ => {
                receives.resize(max_recv_dtos);
                Ok(())
            }
        }
    }

    /// `dat_srq_set_lw`: one asynchronous event when fewer than `low_watermark` receives are available, also when they
    /// are few already (decision D-18). 0 takes it back.
    pub fn set_low_watermark(&self, low_watermark: u32) -> Result<()> {
        const CALL: &str = "dat_srq_set_lw";
        self.checked(CALL)?;
        let mut receives = self.0.receives.lock();
        if low_watermark > receives.limit {
            let message = format!("a mark of {low_watermark}; the queue holds {}", receives.limit);
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        let Some(queue) = receives.queue.clone() else { return Err(self.0.life.gone(CALL)) };
        receives.low_watermark = low_watermark;
        match queue.arm(low_watermark) {
            status if status.0 < 0 => Err(refused(CALL, status)),
            _ => Ok(()),
        }
    }

    /// `dat_srq_free`. `DAT_INVALID_STATE` while an endpoint uses it; receives left in it are dropped silently.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_srq_free";
        self.checked(CALL)?;
        let ia = self.0.life.ia(CALL)?;
        let mut objects = ia.objects.lock();
        let users = objects.eps.values().filter(|ep| ep.uses(self.id())).count();
        if users > 0 {
            let message =
                format!("{users} endpoints use shared receive queue {}; free them first", self.0.life.id);
            return Err(error::state(CALL, Subtype::SrqInUse, message));
        }
        // Of two threads that free it, one does.
        if objects.of::<Srq>().remove(&self.0.life.id).is_none() {
            return Err(self.0.life.gone(CALL));
        }
        ia.count(dat_types::IaCounter::SrqFree);
        drop(objects);
        self.kill();
        Ok(())
    }

    pub(crate) fn kill(&self) {
        if self.0.life.end() {
            drop(self.0.receives.lock().queue.take());
            self.0.pz.lock().take();
        }
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        self.0.life.check_of(call, ia)
    }

    /// The most receives that can be outstanding.
    pub(crate) fn limit(&self) -> u32 {
        self.0.receives.lock().limit
    }

    /// The most segments of a receive.
    pub(crate) fn max_iov(&self) -> u32 {
        self.0.max_iov
    }

    pub(crate) fn queue(&self) -> Option<Arc<host::Srq>> {
        self.0.receives.lock().queue.clone()
    }
}

object!(Srq);

impl SrqInner {
    /// A receive was taken: its cookie, and what keeps it outstanding. `None`: there is none of this token.
    pub(crate) fn complete(self: &Arc<SrqInner>, token: u64) -> Option<(u64, Unreaped)> {
        let mut receives = self.receives.lock();
        let index = usize::try_from(token).ok()?;
        let cookie = receives.posts.get(index).filter(|posted| posted.live)?.cookie;
        receives.take_back(index as u32);
        receives.unreaped += 1;
        drop(receives);
        Some((cookie, Unreaped(self.clone())))
    }

    /// Takes completions the provider has, so that what was taken counts as such.
    fn look(self: &Arc<SrqInner>) {
        let Some(ia) = self.life.owner.upgrade() else { return };
        let eps: Vec<Arc<dyn Endpoint>> = ia.objects.lock().eps.values().cloned().collect();
        let mut deferred = DeferredList::new();
        for ep in eps.iter().filter(|ep| ep.uses(self.life.id)) {
            ep.take_receives(&mut deferred);
        }
        deferred::run(deferred);
    }
}

impl Receives {
    fn new(queue: host::Srq, limit: u32) -> Receives {
        let mut receives = Receives {
            queue: Some(Arc::new(queue)),
            posts: Vec::new(),
            free: Vec::new(),
            next: 0,
            limit: 0,
            low_watermark: 0,
            available: 0,
            unreaped: 0,
        };
        receives.resize(limit);
        receives
    }

    fn outstanding(&self) -> u32 {
        self.available + self.unreaped
    }

    /// Tokens are never taken away: with a smaller limit some are just not used at a time.
    fn resize(&mut self, limit: u32) {
        self.limit = limit;
        let known = self.posts.len() as u32;
        self.free.extend((known..limit).rev());
        self.posts.resize(self.posts.len().max(limit as usize), Posted::default());
    }

    /// The token's receive is no longer in the queue.
    fn take_back(&mut self, token: u32) {
        self.posts[token as usize].live = false;
        self.free.push(token);
        self.available -= 1;
    }
}

/// Backpressure: programs meet it in loops, so it allocates nothing.
#[cold]
fn full(call: &'static str) -> Error {
    let message = "as many receives are outstanding as the queue holds; take completions first";
    Error::fixed(call, ReturnType::InsufficientResources, Subtype::ResourceSrq, message)
}

#[cold]
fn refused(call: &'static str, status: Status) -> Error {
    match status {
        Status::NO_RESOURCE => full(call),
        Status::FORKED => error::forked(call),
        _ => {
            let (kind, subtype) = status_map::returned(status);
            Error::new(call, kind, subtype, format!("the provider refused: {status:?}"))
        }
    }
}
