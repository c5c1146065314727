//! A peer's device: what all connections to it share, what is kept of it for the next one, and how its death is seen.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, poll};

use crate::board::{Board, Map};
use crate::device::Dev;
use crate::handshake::{HELD, Holds, Wake};
use crate::memory::View;
use crate::one_sided::{self, Maps};
use crate::slab::{Place, Pool, Slab};
use crate::stage::Staging;

/// Slabs of the peer's that are kept although no connection uses them; and after how many sweeps these, and queues of its,
/// are not.
const SLABS: usize = 4;
const IDLE: u8 = 4;

/// How many of this device's queues are remembered as known to the peer.
const TOLD: usize = 8;

/// A device of a peer process.
pub(crate) struct Peer {
    /// As the socket says, 0 when it is in a process namespace that is not visible here.
    pub(crate) pid: u32,
    /// Its random number.
    pub(crate) device: u128,
    /// Its key table; `None` when it could not be mapped.
    pub(crate) keys: Option<View>,
    pub(crate) maps: Maps,
    /// Memory of this device's that it has mapped.
    pub(crate) staging: Staging,
    /// Whether its memory can be read through the kernel, once somebody tried.
    cma: OnceLock<Result<(), String>>,
    boards: Arc<Map>,
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

/// What it sent, by its numbers, and what it was sent.
#[derive(Default)]
struct Known {
    wakes: HashMap<u64, Weak<Waker>>,
    /// Those used last, which stay, with the number of sweeps that found them unused.
    recent: VecDeque<(u64, Arc<Waker>, u8)>,
    slabs: HashMap<u64, Weak<Slab>>,
    recent_slabs: VecDeque<(Arc<Slab>, u8)>,
    /// Queues of this device's it has, or had not long ago.
    told: VecDeque<u64>,
}

/// How a queue of the peer's is told.
pub(crate) struct Waker {
    pub(crate) fd: OwnedFd,
    pub(crate) board: Board,
}

impl Peer {
    pub(crate) fn new(
        dev: &Arc<Dev>,
        pid: u32,
        device: u128,
        [keys, boards]: [OwnedFd; 2],
        token: u64,
    ) -> Result<Peer, String> {
        let boards = Arc::new(Map::open(boards)?);
        let keys = match View::open(&keys) {
            Ok(view) => Some(view),
            Err(error) => {
                tracing::warn!(pid, "the peer's key table: {error}; it executes writes and reads itself");
                None
            }
        };
        let watch = rustix::process::Pid::from_raw(pid as i32)
            .filter(|_| pid != std::process::id())
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok())
            .filter(|fd| dev.epoll_add(fd.as_fd(), token).is_ok())
            .map(|fd| (fd, token));
        Ok(Peer {
            pid,
            device,
            keys,
            maps: Maps::default(),
            staging: Staging::default(),
            cma: OnceLock::new(),
            boards,
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

    /// Asks the system whether its process lives: then nobody else has that number.
    pub(crate) fn lives(&self) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match &self.watch {
            Some((fd, _)) => poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)) == Ok(0),
            None => self.pid == std::process::id(),
        }
    }

    /// Tries to read its memory through the kernel: `probe` is where its device has `nonce`.
    pub(crate) fn try_cma(&self, probe: u64, nonce: u64) -> Result<(), String> {
        self.cma.get_or_init(|| one_sided::try_nonce(self.pid, probe, nonce)).clone()
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

    /// The way to a queue of the peer's, one for all connections that use it; `fd` came with this one.
    pub(crate) fn waker(&self, wake: Wake, fd: Option<OwnedFd>) -> Result<Arc<Waker>, String> {
        if let Some(known) = self.known_waker(wake.queue) {
            return Ok(known);
        }
        let fd = fd.ok_or_else(|| format!("queue {} was not sent", wake.queue))?;
        let board =
            self.boards.board(wake.board).map_err(|error| format!("board {}: {error}", wake.board))?;
        let waker = Arc::new(Waker { fd, board });
        let mut known = self.known();
        known.wakes.retain(|_, known| known.strong_count() > 0);
        known.wakes.insert(wake.queue, Arc::downgrade(&waker));
        known.recent.push_front((wake.queue, waker.clone(), 0));
        known.recent.truncate(HELD);
        Ok(waker)
    }

    pub(crate) fn known_waker(&self, queue: u64) -> Option<Arc<Waker>> {
        let mut known = self.known();
        let waker = known.wakes.get(&queue).and_then(Weak::upgrade)?;
        if known.recent.front().is_none_or(|(first, ..)| *first != queue) {
            known.recent.retain(|(other, ..)| *other != queue);
            known.recent.push_front((queue, waker.clone(), 0));
            known.recent.truncate(HELD);
        }
        Some(waker)
    }

    /// What need not be sent to this side; the queues stay as long as the second part is held.
    pub(crate) fn holds(&self) -> (Holds, Vec<Arc<Waker>>) {
        let known = self.known();
        let mut holds = Holds { device: self.device, ..Holds::default() };
        for (queue, (number, ..)) in holds.queues.iter_mut().zip(&known.recent) {
            *queue = *number;
        }
        (holds, known.recent.iter().map(|(_, waker, _)| waker.clone()).collect())
    }

    /// A slab of the peer's.
    pub(crate) fn slab(&self, ring: usize, place: Place, fd: Option<OwnedFd>) -> Result<Arc<Slab>, String> {
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

    /// Whether the peer has this queue of this device, as far as is known.
    pub(crate) fn is_told(&self, queue: u64) -> bool {
        self.known().told.contains(&queue)
    }

    /// The peer has it.
    pub(crate) fn told(&self, queue: u64) {
        let mut known = self.known();
        if !known.told.contains(&queue) {
            known.told.push_front(queue);
            known.told.truncate(TOLD);
        }
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
            if self.staging.is_made() {
                dev.areas.fetch_sub(1, Ordering::Relaxed);
            }
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

/// As many peers are kept, and as many ports remembered; others are met anew each time.
const PEERS: usize = 256;
const PORTS: usize = 1024;

impl Peers {
    /// The object of a peer's device; `make` makes it when it is met for the first time.
    pub(crate) fn get(
        &self,
        pid: u32,
        device: u128,
        make: impl FnOnce() -> Result<Arc<Peer>, String>,
    ) -> Result<Arc<Peer>, String> {
        let mut list = self.list();
        if let Some(known) = list.get(&(pid, device)).and_then(|entry| entry.peer.upgrade()) {
            return Ok(known);
        }
        list.retain(|_, entry| entry.peer.strong_count() > 0);
        let peer = make()?;
        let kept = (peer.keeps() && list.len() < PEERS).then(|| (peer.clone(), 0));
        list.insert((pid, device), Entry { peer: Arc::downgrade(&peer), kept });
        Ok(peer)
    }

    /// The one of this process and device, if there is one that would be kept.
    pub(crate) fn known(&self, pid: u32, device: u128) -> Option<Arc<Peer>> {
        let peer = self.list().get(&(pid, device))?.peer.upgrade()?;
        peer.keeps().then_some(peer)
    }

    /// The one that listened on this port when it was last asked, if it is still of that process.
    pub(crate) fn at(&self, port: u64, pid: u32) -> Option<Arc<Peer>> {
        let peer = self.ports().get(&port).and_then(Weak::upgrade)?;
        (peer.pid == pid && peer.keeps()).then_some(peer)
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
