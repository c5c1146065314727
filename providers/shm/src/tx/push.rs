//! What waits goes into the ring: which way each request takes, and the frames it is made of.

use dat_plugin::{CompletionStatus, Opcode, PostFlag};

use super::lend::stage;
use super::{Entry, SOLICITED, Stage, Start, State, Tx, UNFINISHED, kind};
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided;
use crate::ring::Nonsense;

impl Tx {
    /// Starts what waits, in order.
    pub(super) fn push(&mut self, chan: &Chan, link: &Link) -> Result<(), Nonsense> {
        while self.sent != self.tail && !self.halted {
            let entry = self.entries[self.place(self.sent)];
            if entry.flags.contains(PostFlag::FENCE) && self.reads_open > 0 {
                break;
            }
            let start = match entry.opcode {
                Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE => {
                    self.push_send(chan, link, &entry)
                }
                Opcode::WRITE | Opcode::WRITE_IMM => self.push_write(chan, link, &entry),
                Opcode::READ => self.push_read(chan, link, &entry),
                Opcode::BIND => self.push_bind(),
                _ => self.push_atomic(chan, link, &entry),
            };
            match start {
                Start::Gone => {
                    self.sent += 1;
                    self.part = 0;
                    self.begun = false;
                    self.stage = Stage::Fresh;
                }
                Start::Later => break,
                Start::Fault => return Err(Nonsense),
            }
        }
        Ok(())
    }

