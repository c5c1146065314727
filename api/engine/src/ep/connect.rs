//! Setting up connections: connect, accept, and what the provider reports of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dat_plugin::host::{Channel, Device};
use dat_plugin::{ChannelAttr, ChannelFlag, ConnectParam, Failure, Status};
use dat_types::{
    AsyncReason, BreakReason, ConnectFlags, ConnectionKind, EpState, Error, EventData, IaCounter, Qos,
    Result, ReturnType, Subtype, Timeout,
};

use super::connect_param::{ConnectOptions, Positions, Target, Wishes};
use super::ending::Ending;
use super::inner::{Control, Ep, EpInner};
use super::post_side::PostSide;
use crate::adapter::inner::{IaInner, Rules};
use crate::base::comm::check_comm;
use crate::base::deferred::{Deferred, DeferredList, Incident};
use crate::base::ring::WorkRing;
use crate::base::states::{Operation, Stimulus, Verdict, after, verdict};
use crate::base::{deferred, error};
use crate::evd::core::CompletionSource;
use crate::evd::inner::Evd;
use crate::srq::Srq;

impl Ep {
    /// `dat_ep_connect`: begins to connect. The outcome arrives on the connect dispatcher, exactly once.
    pub fn connect(&self, options: &ConnectOptions<'_>) -> Result<()> {
        const CALL: &str = "dat_ep_connect";
        const AT: Positions =
            Positions { timeout: Subtype::Arg4, private_data: Subtype::Arg5, qos: Subtype::Arg7 };
        let ia = self.0.ia(CALL)?;
        drop(self.0.control(CALL)?);
        let ConnectOptions { address, conn_qual, timeout, private_data, qos, flags } = *options;
        let wishes = Wishes { timeout, private_data, qos };
        wishes.check(CALL, &ia, &AT)?;
        let target = Target { address, conn_qual, flags };
        target.check(CALL)?;
        self.0.connect_to(CALL, &ia, target, &wishes)
    }

    /// `dat_ep_dup_connect`: as [`Ep::connect`] to whom `dup` asked when it connected, with the same flags. `dup` must
    /// be connected, from its side; nothing happens to it.
    pub fn dup_connect(&self, dup: &Ep, timeout: Timeout, private_data: &[u8], qos: Qos) -> Result<()> {
        const CALL: &str = "dat_ep_dup_connect";
        const AT: Positions =
            Positions { timeout: Subtype::Arg3, private_data: Subtype::Arg4, qos: Subtype::Arg6 };
        let ia = self.0.ia(CALL)?;
        drop(self.0.control(CALL)?);
        dup.check(CALL, self.0.ia)?;
        let wishes = Wishes { timeout, private_data, qos };
        wishes.check(CALL, &ia, &AT)?;
        let state = self.state();
        if !matches!(verdict(Operation::Connect, state), Verdict::To(_)) {
            return Err(self.0.wrong_state(CALL, state));
        }
        let target = {
            let other = dup.0.control(CALL)?;
            match (verdict(Operation::DupSource, other.state), other.target) {
                (Verdict::Ok, Some(target)) => target,
                (Verdict::Ok, None) => {
                    let message = format!(
                        "endpoint {} was connected from the other side; there is nobody to ask again",
                        dup.id()
                    );
                    return Err(error::state(CALL, other.state.subtype(), message));
                }
                _ => {
                    let message = format!("endpoint {} is {}, not connected", dup.id(), other.state);
                    return Err(error::state(CALL, other.state.subtype(), message));
                }
            }
        };
        self.0.connect_to(CALL, &ia, target, &wishes)
    }

