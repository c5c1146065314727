//! An open interface adapter: its parts, and the calls that need several of them.

pub mod event_thread;
pub mod revoke;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_kit::Qualifier;
use dat_plugin::{Config, ConnectParam, EventKind, Failure, RejectReason, Status};
use libfabric_sys::Library;

use crate::address::at_port;
use crate::channel::table::ChannelTable;
use crate::channel::{ChannelInner, Phase, State};
use crate::connected::Connector;
use crate::core::Core;
use crate::datagram::{DatagramEndpoint, Datagrams};
use crate::fabric::Fabric;
use crate::memory::Regions;
use crate::params::{Endpoint, Params};
use crate::progress::Progress;
use crate::wire::hello::Kind;

/// How long closing a channel waits until the fabric has handed back its transfers.
const LAST_TRANSFERS: Duration = Duration::from_millis(100);

/// Polls between two looks of the poll thread that show that an application polls all the time.
const SPINNING: u64 = 64;

/// Looks in a row that the poll thread leaves to an application that polls.
const MOST_LEFT: u32 = 256;

/// An open interface adapter. Fields are dropped in this order: endpoints before the fabric in `core`.
pub struct DeviceInner {
    pub connector: Connector,
    pub progress: Arc<Progress>,
    pub datagrams: Option<Arc<Datagrams>>,
    pub channels: Arc<ChannelTable>,
    pub core: Arc<Core>,
    pub open_channels: AtomicU32,
    pub open_queues: AtomicU32,
    pub open_srqs: AtomicU32,
}

impl DeviceInner {
    pub fn open(config: &Config) -> Result<Arc<DeviceInner>, Failure> {
        dat_sync::prepare();
        let params = Params::parse(config)?;
        let library = Library::get()
            .map_err(|why| Failure::new(Status::NO_DEVICE, format!("{}: {why}", params.ia_name)))?;
        let fabric = Arc::new(Fabric::open(library, &params)?);
        let regions = Regions::new(&fabric);
        let endpoint = match params.endpoint {
            Endpoint::Msg => None,
            Endpoint::Rdm => Some(DatagramEndpoint::open(&fabric, &regions)?),
        };
        let outbox = endpoint.as_ref().map(|endpoint| endpoint.outbox.clone());
        let core = Core::new(params, fabric, regions, outbox)?;
        let channels = Arc::new(ChannelTable::new(&core));
        let datagrams = endpoint.map(|endpoint| Datagrams::new(endpoint, &core, &channels));
        let progress = Progress::new(&core, &channels, &datagrams);
        let device = Arc::new(DeviceInner {
            connector: Connector::new(&core, &channels, &progress),
            progress,
            datagrams,
            channels,
            core,
            open_channels: AtomicU32::new(0),
            open_queues: AtomicU32::new(0),
            open_srqs: AtomicU32::new(0),
        });
        device.start()?;
        Ok(device)
    }

    fn start(self: &Arc<DeviceInner>) -> Result<(), Failure> {
        let core = &self.core;
        if let Some(fd) = self.datagrams.as_ref().and_then(|datagrams| datagrams.wait()) {
            core.wake.add(fd).map_err(|error| Failure::os("a descriptor of a device", &error))?;
        }
        if let Some(time) = core.params.keepalive {
            let _ = core.wake.keepalive.set(self.check_interval(time));
        }
        if core.wake.always_ticks() {
            core.wake.soon();
        }
        if !core.fabric.wakes() {
            let (device, mut polls, mut left) = (Arc::downgrade(self), 0, 0);
            let step = move || device.upgrade().map(|device| device.poll_step(&mut polls, &mut left));
            core.poll_thread
                .start(step)
                .map_err(|error| Failure::os("a thread that polls the fabric", &error))?;
        }
        core.wake.now();
        Ok(())
    }

    /// One look of the poll thread. Returns whether it must go on.
    fn poll_step(&self, polls: &mut u64, left: &mut u32) -> bool {
        let now = self.core.polls.load(Ordering::Relaxed);
        let spinning = now.wrapping_sub(*polls) >= SPINNING && *left < MOST_LEFT;
        *polls = now;
        *left = if spinning { *left + 1 } else { 0 };
        if !spinning {
            self.progress.all();
        }
        self.open_channels.load(Ordering::Relaxed) > 0
            || self.datagrams.as_ref().is_some_and(|datagrams| datagrams.may_have_frames())
    }

