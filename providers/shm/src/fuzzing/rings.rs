//! Rings and counters of a hostile peer: the victim is a whole data path, over a segment that the input writes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use dat_kit::ForkGuard;
use dat_plugin::feed::Feed;
use dat_plugin::{
    Access, AtomicRequest, ChannelAttr, Completion, CompletionFlag, CompletionStatus, Keys, Opcode, PostFlag,
    RecvRequest, Request, Segment as Seg, Status,
};

use crate::data::conn::{Conn, Control};
use crate::data::doorbell::Doorbells;
use crate::data::link::Link;
use crate::data::protocol::{OneSided, Thresholds, kind};
use crate::data::queue_pair::QueuePair;
use crate::data::ring::{Memory, Producer, UNIT};
use crate::data::segment::{RingMemory, Segment, Side};
use crate::data::sizes::{self, SIDE};
use crate::data::slab::{Place, Slab, Slot};
use crate::memory::keys::KeyTable;
use crate::memory::mapping::{Pages, Seals, SharedMapping};
use crate::memory::peer_memory::PeerMemory;
use crate::memory::target::{Atomic, Part, Target};

const RING: usize = 4096;
const DOMAIN: u32 = 7;
const RECVS: u32 = 8;
/// Bytes of an area, and of the strip beside it that nobody may write.
const AREA: usize = 1024;
const STRIP: usize = 64;
const STRIPE: u8 = 0xC5;

/// What all executions share.
struct World {
    slab: Arc<Slab>,
    owner: Arc<ForkGuard>,
    keys: Arc<KeyTable>,
    /// Two areas between strips: one for receives and answers, one that peers may access.
    base: u64,
    local: Keys,
    remote: Keys,
    /// Memory of the peer's that can be mapped.
    mappable: SharedMapping,
    /// The peer's key table, with a registration there.
    peer_keys: KeyTable,
    peer_rkey: u32,
    peer_addr: u64,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let words = (3 * STRIP + 2 * AREA) / 8;
        let base = Box::leak(vec![0u64; words].into_boxed_slice()).as_mut_ptr() as u64;
        let keys = Arc::new(KeyTable::new().expect("a table"));
        let all = Access(0x3F);
        let local = keys.register(base + STRIP as u64, AREA as u64, all, DOMAIN + 1).expect("room");
        let remote_at = base + (2 * STRIP + AREA) as u64;
        let remote = keys.register(remote_at, AREA as u64, all, DOMAIN).expect("room");
        let mappable = SharedMapping::create("fuzz", 8192, Pages::Normal, Seals::BothWrite).expect("memory");
        mappable.fill(0, 8192).expect("pages");
        let peer_keys = KeyTable::new().expect("a table");
        let block = peer_keys.alloc(4096, crate::memory::mapping::HugePages::Off).expect("a block");
        let peer = peer_keys.register(block.addr, block.len, all, DOMAIN).expect("room");
        World {
            slab: Arc::new(Slab::create(RING, 1).expect("memory")),
            owner: Arc::new(ForkGuard::new().expect("a page")),
            keys,
            base,
            local,
            remote,
            mappable,
            peer_keys,
            peer_rkey: peer.rkey,
            peer_addr: block.addr,
        }
    })
}

/// The control plane: counts what it is told.
#[derive(Default)]
struct Told {
    faults: AtomicU32,
}

impl Control for Told {
    fn schedule_progress(&self) {}
    fn fault(&self, _: &str) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
    fn receive_available(&self) {}
    fn kick(&self) {}
    fn ask_for(&self, map: u64, _: bool) -> bool {
        map % 2 == 0
    }
    fn end_window(&self, rkey: u32) -> bool {
        world().keys.end_window(rkey, DOMAIN)
    }
}

/// A victim and what it posted.
struct Victim {
    pair: QueuePair,
    /// The peer's part of the control page.
    side: *const Side,
    requests: RingMemory,
    answers: RingMemory,
    receives: Vec<(u64, u64)>,
    requested: Vec<u64>,
    next: u64,
    told: Arc<Told>,
}

