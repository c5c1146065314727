//! The rings of a channel's posted requests and receives. They are allocated once and never move, so a post allocates
//! nothing and libfabric may keep pointers into them.

use std::ffi::c_void;

use dat_plugin::{CompletionStatus, Opcode, PostFlag};

use crate::endpoint::context::{Context, Role, Seg};

/// The progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Queued,
    /// libfabric has the write; the message that reports it follows.
    Writing,
    /// The write is done; the message that reports it is not sent yet.
    Announce,
    /// libfabric has it.
    Started,
    /// libfabric has finished it, or never got it.
    Done,
}

/// A posted request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub token: u64,
    pub opcode: Opcode,
    pub flags: PostFlag,
    pub stage: Stage,
    pub status: CompletionStatus,
    /// Bytes to move.
    pub len: u32,
    pub imm: u32,
    pub rkey: u32,
    pub remote_addr: u64,
    /// Message: its number.
    pub seq: u32,
    pub operand: u64,
    pub swap: u64,
    /// A write in two pieces: how many libfabric has not finished.
    pub pieces: u8,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            token: 0,
            opcode: Opcode::SEND,
            flags: PostFlag::NONE,
            stage: Stage::Queued,
            status: CompletionStatus::SUCCESS,
            len: 0,
            imm: 0,
            rkey: 0,
            remote_addr: 0,
            seq: 0,
            operand: 0,
            swap: 0,
            pieces: 0,
        }
    }
}

impl Request {
    /// Whether it uses a receive of the peer.
    pub fn is_message(&self) -> bool {
        matches!(self.opcode, Opcode::SEND | Opcode::SEND_IMM | Opcode::WRITE_IMM)
    }

    /// Whether data comes back, so that a fence waits for it.
    pub fn is_read(&self) -> bool {
        matches!(self.opcode, Opcode::READ | Opcode::FETCH_ADD | Opcode::CMP_SWAP)
    }

    /// Whether its bytes are written to remote memory.
    pub fn is_write(&self) -> bool {
        matches!(self.opcode, Opcode::WRITE | Opcode::WRITE_IMM)
    }

    /// Whether it names remote memory.
    pub fn is_one_sided(&self) -> bool {
        self.is_read() || matches!(self.opcode, Opcode::WRITE | Opcode::WRITE_IMM)
    }
}

/// The progress of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecvStage {
    #[default]
    Queued,
    /// libfabric has it, or it is poisoned. The peer may be sent credit for it.
    Posted,
    /// A message is in it.
    Filled,
    /// Its failure was reported.
    Failed,
}

/// A posted receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recv {
    pub token: u64,
    pub len: u32,
    pub poisoned: bool,
    pub stage: RecvStage,
    /// Filled: the length of the message and its immediate data.
    pub filled: u32,
    pub info: u64,
}

/// Slots by count: `tail` counts posted, `next` started and `head` completed operations.
pub struct Ring<T> {
    slots: Box<[T]>,
    segs: Box<[Seg]>,
    counts: Box<[u8]>,
    per: usize,
    pub head: u32,
    pub next: u32,
    pub tail: u32,
    contexts: Box<[Context]>,
}

impl<T: Copy + Default> Ring<T> {
    /// A ring for `depth` posts of at most `per` segments each; `None` if memory is short.
    pub fn new(depth: u32, per: u32, role: Role) -> Option<Ring<T>> {
        let depth = depth.max(1).next_power_of_two() as usize;
        let per = per.max(1) as usize;
        Some(Ring {
            slots: filled(depth, T::default)?,
            segs: filled(depth.checked_mul(per)?, Seg::default)?,
            counts: filled(depth, || 0)?,
            per,
            head: 0,
            next: 0,
            tail: 0,
            contexts: {
                let mut next = 0u32..;
                filled(depth, || Context::new(role, next.next().unwrap_or(0)))?
            },
        })
    }

    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether one more post fits.
    pub fn has_room(&self) -> bool {
        (self.len() as usize) < self.slots.len()
    }

    /// Adds a post; `false` if it does not fit.
    pub fn push<'a, S: 'a>(&mut self, slot: T, segments: &'a [S]) -> bool
    where
        Seg: From<&'a S>,
    {
        if !self.has_room() || segments.len() > self.per {
            return false;
        }
        let index = self.index(self.tail) as usize;
        self.slots[index] = slot;
        self.counts[index] = segments.len() as u8;
        for (slot, segment) in self.segs[index * self.per..].iter_mut().zip(segments) {
            *slot = segment.into();
        }
        self.tail = self.tail.wrapping_add(1);
        true
    }

    pub fn slot(&self, count: u32) -> &T {
        &self.slots[self.index(count) as usize]
    }

    pub fn slot_mut(&mut self, count: u32) -> &mut T {
        let index = self.index(count) as usize;
        &mut self.slots[index]
    }

    pub fn segs(&self, count: u32) -> &[Seg] {
        let index = self.index(count) as usize;
        &self.segs[index * self.per..][..usize::from(self.counts[index])]
    }

    /// The context that libfabric is given with this post.
    pub fn context(&self, count: u32) -> *mut c_void {
        self.contexts[self.index(count) as usize].as_ptr()
    }

    /// The count of the outstanding post in the slot of this index.
    pub fn count_of(&self, index: u32) -> Option<u32> {
        let mask = self.slots.len() as u32 - 1;
        let ahead = index.wrapping_sub(self.head) & mask;
        (ahead < self.len()).then(|| self.head.wrapping_add(ahead))
    }

    /// Sets the channel in all contexts.
    pub fn set_owner(&mut self, channel: *const c_void) {
        self.contexts.iter_mut().for_each(|context| context.set_owner(channel));
    }

    /// The index of a post's slot.
    pub fn index(&self, count: u32) -> u32 {
        count & (self.slots.len() as u32 - 1)
    }
}

fn filled<T>(count: usize, mut value: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize_with(count, &mut value);
    Some(all.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[Seg] = &[];

    #[test]
    fn a_ring_takes_its_depth_and_finds_posts_by_slot() {
        let mut ring: Ring<Recv> = Ring::new(3, 1, Role::Recv).unwrap();
        for token in 0..4 {
            assert!(ring.push(Recv { token, ..Recv::default() }, NONE));
        }
        assert!(!ring.push(Recv::default(), NONE), "four slots, a power of two");
        ring.head = 2;
        assert_eq!(ring.count_of(0), None, "completed");
        assert_eq!(ring.count_of(3), Some(3));
        assert!(ring.push(Recv { token: 4, ..Recv::default() }, NONE));
        assert_eq!(ring.count_of(0), Some(4), "the slot's next post");
        assert_eq!(ring.slot(4).token, 4);
        assert_eq!(ring.len(), 3);
    }

    #[test]
    fn counts_wrap() {
        let mut ring: Ring<Recv> = Ring::new(2, 1, Role::Recv).unwrap();
        (ring.head, ring.next, ring.tail) = (u32::MAX, u32::MAX, u32::MAX);
        assert!(ring.push(Recv { token: 1, ..Recv::default() }, NONE));
        assert!(ring.push(Recv { token: 2, ..Recv::default() }, NONE));
        assert_eq!((ring.slot(u32::MAX).token, ring.slot(0).token, ring.len()), (1, 2, 2));
        assert_eq!(ring.count_of(0), Some(0));
    }
}
