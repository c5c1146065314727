//! The engine's calls on a channel.

use std::sync::Arc;

use dat_kit::Qualifier;
use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ChannelAttr, ConnectParam, EventKind, Failure, RecvRequest, Request,
    Status,
};

use crate::channel::{ChannelInner, Phase, State};
use crate::core::Core;
use crate::device::DeviceInner;
use crate::fabric::limits::MAX_SEGMENTS;
use crate::wire::count::MAX_WINDOW;

/// A channel as the engine holds it.
pub struct FabricChannel {
    pub device: Arc<DeviceInner>,
    pub channel: Arc<ChannelInner>,
}

impl FabricChannel {
    fn check_start(&self, call: &str, st: &State, data: &[u8], most: usize) -> Result<(), Failure> {
        let core = &self.device.core;
        core.check_fork()?;
        let refuse = |why: &str| {
            let message = format!("{}: {call}: {why}", core.params.ia_name);
            Err(Failure::new(Status::INVALID, message))
        };
        if data.len() > most {
            return refuse(&format!("{} bytes of private data; the most is {most}", data.len()));
        }
        if st.phase != Phase::Idle {
            return refuse("the channel was used before; open another one");
        }
        Ok(())
    }
}

impl Channel for FabricChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let mut st = self.channel.lock();
        let quotient = Qualifier::new(param.port).quotient;
        self.check_start("connect", &st, param.data, self.device.core.max_request_data(quotient))?;
        self.device.connect(&self.channel, &mut st, param)?;
        drop(st);
        // What can be done at once need not wait for the event thread.
        self.device.take_connection_events_if_free();
        Ok(())
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let mut st = self.channel.lock();
        self.check_start("accept", &st, data, self.device.core.max_private_data())?;
        self.device.accept(&self.channel, &mut st, request, data)?;
        drop(st);
        self.device.take_connection_events_if_free();
        Ok(())
    }

    fn disconnect(&self) -> Status {
        let core = &self.device.core;
        if core.check_fork().is_err() {
            return Status::FORKED;
        }
        let mut st = self.channel.lock();
        let status = self.channel.disconnect(&mut st, core.params.linger);
        if status != Status::PENDING || matches!(st.phase, Phase::Leaving(_)) {
            return status;
        }
        // Cancelled receives come back at once; only transfers under way take time.
        for _ in 0..4 {
            drop(st);
            while self.device.progress.once_waiting() > 0 {}
            st = self.channel.lock();
            if self.channel.is_settled(&st) {
                st.pending.last_event = None;
                return Status::OK;
            }
        }
        st.pending.last_event = Some(Box::new(self.channel.event_of(EventKind::DISCONNECTED, &[])));
        self.channel.schedule();
        Status::PENDING
    }

    fn post(&self, request: &Request) -> Status {
        self.channel.post(request)
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.channel.post_recv(request)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        self.channel.post_atomic(request)
    }

    fn settle(&self) {
        if self.device.core.fork_guard.here() {
            self.device.progress.once();
            self.channel.report_unsignalled(&mut self.channel.lock());
        }
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        self.channel.bind(request)
    }

    fn local_port(&self) -> u64 {
        self.channel.lock().local_port
    }

    fn describe(&self) -> String {
        let st = self.channel.lock();
        let phase = match st.phase {
            Phase::Idle => "not connected yet",
            Phase::Connecting => "connecting",
            Phase::Accepting => "accepting",
            Phase::Connected => "connected",
            Phase::Leaving(_) => "disconnecting",
            Phase::Stopped => "stopped",
        };
        format!("{}, channel {} to {}, {phase}", self.device.core.title(), self.channel.id, st.peer)
    }

    fn close(&self) {
        self.device.close_channel(&self.channel);
    }
}

/// Checks the attributes of a new channel.
pub fn check_attr(core: &Core, attr: &ChannelAttr, shares: bool) -> Result<(), Failure> {
    // Receives of a shared queue are not posted to the channel.
    let (recvs, segments) = if shares { (0, 0) } else { (attr.max_recvs, attr.max_recv_segments) };
    let fits = attr.max_requests.max(recvs) <= MAX_WINDOW
        && attr.max_request_segments.max(segments) as usize <= core.fabric.limits.iov.min(MAX_SEGMENTS)
        && attr.max_message <= core.max_message();
    if fits {
        return Ok(());
    }
    let why = "an attribute exceeds the device's limits";
    Err(Failure::new(Status::INVALID, format!("{}: new channel: {why}", core.params.ia_name)))
}
