//! Buffers inside an endpoint or shared receive queue while operations use them.

use dat_plugin::host::ForkGuard;
use dat_sync::Lock;
use dat_types::Result;

use crate::Buffer;
use crate::refused::Refused;

/// Marks a cookie as the slot of a buffer. Programs' own cookies must not have it.
pub(crate) const MARK: u64 = 1 << 63;

/// Generations of a slot; a slot that had them all is not used again, so that no old completion names a new buffer.
const GENERATIONS: u32 = u32::MAX >> 1;

/// Buffers in flight, with what the engine calls the posts of them (`N`).
///
/// A completion is only a hint where the buffer is: programs can make one up, or use one twice. A buffer is given back
/// when the engine says that its post completed.
pub(crate) struct InFlight<N> {
    /// Biased, as the locks of endpoint and dispatcher: one thread mostly posts and reclaims.
    slots: Lock<Slots<N>>,
    fork: ForkGuard,
}

/// A slot for each operation that can be outstanding, so that posting never allocates.
struct Slots<N> {
    slots: Vec<Slot<N>>,
    free: Vec<u32>,
}

struct Slot<N> {
    /// Goes up with each use.
    generation: u32,
    posted: Option<(Buffer, N)>,
}

impl<N: Copy> InFlight<N> {
    pub(crate) fn new(outstanding: usize) -> InFlight<N> {
        // Completions that are queued but not reclaimed keep their slot: twice the room.
        let capacity = outstanding * 2;
        let slots = Slots { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity) };
        InFlight { slots: Lock::new(slots), fork: ForkGuard::new() }
    }

    /// Posts a buffer with the cookie it goes by. The lock is held meanwhile: another thread may take the completion
    /// before the post returns, and has to find the buffer.
    #[inline]
    pub(crate) fn post(
        &self,
        buffer: Buffer,
        post: impl FnOnce(&Buffer, u64) -> Result<N>,
    ) -> std::result::Result<(), Refused> {
        if self.fork.forked() {
            // The lock may be held by a thread that does not exist here.
            return Err(Refused { error: dat_engine::forked("dat_ep_post"), buffer });
        }
        let mut slots = self.slots.lock();
        let index = match slots.free.pop() {
            Some(index) => index,
            None => slots.grow(),
        };
        let slot = &mut slots.slots[index as usize];
        let generation = slot.generation + 1;
        let cookie = MARK | u64::from(generation) << 32 | u64::from(index);
        match post(&buffer, cookie) {
            Ok(number) => {
                slot.generation = generation;
                slot.posted = Some((buffer, number));
                Ok(())
            }
            Err(error) => {
                slots.free.push(index);
                Err(Refused { error, buffer })
            }
        }
    }

    /// Gives the buffer back that goes by `cookie`, if its post has `completed`.
    #[inline]
    pub(crate) fn take(&self, cookie: u64, completed: impl FnOnce(N) -> bool) -> Option<Buffer> {
        if cookie & MARK == 0 || self.fork.forked() {
            return None;
        }
        let mut slots = self.slots.lock();
        let index = cookie as u32;
        let slot = slots.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != (cookie & !MARK) >> 32 {
            return None;
        }
        let number = slot.posted.as_ref()?.1;
        if !completed(number) {
            return None;
        }
        let (buffer, _) = slot.posted.take()?;
        if slot.generation < GENERATIONS {
            slots.free.push(index);
        }
        Some(buffer)
    }
}

impl<N> Slots<N> {
    /// A slot that was never used.
    #[cold]
    fn grow(&mut self) -> u32 {
        self.slots.push(Slot { generation: 0, posted: None });
        self.slots.len() as u32 - 1
    }
}

impl<N> std::fmt::Debug for InFlight<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InFlight")
    }
}
