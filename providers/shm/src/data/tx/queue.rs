//! Requests as they are executed, from the post itself or out of the queue of those that wait.

use dat_plugin::{AtomicRequest, CompletionStatus, Opcode, PostFlag, Request, Segment, Status};

use crate::data::one_sided::Operation;
use crate::data::protocol::{IMMEDIATE, INVALIDATE, Note};
use crate::memory::target::Target;

/// A request, with its scatter/gather list.
pub(super) struct Work<'a> {
    details: Details,
    pub(super) segs: &'a [Segment],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Details {
    pub(super) opcode: Opcode,
    pub(super) flags: PostFlag,
    /// Bytes to be moved.
    pub(super) total: u64,
    addr: u64,
    rkey: u32,
    imm: u32,
    operands: [u64; 2],
    /// Of a bind.
    pub(super) status: CompletionStatus,
    nsegs: u32,
}

impl std::ops::Deref for Work<'_> {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.details
    }
}

impl<'a> Work<'a> {
    #[inline]
    pub(super) fn of(request: &'a Request, max_segs: usize) -> Result<Work<'a>, Status> {
        let segs = request.segments();
        let sum: u64 = segs.iter().map(|segment| u64::from(segment.len())).sum();
        if segs.len() > max_segs || sum != request.total || request.total > u32::MAX.into() {
            return Err(Status::INVALID);
        }
        let total = match request.opcode {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE => request.total,
            Opcode::WRITE | Opcode::WRITE_IMM => request.total,
            Opcode::READ if u64::from(request.remote_len) <= request.total => request.remote_len.into(),
            Opcode::READ => return Err(Status::INVALID),
            _ => return Err(Status::NOT_SUPPORTED),
        };
        let details = Details {
            opcode: request.opcode,
            flags: request.flags,
            total,
            addr: request.remote_addr,
            rkey: request.rkey,
            imm: request.imm,
            nsegs: segs.len() as u32,
            ..Details::default()
        };
        Ok(Work { details, segs })
    }

    pub(super) fn of_atomic(request: &'a AtomicRequest) -> Work<'a> {
        let details = Details {
            opcode: request.opcode,
            flags: request.flags,
            total: 8,
            addr: request.remote_addr,
            rkey: request.rkey,
            operands: [request.operand, request.swap],
            nsegs: 1,
            ..Details::default()
        };
        Work { details, segs: std::slice::from_ref(&request.sink) }
    }

    pub(super) fn of_bind(flags: PostFlag, status: CompletionStatus) -> Work<'a> {
        Work { details: Details { opcode: Opcode::BIND, flags, status, ..Details::default() }, segs: &[] }
    }
}

impl Details {
    /// The memory of the peer that it names.
    pub(super) fn target(&self) -> Target {
        Target { addr: self.addr, len: self.total, rkey: self.rkey }
    }

    pub(super) fn immediate(&self) -> u32 {
        self.imm
    }

    pub(super) fn operation(&self) -> Operation {
        match self.opcode {
            Opcode::READ => Operation::Read,
            Opcode::FETCH_ADD => Operation::Atomic(self.operands, false),
            Opcode::CMP_SWAP => Operation::Atomic(self.operands, true),
            _ => Operation::Write,
        }
    }

    /// What goes with a message beside its bytes.
    pub(super) fn note(&self) -> Note {
        match self.opcode {
            Opcode::SEND_IMM => Note { flags: IMMEDIATE, value: self.imm },
            Opcode::SEND_INVALIDATE => Note { flags: INVALIDATE, value: self.rkey },
            _ => Note::default(),
        }
    }
}

/// Requests by the slot of their entry in the window: those that wait, and those whose answer does.
#[derive(Default)]
pub(super) struct Queue {
    details: Box<[Details]>,
    segs: Box<[Segment]>,
    max_segs: usize,
}

impl Queue {
    pub(super) fn new(slots: usize, max_segs: usize) -> Queue {
        // SAFETY: it names no memory, and `work` gives out only what `store` put in its place.
        let nothing = unsafe { Segment::from_parts(0, 0, 0) };
        Queue {
            details: vec![Details::default(); slots].into_boxed_slice(),
            segs: vec![nothing; slots * max_segs].into_boxed_slice(),
            max_segs,
        }
    }

    pub(super) fn max_segs(&self) -> usize {
        self.max_segs
    }

    pub(super) fn store(&mut self, slot: usize, work: &Work<'_>) {
        self.details[slot] = work.details;
        self.segs[slot * self.max_segs..][..work.segs.len()].copy_from_slice(work.segs);
    }

    /// What was stored last.
    pub(super) fn work(&self, slot: usize) -> Work<'_> {
        let details = self.details[slot];
        Work { details, segs: &self.segs[slot * self.max_segs..][..details.nsegs as usize] }
    }
}
