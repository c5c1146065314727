//! What all service points share, and the arrival of connection requests. The numbers they listen on are one space.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dat_plugin::host::Listener;
use dat_plugin::{Event, RejectReason, Status};
use dat_types::{
    Comm, CompletionFlags, Error, EvdFlags, EventData, IaCounter, ObjectId, PspFlags, Qos, Result,
    ReturnType, Subtype,
};
use parking_lot::Mutex;

use super::cr::{Cr, PeerRequest};
use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object;
use crate::adapter::object::Life;
use crate::base::error;
use crate::ep::inner::EpInner;
use crate::evd::inner::Evd;
use crate::evd::streams::StreamKind;

/// What any service point is.
pub(crate) struct Point {
    /// Ends with its request if it is reserved, else when it is freed.
    pub(super) life: Life,
    /// A reserved service point that had its request: only its handle is left (decision D-20).
    pub(super) spent: AtomicBool,
    conn_qual: AtomicU64,
    pub(super) evd: Evd,
    pub(super) kind: Kind,
    listener: Mutex<Option<Listener>>,
}

pub(crate) enum Kind {
    Public(PspFlags),
    /// The endpoint, unless the engine is to make one for the request.
    Reserved(Option<Arc<EpInner>>),
    /// The address asked for; its port is the point's.
    Common(Comm, SocketAddr),
}

impl Kind {
    fn of_object(&self) -> object::Kind {
        let handle = match self {
            Kind::Public(_) => Subtype::HandlePsp,
            Kind::Reserved(_) => Subtype::HandleRsp,
            Kind::Common(..) => Subtype::HandleCsp,
        };
        object::Kind { handle, name: "service point" }
    }
}

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
        let life = Life::new(kind.of_object(), &self.inner);
        let id = life.id;
        evd.0
            .set_streams(id, &[(StreamKind::ServicePoint, CompletionFlags::empty())])
            .map_err(|rule| error::parameter(call, Subtype::Arg3, rule))?;
        let point = Arc::new(Point {
            life,
            spent: AtomicBool::new(false),
            conn_qual: AtomicU64::new(conn_qual),
            evd: evd.clone(),
            kind,
            listener: Mutex::new(None),
        });
        // Held until the point is whole: a request that comes at once waits for that.
        let _ports = self.inner.ports.lock();
        if let Err(closed) = self.device(call) {
            point.kill();
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
                point.kill();
                let taken = failure.status == Status::IN_USE;
                Err(match &point.kind {
                    Kind::Common(..) if taken => {
                        Error::new(call, ReturnType::PortInUse, Subtype::None, failure.message)
                    }
                    _ if taken && conn_qual == 0 => {
                        Error::new(call, ReturnType::ConnQualUnavailable, Subtype::None, failure.message)
                    }
                    _ if taken => {
                        let message = format!(
                            "connection qualifier {conn_qual} cannot be listened on twice: {}",
                            failure.message
                        );
                        Error::new(call, ReturnType::ConnQualInUse, Subtype::None, message)
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

    /// Frees it by its handle: stops listening, and a reserved endpoint is the consumer's again.
    pub(super) fn free(&self, call: &'static str) -> Result<()> {
        self.life.check(call)?;
        let ia = self.life.owner.upgrade();
        if let Some(ia) = &ia {
            match &self.kind {
                Kind::Public(_) => ia.count(IaCounter::PspFree),
                Kind::Reserved(_) => ia.count(IaCounter::RspFree),
                Kind::Common(..) => {}
            }
        }
        let _ports = ia.as_ref().map(|ia| ia.ports.lock());
        if !self.life.is_alive() {
            // Its request came in between, unless another thread freed it.
            return match self.spent.swap(false, Ordering::AcqRel) {
                true => Ok(()),
                false => Err(self.life.gone(call)),
            };
        }
        if let Some(ia) = &ia {
            ia.objects.lock().of::<Arc<Point>>().remove(&self.life.id);
        }
        self.kill();
        if let Kind::Reserved(Some(ep)) = &self.kind {
            ep.unreserve();
        }
        Ok(())
    }

    /// Requests that arrived live on.
    pub(crate) fn kill(&self) {
        self.life.end();
        let listener = self.listener.lock().take();
        drop(listener);
        let _ = self.evd.0.set_streams(self.life.id, &[]);
    }

    /// Queues the event of a request. `false`: it cannot be delivered here, and nothing of it is left. The IA's ports
    /// are locked.
    pub(crate) fn deliver(self: &Arc<Point>, ia: &Arc<IaInner>, request: &PeerRequest) -> bool {
        if !self.life.is_alive() {
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
                objects.of::<Arc<Point>>().remove(&self.life.id);
            }
        }
        if reserved {
            self.spent.store(true, Ordering::Release);
            self.life.end();
            let _ = self.evd.0.set_streams(self.life.id, &[]);
        }
        let data = EventData::ConnectionRequest {
            service_point: (!reserved).then_some(self.life.id),
            conn_qual,
            cr: id,
        };
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
            objects.of::<Arc<Point>>().insert(self.life.id, self.clone());
        }
        drop(objects);
        if reserved {
            let streams = [(StreamKind::ServicePoint, CompletionFlags::empty())];
            let _ = self.evd.0.set_streams(self.life.id, &streams);
            self.spent.store(false, Ordering::Release);
            self.life.revive();
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
