//! The channels of a device, by number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_plugin::{ChannelAttr, Failure};
use libfabric_sys::consts::FI_REMOTE_WRITE;
use parking_lot::Mutex;

use crate::channel::ChannelInner;
use crate::channel::completion_queue::QueueInner;
use crate::channel::control_page::ControlPage;
use crate::channel::frames::Frames;
use crate::channel::shared_pool::SharedPool;
use crate::core::Core;
use crate::memory::MemoryRegion;
use crate::params::Endpoint;
use crate::status;
use crate::wire::control::MAX_CHANS;

/// The channels of a device.
pub struct ChannelTable {
    core: Arc<Core>,
    channels: Mutex<HashMap<u32, Arc<ChannelInner>>>,
    /// Channels the engine closed; dropped when libfabric has handed back their operations.
    closed: Mutex<Vec<u32>>,
    next: AtomicU32,
}

impl ChannelTable {
    pub fn new(core: &Arc<Core>) -> ChannelTable {
        ChannelTable {
            core: core.clone(),
            channels: Mutex::default(),
            closed: Mutex::default(),
            next: AtomicU32::new(1),
        }
    }

    pub fn get(&self, id: u32) -> Option<Arc<ChannelInner>> {
        self.channels.lock().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<ChannelInner>> {
        self.channels.lock().values().cloned().collect()
    }

    /// Makes a channel and enters it.
    pub fn create(
        &self,
        attr: &ChannelAttr,
        queues: [Option<Arc<QueueInner>>; 2],
        srq: Option<Arc<SharedPool>>,
    ) -> Result<Arc<ChannelInner>, Failure> {
        let core = &self.core;
        let page = ControlPage::new(|addr, len| match core.params.endpoint {
            Endpoint::Rdm => Ok(None),
            Endpoint::Msg if core.fabric.limits.framed => Ok(None),
            Endpoint::Msg => {
                let key = core.regions.secret(core.fabric.limits.mr_key_size);
                MemoryRegion::new(&core.fabric, addr, len, FI_REMOTE_WRITE, key, std::ptr::null_mut())
                    .map(Some)
                    .map_err(|errno| {
                        status::failure(core.fabric.library, "fi_mr_reg of a control page", errno.into())
                    })
            }
        })?;
        let frames = match core.fabric.limits.framed {
            true => Some(Frames::new(&core.fabric, &core.regions)?),
            false => None,
        };
        let mut channels = self.channels.lock();
        let id = loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed) & (MAX_CHANS - 1);
            if id != 0 && !channels.contains_key(&id) {
                break id;
            }
        };
        let channel = ChannelInner::new(core, id, attr, queues, srq, page, frames)?;
        channels.insert(id, channel.clone());
        drop(channels);
        core.start_polling();
        Ok(channel)
    }

    /// Notes a channel that the engine closed.
    pub fn close(&self, id: u32) {
        self.closed.lock().push(id);
        self.core.wake.now();
    }

    pub fn has_closed(&self) -> bool {
        !self.closed.lock().is_empty()
    }

    /// Drops the closed channels whose operations libfabric has handed back. The caller holds the reader's lock, so no
    /// thread handles a completion of a channel meanwhile. The caller drops the result after that lock.
    pub fn take_closed(&self) -> Vec<Arc<ChannelInner>> {
        let mut gone = Vec::new();
        self.closed.lock().retain(|id| {
            let mut channels = self.channels.lock();
            let is_free = channels
                .get(id)
                .is_none_or(|channel| channel.state.try_lock().is_some_and(|st| st.inflight == 0));
            if is_free && let Some(channel) = channels.remove(id) {
                self.core.regions.release(&channel.held_keys.lock());
                gone.push(channel);
            }
            !is_free
        });
        gone
    }

    /// Takes all channels out of the table.
    pub fn drain(&self) -> HashMap<u32, Arc<ChannelInner>> {
        std::mem::take(&mut *self.channels.lock())
    }

    #[cfg(any(test, fuzzing))]
    pub fn remove(&self, id: u32) {
        self.channels.lock().remove(&id);
    }

    #[cfg(any(test, fuzzing))]
    pub fn is_empty(&self) -> bool {
        self.channels.lock().is_empty()
    }
}
