//! Registration and allocation of memory.

use std::collections::BTreeMap;

use dat_kit::{Heap, MemSpan};
use dat_plugin::{Access, Block, Failure, Keys, Status};

use crate::adapter::Adapter;
use crate::limits::MAX_REGION;
use crate::params::Params;

/// What a device has allocated, by handle.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    by_handle: BTreeMap<u64, Heap>,
    last: u64,
}

impl Adapter {
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
}

impl Blocks {
    pub(crate) fn alloc(&mut self, params: &Params, len: u64) -> Result<Block, Failure> {
        params.inject("alloc")?;
        let heap = usize::try_from(len).ok().filter(|_| len <= MAX_REGION).and_then(Heap::zeroed);
        let Some(heap) = heap else {
            let message = format!("{}: not enough memory for {len} bytes", params.ia_name);
            return Err(Failure::new(Status::NO_RESOURCE, message));
        };
        self.last += 1;
        let block = Block { addr: heap.addr() as u64, len: heap.len() as u64, handle: self.last };
        self.by_handle.insert(block.handle, heap);
        Ok(block)
    }

    pub(crate) fn free(&mut self, block: Block) -> Status {
        let own = self.by_handle.get(&block.handle).is_some_and(|heap| heap.addr() as u64 == block.addr);
        if !own {
            return Status::INVALID;
        }
        self.by_handle.remove(&block.handle);
        Status::OK
    }
}

/// The one place where this provider relies on the host for a range of memory.
#[allow(unsafe_code)]
fn registered(addr: u64, len: u64) -> MemSpan {
    // SAFETY: the contract of `Device::register`: the memory stays valid until `deregister` returned. The host keeps
    // that: its `Registration` owns the `Memory`, whose maker promised the range. This provider uses the span only
    // while it is in the device's key table, under the network's lock.
    unsafe { MemSpan::new(addr as usize, len as usize) }
}
