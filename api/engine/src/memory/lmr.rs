//! Local memory regions, and memory that outlives them until nothing in flight names it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_plugin::host::{Memory, SpanTable};
use dat_plugin::{Access, Caps};
use dat_types::{
    Error, IaCounter, LmrCookie, LmrTriplet, ObjectId, Privileges, Result, ReturnType, RmrTriplet, Subtype,
    VaType,
};

use super::pz::{Pz, PzRef};
use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object::{Kind, Life, object};
use crate::base::shared_memory::Backing;
use crate::base::{error, shared_memory, status_map};

/// Registered memory.
#[derive(Clone)]
pub struct Lmr(pub(crate) Arc<LmrInner>);

pub(crate) struct LmrInner {
    life: Life,
    /// Memory windows bound to it.
    windows: AtomicUsize,
    context: u32,
    rmr_context: u32,
    memory: Memory,
    origin: Origin,
    /// Of shared memory: what the system has behind it.
    backing: Option<Backing>,
    privileges: Privileges,
    pz: parking_lot::Mutex<Option<PzRef>>,
}

const KIND: Kind = Kind { handle: Subtype::HandleLmr, name: "memory region" };

/// What `dat_lmr_query` tells.
#[derive(Clone, Debug)]
pub struct LmrParam {
    /// The IA.
    pub ia: ObjectId,
    /// The protection zone.
    pub pz: Pz,
    /// What it was made from.
    pub origin: Origin,
    /// The registered range.
    pub memory: Memory,
    /// How addresses in its triplets are meant.
    pub va_type: VaType,
    /// The rights.
    pub privileges: Privileges,
    /// Key for local use.
    pub lmr_context: u32,
    /// Key for peers; 0 without a remote right.
    pub rmr_context: u32,
}

/// What is registered (`DAT_MEM_TYPE` and the region).
#[derive(Clone, Debug)]
pub enum Region<'a> {
    /// Memory of this process.
    Virtual(Memory),
    /// The memory of another region, which it outlives.
    Lmr(&'a Lmr),
    /// Memory shared by several processes, under the name all of them give it.
    Shared(Memory, LmrCookie),
}

/// What a region was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Memory of this process.
    Virtual,
    /// The region of this id.
    Lmr(ObjectId),
    /// Shared memory of this name.
    Shared(LmrCookie),
}

impl Ia {
    /// `dat_lmr_create` for plain virtual memory. The memory is kept until the region is freed and nothing outstanding
    /// names it.
    pub fn lmr_create(&self, pz: &Pz, memory: Memory, privileges: Privileges) -> Result<Lmr> {
        self.lmr_create_from(Region::Virtual(memory), pz, privileges, VaType::Virtual)
    }

    /// `dat_lmr_create` of any kind. `DAT_INVALID_STATE` for memory that is called shared and is not;
    /// `DAT_MODEL_NOT_SUPPORTED` for zero-based addresses.
    pub fn lmr_create_from(
        &self,
        region: Region<'_>,
        pz: &Pz,
        privileges: Privileges,
        va_type: VaType,
    ) -> Result<Lmr> {
        self.make_lmr(region, pz, privileges, va_type, false)
    }

    /// A region of zeroed memory of its own, that only the holder of the result can post: see [`ExclusiveLmr`].
    pub fn lmr_create_exclusive(&self, pz: &Pz, len: usize) -> Result<ExclusiveLmr> {
        // Peers do not reach it, so that the provider's memory for peers would be wasted on it.
        let memory = self.heap(len)?;
        let privileges = Privileges::LOCAL_READ | Privileges::LOCAL_WRITE;
        self.make_lmr(Region::Virtual(memory), pz, privileges, VaType::Virtual, true).map(ExclusiveLmr)
    }

