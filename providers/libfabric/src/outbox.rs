//! Frames on their way out of a device. One goes at once, or waits until libfabric takes it: while it connects it takes
//! nothing, and says nothing when nobody is there; then a knock at the peer's port tells.

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::{EventKind, Failure};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::*;

use crate::channel::Phase;
use crate::datagrams::Datagrams;
use crate::device::Dev;
use crate::endpoint::Errno;
use crate::fabric::Fabric;
use crate::frames::{Body, FRAME, Frame};
use crate::knock::Knock;
use crate::memory::{Mr, Regions};
use crate::port::{FRAME_TAG, Slot, registered, slots};
use crate::status;
use crate::wire::{Bell, Farewell, PAYLOAD};
use crate::work::Role;

/// Frames libfabric may have at a time.
const FRAMES_OUT: u32 = 256;

/// When to knock at a port libfabric does not get through to, and when to give up on any frame. A listener takes
/// milliseconds to make, and there are programs that say where they listen before they do.
const KNOCK: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// Frames libfabric has.
pub struct Outbox {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Channel each frame is of, for when it fails.
    chans: Box<[u32]>,
    mr: Option<Mr>,
}

/// A handshake frame libfabric has not taken yet.
pub struct Waiting {
    dest: fi_addr_t,
    bytes: Vec<u8>,
    /// Channel it is of, or 0.
    pub chan: u32,
    since: Instant,
    /// A request: where to.
    to: Option<SocketAddr>,
    knock: Option<Knock>,
}

impl Outbox {
    pub fn new(fabric: &Arc<Fabric>, regions: &Regions) -> Result<Outbox, Failure> {
        let slots = slots(FRAMES_OUT, Role::FrameOut, 0);
        let mr = registered(fabric, regions, &slots)?;
        let chans = vec![0; FRAMES_OUT as usize].into_boxed_slice();
        Ok(Outbox { slots, free: (0..FRAMES_OUT).collect(), chans, mr })
    }

    /// Whether all that libfabric took is out.
    pub fn is_empty(&self) -> bool {
        self.free.len() == FRAMES_OUT as usize
    }
}

impl Datagrams {
    /// Queues a handshake frame; it goes when libfabric takes it.
    pub fn send_soon(&self, dest: fi_addr_t, frame: &Frame<'_>, chan: u32, to: Option<SocketAddr>) {
        let mut bytes = [0; FRAME];
        if let Some(len) = frame.encode(&mut bytes) {
            let bytes = bytes[..len].to_vec();
            let waiting = Waiting { dest, bytes, chan, since: Instant::now(), to, knock: None };
            self.waiting.lock().push_back(waiting);
        }
    }

    /// Says that a connection is over, once libfabric takes it.
    pub fn say_goodbye_later(
        &self,
        dev: &Dev,
        dest: fi_addr_t,
        (to, secret): (u32, u64),
        farewell: Farewell,
    ) {
        let body = Body::Bell { bell: Bell::Bye, payload: [0; PAYLOAD] };
        self.send_soon(dest, &Frame { to, secret, arg: farewell.code(), body }, 0, None);
        dev.tick();
    }

    /// Tries again what libfabric did not take; how much it took.
    pub fn send_waiting(&self, dev: &Dev) -> usize {
        let mut done = 0;
        let count = self.waiting.lock().len();
        for _ in 0..count {
            let Some(mut waiting) = self.waiting.lock().pop_front() else { break };
            let abandoned = waiting.chan != 0 && dev.chan(waiting.chan).is_none();
            let failed = match self.send(waiting.dest, &waiting.bytes, waiting.chan) {
                Ok(()) => {
                    done += 1;
                    continue;
                }
                Err(_) if abandoned || waiting.since.elapsed() > PATIENCE => Some(libc::ETIMEDOUT),
                Err(errno) if errno == -libc::EAGAIN => self.knock(&mut waiting),
                Err(errno) => Some(errno),
            };
            match failed {
                None => self.waiting.lock().push_back(waiting),
                Some(errno) => {
                    tracing::debug!(error = %dev.fabric.library.strerror(errno.abs()), "a frame does not go");
                    self.gave_up(dev, waiting.chan, errno);
                }
            }
        }
        if !self.waiting.lock().is_empty() {
            dev.tick();
        }
        done
    }

    /// Sends a frame now, or fails.
    fn send(&self, dest: fi_addr_t, bytes: &[u8], chan: u32) -> Result<(), Errno> {
        let mut out = self.out.lock();
        let Some(index) = out.free.pop() else { return Err(-libc::EAGAIN) };
        let slot = &out.slots[index as usize];
        // SAFETY: a free slot is nobody's but the lock holder's.
        unsafe { (&mut *slot.bytes.get())[..bytes.len()].copy_from_slice(bytes) };
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: bytes.len() };
        let mut desc = [out.mr.as_ref().map_or(ptr::null_mut(), Mr::descriptor)];
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: desc.as_mut_ptr(),
            iov_count: 1,
            addr: dest,
            tag: FRAME_TAG,
            ignore: 0,
            context: slot.context.as_ptr(),
            data: 0,
        };
        if let Some(finder) = &self.finder {
            finder.speaks();
        }
        // SAFETY: the slot is libfabric's until the completion.
        let result = unsafe { fi_tsendmsg(self.main.ep, &msg, FI_COMPLETION) };
        if result != 0 {
            out.free.push(index);
            return Err(result as i32);
        }
        out.chans[index as usize] = chan;
        Ok(())
    }

    pub fn on_frame_out(&self, dev: &Dev, index: u32, error: Option<Errno>) {
        let chan = {
            let mut out = self.out.lock();
            out.free.push(index);
            out.chans.get_mut(index as usize).map_or(0, std::mem::take)
        };
        if let Some(errno) = error {
            self.gave_up(dev, chan, errno);
        }
    }

    /// libfabric says "again" while it connects, and goes on saying so when nobody is there. Why there will be no
    /// connection, if that is known.
    fn knock(&self, waiting: &mut Waiting) -> Option<Errno> {
        let to = waiting.to?;
        if waiting.knock.is_none() && waiting.since.elapsed() > KNOCK {
            waiting.knock = Some(Knock::begin(self.ip, to));
        }
        waiting.knock.as_mut().and_then(Knock::look)
    }

    /// A frame of this channel could not be delivered.
    pub fn gave_up(&self, dev: &Dev, chan: u32, errno: Errno) {
        let Some(chan) = dev.chan(chan) else { return };
        let mut st = chan.lock();
        let kind = match st.phase {
            Phase::Connecting => status::of_connect(errno),
            _ => EventKind::BROKEN,
        };
        chan.end(&mut st, kind, &[], None);
    }
}

impl Dev {
    /// Rings a peer's channel by a frame.
    pub fn send_bell(
        &self,
        dest: fi_addr_t,
        to: u32,
        secret: u64,
        bell: Bell,
        arg: u32,
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let Some(datagrams) = &self.datagrams else { return Err(-libc::ENOSYS) };
        let mut bytes = [0; FRAME];
        let frame = Frame { to, secret, arg, body: Body::Bell { bell, payload: *payload } };
        let len = frame.encode(&mut bytes).ok_or(-libc::EINVAL)?;
        datagrams.send(dest, &bytes[..len], 0)
    }
}
