//! The connected endpoints of a device, by address, and those that wait to be closed.

use std::collections::HashMap;

use libfabric_sys::inline::{fi_close, fi_shutdown};
use libfabric_sys::types::{fid, fid_ep};
use parking_lot::Mutex;

/// The connected endpoints of a device.
#[derive(Default)]
pub struct ConnectedEndpoints {
    /// Channel numbers by the address of their endpoint.
    channels: Mutex<HashMap<usize, u32>>,
    /// Shut down, and closed by [`ConnectedEndpoints::close_dead`].
    dead: Mutex<Vec<Dead>>,
}

struct Dead(*mut fid_ep);

// SAFETY: an endpoint may be closed from any thread (FI_THREAD_SAFE); the thread that takes it off the list closes it.
unsafe impl Send for Dead {}

impl ConnectedEndpoints {
    pub fn insert(&self, ep: *mut fid_ep, channel: u32) {
        self.channels.lock().insert(ep as usize, channel);
    }

    /// The channel of an endpoint that is in use.
    pub fn channel(&self, endpoint: *mut fid) -> Option<u32> {
        self.channels.lock().get(&(endpoint as usize)).copied()
    }

    /// Takes all channels whose endpoint is in use.
    pub fn drain(&self) -> Vec<u32> {
        self.channels.lock().drain().map(|(_, channel)| channel).collect()
    }

    /// Shuts an endpoint down, so that it touches no memory, and keeps it for [`ConnectedEndpoints::close_dead`].
    pub fn shut_down(&self, ep: *mut fid_ep) {
        self.channels.lock().remove(&(ep as usize));
        // SAFETY: the endpoint is open until `close_dead`. An endpoint that was never connected answers with an error.
        unsafe { fi_shutdown(ep, 0) };
        self.dead.lock().push(Dead(ep));
    }

    /// Closes the endpoints that were shut down. The caller holds the lock under which connection events are handled,
    /// so no event meets a closed endpoint.
    pub fn close_dead(&self) {
        let dead = std::mem::take(&mut *self.dead.lock());
        for Dead(ep) in dead {
            // SAFETY: shut down, in no table, and no event of it is being handled: the caller holds that lock.
            let result = unsafe { fi_close(ep.cast()) };
            if result != 0 {
                tracing::warn!(result, "cannot close an endpoint");
            }
        }
    }
}
