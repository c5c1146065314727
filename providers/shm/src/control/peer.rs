//! A peer's device: what all connections to it share, what is kept of it for the next one, and how its death is seen.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, poll};

use crate::control::device::Dev;
use crate::control::handshake::Wake;
use crate::control::trust::{self, Credentials};
use crate::data::slab::{Place, Pool, Slab};
use crate::foreign::ForeignFd;
use crate::memory::keys::KeyView;
use crate::memory::peer_memory::PeerMemory;
use crate::notify::ready_bitmap::BitmapFile;
use crate::notify::wake::{WakeSender, Waker};

/// Slabs of the peer's that are kept although no connection uses them; and after how many sweeps these, and queues of its,
/// are not.
const SLABS: usize = 4;
const IDLE: u8 = 4;

/// Queues of the peer's that are kept although no connection uses them.
const QUEUES: usize = 4;

/// A device of a peer process.
pub(crate) struct Peer {
    /// As the socket says, 0 when it is in a process namespace that is not visible here.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Its random number.
    pub(crate) device: u128,
    /// See [`Credentials::is_trusted`].
    trusted: bool,
    pub(crate) memory: Arc<PeerMemory>,
    /// Whether its memory can be read through the kernel; set by the first try.
    cma: OnceLock<Result<(), String>>,
    bitmaps: Arc<BitmapFile>,
    /// Where wake-ups to it come from.
    sender: Arc<WakeSender>,
    /// Blocks of this device that it may have mapped.
    shared: Mutex<HashSet<u64>>,
    known: Mutex<Known>,
    /// Memory of connections to it.
    pub(crate) pool: Arc<Pool>,
    /// Readable when the process is dead. The socket tells as well, except where the dead process has a living child
    /// that inherited it.
    watch: Option<(OwnedFd, u64)>,
    dead: AtomicBool,
    /// Connections.
    links: AtomicU32,
    dev: Weak<Dev>,
}

/// What it sent, by its numbers.
#[derive(Default)]
struct Known {
    wakes: HashMap<u64, Weak<Waker>>,
    /// Those used last, which stay, with the number of sweeps that found them unused.
    recent: VecDeque<(u64, Arc<Waker>, u8)>,
    slabs: HashMap<u64, Weak<Slab>>,
    recent_slabs: VecDeque<(Arc<Slab>, u8)>,
}

impl Peer {
    pub(crate) fn new(
        dev: &Arc<Dev>,
        Credentials { pid, uid }: Credentials,
        device: u128,
        parts: (ForeignFd, Option<ForeignFd>),
        socket: &ForeignFd,
        token: u64,
    ) -> Result<Peer, String> {
        let (bitmaps, keys) = parts;
        let bitmaps = Arc::new(BitmapFile::open(bitmaps)?);
        let trusted = Credentials { pid, uid }.is_trusted();
        let keys = keys.filter(|_| trusted).map(KeyView::open).transpose().unwrap_or_else(|why| {
            tracing::warn!(pid, "the peer's key table: {why}; it executes writes and reads itself");
            None
        });
        let limit = if trusted { dev.params.peer_map_bytes } else { 0 };
        let sender = WakeSender::new().map_err(|error| format!("a socket to wake it: {error}"))?;
        let watch = Some(pid)
            .filter(|pid| *pid != std::process::id())
            .and_then(|pid| trust::pidfd(socket, pid))
            .filter(|fd| dev.epoll_add(fd.as_fd(), token).is_ok())
            .map(|fd| (fd, token));
        Ok(Peer {
            pid,
            uid,
            device,
            trusted,
            memory: Arc::new(PeerMemory::new(pid, keys, limit)),
            cma: OnceLock::new(),
            bitmaps,
            sender: Arc::new(sender),
            shared: Mutex::default(),
            known: Mutex::default(),
            pool: Arc::default(),
            watch,
            dead: AtomicBool::new(false),
            links: AtomicU32::new(0),
            dev: Arc::downgrade(dev),
        })
    }

    /// Whether it may be kept beyond its connections: where its death is seen, so that its number means the same process.
    pub(crate) fn keeps(&self) -> bool {
        (self.watch.is_some() || self.pid == std::process::id()) && !self.dead.load(Ordering::Acquire)
    }