    /// `dat_ep_common_connect`: as [`Ep::connect`] to a socket address, whose port is the connection qualifier, by way
    /// of the endpoint's communicator. The quality of service is the endpoint's.
    pub fn common_connect(&self, address: SocketAddr, timeout: Timeout, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "dat_ep_common_connect";
        const AT: Positions =
            Positions { timeout: Subtype::Arg3, private_data: Subtype::Arg4, qos: Subtype::None };
        let ia = self.0.ia(CALL)?;
        let (comm, qos) = {
            let control = self.0.control(CALL)?;
            (control.comm, control.attr.qos)
        };
        let wishes = Wishes { timeout, private_data, qos };
        wishes.check(CALL, &ia, &AT)?;
        if address.port() == 0 {
            let message = format!("{address} has port 0, on which nobody listens");
            return Err(Error::new(CALL, ReturnType::InvalidAddress, Subtype::AddressMalformed, message));
        }
        let target = Target { address, conn_qual: address.port().into(), flags: ConnectFlags::empty() };
        target.check(CALL)?;
        check_comm(CALL, comm, address.ip())?;
        self.0.connect_to(CALL, &ia, target, &wishes)
    }
}

impl EpInner {
    /// Begins to connect, after the parameters were checked: state, readiness, model, resources.
    fn connect_to(
        self: &Arc<EpInner>,
        call: &'static str,
        ia: &Arc<IaInner>,
        target: Target,
        wishes: &Wishes<'_>,
    ) -> Result<()> {
        let mut control = self.control(call)?;
        let Verdict::To(next) = verdict(Operation::Connect, control.state) else {
            return Err(self.wrong_state(call, control.state));
        };
        self.check_ready(call, &control)?;
        if ia.attr().qos & wishes.qos.0 != wishes.qos.0 {
            let message = format!("quality of service {:#x} is not offered by this provider", wishes.qos.0);
            return Err(error::unsupported(call, message));
        }
        if target.flags.contains(ConnectFlags::MULTIPATH_REQUIRED) {
            return Err(error::unsupported(call, "this provider has a single path; several were required"));
        }
        let param = ConnectParam {
            addr: target.address.into(),
            port: target.conn_qual,
            qos: wishes.qos.0,
            data: wishes.private_data,
        };
        let attempt = self.start(call, ia, &mut control, next, |channel| channel.connect(&param))?;
        control.remote = Some(target.address);
        control.remote_port = target.conn_qual;
        control.target = Some(target);
        self.counts.connects.add(1);
        ia.count(IaCounter::CmReqTx);
        if let Some(limit) = wishes.timeout.duration() {
            ia.progress.add_timer(Instant::now() + limit, attempt);
        }
        Ok(())
    }

    /// Begins to accept a request. `held`: the request holds this endpoint.
    pub(crate) fn accept(
        self: &Arc<EpInner>,
        ia: &Arc<IaInner>,
        request: u64,
        held: bool,
        (address, port): (Option<SocketAddr>, u64),
        private_data: &[u8],
    ) -> Result<()> {
        const CALL: &str = "dat_cr_accept";
        ia.device(CALL)?;
        let mut control = self.control(CALL)?;
        let operation = if held { Operation::AcceptHeld } else { Operation::AcceptNamed };
        let next = match verdict(operation, control.state) {
            Verdict::To(next) => next,
            Verdict::InvalidHandle => {
                let message = format!("endpoint {} is held by another request", self.id);
                return Err(Error::new(CALL, ReturnType::InvalidHandle, Subtype::HandleEp, message));
            }
            _ => return Err(self.wrong_state(CALL, control.state)),
        };
        self.check_ready(CALL, &control)?;
        let mut gone = false;
        let attempt = self.start(CALL, ia, &mut control, next, |channel| {
            channel.accept(request, private_data).or_else(|failure| {
                // The peer gave up: the accept is begun all the same, and its event says what came of it (4.5).
                gone = failure.status == Status::GONE;
                if gone { Ok(()) } else { Err(failure) }
            })
        })?;
        control.remote = address;
        control.remote_port = port;
        control.target = None;
        ia.count(IaCounter::SpCrAccepted);
        ia.count(IaCounter::CmRepTx);
        drop(control);
        if gone {
            deferred::run(self.on_stimulus(attempt, Stimulus::AcceptFailed, &[]));
        }
        Ok(())
    }

