//! What all service points share, and the arrival of connection requests. The numbers they listen on are one space.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::{ForkGuard, Listener};
use dat_plugin::{Event, RejectReason, Status};
use dat_types::{
    Comm, CompletionFlags, Error, EvdFlags, EventData, IaCounter, ObjectId, PspFlags, Qos, Result,
    ReturnType, Subtype,
};
use parking_lot::Mutex;

use super::cr::{Cr, PeerRequest};
use crate::adapter::inner::{Ia, IaInner};
use crate::base::context::Context;
use crate::base::error;
use crate::ep::inner::EpInner;
use crate::evd::inner::Evd;
use crate::evd::streams::StreamKind;

/// What any service point is.
pub(crate) struct Point {
    pub(super) id: ObjectId,
    pub(super) ia: ObjectId,
    owner: Weak<IaInner>,
    conn_qual: AtomicU64,
    pub(super) evd: Evd,
    pub(super) kind: Kind,
    pub(super) life: AtomicU8,
    pub(super) fork: ForkGuard,
    pub(super) context: Context,
    listener: Mutex<Option<Listener>>,
}

pub(crate) enum Kind {
    Public(PspFlags),
    /// The endpoint, unless the engine is to make one for the request.
    Reserved(Option<Arc<EpInner>>),
    /// The address asked for; its port is the point's.
    Common(Comm, SocketAddr),
}

/// Listening.
const LIVE: u8 = 0;
/// A reserved service point that had its request: only its handle is left (decision D-20).
pub(super) const SPENT: u8 = 1;
pub(super) const FREED: u8 = 2;

impl Ia {
    /// Makes a service point that listens on `conn_qual`; 0 stands for a free one.
    pub(super) fn listen(
        &self,
        call: &'static str,
        conn_qual: u64,
        evd: &Evd,
        kind: Kind,
    ) -> Result<Arc<Point>> {
        let device = self.device(call)?;
        check_evd(call, self.inner.id, evd)?;
        let id = crate::base::id::next_id();
        evd.0
            .set_streams(id, &[(StreamKind::ServicePoint, CompletionFlags::empty())])
            .map_err(|rule| error::parameter(call, Subtype::Arg3, rule))?;
        let point = Arc::new(Point {
            id,
            ia: self.inner.id,
            owner: Arc::downgrade(&self.inner),
            conn_qual: AtomicU64::new(conn_qual),
            evd: evd.clone(),
            kind,
            life: AtomicU8::new(LIVE),
            fork: ForkGuard::new(),
            context: Context::default(),
            listener: Mutex::new(None),
        });
        // Held until the point is whole: a request that comes at once waits for that.
        let _ports = self.inner.ports.lock();
        if let Err(closed) = self.device(call) {
            point.close(FREED);
            return Err(closed);
        }
        self.inner.objects.lock().of::<Arc<Point>>().insert(id, point.clone());
        match device.listen(conn_qual, id.0) {
            Ok(listener) => {
                point.conn_qual.store(listener.port(), Ordering::Release);
                *point.listener.lock() = Some(listener);
                self.inner.count(IaCounter::CmListen);
                match &point.kind {
                    Kind::Public(_) if conn_qual == 0 => self.inner.count(IaCounter::PspCreateAny),
                    Kind::Public(_) => self.inner.count(IaCounter::PspCreate),
                    Kind::Reserved(_) => self.inner.count(IaCounter::RspCreate),
                    Kind::Common(..) => {}
                }
                Ok(point)
            }
            Err(failure) => {
                self.inner.objects.lock().of::<Arc<Point>>().remove(&id);
                point.close(FREED);
                let taken = failure.status == Status::IN_USE;
                Err(match &point.kind {
                    Kind::Common(..) if taken => {
                        Error::new(call, ReturnType::PortInUse, Subtype::None, failure.message)
                    }
                    _ if taken && conn_qual == 0 => {
                        Error::new(call, ReturnType::ConnQualUnavailable, Subtype::None, failure.message)
                    }
                    _ => error::provider(call, failure),
                })
            }
        }
    }
}

pub(super) fn check_evd(call: &'static str, ia: ObjectId, evd: &Evd) -> Result<()> {
    evd.check(call, ia, Subtype::HandleEvdCr)?;
    if evd.0.flags.contains(EvdFlags::CR) {
        return Ok(());
    }
    let message = format!("event dispatcher {} was not created for connection requests", evd.id());
    Err(Error::new(call, ReturnType::InvalidHandle, Subtype::HandleEvdCr, message))
}

impl Point {
    pub(crate) fn conn_qual(&self) -> u64 {
        self.conn_qual.load(Ordering::Acquire)
    }

