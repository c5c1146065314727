//! The event thread's work: what RDMA CM and the device report, and channels that stop.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use dat_plugin::{Event, EventKind, SockAddr};
use rdma_sys::cm::*;
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::control::sources::{Request, Source, Sources};
use crate::data::adapter::{ANCHOR, ASYNC, Adapter, CM, FIRST_LOOK, SLOWEST_LOOK, TIMER, WAKEUP, lock};
use crate::sys::cm::{CmEvent, CmId};

/// An open device.
pub(crate) struct DeviceInner {
    /// Bound to the device's address: RDMA CM reports the device's removal to it.
    anchor: Mutex<Option<CmId>>,
    pub(crate) sources: Sources,
    pub(crate) adapter: Arc<Adapter>,
}

impl DeviceInner {
    pub(crate) fn new(adapter: Adapter, anchor: CmId) -> DeviceInner {
        DeviceInner {
            anchor: Mutex::new(Some(anchor)),
            sources: Sources::default(),
            adapter: Arc::new(adapter),
        }
    }

    /// Refuses open requests and forgets all events.
    pub(crate) fn close(&self) {
        let anchor = lock(&self.anchor).take();
        let sources: Vec<Source> = self.sources.lock().drain().map(|(_, source)| source).collect();
        for source in sources {
            if let Source::Request(Request { id, gone: false, .. }) = source {
                // Not by the consumer, which never saw the request.
                let _ = id.reject(false, &[]);
            }
        }
        drop(anchor);
        lock(&self.adapter.events).clear();
        lock(&self.adapter.stopping).clear();
    }