impl Victim {
    fn new(feed: &mut Feed<'_>) -> Victim {
        let world = world();
        let place = Place { slab: 1, slots: 1, slot: 0, turn: 1 };
        let slot = Slot::given(&world.slab, place).expect("pages");
        let base = slot.base();
        // SAFETY: the slot is of this size, and the victim before this one is gone.
        unsafe { std::ptr::write_bytes(base, 0, sizes::segment(RING)) };
        // SAFETY: leaked memory of this size that nobody uses now.
        unsafe { std::ptr::write_bytes(world.base as *mut u8, STRIPE, 3 * STRIP + 2 * AREA) };
        let segment = Segment::new(slot);
        let (requests, answers) = (segment.requests()[1], segment.answer_rings()[1]);
        let config = feed.u8();
        let one_sided = if config & 1 == 0 { OneSided::Auto } else { OneSided::Target };
        let attr = ChannelAttr {
            user: 1,
            send_user: 11,
            recv_user: 12,
            domain: DOMAIN,
            max_requests: 8,
            max_recvs: RECVS,
            max_request_segments: 4,
            max_recv_segments: 4,
            max_reads_out: 4,
            max_reads_in: 4,
            reserved: 0,
            max_message: 1 << 20,
        };
        let thresholds = Thresholds { mapped: 512, kernel: Some(u64::MAX), one_sided };
        let told = Arc::new(Told::default());
        let control: Arc<dyn Control> = told.clone();
        let conn = Conn::new(
            attr,
            Doorbells::new([None, None], config & 2 != 0),
            thresholds,
            world.owner.clone(),
            world.keys.clone(),
            Arc::downgrade(&control),
        );
        let keys = (config & 4 != 0).then(|| world.peer_keys.view().expect("a table"));
        let memory = Arc::new(PeerMemory::new(0, keys, 1 << 20));
        if config & 8 != 0 {
            let fd = || world.mappable.file().map(|fd| fd.try_clone_to_owned().expect("a descriptor").into());
            memory.maps.answer(1, config & 16 != 0, 8192, false, fd());
        }
        // No access through the kernel: what the peer names would be memory of this process.
        let link = Link::new(segment, memory, DOMAIN, 4, [None, None], true, false);
        let pair = QueuePair::new(conn, 4, None);
        assert!(pair.conn.link.set(link).is_ok());
        pair.start(false);
        let side = base.cast_const().cast();
        Victim { pair, side, requests, answers, receives: vec![], requested: vec![], next: 1, told }
    }

    fn side(&self) -> &Side {
        // SAFETY: side 0 of the control page, all atomics, mapped for ever.
        unsafe { &*self.side }
    }

    fn segments(&self, feed: &mut Feed<'_>) -> Vec<Seg> {
        let (base, lkey) = (world().base + STRIP as u64, world().local.lkey);
        (0..feed.u8() % 5)
            .map(|_| {
                let at = feed.u16() as usize % AREA;
                let len = 1 + feed.u16() as usize % (AREA - at);
                // SAFETY: inside the first area, which is registered under this key and lives for ever.
                unsafe { Seg::from_parts(base + at as u64, len as u32, lkey) }
            })
            .collect()
    }

    fn post_recv(&mut self, feed: &mut Feed<'_>) {
        let segments = self.segments(feed);
        // SAFETY: `segments` lives until the post returned.
        let request = unsafe { RecvRequest::from_parts(self.next, &segments) };
        if self.pair.post_recv(&request) == Status::OK {
            self.receives.push((self.next, request.total));
            self.next += 1;
        }
        assert!(self.receives.len() <= RECVS as usize + 1);
    }

    fn remote(&self, feed: &mut Feed<'_>) -> (u64, u32) {
        let addr = world().peer_addr.wrapping_add(feed.edge());
        (addr, if feed.flag() { feed.u32() } else { world().peer_rkey })
    }

    fn post(&mut self, feed: &mut Feed<'_>) {
        const OPCODES: [Opcode; 4] = [Opcode::SEND, Opcode::SEND, Opcode::WRITE, Opcode::READ];
        let segments = self.segments(feed);
        let opcode = feed.pick(&OPCODES);
        // SAFETY: `segments` lives until the post returned.
        let mut request = unsafe { Request::from_parts(opcode, self.next, &segments) };
        request.flags =
            feed.pick(&[PostFlag::NONE, PostFlag::UNSIGNALLED, PostFlag::FENCE, PostFlag::SOLICITED]);
        (request.remote_addr, request.rkey) = self.remote(feed);
        if opcode == Opcode::READ {
            request.remote_len = request.total as u32;
        }
        if self.pair.post(&request) == Status::OK {
            self.requested.push(self.next);
            self.next += 1;
        }
    }

