//! Connected endpoints of a fabric whose immediate data cannot hold the books of a connection, or whose writes with
//! immediate data use a receive (`verbs`: 4 bytes, and they do). There messages, and what is said besides, travel in
//! frames: each has a head, and lands in one of a few receives of the provider's, which copies what is in it to where it
//! belongs. Credit, room, keys and the end are as everywhere, because frames arrive in order; writes, reads and atomic
//! operations stay the fabric's own. The fabric holds back a frame that finds no receive, which is never for long: frames
//! are taken out by whoever makes progress, whatever the application does.
//!
//! An endpoint forgets what it has not sent when it is shut down, so the farewell is waited for before that.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::{EventKind, Failure};
use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_recvmsg, fi_sendmsg};
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::fi_msg;

use crate::channel::{Chan, Phase, State};
use crate::endpoint::{Errno, Link, MAX_SEGMENTS};
use crate::fabric::Fabric;
use crate::memory::{Mr, Regions};
use crate::status;
use crate::wire::{Bell, Farewell, Head, PAYLOAD};
use crate::work::{Context, RecvStage, Role, Seg};

/// Receives for frames of a channel, and frames it may have on their way.
pub const FRAMES_IN: u32 = 16;
pub const FRAMES_OUT: u32 = 32;

/// Bytes of a message in one frame.
const BODY: usize = 4096;

/// How long a farewell may take before the endpoint is shut down all the same.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The frames of a channel. What they hold is libfabric's while they are posted, and otherwise whose has the channel's
/// lock.
pub struct Frames {
    inward: Box<[Slot<{ Head::SIZE + BODY }>]>,
    outward: Box<[Slot<{ Head::SIZE + PAYLOAD }>]>,
    registered: [Option<Mr>; 2],
}

struct Slot<const SIZE: usize> {
    context: Context,
    bytes: UnsafeCell<[u8; SIZE]>,
}

// SAFETY: see the type: the channel's lock guards what libfabric does not have.
unsafe impl<const SIZE: usize> Sync for Slot<SIZE> {}

fn slots<const SIZE: usize>(count: u32, role: Role) -> Box<[Slot<SIZE>]> {
    let slot = |index| Slot { context: Context::new(role, index), bytes: UnsafeCell::new([0; SIZE]) };
    (0..count).map(slot).collect()
}

/// What of a channel's frames changes.
pub struct Framing {
    /// Frames for sending that are free.
    free: Vec<u32>,
    /// What each is part of: a request's slot, and whether it is the last frame of it.
    parts: Box<[(u32, bool)]>,
    /// Bytes of the message that is being sent which are on their way.
    sent: u32,
    /// The receive the message that is coming in is for, and how much of it has come.
    to: u32,
    came: u32,
    /// The frame with the farewell while it is on its way, and until when that is waited for.
    farewell: Option<(u32, Instant)>,
}

impl Default for Framing {
    fn default() -> Framing {
        Framing {
            free: (0..FRAMES_OUT).collect(),
            parts: vec![(0, false); FRAMES_OUT as usize].into_boxed_slice(),
            sent: 0,
            to: 0,
            came: 0,
            farewell: None,
        }
    }
}

impl Frames {
    pub fn new(fabric: &Arc<Fabric>, regions: &Regions) -> Result<Frames, Failure> {
        let mut frames = Frames {
            inward: slots(FRAMES_IN, Role::FrameIn),
            outward: slots(FRAMES_OUT, Role::FrameOut),
            registered: [None, None],
        };
        if fabric.limits.mr_mode & FI_MR_LOCAL != 0 {
            let ranges = [range_of(&frames.inward), range_of(&frames.outward)];
            for (place, (addr, len)) in frames.registered.iter_mut().zip(ranges) {
                let key = match fabric.limits.mr_mode & FI_MR_PROV_KEY {
                    0 => regions.secret(fabric.limits.mr_key_size),
                    _ => 0,
                };
                let made = Mr::new(fabric, addr, len, FI_SEND | FI_RECV, key, ptr::null_mut());
                *place = Some(made.map_err(|errno| {
                    status::failure(fabric.library, "fi_mr_reg of a channel's frames", errno.into())
                })?);
            }
        }
        Ok(frames)
    }

