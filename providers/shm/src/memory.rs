//! Registered memory: keys, the table peers read to check them, and memory that peers can map.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_kit::Secrets;
use dat_plugin::{Access, Block, Failure, Keys, Segment, Status};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::one_sided::Target;
use crate::params::HugePages;
use crate::segment::{map_shared, memory_file, unmap};

/// Registrations a device holds.
pub(crate) const MAX_REGIONS: usize = 65536;

const REMOTE: Access = Access(Access::REMOTE_READ.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0);

const TABLE: usize = MAX_REGIONS * size_of::<Row>();

/// One registration, as peers see it. `key` is 0 while the rest changes, and no value comes back soon.
#[repr(C, align(64))]
struct Row {
    key: AtomicU32,
    access: AtomicU32,
    domain: AtomicU32,
    _pad: u32,
    addr: AtomicU64,
    len: AtomicU64,
    map: AtomicU64,
    offset: AtomicU64,
}

/// The keys of a device.
pub(crate) struct KeyTable {
    rows: View,
    /// For peers: they can map it, and only to read.
    fd: OwnedFd,
    control: Mutex<Control>,
}

struct Control {
    /// Registrations and windows by index.
    places: Vec<Place>,
    free: Vec<u32>,
    blocks: HashMap<u64, Alloc>,
    /// The blocks' numbers by their first addresses.
    starts: BTreeMap<u64, u64>,
    next_block: u64,
    secrets: Secrets,
}

/// A registration, or a window and what it is bound to; keys of 0 where there is none.
#[derive(Clone, Copy, Default)]
struct Place {
    keys: Keys,
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    window: bool,
}

impl Control {
    /// A free index.
    fn take_place(&mut self, table: &OwnedFd) -> Result<u32, Failure> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.places.len() == MAX_REGIONS {
            let message =
                format!("there are {MAX_REGIONS} registrations and windows, the most this device holds");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        // A page of the table is taken from the system before it is written: a hole would be filled by a fault, and a
        // fault that fails is a signal.
        let at = (self.places.len() * size_of::<Row>()) as u64;
        if at.is_multiple_of(4096) {
            rustix::fs::fallocate(table, FallocateFlags::empty(), at, 4096)
                .map_err(|e| Failure::new(Status::NO_RESOURCE, format!("memory for keys: {e}")))?;
        }
        self.places.push(Place::default());
        Ok(self.places.len() as u32 - 1)
    }

    fn window(&self, window: u64) -> Option<u32> {
        let lkey = u32::try_from(window).ok().filter(|lkey| *lkey != 0)?;
        let place = self.places.get((lkey & INDEX) as usize)?;
        (place.window && place.keys.lkey == lkey).then_some(lkey & INDEX)
    }

    /// A key for `index` that is neither 0 nor `other`, its other half secret and not one of lately.
    fn fresh_key(&mut self, index: u32, other: u32) -> u32 {
        loop {
            let key = self.secrets.draw() << INDEX.count_ones() | index;
            if key & !INDEX != 0 && key != other {
                return key;
            }
        }
    }

    /// The block a range lies in, and where in it.
    fn block_of(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let (base, number) = self.starts.range(..=addr).next_back()?;
        let block = self.blocks.get(number)?;
        (addr + len <= base + block.len).then_some((*number, addr - base))
    }
}

struct Alloc {
    base: *mut u8,
    len: u64,
    fd: OwnedFd,
    owner: u32,
}

// SAFETY: plain shared memory; the pointer is only unmapped and calculated with.
unsafe impl Send for Alloc {}

impl Drop for Alloc {
    fn drop(&mut self) {
        unmap(self.base, self.len as usize, self.owner);
    }
}

/// A key that is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) addr: u64,
    /// Memory it lies in, 0 for memory that cannot be mapped, and where in that.
    pub(crate) map: u64,
    pub(crate) offset: u64,
}

