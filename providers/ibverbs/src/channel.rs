//! One end of a connection: a queue pair, and its way to an end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ChannelAttr, ConnectParam, Event, EventKind, Failure, RecvRequest,
    Request, Status,
};
use rdma_sys::verbs::*;

use crate::cm::CmId;
use crate::connect::Attempt;
use crate::device::Dev;
use crate::handles::{Qp, QpParts};
use crate::post::{self, MAX_SEGMENTS};
use crate::queue::Que;
use crate::ring::Ring;
use crate::srq::Shared;
use crate::status;
use crate::work::Place;

/// How long a caller waits for the device to give work back, before an event has to do.
const PATIENCE: Duration = Duration::from_micros(100);

/// How long the device may take to give work back. After that it is made to forget it.
const GIVE_UP: Duration = Duration::from_millis(500);

/// One end of a connection.
pub struct IbChannel(pub(crate) Arc<Chan>);

pub(crate) struct Chan {
    // Before the queues: a queue pair goes before what it completes to.
    pub(crate) qp: Qp,
    /// May post requests.
    pub(crate) live: AtomicBool,
    /// What the numbers of requests and of receives begin with.
    pub(crate) send_base: u64,
    pub(crate) recv_base: u64,
    /// Up to so many bytes travel inside a request.
    pub(crate) inline: u64,
    pub(crate) max_message: u64,
    /// Open while live.
    pub(crate) tx: Ring,
    /// Open until stopped.
    pub(crate) rx: Ring,
    pub(crate) attr: ChannelAttr,
    pub(crate) dev: Arc<Dev>,
    /// May no longer post receives, and failures are no news.
    pub(crate) stopped: AtomicBool,
    faulty: AtomicBool,
    /// A marker is with the device; another is to follow it.
    pub(crate) marker_out: AtomicBool,
    pub(crate) marker_again: AtomicBool,
    /// The engine has closed it: its events are of no interest.
    pub(crate) closed: AtomicBool,
    pub(crate) control: Mutex<Control>,
    /// The number events of RDMA CM carry; `token` is the one the queue pair carries.
    pub(crate) cm_token: OnceLock<u64>,
    pub(crate) token: u64,
    pub(crate) srq: Option<Arc<Shared>>,
    send: Arc<Que>,
    recv: Arc<Que>,
    places: [Place; 2],
    work: [u32; 2],
}

/// What the control path keeps under a lock.
pub(crate) struct Control {
    pub(crate) phase: Phase,
    pub(crate) id: Option<CmId>,
}

pub(crate) enum Phase {
    Idle,
    /// Looking for the peer's address, then the route; the request goes out after that.
    Resolving(Box<Attempt>),
    /// The request is sent.
    Connecting,
    /// The answer is sent.
    Accepting,
    Live,
    /// The device gives work back; the event follows, if there is to be one.
    Stopping(Box<Stop>),
    Stopped,
}

pub(crate) struct Stop {
    tx_mark: u32,
    rx_mark: u32,
    deadline: Instant,
    event: Option<Event>,
}

