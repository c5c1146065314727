//! Outgoing frames of a device with a datagram endpoint. Control messages of a connection are sent at once or fail. Other
//! frames wait until libfabric takes them. While libfabric connects to a peer it takes nothing, and it reports nothing if
//! the peer's port is closed; a TCP connection to that port finds out.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::Failure;
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::*;
use parking_lot::Mutex;

use crate::discovery::liveness::LivenessProbe;
use crate::endpoint::address_vector::PeerAddress;
use crate::endpoint::context::Role;
use crate::endpoint::port::{FRAME_TAG, Port, Slot, registered, slots};
use crate::fabric::Fabric;
use crate::memory::{MemoryRegion, Regions};
use crate::status::Errno;
use crate::wire::control::{CloseReason, Control, PAYLOAD};
use crate::wire::datagram::{Body, FRAME, Frame};
use crate::wire::hello::Kind;

/// Frames libfabric may have at a time.
const FRAMES_OUT: u32 = 256;

/// When to probe a port that libfabric does not get through to. A listener takes milliseconds to make, and some programs
/// publish their port before they listen.
const PROBE_AFTER: Duration = Duration::from_millis(60);

/// When to give up on any frame.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Frames for no channel of this device, mostly answers to strangers, that may wait for libfabric.
pub const MAX_ANSWERS: usize = 1024;

/// Outgoing frames.
pub struct Outbox {
    main: Arc<Port>,
    /// The device's own address.
    ip: Option<IpAddr>,
    /// Set when something is sent.
    activity: Arc<AtomicBool>,
    slots: Box<[Slot]>,
    state: Mutex<State>,
    region: Option<MemoryRegion>,
    waiting: Mutex<VecDeque<Waiting>>,
}

struct State {
    free: Vec<u32>,
    /// What each frame is part of, while libfabric has it.
    sent: Box<[Sent]>,
}

#[derive(Clone, Default)]
struct Sent {
    /// The channel that ends if the frame fails, or 0.
    chan: u32,
    /// Keeps the entry of the address vector while libfabric uses it.
    _dest: Option<Arc<PeerAddress>>,
}

/// A frame that libfabric has not taken yet.
struct Waiting {
    dest: Arc<PeerAddress>,
    bytes: Vec<u8>,
    refusal: bool,
    /// The channel it is of, or 0.
    chan: u32,
    since: Instant,
    /// Where the peer listens by TCP, if that is to be probed.
    to: Option<SocketAddr>,
    probe: Option<LivenessProbe>,
}

impl Outbox {
    pub fn new(
        fabric: &Arc<Fabric>,
        regions: &Regions,
        main: Arc<Port>,
        activity: Arc<AtomicBool>,
    ) -> Result<Outbox, Failure> {
        let slots = slots(FRAMES_OUT, Role::FrameOut, 0);
        let region = registered(fabric, regions, &slots)?;
        let sent = vec![Sent::default(); FRAMES_OUT as usize].into_boxed_slice();
        let state = State { free: (0..FRAMES_OUT).collect(), sent };
        Ok(Outbox {
            main,
            ip: fabric.ip(),
            activity,
            slots,
            state: Mutex::new(state),
            region,
            waiting: Mutex::default(),
        })
    }

    /// The endpoint that frames and messages go through.
    pub fn endpoint(&self) -> *mut fid_ep {
        self.main.ep
    }

