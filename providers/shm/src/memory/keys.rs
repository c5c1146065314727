//! Registered memory: keys, the table peers read to check them, and memory that peers can map.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::foreign::ForeignFd;
use crate::memory::mapping::HugePages;
use crate::memory::mapping::{Expected, Pages, Seals, SharedMapping};
use crate::memory::target::Target;
use dat_kit::Secrets;
use dat_plugin::{Access, Block, Failure, Keys, Segment, Status};

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
    /// Peers can map it, and only to read.
    rows: KeyView,
    control: Mutex<Control>,
}

struct Control {
    /// Registrations and windows by index.
    places: Vec<Place>,
    free: Vec<u32>,
    blocks: HashMap<u64, SharedMapping>,
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
    fn take_place(&mut self, table: &SharedMapping) -> Result<u32, Failure> {
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
        let at = self.places.len() * size_of::<Row>();
        if at.is_multiple_of(4096) {
            table
                .fill(at, 4096)
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
        (addr + len <= base + block.len() as u64).then_some((*number, addr - base))
    }
}

/// A key that is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEntry {
    pub(crate) addr: u64,
    /// Memory it lies in, 0 for memory that cannot be mapped, and where in that.
    pub(crate) map: u64,
    pub(crate) offset: u64,
}

impl KeyTable {
    pub(crate) fn new() -> io::Result<KeyTable> {
        let rows = KeyView(SharedMapping::create("dat-shm-keys", TABLE, Pages::Normal, Seals::MakerWrites)?);
        let control = Control {
            places: Vec::new(),
            free: Vec::new(),
            blocks: HashMap::new(),
            starts: BTreeMap::new(),
            next_block: 1,
            secrets: Secrets::new(INDEX.leading_zeros()),
        };
        Ok(KeyTable { rows, control: Mutex::new(control) })
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.rows.0.file()
    }

    pub(crate) fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        if addr == 0 || len == 0 || addr.checked_add(len).is_none() {
            return Err(Failure::new(
                Status::INVALID,
                format!("{len} bytes at {addr:#x} are no range of memory"),
            ));
        }
        let mut control = self.control();
        let index = control.take_place(&self.rows.0)?;
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
        let index = control.take_place(&self.rows.0)?;
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

