//! Protection zones and the memory in them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dat_engine::Memory;
use dat_types::{LmrCookie, ObjectId, Privileges, Result};

use crate::{Buffer, Ia, Region, Srq, Window};

/// A protection zone: memory in it is usable through endpoints in it only. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pz(pub(crate) Arc<Owner>);

#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) engine: dat_engine::Pz,
    pub(crate) ia: Ia,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed under it; then there is nothing left to free.
        let _ = self.engine.free();
    }
}

impl Pz {
    pub(crate) fn new(ia: &Ia) -> Result<Pz> {
        Ok(Pz(Arc::new(Owner { engine: ia.engine.pz_create()?, ia: ia.clone() })))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// A buffer of `len` zeroed bytes, owned by the caller alone, for sends, receives, and as the local side of RDMA.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        Buffer::new(self, len)
    }

    /// A region of `len` zeroed bytes that peers may access with the remote rights of `privileges`. The memory comes
    /// from the provider, in the kind peers reach fastest.
    pub fn region(&self, len: usize, privileges: Privileges) -> Result<Region> {
        let memory = self.0.ia.engine.alloc(len as u64)?;
        Region::new(self, memory, privileges)
    }

    /// A region of plain heap memory; for comparison, and where memory of the provider's is scarce.
    pub fn heap_region(&self, len: usize, privileges: Privileges) -> Result<Region> {
        Region::new(self, self.0.ia.engine.heap(len)?, privileges)
    }

    /// A memory window, bound to nothing yet.
    pub fn window(&self) -> Result<Window> {
        Window::new(self)
    }

    /// A shared receive queue for at most `max_recvs` receives of at most `max_segments` segments each.
    pub fn srq(&self, max_recvs: u32, max_segments: u32) -> Result<Srq> {
        Srq::new(self, max_recvs, max_segments)
    }

    /// Registers memory that is somebody else's.
    ///
    /// # Safety
    /// Until the region is freed and all operations that name it have completed: the range stays mapped, readable, and
    /// writable where a write right is asked for; and no Rust reference to it is used while an operation, or a peer
    /// with a remote right, may write to it.
    pub unsafe fn register_foreign(
        &self,
        address: *mut u8,
        len: usize,
        privileges: Privileges,
    ) -> Result<Region> {
        // SAFETY: the caller's promise, which is the one asked for.
        let memory = unsafe { Memory::foreign(address as u64, len as u64, None) };
        Region::new(self, memory, privileges)
    }

    /// Registers memory that several processes share, under the name all of them give it. `DAT_INVALID_STATE` when it is
    /// not shared.
    ///
    /// # Safety
    /// As [`Pz::register_foreign`].
    pub unsafe fn register_shared(
        &self,
        address: *mut u8,
        len: usize,
        cookie: LmrCookie,
        privileges: Privileges,
    ) -> Result<Region> {
        // SAFETY: the caller's promise, which is the one asked for.
        let memory = unsafe { Memory::foreign(address as u64, len as u64, None) };
        Region::shared(self, memory, cookie, privileges)
    }

    /// Registers `len` bytes at `offset` of another device's memory (a GPU's, for one), exported as a dma-buf. Slices
    /// and peers name it by addresses from `address` on: where its device, or this process, has it.
    ///
    /// The processor does not reach it through the region: [`Region::read`] and the like panic. Not part of DAT;
    /// `DAT_MODEL_NOT_SUPPORTED` where the provider has no such memory, which `dat info` shows.
    pub fn register_dmabuf(
        &self,
        dmabuf: OwnedFd,
        offset: u64,
        len: usize,
        address: u64,
        privileges: Privileges,
    ) -> Result<Region> {
        Region::new(self, Memory::device(dmabuf, offset, len as u64, address), privileges)
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Pz {
        &self.0.engine
    }
}