    /// Asks the system whether its process lives. While it lives, its number is not reused.
    pub(crate) fn lives(&self) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match &self.watch {
            Some((fd, _)) => poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)) == Ok(0),
            None => self.pid == std::process::id(),
        }
    }

    /// Whether it may reach this process's memory itself, and this process its memory.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Tries to read its memory through the kernel: `probe` is where its device has `nonce`.
    pub(crate) fn try_cma(&self, probe: u64, nonce: u64) -> Result<(), String> {
        if !self.trusted {
            return Err("the peer is of another user, or lacks capabilities of this process".into());
        }
        self.cma.get_or_init(|| crate::memory::cma::try_nonce(self.pid, probe, nonce)).clone()
    }

    /// Its process is known to be dead.
    pub(crate) fn died(&self, dev: &Dev) {
        self.dead.store(true, Ordering::Release);
        self.unwatch(dev);
    }

    fn unwatch(&self, dev: &Dev) {
        if let Some((fd, token)) = &self.watch {
            dev.unwatch(*token, fd.as_fd());
        }
    }

    /// The way to a queue of the peer's, one for all connections that use it.
    pub(crate) fn waker(&self, wake: Wake) -> Result<Arc<Waker>, String> {
        let mut known = self.known();
        if let Some(waker) = known.wakes.get(&wake.queue).and_then(Weak::upgrade) {
            return Ok(waker);
        }
        let failed = |error| format!("ready bitmap {}: {error}", wake.bitmap);
        let bitmap = self.bitmaps.bitmap(wake.bitmap).map_err(failed)?;
        let waker =
            Arc::new(Waker::new(bitmap, &self.sender, self.device, wake.queue, wake.secret).map_err(failed)?);
        known.wakes.retain(|_, known| known.strong_count() > 0);
        known.wakes.insert(wake.queue, Arc::downgrade(&waker));
        known.recent.push_front((wake.queue, waker.clone(), 0));
        known.recent.truncate(QUEUES);
        Ok(waker)
    }

    /// It gets a descriptor of this block.
    pub(crate) fn shares(&self, map: u64) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).insert(map);
    }

    /// The block is free. `true`: the peer may have it mapped.
    pub(crate) fn unshare(&self, map: u64) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).remove(&map)
    }

    /// A slab of the peer's.
    pub(crate) fn slab(&self, ring: usize, place: Place, fd: Option<ForeignFd>) -> Result<Arc<Slab>, String> {
        if let Some(slab) = self.known_slab(ring, place) {
            return Ok(slab);
        }
        let fd = fd.ok_or_else(|| format!("memory {} was not sent, or is another", place.slab))?;
        let slab = Arc::new(Slab::open(fd, ring, place)?);
        if !slab.fits(ring, place) {
            return Err(format!("place {} of {}", place.slot, place.slots));
        }
        let mut known = self.known();
        known.slabs.retain(|_, known| known.strong_count() > 0);
        known.slabs.insert(place.slab, Arc::downgrade(&slab));
        known.recent_slabs.push_front((slab.clone(), 0));
        known.recent_slabs.truncate(SLABS);
        Ok(slab)
    }

    pub(crate) fn known_slab(&self, ring: usize, place: Place) -> Option<Arc<Slab>> {
        let slab = self.known().slabs.get(&place.slab).and_then(Weak::upgrade)?;
        slab.fits(ring, place).then_some(slab)
    }

    /// Connections come and go.
    pub(crate) fn linked(&self, by: i32) {
        self.links.fetch_add(by as u32, Ordering::AcqRel);
    }

    /// A connection is over: what it leaves unused is looked after.
    pub(crate) fn leave(&self) {
        if let Some(dev) = self.dev.upgrade().filter(|dev| dev.owner.here()) {
            dev.timer.sweep();
        }
    }

    pub(crate) fn links(&self) -> u32 {
        self.links.load(Ordering::Acquire)
    }

    /// Drops what was not used for a while. `true`: there is more that may have to go later.
    pub(crate) fn sweep(&self) -> bool {
        let unused = self.pool.sweep();
        let mut known = self.known();
        for (slab, idle) in &mut known.recent_slabs {
            *idle = if slab.users() == 0 { *idle + 1 } else { 0 };
        }
        known.recent_slabs.retain(|(_, idle)| *idle < IDLE);
        for (_, waker, idle) in &mut known.recent {
            *idle = if Arc::strong_count(waker) == 1 { *idle + 1 } else { 0 };
        }
        known.recent.retain(|(.., idle)| *idle < IDLE);
        let mut idle = known.recent_slabs.iter().map(|(_, idle)| *idle);
        unused || idle.any(|idle| idle > 0) || known.recent.iter().any(|(.., idle)| *idle > 0)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(dev) = self.dev.upgrade() {
            self.unwatch(&dev);
        }
    }
}