    fn make_lmr(
        &self,
        region: Region<'_>,
        pz: &Pz,
        privileges: Privileges,
        va_type: VaType,
        exclusive: bool,
    ) -> Result<Lmr> {
        const CALL: &str = "dat_lmr_create";
        let device = self.device(CALL)?;
        if let Region::Lmr(lmr) = &region {
            lmr.check(CALL, self.inner.id)?;
        }
        pz.check(CALL, self.inner.id)?;
        let known = Privileges::ALL | Privileges::REMOTE_ATOMIC;
        if !known.contains(privileges) {
            let message = format!("privileges {:#x} have undefined bits", privileges.bits());
            return Err(error::parameter(CALL, Subtype::Arg6, message));
        }
        let (memory, origin) = match region {
            Region::Virtual(memory) => (memory, Origin::Virtual),
            Region::Lmr(lmr) => (lmr.0.memory.clone(), Origin::Lmr(lmr.0.life.id)),
            Region::Shared(memory, cookie) => (memory, Origin::Shared(cookie)),
        };
        let max = device.attr().max_region;
        if memory.len() == 0 || memory.len() > max {
            let message = format!("a region has 1 to {max} bytes, not {}", memory.len());
            return Err(error::parameter(CALL, Subtype::Arg4, message));
        }
        if memory.addr().checked_add(memory.len()).is_none() || memory.addr() == 0 {
            let message = format!("the range {memory:?} wraps around or is null");
            return Err(error::parameter(CALL, Subtype::Arg3, message));
        }
        if memory.is_device() && matches!(origin, Origin::Shared(_)) {
            let message = "memory of another device is shared by its descriptor, not by a cookie";
            return Err(error::parameter(CALL, Subtype::Arg3, message));
        }
        let backing = match origin {
            Origin::Shared(cookie) => Some(self.inner.check_shared(CALL, &memory, cookie)?),
            Origin::Virtual | Origin::Lmr(_) => None,
        };
        let caps = device.attr().caps;
        if privileges.contains(Privileges::REMOTE_ATOMIC) && !caps.contains(Caps::ATOMICS) {
            return Err(error::unsupported(CALL, "this provider has no atomic operations"));
        }
        if memory.is_device() && !caps.contains(Caps::DMABUF) {
            let message = "this provider registers no memory of other devices (dma-buf)";
            return Err(error::unsupported(CALL, message));
        }
        if va_type == VaType::ZeroBased {
            return Err(error::unsupported(CALL, "addresses are virtual; zero-based ones are not supported"));
        }
        let mut access = status_map::access(privileges);
        if caps.contains(Caps::WINDOWS) {
            access = access | Access::WINDOW;
        }
        self.inner.pending_memory.release();
        let registration = device
            .register(memory.clone(), access, pz.0.domain)
            .map_err(|failure| error::provider(CALL, failure))?;
        let rmr_context = match privileges.intersects(REMOTE) {
            true => registration.keys().rkey,
            false => 0,
        };
        let life = Life::new(KIND, &self.inner);
        let context = self.inner.spans.insert_owned(registration, life.id.0, exclusive).map_err(|_| {
            error::resources(
                CALL,
                Subtype::ResourceMemoryRegion,
                "the IA's table of regions is full; free some",
            )
        })?;
        let lmr = Lmr(Arc::new(LmrInner {
            life,
            windows: AtomicUsize::new(0),
            context,
            rmr_context,
            memory,
            origin,
            backing,
            privileges,
            pz: parking_lot::Mutex::new(Some(PzRef::new(pz))),
        }));
        self.inner.objects.lock().of::<Lmr>().insert(lmr.0.life.id, lmr.clone());
        self.inner.count(IaCounter::LmrCreate);
        Ok(lmr)
    }

    /// `dat_lmr_sync_rdma_read`: makes local writes to these ranges visible to peers that read them. Memory is coherent
    /// with every provider of this interface (`lmr_sync_req` is FALSE), so the ranges are checked and that is all
    /// (decision D-23).
    pub fn lmr_sync_rdma_read(&self, ranges: &[LmrTriplet]) -> Result<()> {
        self.check_ranges("dat_lmr_sync_rdma_read", ranges)
    }

    /// `dat_lmr_sync_rdma_write`: makes what peers wrote to these ranges visible here. As [`Ia::lmr_sync_rdma_read`].
    pub fn lmr_sync_rdma_write(&self, ranges: &[LmrTriplet]) -> Result<()> {
        self.check_ranges("dat_lmr_sync_rdma_write", ranges)
    }

    fn check_ranges(&self, call: &'static str, ranges: &[LmrTriplet]) -> Result<()> {
        self.device(call)?;
        for (index, range) in ranges.iter().enumerate().filter(|(_, range)| range.length > 0) {
            if !self.inner.spans.covers(range.context, range.address, range.length) {
                let message = format!("range {index}, {range:?}, does not lie in the region of its context");
                return Err(error::parameter(call, Subtype::Arg2, message));
            }
        }
        Ok(())
    }

    /// Whether `context` is the region of this id, and alive. An id is never used again, a context can be.
    #[inline]
    pub fn is_region(&self, context: u32, id: ObjectId) -> bool {
        self.inner.spans.is_owned_by(context, id.0)
    }

    /// Allocates `len` bytes of zeroed memory that peers of this IA reach in the fastest way it has; plain heap memory if
    /// it has none in particular.
    pub fn alloc(&self, len: u64) -> Result<Memory> {
        const CALL: &str = "dat_lmr_create";
        let device = self.device(CALL)?;
        if len == 0 {
            return Err(error::parameter(CALL, Subtype::Arg4, "a region has at least 1 byte, not 0"));
        }
        self.inner.count(IaCounter::MemAlloc);
        self.inner.count_by(IaCounter::MemAllocData, len);
        if !device.attr().caps.contains(dat_plugin::Caps::ALLOC) {
            return self.heap(usize::try_from(len).unwrap_or(usize::MAX));
        }
        device.alloc(len).map_err(|failure| error::provider(CALL, failure))
    }

    /// Zeroed plain heap memory.
    pub fn heap(&self, len: usize) -> Result<Memory> {
        Memory::try_heap(len).map_err(|failure| error::provider("dat_lmr_create", failure))
    }
}

impl Lmr {
    /// Key for local use in [`LmrTriplet`].
    pub fn context(&self) -> u32 {
        self.0.context
    }

    /// Key for peers in [`RmrTriplet`]; 0 without a remote right.
    pub fn rmr_context(&self) -> u32 {
        self.0.rmr_context
    }

