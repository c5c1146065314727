//! Memory that may be handed to a provider, and its registration.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::copy::{copy_in, copy_out};
use super::inner::Inner;
use crate::abi::{Access, Block, Keys, Status};
use crate::provider::Failure;

/// A range of memory with the promise that a provider and its peers may access it. Cheap to clone; the owner of the memory
/// is dropped with the last clone.
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
    /// Memory that this type does not own.
    ///
    /// # Safety
    /// As long as a clone of the result, or of a registration of it, exists (or, with `owner`, as long as that lives):
    /// the range stays mapped and readable, and writable where a write right is registered; and no Rust reference to
    /// it is used while an outstanding operation, or a peer with a remote right, may write to it.
    pub unsafe fn foreign(addr: u64, len: u64, owner: Option<Arc<dyn Any + Send + Sync>>) -> Memory {
        Memory { addr, len, dmabuf: None, _owner: owner }
    }

    /// Zeroed memory of the heap, aligned to a page. Panics when there is not enough.
    pub fn heap(len: usize) -> Memory {
        Memory::try_heap(len).expect("enough memory")
    }

    /// As [`Memory::heap`], but fails when there is not enough.
    pub fn try_heap(len: usize) -> Result<Memory, Failure> {
        let count = len.div_ceil(4096).max(1);
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|error| {
            Failure::new(Status::NO_RESOURCE, format!("not enough memory for {len} bytes: {error}"))
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

    /// The first `len` bytes of a provider's block, which may be longer: what was asked for, and no more.
    pub(super) fn block(device: Arc<Inner>, block: Block, len: u64) -> Memory {
        let owner = Arc::new(Allocation { device, block });
        Memory { addr: block.addr, len: len.min(block.len), dmabuf: None, _owner: Some(owner) }
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

    /// Copies bytes out. Each byte that another thread, a device or a peer writes meanwhile has its old or its new value.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.at(offset, out.len()) as *const u8;
        // SAFETY: `at` checked the range; it stays mapped by the promise of `foreign` or by ownership. `out` is this
        // call's alone.
        unsafe { copy_out(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in, byte by byte as [`Memory::read`] does.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len()) as *mut u8;
        // SAFETY: `at` checked the range; it stays mapped by the promise of `foreign` or by ownership. `bytes` is borrowed.
        unsafe { copy_in(bytes.as_ptr(), to, bytes.len()) }
    }

    /// The byte at `offset`, read anew each time: for polling memory that a peer writes.
    ///
    /// # Panics
    /// When the offset does not lie inside, or is in memory of another device.
    #[inline]
    pub fn read_volatile(&self, offset: u64) -> u8 {
        // SAFETY: `at` checked the range, which stays mapped. The load is atomic, so that it may race with writers.
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

// SAFETY: the pages are plain bytes; only atomic copies through raw pointers access them.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`: atomic copies may run on several threads at once.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `try_heap` made the pointer by `Box::into_raw`, and this owner is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

struct Allocation {
    device: Arc<Inner>,
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

/// Registered memory; dropping it ends the registration. If the provider fails to end it, the memory is never freed.
pub struct Registration {
    device: Arc<Inner>,
    memory: Memory,
    access: Access,
    domain: u32,
    keys: Keys,
}

impl Registration {
    pub(super) fn new(
        device: Arc<Inner>,
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
            // The device, or peers, may still write there. The memory is never given back.
            std::mem::forget(self.memory.clone());
            tracing::error!(
                ?status, memory = ?self.memory,
                "the provider did not end a registration; its memory stays allocated until the process ends"
            );
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

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::super::{BelowChannel, BelowListener, BelowQueue, BelowSrq, Device};
    use super::*;
    use crate::abi::{ChannelAttr, DeviceAttr, Event, RejectReason};
    use crate::provider;

    /// A device that registers anything and ends registrations with a status of the test's choice.
    struct Stubborn {
        ends_with: Status,
        ended: Arc<AtomicU32>,
    }

    impl provider::Device for Stubborn {
        type Channel = BelowChannel;
        type Queue = BelowQueue;
        type Listener = BelowListener;
        type Srq = BelowSrq;

        fn attr(&self) -> DeviceAttr {
            DeviceAttr { max_segments: 1, ..DeviceAttr::default() }
        }

        fn open_queue(&self, _: u32) -> Result<Arc<BelowQueue>, Failure> {
            unreachable!("not called")
        }

        fn open_channel(
            &self,
            _: &ChannelAttr,
            _: Option<&Arc<BelowQueue>>,
            _: Option<&Arc<BelowQueue>>,
        ) -> Result<Arc<BelowChannel>, Failure> {
            unreachable!("not called")
        }

        fn listen(&self, _: u64, _: u64) -> Result<Arc<BelowListener>, Failure> {
            unreachable!("not called")
        }

        fn register(&self, _: u64, _: u64, _: Access, _: u32) -> Result<Keys, Failure> {
            Ok(Keys { lkey: 1, rkey: 2 })
        }

        fn deregister(&self, _: Keys) -> Status {
            self.ended.fetch_add(1, Ordering::Relaxed);
            self.ends_with
        }

        fn reject(&self, _: u64, _: RejectReason, _: &[u8]) -> Status {
            Status::INVALID
        }

        fn poll_events(&self, _: &mut [Event]) -> usize {
            0
        }

        fn event_fd(&self) -> RawFd {
            -1
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn close(&self) {}
    }

    /// Says when memory is given back to its owner.
    struct Owner(Arc<AtomicBool>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether memory was freed after its registration ended with this status.
    fn is_freed_after(ends_with: Status) -> bool {
        let (freed, ended) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicU32>::default());
        let device = Device::of(Arc::new(Stubborn { ends_with, ended: ended.clone() })).expect("a device");
        // SAFETY: the range is registered with a device that accesses nothing.
        let memory = unsafe { Memory::foreign(0x1000, 4096, Some(Arc::new(Owner(freed.clone())))) };
        drop(device.register(memory, Access::REMOTE_WRITE, 0).expect("a registration"));
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        freed.load(Ordering::Relaxed)
    }

    #[test]
    fn memory_is_kept_when_its_registration_does_not_end() {
        assert!(is_freed_after(Status::OK));
        assert!(!is_freed_after(Status::IO), "the device may still write to it");
        assert!(!is_freed_after(Status::PANICKED), "the device may still write to it");
    }

    /// Under miri this fails unless the copies are atomic.
    #[test]
    fn two_threads_copy_the_same_bytes_without_a_data_race() {
        const ROUNDS: u8 = if cfg!(miri) { 3 } else { 100 };
        let memory = Memory::heap(100);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=ROUNDS).for_each(|round| memory.write(0, &[round; 100])));
            let mut seen = [0; 100];
            for _ in 0..ROUNDS {
                memory.read(0, &mut seen);
                assert!(seen.iter().all(|byte| *byte <= ROUNDS), "{seen:?}");
            }
        });
        let mut last = [0; 100];
        memory.read(0, &mut last);
        assert_eq!(last, [ROUNDS; 100]);
    }
}