    /// Opens a channel, posts the receives kept until now, and has `begin` start it. On failure nothing has changed.
    fn start(
        self: &Arc<EpInner>,
        call: &'static str,
        ia: &Arc<IaInner>,
        control: &mut Control,
        next: EpState,
        begin: impl FnOnce(&Channel) -> std::result::Result<(), Failure>,
    ) -> Result<u64> {
        static NEXT_ATTEMPT: AtomicU64 = AtomicU64::new(1);
        let device = ia.device(call)?;
        let attempt = NEXT_ATTEMPT.fetch_add(1, Ordering::Relaxed);
        let mut side = self.post.lock();
        for ring in [&side.requests, &side.recvs] {
            ring.clear_failed();
            ring.set_early(true);
        }
        let numbers = self.attach(ia, control, &mut side, attempt);
        // Known before it begins: the provider's first event may come at once.
        ia.objects.lock().attempts.insert(attempt, self.clone());
        match open(
            &device,
            control,
            &side,
            self.srq.as_ref(),
            ia.rules,
            [attempt, numbers[0], numbers[1]],
            begin,
        ) {
            Ok(channel) => {
                control.attempt = attempt;
                control.local_port = channel.local_port();
                side.channel = Some(channel);
                side.forget_stored();
                self.enter(control, &mut side, next);
                Ok(attempt)
            }
            Err(failure) => {
                ia.objects.lock().attempts.remove(&attempt);
                detach(control);
                side.eager = false;
                Err(error::provider(call, failure))
            }
        }
    }

    /// Makes both directions known to their dispatchers; gives the numbers completions will carry.
    fn attach(
        self: &Arc<EpInner>,
        ia: &Arc<IaInner>,
        control: &mut Control,
        side: &mut PostSide,
        attempt: u64,
    ) -> [u64; 2] {
        let recvs = self.srq.as_ref().map_or(control.attr.max_recv_dtos, Srq::limit);
        let directions = [
            (&control.wiring.request, side.requests.clone(), control.attr.max_request_dtos, None),
            (&control.wiring.recv, side.recvs.clone(), recvs, self.srq.clone()),
        ];
        let mut numbers = [0; 2];
        let mut sources = [None, None];
        let mut eager = false;
        for (index, (evd, ring, limit, srq)) in directions.into_iter().enumerate() {
            let Some(evd) = evd else { continue };
            let mut core = evd.0.core.lock();
            numbers[index] = core.attach(CompletionSource {
                id: self.id,
                ring,
                received: self.counts.received.clone(),
                srq,
                ep: self.clone(),
                attempt,
                limit,
            });
            if core.is_overcommitted() {
                eager = true;
                drop(core);
                ia.progress.watch(evd.0.clone());
            }
            sources[index] = Some((evd.clone(), numbers[index]));
        }
        control.sources = sources;
        side.eager = eager;
        numbers
    }

    /// Configured for a connection (spec: connection).
    fn check_ready(&self, call: &'static str, control: &Control) -> Result<()> {
        let missing = if control.pz.is_none() {
            "protection zone"
        } else if control.wiring.connect.is_none() {
            "connect dispatcher"
        } else {
            return Ok(());
        };
        let message = format!("endpoint {} has no {missing}; modify it first", self.id);
        Err(error::state(call, Subtype::EpNotReady, message))
    }

    /// Something happened to the attempt or connection.
    pub(crate) fn on_stimulus(
        self: &Arc<EpInner>,
        attempt: u64,
        stimulus: Stimulus,
        data: &[u8],
    ) -> DeferredList {
        self.on_stimulus_because(attempt, stimulus, data, None)
    }

    /// The connection breaks, or the attempt does.
    pub(super) fn on_break(self: &Arc<EpInner>, attempt: u64, reason: BreakReason) -> DeferredList {
        self.on_stimulus_because(attempt, Stimulus::Broke, &[], Some(reason))
    }

