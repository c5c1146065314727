//! Protection domains, registrations, windows, and memory that the adapter allocates.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dat_plugin::{Access, Block, Failure, Keys, Status};
use rdma_sys::verbs::*;
use rustix::mm::{MapFlags, ProtFlags};

use crate::params::{HugePages, Params};
use crate::status;
use crate::sys::common::locked_memory_limit;
use crate::sys::context::{Context, Pd};
use crate::sys::registration::{Page, Registration, Window};

/// The memory side of a device.
pub(crate) struct Memory {
    context: Arc<Context>,
    /// One protection domain of the device for each of the engine's, as long as something uses it.
    domains: Mutex<HashMap<u32, Weak<Pd>>>,
    regions: Mutex<HashMap<u32, Region>>,
    /// Registrations of memory that the processor may be unable to read.
    device_regions: AtomicU32,
    windows: Mutex<Windows>,
    blocks: Mutex<Blocks>,
    /// A registration in a domain of its own, so that its key fails on every queue pair.
    poison: Registration,
    _page: Page,
}

struct Region {
    mr: Registration,
    /// A dma-buf: its memory may lie in another device.
    in_device: bool,
}

#[derive(Default)]
struct Windows {
    open: HashMap<u64, WindowSlot>,
    last: u64,
}

struct WindowSlot {
    window: Window,
    domain: u32,
    /// Local key of the region it was last bound to; 0 when it is bound to none.
    bound_to: u32,
}

#[derive(Default)]
struct Blocks {
    mapped: HashMap<u64, Mapped>,
    last: u64,
}