/// The peers of a device.
#[derive(Default)]
pub(crate) struct Peers {
    /// By process and device.
    list: Mutex<HashMap<(u32, u128), Entry>>,
    /// Who listens, as far as is known from connections.
    ports: Mutex<HashMap<u64, Weak<Peer>>>,
}

struct Entry {
    peer: Weak<Peer>,
    /// Keeps it, with the number of sweeps that found it without connections.
    kept: Option<(Arc<Peer>, u8)>,
}

/// The most peers kept and ports remembered. Others go through a full handshake each time.
const PEERS: usize = 256;
const PORTS: usize = 1024;

impl Peers {
    /// All that are known.
    pub(crate) fn all(&self) -> Vec<Arc<Peer>> {
        self.list().values().filter_map(|entry| entry.peer.upgrade()).collect()
    }

    /// The object of a peer's device; `make` makes it when it is met for the first time.
    pub(crate) fn get(
        &self,
        Credentials { pid, uid }: Credentials,
        device: u128,
        make: impl FnOnce() -> Result<Arc<Peer>, String>,
    ) -> Result<Arc<Peer>, String> {
        let mut list = self.list();
        if let Some(known) = list.get(&(pid, device)).and_then(|entry| entry.peer.upgrade()) {
            let same = known.uid == uid;
            return if same { Ok(known) } else { Err("the process changed its user".into()) };
        }
        list.retain(|_, entry| entry.peer.strong_count() > 0);
        let peer = make()?;
        let kept = (peer.keeps() && list.len() < PEERS).then(|| (peer.clone(), 0));
        list.insert((pid, device), Entry { peer: Arc::downgrade(&peer), kept });
        Ok(peer)
    }

    /// The peer of this process and device, if it would be kept.
    pub(crate) fn known(&self, Credentials { pid, uid }: Credentials, device: u128) -> Option<Arc<Peer>> {
        let peer = self.list().get(&(pid, device))?.peer.upgrade()?;
        (peer.uid == uid && peer.keeps()).then_some(peer)
    }

    /// The peer that last listened on this port, if the same process still does.
    pub(crate) fn at(&self, port: u64, Credentials { pid, uid }: Credentials) -> Option<Arc<Peer>> {
        let peer = self.ports().get(&port).and_then(Weak::upgrade)?;
        (peer.pid == pid && peer.uid == uid && peer.keeps()).then_some(peer)
    }

    /// It listens there.
    pub(crate) fn listens(&self, port: u64, peer: &Arc<Peer>) {
        if !peer.keeps() {
            return;
        }
        let mut ports = self.ports();
        if ports.len() >= PORTS && !ports.contains_key(&port) {
            ports.clear();
        }
        let known = ports.entry(port).or_default();
        if !std::ptr::eq(known.as_ptr(), Arc::as_ptr(peer)) {
            *known = Arc::downgrade(peer);
        }
    }

    /// It is dead.
    pub(crate) fn forget(&self, peer: &Peer) {
        let gone = self.list().remove(&(peer.pid, peer.device));
        drop(gone);
    }

    /// Drops what was not used for a while. `true`: there is more that may have to go later.
    pub(crate) fn sweep(&self) -> bool {
        let mut more = false;
        // Dropped without the lock.
        let mut gone = Vec::new();
        self.list().retain(|_, entry| {
            let Some(peer) = entry.peer.upgrade() else { return false };
            more |= peer.sweep();
            if let Some((_, idle)) = &mut entry.kept {
                *idle = if peer.links() == 0 { *idle + 1 } else { 0 };
                more |= *idle > 0;
            }
            gone.push((peer, 0));
            if entry.kept.as_ref().is_some_and(|(_, idle)| *idle >= IDLE) {
                gone.extend(entry.kept.take());
            }
            true
        });
        more
    }

    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.list());
        drop(gone);
    }

    fn list(&self) -> MutexGuard<'_, HashMap<(u32, u128), Entry>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<u64, Weak<Peer>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