    fn post_atomic(&mut self, feed: &mut Feed<'_>) {
        let (remote_addr, rkey) = self.remote(feed);
        let request = AtomicRequest {
            token: self.next,
            opcode: feed.pick(&[Opcode::FETCH_ADD, Opcode::CMP_SWAP]),
            flags: PostFlag::NONE,
            rkey,
            remote_addr,
            operand: feed.u64(),
            swap: feed.u64(),
            // SAFETY: inside the first area.
            sink: unsafe { Seg::from_parts(world().base + STRIP as u64, 8, world().local.lkey) },
        };
        if self.pair.post_atomic(&request) == Status::OK {
            self.requested.push(self.next);
            self.next += 1;
        }
    }

    /// Polls once, and checks what came.
    fn poll(&mut self) -> usize {
        let mut out = [Completion::default(); 4];
        let n = self.pair.poll_recv(&mut out, false);
        for done in &out[..n] {
            let place = self.receives.iter().position(|(token, _)| *token == done.token);
            let (_, room) = self.receives.remove(place.expect("a receive that is posted"));
            assert_eq!(done.user, 12);
            // The length of a write is that of other memory.
            if done.status == CompletionStatus::SUCCESS && !done.flags.contains(CompletionFlag::WRITTEN) {
                assert!(u64::from(done.length) <= room, "{} bytes in {room}", done.length);
            }
        }
        let m = self.pair.poll_send(&mut out);
        for done in &out[..m] {
            let place = self.requested.iter().position(|token| *token == done.token);
            // Completions come in order; requests before this one that were not signalled are done too.
            self.requested.drain(..=place.expect("a request that is posted"));
            assert_eq!(done.user, 11);
        }
        n + m
    }

    /// Polls until nothing is left: no ring keeps a victim for ever.
    fn drain(&mut self) {
        let mut polls = 0;
        while self.poll() > 0 {
            polls += 1;
            assert!(polls < 64, "the ring never ends");
        }
        self.pair.pump();
        self.poll();
    }

    fn end(mut self) {
        self.drain();
        self.pair.stop(true);
        while self.poll() > 0 {}
        self.check();
        drop(self.told);
    }

    fn check(&self) {
        for at in [0, STRIP + AREA, 2 * (STRIP + AREA)] {
            // SAFETY: a strip of the leaked memory.
            let strip =
                unsafe { std::slice::from_raw_parts((world().base as usize + at) as *const u8, STRIP) };
            assert!(strip.iter().all(|byte| *byte == STRIPE), "memory beside a buffer was written");
        }
    }

    /// An address and key for the victim's memory, sound or nearly.
    fn target(&self, feed: &mut Feed<'_>) -> Target {
        let world = world();
        let remote_at = world.base + (2 * STRIP + AREA) as u64;
        let addr = match feed.u8() % 4 {
            0 | 1 => remote_at + u64::from(feed.u16()) % (AREA as u64 + 16),
            2 => remote_at.wrapping_sub(feed.edge()),
            _ => world.base.wrapping_add(feed.edge()),
        };
        let rkey = match feed.u8() % 8 {
            0 => world.local.rkey,
            1 => world.remote.lkey,
            2 => feed.u32(),
            _ => world.remote.rkey,
        };
        Target { addr, len: feed.edge(), rkey }
    }

