//! Endpoints.

mod attr;
mod connect;
mod disconnect;
mod extended;
mod hold;
mod many;
mod mask;
mod modify;
mod post;
mod ring;
#[cfg(test)]
mod single;
pub mod states;
mod watermark;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::ForkGuard;
use dat_types::{
    Comm, CompletionFlags, EpAttr, EpState, EvdFlags, IaCounter, ObjectId, Result, ReturnType, Subtype,
};
use parking_lot::{Mutex, MutexGuard};

pub use connect::ConnectOptions;
pub use many::Posting;
pub use mask::EpMask;
pub use modify::EpModify;
pub(crate) use post::span_error;
pub(crate) use ring::{Work, WorkRing};
pub use watermark::EpRecvParam;

use crate::context::{Context, object_calls};
use crate::counters::EpCounts;
use crate::error;
use crate::evd::{Evd, StreamKind};
use crate::ia::{Ia, IaInner};
use crate::lock::Lock;
use crate::pz::{Pz, PzRef};
use crate::sequel::Sequels;
use crate::srq::Srq;
use attr::Wiring;
use connect::Target;
use post::PostSide;
use states::{Operation, Verdict, verdict};

/// Most segments one post can have, whatever the provider.
pub(crate) const MAX_IOV: usize = 32;

/// An endpoint: one end of a connection, and what is posted on it.
#[derive(Clone)]
pub struct Ep(pub(crate) Arc<EpInner>);

pub(crate) struct EpInner {
    pub(crate) id: ObjectId,
    ia: ObjectId,
    owner: Weak<IaInner>,
    /// Written under the control lock; for those who only look.
    state: AtomicU8,
    fork: ForkGuard,
    context: Context,
    pub(crate) counts: EpCounts,
    /// Where its receives come from, if not from posts of its own.
    srq: Option<Srq>,
    control: Mutex<Control>,
    post: Lock<PostSide>,
}

/// What connection management looks at.
struct Control {
    freed: bool,
    state: EpState,
    attr: EpAttr,
    /// The consumer left the attributes to the provider.
    defaulted: bool,
    wiring: Wiring,
    pz: Option<PzRef>,
    /// The connection or attempt under way; 0 is none.
    attempt: u64,
    remote: Option<SocketAddr>,
    remote_port: u64,
    local_port: u64,
    /// How it connects by socket address.
    comm: Comm,
    /// What it asked to be connected to, for those who ask the same (`dat_ep_dup_connect`).
    target: Option<Target>,
    /// Numbers under which the dispatchers know the connected directions: request, receive.
    feeders: [Option<(Evd, u64)>; 2],
    /// The provider said it will report when the channel has stopped.
    stopping: Option<dat_types::ConnectionKind>,
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
    /// Address of the peer's IA, where defined (contract section 3.2).
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
    /// `dat_ep_create`. Without attributes the provider's defaults are used (contract section 10.5).
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
        wiring.check_handles(call, self.inner.id)?;
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
        let id = crate::next_id();
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
                feeders: [None, None],
                stopping: None,
            }),
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

    /// Whether its receives come out of `srq`.
    pub(crate) fn uses(&self, srq: &Srq) -> bool {
        self.srq.as_ref().is_some_and(|own| own.id() == srq.id())
    }

    /// Takes completions of receives that the provider has.
    pub(crate) fn take_receives(&self, sequels: &mut Sequels) {
        let evd = self.post.lock().recv_evd.clone();
        if let Some(evd) = evd {
            evd.0.harvest(&mut evd.0.core.lock(), sequels);
        }
    }

    /// Whether the event that ends its attempt has been, so that completions may be seen.
    #[inline]
    pub(crate) fn is_connected_or_over(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state != EpState::ActiveConnectionPending as u8 && state != EpState::CompletionPending as u8
    }

    /// Whether it belongs to a request nobody has decided yet.
    pub(crate) fn is_tentative(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::TentativeConnectionPending as u8
    }

    /// The rings of both directions.
    pub(crate) fn rings(&self) -> [Arc<WorkRing>; 2] {
        let side = self.post.lock();
        [side.requests.clone(), side.recvs.clone()]
    }

    fn control(&self, call: &'static str) -> Result<MutexGuard<'_, Control>> {
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

    fn ia(&self, call: &'static str) -> Result<Arc<IaInner>> {
        let ia = self.owner.upgrade();
        let ia = ia.ok_or_else(|| error::freed(call, Subtype::HandleEp, "endpoint", self.id))?;
        ia.device(call)?;
        Ok(ia)
    }

    /// Moves to `state`: where posts look, where calls look, where those look who only look.
    fn enter(&self, control: &mut Control, side: &mut PostSide, state: EpState) {
        if control.state != state {
            tracing::debug!(ep = %self.id, from = %control.state, to = %state, "endpoint state");
        }
        control.state = state;
        side.enter(state);
        self.state.store(state as u8, Ordering::Release);
    }

    fn wrong_state(&self, call: &'static str, state: EpState) -> dat_types::Error {
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
            Verdict::To(state) if control.stopping.is_none() => {
                control.attempt = 0;
                control.remote = None;
                control.remote_port = 0;
                control.local_port = 0;
                control.target = None;
                let mut side = self.0.post.lock();
                self.0.enter(&mut control, &mut side, state);
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
        match self.0.kill() {
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

/// The stream each dispatcher of an endpoint carries, and the flag it must have been created with.
const DIRECTIONS: [(StreamKind, EvdFlags, Subtype); 3] = [
    (StreamKind::Recv, EvdFlags::DTO, Subtype::HandleEvdRecv),
    (StreamKind::Request, EvdFlags::DTO, Subtype::HandleEvdRequest),
    (StreamKind::Connection, EvdFlags::CONNECTION, Subtype::HandleEvdConn),
];

/// The completion attribute a stream has under `attr`.
fn stream_mode(kind: StreamKind, attr: &EpAttr) -> CompletionFlags {
    match kind {
        StreamKind::Recv => attr.recv_completion_flags,
        StreamKind::Request => attr.request_completion_flags,
        _ => CompletionFlags::empty(),
    }
}