    /// As [`KeyView::home`], of this device's own table.
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
        let make = |huge: bool| -> Result<SharedMapping, Failure> {
            let (unit, pages) = if huge { (2 << 20, Pages::Huge) } else { (4096, Pages::Normal) };
            let too_much = || Failure::new(Status::NO_RESOURCE, format!("{len} bytes are too much"));
            let len = len
                .max(1)
                .checked_next_multiple_of(unit)
                .filter(|len| *len <= 1 << 46)
                .ok_or_else(too_much)?;
            let block = SharedMapping::create("dat-shm-memory", len as usize, pages, Seals::BothWrite)
                .map_err(|e| fail("memfd_create", e))?;
            block.fill(0, len as usize).map_err(|e| fail("fallocate", e))?;
            Ok(block)
        };
        let alloc = match huge {
            HugePages::Off => make(false)?,
            HugePages::Require => make(true)?,
            HugePages::Try => make(true).or_else(|_| make(false))?,
        };
        let mut control = self.control();
        let handle = control.next_block;
        control.next_block += 1;
        let block = Block { addr: alloc.base() as u64, len: alloc.len() as u64, handle };
        control.starts.insert(block.addr, handle);
        control.blocks.insert(handle, alloc);
        Ok(block)
    }

    pub(crate) fn free(&self, block: Block) -> bool {
        let mut control = self.control();
        let gone = control.blocks.remove(&block.handle);
        if let Some(gone) = &gone {
            control.starts.remove(&(gone.base() as u64));
        }
        drop(control);
        gone.is_some()
    }

    /// A descriptor of a whole block for a peer, to write or only to read: if a registration of protection domain `domain`
    /// in the block gives peers that right. The descriptor to read is no barrier for a hostile peer of the same user: it
    /// can open the file anew, to write.
    pub(crate) fn share(&self, map: u64, write: bool, domain: u32) -> Option<(OwnedFd, u64)> {
        let control = self.control();
        let block = control.blocks.get(&map)?;
        let right = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        let shared = (0..control.places.len() as u32).any(|index| {
            let row = self.rows.row(index);
            let place = &control.places[index as usize];
            place.keys.rkey != 0
                && place.domain == domain
                && row.map.load(Ordering::Relaxed) == map
                && row.access.load(Ordering::Relaxed) & right.0 != 0
        });
        if !shared {
            return None;
        }
        let fd = if write {
            block.file()?.try_clone_to_owned().ok()?
        } else {
            let path = format!("/proc/self/fd/{}", block.file()?.as_raw_fd());
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?
        };
        Some((fd, block.len() as u64))
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
pub(crate) struct KeyView(SharedMapping);

impl KeyView {
    /// The table a peer sent.
    pub(crate) fn open(fd: ForeignFd) -> Result<KeyView, String> {
        // Its maker fills it page by page; nobody can make holes in it.
        let expected = Expected { len: TABLE as u64, seals: Seals::MakerWrites, huge: false, filled: false };
        SharedMapping::open(fd, expected).map(|map| KeyView(map.without_file()))
    }

    fn row(&self, index: u32) -> &Row {
        // SAFETY: the mapping has a row for every index below 2^16, and lives as long as `self`.
        unsafe { &*self.0.base().cast::<Row>().add((index & INDEX) as usize) }
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
        (found.map != 0).then(|| (found.map, found.offset.wrapping_add(addr - found.addr)))
    }

    /// The registration `rkey` names, if it allows this.
    pub(crate) fn find(
        &self,
        rkey: u32,
        addr: u64,
        len: u64,
        right: Access,
        domain: u32,
    ) -> Option<KeyEntry> {
        let row = self.row(rkey);
        if rkey == 0 || row.key.load(Ordering::Acquire) != rkey {
            return None;
        }
        let access = Access(row.access.load(Ordering::Relaxed));
        let of_domain = row.domain.load(Ordering::Relaxed);
        let start = row.addr.load(Ordering::Relaxed);
        let room = row.len.load(Ordering::Relaxed);
        let found = KeyEntry {
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

/// What fuzz targets do with a table.
#[cfg(fuzzing)]
mod fuzzing {
    use super::*;

    impl KeyTable {
        /// As a peer maps it.
        pub(crate) fn view(&self) -> Result<KeyView, String> {
            let fd = self.file().and_then(|fd| fd.try_clone_to_owned().ok()).ok_or("no file")?;
            KeyView::open(fd.into())
        }
    }

    impl KeyView {
        /// One for all executions, which may be written to.
        pub(crate) fn scratch() -> &'static KeyView {
            static SCRATCH: std::sync::OnceLock<KeyView> = std::sync::OnceLock::new();
            SCRATCH.get_or_init(|| {
                let map = SharedMapping::create("fuzz", TABLE, Pages::Normal, Seals::MakerWrites);
                KeyView(map.expect("memory"))
            })
        }

        /// Fills a row with these bytes.
        pub(crate) fn write(&self, index: u32, bytes: &[u8]) {
            let mut row = [0u8; size_of::<Row>()];
            row[..bytes.len()].copy_from_slice(bytes);
            let to = std::ptr::from_ref(self.row(index)).cast_mut().cast::<u8>();
            // SAFETY: a row of the writable mapping; one thread uses it.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to, row.len()) };
        }

        pub(crate) fn key(&self, index: u32) -> u32 {
            self.row(index).key.load(Ordering::Relaxed)
        }

        /// As [`KeyView::home`].
        pub(crate) fn place(&self, lkey: u32, addr: u64, len: u64) -> Option<(u64, u64)> {
            self.home(lkey, addr, len)
        }
    }
}
