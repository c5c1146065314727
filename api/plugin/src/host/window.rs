//! Memory windows: keys for a part of registered memory, bound and unbound by requests.

use std::sync::Arc;

use super::inner::Inner;

/// A memory window; closed on drop.
pub struct Window {
    device: Arc<Inner>,
    id: u64,
}

impl Window {
    pub(super) fn new(device: Arc<Inner>, id: u64) -> Window {
        Window { device, id }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let status = self.device.close_window(self.id);
        if status.0 < 0 {
            tracing::error!(?status, window = self.id, "the provider could not close a memory window");
        }
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Window").field(&self.id).finish()
    }
}
