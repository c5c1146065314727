//! What the handles of one device share: the plugin's object and its tables.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::object::Object;
use super::tables::Tables;
use crate::abi::{Block, DeviceAttr, Keys, Status};

pub(super) struct Inner {
    pub(super) object: Object,
    pub(super) tables: Tables,
    pub(super) attr: DeviceAttr,
    /// The log has a line that the provider claims more than there was room for.
    pub(super) overran: AtomicBool,
}

impl Inner {
    /// The provider gave more than there was room for, or claims so: none of it is taken.
    #[cold]
    pub(super) fn overran(&self, what: &str, claimed: usize, room: usize) -> usize {
        if !self.overran.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "dat.plugin", claimed, room,
                "the provider breaks the plugin interface: it claims to have given more {what} than there was room \
                 for; none of them is taken, now and later"
            );
        }
        0
    }

    /// Ends a registration.
    pub(super) fn deregister(&self, keys: Keys) -> Status {
        // SAFETY: `self` keeps the plugin's device open. The plugin gave out the keys, and their one owner is dropped.
        unsafe { (self.tables.device.deregister)(self.object.ctx, keys) }
    }

    /// Frees memory of the provider.
    pub(super) fn free(&self, block: Block) -> Status {
        // SAFETY: `self` keeps the plugin's device open. The plugin gave out the block, and its one owner is dropped;
        // registrations in it keep it alive.
        unsafe { (self.tables.device.free)(self.object.ctx, block) }
    }

    pub(super) fn close_window(&self, window: u64) -> Status {
        // SAFETY: `self` keeps the plugin's device open. The plugin gave out the window, and its one owner is dropped.
        unsafe { (self.tables.device.close_window)(self.object.ctx, window) }
    }
}

/// A descriptor of a plugin's, borrowed for as long as its object lives.
pub(super) fn borrow<'a>(fd: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: the contract: the descriptor stays open as long as the object that gave it, which `'a` is tied to by
    // the signatures of the callers.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