impl Chan {
    pub(crate) fn new(
        dev: &Arc<Dev>,
        attr: &ChannelAttr,
        send: Option<&Arc<Que>>,
        recv: Option<&Arc<Que>>,
        srq: Option<&Arc<Shared>>,
    ) -> Result<Arc<Chan>, Failure> {
        let refuse =
            |status, why: &str| Failure::new(status, format!("{}: new channel: {why}", dev.params.ia_name));
        let most = dev.device_attr();
        if attr.max_requests > most.max_requests_per_channel
            || attr.max_recvs > most.max_recvs_per_channel
            || attr.max_request_segments.max(attr.max_recv_segments) > most.max_segments
        {
            return Err(refuse(Status::INVALID, "more is asked for than the device's attributes offer"));
        }
        dev.count_channel()?;
        let counted = Uncount(dev);
        let spare = match send.or(recv) {
            Some(queue) => queue.clone(),
            None => Que::new(dev, 1)?,
        };
        let (send, recv) = (send.unwrap_or(&spare).clone(), recv.unwrap_or(&spare).clone());
        // Two more for markers: one that was asked for, and the last one. Receives of a shared queue complete here too.
        let work = [attr.max_requests + 2, srq.map_or(attr.max_recvs, |srq| srq.depth()).max(1)];
        send.reserve(work[0])?;
        recv.reserve(work[1]).inspect_err(|_| send.release(work[0]))?;
        let release = |failure| {
            send.release(work[0]);
            recv.release(work[1]);
            failure
        };
        let domain = dev.memory.domain(attr.domain).map_err(release)?;
        let token = dev.new_token();
        let cap = ibv_qp_cap {
            max_send_wr: work[0],
            max_recv_wr: if srq.is_some() { 0 } else { attr.max_recvs.max(1) },
            max_send_sge: attr.max_request_segments.clamp(1, MAX_SEGMENTS as u32),
            max_recv_sge: if srq.is_some() {
                0
            } else {
                attr.max_recv_segments.clamp(1, MAX_SEGMENTS as u32)
            },
            max_inline_data: dev.params.inline_bytes,
        };
        let make = |cap| {
            let srq = srq.map(|srq| &srq.handle);
            // SAFETY: the channel keeps queues and shared queue, and drops the queue pair before them.
            unsafe { Qp::new(&domain, &QpParts { send: &send.cq, recv: &recv.cq, srq, cap, user: token }) }
        };
        let qp = make(cap)
            // A device that has less room inside a request says so by refusing.
            .or_else(|_| make(ibv_qp_cap { max_inline_data: 0, ..cap }))
            .map_err(|error| release(status::failure(&refuse(Status::IO, "a queue pair").message, &error)))?;
        init(dev, &qp).map_err(|error| release(status::failure("a queue pair's first step", &error)))?;
        let send_place = send.place();
        let recv_place = if Arc::ptr_eq(&send, &recv) { send_place } else { recv.place() };
        std::mem::forget(counted);
        let chan = Arc::new(Chan {
            live: AtomicBool::new(false),
            send_base: send_place.send_base(),
            recv_base: recv_place.recv_base(),
            // A device may give more than was asked for.
            inline: qp.max_inline.min(dev.params.inline_bytes).into(),
            max_message: dev.max_message,
            tx: Ring::new(attr.max_requests),
            rx: Ring::new(if srq.is_some() { 0 } else { attr.max_recvs }),
            attr: *attr,
            dev: dev.clone(),
            stopped: AtomicBool::new(false),
            faulty: AtomicBool::new(false),
            marker_out: AtomicBool::new(false),
            marker_again: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            control: Mutex::new(Control { phase: Phase::Idle, id: None }),
            cm_token: OnceLock::new(),
            token,
            srq: srq.cloned(),
            send,
            recv,
            places: [send_place, recv_place],
            work,
            qp,
        });
        chan.rx.open();
        let number = srq.map(|_| chan.qp.number());
        chan.send.attach(&chan, None);
        chan.recv.attach(&chan, number);
        dev.add_channel(token, &chan);
        Ok(chan)
    }

    /// Its place in `queue`, which is one of its own.
    pub(crate) fn place(&self, queue: &Que) -> Place {
        self.places[usize::from(!std::ptr::eq(queue, &*self.send))]
    }

