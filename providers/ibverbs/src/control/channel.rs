//! One end of a connection: its phases, and how it stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use dat_plugin::{ChannelAttr, Event, EventKind, Failure, Status};
use rdma_sys::verbs::*;

use crate::data::adapter::{Adapter, lock};
use crate::data::queue::QueueInner;
use crate::data::queue_pair::QueuePair;
use crate::data::ring::Ring;
use crate::data::sge::MAX_SEGMENTS;
use crate::data::srq::SrqInner;
use crate::data::work_id::CqSlot;
use crate::status;
use crate::sys::cm::CmId;
use crate::sys::queue_pair::{Qp, QpParts, blank_attr};

/// How long the device may take to give work back. After that a reset of the queue pair forces it to.
const GIVE_UP: Duration = Duration::from_millis(500);

pub(crate) struct ChannelInner {
    pub(crate) queue_pair: Arc<QueuePair>,
    pub(crate) adapter: Arc<Adapter>,
    /// The engine has closed it: its events are dropped.
    pub(crate) closed: Arc<AtomicBool>,
    control: Mutex<Control>,
    /// The number that events of RDMA CM carry on the accepting side; [`ChannelInner::token`] is the queue pair's.
    pub(crate) cm_token: OnceLock<u64>,
    send: Arc<QueueInner>,
    recv: Arc<QueueInner>,
    slots: [CqSlot; 2],
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

/// What is kept until the request can be sent.
pub(crate) struct Attempt {
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Stop {
    tx_mark: u32,
    rx_mark: u32,
    began: Instant,
    event: Option<Event>,
}

impl ChannelInner {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        attr: &ChannelAttr,
        [send, recv]: [Option<&Arc<QueueInner>>; 2],
        srq: Option<&Arc<SrqInner>>,
    ) -> Result<Arc<ChannelInner>, Failure> {
        let refuse = |status, why: &str| {
            Failure::new(status, format!("{}: new channel: {why}", adapter.params.ia_name))
        };
        let most = adapter.device_attr();
        if attr.max_requests > most.max_requests_per_channel
            || attr.max_recvs > most.max_recvs_per_channel
            || attr.max_request_segments.max(attr.max_recv_segments) > most.max_segments
        {
            return Err(refuse(Status::INVALID, "its attributes exceed those of the device"));
        }
        adapter.count_channel()?;
        let counted = Uncount(adapter);
        let spare = match send.or(recv) {
            Some(queue) => queue.clone(),
            None => QueueInner::new(adapter, 1)?,
        };
        let (send, recv) = (send.unwrap_or(&spare).clone(), recv.unwrap_or(&spare).clone());
        // Two more for markers: one on request, and the last one. Receives of a shared queue complete here too.
        let work = [attr.max_requests + 2, srq.map_or(attr.max_recvs, |srq| srq.depth()).max(1)];
        send.reserve(work[0])?;
        recv.reserve(work[1]).inspect_err(|_| send.release(work[0]))?;
        let release = |failure| {
            send.release(work[0]);
            recv.release(work[1]);
            failure
        };
        let domain = adapter.memory.domain(attr.domain).map_err(release)?;
        let token = adapter.new_token();
        let cap = ibv_qp_cap {
            max_send_wr: work[0],
            max_recv_wr: if srq.is_some() { 0 } else { attr.max_recvs.max(1) },
            max_send_sge: attr.max_request_segments.clamp(1, MAX_SEGMENTS as u32),
            max_recv_sge: if srq.is_some() {
                0
            } else {
                attr.max_recv_segments.clamp(1, MAX_SEGMENTS as u32)
            },
            max_inline_data: adapter.params.inline_bytes,
        };
        let make = |cap| {
            let srq = srq.map(|srq| &srq.handle);
            Qp::new(&domain, &QpParts { send: &send.cq, recv: &recv.cq, srq, cap, user: token })
        };
        let handle = make(cap)
            // Some devices refuse more inline data than they have room for.
            .or_else(|_| make(ibv_qp_cap { max_inline_data: 0, ..cap }))
            .map_err(|error| release(status::failure(&refuse(Status::IO, "a queue pair").message, &error)))?;
        init(adapter, &handle)
            .map_err(|error| release(status::failure("a queue pair's first step", &error)))?;
        let send_slot = send.new_slot();
        let recv_slot = if Arc::ptr_eq(&send, &recv) { send_slot } else { recv.new_slot() };
        std::mem::forget(counted);
        let queue_pair = Arc::new(QueuePair {
            live: AtomicBool::new(false),
            send_base: send_slot.send_base(),
            recv_base: recv_slot.recv_base(),
            // A device may give more than was asked for.
            inline: handle.max_inline.min(adapter.params.inline_bytes).into(),
            max_message: adapter.max_message,
            tx: Ring::new(attr.max_requests),
            rx: Ring::new(if srq.is_some() { 0 } else { attr.max_recvs }),
            attr: *attr,
            adapter: adapter.clone(),
            stopped: AtomicBool::new(false),
            faulty: AtomicBool::new(false),
            marker_out: AtomicBool::new(false),
            marker_again: AtomicBool::new(false),
            token,
            srq: srq.cloned(),
            handle,
        });
        queue_pair.rx.open();
        let number = srq.map(|_| queue_pair.handle.number());
        send.attach(send_slot, &queue_pair, None);
        recv.attach(recv_slot, &queue_pair, number);
        Ok(Arc::new(ChannelInner {
            queue_pair,
            adapter: adapter.clone(),
            closed: Arc::default(),
            control: Mutex::new(Control { phase: Phase::Idle, id: None }),
            cm_token: OnceLock::new(),
            send,
            recv,
            slots: [send_slot, recv_slot],
            work,
        }))
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// The number that the device's events carry.
    pub(crate) fn token(&self) -> u64 {
        self.queue_pair.token
    }

    /// The engine's number for its events.
    pub(crate) fn user(&self) -> u64 {
        self.queue_pair.attr.user
    }

    /// Ends the connection or attempt, with an event once the device has given all work back.
    pub(crate) fn finish(&self, control: &mut Control, event: Event) {
        if matches!(control.phase, Phase::Stopping(_) | Phase::Stopped) {
            return;
        }
        self.begin_stop(control, Some(event));
        self.finish_or_watch(control);
    }

    /// Ends the connection or attempt at the engine's wish. Never waits for the device: PENDING while that holds work.
    pub(crate) fn disconnect(&self) -> Status {
        let mut control = self.control();
        let event = Event::new(EventKind::DISCONNECTED, self.user());
        match &mut control.phase {
            Phase::Stopped => return Status::OK,
            Phase::Stopping(stop) => stop.event = None,
            _ => self.begin_stop(&mut control, None),
        }
        self.finish_or_watch(&mut control);
        match &mut control.phase {
            Phase::Stopping(stop) => {
                stop.event = Some(event);
                Status::PENDING
            }
            _ => Status::OK,
        }
    }

    /// Brings the queue pair to its error state and disconnects the peer.
    fn begin_stop(&self, control: &mut Control, event: Option<Event>) {
        let qp = &self.queue_pair;
        qp.stop();
        if let Err(error) = qp.handle.set_state(IBV_QPS_ERR) {
            tracing::debug!(%error, "a queue pair did not take its error state; its device may be gone");
        }
        let connected = matches!(control.phase, Phase::Live | Phase::Accepting);
        if let Some(id) = control.id.as_ref().filter(|_| connected)
            && let Err(error) = id.disconnect()
        {
            tracing::debug!(%error, "RDMA CM did not disconnect; the peer may have gone first");
        }
        let (tx_mark, rx_mark) = (qp.tx.mark(), qp.rx.mark());
        // An unsignalled success leaves no completion, a failure does. So all work before a marker is done when the marker
        // comes back, and what has not failed by then succeeded.
        if !qp.tx.is_past(tx_mark) && qp.is_silent() {
            qp.post_marker();
        }
        control.phase = Phase::Stopping(Box::new(Stop { tx_mark, rx_mark, began: Instant::now(), event }));
    }

    /// Stops if the device has given all work back; else the event thread looks again.
    fn finish_or_watch(&self, control: &mut Control) {
        if self.try_finish(control).is_err() {
            self.adapter.watch(self.token());
        }
    }

    /// Stops, with the event for the engine, if the device has given all work back or had its time to. The error is how
    /// long it has held work.
    pub(crate) fn try_finish(&self, control: &mut Control) -> Result<(), Duration> {
        let Phase::Stopping(stop) = &control.phase else { return Ok(()) };
        let age = stop.began.elapsed();
        match self.has_all_work_back(stop) {
            false if age < GIVE_UP => Err(age),
            back => {
                if !back {
                    let (ia, qp) = (&self.adapter.params.ia_name, self.queue_pair.handle.number());
                    tracing::warn!(%ia, qp, "the device kept work for {age:?}; its queue pair is reset");
                }
                self.stopped(control, back);
                Ok(())
            }
        }
    }

    fn has_all_work_back(&self, stop: &Stop) -> bool {
        self.send.harvest();
        if !Arc::ptr_eq(&self.send, &self.recv) {
            self.recv.harvest();
        }
        self.queue_pair.tx.is_past(stop.tx_mark) && self.queue_pair.rx.is_past(stop.rx_mark)
    }

    /// Enters the last phase. A device that still holds work is made to let go of it.
    fn stopped(&self, control: &mut Control, has_all_back: bool) {
        let qp = &self.queue_pair;
        // Receives of a shared queue leave no trace here: only a reset ensures that the device writes no more.
        if (!has_all_back || qp.srq.is_some())
            && let Err(error) = qp.handle.set_state(IBV_QPS_RESET)
        {
            tracing::debug!(%error, "a queue pair was not reset; its device may be gone");
        }
        if let Phase::Stopping(stop) = std::mem::replace(&mut control.phase, Phase::Stopped)
            && let Some(event) = stop.event
        {
            self.adapter.push_event(Some(&self.closed), event);
        }
    }

    /// The engine closes the channel and lets go of its buffers next, so the device must hold none when this returns.
    /// `false`: closed before, or by the parent of this process.
    pub(crate) fn stop_for_close(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) || self.adapter.forked() {
            return false;
        }
        let mut control = self.control();
        if !matches!(control.phase, Phase::Stopping(_) | Phase::Stopped) {
            self.begin_stop(&mut control, None);
        }
        if let Phase::Stopping(stop) = &mut control.phase {
            stop.event = None;
            let back = self.has_all_work_back(stop);
            self.stopped(&mut control, back);
        }
        self.adapter.unwatch(self.token());
        true
    }