    fn on_stimulus_because(
        self: &Arc<EpInner>,
        attempt: u64,
        stimulus: Stimulus,
        data: &[u8],
        reason: Option<BreakReason>,
    ) -> DeferredList {
        let mut control = self.control.lock();
        if control.freed || control.attempt != attempt {
            return DeferredList::new();
        }
        if control.stopping.is_some() {
            return match stimulus {
                // What stopped a channel that took its time.
                Stimulus::PeerDisconnected | Stimulus::Broke => self.finish_stop(&mut control),
                _ => DeferredList::new(),
            };
        }
        let Some((to, event)) = after(control.state, stimulus) else { return DeferredList::new() };
        let active = control.state == EpState::ActiveConnectionPending;
        if let Some(ia) = self.owner.upgrade() {
            let counters: &[IaCounter] = match stimulus {
                Stimulus::Established if active => &[IaCounter::CmRepRx, IaCounter::CmActiveEst],
                Stimulus::Established => &[IaCounter::CmPassiveEst],
                Stimulus::PeerRejected => &[IaCounter::CmUserRejRx],
                Stimulus::Refused => &[IaCounter::CmErrRefused],
                Stimulus::TimeUp => &[IaCounter::CmErrTimeout],
                Stimulus::PeerDisconnected => &[IaCounter::CmDreqRx],
                _ => &[],
            };
            counters.iter().for_each(|counter| ia.count(*counter));
        }
        match to {
            EpState::Connected => self.established(&mut control, if active { data } else { &[] }),
            _ => {
                let data = if stimulus == Stimulus::PeerRejected { data } else { &[] };
                self.take_down(&mut control, Ending::of(event, reason, data))
            }
        }
    }

    fn established(self: &Arc<EpInner>, control: &mut Control, data: &[u8]) -> DeferredList {
        let (too_many, rings) = {
            let mut side = self.post.lock();
            self.enter(control, &mut side, EpState::Connected);
            (side.recvs.outstanding() > side.hard_mark, side.rings())
        };
        self.set_lock_bias(control);
        if self.report(control, ConnectionKind::Established, data, None) {
            control.told_up = true;
            self.release_early(control, &rings);
            return match too_many {
                true => self.deferred(control.attempt, Incident::Broken(BreakReason::HardWatermark)),
                false => DeferredList::new(),
            };
        }
        // The application cannot learn of the connection, so it is useless (spec: events).
        self.take_down(control, Ending::silent())
    }

    /// Sets the bias of the locks for use by one thread, or for any use. Only now: the thread that sets the connection
    /// up must not become the bias owner. The dispatchers' locks keep it, because the next endpoint is likely alike.
    fn set_lock_bias(&self, control: &Control) {
        let single = control.attr.is_single_threaded();
        self.post.set_bias(if single {
            dat_sync::BiasPolicy::SingleThread
        } else {
            dat_sync::BiasPolicy::Adaptive
        });
        if single {
            for evd in [&control.wiring.recv, &control.wiring.request].into_iter().flatten() {
                evd.0.core.set_bias(dat_sync::BiasPolicy::SingleThread);
            }
        }
    }

    /// Completions held back until the connection event was queued follow it.
    pub(super) fn release_early(&self, control: &Control, rings: &[Arc<WorkRing>; 2]) {
        for (evd, ring) in [&control.wiring.request, &control.wiring.recv].into_iter().zip(rings) {
            let Some(evd) = evd else { continue };
            let mut core = evd.0.core.lock();
            ring.set_early(false);
            let before = core.notifications;
            core.release_early(self.id);
            if core.notifications > before {
                evd.0.notified(&core);
            }
            let wake = core.armed;
            drop(core);
            if wake {
                evd.0.signal();
            }
        }
    }

