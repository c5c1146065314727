//! libfabric's connection events.

use std::mem::size_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_kit::Qualifier;
use dat_plugin::{Event, EventKind, SockAddr};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;

use crate::channel::{ChannelInner, Phase};
use crate::connected::{Connector, PendingRequest};
use crate::core::CreditDelay;
use crate::fabric::info::{Info, raw_of};
use crate::status;
use crate::wire::hello::{Hello, Kind};

/// Most events of one call.
const MAX_EVENTS: usize = 256;

/// Room for an event with the most data.
#[repr(C, align(8))]
struct Entry([u8; size_of::<fi_eq_cm_entry>() + 512]);

impl Connector {
    /// Takes all connection events; returns how many.
    pub fn take_events(&self) -> usize {
        let _reading = self.reading.lock();
        self.take_events_locked()
    }

    /// The same unless another thread is taking events.
    pub fn take_events_if_free(&self) {
        if let Some(_reading) = self.reading.try_lock()
            && self.take_events_locked() > 0
        {
            // There may be another socket to sleep on.
            self.core.wake.now();
        }
    }

    /// The same; the caller holds the lock for reading events.
    pub fn take_events_locked(&self) -> usize {
        let mut taken = 0;
        while taken < MAX_EVENTS && self.take_one_event() {
            taken += 1;
        }
        self.core.endpoints.close_dead();
        if taken == 0 {
            self.deferred.lock().close_old(&self.core.fabric);
        }
        taken
    }

    fn take_one_event(&self) -> bool {
        let mut entry = Entry([0; size_of::<Entry>()]);
        let mut event = 0;
        // SAFETY: the core keeps the queue open; `entry` has the length given.
        let len = unsafe {
            fi_eq_read(self.core.fabric.eq, &mut event, entry.0.as_mut_ptr().cast(), entry.0.len(), 0)
        };
        if len as i32 == -FI_EAVAIL {
            return self.take_error_event();
        }
        if len < size_of::<fi_eq_cm_entry>() as isize {
            if len < 0 && len as i32 != -libc::EAGAIN {
                tracing::error!(error = len, "fi_eq_read");
            }
            return false;
        }
        // SAFETY: libfabric filled an entry of this type: `len` is at least its size, and `Entry` is aligned for it.
        let head = unsafe { &*entry.0.as_ptr().cast::<fi_eq_cm_entry>() };
        let data = &entry.0[size_of::<fi_eq_cm_entry>()..len as usize];
        match event {
            FI_CONNREQ => self.on_request(head, data),
            FI_CONNECTED => self.on_connected(head.fid, data),
            FI_SHUTDOWN => self.on_shutdown(head.fid),
            other => tracing::debug!(event = other, "an unexpected connection event"),
        }
        true
    }

    fn take_error_event(&self) -> bool {
        let mut data = [0u8; 512];
        let mut entry = fi_eq_err_entry {
            fid: ptr::null_mut(),
            context: ptr::null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
        };
        // SAFETY: the core keeps the queue open; `entry` is filled, and its buffer has the length given.
        let len = unsafe { fi_eq_readerr(self.core.fabric.eq, &mut entry, 0) };
        if len <= 0 {
            return false;
        }
        let given = entry.err_data_size.min(data.len());
        let data = if entry.err_data == data.as_mut_ptr().cast() { &data[..given] } else { &[][..] };
        let Some(chan) = self.channel_of(entry.fid) else { return true };
        let mut st = chan.lock();
        let refusal = self.read_hello(data);
        tracing::debug!(error = entry.err, refusal = refusal.is_some(), "a connection failed");
        match (st.phase, refusal) {
            (Phase::Connecting, Some((Hello { kind: Kind::Reject, .. }, data))) => {
                chan.end(&mut st, EventKind::REJECTED, data, None);
            }
            (Phase::Connecting, Some(_)) => chan.end(&mut st, EventKind::REFUSED, &[], None),
            (Phase::Connecting, None) => {
                chan.end(&mut st, status::of_connect(entry.err), &[], None);
            }
            _ => {
                drop(st);
                self.on_shutdown(entry.fid);
            }
        }
        true
    }

    fn channel_of(&self, fid: *mut fid) -> Option<Arc<ChannelInner>> {
        self.core.endpoints.channel(fid).and_then(|id| self.channels.get(id))
    }

    fn on_request(&self, head: &fi_eq_cm_entry, data: &[u8]) {
        if head.info.is_null() {
            return;
        }
        // The reader of the event owns its entry.
        let mut info = Info { library: self.core.fabric.library, head: head.info };
        if self.core.fabric.limits.framed {
            info.fit_to_frames();
        }
        let listener = self.listeners.lock().get(&(head.fid as usize)).copied();
        let hello = self.read_hello(data).filter(|(hello, _)| hello.kind == Kind::Request);
        let (Some((user, port)), Some((hello, data))) = (listener, hello) else {
            tracing::warn!("a malformed connection request is refused");
            return self.refuse(&info, Kind::Refuse, &[]);
        };
        if hello.quotient != Qualifier::new(port).quotient {
            tracing::debug!("a request for another qualifier of this port is refused");
            return self.refuse(&info, Kind::Refuse, &[]);
        }
        let request = self.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = info.first();
        let peer = raw_of(entry.dest_addr, entry.dest_addrlen).and_then(|raw| raw.socket());
        let mut event = Event::new(EventKind::REQUEST, user).with_data(data);
        event.request = request;
        event.port = port;
        event.qos = hello.qos;
        event.peer = peer.map_or(SockAddr::UNSPECIFIED, |peer| SockAddr::from(peer.ip()));
        event.peer_port = peer.map_or(0, |peer| peer.port().into());
        self.requests.lock().insert(request, PendingRequest { info, hello, port });
        self.core.event(None, event);
    }

    fn on_connected(&self, fid: *mut fid, data: &[u8]) {
        let Some(chan) = self.channel_of(fid) else { return };
        let mut st = chan.lock();
        // The accepting side waits for the peer's confirmation.
        if st.phase != Phase::Connecting {
            return;
        }
        match self.read_hello(data) {
            Some((hello, data)) if hello.kind == Kind::Accept => {
                chan.set_peer(&mut st, &hello);
                st.pending.connected = true;
                chan.send_first_credit(&mut st);
                chan.establish(&mut st, data);
                chan.progress(&mut st, CreditDelay::None);
            }
            _ => {
                tracing::warn!("the peer accepted with a malformed handshake");
                chan.end(&mut st, EventKind::REFUSED, &[], None);
            }
        }
    }

    /// The peer's end is gone. What arrived before counts.
    fn on_shutdown(&self, fid: *mut fid) {
        self.progress.all_waiting();
        let Some(chan) = self.channel_of(fid) else { return };
        let mut st = chan.lock();
        let kind = if st.phase == Phase::Connecting { EventKind::REFUSED } else { EventKind::BROKEN };
        chan.end(&mut st, kind, &[], None);
    }
}
