//! Connection requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::ForkGuard;
use dat_plugin::{Event, RejectReason};
use dat_types::{Error, ObjectId, Result, ReturnType, Subtype};

use crate::ep::{Ep, EpInner};
use crate::error;
use crate::ia::IaInner;

/// A peer's request to connect, until it is accepted or rejected.
#[derive(Clone)]
pub struct Cr(Arc<CrInner>);

struct CrInner {
    id: ObjectId,
    ia: ObjectId,
    owner: Weak<IaInner>,
    alive: AtomicBool,
    fork: ForkGuard,
    /// The provider's name for it.
    request: u64,
    peer: Option<SocketAddr>,
    peer_port: u64,
    conn_qual: u64,
    private_data: Box<[u8]>,
    ep: Option<Arc<EpInner>>,
}

/// What `dat_cr_query` tells.
#[derive(Clone, Debug)]
pub struct CrParam {
    /// Address of the peer's IA.
    pub remote_address: Option<SocketAddr>,
    /// Port qualifier of the peer's endpoint.
    pub remote_port_qual: u64,
    /// The connection qualifier it asked for.
    pub conn_qual: u64,
    /// The peer's private data.
    pub private_data: Box<[u8]>,
    /// The endpoint the request holds, if the service point supplies them.
    pub local_ep: Option<Ep>,
}

impl Cr {
    pub(crate) fn new(ia: &Arc<IaInner>, event: &Event, ep: Option<Arc<EpInner>>) -> Cr {
        let cr = Cr(Arc::new(CrInner {
            id: crate::next_id(),
            ia: ia.id,
            owner: Arc::downgrade(ia),
            alive: AtomicBool::new(true),
            fork: ForkGuard::new(),
            request: event.request,
            peer: event.peer.to_std(),
            peer_port: event.peer_port,
            conn_qual: event.port,
            private_data: event.data().into(),
            ep,
        }));
        if let Some(ep) = &cr.0.ep {
            ep.set_remote(cr.0.peer, cr.0.peer_port);
        }
        cr
    }

    /// Its id; the event carried it.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// `dat_cr_query`.
    pub fn query(&self) -> Result<CrParam> {
        self.check("dat_cr_query")?;
        Ok(CrParam {
            remote_address: self.0.peer,
            remote_port_qual: self.0.peer_port,
            conn_qual: self.0.conn_qual,
            private_data: self.0.private_data.clone(),
            local_ep: self.0.ep.clone().map(Ep),
        })
    }

    /// `dat_cr_accept`: begins to connect `ep`, or the endpoint the request holds. The outcome arrives on the
    /// endpoint's connect dispatcher. On failure nothing changes; on success the request is gone.
    pub fn accept(&self, ep: Option<&Ep>, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "dat_cr_accept";
        let ia = self.check(CALL)?;
        let held = self.0.ep.is_some();
        let ep = match (ep, &self.0.ep) {
            (Some(ep), None) => {
                ep.check(CALL, self.0.ia)?;
                ep.0.clone()
            }
            (None, Some(ep)) => ep.clone(),
            (Some(_), Some(_)) => {
                let message = "the request holds an endpoint of its own; accept it without naming one";
                return Err(Error::new(CALL, ReturnType::InvalidHandle, Subtype::HandleEp, message));
            }
            (None, None) => {
                let message = "the request holds no endpoint; name the one to connect";
                return Err(Error::new(CALL, ReturnType::InvalidHandle, Subtype::HandleEp, message));
            }
        };
        ia.check_private_data(CALL, Subtype::Arg3, private_data)?;
        // Claimed first, so that of two threads one accepts; given back when it comes to nothing.
        self.claim(CALL)?;
        let peer = (self.0.peer, self.0.peer_port);
        match ep.accept(&ia, self.0.request, held, peer, private_data) {
            Ok(()) => {
                ia.objects.lock().crs.remove(&self.0.id);
                Ok(())
            }
            Err(error) => {
                self.0.alive.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    /// `dat_cr_reject`: the peer sees PEER_REJECTED with the private data. The request is gone.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "dat_cr_reject";
        let ia = self.check(CALL)?;
        ia.check_private_data(CALL, Subtype::Arg2, private_data)?;
        let device = ia.device(CALL)?;
        self.claim(CALL)?;
        // The peer may have given up meanwhile; then there is nobody to tell, and that is no failure.
        device.reject(self.0.request, RejectReason::CONSUMER, private_data);
        ia.objects.lock().crs.remove(&self.0.id);
        if let Some(ep) = &self.0.ep {
            ep.kill();
        }
        Ok(())
    }

    /// The IA is closing: the peer is refused.
    pub(crate) fn abandon(&self) {
        if self.0.alive.swap(false, Ordering::AcqRel)
            && let Some(ia) = self.0.owner.upgrade()
        {
            ia.reject_quietly(self.0.request);
        }
    }

    fn claim(&self, call: &'static str) -> Result<()> {
        match self.0.alive.swap(false, Ordering::AcqRel) {
            true => Ok(()),
            false => Err(error::freed(call, Subtype::HandleCr, "connection request", self.0.id)),
        }
    }

    fn check(&self, call: &'static str) -> Result<Arc<IaInner>> {
        let dead = || error::freed(call, Subtype::HandleCr, "connection request", self.0.id);
        if self.0.fork.forked() {
            return Err(error::forked(call));
        }
        if !self.0.alive.load(Ordering::Acquire) {
            return Err(dead());
        }
        self.0.owner.upgrade().ok_or_else(dead)
    }
}

impl std::fmt::Debug for Cr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cr({}, to {})", self.0.id, self.0.conn_qual)
    }
}

impl IaInner {
    pub(crate) fn check_private_data(
        &self,
        call: &'static str,
        position: Subtype,
        data: &[u8],
    ) -> Result<()> {
        let max = self.attr().max_private_data as usize;
        if data.len() <= max {
            return Ok(());
        }
        let message = format!("{} bytes of private data; this provider carries at most {max}", data.len());
        Err(error::parameter(call, position, message))
    }

    /// Refuses a request on the way down, when the IA no longer answers calls.
    fn reject_quietly(&self, request: u64) {
        if let Some(device) = self.open_device() {
            device.reject(request, RejectReason::PROVIDER, &[]);
        }
    }
}
