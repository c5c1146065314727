//! Setting up connections: connect, accept, and what the provider reports of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dat_plugin::host::{Channel, Device};
use dat_plugin::{ChannelAttr, ConnectParam, Failure, Status};
use dat_types::{
    AsyncReason, ConnectFlags, ConnectionKind, EpState, Error, EventData, Qos, Result, ReturnType, Subtype,
    Timeout,
};

use super::post::PostSide;
use super::states::{Operation, Stimulus, Verdict, after, verdict};
use super::{Control, Ep, EpInner};
use crate::error;
use crate::evd::{Evd, Feeder};
use crate::ia::IaInner;
use crate::sequel::{self, Sequels};

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

impl Ep {
    /// `dat_ep_connect`: begins to connect. The outcome arrives on the connect dispatcher, exactly once.
    pub fn connect(&self, options: &ConnectOptions<'_>) -> Result<()> {
        const CALL: &str = "dat_ep_connect";
        let ia = self.0.ia(CALL)?;
        check_options(CALL, &ia, options)?;
        let mut control = self.0.control(CALL)?;
        let Verdict::To(next) = verdict(Operation::Connect, control.state) else {
            return Err(self.0.wrong_state(CALL, control.state));
        };
        self.0.check_ready(CALL, &control)?;
        check_model(CALL, &ia, options)?;
        let param = ConnectParam {
            addr: options.address.into(),
            port: options.conn_qual,
            qos: options.qos.0,
            data: options.private_data,
        };
        let attempt = self.0.start(CALL, &ia, &mut control, next, |channel| channel.connect(&param))?;
        control.remote = Some(options.address);
        control.remote_port = options.conn_qual;
        if let Some(limit) = options.timeout.duration() {
            ia.progress.add_timer(Instant::now() + limit, attempt);
        }
        Ok(())
    }
}

impl EpInner {
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
        self.start(CALL, ia, &mut control, next, |channel| channel.accept(request, private_data))?;
        control.remote = address;
        control.remote_port = port;
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
        let numbers = self.attach(ia, control, &mut side, attempt);
        // Known before it begins: the provider's first event may come at once.
        ia.objects.lock().attempts.insert(attempt, self.clone());
        match open(&device, control, &side, attempt, numbers, begin) {
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
        let directions = [
            (&control.wiring.request, side.requests.clone(), control.attr.max_request_dtos),
            (&control.wiring.recv, side.recvs.clone(), control.attr.max_recv_dtos),
        ];
        let mut numbers = [0; 2];
        let mut feeders = [None, None];
        let mut eager = false;
        for (index, (evd, ring, limit)) in directions.into_iter().enumerate() {
            let Some(evd) = evd else { continue };
            let mut core = evd.0.core.lock();
            numbers[index] = core.attach(Feeder { ep: self.clone(), ring, attempt, limit });
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
        match to {
            EpState::Connected => self.established(&mut control, if active { data } else { &[] }),
            _ => {
                let data = if stimulus == Stimulus::PeerRejected { data } else { &[] };
                self.take_down(&mut control, Some((event, data)), true)
            }
        }
    }

    fn established(self: &Arc<EpInner>, control: &mut Control, data: &[u8]) -> Sequels {
        {
            let mut side = self.post.lock();
            self.enter(control, &mut side, EpState::Connected);
        }
        if self.report(control, ConnectionKind::Established, data) {
            self.unpark(control);
            return Sequels::new();
        }
        // Nobody learns of the connection: it is no use (contract section 6.3).
        self.take_down(control, None, true)
    }

    /// Completions held back until the connection event was queued follow it.
    pub(super) fn unpark(&self, control: &Control) {
        for evd in [&control.wiring.request, &control.wiring.recv].into_iter().flatten() {
            let mut core = evd.0.core.lock();
            core.unpark(self.id);
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
    attempt: u64,
    [send_user, recv_user]: [u64; 2],
    begin: impl FnOnce(&Channel) -> std::result::Result<(), Failure>,
) -> std::result::Result<Channel, Failure> {
    let queue = |evd: &Option<Evd>| evd.as_ref().and_then(|evd| evd.0.queue.clone());
    let (send, recv) = (queue(&control.wiring.request), queue(&control.wiring.recv));
    let attr = ChannelAttr {
        user: attempt,
        send_user,
        recv_user,
        domain: side.domain.unwrap_or(0),
        max_requests: control.attr.max_request_dtos,
        max_recvs: control.attr.max_recv_dtos.max(side.stored() as u32),
        max_request_segments: control.attr.max_request_iov,
        max_recv_segments: control.attr.max_recv_iov,
        max_reads_out: control.attr.max_rdma_read_out,
        max_reads_in: control.attr.max_rdma_read_in,
        reserved: 0,
        max_message: control.attr.max_message_size,
    };
    let channel = device.open_channel(&attr, send.as_ref(), recv.as_ref())?;
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

fn check_options(call: &'static str, ia: &Arc<IaInner>, options: &ConnectOptions<'_>) -> Result<()> {
    if options.timeout == Timeout::ZERO {
        return Err(error::parameter(call, Subtype::Arg4, "a time-out of 0; it must be positive"));
    }
    if options.conn_qual == 0 {
        return Err(error::parameter(call, Subtype::Arg3, "0 is no connection qualifier"));
    }
    ia.check_private_data(call, Subtype::Arg5, options.private_data)?;
    if !options.qos.is_defined() {
        let message = format!("quality of service {:#x} is no single defined value", options.qos.0);
        return Err(error::parameter(call, Subtype::Arg7, message));
    }
    if !ConnectFlags::all().contains(options.flags) {
        let message = format!("connect flags {:#x} have undefined bits", options.flags.bits());
        return Err(error::parameter(call, Subtype::Arg8, message));
    }
    let ip = options.address.ip();
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    if ip.is_multicast() || ip.is_unspecified() || broadcast {
        let message = format!("{ip} is no address of a single host");
        return Err(Error::new(call, ReturnType::InvalidAddress, Subtype::AddressUnsupported, message));
    }
    Ok(())
}

fn check_model(call: &'static str, ia: &Arc<IaInner>, options: &ConnectOptions<'_>) -> Result<()> {
    if ia.attr().qos & options.qos.0 != options.qos.0 {
        let message = format!("quality of service {:#x} is not offered by this provider", options.qos.0);
        return Err(error::unsupported(call, message));
    }
    if options.flags.contains(ConnectFlags::MULTIPATH_REQUIRED) {
        return Err(error::unsupported(call, "this provider has a single path; several were required"));
    }
    Ok(())
}

/// Performs what ending a connection turned up; for callers that hold no lock any more.
pub(super) fn settle(sequels: Sequels) {
    if !sequels.is_empty() {
        sequel::perform(sequels);
    }
}