    /// Whether it takes one request only.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.kind, Kind::Reserved(_))
    }

    pub(super) fn check(&self, call: &'static str) -> Result<()> {
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        match self.life.load(Ordering::Acquire) {
            LIVE => Ok(()),
            _ => Err(self.gone(call)),
        }
    }

    pub(super) fn gone(&self, call: &'static str) -> Error {
        let subtype = match &self.kind {
            Kind::Public(_) => Subtype::HandlePsp,
            Kind::Reserved(_) => Subtype::HandleRsp,
            Kind::Common(..) => Subtype::HandleCsp,
        };
        error::freed(call, subtype, "service point", self.id)
    }

    /// Frees it by its handle: stops listening, and a reserved endpoint is the consumer's again.
    pub(super) fn free(&self, call: &'static str) -> Result<()> {
        self.check(call)?;
        let ia = self.owner.upgrade();
        if let Some(ia) = &ia {
            match &self.kind {
                Kind::Public(_) => ia.count(IaCounter::PspFree),
                Kind::Reserved(_) => ia.count(IaCounter::RspFree),
                Kind::Common(..) => {}
            }
        }
        let _ports = ia.as_ref().map(|ia| ia.ports.lock());
        if self.life.load(Ordering::Acquire) != LIVE {
            return match self.life.compare_exchange(SPENT, FREED, Ordering::AcqRel, Ordering::Acquire) {
                // Its request came in between.
                Ok(_) => Ok(()),
                Err(_) => Err(self.gone(call)),
            };
        }
        if let Some(ia) = &ia {
            ia.objects.lock().of::<Arc<Point>>().remove(&self.id);
        }
        self.close(FREED);
        if let Kind::Reserved(Some(ep)) = &self.kind {
            ep.unreserve();
        }
        Ok(())
    }

    /// The IA is closing.
    pub(crate) fn kill(&self) {
        self.close(FREED);
    }

    /// Requests that arrived live on.
    fn close(&self, life: u8) {
        self.life.store(life, Ordering::Release);
        let listener = self.listener.lock().take();
        drop(listener);
        let _ = self.evd.0.set_streams(self.id, &[]);
    }

    /// Queues the event of a request. `false`: it cannot be delivered here, and nothing of it is left. The IA's ports
    /// are locked.
    pub(crate) fn deliver(self: &Arc<Point>, ia: &Arc<IaInner>, request: &PeerRequest) -> bool {
        if self.life.load(Ordering::Acquire) != LIVE {
            return false;
        }
        let conn_qual = self.conn_qual();
        let ep = match &self.kind {
            Kind::Public(PspFlags::Consumer) | Kind::Common(..) => None,
            Kind::Reserved(Some(ep)) => Some(ep.clone()),
            Kind::Public(PspFlags::Provider) | Kind::Reserved(None) => match EpInner::tentative(ia) {
                Some(ep) => Some(ep),
                None => return false,
            },
        };
        if let Some(ep) = &ep
            && !ep.hold(request.peer, request.peer_port, conn_qual)
        {
            return false;
        }
        let reserved = self.is_reserved();
        let cr = Cr::new(ia, request.clone(), conn_qual, ep.clone());
        let id = cr.id();
        {
            let mut objects = ia.objects.lock();
            objects.of::<Cr>().insert(id, cr);
            if reserved {
                // Gone when its event is seen (decision D-20).
                objects.of::<Arc<Point>>().remove(&self.id);
            }
        }
        if reserved {
            self.life.store(SPENT, Ordering::Release);
            let _ = self.evd.0.set_streams(self.id, &[]);
        }
        let data =
            EventData::ConnectionRequest { service_point: (!reserved).then_some(self.id), conn_qual, cr: id };
        if self.evd.0.push(data) {
            if reserved {
                let listener = self.listener.lock().take();
                drop(listener);
            }
            return true;
        }
        let mut objects = ia.objects.lock();
        objects.of::<Cr>().remove(&id);
        if reserved {
            objects.of::<Arc<Point>>().insert(self.id, self.clone());
        }
        drop(objects);
        if reserved {
            let streams = [(StreamKind::ServicePoint, CompletionFlags::empty())];
            let _ = self.evd.0.set_streams(self.id, &streams);
            self.life.store(LIVE, Ordering::Release);
        }
        match (&self.kind, ep) {
            (Kind::Reserved(Some(_)), Some(ep)) => ep.unhold(),
            (_, Some(ep)) => {
                ep.end();
            }
            (_, None) => {}
        }
        false
    }
}

/// A request arrived. What cannot be delivered is refused, so that the peer does not hang (decision D-28).
pub(crate) fn on_request(ia: &Arc<IaInner>, event: &Event) {
    ia.count(IaCounter::CmReqRx);
    let _ports = ia.ports.lock();
    let point = ia.objects.lock().of::<Arc<Point>>().get(&ObjectId(event.user)).cloned();
    // One value, offered here: what the local consumer asks is checked at connect, what a peer asks is checked here.
    let qos = Qos(event.qos);
    let offered = qos == Qos::BEST_EFFORT || (qos.is_defined() && ia.attr().qos & qos.0 == qos.0);
    let delivered = offered && point.is_some_and(|point| point.deliver(ia, &PeerRequest::new(event)));
    ia.count(if delivered { IaCounter::SpCr } else { IaCounter::CmErrRejTx });
    // Also while the IA closes: nothing else would answer.
    if !delivered && let Some(device) = ia.open_device() {
        device.reject(event.request, RejectReason::PROVIDER, &[]);
    }
}

impl Cr {
    /// `dat_cr_handoff`: the request is delivered anew, under a new handle, to the service point of this IA that listens
    /// on `conn_qual`; this one is gone (decision D-21). On failure nothing changes: `DAT_INVALID_PARAMETER` when no
    /// service point listens there, `DAT_INSUFFICIENT_RESOURCES` when the dispatcher there is full.
    pub fn handoff(&self, conn_qual: u64) -> Result<()> {
        const CALL: &str = "dat_cr_handoff";
        let ia = self.check(CALL)?;
        ia.device(CALL)?;
        let _ports = ia.ports.lock();
        let target = {
            let mut objects = ia.objects.lock();
            objects.of::<Arc<Point>>().values().find(|point| point.conn_qual() == conn_qual).cloned()
        };
        let Some(target) = target else {
            let message = format!("no service point of this IA listens on {conn_qual}");
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        };
        self.claim(CALL)?;
        if !target.deliver(&ia, self.request()) {
            self.unclaim();
            let message = format!("the service point on {conn_qual} has no room for the request");
            return Err(error::resources(CALL, Subtype::ResourceTevd, message));
        }
        self.let_go(&ia);
        Ok(())
    }
}
