//! An established connection as the data path sees it: the shared segment, the peer's memory, the peer's doorbells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use crate::data::doorbell::{RECV, SEND};
use crate::data::protocol::KERNEL_MAX;
use crate::data::segment::Segment;
use crate::memory::peer_memory::PeerMemory;
use crate::notify::barrier;
use crate::notify::wake::Waker;

/// Set once for each channel, when its handshake is through.
pub(crate) struct Link {
    pub(crate) segment: Segment,
    pub(crate) remote: Arc<PeerMemory>,
    /// The domain of the peer's channel, for its keys.
    pub(crate) domain: u32,
    /// How many reads and atomic operations the peer has room for.
    pub(crate) reads_in: u32,
    /// The doorbells of the peer's queues with the channel's slot there, by [`RECV`] and [`SEND`].
    wakers: [Option<(Arc<Waker>, u32)>; 2],
    /// The request to ring each of them that was answered last.
    rung: [AtomicU32; 2],
    /// One side does not take part in memory barriers: publishing needs a fence.
    pub(crate) fence: bool,
    /// Access through the kernel works both ways.
    pub(crate) cma: AtomicBool,
}

impl Link {
    pub(crate) fn new(
        segment: Segment,
        remote: Arc<PeerMemory>,
        domain: u32,
        reads_in: u32,
        wakers: [Option<(Arc<Waker>, u32)>; 2],
        fence: bool,
        cma: bool,
    ) -> Link {
        let (rung, cma) = (Default::default(), AtomicBool::new(cma));
        Link { segment, remote, domain, reads_in, wakers, rung, fence, cma }
    }

    /// After publishing a frame.
    #[inline]
    pub(crate) fn wake_receiver(&self) {
        self.wake(RECV);
    }

    /// After finishing the peer's requests.
    #[inline]
    pub(crate) fn wake_sender(&self) {
        self.wake(SEND);
    }

    /// After publishing a frame: whether [`Link::wake_receiver`] would do something.
    #[inline]
    pub(crate) fn receiver_sleeps(&self) -> bool {
        barrier::light_barrier(self.fence);
        self.segment.peer().parked[RECV].load(Ordering::Relaxed) != 0
    }

    /// After finishing a request of the peer's and giving room back: whether the peer is to be woken.
    #[inline]
    pub(crate) fn sender_sleeps(&self) -> bool {
        barrier::light_barrier(self.fence);
        let peer = self.segment.peer();
        peer.parked[SEND].load(Ordering::Relaxed) | peer.want_room.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn wake(&self, which: usize) {
        barrier::light_barrier(self.fence);
        let number = self.segment.peer().parked[which].load(Ordering::Relaxed);
        if number != 0 {
            self.ring(which, number);
        }
    }

    /// Rings the doorbell of a queue that does not poll this channel, once for each time it asks for that.
    #[cold]
    fn ring(&self, which: usize, number: u32) {
        if self.rung[which].swap(number, Ordering::Relaxed) != number
            && let Some((waker, slot)) = &self.wakers[which]
            && !waker.ring(*slot)
        {
            // The next frame tries again.
            self.rung[which].store(number.wrapping_sub(1), Ordering::Relaxed);
        }
    }

    /// Waits until the peer is in no access to this process's memory that began before. `false`: it does not leave.
    pub(crate) fn peer_left(&self, deadline: Instant) -> bool {
        let busy = &self.segment.peer().busy;
        let before = busy.load(Ordering::SeqCst);
        while before % 2 == 1 && busy.load(Ordering::Acquire) == before {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Whether a message of this length may be fetched by its receiver from the sender's memory. Even where that memory
    /// is mapped the kernel must give access: the mapping can be refused, and then the receiver needs another way.
    pub(crate) fn pull(&self, len: u64) -> bool {
        len <= KERNEL_MAX && self.cma.load(Ordering::Relaxed)
    }
}
