//! Endpoints: making, looking at, resetting, freeing.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::ForkGuard;
use dat_types::{Comm, EpAttr, EpState, IaCounter, ObjectId, Result, ReturnType, Subtype};
use parking_lot::{Mutex, MutexGuard};

use super::attr;
use super::attr::Wiring;
use super::connect_param::Target;
use super::ending::Ending;
use super::post_side::PostSide;
use crate::adapter::inner::{Ia, IaInner};
use crate::base::context::{Context, object_calls};
use crate::base::counters::EpCounts;
use crate::base::deferred;
use crate::base::error;
use crate::base::lock::Lock;
use crate::base::ring::WorkRing;
use crate::base::states::{Operation, Verdict, verdict};
use crate::evd::inner::Evd;
use crate::memory::pz::{Pz, PzRef};
use crate::srq::Srq;

/// An endpoint: one end of a connection, and what is posted on it.
#[derive(Clone)]
pub struct Ep(pub(crate) Arc<EpInner>);

pub(crate) struct EpInner {
    pub(crate) id: ObjectId,
    pub(super) ia: ObjectId,
    pub(super) owner: Weak<IaInner>,
    /// Written under the control lock; for those who only look.
    pub(super) state: AtomicU8,
    pub(super) fork: ForkGuard,
    pub(super) context: Context,
    pub(crate) counts: EpCounts,
    /// Where its receives come from, if not from posts of its own.
    pub(super) srq: Option<Srq>,
    pub(super) control: Mutex<Control>,
    pub(super) post: Lock<PostSide>,
    /// The rings it was made with: requests, receives. A change of attributes replaces them.
    pub(super) first_rings: [Arc<WorkRing>; 2],
}

/// What connection management looks at.
pub(super) struct Control {
    pub(super) freed: bool,
    pub(super) state: EpState,
    pub(super) attr: EpAttr,
    /// The consumer left the attributes to the provider.
    pub(super) defaulted: bool,
    pub(super) wiring: Wiring,
    pub(super) pz: Option<PzRef>,
    /// The connection or attempt under way; 0 is none.
    pub(super) attempt: u64,
    pub(super) remote: Option<SocketAddr>,
    pub(super) remote_port: u64,
    pub(super) local_port: u64,
    /// How it connects by socket address.
    pub(super) comm: Comm,
    /// Where it connected to, for `dat_ep_dup_connect`.
    pub(super) target: Option<Target>,
    /// Numbers under which the dispatchers know the connected directions: request, receive.
    pub(super) sources: [Option<(Evd, u64)>; 2],
    /// The provider still holds buffers and reports when the channel has stopped. The end to report then.
    pub(super) stopping: Option<Ending>,
    /// The consumer got the event that the connection is up. Its end has a place on the dispatcher.
    pub(super) told_up: bool,
}

/// What `dat_ep_query` tells.
#[derive(Clone, Debug)]
pub struct EpParam {
    /// The IA.
    pub ia: ObjectId,
    /// The state.
    pub state: EpState,
    /// How it connects by socket address.
    pub comm: Comm,
    /// Address of its own IA.
    pub local_address: IpAddr,
    /// Address of the peer's IA, where defined (spec: endpoint).
    pub remote_address: Option<SocketAddr>,
    /// Port qualifier of the peer, where defined.
    pub remote_port_qual: u64,
    /// Port qualifier of this endpoint, where defined.
    pub local_port_qual: u64,
    /// The protection zone.
    pub pz: Option<Pz>,
    /// Where its receives come from, if not from posts of its own.
    pub srq: Option<Srq>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events arrive.
    pub connect_evd: Option<Evd>,
    /// The attributes.
    pub attr: EpAttr,
}

/// What `dat_ep_get_status` tells: a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// The state.
    pub state: EpState,
    /// No receive is posted or in progress.
    pub recv_idle: bool,
    /// No request is outstanding.
    pub request_idle: bool,
}

impl Ia {
    /// `dat_ep_create`. Without attributes the provider's defaults are used (spec: attributes).
    pub fn ep_create(
        &self,
        pz: Option<&Pz>,
        recv_evd: Option<&Evd>,
        request_evd: Option<&Evd>,
        connect_evd: Option<&Evd>,
        attr: Option<&EpAttr>,
    ) -> Result<Ep> {
        let wiring =
            Wiring { recv: recv_evd.cloned(), request: request_evd.cloned(), connect: connect_evd.cloned() };
        self.make_ep("dat_ep_create", pz, wiring, attr, None)
    }