impl KeyTable {
    pub(crate) fn new() -> io::Result<KeyTable> {
        let fd = memory_file("dat-shm-keys", MemfdFlags::empty(), TABLE as u64)?;
        let rows = View::map(&fd, true)?;
        // From now on nobody can map it to write; this mapping stays writable.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        let control = Control {
            places: Vec::new(),
            free: Vec::new(),
            blocks: HashMap::new(),
            starts: BTreeMap::new(),
            next_block: 1,
            secrets: Secrets::new(INDEX.leading_zeros()),
        };
        Ok(KeyTable { rows, fd, control: Mutex::new(control) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        if addr == 0 || len == 0 || addr.checked_add(len).is_none() {
            return Err(Failure::new(
                Status::INVALID,
                format!("{len} bytes at {addr:#x} are no range of memory"),
            ));
        }
        let mut control = self.control();
        let index = control.take_place(&self.fd)?;
        let lkey = control.fresh_key(index, 0);
        let remote = access.0 & REMOTE.0 != 0;
        let keys = Keys { lkey, rkey: if remote { control.fresh_key(index, lkey) } else { 0 } };
        let whole = Place { keys, addr, len, access, domain, window: false };
        if remote {
            self.publish(&control, index, &whole);
        }
        control.places[index as usize] = whole;
        Ok(keys)
    }

    /// Opens a memory window, bound to nothing. Its local key names it.
    pub(crate) fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let mut control = self.control();
        let index = control.take_place(&self.fd)?;
        let lkey = control.fresh_key(index, 0);
        let keys = Keys { lkey, rkey: 0 };
        control.places[index as usize] = Place { keys, domain, window: true, ..Place::default() };
        Ok(lkey.into())
    }

    /// Binds a window to a range of memory registered with [`Access::WINDOW`] in its domain, or to nothing; to be written
    /// to it must be writable locally. Gives its new remote key, 0 when bound to nothing; the key before it is dead, and
    /// accesses under way with it are the caller's to wait for.
    pub(crate) fn bind(&self, window: u64, range: Option<(Segment, Access)>) -> Option<u32> {
        let mut control = self.control();
        let index = control.window(window)?;
        let bound = control.places[index as usize];
        let now = match range {
            None => {
                Place { keys: Keys { rkey: 0, ..bound.keys }, addr: 0, len: 0, access: Access::NONE, ..bound }
            }
            Some((segment, access)) => {
                let whole = control.places.get((segment.lkey() & INDEX) as usize).copied()?;
                let writes = access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0 != 0;
                let needed = if writes { Access::WINDOW | Access::LOCAL_WRITE } else { Access::WINDOW };
                let (addr, len) = (segment.addr(), u64::from(segment.len()));
                let offset = addr.checked_sub(whole.addr)?;
                let sound = whole.keys.lkey == segment.lkey()
                    && !whole.window
                    && whole.domain == bound.domain
                    && whole.access.contains(needed)
                    && offset.checked_add(len)? <= whole.len;
                if !sound {
                    return None;
                }
                let rkey = control.fresh_key(index, bound.keys.lkey);
                Place { keys: Keys { rkey, ..bound.keys }, addr, len, access, ..bound }
            }
        };
        self.publish(&control, index, &now);
        control.places[index as usize] = now;
        Some(now.keys.rkey)
    }

    /// Ends what the window with this remote key is bound to, for a peer's channel of `domain`. `false`: there is no such
    /// window.
    pub(crate) fn end_window(&self, rkey: u32, domain: u32) -> bool {
        let mut control = self.control();
        let index = rkey & INDEX;
        let Some(place) = control.places.get_mut(index as usize) else { return false };
        if rkey == 0 || !place.window || place.keys.rkey != rkey || place.domain != domain {
            return false;
        }
        place.keys.rkey = 0;
        self.rows.row(index).key.store(0, Ordering::SeqCst);
        true
    }

    /// Closes a window. `false`: there is none of this name.
    pub(crate) fn close_window(&self, window: u64) -> bool {
        let mut control = self.control();
        let Some(index) = control.window(window) else { return false };
        self.give_up(&mut control, index);
        true
    }

