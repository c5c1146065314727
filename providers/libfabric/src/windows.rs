//! Memory windows: each binding is a registration of its own of just the range, with a key of its own, so the fabric
//! itself keeps peers inside. A binding before it ends when the new one completes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_plugin::{Access, Status};
use parking_lot::Mutex;

use crate::device::Dev;

/// The windows of a device.
#[derive(Default)]
pub struct Windows {
    open: Mutex<HashMap<u64, Window>>,
    next: AtomicU64,
}

#[derive(Clone, Copy)]
struct Window {
    domain: u32,
    /// Key it is bound under, or 0.
    rkey: u32,
}

/// What a binding changed: the key before, to be ended when it completes, and the key now.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub before: u32,
    pub now: u32,
}

impl Windows {
    pub fn open(&self, domain: u32) -> u64 {
        let window = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(window, Window { domain, rkey: 0 });
        window
    }

    /// Its key, or 0; `None`: there is no such window.
    pub fn close(&self, window: u64) -> Option<u32> {
        self.open.lock().remove(&window).map(|window| window.rkey)
    }
}

impl Dev {
    pub fn bind_window(
        &self,
        window: u64,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<Bound, Status> {
        let mut open = self.windows.open.lock();
        let entry = open.get_mut(&window).ok_or(Status::INVALID)?;
        let now = match range {
            None => 0,
            Some(range) => self
                .regions
                .open_part(&self.fabric, self.shared_endpoint(), range, access, entry.domain)
                .map_err(|failure| {
                    tracing::warn!(%failure, "a window is not bound");
                    failure.status
                })?,
        };
        Ok(Bound { before: std::mem::replace(&mut entry.rkey, now), now })
    }

    /// Takes back a binding whose request was not accepted.
    pub fn unbind_window(&self, window: u64, bound: Bound) {
        if let Some(entry) = self.windows.open.lock().get_mut(&window) {
            entry.rkey = bound.before;
        }
        if bound.now != 0 {
            drop(self.regions.unpublish(bound.now));
        }
    }
}