    fn push_send(&mut self, chan: &Chan, link: &Link, entry: &Entry) -> Start {
        let chunk = self.chunk();
        let flags = if entry.flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 };
        let total = entry.total as u32;
        let note = entry.note();
        // What is under way stays on its way.
        let headed = self.stage == Stage::Headed;
        let pulled =
            !headed && entry.total >= chan.dev.params.map_threshold && self.worth_pulling(chan, link, entry);
        if entry.total <= chunk as u64 && !pulled && self.stage == Stage::Fresh {
            let (mark, value) = note.unwrap_or((0, total));
            return self.frame(chan, link, kind::SEND, flags | mark, value, total as usize, Payload::Data);
        }
        if let Some((mark, value)) = note
            && self.stage == Stage::Fresh
        {
            match self.frame(chan, link, kind::NOTE, mark, value, 0, Payload::Data) {
                Start::Gone => self.stage = Stage::Noted,
                other => return other,
            }
        }
        if pulled {
            let len = entry.nsegs as usize * one_sided::Part::BYTES;
            return self.frame(chan, link, kind::PULL, flags, total, len, Payload::List);
        }
        if !headed {
            match self.part(chan, link, kind::HEAD, flags, total, entry.total) {
                Start::Gone => self.stage = Stage::Headed,
                other => return other,
            }
        }
        self.push_rest(chan, link, entry.total)
    }

    /// Whether a message is best fetched by its receiver. One in plain memory takes a system call, which must be worth it;
    /// one in memory that the receiver can map is copied once and no more.
    fn worth_pulling(&self, chan: &Chan, link: &Link, entry: &Entry) -> bool {
        if !link.pull(entry.total) {
            return false;
        }
        if (0..entry.nsegs as usize).all(|index| self.home(chan, self.sent, index).is_some()) {
            return true;
        }
        let params = &chan.dev.params;
        let long = entry.total >= params.cma_threshold.max(self.chunk() as u64 + 1);
        long && (entry.total > params.stage_most || stage(chan, link).is_none())
    }

    /// The memory for peers to map that a segment lies in.
    fn home(&self, chan: &Chan, index: u64, seg: usize) -> Option<(u64, u64)> {
        let place = self.place(index) * self.max_segs + seg;
        let seg = self.segs[place];
        chan.dev.keys.home(self.lkeys[place], seg.addr() as u64, seg.len() as u64)
    }

    fn push_read(&mut self, chan: &Chan, link: &Link, entry: &Entry) -> Start {
        match self.place_request(chan, link, entry, kind::READ) {
            Some(start) => start,
            None => {
                self.reads_open += 1;
                let entry = self.entry(self.sent);
                entry.state = State::Reading;
                entry.left = entry.total as u32;
                Start::Gone
            }
        }
    }

    /// Executes a write or read from here, or puts its request into the ring: then the result is `None`.
    pub(super) fn place_request(
        &mut self,
        chan: &Chan,
        link: &Link,
        entry: &Entry,
        kind: u8,
    ) -> Option<Start> {
        let segs = self.segs_of(self.sent, entry.nsegs);
        let read = kind == kind::READ;
        // What reads memory the peer's own work may still be written to must come after it: the earlier reads and
        // sends have no such effect, so there is nothing to wait for.
        match one_sided::execute(chan, link, entry, segs, read) {
            one_sided::Outcome::Done(status) => {
                let entry = self.entry(self.sent);
                entry.state = State::Done;
                entry.status = status;
                self.halted |= status != CompletionStatus::SUCCESS;
                Some(Start::Gone)
            }
            one_sided::Outcome::Later => Some(Start::Later),
            one_sided::Outcome::Target => {
                if read && self.reads_open >= self.reads_max {
                    return Some(Start::Later);
                }
                let head = one_sided::Target { addr: entry.remote_addr, len: entry.total, rkey: entry.rkey };
                let len = one_sided::Target::BYTES;
                let flags = if entry.opcode == Opcode::WRITE_IMM { UNFINISHED } else { 0 };
                match self.frame(chan, link, kind, flags, entry.total as u32, len, Payload::Target(head)) {
                    Start::Gone => None,
                    other => Some(other),
                }
            }
        }
    }

    pub(super) fn push_rest(&mut self, chan: &Chan, link: &Link, total: u64) -> Start {
        while self.part < total {
            match self.part(chan, link, kind::MORE, 0, 0, total) {
                Start::Gone => {}
                other => return other,
            }
        }
        Start::Gone
    }

    /// Publishes one frame of the request at `sent`.
    #[allow(clippy::too_many_arguments, reason = "a frame's parts")]
    pub(super) fn frame(
        &mut self,
        chan: &Chan,
        link: &Link,
        kind: u8,
        flags: u8,
        extra: u32,
        len: usize,
        payload: Payload,
    ) -> Start {
        let place = self.place(self.sent);
        let Some(rings) = self.ring.as_mut() else { return Start::Later };
        let slot = match rings.reserve(link, len) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Start::Later,
            Err(Nonsense) => return Start::Fault,
        };
        let entry = &mut self.entries[place];
        let segs = &self.segs[place * self.max_segs..][..entry.nsegs as usize];
        let to = rings.memory.at(slot.payload);
        match payload {
            Payload::Data => {
                // SAFETY: a reserved slot has room for `len` bytes.
                unsafe { bytes::gather(segs, self.part as usize, to, len) };
                self.part += len as u64;
            }
            Payload::Lent(part) => {
                // SAFETY: as above, for the bytes of a `Part`.
                unsafe { part.store(to) };
                self.part += part.len;
            }
            Payload::List => {
                let base = place * self.max_segs;
                for (index, seg) in segs.iter().enumerate() {
                    let (addr, len) = (seg.addr() as u64, seg.len() as u64);
                    let (map, offset) =
                        chan.dev.keys.home(self.lkeys[base + index], addr, len).unwrap_or((0, 0));
                    // SAFETY: as above; `len` counts the parts.
                    unsafe {
                        one_sided::Part { addr, len, map, offset }
                            .store(to.add(index * one_sided::Part::BYTES))
                    };
                }
            }
            // SAFETY: as above, for the bytes of a `Target`.
            Payload::Target(target) => unsafe { target.store(to) },
            // SAFETY: as above, for the bytes of an `Atomic`.
            Payload::Atomic(atomic) => unsafe { atomic.store(to) },
            // SAFETY: as above, for eight bytes.
            Payload::Length(length) => unsafe { to.cast::<u64>().write_unaligned(length) },
        }
        if !self.begun {
            self.begun = true;
            entry.seq = self.seq;
            entry.state = State::Ring;
            self.seq = self.seq.wrapping_add(1);
        }
        rings.publish(chan, link, slot, kind, flags, extra);
        Start::Gone
    }
}

/// What a frame carries.
pub(super) enum Payload {
    Data,
    /// Bytes that are in the staging area already.
    Lent(one_sided::Part),
    List,
    Target(one_sided::Target),
    Atomic(one_sided::Atomic),
    Length(u64),
}