    /// Makes a registration invalid. Accesses under way are the caller's to wait for.
    pub(crate) fn invalidate(&self, keys: Keys) -> bool {
        let mut control = self.control();
        let index = keys.lkey & INDEX;
        let known = control.places.get(index as usize).filter(|place| !place.window);
        if keys.lkey == 0 || known.map(|place| place.keys) != Some(keys) {
            return false;
        }
        self.give_up(&mut control, index);
        true
    }

    fn give_up(&self, control: &mut Control, index: u32) {
        self.rows.row(index).key.store(0, Ordering::SeqCst);
        control.places[index as usize] = Place::default();
        control.free.push(index);
    }

    /// Lets peers see a registration, or with a remote key of 0 no longer.
    fn publish(&self, control: &Control, index: u32, place: &Place) {
        let (map, offset) = control.block_of(place.addr, place.len).unwrap_or((0, 0));
        let row = self.rows.row(index);
        row.key.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        row.access.store(place.access.0, Ordering::Relaxed);
        row.domain.store(place.domain, Ordering::Relaxed);
        row.addr.store(place.addr, Ordering::Relaxed);
        row.len.store(place.len, Ordering::Relaxed);
        row.map.store(map, Ordering::Relaxed);
        row.offset.store(offset, Ordering::Relaxed);
        row.key.store(place.keys.rkey, Ordering::Release);
    }

    /// As [`View::home`], of this device's own table.
    pub(crate) fn home(&self, lkey: u32, addr: u64, len: u64) -> Option<(u64, u64)> {
        self.rows.home(lkey, addr, len)
    }

    /// Whether a peer may do this through a channel of `domain`.
    pub(crate) fn allows(&self, target: &Target, right: Access, domain: u32) -> bool {
        target.len == 0 || self.rows.find(target.rkey, target.addr, target.len, right, domain).is_some()
    }

    /// Calls `f` with the address if the peer may do this; the registration lives until it returned.
    pub(crate) fn access(
        &self,
        target: &Target,
        right: Access,
        domain: u32,
        f: impl FnOnce(*mut u8),
    ) -> bool {
        let _control = self.control();
        let allowed = self.allows(target, right, domain);
        if allowed {
            f(target.addr as *mut u8);
        }
        allowed
    }

    pub(crate) fn alloc(&self, len: u64, huge: HugePages) -> Result<Block, Failure> {
        let fail =
            |what: &str, error: io::Error| Failure::os(&format!("memory of {len} bytes: {what}"), &error);
        let make = |huge: bool| -> Result<Alloc, Failure> {
            let (unit, flags) =
                if huge { (2 << 20, MemfdFlags::HUGETLB) } else { (4096, MemfdFlags::empty()) };
            let too_much = || Failure::new(Status::NO_RESOURCE, format!("{len} bytes are too much"));
            let len = len
                .max(1)
                .checked_next_multiple_of(unit)
                .filter(|len| *len <= 1 << 46)
                .ok_or_else(too_much)?;
            let fd = memory_file("dat-shm-memory", flags, len).map_err(|e| fail("memfd_create", e))?;
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len)
                .map_err(|e| fail("fallocate", e.into()))?;
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
                .map_err(|e| fail("seal", e.into()))?;
            let base = map_shared(&fd, len as usize, true).map_err(|e| Failure::os("mmap", &e))?;
            Ok(Alloc { base, len, fd, owner: std::process::id() })
        };
        let alloc = match huge {
            HugePages::Off => make(false)?,
            HugePages::Require => make(true)?,
            HugePages::Try => make(true).or_else(|_| make(false))?,
        };
        let mut control = self.control();
        let handle = control.next_block;
        control.next_block += 1;
        let block = Block { addr: alloc.base as u64, len: alloc.len, handle };
        control.starts.insert(block.addr, handle);
        control.blocks.insert(handle, alloc);
        Ok(block)
    }

    /// A number no block has, for other memory that a peer maps.
    pub(crate) fn next_number(&self) -> u64 {
        let mut control = self.control();
        control.next_block += 1;
        control.next_block - 1
    }

    pub(crate) fn free(&self, block: Block) -> bool {
        let mut control = self.control();
        let gone = control.blocks.remove(&block.handle);
        if let Some(gone) = &gone {
            control.starts.remove(&(gone.base as u64));
        }
        drop(control);
        gone.is_some()
    }

    /// A descriptor of allocated memory for a peer, to write or only to read.
    pub(crate) fn share(&self, map: u64, write: bool) -> Option<(OwnedFd, u64)> {
        let control = self.control();
        let block = control.blocks.get(&map)?;
        // Only what some peer may access is given out.
        let right = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        let shared = (0..control.places.len() as u32).any(|index| {
            let row = self.rows.row(index);
            control.places[index as usize].keys.rkey != 0
                && row.map.load(Ordering::Relaxed) == map
                && row.access.load(Ordering::Relaxed) & right.0 != 0
        });
        if !shared {
            return None;
        }
        let fd = if write {
            block.fd.try_clone().ok()?
        } else {
            use std::os::fd::AsRawFd;
            let path = format!("/proc/self/fd/{}", block.fd.as_raw_fd());
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?
        };
        Some((fd, block.len))
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const INDEX: u32 = MAX_REGIONS as u32 - 1;

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    // SAFETY: `N` bytes are writable there.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if got == N as isize { Ok(bytes) } else { Err(Failure::os("getrandom", &io::Error::last_os_error())) }
}

