//! Registered memory that peers may access.

use std::ops::{Bound, RangeBounds};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dat_engine::{Lmr, Memory};
use dat_types::{
    Error, LmrCookie, LmrTriplet, ObjectId, Privileges, Result, ReturnType, RmrTriplet, Subtype, VaType,
};

use crate::{Ia, Pz};

/// Registered memory, read and written by copies. Cheap to clone; freed with the last clone.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lmr: Lmr,
    len: usize,
    // Dropped after the registration.
    _pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or the region was freed by hand.
        let _ = self.lmr.free();
    }
}

/// A range of a region, for posting. Copies nothing; a post of it fails once the region was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    triplet: LmrTriplet,
    /// A context can be used again for another region, an id cannot.
    region: ObjectId,
}

impl Slice {
    /// The segment, if the region lives and is of this adapter.
    #[inline]
    pub(crate) fn triplet_on(&self, ia: &Ia) -> Result<LmrTriplet> {
        match ia.engine.is_region(self.triplet.context, self.region) {
            true => Ok(self.triplet),
            false => Err(STALE),
        }
    }
}

const STALE: Error = Error::fixed(
    "dat_ep_post",
    ReturnType::PrivilegesViolation,
    Subtype::None,
    "the region of a slice was freed, or belongs to another adapter",
);

impl Pz {
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

    /// Registers memory that the caller owns.
    ///
    /// # Safety
    /// Until the region is freed and all operations that name it have completed: the range stays mapped, readable, and
    /// writable if a write right is given; and no Rust reference to it is used while an operation, or a peer
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
}

impl Region {
    fn new(pz: &Pz, memory: Memory, privileges: Privileges) -> Result<Region> {
        let len = memory.len() as usize;
        let lmr = pz.0.ia.engine.lmr_create(&pz.0.engine, memory, privileges)?;
        Ok(Region(Arc::new(Inner { lmr, len, _pz: pz.clone() })))
    }

    /// The same memory registered once more, in another zone or with other rights. Either may be freed first.
    pub fn over(&self, pz: &Pz, privileges: Privileges) -> Result<Region> {
        Region::of(pz, dat_engine::Region::Lmr(&self.0.lmr), self.0.len, privileges)
    }

    fn shared(pz: &Pz, memory: Memory, cookie: LmrCookie, privileges: Privileges) -> Result<Region> {
        let len = memory.len() as usize;
        Region::of(pz, dat_engine::Region::Shared(memory, cookie), len, privileges)
    }

    fn of(pz: &Pz, region: dat_engine::Region<'_>, len: usize, privileges: Privileges) -> Result<Region> {
        let engine = &pz.0.ia.engine;
        let lmr = engine.lmr_create_from(region, &pz.0.engine, privileges, VaType::Virtual)?;
        Ok(Region(Arc::new(Inner { lmr, len, _pz: pz.clone() })))
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Copies bytes out. What a peer writes meanwhile is seen or not, byte by byte.
    ///
    /// Threads of this program that read and write the same bytes at the same time synchronise themselves: the copy is
    /// no atomic access.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.lmr.memory().read(offset as u64, out);
    }

    /// Copies bytes in. As [`Region::read`] among threads of this program.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.lmr.memory().write(offset as u64, bytes);
    }

    /// One byte, read anew each time and before anything read after it: for polling what a peer writes.
    ///
    /// # Panics
    /// When the offset does not lie inside.
    #[inline]
    pub fn poll_byte(&self, offset: usize) -> u8 {
        self.0.lmr.memory().read_volatile(offset as u64)
    }

    /// A range for posting.
    ///
    /// # Panics
    /// When the range does not lie inside, or is longer than 4 GiB.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice {
        Slice { triplet: self.triplet(range), region: self.0.lmr.id() }
    }

    pub(crate) fn triplet(&self, range: impl RangeBounds<usize>) -> LmrTriplet {
        let (offset, len) = self.bounds(range);
        self.0.lmr.triplet(offset, len)
    }

    pub(crate) fn inner(&self) -> &Lmr {
        &self.0.lmr
    }

    /// What a peer needs to access a range: to be sent to it, in private data or a message.
    ///
    /// # Panics
    /// When the range does not lie inside, or is longer than 4 GiB.
    pub fn remote(&self, range: impl RangeBounds<usize>) -> RmrTriplet {
        let (offset, len) = self.bounds(range);
        self.0.lmr.remote_triplet(offset, len)
    }

    /// `dat_lmr_free` now, even if there are clones: peers lose access. Its pages go when nothing in flight names
    /// them.
    pub fn free(&self) -> Result<()> {
        self.0.lmr.free()
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &Lmr {
        &self.0.lmr
    }

    fn bounds(&self, range: impl RangeBounds<usize>) -> (u64, u32) {
        bounds(self.0.len, range)
    }
}

/// Offset and length of `range` in something of `len` bytes.
pub(crate) fn bounds(len: usize, range: impl RangeBounds<usize>) -> (u64, u32) {
    let start = match range.start_bound() {
        Bound::Included(at) => *at,
        Bound::Excluded(at) => at.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(at) => at.saturating_add(1),
        Bound::Excluded(at) => *at,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "bytes {start}..{end} are outside of {len} bytes");
    let length = u32::try_from(end - start).expect("one range is at most 4 GiB - 1");
    (start as u64, length)
}
