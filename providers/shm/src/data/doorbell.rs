//! Doorbells of a channel's own queues: how this process tells them of work that their polls did not find themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::memory::keys::random;
use crate::notify::barrier;
use crate::notify::ready_bitmap::{ReadyBitmap, ReadyBitmaps};
use crate::notify::wake::WakeSocket;

/// The receive queue and the send queue of a channel.
pub(crate) const RECV: usize = 0;
pub(crate) const SEND: usize = 1;

/// The doorbell of a queue: its ready bitmap, and the descriptor that its sleeper waits on.
pub(crate) struct Doorbell {
    pub(crate) socket: WakeSocket,
    pub(crate) bitmap: ReadyBitmap,
    /// A thread sleeps or is about to. Peers can write to the flag in the bitmap, not to this one.
    armed: AtomicBool,
    bitmaps: Arc<ReadyBitmaps>,
}

impl Doorbell {
    /// The doorbell of queue `queue` of device `device`.
    pub(crate) fn new(bitmaps: Arc<ReadyBitmaps>, device: u128, queue: u64) -> std::io::Result<Doorbell> {
        let secret = random::<8>().map_err(|failure| std::io::Error::other(failure.message))?;
        let socket = WakeSocket::new(device, queue, u64::from_ne_bytes(secret))?;
        Ok(Doorbell { socket, bitmap: bitmaps.take()?, armed: AtomicBool::new(false), bitmaps })
    }

    /// A channel that is polled on events only has something to be taken.
    #[cold]
    pub(crate) fn ring(&self, slot: u32) {
        if self.bitmap.ring(slot) | self.armed.load(Ordering::SeqCst) {
            self.socket.signal();
        }
    }

    /// A thread is about to sleep: from now on the doorbell wakes it.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        self.bitmap.arm(true);
    }

    /// The thread is awake.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
        self.bitmap.arm(false);
        self.socket.drain();
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.bitmaps.give_back(self.bitmap.number());
    }
}

/// The doorbells of a channel, by [`RECV`] and [`SEND`].
pub(crate) struct Doorbells {
    queues: [Option<Arc<Doorbell>>; 2],
    /// The channel's slot in the bitmap of each.
    slots: [AtomicU32; 2],
    /// The queue does not poll the channel unless its bitmap has it.
    event_driven: [AtomicBool; 2],
    /// This process does not take part in memory barriers.
    fence: bool,
}

impl Doorbells {
    pub(crate) fn new(queues: [Option<Arc<Doorbell>>; 2], fence: bool) -> Doorbells {
        Doorbells { queues, slots: Default::default(), event_driven: Default::default(), fence }
    }

    /// Something was made ready for a queue other than by its own polling.
    #[inline]
    pub(crate) fn ring(&self, which: usize) {
        barrier::light_barrier(self.fence);
        if self.is_event_driven(which)
            && let Some(queue) = &self.queues[which]
        {
            queue.ring(self.slots[which].load(Ordering::Relaxed));
        }
    }

    /// Whether [`Doorbells::ring`] would do something. The caller has made a barrier since it made something ready.
    #[inline]
    pub(crate) fn is_event_driven(&self, which: usize) -> bool {
        self.event_driven[which].load(Ordering::Relaxed)
    }

    pub(crate) fn set_event_driven(&self, which: usize, yes: bool) {
        self.event_driven[which].store(yes, Ordering::Relaxed);
    }

    /// Whether this process does not take part in memory barriers.
    pub(crate) fn fence(&self) -> bool {
        self.fence
    }

    pub(crate) fn slot(&self, which: usize) -> u32 {
        self.slots[which].load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, which: usize, slot: u32) {
        self.slots[which].store(slot, Ordering::Relaxed);
    }
}
