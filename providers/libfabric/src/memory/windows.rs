//! Memory windows. Each binding registers just its range under a new key, so the fabric itself keeps peers inside. The
//! binding before it ends when the new one completes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_plugin::{Failure, Status};
use parking_lot::Mutex;

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

/// A binding: the key before, which ends when the binding completes, and the key now.
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

    /// Closes a window and returns its key, or 0 if it is not bound. `None`: there is no such window.
    pub fn close(&self, window: u64) -> Option<u32> {
        self.open.lock().remove(&window).map(|window| window.rkey)
    }

    /// Binds a window to a range, which `register` registers for a protection domain, or to nothing.
    pub fn bind(
        &self,
        window: u64,
        range: Option<(u64, u64)>,
        register: impl FnOnce((u64, u64), u32) -> Result<u32, Failure>,
    ) -> Result<Bound, Status> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&window).ok_or(Status::INVALID)?;
        let now = match range {
            None => 0,
            Some(range) => register(range, entry.domain).map_err(|failure| {
                tracing::warn!(%failure, "cannot bind a window");
                failure.status
            })?,
        };
        Ok(Bound { before: std::mem::replace(&mut entry.rkey, now), now })
    }

    /// Restores the key that a window had before a binding.
    pub fn restore(&self, window: u64, bound: Bound) {
        if let Some(entry) = self.open.lock().get_mut(&window) {
            entry.rkey = bound.before;
        }
    }
}