    /// Gives back what it has of its queues. Nothing finds the channel any more.
    pub(crate) fn release(&self) {
        let id = self.control().id.take();
        // Outside the lock: this waits for the identifier's events to be acknowledged.
        drop(id);
        let number = self.queue_pair.srq.as_ref().map(|_| self.queue_pair.handle.number());
        self.recv.detach(self.slots[1], number);
        if !Arc::ptr_eq(&self.send, &self.recv) {
            self.send.detach(self.slots[0], None);
        }
        self.send.release(self.work[0]);
        self.recv.release(self.work[1]);
        self.adapter.channel_closed();
    }

    pub(crate) fn local_port(&self) -> u64 {
        self.control().id.as_ref().map_or(0, |id| id.local_port().into())
    }

    pub(crate) fn describe(&self) -> String {
        let peer = self.control().id.as_ref().and_then(CmId::peer_addr);
        let peer = peer.map_or_else(|| "not connected".to_owned(), |peer| format!("to {peer}"));
        format!(
            "{} port {}, queue pair {:#x}, {peer}, up to {} bytes inline",
            self.adapter.name,
            self.adapter.port,
            self.queue_pair.handle.number(),
            self.queue_pair.inline
        )
    }
}

/// Brings a queue pair to the state in which receives can be posted. RDMA CM supplies the rest of the attributes later.
fn init(adapter: &Adapter, qp: &Qp) -> std::io::Result<()> {
    let mut attr = blank_attr();
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = adapter.port;
    attr.qp_access_flags = adapter.remote_rights();
    qp.modify(&mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
}

/// Takes a channel off the count if its creation fails.
struct Uncount<'a>(&'a Adapter);

impl Drop for Uncount<'_> {
    fn drop(&mut self) {
        self.0.channel_closed();
    }
}
