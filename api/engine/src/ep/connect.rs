//! Setting up connections: connect, accept, and what the provider reports of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dat_plugin::host::{Channel, Device};
use dat_plugin::{ChannelAttr, ChannelFlag, ConnectParam, Failure, Status};
use dat_types::{
    AsyncReason, ConnectFlags, ConnectionKind, EpState, Error, EventData, IaCounter, Qos, Result, ReturnType,
    Subtype, Timeout,
};

use super::post::PostSide;
use super::states::{Operation, Stimulus, Verdict, after, verdict};
use super::{Control, Ep, EpInner};
use crate::error;
use crate::evd::{Evd, Feeder};
use crate::ia::IaInner;
use crate::sequel::{self, Sequel, Sequels};
use crate::srq::Srq;

/// What `dat_ep_connect` is told besides the endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions<'a> {
    /// Address of the peer's IA; its port is not looked at.
    pub address: SocketAddr,
    /// Connection qualifier the peer listens on.
    pub conn_qual: u64,
    /// How long the attempt may take; not 0.
    pub timeout: Timeout,
    /// Delivered with the request, at most the provider's `max_private_data_size` bytes.
    pub private_data: &'a [u8],
    /// One quality of service.
    pub qos: Qos,
    /// Multipath wishes.
    pub flags: ConnectFlags,
}

impl ConnectOptions<'_> {
    /// No time-out, no private data, best effort.
    pub fn new(address: SocketAddr, conn_qual: u64) -> ConnectOptions<'static> {
        ConnectOptions {
            address,
            conn_qual,
            timeout: Timeout::INFINITE,
            private_data: &[],
            qos: Qos::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        }
    }
}

/// Whom a connect asks, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    address: SocketAddr,
    conn_qual: u64,
    flags: ConnectFlags,
}

/// What else a connect is told.
struct Wishes<'a> {
    timeout: Timeout,
    private_data: &'a [u8],
    qos: Qos,
}

/// Positions of the arguments all forms of connect have.
struct Positions {
    timeout: Subtype,
    private_data: Subtype,
    qos: Subtype,
}

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
                        "endpoint {} was connected from the other side; there is nobody to ask again (D-38)",
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
        crate::service_point::check_comm(CALL, comm, address.ip())?;
        self.0.connect_to(CALL, &ia, target, &wishes)
    }
}

impl Wishes<'_> {
    fn check(&self, call: &'static str, ia: &IaInner, at: &Positions) -> Result<()> {
        if self.timeout == Timeout::ZERO {
            return Err(error::parameter(call, at.timeout, "a time-out of 0; it must be positive"));
        }
        ia.check_private_data(call, at.private_data, self.private_data)?;
        if !self.qos.is_defined() {
            let message = format!("quality of service {:#x} is no single defined value", self.qos.0);
            return Err(error::parameter(call, at.qos, message));
        }
        Ok(())
    }
}