    /// Begins to connect.
    pub fn connect(
        &self,
        channel: &ChannelInner,
        st: &mut State,
        param: &ConnectParam<'_>,
    ) -> Result<(), Failure> {
        let refuse = |why: &str| {
            let message = format!("{}: connect: {why}", self.core.params.ia_name);
            Err(Failure::new(Status::BAD_ADDRESS, message))
        };
        if param.addr.to_std().is_none() {
            return refuse("the address is neither IPv4 nor IPv6");
        }
        let qualifier = Qualifier::new(param.port);
        let Some(to) = at_port(param.addr, qualifier.port) else {
            // No process can listen at such a port.
            st.phase = Phase::Connecting;
            channel.end(st, EventKind::REFUSED, &[], None);
            return Ok(());
        };
        if self.core.fabric.ip().is_some_and(|own| own.is_ipv4() != to.is_ipv4()) {
            return refuse(&format!("{to} is of another address family"));
        }
        match &self.datagrams {
            Some(datagrams) => datagrams.connect(channel, st, to, param),
            None => self.connector.connect(channel, st, to, param),
        }
    }

    /// Begins to accept.
    pub fn accept(
        &self,
        channel: &ChannelInner,
        st: &mut State,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        match &self.datagrams {
            Some(datagrams) => datagrams.accept(channel, st, request, data),
            None => self.connector.accept(channel, st, request, data),
        }
    }

    /// Refuses a request.
    pub fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let kind = match reason {
            RejectReason::CONSUMER => Kind::Reject,
            RejectReason::PROVIDER => Kind::Refuse,
            _ => return Status::INVALID,
        };
        match &self.datagrams {
            Some(datagrams) => datagrams.reject(request, kind, data),
            None => self.connector.reject(request, kind, data),
        }
    }

    /// Takes all connection events; returns how many.
    pub fn take_connection_events(&self) -> usize {
        match &self.datagrams {
            Some(datagrams) => datagrams.service(),
            None => self.connector.take_events(),
        }
    }

    /// The same unless another thread is taking events.
    pub fn take_connection_events_if_free(&self) {
        match &self.datagrams {
            Some(datagrams) => {
                datagrams.service();
            }
            None => self.connector.take_events_if_free(),
        }
    }

    /// Closes a channel. Memory that libfabric may still write to afterwards stays registered.
    pub fn close_channel(&self, channel: &ChannelInner) {
        // A child made by fork does not touch the parent's endpoints.
        if channel.closed.swap(true, Ordering::AcqRel) || !self.core.fork_guard.here() {
            return;
        }
        let mut st = channel.lock();
        channel.disconnect(&mut st, Duration::ZERO);
        st.pending.last_event = None;
        // Afterwards the application may use the memory of transfers, so they get a bounded time to end.
        let deadline = Instant::now() + LAST_TRANSFERS;
        while !channel.is_settled(&st) {
            drop(st);
            if self.progress.once_waiting() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            st = channel.lock();
            if Instant::now() >= deadline {
                if channel.is_closing(&st) {
                    channel.shut_down_endpoint(&mut st);
                } else {
                    tracing::error!(
                        channel = channel.id,
                        "a transfer of a closed channel does not end; its memory stays registered until it does"
                    );
                    channel.hold_memory(&st);
                }
                break;
            }
        }
        drop(st);
        self.open_channels.fetch_sub(1, Ordering::Relaxed);
        self.channels.close(channel.id);
    }

    pub fn shut_down(&self) {
        self.core.poll_thread.stop();
        match &self.datagrams {
            Some(datagrams) => datagrams.shut_down(|| self.progress.all_waiting()),
            None => self.connector.shut_down(),
        }
        self.progress.all();
        self.progress.drop_closed_channels();
        // Operations that libfabric never handed back ended with their endpoints.
        let rest = self.channels.drain();
        self.core.clear_tasks();
        self.core.events.lock().clear();
        drop(rest);
    }
}
