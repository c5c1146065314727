//! Frames on connected endpoints, for fabrics with too little immediate data for credit, or whose writes with immediate
//! data use a receive (`verbs` has 4 bytes and does both). Messages and control messages travel in frames. Each has a head
//! and lands in one of a few receives of the provider, which copies the body to the application's memory. Frames arrive
//! in order, so credit, room, keys and the end work as on other fabrics. RDMA stays the fabric's own. The fabric holds
//! back a frame that finds no receive; every thread that makes progress takes frames out, so that is short.
//!
//! An endpoint forgets unsent frames when it is shut down. So the close message is waited for before that.

use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::{EventKind, Failure};
use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_recvmsg, fi_sendmsg};
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::fi_msg;

use crate::channel::frames::{BODY, Span, span_of};
use crate::channel::ring::RecvStage;
use crate::channel::{ChannelInner, Phase, State};
use crate::core::CreditDelay;
use crate::endpoint::link::Link;
use crate::fabric::limits::{FRAMES_IN, MAX_SEGMENTS};
use crate::status::{self, Errno};
use crate::wire::control::{CloseReason, Control, PAYLOAD};
use crate::wire::head::Head;

/// How long a close message may take before the endpoint is shut down all the same.
const CLOSE_TIME: Duration = Duration::from_millis(200);

const NO_FRAMES: Errno = -libc::ENOSYS;

