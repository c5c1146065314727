//! Registered memory. The keys that applications exchange have 32 bits. The fabric has a key of up to 64 bits and perhaps
//! another address. A peer learns both when it first uses a key ([`crate::wire::control::Control::Resolve`]), and only on
//! a connection of the same protection domain. So every form of key and address that a fabric wants is supported. Where
//! this side chooses keys, a peer that did not resolve a key must guess 64 random bits.

pub mod windows;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::c_void;
use std::hash::BuildHasher;
use std::ptr;
use std::sync::{Arc, Weak};

use dat_plugin::{Access, Failure, Keys, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_bind, fi_close, fi_control, fi_mr_reg};
use libfabric_sys::types::{fid_ep, fid_mr};
use parking_lot::{Mutex, RwLock};

use crate::fabric::Fabric;
use crate::status;
use crate::wire::control::Resolved;

/// Most registrations of a device.
pub const MAX_REGIONS: u32 = 1 << 20;

/// A registration with libfabric; ends when dropped.
#[derive(Debug)]
pub struct MemoryRegion {
    mr: *mut fid_mr,
    /// The fabric's address of the first byte.
    pub base: u64,
    _fabric: Arc<Fabric>,
}

// SAFETY: the object is only read, and any thread may close it (FI_THREAD_SAFE).
unsafe impl Send for MemoryRegion {}
// SAFETY: shared references only read the object.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `len` bytes at `addr`. `ep` is the endpoint to bind the registration to, if the fabric wants that.
    pub fn new(
        fabric: &Arc<Fabric>,
        addr: u64,
        len: u64,
        access: u64,
        requested: u64,
        ep: *mut fid_ep,
    ) -> Result<MemoryRegion, i32> {
        let limits = &fabric.limits;
        let mut mr = ptr::null_mut();
        // SAFETY: the host keeps the memory until its deregistration succeeded, and closes this object first; memory of
        // this crate lives in the same value as its registration.
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
        let this = MemoryRegion { mr, base, _fabric: fabric.clone() };
        if limits.mr_mode & FI_MR_ENDPOINT != 0 && !ep.is_null() {
            // SAFETY: the registration was just opened; the device keeps its endpoint open while it registers.
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
        // SAFETY: this value keeps the object open until it is dropped.
        unsafe { (*self.mr).key }
    }

    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: this value keeps the object open until it is dropped.
        unsafe { (*self.mr).mem_desc }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: this value opened the object and uses it no more.
        let result = unsafe { fi_close(self.mr.cast()) };
        if result != 0 {
            tracing::error!(result, "cannot close a registration");
        }
    }
}

/// A registration that peers may use.
struct Region {
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    mr: Arc<MemoryRegion>,
    /// Channels whose peer resolved the key.
    users: Vec<(u32, Weak<dyn KeyUser>)>,
}

/// A registration that this side uses.
struct LocalRegion {
    mr: Option<Arc<MemoryRegion>>,
    rkey: u32,
}

/// A channel, as the owner of a key knows it.
pub trait KeyUser: Send + Sync {
    /// A key that the channel's peer resolved has ended. The caller may hold the lock of another channel.
    fn key_ended(&self, rkey: u32);
}