    /// `dat_ep_create_with_srq`: receives come out of `srq`, for the life of the endpoint.
    pub fn ep_create_with_srq(
        &self,
        pz: Option<&Pz>,
        recv_evd: Option<&Evd>,
        request_evd: Option<&Evd>,
        connect_evd: Option<&Evd>,
        srq: &Srq,
        attr: &EpAttr,
    ) -> Result<Ep> {
        const CALL: &str = "dat_ep_create_with_srq";
        self.device(CALL)?;
        srq.check(CALL, self.inner.id)?;
        let wiring =
            Wiring { recv: recv_evd.cloned(), request: request_evd.cloned(), connect: connect_evd.cloned() };
        self.make_ep(CALL, pz, wiring, Some(attr), Some(srq.clone()))
    }

    fn make_ep(
        &self,
        call: &'static str,
        pz: Option<&Pz>,
        wiring: Wiring,
        attr: Option<&EpAttr>,
        srq: Option<Srq>,
    ) -> Result<Ep> {
        self.device(call)?;
        if let Some(pz) = pz {
            pz.check(call, self.inner.id)?;
        }
        wiring.check_handles(call, &self.inner)?;
        let defaulted = attr.is_none();
        let attr = match attr {
            Some(attr) => attr.clone(),
            None => attr::defaults(&self.inner, &wiring),
        };
        attr::check(call, &self.inner, &attr, &wiring, srq.is_some(), ReturnType::ModelNotSupported)?;
        let ep = EpInner::create(call, &self.inner, pz, wiring, attr, EpState::Unconnected, srq)?;
        ep.control.lock().defaulted = defaulted;
        Ok(Ep(ep))
    }
}

impl EpInner {
    fn create(
        call: &'static str,
        ia: &Arc<IaInner>,
        pz: Option<&Pz>,
        wiring: Wiring,
        attr: EpAttr,
        state: EpState,
        srq: Option<Srq>,
    ) -> Result<Arc<EpInner>> {
        let id = crate::base::id::next_id();
        let mut post = PostSide::new(ia, &attr, &wiring, pz, state, srq.is_some());
        if attr.srq_soft_hw > 0 {
            post.soft_mark = attr.srq_soft_hw;
        }
        let ep = Arc::new(EpInner {
            id,
            ia: ia.id,
            owner: Arc::downgrade(ia),
            state: AtomicU8::new(state as u8),
            fork: ForkGuard::new(),
            context: Context::default(),
            counts: EpCounts::default(),
            srq,
            control: Mutex::new(Control {
                freed: false,
                state,
                attr,
                defaulted: false,
                wiring: Wiring::default(),
                pz: pz.map(PzRef::new),
                attempt: 0,
                remote: None,
                remote_port: 0,
                local_port: 0,
                comm: ia.comm(),
                target: None,
                sources: [None, None],
                stopping: None,
                told_up: false,
            }),
            first_rings: [post.requests.clone(), post.recvs.clone()],
            post: Lock::new(post),
        });
        // Under one lock, so that of two creations the last one within the limit wins.
        let mut objects = ia.objects.lock();
        let max = ia.attr().max_channels as usize;
        if objects.eps.len() >= max {
            let message = format!("the IA has at most {max} endpoints; free one first");
            return Err(error::resources(call, Subtype::ResourceTep, message));
        }
        let mut control = ep.control.lock();
        let attr = control.attr.clone();
        attr::rewire(id, &mut control.wiring, &attr, &attr, wiring)
            .map_err(|rule| error::parameter(call, Subtype::None, rule))?;
        drop(control);
        objects.eps.insert(id, ep.clone());
        ia.count(IaCounter::EpCreate);
        Ok(ep)
    }

    /// The endpoint of a request at a service point that supplies them; `None` when there is no room for one.
    pub(crate) fn tentative(ia: &Arc<IaInner>) -> Option<Arc<EpInner>> {
        let attr = attr::defaults(ia, &Wiring::default());
        let state = EpState::TentativeConnectionPending;
        let ep = EpInner::create("dat_psp_create", ia, None, Wiring::default(), attr, state, None).ok()?;
        ep.control.lock().defaulted = true;
        Some(ep)
    }