impl ChannelInner {
    /// Posts the receives for frames, before the connection is made.
    pub fn post_frames(&self, st: &mut State, link: Link) -> Result<(), Failure> {
        for index in 0..FRAMES_IN {
            self.post_frame(link, index).map_err(|errno| {
                status::failure(self.core.fabric.library, "receives for frames", errno.into())
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
        // SAFETY: the slot is part of the channel, which lives until libfabric has handed back all its operations.
        done(unsafe { fi_recvmsg(link.ep, &msg, FI_COMPLETION) })
    }

    /// Sends a message in one or more frames. If libfabric takes only some of them, the next call sends the rest.
    pub fn send_in_frames(
        &self,
        st: &mut State,
        count: u32,
        info: u64,
        announces: bool,
    ) -> Result<(), Errno> {
        let Some(link) = st.link else { return Err(NO_FRAMES) };
        let len = if announces { 0 } else { st.requests.slot(count).len };
        loop {
            let from = st.framing.sent;
            let segs = if announces { &[][..] } else { st.requests.segs(count) };
            // The head takes one of the fabric's segments.
            let segments = self.core.fabric.limits.iov.min(MAX_SEGMENTS) - 1;
            let piece = span_of(segs, from, (len - from).min(BODY as u32), segments);
            let last = from + piece.len == len;
            let head = Head::Message { len, info }.encode();
            let index = self.send_frame(link, &mut st.framing.free, &head, &piece)?;
            st.framing.parts[index as usize] = (st.requests.index(count), last);
            st.inflight += 1;
            st.requests_inflight += 1;
            st.framing.sent = from + piece.len;
            if last {
                st.framing.sent = 0;
                return Ok(());
            }
        }
    }

    /// Sends one frame of `head` and segments, and returns its index.
    fn send_frame(&self, link: Link, free: &mut Vec<u32>, head: &[u8], segs: &Span) -> Result<u32, Errno> {
        let frames = self.frames.as_ref().ok_or(NO_FRAMES)?;
        let index = *free.last().ok_or(-libc::EAGAIN)?;
        let slot = frames.outward.get(index as usize).ok_or(NO_FRAMES)?;
        // SAFETY: libfabric does not have a free frame, and this thread holds the channel's lock.
        unsafe { (&mut *slot.bytes.get())[..head.len()].copy_from_slice(head) };
        let mut iov = [Iovec { iov_base: slot.bytes.get().cast(), iov_len: head.len() }; MAX_SEGMENTS + 1];
        let mut desc = [frames.descriptor(1); MAX_SEGMENTS + 1];
        for (at, seg) in segs.segs[..segs.count].iter().enumerate() {
            iov[at + 1] = Iovec { iov_base: seg.addr as *mut _, iov_len: seg.len as usize };
            desc[at + 1] = self.core.regions.descriptor(seg.lkey);
        }
        let msg = message(iov.as_ptr(), &mut desc, segs.count + 1, slot.context.as_ptr());
        // SAFETY: the engine keeps the segments' memory until the request completes; nothing touches the frame until its
        // completion frees it.
        done(unsafe { fi_sendmsg(link.ep, &msg, FI_COMPLETION) })?;
        free.pop();
        Ok(index)
    }

    /// Sends a control message in a frame that libfabric copies in the call.
    pub fn send_control_frame(
        &self,
        link: Link,
        control: Control,
        arg: u32,
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let mut bytes = control_frame(control, arg, payload);
        let iov = Iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut msg = message(&iov, &mut [], 1, ptr::null_mut());
        msg.desc = ptr::null_mut();
        // SAFETY: libfabric copies injected bytes before the call returns.
        done(unsafe { fi_sendmsg(link.ep, &msg, FI_INJECT) })
    }

    /// Sends the message that the connection ends, in a frame whose completion is waited for.
    pub fn send_close_frame(&self, st: &mut State, reason: CloseReason) {
        let Some(link) = st.link else { return };
        let bytes = control_frame(Control::Close, reason.code(), &[0; PAYLOAD]);
        if let Ok(index) = self.send_frame(link, &mut st.framing.free, &bytes, &Span::default()) {
            st.inflight += 1;
            st.framing.closing = Some((index, Instant::now() + CLOSE_TIME));
        }
    }

    /// Whether a stopped channel's endpoint stays open for its close message. Shuts it down when that takes too long.
    pub fn still_closing(&self, st: &mut State) -> bool {
        match st.framing.closing {
            Some((_, until)) if Instant::now() < until => true,
            Some(_) => {
                self.shut_down_endpoint(st);
                false
            }
            None => false,
        }
    }

    /// libfabric has finished an outgoing frame.
    pub fn on_frame_out(&self, st: &mut State, index: u32, error: Option<Errno>) {
        st.framing.free.push(index);
        if st.framing.closing.is_some_and(|(frame, _)| frame == index) {
            if st.phase == Phase::Stopped {
                self.shut_down_endpoint(st);
            } else {
                st.framing.closing = None;
            }
            return;
        }
        let (request, last) = st.framing.parts[index as usize];
        if last || error.is_some() {
            return self.on_request(st, request, error);
        }
        st.requests_inflight = st.requests_inflight.saturating_sub(1);
        self.progress(st, CreditDelay::Busy);
    }

    /// A frame arrived.
    pub fn on_frame_in(&self, st: &mut State, index: u32, result: Result<usize, Errno>) {
        match result {
            Err(libc::ECANCELED) => return,
            Err(errno) => {
                if st.phase == Phase::Connected {
                    tracing::warn!(errno, "a receive for frames failed; the connection is broken");
                    self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
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
                tracing::error!(errno, "cannot post a receive for frames; the connection is broken");
                self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
            }
        }
    }

    fn read_frame(&self, st: &mut State, index: u32, len: usize) {
        let slot = self.frames.as_ref().and_then(|frames| frames.inward.get(index as usize));
        let Some(slot) =
            slot.filter(|_| matches!(st.phase, Phase::Connected | Phase::Accepting | Phase::Leaving(_)))
        else {
            return;
        };
        self.heard.store(true, Ordering::Relaxed);
        // SAFETY: libfabric has handed the slot back, and this thread holds the channel's lock.
        let bytes = unsafe { &*slot.bytes.get() };
        let Some((head, body)) = bytes.get(..len).and_then(|bytes| bytes.split_at_checked(Head::SIZE)) else {
            return self.break_connection(st, "a frame without a head");
        };
        match Head::decode(head) {
            Some(Head::Message { len, info }) => self.on_piece(st, len, info, body),
            Some(Head::Control { control, arg }) => {
                let mut payload = [0; PAYLOAD];
                let there = body.len().min(PAYLOAD);
                payload[..there].copy_from_slice(&body[..there]);
                self.on_control(st, control, arg, &payload);
            }
            None => self.break_connection(st, "a malformed frame"),
        }
    }

    /// The next piece of a message of `len` bytes.
    fn on_piece(&self, st: &mut State, len: u32, info: u64, body: &[u8]) {
        let (count, arrived) = (st.framing.recv, st.framing.arrived);
        let is_open = count.wrapping_sub(st.recvs.head) < st.recvs.next.wrapping_sub(st.recvs.head);
        let recv = *st.recvs.slot(count);
        let fits = is_open && recv.stage == RecvStage::Posted && !recv.poisoned && len <= recv.len;
        let piece = body.len() as u32;
        if !fits || piece > len - arrived.min(len) {
            return self.break_connection(st, "a message that its receive has no room for");
        }
        let to = span_of(st.recvs.segs(count), arrived, piece, MAX_SEGMENTS);
        let mut from = body;
        for seg in &to.segs[..to.count] {
            let (now, rest) = from.split_at(from.len().min(seg.len as usize));
            // SAFETY: the engine checked the segment against a registration with the right to write. It keeps the
            // registration until the receive completes or the channel has stopped; this thread holds the lock that both
            // need.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), seg.addr as *mut u8, now.len()) };
            from = rest;
        }
        st.framing.arrived = arrived + piece;
        if st.framing.arrived == len {
            (st.framing.recv, st.framing.arrived) = (count.wrapping_add(1), 0);
            self.on_recv(st, st.recvs.index(count), Ok((len as usize, info)));
        }
    }

    /// The peer violates the protocol.
    fn break_connection(&self, st: &mut State, what: &str) {
        tracing::warn!(channel = self.id, "{what}; the connection is broken");
        self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
    }
}

fn control_frame(control: Control, arg: u32, payload: &[u8; PAYLOAD]) -> [u8; Head::SIZE + PAYLOAD] {
    let mut bytes = [0; Head::SIZE + PAYLOAD];
    bytes[..Head::SIZE].copy_from_slice(&Head::Control { control, arg }.encode());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::context::Seg;
    use crate::testing::{channel, device};

    /// Valid and nearly valid frames in any order: no byte lands outside a receive, and a violation ends the connection.
    #[test]
    fn frames_of_a_hostile_peer() {
        const ROOM: usize = 64;
        let pairs = [("fabric", "tcp"), ("address", "127.0.0.1"), ("frames", "on")];
        let Some(device) = device(&pairs) else { return };
        let mut memory = vec![0u8; 3 * ROOM];
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut broken, mut filled) = (0, 0);
        for _ in 0..300 {
            let chan = channel(&device);
            let mut st = chan.lock();
            st.phase = Phase::Connected;
            // Peers may fill the middle third.
            memory.fill(0xAA);
            let addr = memory.as_mut_ptr() as u64 + ROOM as u64;
            let recv = crate::channel::ring::Recv {
                len: ROOM as u32,
                stage: RecvStage::Posted,
                ..Default::default()
            };
            assert!(st.recvs.push(recv, &[Seg { addr, len: ROOM as u32, lkey: 0 }]));
            st.recvs.next = st.recvs.tail;
            for _ in 0..40 {
                let len = rng.u32(..80);
                let head = match rng.u8(..3) {
                    0 => Head::Message { len, info: rng.u64(..) }.encode(),
                    1 => Head::Control { control: Control::of(rng.u8(1..=13)).expect("a number"), arg: len }
                        .encode(),
                    _ => std::array::from_fn(|_| rng.u8(..)),
                };
                let slot = &chan.frames.as_ref().expect("frames").inward[0];
                let piece = rng.usize(..ROOM + 20);
                // SAFETY: nothing is posted, so only this test uses the slot.
                let bytes = unsafe { &mut *slot.bytes.get() };
                bytes[..Head::SIZE].copy_from_slice(&head);
                bytes[Head::SIZE..][..piece].fill_with(|| rng.u8(..));
                chan.on_frame_in(&mut st, 0, Ok(rng.usize(..2) * Head::SIZE + piece));
            }
            filled += u32::from(st.credit_state.consumed == 1);
            broken += u32::from(st.phase == Phase::Stopped);
            let outside = memory[..ROOM].iter().chain(&memory[2 * ROOM..]);
            assert!(outside.into_iter().all(|byte| *byte == 0xAA), "bytes landed outside the receive");
            drop(st);
            device.inner().channels.remove(chan.id);
        }
        assert!(broken > 200 && filled > 0, "{broken} connections broken, {filled} messages came");
    }
}