    /// A completion came before the provider's event that the connection is up was taken.
    pub(super) fn on_early_completion(self: &Arc<EpInner>, attempt: u64) -> DeferredList {
        if let Some(ia) = self.owner.upgrade() {
            crate::adapter::driver::help(&ia);
        }
        let accepting = self.control.lock().state == EpState::CompletionPending;
        match accepting {
            // Work completed, so the connection is up. The connecting side has to wait for the acceptor's private
            // data; the thread that takes the provider's events just now brings it.
            true => self.on_stimulus(attempt, Stimulus::Established, &[]),
            false => DeferredList::new(),
        }
    }

    /// Puts a connection event on the connect dispatcher; if it does not fit, the async dispatcher of its IA reports
    /// that. One that was closed with its IA, as one of another IA may be, has no overflow to report. The end of a
    /// connection that the consumer knows to be up always has a place (C-374).
    pub(super) fn report(
        &self,
        control: &mut Control,
        kind: ConnectionKind,
        data: &[u8],
        reason: Option<BreakReason>,
    ) -> bool {
        let ends = std::mem::take(&mut control.told_up);
        let Some(evd) = &control.wiring.connect else { return false };
        let data = EventData::Connection { kind, ep: self.id, private_data: data.into(), reason };
        let fits = if ends { evd.0.push_end(data) } else { evd.0.push(data) };
        let overflowed = || evd.alive("dat_ep_connect", Subtype::HandleEvdConn).is_ok();
        if !fits
            && overflowed()
            && let Some(ia) = evd.0.owner.upgrade()
        {
            ia.raise(evd.0.id, AsyncReason::EvdOverflow);
        }
        fits
    }

    /// To be handled once no lock is held.
    pub(super) fn deferred(self: &Arc<EpInner>, attempt: u64, incident: Incident) -> DeferredList {
        DeferredList::from([Deferred { ep: self.clone(), attempt, incident }])
    }
}

fn open(
    device: &Device,
    control: &Control,
    side: &PostSide,
    srq: Option<&Srq>,
    rules: Rules,
    [attempt, send_user, recv_user]: [u64; 3],
    begin: impl FnOnce(&Channel) -> std::result::Result<(), Failure>,
) -> std::result::Result<Channel, Failure> {
    let queue = |evd: &Option<Evd>| evd.as_ref().and_then(|evd| evd.0.queue());
    let (send, recv) = (queue(&control.wiring.request), queue(&control.wiring.recv));
    let recv_segments = srq.map_or(control.attr.max_recv_iov, Srq::max_iov);
    let srq = srq.and_then(Srq::queue);
    let attr = ChannelAttr {
        user: attempt,
        send_user,
        recv_user,
        domain: side.domain.unwrap_or(0),
        max_requests: control.attr.max_request_dtos,
        max_recvs: control.attr.max_recv_dtos.max(side.stored() as u32),
        max_request_segments: control.attr.max_request_iov,
        max_recv_segments: recv_segments,
        max_reads_out: control.attr.max_rdma_read_out,
        max_reads_in: control.attr.max_rdma_read_in,
        max_message: control.attr.max_message_size,
        ..ChannelAttr::default()
    };
    let mut flags = ChannelFlag::NONE;
    if control.attr.is_single_threaded() {
        flags = flags | ChannelFlag::SINGLE_THREADED;
    }
    if rules == Rules::Reference {
        flags = flags | ChannelFlag::LAST_BYTE_LAST;
    }
    let channel = device.open_channel(&attr.with_flags(flags), send.as_ref(), recv.as_ref(), srq.as_ref())?;
    side.post_stored(&channel).map_err(|status: Status| {
        Failure::new(status, "the provider did not take the receives posted before the connection")
    })?;
    begin(&channel)?;
    Ok(channel)
}

/// Makes both directions unknown to their dispatchers.
pub(super) fn detach(control: &mut Control) {
    for source in &mut control.sources {
        if let Some((evd, number)) = source.take() {
            evd.0.core.lock().detach(number);
        }
    }
}
