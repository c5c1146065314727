//! What the event thread does: everything RDMA CM and the device report, and channels that stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{Event, EventKind, SockAddr};
use rdma_sys::cm::*;
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::channel::Chan;
use crate::cm::CmEvent;
use crate::connect::Request;
use crate::device::{ANCHOR, ASYNC, BELL, CM, Dev, Source, TIMER, lock};
use crate::private;

impl Dev {
    pub(crate) fn poll_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
        if self.forked() {
            return 0;
        }
        let mut n = self.take_events(out);
        if n == out.len() {
            return n;
        }
        let blank = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(BELL) };
        let mut ready = [blank; 4];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = epoll::wait(&self.epoll, &mut ready, Some(&now)).unwrap_or(0);
        for event in &ready[..found] {
            match event.data.u64() {
                BELL => self.bell.drain(),
                TIMER => self.timer.drain(),
                CM => self.take_cm_events(),
                ASYNC => self.take_async_events(),
                _ => {}
            }
        }
        self.take_faults();
        self.look_at_stopping();
        n += self.take_events(&mut out[n..]);
        if !lock(&self.events).is_empty() {
            self.bell.signal();
        }
        n
    }

    fn take_events(&self, out: &mut [Event]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let next = lock(&self.events).pop_front();
            let Some((chan, event)) = next else { break };
            if chan.is_none_or(|chan| !chan.closed.load(Ordering::Acquire)) {
                out[n] = event;
                n += 1;
            }
        }
        n
    }

    fn take_faults(self: &Arc<Dev>) {
        let faults = std::mem::take(&mut *lock(&self.faults));
        if faults.is_empty() {
            return;
        }
        // What the peer said before counts: an orderly end stays one.
        self.take_cm_events();
        for token in faults {
            if let Some(chan) = self.channel(token) {
                let event = Event::new(EventKind::BROKEN, chan.attr.user);
                chan.finish(&mut chan.control(), event);
            }
        }
    }

    fn look_at_stopping(&self) {
        let stopping = lock(&self.stopping).clone();
        if stopping.is_empty() {
            return;
        }
        for chan in stopping {
            if chan.try_finish(&mut chan.control()) {
                lock(&self.stopping).retain(|other| other.token != chan.token);
            }
        }
        if !lock(&self.stopping).is_empty() {
            self.set_timer();
        }
    }

    fn take_cm_events(self: &Arc<Dev>) {
        while let Ok(event) = self.cm.next() {
            tracing::trace!(ia = %self.params.ia_name, kind = event.kind, status = event.status, "RDMA CM");
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

    fn cm_event(self: &Arc<Dev>, mut event: CmEvent) {
        if let Some(id) = event.new.take() {
            return self.request(&event, id);
        }
        let mut sources = self.sources();
        match sources.get_mut(&event.user) {
            Some(Source::Channel(chan)) => {
                let chan = chan.clone();
                drop(sources);
                chan.cm_event(&event);
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
    fn request(&self, event: &CmEvent, id: crate::cm::CmId) {
        let token = self.new_token();
        let mut sources = self.sources();
        let Some(Source::Listener(listening)) = sources.get(&event.user) else {
            drop(sources);
            // The listener has gone meanwhile.
            let _ = id.reject(false, &[]);
            return;
        };
        id.set_user(token);
        let data = self.params.style.unwrap(&event.data, private::REQUEST);
        let mut asked = Event::new(EventKind::REQUEST, listening.user).with_data(data);
        asked.request = token;
        asked.port = listening.port;
        asked.peer_port = id.peer_port().into();
        asked.peer = id.peer_addr().map_or(SockAddr::UNSPECIFIED, |peer| peer.ip().into());
        sources.insert(token, Source::Request(Request { id, reads: event.reads, gone: false }));
        drop(sources);
        self.push_event(None, asked);
    }

    fn take_async_events(self: &Arc<Dev>) {
        while let Ok((kind, user)) = self.context.async_event() {
            tracing::debug!(ia = %self.params.ia_name, kind, user, "the device reports");
            match kind {
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    if let Some(chan) = self.channel(user) {
                        chan.fault("the device reports a failure of the queue pair");
                    }
                }
                IBV_EVENT_COMM_EST => {
                    if let Some(chan) = self.channel(user) {
                        chan.data_came();
                    }
                }
                IBV_EVENT_SRQ_LIMIT_REACHED => self.push_event(None, Event::new(EventKind::SRQ_LIMIT, user)),
                IBV_EVENT_PORT_ERR if user == u64::from(self.port) => {
                    self.push_event(None, Event::new(EventKind::PORT_DOWN, 0));
                }
                IBV_EVENT_PORT_ACTIVE if user == u64::from(self.port) => {
                    self.push_event(None, Event::new(EventKind::PORT_UP, 0));
                }
                IBV_EVENT_DEVICE_FATAL => {
                    self.device_gone();
                    for token in self.channel_tokens() {
                        if let Some(chan) = self.channel(token) {
                            chan.fault("the device is gone");
                        }
                    }
                }
                IBV_EVENT_CQ_ERR => {
                    tracing::error!(ia = %self.params.ia_name, "a completion queue overflowed or failed");
                    self.device_gone();
                }
                _ => {}
            }
        }
    }

    /// Told once.
    fn device_gone(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.push_event(None, Event::new(EventKind::DEVICE_LOST, 0));
        }
    }

    fn channel(&self, token: u64) -> Option<Arc<Chan>> {
        match self.sources().get(&token) {
            Some(Source::Channel(chan)) => Some(chan.clone()),
            _ => None,
        }
    }

    fn channel_tokens(&self) -> Vec<u64> {
        let sources = self.sources();
        sources
            .iter()
            .filter(|(_, source)| matches!(source, Source::Channel(_)))
            .map(|(token, _)| *token)
            .collect()
    }
}
