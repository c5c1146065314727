//! Registered memory that peers may access.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use dat_engine::{Lmr, Memory};
use dat_types::{LmrCookie, LmrTriplet, Privileges, Result, RmrTriplet, VaType};

use crate::Pz;

/// Registered memory, read and written by copies. Cheap to clone; freed with the last clone.
#[derive(Clone, Debug)]
pub struct Region(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    lmr: Lmr,
    len: usize,
    // Dropped after the registration.
    _pz: Pz,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or the region was freed by hand.
        let _ = self.lmr.free();
    }
}

/// A stretch of a region, for posting. Copies nothing; valid as long as the region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice(pub(crate) LmrTriplet);

impl Region {
    pub(crate) fn new(pz: &Pz, memory: Memory, privileges: Privileges) -> Result<Region> {
        let len = memory.len() as usize;
        let lmr = pz.0.ia.engine.lmr_create(&pz.0.engine, memory, privileges)?;
        Ok(Region(Arc::new(Owner { lmr, len, _pz: pz.clone() })))
    }

    /// The same memory registered once more, in another zone or with other rights. Either may be freed first.
    pub fn over(&self, pz: &Pz, privileges: Privileges) -> Result<Region> {
        Region::of(pz, dat_engine::Region::Lmr(&self.0.lmr), self.0.len, privileges)
    }

    pub(crate) fn shared(
        pz: &Pz,
        memory: Memory,
        cookie: LmrCookie,
        privileges: Privileges,
    ) -> Result<Region> {
        let len = memory.len() as usize;
        Region::of(pz, dat_engine::Region::Shared(memory, cookie), len, privileges)
    }

    fn of(pz: &Pz, region: dat_engine::Region<'_>, len: usize, privileges: Privileges) -> Result<Region> {
        let engine = &pz.0.ia.engine;
        let lmr = engine.lmr_create_from(region, &pz.0.engine, privileges, VaType::Virtual)?;
        Ok(Region(Arc::new(Owner { lmr, len, _pz: pz.clone() })))
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Copies bytes out. What a peer writes meanwhile is seen or not, byte by byte.
    ///
    /// # Panics
    /// When the range does not lie inside, or is memory of another device.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.lmr.memory().read(offset as u64, out);
    }

    /// Copies bytes in.
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

    /// A stretch for posting.
    ///
    /// # Panics
    /// When the range does not lie inside, or is longer than 4 GiB.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice {
        let (offset, len) = self.bounds(range);
        Slice(self.0.lmr.triplet(offset, len))
    }

    /// What a peer needs to access a stretch: to be sent to it, in private data or a message.
    ///
    /// # Panics
    /// When the range does not lie inside, or is longer than 4 GiB.
    pub fn remote(&self, range: impl RangeBounds<usize>) -> RmrTriplet {
        let (offset, len) = self.bounds(range);
        self.0.lmr.remote_triplet(offset, len)
    }

    /// `dat_lmr_free` now, whatever clones there are: peers lose access. Its pages go when nothing in flight names
    /// them.
    pub fn free(&self) -> Result<()> {
        self.0.lmr.free()
    }

    /// The layer below.
    pub fn engine(&self) -> &Lmr {
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
    let length = u32::try_from(end - start).expect("one stretch is at most 4 GiB - 1");
    (start as u64, length)
}