    pub(crate) fn srq(&self) -> Option<&Shared> {
        self.srq.as_deref()
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data path, or the device, met a failure: the event thread ends the connection.
    #[cold]
    pub(crate) fn fault(&self, what: &str) {
        if !self.stopped.load(Ordering::Acquire) && !self.faulty.swap(true, Ordering::AcqRel) {
            tracing::debug!(ia = %self.dev.params.ia_name, qp = self.qp.number(), "{what}");
            self.dev.to_finish(self.token);
        }
    }

    /// Takes requests from now on.
    pub(crate) fn go_live(&self) {
        self.live.store(true, Ordering::Release);
        self.tx.open();
    }

    /// Ends the connection or attempt, with an event once everything came back.
    pub(crate) fn finish(self: &Arc<Chan>, control: &mut Control, event: Event) {
        if matches!(control.phase, Phase::Stopping(_) | Phase::Stopped) {
            return;
        }
        self.begin_stop(control, Some(event));
        self.settle(control);
    }

    /// The queue pair fails from here on, and the peer is told.
    fn begin_stop(&self, control: &mut Control, event: Option<Event>) {
        self.stopped.store(true, Ordering::Release);
        self.live.store(false, Ordering::Release);
        self.tx.close();
        self.rx.close();
        if let Err(error) = self.qp.set_state(IBV_QPS_ERR) {
            tracing::debug!(%error, "a queue pair could not be failed; its device may be gone");
        }
        let connected = matches!(control.phase, Phase::Live | Phase::Accepting);
        if let Some(id) = control.id.as_ref().filter(|_| connected)
            && let Err(error) = id.disconnect()
        {
            tracing::debug!(%error, "the peer could not be told; it may have gone first");
        }
        let (tx_mark, rx_mark) = (self.tx.mark(), self.rx.mark());
        // Silent successes leave nothing to be seen; work that fails does. So what is before a marker is done when the
        // marker comes back, and what did not fail until then succeeded.
        if !self.tx.is_past(tx_mark) && self.is_silent() {
            self.post_marker();
        }
        let deadline = Instant::now() + GIVE_UP;
        control.phase = Phase::Stopping(Box::new(Stop { tx_mark, rx_mark, deadline, event }));
    }

    /// Waits a moment for the device; what takes longer is looked at by the event thread.
    fn settle(self: &Arc<Chan>, control: &mut Control) {
        let until = Instant::now() + PATIENCE;
        while !self.try_finish(control) {
            if Instant::now() >= until {
                return self.dev.watch(self);
            }
            std::hint::spin_loop();
        }
    }

    /// Has it stopped? Then the event is handed to the engine.
    pub(crate) fn try_finish(self: &Arc<Chan>, control: &mut Control) -> bool {
        let Phase::Stopping(stop) = &control.phase else { return true };
        self.send.harvest();
        if !Arc::ptr_eq(&self.send, &self.recv) {
            self.recv.harvest();
        }
        let back = self.tx.is_past(stop.tx_mark) && self.rx.is_past(stop.rx_mark);
        if !back && Instant::now() < stop.deadline {
            return false;
        }
        if !back {
            tracing::warn!(ia = %self.dev.params.ia_name, qp = self.qp.number(), "the device kept work; it is reset");
        }
        // Receives taken from a shared queue leave no trace here: only a reset says that nothing is written any more.
        if (!back || self.srq.is_some())
            && let Err(error) = self.qp.set_state(IBV_QPS_RESET)
        {
            tracing::debug!(%error, "a queue pair could not be reset; its device may be gone");
        }
        let Phase::Stopping(stop) = std::mem::replace(&mut control.phase, Phase::Stopped) else {
            return true;
        };
        if let Some(event) = stop.event {
            self.dev.push_event(Some(self), event);
        }
        true
    }

    /// Ends it for the engine.
    fn end(self: &Arc<Chan>) -> Status {
        let mut control = self.control();
        match &mut control.phase {
            Phase::Stopped => return Status::OK,
            Phase::Stopping(stop) => stop.event = None,
            _ => self.begin_stop(&mut control, None),
        }
        self.settle(&mut control);
        match &mut control.phase {
            Phase::Stopping(stop) => {
                stop.event = Some(Event::new(EventKind::DISCONNECTED, self.attr.user));
                Status::PENDING
            }
            _ => Status::OK,
        }
    }
}

/// To the state in which receives can be posted. The attributes that depend on the connection come with RDMA CM's.
fn init(dev: &Dev, qp: &Qp) -> std::io::Result<()> {
    let mut attr = crate::handles::blank_attr();
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = dev.port;
    attr.qp_access_flags = dev.remote_rights();
    qp.modify(&mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
}

/// Takes a channel off the count if it does not come to be.
struct Uncount<'a>(&'a Dev);

impl Drop for Uncount<'_> {
    fn drop(&mut self) {
        self.0.channel_closed();
    }
}

impl Channel for IbChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        self.0.start_connect(param)
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        self.0.start_accept(request, data)
    }

    fn disconnect(&self) -> Status {
        self.0.end()
    }

    #[inline]
    fn post(&self, request: &Request) -> Status {
        post::one(&self.0, request)
    }

    #[inline]
    fn post_recv(&self, request: &RecvRequest) -> Status {
        post::one(&self.0, request)
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        post::list(&self.0, requests)
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        post::list(&self.0, requests)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        self.0.post_atomic_request(request)
    }

    fn settle(&self) {
        self.0.settle_silent();
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        self.0.post_bind(request)
    }

    fn local_port(&self) -> u64 {
        self.0.control().id.as_ref().map_or(0, |id| id.local_port().into())
    }

    fn describe(&self) -> String {
        let chan = &self.0;
        let control = chan.control();
        let peer = control.id.as_ref().and_then(CmId::peer_addr);
        let peer = peer.map_or_else(|| "nobody yet".to_owned(), |peer| peer.to_string());
        format!(
            "{} port {}, queue pair {:#x}, to {peer}, up to {} bytes inline",
            chan.dev.name,
            chan.dev.port,
            chan.qp.number(),
            chan.inline
        )
    }

    fn close(&self) {
        let chan = &self.0;
        if chan.closed.swap(true, Ordering::AcqRel) || chan.dev.forked() {
            return;
        }
        let mut control = chan.control();
        if !matches!(control.phase, Phase::Stopped) {
            if !matches!(control.phase, Phase::Stopping(_)) {
                chan.begin_stop(&mut control, None);
            }
            // The engine lets go of the buffers next: nothing may still be written to.
            chan.settle(&mut control);
            if let Phase::Stopping(stop) = &mut control.phase {
                stop.deadline = Instant::now();
                stop.event = None;
                chan.try_finish(&mut control);
            }
        }
        let id = control.id.take();
        drop(control);
        chan.dev.remove_channel(chan);
        drop(id);
        let number = chan.srq.as_ref().map(|_| chan.qp.number());
        chan.recv.detach(chan.places[1], number);
        if !Arc::ptr_eq(&chan.send, &chan.recv) {
            chan.send.detach(chan.places[0], None);
        }
        chan.send.release(chan.work[0]);
        chan.recv.release(chan.work[1]);
        chan.dev.channel_closed();
    }
}
