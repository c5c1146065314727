//! Connection requests.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_plugin::{Event, RejectReason};
use dat_types::{Error, IaCounter, ObjectId, Result, ReturnType, Subtype};

use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object::{Kind, Life, object};
use crate::base::error;
use crate::ep::inner::{Ep, EpInner};

/// A peer's request to connect, until it is accepted, rejected or handed off.
#[derive(Clone)]
pub struct Cr(Arc<CrInner>);

struct CrInner {
    /// Ends when it is decided.
    life: Life,
    request: PeerRequest,
    conn_qual: u64,
    ep: Option<Arc<EpInner>>,
}

const KIND: Kind = Kind { handle: Subtype::HandleCr, name: "connection request" };

/// A request as the provider reported it.
#[derive(Clone)]
pub(crate) struct PeerRequest {
    /// What the provider knows it by.
    token: u64,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) peer_port: u64,
    private_data: Arc<[u8]>,
}

impl PeerRequest {
    pub(crate) fn new(event: &Event) -> PeerRequest {
        PeerRequest {
            token: event.request,
            peer: event.peer.to_std(),
            peer_port: event.peer_port,
            private_data: event.data().into(),
        }
    }
}

/// What `dat_cr_query` tells.
#[derive(Clone, Debug)]
pub struct CrParam {
    /// Address of the peer's IA.
    pub remote_address: Option<SocketAddr>,
    /// Port qualifier of the peer's endpoint.
    pub remote_port_qual: u64,
    /// The connection qualifier it request for.
    pub conn_qual: u64,
    /// The peer's private data.
    pub private_data: Box<[u8]>,
    /// The endpoint the request holds, if the service point supplies them.
    pub local_ep: Option<Ep>,
}

impl Ia {
    /// A connection request by the id its event carried.
    pub fn cr(&self, id: ObjectId) -> Result<Cr> {
        const CALL: &str = "dat_cr_query";
        self.device(CALL)?;
        let cr = self.inner.objects.lock().of::<Cr>().get(&id).cloned();
        cr.ok_or_else(|| error::freed(CALL, Subtype::HandleCr, "connection request", id))
    }
}

impl Cr {
    /// The request as it arrived.
    pub(super) fn request(&self) -> &PeerRequest {
        &self.0.request
    }

    /// Not decided after all.
    pub(super) fn unclaim(&self) {
        self.0.life.revive();
    }

    pub(crate) fn new(
        ia: &Arc<IaInner>,
        request: PeerRequest,
        conn_qual: u64,
        ep: Option<Arc<EpInner>>,
    ) -> Cr {
        Cr(Arc::new(CrInner { life: Life::new(KIND, ia), request, conn_qual, ep }))
    }

    /// `dat_cr_query`.
    pub fn query(&self) -> Result<CrParam> {
        self.check("dat_cr_query")?;
        Ok(CrParam {
            remote_address: self.0.request.peer,
            remote_port_qual: self.0.request.peer_port,
            conn_qual: self.0.conn_qual,
            private_data: (*self.0.request.private_data).into(),
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
                ep.check(CALL, self.0.life.ia)?;
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
        let peer = (self.0.request.peer, self.0.request.peer_port);
        match ep.accept(&ia, self.0.request.token, held, peer, private_data) {
            Ok(()) => {
                ia.objects.lock().of::<Cr>().remove(&self.0.life.id);
                Ok(())
            }
            Err(error) => {
                self.unclaim();
                Err(error)
            }
        }
    }

    /// `dat_cr_reject`: the peer sees PEER_REJECTED with the private data. The request is gone; the endpoint of a
    /// reserved service point is UNCONNECTED again, one made for the request is gone too.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "dat_cr_reject";
        let ia = self.check(CALL)?;
        ia.check_private_data(CALL, Subtype::Arg2, private_data)?;
        let device = ia.device(CALL)?;
        self.claim(CALL)?;
        ia.count(IaCounter::SpCrRejected);
        ia.count(IaCounter::CmUserRejTx);
        // The peer may have given up meanwhile, which is no failure.
        device.reject(self.0.request.token, RejectReason::CONSUMER, private_data);
        self.let_go(&ia);
        Ok(())
    }

    /// Decided without an endpoint.
    pub(super) fn let_go(&self, ia: &IaInner) {
        ia.objects.lock().of::<Cr>().remove(&self.0.life.id);
        if let Some(ep) = &self.0.ep {
            ep.release();
        }
    }

    /// The IA is closing: the peer is refused.
    pub(crate) fn abandon(&self) {
        if self.0.life.end()
            && let Some(ia) = self.0.life.owner.upgrade()
        {
            ia.reject_quietly(self.0.request.token);
        }
    }

    pub(super) fn claim(&self, call: &'static str) -> Result<()> {
        match self.0.life.end() {
            true => Ok(()),
            false => Err(self.0.life.gone(call)),
        }
    }

    pub(super) fn check(&self, call: &'static str) -> Result<Arc<IaInner>> {
        self.0.life.check(call)?;
        self.0.life.ia(call)
    }
}

object!(Cr);

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