/// The registrations of a device.
pub struct Regions {
    /// By local key. Every post reads it if the fabric wants descriptors.
    local: RwLock<HashMap<u32, LocalRegion>>,
    remote: Mutex<HashMap<u32, Region>>,
    /// Local keys of memory that libfabric may still write for channels that are closed, and for how many operations.
    held: Mutex<HashMap<u32, u32>>,
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
            held: Mutex::default(),
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
    ) -> Result<MemoryRegion, Failure> {
        let limits = &fabric.limits;
        let mut rights = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        if access.0 & (Access::REMOTE_READ | Access::REMOTE_ATOMIC).0 != 0 {
            rights |= FI_REMOTE_READ;
        }
        if access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0 != 0 {
            rights |= FI_REMOTE_WRITE;
        }
        // Where this side chooses keys, they are random. A clash is nearly impossible with eight bytes; with fewer bytes
        // the registration is tried again.
        let mut tries = 0;
        loop {
            let key = if limits.mr_mode & FI_MR_PROV_KEY != 0 { 0 } else { self.secret(limits.mr_key_size) };
            match MemoryRegion::new(fabric, addr, len, rights, key, ep) {
                Ok(mr) => return Ok(mr),
                Err(error) if error == -FI_ENOKEY && tries < 16 => tries += 1,
                Err(error) => {
                    return Err(status::failure(fabric.library, "fi_mr_reg", error.into()));
                }
            }
        }
    }

    fn publish(&self, mr: Arc<MemoryRegion>, (addr, len): (u64, u64), access: Access, domain: u32) -> u32 {
        let mut remote = self.remote.lock();
        let rkey = self.fresh(|key| remote.contains_key(&key));
        remote.insert(rkey, Region { addr, len, access, domain, mr, users: Vec::new() });
        rkey
    }

    /// Keeps the memory of these local keys registered: an operation that did not end may still write to it.
    pub fn hold(&self, lkeys: &[u32]) {
        let mut held = self.held.lock();
        lkeys.iter().for_each(|lkey| *held.entry(*lkey).or_default() += 1);
    }

    /// The operations for which [`Regions::hold`] was called have ended.
    pub fn release(&self, lkeys: &[u32]) {
        let mut held = self.held.lock();
        for lkey in lkeys {
            if let Some(count) = held.get_mut(lkey) {
                *count -= 1;
                if *count == 0 {
                    held.remove(lkey);
                }
            }
        }
    }

    /// Whether libfabric may still write to the memory of this local key for a closed channel.
    pub fn is_held(&self, lkey: u32) -> bool {
        self.held.lock().contains_key(&lkey)
    }

    /// Takes a registration out of both tables. Peers of the returned channels may still use it; it ends when the returned
    /// value is dropped.
    pub fn remove(&self, keys: Keys) -> Option<Removed> {
        let mut local = self.local.write();
        if keys.lkey == 0 || local.get(&keys.lkey).is_none_or(|region| region.rkey != keys.rkey) {
            return None;
        }
        let region = local.remove(&keys.lkey)?;
        drop(local);
        Some(self.unpublish(region.rkey).unwrap_or(Removed { rkey: 0, users: Vec::new(), _mr: region.mr }))
    }

    /// The same for a key of [`Regions::open_part`].
    pub fn unpublish(&self, rkey: u32) -> Option<Removed> {
        let region = self.remote.lock().remove(&rkey)?;
        Some(Removed { rkey, users: region.users.iter().map(|(id, _)| *id).collect(), _mr: Some(region.mr) })
    }

    /// Ends a window's key and informs its users. The memory stays registered, so nothing has to be waited for.
    pub fn revoke(&self, rkey: u32) {
        let Some(region) = self.remote.lock().remove(&rkey) else { return };
        for user in region.users.iter().filter_map(|(_, user)| user.upgrade()) {
            user.key_ended(rkey);
        }
    }

    /// What a key stands for, for the peer of `user`: a channel of this number and protection domain.
    pub fn resolve(&self, rkey: u32, (chan, user): (u32, Weak<dyn KeyUser>), domain: u32) -> Resolved {
        let mut remote = self.remote.lock();
        match remote.get_mut(&rkey) {
            Some(region) if region.domain == domain => {
                if !region.users.iter().any(|(id, _)| *id == chan) {
                    region.users.push((chan, user));
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

    /// A channel has ended: its peer uses none of these keys through it any more.
    pub fn forget(&self, chan: u32, keys: &[u32]) {
        let mut remote = self.remote.lock();
        for key in keys {
            if let Some(region) = remote.get_mut(key) {
                region.users.retain(|(id, _)| *id != chan);
            }
        }
    }

    /// The descriptor that libfabric wants with a post that names `lkey`.
    #[inline]
    pub fn descriptor(&self, lkey: u32) -> *mut c_void {
        if !self.wants_descriptors {
            return ptr::null_mut();
        }
        let local = self.local.read();
        local.get(&lkey).and_then(|region| region.mr.as_ref()).map_or(ptr::null_mut(), |mr| mr.descriptor())
    }

    /// A random number that is not 0 and not taken.
    fn fresh(&self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let key = self.random() as u32;
            if key != 0 && !taken(key) {
                return key;
            }
        }
    }

    /// A random key of `size` bytes.
    pub fn secret(&self, size: usize) -> u64 {
        let mask = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        self.random() & mask
    }

    /// A hash of a counter, under a key from the operating system's random numbers.
    pub fn random(&self) -> u64 {
        self.secret.hash_one(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

/// A registration that is in no table any more.
pub struct Removed {
    pub rkey: u32,
    /// Channels whose peer resolved its key.
    pub users: Vec<u32>,
    _mr: Option<Arc<MemoryRegion>>,
}