    /// The registered memory.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The local triplet of `len` bytes at `offset`; checked when it is posted.
    pub fn triplet(&self, offset: u64, len: u32) -> LmrTriplet {
        LmrTriplet {
            address: self.0.memory.addr().wrapping_add(offset),
            length: len,
            context: self.0.context,
        }
    }

    /// The triplet a peer uses for `len` bytes at `offset`; checked when it is used.
    pub fn remote_triplet(&self, offset: u64, len: u32) -> RmrTriplet {
        RmrTriplet {
            address: self.0.memory.addr().wrapping_add(offset),
            length: len,
            context: self.0.rmr_context,
        }
    }

    /// `dat_lmr_query`.
    pub fn query(&self) -> Result<LmrParam> {
        const CALL: &str = "dat_lmr_query";
        let pz = self.0.pz.lock().as_ref().map(|pz| pz.0.clone()).ok_or_else(|| self.0.life.gone(CALL))?;
        Ok(LmrParam {
            ia: self.0.life.ia,
            pz,
            origin: self.0.origin,
            memory: self.0.memory.clone(),
            va_type: VaType::Virtual,
            privileges: self.0.privileges,
            lmr_context: self.0.context,
            rmr_context: self.0.rmr_context,
        })
    }

    /// `dat_lmr_free`: both contexts are invalid afterwards. Work in flight that names it completes or fails; its
    /// memory is kept that long.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_lmr_free";
        self.0.life.check_fork(CALL)?;
        let windows = self.0.windows.load(Ordering::Acquire);
        if windows > 0 {
            let message = format!(
                "{windows} memory windows are bound to region {}; free or rebind them first",
                self.0.life.id
            );
            return Err(error::state(CALL, Subtype::LmrInUse, message));
        }
        if !self.0.life.end() {
            return Err(self.0.life.gone(CALL));
        }
        self.release();
        Ok(())
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        self.0.life.check_of(call, ia)
    }

    pub(crate) fn kill(&self) {
        if self.0.life.end() {
            self.release();
        }
    }

    fn release(&self) {
        self.0.pz.lock().take();
        let Some(ia) = self.0.life.owner.upgrade() else { return };
        ia.objects.lock().of::<Lmr>().remove(&self.0.life.id);
        ia.count(IaCounter::LmrFree);
        drop(ia.spans.remove(self.0.context));
        ia.keep_memory(self.0.memory.clone());
    }
}

object!(Lmr);

/// A region that only its holder can post, with [`crate::Ep::send_exclusive`] and its like: no triplet that names it is accepted, it
/// has no key for peers, and its memory cannot be registered again. Freed on drop; the memory is kept until nothing
/// outstanding names it.
#[derive(Debug)]
pub struct ExclusiveLmr(Lmr);

impl ExclusiveLmr {
    /// The right that posts of it need besides those of memory.
    pub(crate) const ACCESS: Access = SpanTable::EXCLUSIVE;

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.0.0.memory.addr()
    }

    pub(crate) fn triplet(&self, offset: u64, length: u32) -> LmrTriplet {
        self.0.triplet(offset, length)
    }
}

impl Drop for ExclusiveLmr {
    fn drop(&mut self) {
        // Fails only when the IA was closed under it.
        let _ = self.0.free();
    }
}

/// What a bound memory window holds of its region.
pub(crate) struct BoundRef(Lmr);

impl BoundRef {
    pub(crate) fn new(lmr: &Lmr) -> BoundRef {
        lmr.0.windows.fetch_add(1, Ordering::AcqRel);
        BoundRef(lmr.clone())
    }

    pub(crate) fn context(&self) -> u32 {
        self.0.context()
    }
}

impl Drop for BoundRef {
    fn drop(&mut self) {
        self.0.0.windows.fetch_sub(1, Ordering::AcqRel);
    }
}

/// With one of these rights peers have a key.
const REMOTE: Privileges =
    Privileges::REMOTE_READ.union(Privileges::REMOTE_WRITE).union(Privileges::REMOTE_ATOMIC);

impl IaInner {
    /// Fails unless `memory` is shared with other processes, and is the memory this IA knows by `cookie` already.
    fn check_shared(&self, call: &'static str, memory: &Memory, cookie: LmrCookie) -> Result<Backing> {
        let backing = shared_memory::backing(memory.addr(), memory.len()).map_err(|source| {
            let message = "the system does not tell which memory is shared";
            Error::new(call, ReturnType::InternalError, Subtype::None, message).with_source(source)
        })?;
        let Some(backing) = backing else {
            let message = format!("{memory:?} is not all shared memory; map it as shared first");
            return Err(error::state(call, Subtype::None, message));
        };
        let same = |lmr: &&Lmr| lmr.0.origin == Origin::Shared(cookie);
        let known = self.objects.lock().of::<Lmr>().values().find(same).and_then(|lmr| lmr.0.backing.clone());
        match known {
            Some(known) if known != backing => {
                let message = format!("{cookie:?} names other memory already");
                Err(error::parameter(call, Subtype::Arg3, message))
            }
            _ => Ok(backing),
        }
    }
}