    /// Writes a payload to `to`, where `room` bytes are. Gives its length.
    fn payload(&self, feed: &mut Feed<'_>, kind: u8, to: *mut u8, room: usize) -> usize {
        let part = |feed: &mut Feed<'_>| Part {
            addr: feed.u64(),
            len: feed.edge(),
            map: feed.u8().into(),
            offset: feed.edge(),
        };
        let room = room.min(1024);
        match kind {
            kind::WRITE | kind::READ if room >= Target::BYTES => {
                // SAFETY: `room` bytes are there.
                unsafe { self.target(feed).store(to) };
                Target::BYTES
            }
            kind::ATOMIC if room >= Atomic::BYTES => {
                let operands = [feed.u64(), feed.u64()];
                let swap = feed.flag();
                // SAFETY: as above.
                unsafe { Atomic { target: self.target(feed), operands, swap }.store(to) };
                Atomic::BYTES
            }
            kind::PULL => {
                let parts = (feed.u8() as usize % 5).min(room / Part::BYTES);
                for index in 0..parts {
                    // SAFETY: as above.
                    unsafe { part(feed).store(to.add(index * Part::BYTES)) };
                }
                parts * Part::BYTES
            }
            kind::HEAD | kind::MORE if feed.flag() && room >= Part::BYTES => {
                // SAFETY: as above.
                unsafe { part(feed).store(to) };
                Part::BYTES
            }
            _ => {
                let bytes = feed.bytes(room);
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                bytes.len()
            }
        }
    }

    /// A frame where the peer would put it.
    fn frame(&self, feed: &mut Feed<'_>, producer: &mut Producer, ring: RingMemory) {
        let (kind, flags) = (feed.u8() % 12, feed.u8() & 0x1F);
        let (room, extra, acked) = (feed.u8() as usize * 4, feed.edge() as u32, feed.u8());
        let mut payload = [0u64; 128];
        let len = self.payload(feed, kind, payload.as_mut_ptr().cast(), room);
        let Some(slot) = producer.reserve(&ring, len) else {
            // The victim is full: it has room once it consumed all.
            let _ = producer.credit(producer.head);
            return;
        };
        let at = slot.at;
        // SAFETY: the slot has room for `len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr().cast(), ring.at(slot.payload), len) };
        let arg = u64::from(extra) << 32 | u64::from(acked);
        producer.publish(&ring, slot, kind, flags, arg);
        if feed.u8() == 1 {
            ring.set_rest(at, feed.edge() as u32, arg);
        }
    }

    fn raw(&self, feed: &mut Feed<'_>, ring: RingMemory, size: usize) {
        let at = feed.u16() as usize % size;
        let len = (feed.u8() as usize).min(size - at);
        let bytes = feed.bytes(len);
        // SAFETY: inside the ring.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.at(at), bytes.len()) };
    }

    fn counter(&self, feed: &mut Feed<'_>) {
        let (which, value, side) = (feed.u8() % 8, feed.edge(), self.side());
        match which {
            0 => side.consumed.store(value, Ordering::Release),
            1 => side.answers_consumed.store(value, Ordering::Release),
            2 => side.completed.store(value as u32, Ordering::Release),
            3 => side.fail.store(value as u32, Ordering::Release),
            4 => side.parked[0].store(value as u32, Ordering::Release),
            5 => side.parked[1].store(value as u32, Ordering::Release),
            6 => side.want_room.store(value as u32, Ordering::Release),
            _ => side.gone.store(value as u32, Ordering::Release),
        }
    }
}

/// A whole ring, and a victim with receives that takes what is there.
pub fn image(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    let mut victim = Victim::new(&mut feed);
    for _ in 0..feed.u8() % 9 {
        victim.post_recv(&mut feed);
    }
    let bytes = feed.bytes(RING);
    // SAFETY: the ring has this size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), victim.requests.at(0), bytes.len()) };
    victim.end();
}

/// A peer's frames, counters and stray bytes in any order, with the victim's own work between.
pub fn program(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    let mut victim = Victim::new(&mut feed);
    let answers = sizes::answers(RING);
    let (mut requests_in, mut answers_in) = (Producer::new(RING), Producer::new(answers));
    let mut last = 0;
    while !feed.is_empty() {
        match feed.u8() % 16 {
            0..=3 => victim.frame(&mut feed, &mut requests_in, victim.requests),
            4 => victim.frame(&mut feed, &mut answers_in, victim.answers),
            5 => victim.raw(&mut feed, victim.requests, RING),
            6 => victim.raw(&mut feed, victim.answers, answers),
            7 => victim.counter(&mut feed),
            8 | 9 => victim.post_recv(&mut feed),
            10 => victim.post(&mut feed),
            11 => victim.post_atomic(&mut feed),
            12 => {
                victim.poll();
                let consumed = victim.pair.conn.link.get().map(|link| link.segment.own());
                let _ = consumed.map(|own| requests_in.credit(own.consumed.load(Ordering::Relaxed)));
            }
            13 => victim.pair.pump(),
            14 => {
                victim.pair.progress_idle(&mut last);
            }
            _ => victim.pair.set_event_driven(feed.flag(), feed.flag(), feed.u8().into()),
        }
    }
    victim.end();
}

const _: () = assert!(SIDE >= size_of::<Side>() && RING.is_multiple_of(UNIT));
