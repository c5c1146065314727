//! Registered memory. The keys applications exchange have 32 bits; what the fabric calls the memory, a key of up to 64
//! bits and perhaps another address, is told to a peer when it first uses a key ([`crate::wire::Bell::Resolve`]), and
//! only on a connection of the same protection domain. So every way a fabric may want keys and addresses is served, and
//! with fabrics that let the initiator choose keys a peer that was not told has 64 random bits to guess.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::c_void;
use std::hash::BuildHasher;
use std::ptr;
use std::sync::Arc;

use dat_plugin::{Access, Failure, Keys, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_bind, fi_close, fi_control, fi_mr_reg};
use libfabric_sys::types::{fid_ep, fid_mr};
use parking_lot::{Mutex, RwLock};

use crate::fabric::Fabric;
use crate::status;
use crate::wire::Resolved;

/// Registrations a device holds.
pub const MAX_REGIONS: u32 = 1 << 20;

/// A registration with libfabric; ends when dropped.
#[derive(Debug)]
pub struct Mr {
    mr: *mut fid_mr,
    /// What the fabric calls the first byte.
    pub base: u64,
    _fabric: Arc<Fabric>,
}

// SAFETY: read only; libfabric's objects may be closed from any thread.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len` bytes at `addr`; `ep` is the endpoint that registrations are bound to, where the fabric wants it.
    pub fn new(
        fabric: &Arc<Fabric>,
        addr: u64,
        len: u64,
        access: u64,
        requested: u64,
        ep: *mut fid_ep,
    ) -> Result<Mr, i32> {
        let limits = &fabric.limits;
        let mut mr = ptr::null_mut();
        // SAFETY: the caller vouches for the memory: the host keeps it until it is deregistered.
        let result = unsafe {
            fi_mr_reg(
                fabric.domain,
                addr as *const c_void,
                len as usize,
                access,
                0,
                requested,
                0,
                &mut mr,
                ptr::null_mut(),
            )
        };
        if result != 0 {
            return Err(result);
        }
        let base = if limits.mr_mode & FI_MR_VIRT_ADDR != 0 { addr } else { 0 };
        let this = Mr { mr, base, _fabric: fabric.clone() };
        if limits.mr_mode & FI_MR_ENDPOINT != 0 && !ep.is_null() {
            // SAFETY: open objects.
            let result = unsafe {
                match fi_bind(mr.cast(), ep.cast(), 0) {
                    0 => fi_control(mr.cast(), FI_ENABLE, ptr::null_mut()),
                    error => error,
                }
            };
            if result != 0 {
                return Err(result);
            }
        }
        Ok(this)
    }

    pub fn key(&self) -> u64 {
        // SAFETY: open until drop.
        unsafe { (*self.mr).key }
    }

    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: open until drop.
        unsafe { (*self.mr).mem_desc }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: opened by this value.
        let result = unsafe { fi_close(self.mr.cast()) };
        if result != 0 {
            tracing::error!(result, "a registration does not end");
        }
    }
}

/// A registration as peers may use it.
struct Region {
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    mr: Arc<Mr>,
    /// Channels whose peer was told.
    told: Vec<u32>,
}

/// A registration as this side uses it.
struct LocalRegion {
    mr: Option<Arc<Mr>>,
    rkey: u32,
}

/// The registrations of a device.
pub struct Regions {
    /// By local key. Read by every post where the fabric wants descriptors.
    local: RwLock<HashMap<u32, LocalRegion>>,
    remote: Mutex<HashMap<u32, Region>>,
    wants_descriptors: bool,
    secret: RandomState,
    next: std::sync::atomic::AtomicU64,
}

const REMOTE: u32 = Access::REMOTE_READ.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;

impl Regions {
    pub fn new(fabric: &Fabric) -> Regions {
        Regions {
            local: RwLock::default(),
            remote: Mutex::default(),
            wants_descriptors: fabric.limits.mr_mode & FI_MR_LOCAL != 0,
            secret: RandomState::new(),
            next: std::sync::atomic::AtomicU64::new(1),
        }
    }

