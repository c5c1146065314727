//! Memory that may be handed to a provider, and its registration.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::Device;
use crate::provider::Failure;
use crate::wire::{Access, Block, Keys, Status};

/// A stretch of memory with the promise that a provider and its peers may access it. Cheap to clone; what keeps it
/// alive goes with the last clone.
#[derive(Clone)]
pub struct Memory {
    addr: u64,
    len: u64,
    dmabuf: Option<Arc<Dmabuf>>,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// Where another device's memory is found.
struct Dmabuf {
    fd: OwnedFd,
    offset: u64,
}

impl Memory {
    /// Memory of somebody else's.
    ///
    /// # Safety
    /// As long as a clone of the result, or of a registration of it, exists (or, with `owner`, as long as that lives):
    /// the range stays mapped and readable, and writable where a write right is registered; and no Rust reference to
    /// it is used while an outstanding operation, or a peer with a remote right, may write to it.
    pub unsafe fn foreign(addr: u64, len: u64, owner: Option<Arc<dyn Any + Send + Sync>>) -> Memory {
        Memory { addr, len, dmabuf: None, _owner: owner }
    }

    /// Zeroed memory of this process, aligned to a page, of the plain heap. Panics where there is not so much.
    pub fn heap(len: usize) -> Memory {
        Memory::try_heap(len).expect("so much memory")
    }

    /// The same; a failure where there is not so much.
    pub fn try_heap(len: usize) -> Result<Memory, Failure> {
        let count = len.div_ceil(4096).max(1);
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|error| {
            Failure::new(Status::NO_RESOURCE, format!("{len} bytes of memory are not to be had: {error}"))
        })?;
        pages.resize(count, Page([0; 4096]));
        let pages = Arc::new(Pages(Box::into_raw(pages.into_boxed_slice())));
        let addr = pages.0.cast::<u8>() as u64;
        Ok(Memory { addr, len: len as u64, dmabuf: None, _owner: Some(pages) })
    }

    /// `len` bytes at `offset` of another device's memory, which posts name by addresses from `addr` on: where the
    /// process has it mapped, or where its device has it. The processor is not assumed to reach it.
    pub fn device(dmabuf: OwnedFd, offset: u64, len: u64, addr: u64) -> Memory {
        Memory { addr, len, dmabuf: Some(Arc::new(Dmabuf { fd: dmabuf, offset })), _owner: None }
    }

    pub(super) fn block(device: Device, block: Block) -> Memory {
        let owner = Arc::new(Allocation { device, block });
        Memory { addr: block.addr, len: block.len, dmabuf: None, _owner: Some(owner) }
    }

    /// Whether it is memory of another device, which [`Memory::read`] and the like do not reach.
    pub fn is_device(&self) -> bool {
        self.dmabuf.is_some()
    }

    pub(super) fn dmabuf(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.dmabuf.as_ref().map(|dmabuf| (dmabuf.fd.as_fd(), dmabuf.offset))
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a range of 0 bytes cannot be registered")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Copies bytes out. What a peer writes meanwhile may be seen or not, byte by byte.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.at(offset, out.len()) as *const u8;
        // SAFETY: in range, checked by `at`; mapped by the promise of `foreign` or by ownership. The copy goes through
        // raw pointers, so that a peer's concurrent write is a torn value and not a broken reference.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len()) as *mut u8;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// The byte at `offset`, read anew each time: for polling memory that a peer writes.
    ///
    /// # Panics
    /// When the offset does not lie inside, or is in memory of another device.
    #[inline]
    pub fn read_volatile(&self, offset: u64) -> u8 {
        // SAFETY: as in `read`; an atomic load of a byte cannot tear and orders what is read after it.
        unsafe {
            (*(self.at(offset, 1) as *const std::sync::atomic::AtomicU8))
                .load(std::sync::atomic::Ordering::Acquire)
        }
    }

    #[inline]
    fn at(&self, offset: u64, len: usize) -> usize {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(inside, "bytes {offset}..+{len} are outside of memory of {} bytes", self.len);
        assert!(!self.is_device(), "memory of another device is not read or written by the processor");
        (self.addr + offset) as usize
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:#x}, {} bytes)", self.addr, self.len)
    }
}

#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "accessed by address only")] [u8; 4096]);

/// Heap pages owned by pointer, so that no reference to them exists while peers write.
struct Pages(*mut [Page]);

// SAFETY: the pages are plain bytes, accessed by copies through raw pointers only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` and dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

struct Allocation {
    device: Device,
    block: Block,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let status = self.device.free(self.block);
        if status.0 < 0 {
            tracing::error!(?status, addr = self.block.addr, "the provider could not free its memory");
        }
    }
}

/// Registered memory; dropping it ends the registration.
pub struct Registration {
    device: Device,
    memory: Memory,
    access: Access,
    domain: u32,
    keys: Keys,
}

impl Registration {
    pub(super) fn new(
        device: Device,
        memory: Memory,
        access: Access,
        domain: u32,
        keys: Keys,
    ) -> Registration {
        Registration { device, memory, access, domain, keys }
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The protection domain.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// The keys.
    pub fn keys(&self) -> Keys {
        self.keys
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let status = self.device.deregister(self.keys);
        if status.0 < 0 {
            tracing::error!(?status, memory = ?self.memory, "the provider could not end a registration");
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("memory", &self.memory)
            .field("access", &self.access)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