    /// Whether nothing waits for libfabric to take it.
    pub fn is_idle(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Whether libfabric has sent everything it took.
    pub fn is_sent(&self) -> bool {
        self.is_idle() && self.state.lock().free.len() == FRAMES_OUT as usize
    }

    /// Whether a frame of this channel waits.
    pub fn has_frame_of(&self, chan: u32) -> bool {
        self.waiting.lock().iter().any(|waiting| waiting.chan == chan)
    }

    /// Queues a frame; [`Outbox::flush`] sends it. `chan` ends if it cannot be delivered; `to` is a port to probe.
    pub fn queue(&self, dest: &Arc<PeerAddress>, frame: &Frame<'_>, chan: u32, to: Option<SocketAddr>) {
        let mut bytes = [0; FRAME];
        let Some(len) = frame.encode(&mut bytes) else { return };
        let refusal = matches!(frame.body, Body::Hello { hello, .. } if hello.kind == Kind::Refuse);
        let waiting = Waiting {
            dest: dest.clone(),
            bytes: bytes[..len].to_vec(),
            refusal,
            chan,
            since: Instant::now(),
            to,
            probe: None,
        };
        let mut all = self.waiting.lock();
        all.push_back(waiting);
        // The number of channels bounds the frames of channels; this bounds the others.
        if chan == 0 && all.len() > MAX_ANSWERS {
            drop_answer(&mut all);
        }
    }

    /// Queues the message that a connection ends, for a channel that may be gone when libfabric takes it.
    pub fn queue_close(&self, dest: &Arc<PeerAddress>, (to, secret): (u32, u64), reason: CloseReason) {
        let body = Body::Control { control: Control::Close, payload: [0; PAYLOAD] };
        self.queue(dest, &Frame { to, secret, arg: reason.code(), body }, 0, None);
    }

    /// Sends what waits. Returns how many frames libfabric took, and the channels whose frames cannot be delivered.
    pub fn flush(&self, is_open: impl Fn(u32) -> bool) -> (usize, Vec<(u32, Errno)>) {
        let (mut taken, mut failed) = (0, Vec::new());
        let count = self.waiting.lock().len();
        for _ in 0..count {
            let Some(mut waiting) = self.waiting.lock().pop_front() else { break };
            let abandoned = waiting.chan != 0 && !is_open(waiting.chan);
            let error = match self.send(&waiting.dest, &waiting.bytes, waiting.chan) {
                Ok(()) => {
                    taken += 1;
                    continue;
                }
                Err(_) if abandoned || waiting.since.elapsed() > GIVE_UP => Some(libc::ETIMEDOUT),
                Err(errno) if errno == -libc::EAGAIN => self.probe(&mut waiting),
                Err(errno) => Some(errno),
            };
            match error {
                None => self.waiting.lock().push_back(waiting),
                Some(errno) => failed.push((waiting.chan, errno)),
            }
        }
        (taken, failed)
    }

    /// Sends a control message to a peer's channel now, or fails.
    pub fn send_control(
        &self,
        dest: &Arc<PeerAddress>,
        (to, secret): (u32, u64),
        (control, arg): (Control, u32),
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let mut bytes = [0; FRAME];
        let frame = Frame { to, secret, arg, body: Body::Control { control, payload: *payload } };
        let len = frame.encode(&mut bytes).ok_or(-libc::EINVAL)?;
        self.send(dest, &bytes[..len], 0)
    }

    fn send(&self, dest: &Arc<PeerAddress>, bytes: &[u8], chan: u32) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let Some(index) = state.free.pop() else { return Err(-libc::EAGAIN) };
        let slot = &self.slots[index as usize];
        // SAFETY: libfabric does not have a free slot, and this thread holds the lock that guards free slots.
        unsafe { (&mut *slot.bytes.get())[..bytes.len()].copy_from_slice(bytes) };
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: bytes.len() };
        let mut desc = [self.region.as_ref().map_or(ptr::null_mut(), MemoryRegion::descriptor)];
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: desc.as_mut_ptr(),
            iov_count: 1,
            addr: dest.number,
            tag: FRAME_TAG,
            ignore: 0,
            context: slot.context.as_ptr(),
            data: 0,
        };
        if !self.activity.load(Ordering::Relaxed) {
            self.activity.store(true, Ordering::Relaxed);
        }
        // SAFETY: the endpoint is open as long as `main`; nothing touches the slot until the completion frees it.
        let result = unsafe { fi_tsendmsg(self.main.ep, &msg, FI_COMPLETION) };
        if result != 0 {
            state.free.push(index);
            return Err(result as i32);
        }
        state.sent[index as usize] = Sent { chan, _dest: Some(dest.clone()) };
        Ok(())
    }

    /// libfabric is done with a frame. Returns the channel it was of, or 0.
    pub fn on_sent(&self, index: u32) -> u32 {
        let mut state = self.state.lock();
        state.free.push(index);
        state.sent.get_mut(index as usize).map_or(0, |sent| std::mem::take(sent).chan)
    }

    /// libfabric answers "again" while it connects, and goes on doing so when the port is closed. Returns why there will
    /// be no connection, once that is known.
    fn probe(&self, waiting: &mut Waiting) -> Option<Errno> {
        let to = waiting.to?;
        if waiting.probe.is_none() && waiting.since.elapsed() > PROBE_AFTER {
            waiting.probe = Some(LivenessProbe::begin(self.ip, to));
        }
        waiting.probe.as_mut().and_then(LivenessProbe::failure)
    }
}

/// Drops one frame of no channel if there are too many: the oldest refusal, or else the oldest.
fn drop_answer(all: &mut VecDeque<Waiting>) {
    if all.iter().filter(|waiting| waiting.chan == 0).count() <= MAX_ANSWERS {
        return;
    }
    let refusal = all.iter().position(|waiting| waiting.chan == 0 && waiting.refusal);
    if let Some(at) = refusal.or_else(|| all.iter().position(|waiting| waiting.chan == 0)) {
        all.remove(at);
    }
}

#[cfg(any(test, fuzzing))]
impl Outbox {
    /// Takes all waiting frames: for each, whether it is a refusal.
    pub fn take_waiting(&self) -> Vec<bool> {
        self.waiting.lock().drain(..).map(|waiting| waiting.refusal).collect()
    }
}
