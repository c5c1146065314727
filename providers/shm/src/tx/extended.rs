//! Requests beyond plain ones: writes with an immediate value, atomic operations, binding of windows.

use dat_kit::Stretch;
use dat_plugin::{AtomicRequest, BindRequest, CompletionStatus, Opcode, PostFlag, Status};

use super::push::Payload;
use super::{Entry, IMMEDIATE, INVALIDATE, SOLICITED, Stage, Start, State, Tx, kind};
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided;

impl Entry {
    /// What a message carries beyond its bytes: the flag of the frame that has it, and the value.
    pub(super) fn note(&self) -> Option<(u8, u32)> {
        match self.opcode {
            Opcode::SEND_IMM => Some((IMMEDIATE, self.imm)),
            Opcode::SEND_INVALIDATE => Some((INVALIDATE, self.rkey)),
            _ => None,
        }
    }

    /// Whether it is a comparison with exchange.
    pub(crate) fn is_swap(&self) -> bool {
        self.opcode == Opcode::CMP_SWAP
    }

    /// Whether its completion is to be kept silent.
    pub(super) fn is_silent(&self) -> bool {
        self.status == CompletionStatus::SUCCESS && self.flags.contains(PostFlag::UNSIGNALLED)
    }
}

impl Tx {
    pub(crate) fn post_atomic(
        &mut self,
        chan: &Chan,
        link: Option<&Link>,
        request: &AtomicRequest,
    ) -> Status {
        let Some(link) = link.filter(|_| self.on) else { return Status::NOT_CONNECTED };
        if !matches!(request.opcode, Opcode::FETCH_ADD | Opcode::CMP_SWAP) || request.sink.len() != 8 {
            return Status::INVALID;
        }
        if self.tail - self.head >= self.capacity {
            return Status::NO_RESOURCE;
        }
        let base = self.place(self.tail) * self.max_segs;
        self.segs[base] = Stretch::from(&request.sink);
        self.lkeys[base] = request.sink.lkey();
        let entry = Entry {
            token: request.token,
            total: 8,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            opcode: request.opcode,
            flags: request.flags,
            nsegs: 1,
            operands: [request.operand, request.swap],
            ..Entry::default()
        };
        self.enqueue(chan, link, entry);
        Status::OK
    }

    /// Binds a window. It is good at once, so that its key is good for whatever is posted next; the completion keeps its
    /// turn.
    pub(crate) fn bind(
        &mut self,
        chan: &Chan,
        link: Option<&Link>,
        request: &BindRequest,
    ) -> Result<u32, Status> {
        let Some(link) = link.filter(|_| self.on) else { return Err(Status::NOT_CONNECTED) };
        if self.tail - self.head >= self.capacity {
            return Err(Status::NO_RESOURCE);
        }
        let range = request.range().map(|range| (range, request.access));
        let bound = chan.dev.bind(request.window, range);
        let entry = Entry {
            token: request.token,
            opcode: Opcode::BIND,
            flags: request.flags,
            status: if bound.is_some() { CompletionStatus::SUCCESS } else { CompletionStatus::WINDOW },
            ..Entry::default()
        };
        self.enqueue(chan, link, entry);
        Ok(bound.unwrap_or(0))
    }

    pub(super) fn push_bind(&mut self) -> Start {
        let entry = self.entry(self.sent);
        entry.state = State::Done;
        let failed = entry.status != CompletionStatus::SUCCESS;
        self.halted |= failed;
        Start::Gone
    }

    pub(super) fn push_write(&mut self, chan: &Chan, link: &Link, entry: &Entry) -> Start {
        let told = entry.opcode == Opcode::WRITE_IMM;
        if self.stage == Stage::Fresh {
            match self.place_request(chan, link, entry, kind::WRITE) {
                Some(Start::Gone) if told && self.entry(self.sent).status == CompletionStatus::SUCCESS => {
                    // The bytes are there; it is done when the peer has heard of it.
                    self.entry(self.sent).state = State::Waiting;
                    self.stage = Stage::Written;
                }
                Some(start) => return start,
                None => {
                    self.part = 0;
                    self.stage = Stage::Headed;
                }
            }
        }
        if self.stage == Stage::Headed {
            match self.push_rest(chan, link, entry.total) {
                Start::Gone if told => self.stage = Stage::Written,
                other => return other,
            }
        }
        let flags = if entry.flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 };
        self.frame(chan, link, kind::WRITTEN, flags, entry.imm, 8, Payload::Length(entry.total))
    }

    pub(super) fn push_atomic(&mut self, chan: &Chan, link: &Link, entry: &Entry) -> Start {
        let segs = self.segs_of(self.sent, 1);
        match one_sided::execute_atomic(chan, link, entry, segs) {
            one_sided::Outcome::Done(status) => {
                let entry = self.entry(self.sent);
                entry.state = State::Done;
                entry.status = status;
                self.halted |= status != CompletionStatus::SUCCESS;
                Start::Gone
            }
            one_sided::Outcome::Later => Start::Later,
            one_sided::Outcome::Target => {
                if self.reads_open >= self.reads_max {
                    return Start::Later;
                }
                let atomic = one_sided::Atomic {
                    target: one_sided::Target { addr: entry.remote_addr, len: 8, rkey: entry.rkey },
                    operands: entry.operands,
                    swap: entry.is_swap(),
                };
                let len = one_sided::Atomic::BYTES;
                match self.frame(chan, link, kind::ATOMIC, 0, 8, len, Payload::Atomic(atomic)) {
                    Start::Gone => {}
                    other => return other,
                }
                self.reads_open += 1;
                let entry = self.entry(self.sent);
                entry.state = State::Reading;
                entry.left = 8;
                Start::Gone
            }
        }
    }
}