    pub fn register(
        &self,
        fabric: &Arc<Fabric>,
        ep: *mut fid_ep,
        (addr, len): (u64, u64),
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        if addr == 0 || len == 0 || addr.checked_add(len).is_none() {
            let message = format!("{len} bytes at {addr:#x} are no range of memory");
            return Err(Failure::new(Status::INVALID, message));
        }
        if self.local.read().len() >= MAX_REGIONS as usize {
            let message = format!("there are {MAX_REGIONS} registrations, the most this device holds");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let remote = access.0 & REMOTE != 0;
        let mr = match remote || self.wants_descriptors {
            false => None,
            true => Some(Arc::new(self.with_libfabric(fabric, ep, (addr, len), access)?)),
        };
        let mut local = self.local.write();
        let lkey = self.fresh(|key| local.contains_key(&key));
        let rkey = match &mr {
            Some(mr) if remote => self.publish(mr.clone(), (addr, len), access, domain),
            _ => 0,
        };
        local.insert(lkey, LocalRegion { mr, rkey });
        Ok(Keys { lkey, rkey })
    }

    /// Registers part of what `lkey` covers for peers alone.
    pub fn open_part(
        &self,
        fabric: &Arc<Fabric>,
        ep: *mut fid_ep,
        range: (u64, u64),
        access: Access,
        domain: u32,
    ) -> Result<u32, Failure> {
        let mr = self.with_libfabric(fabric, ep, range, access)?;
        Ok(self.publish(Arc::new(mr), range, access, domain))
    }

    fn with_libfabric(
        &self,
        fabric: &Arc<Fabric>,
        ep: *mut fid_ep,
        (addr, len): (u64, u64),
        access: Access,
    ) -> Result<Mr, Failure> {
        let limits = &fabric.limits;
        let mut rights = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        if access.0 & (Access::REMOTE_READ | Access::REMOTE_ATOMIC).0 != 0 {
            rights |= FI_REMOTE_READ;
        }
        if access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0 != 0 {
            rights |= FI_REMOTE_WRITE;
        }
        // A fabric that lets this side choose gets a number nobody can guess; a clash is as good as impossible with
        // eight bytes, and with fewer tried again.
        let mut tries = 0;
        loop {
            let key = if limits.mr_mode & FI_MR_PROV_KEY != 0 { 0 } else { self.secret(limits.mr_key_size) };
            match Mr::new(fabric, addr, len, rights, key, ep) {
                Ok(mr) => return Ok(mr),
                Err(error) if error == -FI_ENOKEY && tries < 16 => tries += 1,
                Err(error) => {
                    return Err(status::failure(fabric.library, "fi_mr_reg", error.into()));
                }
            }
        }
    }

    fn publish(&self, mr: Arc<Mr>, (addr, len): (u64, u64), access: Access, domain: u32) -> u32 {
        let mut remote = self.remote.lock();
        let rkey = self.fresh(|key| remote.contains_key(&key));
        remote.insert(rkey, Region { addr, len, access, domain, mr, told: Vec::new() });
        rkey
    }

    /// Takes a registration out of both tables. Peers of these channels were told of it and may be using it: the
    /// registration ends when what is returned is dropped.
    pub fn remove(&self, keys: Keys) -> Option<Removed> {
        let mut local = self.local.write();
        if keys.lkey == 0 || local.get(&keys.lkey).is_none_or(|region| region.rkey != keys.rkey) {
            return None;
        }
        let region = local.remove(&keys.lkey)?;
        drop(local);
        Some(self.unpublish(region.rkey).unwrap_or(Removed { rkey: 0, told: Vec::new(), _mr: region.mr }))
    }

    /// The same of a key of [`Regions::open_part`].
    pub fn unpublish(&self, rkey: u32) -> Option<Removed> {
        let region = self.remote.lock().remove(&rkey)?;
        Some(Removed { rkey, told: region.told, _mr: Some(region.mr) })
    }

    /// What a peer of `chan`, a channel of `domain`, is told about a key.
    pub fn resolve(&self, rkey: u32, chan: u32, domain: u32) -> Resolved {
        let mut remote = self.remote.lock();
        match remote.get_mut(&rkey) {
            Some(region) if region.domain == domain => {
                if !region.told.contains(&chan) {
                    region.told.push(chan);
                }
                Resolved {
                    rkey,
                    access: region.access.0 & REMOTE,
                    addr: region.addr,
                    len: region.len,
                    key: region.mr.key(),
                    base: region.mr.base,
                }
            }
            _ => Resolved { rkey, ..Resolved::default() },
        }
    }

    /// A channel has ended: its peer, which was told of `keys`, uses none of them through it any more.
    pub fn forget(&self, chan: u32, keys: &[u32]) {
        let mut remote = self.remote.lock();
        for key in keys {
            if let Some(region) = remote.get_mut(key) {
                region.told.retain(|told| *told != chan);
            }
        }
    }

    /// What libfabric wants with a post that names `lkey`.
    #[inline]
    pub fn descriptor(&self, lkey: u32) -> *mut c_void {
        if !self.wants_descriptors {
            return ptr::null_mut();
        }
        let local = self.local.read();
        local.get(&lkey).and_then(|region| region.mr.as_ref()).map_or(ptr::null_mut(), |mr| mr.descriptor())
    }

    /// A number not 0 that is not taken and nobody can guess.
    fn fresh(&self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let key = self.random() as u32;
            if key != 0 && !taken(key) {
                return key;
            }
        }
    }

    /// A key of `size` bytes that nobody can guess.
    pub fn secret(&self, size: usize) -> u64 {
        let mask = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        self.random() & mask
    }

    /// Hashes of a counter under a key of the operating system's random numbers.
    pub fn random(&self) -> u64 {
        self.secret.hash_one(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

/// A registration that nobody can find any more.
pub struct Removed {
    pub rkey: u32,
    /// Channels whose peer was told of it.
    pub told: Vec<u32>,
    _mr: Option<Arc<Mr>>,
}