    /// Has all contexts lead to their channel.
    pub fn owned_by(&mut self, chan: *const Chan) {
        self.inward.iter_mut().for_each(|slot| slot.context.belongs_to(chan));
        self.outward.iter_mut().for_each(|slot| slot.context.belongs_to(chan));
    }

    fn descriptor(&self, which: usize) -> *mut std::ffi::c_void {
        self.registered[which].as_ref().map_or(ptr::null_mut(), Mr::descriptor)
    }
}

fn range_of<T>(slots: &[T]) -> (u64, u64) {
    (slots.as_ptr() as u64, std::mem::size_of_val(slots) as u64)
}

const NO_FRAMES: Errno = -libc::ENOSYS;

impl Chan {
    /// Gives libfabric the receives for frames, before anything can come.
    pub fn post_frames(&self, st: &mut State, link: Link) -> Result<(), Failure> {
        for index in 0..FRAMES_IN {
            self.post_frame(link, index).map_err(|errno| {
                status::failure(self.dev.fabric.library, "receives for frames", errno.into())
            })?;
            st.inflight += 1;
        }
        Ok(())
    }

    fn post_frame(&self, link: Link, index: u32) -> Result<(), Errno> {
        let frames = self.frames.as_ref().ok_or(NO_FRAMES)?;
        let slot = frames.inward.get(index as usize).ok_or(NO_FRAMES)?;
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: Head::SIZE + BODY };
        let mut desc = [frames.descriptor(0)];
        let msg = message(&iov, &mut desc, 1, slot.context.as_ptr());
        // SAFETY: the slot lives as long as the channel, which stays until libfabric has handed back all it has.
        done(unsafe { fi_recvmsg(link.ep, &msg, FI_COMPLETION) })
    }

    /// Sends a message, in as many frames as it takes. When libfabric takes only some of them, only the rest comes again.
    pub fn send_in_frames(
        &self,
        st: &mut State,
        count: u32,
        mark: u64,
        announces: bool,
    ) -> Result<(), Errno> {
        let Some(link) = st.link else { return Err(NO_FRAMES) };
        let len = if announces { 0 } else { st.requests.slot(count).len };
        loop {
            let from = st.framing.sent;
            let segs = if announces { &[][..] } else { st.requests.segs(count) };
            // The head takes one of the segments the fabric has.
            let segments = self.dev.fabric.limits.iov.min(MAX_SEGMENTS) - 1;
            let piece = stretch(segs, from, (len - from).min(BODY as u32), segments);
            let last = from + piece.len == len;
            let head = Head::Message { len, mark }.encode();
            let index = self.send_frame(link, &mut st.framing.free, &head, &piece)?;
            st.framing.parts[index as usize] = (st.requests.index(count), last);
            st.inflight += 1;
            st.requests_out += 1;
            st.framing.sent = from + piece.len;
            if last {
                st.framing.sent = 0;
                return Ok(());
            }
        }
    }

    /// Sends one frame of `head` and segments; which.
    fn send_frame(&self, link: Link, free: &mut Vec<u32>, head: &[u8], segs: &Stretch) -> Result<u32, Errno> {
        let frames = self.frames.as_ref().ok_or(NO_FRAMES)?;
        let index = *free.last().ok_or(-libc::EAGAIN)?;
        let slot = frames.outward.get(index as usize).ok_or(NO_FRAMES)?;
        // SAFETY: a free frame is nobody's but the lock holder's.
        unsafe { (&mut *slot.bytes.get())[..head.len()].copy_from_slice(head) };
        let mut iov = [Iovec { iov_base: slot.bytes.get().cast(), iov_len: head.len() }; MAX_SEGMENTS + 1];
        let mut desc = [frames.descriptor(1); MAX_SEGMENTS + 1];
        for (at, seg) in segs.segs[..segs.count].iter().enumerate() {
            iov[at + 1] = Iovec { iov_base: seg.addr as *mut _, iov_len: seg.len as usize };
            desc[at + 1] = self.dev.regions.descriptor(seg.lkey);
        }
        let msg = message(iov.as_ptr(), &mut desc, segs.count + 1, slot.context.as_ptr());
        // SAFETY: the engine keeps the segments' memory until the request completed; the frame is libfabric's until then.
        done(unsafe { fi_sendmsg(link.ep, &msg, FI_COMPLETION) })?;
        free.pop();
        Ok(index)
    }

    /// Says something in a frame that libfabric copies at once.
    pub fn say_in_frame(
        &self,
        link: Link,
        bell: Bell,
        arg: u32,
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let mut bytes = bell_frame(bell, arg, payload);
        let iov = Iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut msg = message(&iov, &mut [], 1, ptr::null_mut());
        msg.desc = ptr::null_mut();
        // SAFETY: injected bytes are copied before the call returns.
        done(unsafe { fi_sendmsg(link.ep, &msg, FI_INJECT) })
    }

    /// Says that the connection ends, in a frame whose arrival is waited for.
    pub fn say_farewell(&self, st: &mut State, farewell: Farewell) {
        let Some(link) = st.link else { return };
        let bytes = bell_frame(Bell::Bye, farewell.code(), &[0; PAYLOAD]);
        if let Ok(index) = self.send_frame(link, &mut st.framing.free, &bytes, &Stretch::default()) {
            st.inflight += 1;
            st.framing.farewell = Some((index, Instant::now() + LAST_WORDS));
        }
    }

    /// Whether a stopped channel's endpoint stays for its farewell.
    pub fn says_farewell(&self, st: &State) -> bool {
        st.framing.farewell.is_some()
    }

    /// As above; when the time for it is up it stays no longer.
    pub fn still_says_farewell(&self, st: &mut State) -> bool {
        match st.framing.farewell {
            Some((_, until)) if Instant::now() < until => true,
            Some(_) => {
                self.let_go(st);
                false
            }
            None => false,
        }
    }

    /// Shuts the endpoint down, whether or not the farewell arrived.
    pub fn let_go(&self, st: &mut State) {
        st.framing.farewell = None;
        if let Some(link) = st.link.take() {
            self.dev.bury(link);
        }
    }

    /// libfabric is done with a frame that was sent.
    pub fn on_frame_out(&self, st: &mut State, index: u32, error: Option<Errno>) {
        st.framing.free.push(index);
        if st.framing.farewell.is_some_and(|(farewell, _)| farewell == index) {
            if st.phase == Phase::Stopped {
                self.let_go(st);
            } else {
                st.framing.farewell = None;
            }
            return;
        }
        let (request, last) = st.framing.parts[index as usize];
        if last || error.is_some() {
            return self.on_request(st, request, error);
        }
        st.requests_out = st.requests_out.saturating_sub(1);
        self.pump(st, crate::flow::Lull::None);
    }

    /// A frame came in.
    pub fn on_frame_in(&self, st: &mut State, index: u32, result: Result<usize, Errno>) {
        match result {
            Err(libc::ECANCELED) => return,
            Err(errno) => {
                if st.phase == Phase::Up {
                    tracing::warn!(errno, "a receive for frames failed; the connection is broken");
                    self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
                }
                return;
            }
            Ok(len) => self.read_frame(st, index, len),
        }
        if st.phase == Phase::Stopped {
            return;
        }
        let Some(link) = st.link else { return };
        match self.post_frame(link, index) {
            Ok(()) => st.inflight += 1,
            Err(errno) => {
                tracing::error!(errno, "a receive for frames is lost; the connection is broken");
                self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
            }
        }
    }

    fn read_frame(&self, st: &mut State, index: u32, len: usize) {
        let slot = self.frames.as_ref().and_then(|frames| frames.inward.get(index as usize));
        let Some(slot) =
            slot.filter(|_| matches!(st.phase, Phase::Up | Phase::Accepting | Phase::Leaving(_)))
        else {
            return;
        };
        self.heard.store(true, Ordering::Relaxed);
        // SAFETY: libfabric has handed the slot back, and this thread has the channel's lock.
        let bytes = unsafe { &*slot.bytes.get() };
        let Some((head, body)) = bytes.get(..len).and_then(|bytes| bytes.split_at_checked(Head::SIZE)) else {
            return self.distrust(st, "a frame without a head");
        };
        match Head::decode(head) {
            Some(Head::Message { len, mark }) => self.on_piece(st, len, mark, body),
            Some(Head::Bell { bell, arg }) => {
                let mut payload = [0; PAYLOAD];
                let there = body.len().min(PAYLOAD);
                payload[..there].copy_from_slice(&body[..there]);
                self.on_bell(st, bell, arg, &payload);
            }
            None => self.distrust(st, "a frame that is none"),
        }
    }

    /// The next piece of a message of `len` bytes.
    fn on_piece(&self, st: &mut State, len: u32, mark: u64, body: &[u8]) {
        let (count, came) = (st.framing.to, st.framing.came);
        let is_open = count.wrapping_sub(st.recvs.head) < st.recvs.next.wrapping_sub(st.recvs.head);
        let recv = *st.recvs.slot(count);
        let fits = is_open && recv.stage == RecvStage::Posted && !recv.poisoned && len <= recv.len;
        let piece = body.len() as u32;
        if !fits || piece > len - came.min(len) {
            return self.distrust(st, "a message beyond what there was room for");
        }
        let to = stretch(st.recvs.segs(count), came, piece, MAX_SEGMENTS);
        let mut from = body;
        for seg in &to.segs[..to.count] {
            let (now, rest) = from.split_at(from.len().min(seg.len as usize));
            // SAFETY: the engine checked the segment against a registration with the right to write, and keeps that
            // until the receive completed or the channel has stopped, which this thread would see under its lock.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), seg.addr as *mut u8, now.len()) };
            from = rest;
        }
        st.framing.came = came + piece;
        if st.framing.came == len {
            (st.framing.to, st.framing.came) = (count.wrapping_add(1), 0);
            self.on_recv(st, st.recvs.index(count), Ok((len as usize, mark)));
        }
    }

    /// The peer does what none of ours does.
    fn distrust(&self, st: &mut State, what: &str) {
        tracing::warn!(channel = self.id, "{what}; the connection is broken");
        self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
    }
}

