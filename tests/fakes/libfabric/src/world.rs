//! What there is: listeners by port, registered memory by key, under the one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::mem::size_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libfabric_sys::types::fid_pep;

use crate::common::Object;

/// Everything that finds objects by number.
pub struct World {
    pub listeners: BTreeMap<u16, Object<fid_pep>>,
    /// Those in use.
    ports: BTreeSet<u16>,
    last_port: u16,
    /// In the order they were registered: keys are chosen at random, and a look-up must always cost the same.
    regions: Vec<Region>,
}

/// Registered memory.
struct Region {
    key: u64,
    base: u64,
    len: u64,
}

impl World {
    /// A free port, or this one if it is not 0 and free. A returned port is not reused soon.
    pub fn take_port(&mut self, wanted: u16) -> Option<u16> {
        if wanted != 0 {
            return self.ports.insert(wanted).then_some(wanted);
        }
        let port = (self.last_port..=u16::MAX)
            .skip(1)
            .chain(FIRST_PORT..=self.last_port)
            .find(|port| !self.ports.contains(port))?;
        self.last_port = port;
        self.ports.insert(port).then_some(port)
    }

    pub fn free_port(&mut self, port: u16) {
        self.ports.remove(&port);
    }

    /// `false`: there is such a key.
    pub fn register(&mut self, key: u64, base: u64, len: u64) -> bool {
        let fresh = self.regions.iter().all(|region| region.key != key);
        if fresh {
            self.regions.push(Region { key, base, len });
        }
        fresh
    }

    pub fn deregister(&mut self, key: u64) {
        self.regions.retain(|region| region.key != key);
    }

    /// Where `len` bytes at an offset of registered memory are.
    pub fn locate(&self, key: u64, offset: u64, len: u64) -> Option<*mut u8> {
        let region = self.regions.iter().find(|region| region.key == key)?;
        (offset.checked_add(len)? <= region.len).then(|| (region.base + offset) as *mut u8)
    }
}

const FIRST_PORT: u16 = 20_000;

static WORLD: Mutex<World> = Mutex::new(World {
    listeners: BTreeMap::new(),
    ports: BTreeSet::new(),
    last_port: FIRST_PORT,
    regions: Vec::new(),
});

/// The lock.
#[inline]
pub fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This machine, at a port.
pub fn address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

/// The port of an address.
///
/// # Safety
/// Null, or an internet address of this length.
pub unsafe fn port_of(address: *const c_void, len: usize) -> u16 {
    if address.is_null() || len < size_of::<libc::sockaddr_in>() {
        return 0;
    }
    // SAFETY: as promised; read byte by byte, so it needs no alignment.
    u16::from_be(unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() }.sin_port)
}