    pub(super) fn control(&self, call: &'static str) -> Result<MutexGuard<'_, Control>> {
        // Before the lock: a thread of the parent may have held it when the process forked.
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        let control = self.control.lock();
        match control.freed {
            false => Ok(control),
            true => Err(error::freed(call, Subtype::HandleEp, "endpoint", self.id)),
        }
    }

    pub(super) fn ia(&self, call: &'static str) -> Result<Arc<IaInner>> {
        let ia = self.owner.upgrade();
        let ia = ia.ok_or_else(|| error::freed(call, Subtype::HandleEp, "endpoint", self.id))?;
        ia.device(call)?;
        Ok(ia)
    }

    /// Moves to `state`: where posts look, where calls look, where those look who only look.
    pub(super) fn enter(&self, control: &mut Control, side: &mut PostSide, state: EpState) {
        if control.state != state {
            tracing::debug!(ep = %self.id, from = %control.state, to = %state, "endpoint state");
        }
        control.state = state;
        side.enter(state);
        self.state.store(state as u8, Ordering::Release);
    }

    pub(super) fn wrong_state(&self, call: &'static str, state: EpState) -> dat_types::Error {
        let hint = match state {
            EpState::Unconnected => "connect it first",
            EpState::Disconnected => "reset it first",
            EpState::DisconnectPending => "it is being disconnected",
            EpState::Connected => "disconnect and reset it first",
            _ => "a connection is being set up",
        };
        let message = format!("endpoint {} is {}; {hint}", self.id, state.name());
        error::state(call, state.subtype(), message)
    }
}

impl Ep {
    /// Its id; events carry it.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// The state, without a lock.
    pub fn state(&self) -> EpState {
        let value = self.0.state.load(Ordering::Acquire);
        EpState::USED.into_iter().find(|state| *state as u8 == value).unwrap_or(EpState::Disconnected)
    }

    /// `dat_ep_get_status`.
    pub fn status(&self) -> Result<EpStatus> {
        drop(self.0.control("dat_ep_get_status")?);
        // What is done but was not looked at yet is not outstanding.
        self.0.make_room();
        let control = self.0.control("dat_ep_get_status")?;
        let side = self.0.post.lock();
        Ok(EpStatus {
            state: control.state,
            recv_idle: side.recvs.outstanding() == 0,
            request_idle: side.requests.outstanding() == 0,
        })
    }

    /// `dat_ep_query`.
    pub fn query(&self) -> Result<EpParam> {
        const CALL: &str = "dat_ep_query";
        let local_address = self.0.ia(CALL)?.address();
        let control = self.0.control(CALL)?;
        Ok(EpParam {
            ia: self.0.ia,
            state: control.state,
            comm: control.comm,
            local_address,
            remote_address: control.remote,
            remote_port_qual: control.remote_port,
            local_port_qual: control.local_port,
            pz: control.pz.as_ref().map(|pz| pz.0.clone()),
            srq: self.0.srq.clone(),
            recv_evd: control.wiring.recv.clone(),
            request_evd: control.wiring.request.clone(),
            connect_evd: control.wiring.connect.clone(),
            attr: control.attr.clone(),
        })
    }

    /// The path the connection takes, as its provider tells it; empty when there is none.
    pub fn path(&self) -> String {
        self.0.post.lock().channel.as_ref().map_or_else(String::new, |channel| channel.describe())
    }

    /// `dat_ep_reset`: from DISCONNECTED back to UNCONNECTED.
    pub fn reset(&self) -> Result<()> {
        const CALL: &str = "dat_ep_reset";
        let mut control = self.0.control(CALL)?;
        match verdict(Operation::Reset, control.state) {
            Verdict::NoEffect => Ok(()),
            Verdict::To(state) => {
                // The channel may still hold buffers. A reset does not wait for it.
                let deferred = self.0.finish_stop(&mut control);
                control.attempt = 0;
                control.remote = None;
                control.remote_port = 0;
                control.local_port = 0;
                control.target = None;
                let mut side = self.0.post.lock();
                self.0.enter(&mut control, &mut side, state);
                drop(side);
                drop(control);
                deferred::run(deferred);
                Ok(())
            }
            _ => Err(self.0.wrong_state(CALL, control.state)),
        }
    }

    /// `dat_ep_free`. A connection is ended abruptly; completions queued already stay, none is added later (D-07).
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_ep_free";
        let control = self.0.control(CALL)?;
        if verdict(Operation::Free, control.state) != Verdict::Destroy {
            return Err(self.0.wrong_state(CALL, control.state));
        }
        drop(control);
        // Of two threads that free it, one does.
        match self.0.end() {
            true => Ok(()),
            false => Err(error::freed(CALL, Subtype::HandleEp, "endpoint", self.0.id)),
        }
    }

    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        drop(self.0.control(call)?);
        match self.0.ia == ia {
            true => Ok(()),
            false => Err(error::foreign(call, Subtype::HandleEp, "endpoint", self.0.id)),
        }
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        drop(self.0.control(call)?);
        Ok(&self.0.context)
    }
}

object_calls!(Ep, Ep);

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ep({}, {})", self.0.id, self.state())
    }
}
