//! All objects of the library, under the one lock: queue pairs by number, listeners by port.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdma_sys::cm::*;
use rdma_sys::verbs::*;

use crate::common::Object;

/// The most segments of a request. Few, so that a posted receive is copied by plain moves: the C library's copy takes
/// more or fewer instructions by where its ends lie.
pub const SEGMENTS: usize = 4;

/// A completion queue.
#[repr(C)]
pub struct Queue {
    pub base: ibv_cq,
    pub done: VecDeque<ibv_wc>,
    /// Flushed work of a slow device, and when it is given back.
    pub late: VecDeque<(Instant, ibv_wc)>,
    /// The next completion is reported on the channel.
    pub armed: bool,
}

/// A queue pair.
#[repr(C)]
pub struct Pair {
    pub base: ibv_qp,
    pub peer: *mut Pair,
    pub receives: VecDeque<Receive>,
    pub receives_limit: usize,
    /// Messages for which the peer has no receive yet.
    pub waiting: VecDeque<Waiting>,
}

/// A posted receive.
#[derive(Clone, Copy)]
pub struct Receive {
    pub id: u64,
    pub count: usize,
    pub segments: [ibv_sge; SEGMENTS],
}

/// A message that found no receive.
pub struct Waiting {
    pub bytes: Vec<u8>,
    pub request: Request,
}

/// What a request's completion carries.
#[derive(Clone, Copy)]
pub struct Request {
    pub id: u64,
    pub opcode: c_int,
    pub signalled: bool,
    /// Immediate data as on the wire.
    pub value: Option<u32>,
    /// The value of a write: no bytes go to the receive's memory.
    pub written: Option<u32>,
}

/// An identifier.
#[repr(C)]
pub struct Id {
    pub base: rdma_cm_id,
    pub peer: *mut Id,
    pub connected: bool,
    /// Has a port of its own.
    pub bound: bool,
    pub listens: u16,
    /// Number of the queue pair at the other end.
    pub peer_pair: u32,
}

/// A dma-buf as this library maps it. The application's address of it is no address of this process.
pub struct DmaBuf {
    pub addr: u64,
    pub len: u64,
    pub mapped: u64,
}

/// Registered memory: its range, its domain, and the rights peers have.
pub struct Region {
    pub addr: u64,
    pub len: u64,
    pub domain: usize,
    pub access: c_int,
}

/// Everything that finds objects by number.
pub struct World {
    pub pairs: BTreeMap<u32, Object<Pair>>,
    /// Registered dma-bufs by key.
    pub dmabufs: BTreeMap<u32, DmaBuf>,
    /// Registered memory by key.
    pub regions: BTreeMap<u32, Region>,
    pub listeners: BTreeMap<u16, Object<Id>>,
    /// Ports in use.
    pub ports: BTreeSet<u16>,
    last: u32,
}

impl World {
    /// A number for a new queue pair or key.
    pub fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// The segment with an address of this process.
    pub fn mapped(&self, segment: &ibv_sge) -> ibv_sge {
        match self.dmabufs.get(&segment.lkey) {
            None => *segment,
            Some(dmabuf) => ibv_sge { addr: segment.addr - dmabuf.addr + dmabuf.mapped, ..*segment },
        }
    }

    /// Whether a peer of a queue pair in `domain` may access these bytes.
    pub fn grants(&self, key: u32, domain: usize, (addr, len): (u64, u64), right: c_int) -> bool {
        self.regions.get(&key).is_some_and(|region| {
            let inside = addr >= region.addr && addr.saturating_add(len) <= region.addr + region.len;
            inside && region.domain == domain && region.access & right != 0
        })
    }

    /// A port that is not in use.
    pub fn free_port(&self) -> Option<u16> {
        (20_000..=u16::MAX).find(|port| !self.ports.contains(port))
    }
}

static WORLD: Mutex<World> = Mutex::new(World {
    pairs: BTreeMap::new(),
    dmabufs: BTreeMap::new(),
    regions: BTreeMap::new(),
    listeners: BTreeMap::new(),
    ports: BTreeSet::new(),
    last: 0,
});

/// The lock.
#[inline]
pub fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets `errno` and is the result of the functions that do so.
pub fn fail(code: c_int) -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// How long the device takes to give flushed work back: `DAT_FAKE_VERBS_FLUSH_MS`, 0 unless set.
pub fn flush_delay() -> Duration {
    static DELAY: OnceLock<Duration> = OnceLock::new();
    *DELAY.get_or_init(|| {
        let Some(text) = std::env::var_os("DAT_FAKE_VERBS_FLUSH_MS") else { return Duration::ZERO };
        let parsed = text.to_str().and_then(|text| text.parse().ok()).map(Duration::from_millis);
        // A test that asks for a slow device must not run on a fast one.
        parsed.unwrap_or_else(|| {
            eprintln!("DAT_FAKE_VERBS_FLUSH_MS={text:?} is no number of milliseconds");
            std::process::abort()
        })
    })
}