    pub(crate) fn poll_events(&self, out: &mut [Event]) -> usize {
        if self.adapter.forked() {
            return 0;
        }
        let mut n = self.take_events(out);
        if n == out.len() {
            return n;
        }
        let blank =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(WAKEUP) };
        let mut ready = [blank; 4];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = epoll::wait(&self.adapter.epoll, &mut ready, Some(&now)).unwrap_or(0);
        for event in &ready[..found] {
            match event.data.u64() {
                WAKEUP => self.adapter.wakeup.drain(),
                TIMER => self.adapter.timer.drain(),
                CM => self.take_cm_events(),
                ASYNC => self.take_async_events(),
                _ => {}
            }
        }
        self.take_faults();
        self.look_at_stopping();
        n += self.take_events(&mut out[n..]);
        if !lock(&self.adapter.events).is_empty() {
            self.adapter.wakeup.signal();
        }
        n
    }

    fn take_events(&self, out: &mut [Event]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let next = lock(&self.adapter.events).pop_front();
            let Some((closed, event)) = next else { break };
            if closed.is_none_or(|closed| !closed.load(Ordering::Acquire)) {
                out[n] = event;
                n += 1;
            }
        }
        n
    }

    fn take_faults(&self) {
        let faults = std::mem::take(&mut *lock(&self.adapter.faults));
        if faults.is_empty() {
            return;
        }
        // Events of the peer come first: an orderly disconnect stays one.
        self.take_cm_events();
        for token in faults {
            if let Some(channel) = self.sources.channel(token) {
                let event = Event::new(EventKind::BROKEN, channel.user());
                channel.finish(&mut channel.control(), event);
            }
        }
    }

    /// Looks at the channels whose work the device still holds, at intervals that grow with the time they took.
    fn look_at_stopping(&self) {
        let stopping = lock(&self.adapter.stopping).clone();
        let mut next = None;
        for token in stopping {
            match self
                .sources
                .channel(token)
                .and_then(|channel| channel.try_finish(&mut channel.control()).err())
            {
                None => self.adapter.unwatch(token),
                Some(age) => next = Some(next.map_or(age, |least| age.min(least))),
            }
        }
        if let Some(age) = next {
            self.adapter.set_timer(age.clamp(FIRST_LOOK, SLOWEST_LOOK));
        }
    }

    fn take_cm_events(&self) {
        while let Ok(event) = self.adapter.cm.next() {
            tracing::trace!(ia = %self.adapter.params.ia_name, kind = event.kind, status = event.status, "RDMA CM");
            if event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
                self.device_gone();
            }
            if event.user == ANCHOR {
                if event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
                    // The kernel waits for every identifier to go.
                    let anchor = lock(&self.anchor).take();
                    drop(anchor);
                }
                continue;
            }
            self.cm_event(event);
        }
    }

    fn cm_event(&self, mut event: CmEvent) {
        if let Some(id) = event.new.take() {
            return self.on_request(&event, id);
        }
        let mut sources = self.sources.lock();
        match sources.get_mut(&event.user) {
            Some(Source::Channel(channel)) => {
                let channel = channel.clone();
                drop(sources);
                channel.cm_event(&event);
            }
            Some(Source::Request(request)) => match event.kind {
                RDMA_CM_EVENT_TIMEWAIT_EXIT | RDMA_CM_EVENT_ADDR_CHANGE => {}
                _ => request.gone = true,
            },
            Some(Source::Listener(_)) if event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL => {
                let gone = sources.remove(&event.user);
                drop(sources);
                drop(gone);
            }
            Some(Source::Listener(_)) | None => {}
        }
    }

    /// A peer asks to connect.
    fn on_request(&self, event: &CmEvent, id: CmId) {
        let token = self.adapter.new_token();
        let mut sources = self.sources.lock();
        let Some(Source::Listener(listening)) = sources.get(&event.user) else {
            drop(sources);
            // The listener has gone meanwhile.
            let _ = id.reject(false, &[]);
            return;
        };
        let (quotient, data) = self.adapter.params.style.request(&event.data);
        if quotient.is_some_and(|quotient| quotient != listening.quotient) {
            drop(sources);
            tracing::debug!("a request is for another qualifier of this port");
            let _ = id.reject(false, &[]);
            return;
        }
        id.set_user(token);
        let mut request = Event::new(EventKind::REQUEST, listening.user).with_data(data);
        request.request = token;
        request.port = listening.port;
        request.peer_port = id.peer_port().into();
        request.peer = id.peer_addr().map_or(SockAddr::UNSPECIFIED, |peer| peer.ip().into());
        sources.insert(token, Source::Request(Request { id, reads: event.reads, gone: false }));
        drop(sources);
        self.adapter.push_event(None, request);
    }

    fn take_async_events(&self) {
        while let Ok((kind, user)) = self.adapter.context.async_event() {
            tracing::debug!(ia = %self.adapter.params.ia_name, kind, user, "the device reports");
            match kind {
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    if let Some(channel) = self.sources.channel(user) {
                        channel.queue_pair.fault("the device reports a failure of the queue pair");
                    }
                }
                IBV_EVENT_COMM_EST => {
                    if let Some(channel) = self.sources.channel(user) {
                        channel.data_arrived();
                    }
                }
                IBV_EVENT_SRQ_LIMIT_REACHED => {
                    self.adapter.push_event(None, Event::new(EventKind::SRQ_LIMIT, user))
                }
                IBV_EVENT_PORT_ERR if user == u64::from(self.adapter.port) => {
                    self.adapter.push_event(None, Event::new(EventKind::PORT_DOWN, 0));
                }
                IBV_EVENT_PORT_ACTIVE if user == u64::from(self.adapter.port) => {
                    self.adapter.push_event(None, Event::new(EventKind::PORT_UP, 0));
                }
                IBV_EVENT_DEVICE_FATAL => {
                    self.device_gone();
                    for channel in self.sources.channels() {
                        channel.queue_pair.fault("the device is gone");
                    }
                }
                IBV_EVENT_CQ_ERR => {
                    tracing::error!(ia = %self.adapter.params.ia_name, "a completion queue overflowed or failed");
                    self.device_gone();
                }
                _ => {}
            }
        }
    }

    /// Reports the loss of the device, once.
    fn device_gone(&self) {
        if !self.adapter.lost.swap(true, Ordering::AcqRel) {
            self.adapter.push_event(None, Event::new(EventKind::DEVICE_LOST, 0));
        }
    }
}