/// A mapped table of keys, of this device or of a peer's.
pub(crate) struct View {
    rows: *mut Row,
    owner: u32,
}

// SAFETY: a table of atomics.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// The table a peer sent.
    pub(crate) fn open(fd: &OwnedFd) -> Result<View, String> {
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|e| format!("no memory descriptor: {e}"))?;
        let stat = rustix::fs::fstat(fd).map_err(|e| format!("fstat: {e}"))?;
        if !seals.contains(SealFlags::SHRINK) || stat.st_size != TABLE as i64 {
            return Err("a key table that may shrink, or of another size".into());
        }
        View::map(fd, false).map_err(|e| format!("mmap: {e}"))
    }

    fn map(fd: &OwnedFd, write: bool) -> io::Result<View> {
        Ok(View { rows: map_shared(fd, TABLE, write)?.cast(), owner: std::process::id() })
    }

    fn row(&self, index: u32) -> &Row {
        // SAFETY: the mapping has a row for every index below 2^16, and lives as long as `self`.
        unsafe { &*self.rows.add((index & INDEX) as usize) }
    }

    /// Where in memory that peers may map and read `len` bytes at `addr` are, which registration `lkey` covers.
    fn home(&self, lkey: u32, addr: u64, len: u64) -> Option<(u64, u64)> {
        let row = self.row(lkey);
        let found = self.find(
            row.key.load(Ordering::Acquire),
            addr,
            len,
            Access::REMOTE_READ,
            row.domain.load(Ordering::Relaxed),
        )?;
        (found.map != 0).then(|| (found.map, found.offset + (addr - found.addr)))
    }

    /// The registration `rkey` names, if it allows this.
    pub(crate) fn find(&self, rkey: u32, addr: u64, len: u64, right: Access, domain: u32) -> Option<Found> {
        let row = self.row(rkey);
        if rkey == 0 || row.key.load(Ordering::Acquire) != rkey {
            return None;
        }
        let access = Access(row.access.load(Ordering::Relaxed));
        let of_domain = row.domain.load(Ordering::Relaxed);
        let start = row.addr.load(Ordering::Relaxed);
        let room = row.len.load(Ordering::Relaxed);
        let found = Found {
            addr: start,
            map: row.map.load(Ordering::Relaxed),
            offset: row.offset.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let same = row.key.load(Ordering::Relaxed) == rkey;
        let offset = addr.wrapping_sub(start);
        let inside = addr >= start && offset <= room && room - offset >= len;
        (same && inside && of_domain == domain && access.contains(right)).then_some(found)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        unmap(self.rows.cast(), TABLE, self.owner);
    }
}