/// All rights the engine may ask for.
const RIGHTS: [(Access, c_int); 5] = [
    (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
    // A device wants the local right for the remote one; the engine keeps the two apart.
    (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE),
    (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
    (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE),
    (Access::WINDOW, IBV_ACCESS_MW_BIND),
];

const REMOTE: [Access; 3] = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];

/// The device's flags for the interface's rights.
pub(crate) fn flags(access: Access) -> c_int {
    RIGHTS.iter().filter(|(right, _)| access.contains(*right)).fold(0, |sum, (_, flag)| sum | flag)
}

impl Memory {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Memory, Failure> {
        let domain = Pd::new(context).map_err(|error| status::failure("a protection domain", &error))?;
        let page = Page::new(context.guard);
        // SAFETY: the page is dropped after the registration, being the later field.
        let poison = unsafe { Registration::new(&domain, page.address(), 4096, 0) }
            .map_err(|error| no_registration("a page", 4096, &error))?;
        Ok(Memory {
            context: context.clone(),
            domains: Mutex::default(),
            regions: Mutex::default(),
            device_regions: AtomicU32::new(0),
            windows: Mutex::default(),
            blocks: Mutex::default(),
            poison,
            _page: page,
        })
    }

    /// A local key with which every access fails.
    pub(crate) fn poison_key(&self) -> u32 {
        self.poison.keys().0
    }

    /// The device's protection domain for one of the engine's.
    pub(crate) fn domain(&self, number: u32) -> Result<Arc<Pd>, Failure> {
        let mut domains = lock(&self.domains);
        if let Some(pd) = domains.get(&number).and_then(Weak::upgrade) {
            return Ok(pd);
        }
        let pd = Pd::new(&self.context).map_err(|error| status::failure("a protection domain", &error))?;
        domains.retain(|_, pd| pd.strong_count() > 0);
        domains.insert(number, Arc::downgrade(&pd));
        Ok(pd)
    }

    pub(crate) fn register(
        &self,
        params: &Params,
        addr: u64,
        len: u64,
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        let what = format!("{}: registration of {len} bytes at {addr:#x}", params.ia_name);
        if len == 0 || addr.checked_add(len).is_none() || usize::try_from(len).is_err() {
            return Err(Failure::new(Status::INVALID, format!("{what}: no range of memory")));
        }
        let mut flags = flags(access);
        if params.on_demand {
            flags |= IBV_ACCESS_ON_DEMAND;
        }
        let pd = self.domain(domain)?;
        let whole = self.whole_pages(addr, len);
        // SAFETY: the contract of `Device::register`: the engine keeps the memory until `deregister` succeeded. Whole
        // pages are those of a block, which the engine keeps as long.
        let mr = unsafe { Registration::new(&pd, addr, whole, flags) }.map_err(|error| {
            let mut failure = no_registration(&what, len, &error);
            if params.on_demand {
                failure.message.push_str("; on_demand is on, and not every device has on-demand paging");
            }
            failure
        })?;
        Ok(self.keep(Region { mr, in_device: false }, access))
    }

    pub(crate) fn register_dmabuf(
        &self,
        params: &Params,
        dmabuf: BorrowedFd<'_>,
        [offset, len, addr]: [u64; 3],
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        let name = &params.ia_name;
        let what = format!("{name}: registration of {len} bytes at {offset} of a dma-buf");
        if !params.dmabuf {
            let message = format!("{what}: switched off; set `dmabuf = \"on\"` in the adapter's params");
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        }
        let ends = [offset.checked_add(len), addr.checked_add(len)];
        if len == 0 || ends.contains(&None) || usize::try_from(len).is_err() {
            return Err(Failure::new(Status::INVALID, format!("{what}: no range of memory")));
        }
        // The exporter pins the memory, so no access on demand is requested.
        let mr = Registration::of_dmabuf(&self.domain(domain)?, dmabuf, offset, len, addr, flags(access));
        let mr = mr.map_err(|error| no_dmabuf(&what, &error))?;
        // Before the keys are known, so before the first post that names them.
        self.device_regions.fetch_add(1, Ordering::Release);
        Ok(self.keep(Region { mr, in_device: true }, access))
    }

    fn keep(&self, region: Region, access: Access) -> Keys {
        let (lkey, rkey) = region.mr.keys();
        lock(&self.regions).insert(lkey, region);
        let remote = REMOTE.iter().any(|right| access.contains(*right));
        Keys { lkey, rkey: if remote { rkey } else { 0 } }
    }

    /// Whether every registration is of memory that the processor can read. Only then may a driver copy a segment into its
    /// request (`IBV_SEND_INLINE`): the address of a dma-buf need not be one of this process.
    #[inline]
    pub(crate) fn all_in_process(&self) -> bool {
        self.device_regions.load(Ordering::Acquire) == 0
    }

    pub(crate) fn deregister(&self, keys: Keys) -> Status {
        // From here on no bind finds it. One under way holds the lock of the windows.
        let Some(region) = lock(&self.regions).remove(&keys.lkey) else { return Status::INVALID };
        let in_device = region.in_device;
        let ended = match region.mr.end() {
            Ok(()) => Ok(()),
            // A device does not end a registration that windows are bound to. Peers must lose access all the same.
            Err((_, mr)) => {
                self.unbind_all(keys.lkey);
                mr.end()
            }
        };
        match ended {
            Ok(()) => {
                if in_device {
                    self.device_regions.fetch_sub(1, Ordering::Release);
                }
                Status::OK
            }
            Err((error, mr)) => {
                tracing::error!(%error, "the device did not end a registration; it stays in use");
                lock(&self.regions).insert(keys.lkey, Region { mr, in_device });
                Status::IO
            }
        }
    }

    /// Posts a bind of the window `number` to the registration `lkey`, or to nothing, by `post`; gives the result of
    /// `post`. The window counts as bound before the post, and a deregistration waits until it was posted.
    pub(crate) fn bind<R>(
        &self,
        number: u64,
        lkey: Option<u32>,
        post: impl FnOnce(&Window, Option<&Registration>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let mut windows = lock(&self.windows);
        let slot = windows.open.get_mut(&number).ok_or(Status::INVALID)?;
        let regions = lock(&self.regions);
        let region = match lkey {
            None => None,
            Some(lkey) => Some(&regions.get(&lkey).ok_or(Status::INVALID)?.mr),
        };
        let before = std::mem::replace(&mut slot.bound_to, lkey.unwrap_or(0));
        post(&slot.window, region).inspect_err(|_| slot.bound_to = before)
    }

    pub(crate) fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let window =
            Window::new(&self.domain(domain)?).map_err(|error| status::failure("a memory window", &error))?;
        let mut windows = lock(&self.windows);
        windows.last += 1;
        let number = windows.last;
        windows.open.insert(number, WindowSlot { window, domain, bound_to: 0 });
        Ok(number)
    }

    pub(crate) fn close_window(&self, number: u64) -> Status {
        match lock(&self.windows).open.remove(&number) {
            Some(_) => Status::OK,
            None => Status::INVALID,
        }
    }

    /// Ends the bindings to a region whose registration ends: the windows are made anew, bound to nothing.
    fn unbind_all(&self, lkey: u32) {
        let mut windows = lock(&self.windows);
        for slot in windows.open.values_mut().filter(|slot| slot.bound_to == lkey) {
            match self
                .domain(slot.domain)
                .and_then(|pd| Window::new(&pd).map_err(|error| status::failure("a memory window", &error)))
            {
                Ok(fresh) => slot.window = fresh,
                Err(failure) => tracing::error!(%failure, "a window stays bound"),
            }
            slot.bound_to = 0;
        }
    }

    pub(crate) fn alloc(&self, params: &Params, len: u64) -> Result<Block, Failure> {
        let what = format!("{}: {len} bytes of memory", params.ia_name);
        let none = |why: &dyn std::fmt::Display| Failure::new(Status::NO_RESOURCE, format!("{what}: {why}"));
        let wanted = usize::try_from(len.max(1)).map_err(|error| none(&error))?;
        let huge = match params.hugepages {
            HugePages::Off => None,
            HugePages::Try => Mapped::new(wanted, true).ok(),
            HugePages::Require => Some(Mapped::new(wanted, true).map_err(|error| {
                none(&format!("no huge pages ({error}); reserve some in /proc/sys/vm/nr_hugepages"))
            })?),
        };
        let mapped = match huge {
            Some(mapped) => mapped,
            None => Mapped::new(wanted, false).map_err(|error| none(&error))?,
        };
        let mut blocks = lock(&self.blocks);
        blocks.last += 1;
        let block = Block { addr: mapped.addr as u64, len: mapped.len as u64, handle: blocks.last };
        blocks.mapped.insert(block.handle, mapped);
        Ok(block)
    }

    /// The length to register. libibverbs keeps pages from children made by fork, and the kernel does that for whole huge
    /// pages only. So the end of a block of huge pages is registered with its last page, which is the block's alone.
    fn whole_pages(&self, addr: u64, len: u64) -> u64 {
        let blocks = lock(&self.blocks);
        let of_block =
            |mapped: &&Mapped| mapped.huge && mapped.addr as u64 == addr && len <= mapped.len as u64;
        blocks.mapped.values().find(of_block).map_or(len, |_| len.next_multiple_of(HUGE as u64))
    }

    pub(crate) fn free(&self, block: Block) -> Status {
        let mut blocks = lock(&self.blocks);
        match blocks.mapped.get(&block.handle) {
            Some(mapped) if mapped.addr as u64 == block.addr => {
                blocks.mapped.remove(&block.handle);
                Status::OK
            }
            _ => Status::INVALID,
        }
    }
}

/// Why a registration failed; the limit on locked memory is the usual reason.
fn no_registration(what: &str, len: u64, error: &io::Error) -> Failure {
    if error.raw_os_error() == Some(libc::ENOMEM)
        && let Some(limit) = locked_memory_limit()
        && limit < u64::MAX / 2
    {
        let message = format!(
            "{what}: {error}. This process may lock {} KiB of memory and {} KiB were asked for on top of what it has \
             locked; raise `ulimit -l` (memlock in /etc/security/limits.conf, LimitMEMLOCK= in a systemd unit)",
            limit / 1024,
            len.div_ceil(1024)
        );
        return Failure::new(Status::NO_RESOURCE, message);
    }
    status::failure(what, error)
}

/// Neither error says whether the driver in the library or the one in the kernel lacks the feature.
fn no_dmabuf(what: &str, error: &io::Error) -> Failure {
    let unable = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY];
    if error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error().is_some_and(|code| unable.contains(&code))
    {
        let message = format!("{what}: {error}; the device's driver (or this libibverbs) does not do that");
        return Failure::new(Status::NOT_SUPPORTED, message);
    }
    status::failure(what, error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Zeroed memory of this process.
struct Mapped {
    addr: usize,
    len: usize,
    huge: bool,
}

const HUGE: usize = 2 << 20;

impl Mapped {
    fn new(len: usize, huge: bool) -> io::Result<Mapped> {
        let (unit, more) = if huge { (HUGE, MapFlags::HUGETLB) } else { (4096, MapFlags::empty()) };
        let len = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping overlaps nothing that is in use.
        let addr =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE | more)? };
        Ok(Mapped { addr: addr as usize, len, huge })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it and nothing else unmaps it. The engine frees a block after its registrations ended.
        let unmapped = unsafe { rustix::mm::munmap(self.addr as *mut _, self.len) };
        if let Err(error) = unmapped {
            tracing::error!(%error, "memory was not unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_brings_the_local_right_that_devices_want() {
        assert_eq!(flags(Access::LOCAL_READ), 0);
        assert_eq!(flags(Access::REMOTE_WRITE) & IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
        assert_eq!(flags(Access::REMOTE_READ), IBV_ACCESS_REMOTE_READ);
        assert_eq!(flags(Access::LOCAL_WRITE | Access::WINDOW), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    }

    #[test]
    fn mapped_memory_is_zeroed_and_whole_pages() {
        let mapped = Mapped::new(5000, false).expect("two pages");
        assert_eq!(mapped.len, 8192);
        // SAFETY: just mapped.
        let bytes = unsafe { std::slice::from_raw_parts(mapped.addr as *const u8, mapped.len) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