fn bell_frame(bell: Bell, arg: u32, payload: &[u8; PAYLOAD]) -> [u8; Head::SIZE + PAYLOAD] {
    let mut bytes = [0; Head::SIZE + PAYLOAD];
    bytes[..Head::SIZE].copy_from_slice(&Head::Bell { bell, arg }.encode());
    bytes[Head::SIZE..].copy_from_slice(payload);
    bytes
}

fn message(
    iov: *const Iovec,
    desc: &mut [*mut std::ffi::c_void],
    count: usize,
    context: *mut std::ffi::c_void,
) -> fi_msg {
    fi_msg { msg_iov: iov, desc: desc.as_mut_ptr(), iov_count: count, addr: FI_ADDR_UNSPEC, context, data: 0 }
}

fn done(result: isize) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(i32::try_from(result).unwrap_or(-FI_EOTHER)) }
}

/// Part of a list of segments.
#[derive(Default)]
struct Stretch {
    segs: [Seg; MAX_SEGMENTS],
    count: usize,
    len: u32,
}

/// `len` bytes of `segs` from byte `from` on; fewer if there are fewer in at most so many segments.
fn stretch(segs: &[Seg], from: u32, len: u32, most: usize) -> Stretch {
    let mut out = Stretch::default();
    let (mut skip, mut left) = (u64::from(from), len);
    for seg in segs.iter().take(MAX_SEGMENTS) {
        let skipped = skip.min(seg.len.into());
        skip -= skipped;
        let take = left.min(seg.len - skipped as u32);
        if take > 0 && out.count < most {
            out.segs[out.count] = Seg { addr: seg.addr.wrapping_add(skipped), len: take, lkey: seg.lkey };
            out.count += 1;
            out.len += take;
            left -= take;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that are nearly good, and some that are, in any order: nothing lands beside a receive, and what the peer
    /// must not do ends the connection.
    #[test]
    fn frames_of_a_hostile_peer() {
        const ROOM: usize = 64;
        if libfabric_sys::Library::get().is_err() {
            println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
            assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
            return;
        }
        let pairs = [("fabric", "tcp"), ("address", "127.0.0.1"), ("frames", "on")];
        let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let config = dat_plugin::Config { ia_name: "ofi".into(), params };
        let device = crate::FabricDevice::open(&config).expect("a device");
        let dev = device.dev();
        let attr = dat_plugin::ChannelAttr { max_requests: 4, max_recvs: 4, ..Default::default() };
        let mut memory = vec![0u8; 3 * ROOM];
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut broken, mut filled) = (0, 0);
        for _ in 0..300 {
            let chan = dev.new_chan(&attr, [None, None], None).expect("a channel");
            let mut st = chan.lock();
            st.phase = Phase::Up;
            // The middle third is what peers may fill.
            memory.fill(0xAA);
            let addr = memory.as_mut_ptr() as u64 + ROOM as u64;
            let recv = crate::work::Recv { len: ROOM as u32, stage: RecvStage::Posted, ..Default::default() };
            assert!(st.recvs.push(recv, &[Seg { addr, len: ROOM as u32, lkey: 0 }]));
            st.recvs.next = st.recvs.tail;
            for _ in 0..40 {
                let len = random() as u32 % 80;
                let head = match random() % 3 {
                    0 => Head::Message { len, mark: random() }.encode(),
                    1 => Head::Bell { bell: Bell::of(random() as u8 % 13 + 1).expect("a bell"), arg: len }
                        .encode(),
                    _ => std::array::from_fn(|_| random() as u8),
                };
                let slot = &chan.frames.as_ref().expect("frames").inward[0];
                let piece = random() as usize % (ROOM + 20);
                // SAFETY: nothing is posted, so nobody else knows the slot.
                let bytes = unsafe { &mut *slot.bytes.get() };
                bytes[..Head::SIZE].copy_from_slice(&head);
                bytes[Head::SIZE..][..piece].fill_with(|| random() as u8);
                chan.on_frame_in(&mut st, 0, Ok(random() as usize % 2 * Head::SIZE + piece));
            }
            filled += u32::from(st.books.consumed == 1);
            broken += u32::from(st.phase == Phase::Stopped);
            let beside = memory[..ROOM].iter().chain(&memory[2 * ROOM..]);
            assert!(beside.into_iter().all(|byte| *byte == 0xAA), "something landed beside the receive");
            drop(st);
            dev.chans.lock().remove(&chan.id);
        }
        assert!(broken > 200 && filled > 0, "{broken} connections broken, {filled} messages came");
    }

    #[test]
    fn a_stretch_of_segments_is_what_lies_there() {
        let seg = |addr, len| Seg { addr, len, lkey: addr as u32 };
        let segs = [seg(1000, 10), seg(2000, 0), seg(3000, 20), seg(4000, 5)];
        let parts = |from, len| {
            let out = stretch(&segs, from, len, 2);
            out.segs[..out.count].iter().map(|seg| (seg.addr, seg.len, seg.lkey)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 10), [(1000, 10, 1000)]);
        assert_eq!(parts(4, 10), [(1004, 6, 1000), (3000, 4, 3000)]);
        assert_eq!(parts(10, 25), [(3000, 20, 3000), (4000, 5, 4000)]);
        assert_eq!(parts(0, 35), [(1000, 10, 1000), (3000, 20, 3000)], "two segments and no more");
        assert_eq!(parts(34, 100), [(4004, 1, 4000)]);
        assert_eq!(parts(35, 1), []);
        assert_eq!(parts(3, 0), []);
    }
}
