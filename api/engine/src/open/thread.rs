//! The one thread of an IA: what must go on without calls of the application. Connection events, time-outs, graceful
//! disconnects, overflow of dispatchers that are not polled.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Event, EventKind};
use dat_types::{AsyncReason, ObjectId};
use rustix::event::epoll;

use crate::adapter::driver::take_events;
use crate::adapter::inner::IaInner;
use crate::adapter::progress::mailbox::{NOTHING, OWN, READY, wait_on};
use crate::base::deferred;
use crate::base::states::Stimulus;
use crate::evd::inner::Evd;
use crate::service_point::point::on_request;

/// The thread.
pub(crate) fn run(ia: &Arc<IaInner>) {
    let Ok(device) = ia.device("dat_ia_open") else { return };
    while !ia.progress.stop.load(Ordering::Acquire) {
        // An interruption is as good as an event: everything is looked at.
        let mut ready = [NOTHING; READY];
        let poller = std::os::fd::AsFd::as_fd(&ia.progress.poller);
        let n = wait_on(poller, ia.progress.next_wake(), &mut ready).unwrap_or(0);
        ia.progress.heard(&ready[..n]);
        if ia.progress.looks(&device) {
            match ia.progress.events.try_lock() {
                Some(mut events) => take_events(ia, &device, &mut events),
                // A waiter is at it. The descriptor stays readable as long as there is something, so this thread is
                // back at once if need be.
                None => std::thread::yield_now(),
            }
        }
        time_out(ia);
        let later = std::mem::take(&mut *ia.progress.later.lock());
        deferred::run(later);
        ia.progress.tick();
        attend_to(ia, &ready[..n]);
        ia.progress.call_agents();
    }
}

/// Dispatchers with a notification object that have completions.
fn attend_to(ia: &Arc<IaInner>, ready: &[epoll::Event]) {
    for event in ready {
        let Some(id) = event.data.u64().checked_sub(OWN) else { continue };
        let evd = ia.objects.lock().of::<Evd>().get(&ObjectId(id)).cloned();
        if let Some(evd) = evd {
            evd.0.attend();
        }
    }
}

pub(super) fn dispatch(ia: &Arc<IaInner>, event: &Event) {
    let stimulus = match event.kind {
        EventKind::REQUEST => return on_request(ia, event),
        EventKind::DEVICE_LOST => {
            tracing::error!(ia = %ia.id, "the device is lost");
            return ia.raise(ia.id, AsyncReason::IaCatastrophic);
        }
        EventKind::SRQ_LIMIT => {
            return ia.raise(dat_types::ObjectId(event.user), AsyncReason::SrqLowWatermark);
        }
        EventKind::PORT_DOWN | EventKind::PORT_UP => {
            return tracing::warn!(ia = %ia.id, kind = ?event.kind, "a port of the device changed its state");
        }
        EventKind::ESTABLISHED => Stimulus::Established,
        EventKind::REJECTED => Stimulus::PeerRejected,
        EventKind::REFUSED => Stimulus::Refused,
        EventKind::UNREACHABLE => Stimulus::Unreachable,
        EventKind::ACCEPT_FAILED => Stimulus::AcceptFailed,
        EventKind::DISCONNECTED => Stimulus::PeerDisconnected,
        EventKind::BROKEN => Stimulus::Broke,
        other => {
            // Once: it may go on.
            if !ia.progress.reported_unknown.swap(true, Ordering::Relaxed) {
                let kind = other;
                tracing::error!(ia = %ia.id, ?kind, "the provider raises events this version does not know");
            }
            return ia.raise(ia.id, AsyncReason::ProviderInternal);
        }
    };
    // An attempt that is gone was ended by the consumer; its late events mean nothing.
    let ep = ia.objects.lock().attempts.get(&event.user).cloned();
    if let Some(ep) = ep {
        deferred::run(ep.stimulate(event.user, stimulus, event.data()));
    }
}

fn time_out(ia: &Arc<IaInner>) {
    loop {
        let due = {
            let mut timers = ia.progress.timers.lock();
            match timers.peek() {
                Some(Reverse((at, _))) if *at <= Instant::now() => timers.pop(),
                _ => None,
            }
        };
        let Some(Reverse((_, attempt))) = due else { return };
        let ep = ia.objects.lock().attempts.get(&attempt).cloned();
        if let Some(ep) = ep {
            deferred::run(ep.stimulate(attempt, Stimulus::TimeUp, &[]));
        }
    }
}
