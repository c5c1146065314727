//! Registration and allocation of memory.

use std::collections::BTreeMap;

use dat_kit::{Heap, Stretch};
use dat_plugin::{Access, Block, Failure, Keys, Status};

use crate::device::LoopDevice;

/// The longest registration, in bytes.
pub const MAX_REGION: u64 = 1 << 40;

/// What a device has allocated, by handle.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    by_handle: BTreeMap<u64, Heap>,
    last: u64,
}

impl LoopDevice {
    pub(crate) fn register_memory(
        &self,
        addr: u64,
        len: u64,
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        self.params.inject("register")?;
        let every = Access::LOCAL_READ
            | Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::WINDOW;
        let refuse = |status, why: &str| {
            let name = &self.params.ia_name;
            Err(Failure::new(status, format!("{name}: registration of {len} bytes at {addr:#x}: {why}")))
        };
        if len == 0 || len > MAX_REGION || addr.checked_add(len).is_none() {
            return refuse(Status::INVALID, "no range of memory, or above 2^40 bytes");
        }
        if !every.contains(access) {
            return refuse(Status::INVALID, "unknown access right");
        }
        let memory = registered(addr, len);
        let mut state = self.network.lock();
        let Some(device) = state.devices.get_mut(self.index) else {
            return refuse(Status::INVALID, "the device is closed");
        };
        match device.keys.insert(memory, access, domain) {
            Some(keys) => Ok(keys),
            None => refuse(Status::NO_RESOURCE, "the device has max_regions registrations; end one first"),
        }
    }

    /// Remote access happens under the network's lock, so none goes on once this has it.
    pub(crate) fn deregister_memory(&self, keys: Keys) -> Status {
        let mut state = self.network.lock();
        match state.devices.get_mut(self.index).is_some_and(|device| device.keys.remove(keys)) {
            true => Status::OK,
            false => Status::INVALID,
        }
    }

    pub(crate) fn alloc_memory(&self, len: u64) -> Result<Block, Failure> {
        self.params.inject("alloc")?;
        let heap = usize::try_from(len).ok().filter(|_| len <= MAX_REGION).and_then(Heap::zeroed);
        let Some(heap) = heap else {
            let message = format!("{}: not enough memory for {len} bytes", self.params.ia_name);
            return Err(Failure::new(Status::NO_RESOURCE, message));
        };
        let mut blocks = self.blocks();
        blocks.last += 1;
        let block = Block { addr: heap.addr() as u64, len: heap.len() as u64, handle: blocks.last };
        blocks.by_handle.insert(block.handle, heap);
        Ok(block)
    }

    pub(crate) fn free_memory(&self, block: Block) -> Status {
        let mut blocks = self.blocks();
        let own = blocks.by_handle.get(&block.handle).is_some_and(|heap| heap.addr() as u64 == block.addr);
        if !own {
            return Status::INVALID;
        }
        blocks.by_handle.remove(&block.handle);
        Status::OK
    }
}

/// The one place where this provider takes somebody's word for a range of memory.
#[allow(unsafe_code)]
fn registered(addr: u64, len: u64) -> Stretch {
    // SAFETY: the contract of `Device::register`: the memory stays valid until `deregister` returned. The host keeps
    // it: its `Registration` owns the `Memory`, whose maker vouched for the range. This provider uses the stretch only
    // while it is in the device's key table, under the network's lock.
    unsafe { Stretch::new(addr as usize, len as usize) }
}