impl Target {
    fn check(&self, call: &'static str) -> Result<()> {
        if self.conn_qual == 0 {
            return Err(error::parameter(call, Subtype::Arg3, "0 is no connection qualifier"));
        }
        if !ConnectFlags::all().contains(self.flags) {
            let message = format!("connect flags {:#x} have undefined bits", self.flags.bits());
            return Err(error::parameter(call, Subtype::Arg8, message));
        }
        let ip = self.address.ip();
        let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
        if ip.is_multicast() || ip.is_unspecified() || broadcast {
            let message = format!("{ip} is no address of a single host");
            return Err(Error::new(call, ReturnType::InvalidAddress, Subtype::AddressUnsupported, message));
        }
        Ok(())
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
            settle(self.on_stimulus(attempt, Stimulus::AcceptFailed, &[]));
        }
        Ok(())
    }

    /// Opens a channel, hands it the receives kept so far and has `begin` start it. On failure nothing has changed.
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
        side.requests.set_failed(false);
        side.recvs.set_failed(false);
        let numbers = self.attach(ia, control, &mut side, attempt);
        // Known before it begins: the provider's first event may come at once.
        ia.objects.lock().attempts.insert(attempt, self.clone());
        match open(&device, control, &side, self.srq.as_ref(), attempt, numbers, begin) {
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
        let mut feeders = [None, None];
        let mut eager = false;
        for (index, (evd, ring, limit, srq)) in directions.into_iter().enumerate() {
            let Some(evd) = evd else { continue };
            let mut core = evd.0.core.lock();
            numbers[index] = core.attach(Feeder { ep: self.clone(), ring, srq, attempt, limit });
            if core.is_overcommitted() {
                eager = true;
                drop(core);
                ia.progress.watch(evd);
            }
            feeders[index] = Some((evd.clone(), numbers[index]));
        }
        control.feeders = feeders;
        side.eager = eager;
        numbers
    }

    /// Configured for a connection (contract section 4.2).
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
    pub(crate) fn on_stimulus(self: &Arc<EpInner>, attempt: u64, stimulus: Stimulus, data: &[u8]) -> Sequels {
        let mut control = self.control.lock();
        if control.freed || control.attempt != attempt {
            return Sequels::new();
        }
        if control.stopping.is_some() {
            return match stimulus {
                // What stopped a channel that took its time.
                Stimulus::PeerDisconnected | Stimulus::Broke => self.finish_stop(&mut control),
                _ => Sequels::new(),
            };
        }
        let Some((to, event)) = after(control.state, stimulus) else { return Sequels::new() };
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
                self.take_down(&mut control, Some((event, data)), true)
            }
        }
    }

    fn established(self: &Arc<EpInner>, control: &mut Control, data: &[u8]) -> Sequels {
        let too_many = {
            let mut side = self.post.lock();
            self.enter(control, &mut side, EpState::Connected);
            side.recvs.outstanding() > side.hard_mark
        };
        self.declare(control);
        if self.report(control, ConnectionKind::Established, data) {
            self.unpark(control);
            return match too_many {
                true => Sequels::from([Sequel::Broken { ep: self.clone(), attempt: control.attempt }]),
                false => Sequels::new(),
            };
        }
        // Nobody learns of the connection: it is no use (contract section 6.3).
        self.take_down(control, None, true)
    }

    /// Says to the locks whether one thread uses them from here on: not before, so that the first to take one is not who sets
    /// the connection up. The dispatchers' stay so, for the next endpoint is likely to be of the kind.
    fn declare(&self, control: &Control) {
        let single = control.attr.is_single_threaded();
        self.post.declare(single);
        if single {
            for evd in [&control.wiring.recv, &control.wiring.request].into_iter().flatten() {
                evd.0.core.declare(true);
            }
        }
    }

    /// Completions held back until the connection event was queued follow it.
    pub(super) fn unpark(&self, control: &Control) {
        for evd in [&control.wiring.request, &control.wiring.recv].into_iter().flatten() {
            let mut core = evd.0.core.lock();
            let before = core.notifications;
            core.unpark(self.id);
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
    pub(crate) fn on_early_completion(self: &Arc<EpInner>, attempt: u64) -> Sequels {
        if let Some(ia) = self.owner.upgrade() {
            crate::progress::help(&ia);
        }
        let accepting = self.control.lock().state == EpState::CompletionPending;
        match accepting {
            // Work completed, so the connection is up. The connecting side has to wait for the acceptor's private
            // data; the thread that takes the provider's events just now brings it.
            true => self.on_stimulus(attempt, Stimulus::Established, &[]),
            false => Sequels::new(),
        }
    }

    /// Puts a connection event on the connect dispatcher; one that does not fit is told on the async dispatcher.
    pub(super) fn report(&self, control: &Control, kind: ConnectionKind, data: &[u8]) -> bool {
        let Some(evd) = &control.wiring.connect else { return false };
        let fits = evd.0.push(EventData::Connection { kind, ep: self.id, private_data: data.into() });
        if !fits && let Some(ia) = self.owner.upgrade() {
            ia.raise(evd.0.id, AsyncReason::EvdOverflow);
        }
        fits
    }

    /// A transfer failed.
    pub(crate) fn on_broken(self: &Arc<EpInner>, attempt: u64) -> Sequels {
        self.on_stimulus(attempt, Stimulus::Broke, &[])
    }

    /// A peer's message ended a memory window of this IA.
    pub(crate) fn on_window_ended(&self, context: u32) {
        if let Some(ia) = self.owner.upgrade() {
            ia.window_ended(context);
        }
    }

    /// A completion was lost.
    pub(crate) fn on_overflow(&self, evd: dat_types::ObjectId) {
        if let Some(ia) = self.owner.upgrade() {
            ia.raise(evd, AsyncReason::EvdOverflow);
        }
    }
}

fn open(
    device: &Device,
    control: &Control,
    side: &PostSide,
    srq: Option<&Srq>,
    attempt: u64,
    [send_user, recv_user]: [u64; 2],
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
    let attr = match control.attr.is_single_threaded() {
        true => attr.with_flags(ChannelFlag::SINGLE_THREADED),
        false => attr,
    };
    let channel = device.open_channel(&attr, send.as_ref(), recv.as_ref(), srq.as_ref())?;
    side.hand_over(&channel).map_err(|status: Status| {
        Failure::new(status, "the provider did not take the receives posted before the connection")
    })?;
    begin(&channel)?;
    Ok(channel)
}

/// Makes both directions unknown to their dispatchers.
pub(super) fn detach(control: &mut Control) {
    for feeder in &mut control.feeders {
        if let Some((evd, number)) = feeder.take() {
            evd.0.core.lock().detach(number);
        }
    }
}

/// Performs what ending a connection turned up; for callers that hold no lock any more.
pub(super) fn settle(sequels: Sequels) {
    if !sequels.is_empty() {
        sequel::perform(sequels);
    }
}
