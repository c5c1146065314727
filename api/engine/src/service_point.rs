//! Public service points, and the arrival of connection requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::{ForkGuard, Listener};
use dat_plugin::{Event, RejectReason};
use dat_types::{CompletionFlags, EvdFlags, EventData, ObjectId, PspFlags, Qos, Result, ReturnType, Subtype};
use parking_lot::Mutex;

use crate::cr::Cr;
use crate::ep::EpInner;
use crate::error;
use crate::evd::{Evd, StreamKind};
use crate::ia::{Ia, IaInner};

/// A public service point: connection requests for its qualifier arrive on its dispatcher.
#[derive(Clone)]
pub struct Psp(Arc<PspInner>);

struct PspInner {
    id: ObjectId,
    ia: ObjectId,
    owner: Weak<IaInner>,
    conn_qual: AtomicU64,
    evd: Evd,
    flags: PspFlags,
    alive: AtomicBool,
    fork: ForkGuard,
    listener: Mutex<Option<Listener>>,
}

/// What `dat_psp_query` tells.
#[derive(Clone, Debug)]
pub struct PspParam {
    /// The IA.
    pub ia: ObjectId,
    /// The connection qualifier.
    pub conn_qual: u64,
    /// Where requests arrive.
    pub evd: Evd,
    /// Who supplies endpoints.
    pub flags: PspFlags,
}

impl Ia {
    /// `dat_psp_create`: listens on `conn_qual`.
    pub fn psp_create(&self, conn_qual: u64, evd: &Evd, flags: PspFlags) -> Result<Psp> {
        const CALL: &str = "dat_psp_create";
        if conn_qual == 0 {
            return Err(error::parameter(CALL, Subtype::Arg2, "0 is no connection qualifier"));
        }
        self.listen(CALL, conn_qual, evd, flags)
    }

    /// `dat_psp_create_any`: listens on a free qualifier of at least 1024; [`Psp::conn_qual`] tells which.
    pub fn psp_create_any(&self, evd: &Evd, flags: PspFlags) -> Result<Psp> {
        self.listen("dat_psp_create_any", 0, evd, flags)
    }

    fn listen(&self, call: &'static str, conn_qual: u64, evd: &Evd, flags: PspFlags) -> Result<Psp> {
        let device = self.device(call)?;
        evd.check(call, self.inner.id, Subtype::HandleEvdCr)?;
        if !evd.0.flags.contains(EvdFlags::CR) {
            let message = format!("event dispatcher {} was not created for connection requests", evd.0.id);
            return Err(dat_types::Error::new(
                call,
                ReturnType::InvalidHandle,
                Subtype::HandleEvdCr,
                message,
            ));
        }
        let id = crate::next_id();
        evd.0
            .set_streams(id, &[(StreamKind::ServicePoint, CompletionFlags::empty())])
            .map_err(|rule| error::parameter(call, Subtype::Arg3, rule))?;
        let psp = Psp(Arc::new(PspInner {
            id,
            ia: self.inner.id,
            owner: Arc::downgrade(&self.inner),
            conn_qual: AtomicU64::new(conn_qual),
            evd: evd.clone(),
            flags,
            alive: AtomicBool::new(true),
            fork: ForkGuard::new(),
            listener: Mutex::new(None),
        }));
        // Known before it listens: the first request may arrive at once.
        self.inner.objects.lock().psps.insert(id, psp.clone());
        match device.listen(conn_qual, id.0) {
            Ok(listener) => {
                psp.0.conn_qual.store(listener.port(), Ordering::Release);
                *psp.0.listener.lock() = Some(listener);
                Ok(psp)
            }
            Err(failure) => {
                self.inner.objects.lock().psps.remove(&id);
                psp.kill();
                Err(error::provider(call, failure))
            }
        }
    }
}

impl Psp {
    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.0.conn_qual.load(Ordering::Acquire)
    }

    /// `dat_psp_query`.
    pub fn query(&self) -> Result<PspParam> {
        self.check("dat_psp_query")?;
        Ok(PspParam {
            ia: self.0.ia,
            conn_qual: self.conn_qual(),
            evd: self.0.evd.clone(),
            flags: self.0.flags,
        })
    }

    /// `dat_psp_free`: stops listening. Requests that arrived live on.
    pub fn free(&self) -> Result<()> {
        self.check("dat_psp_free")?;
        if let Some(ia) = self.0.owner.upgrade() {
            ia.objects.lock().psps.remove(&self.0.id);
        }
        self.kill();
        Ok(())
    }

    pub(crate) fn kill(&self) {
        self.0.alive.store(false, Ordering::Release);
        let listener = self.0.listener.lock().take();
        drop(listener);
        let _ = self.0.evd.0.set_streams(self.0.id, &[]);
    }

    fn check(&self, call: &'static str) -> Result<()> {
        if self.0.fork.forked() {
            return Err(error::forked(call));
        }
        match self.0.alive.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(error::freed(call, Subtype::HandlePsp, "service point", self.0.id)),
        }
    }
}

impl std::fmt::Debug for Psp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Psp({}, {})", self.0.id, self.conn_qual())
    }
}

/// A request arrived. What cannot be delivered is refused, so that the peer does not hang (decision D-28).
pub(crate) fn on_request(ia: &Arc<IaInner>, event: &Event) {
    if !deliver(ia, event)
        && let Ok(device) = ia.device("dat_cr_reject")
    {
        device.reject(event.request, RejectReason::PROVIDER, &[]);
    }
}

fn deliver(ia: &Arc<IaInner>, event: &Event) -> bool {
    let Some(psp) = ia.objects.lock().psps.get(&ObjectId(event.user)).cloned() else { return false };
    // One value, offered here: what the local consumer asks is checked at connect, what a peer asks is checked here.
    let qos = Qos(event.qos);
    if qos != Qos::BEST_EFFORT && (!qos.is_defined() || ia.attr().qos & qos.0 != qos.0) {
        return false;
    }
    let ep = match psp.0.flags {
        PspFlags::Consumer => None,
        PspFlags::Provider => match EpInner::tentative(ia) {
            Some(ep) => Some(ep),
            None => return false,
        },
    };
    let cr = Cr::new(ia, event, ep.clone());
    let id = cr.id();
    ia.objects.lock().crs.insert(id, cr);
    let data = EventData::ConnectionRequest { service_point: Some(psp.0.id), conn_qual: event.port, cr: id };
    if psp.0.evd.0.push(data) {
        return true;
    }
    ia.objects.lock().crs.remove(&id);
    if let Some(ep) = ep {
        ep.kill();
    }
    false
}
