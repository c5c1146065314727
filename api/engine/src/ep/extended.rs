//! Requests beyond the base four: immediate values, atomic operations, window binds, and what names windows.

use dat_plugin::host::Window;
use dat_plugin::{Access, AtomicRequest, Caps, Opcode, Segment, Status};
use dat_types::{
    CompletionFlags, DtoOperation, Error, EvdFlags, LmrTriplet, ObjectId, Result, ReturnType, RmrTriplet,
    Subtype,
};

use super::post::{Kind, REQUEST_FLAGS, bad_flags, span_error, wire_flags};
use super::ring::Work;
use super::{Ep, EpInner};
use crate::error;
use crate::pz::ZONE_MISMATCH;

const SEND_INVALIDATE: Kind = Kind {
    call: "dat_ep_post_send_with_invalidate",
    operation: DtoOperation::Send,
    opcode: Opcode::SEND_INVALIDATE,
    access: Access::LOCAL_READ,
    flags: REQUEST_FLAGS.union(CompletionFlags::SOLICITED_WAIT),
};
const READ_TO_RMR: Kind = Kind {
    call: "dat_ep_post_rdma_read_to_rmr",
    operation: DtoOperation::RdmaRead,
    opcode: Opcode::READ,
    access: Access::LOCAL_WRITE,
    flags: REQUEST_FLAGS,
};
const WRITE_IMMED: Kind = Kind {
    call: "dat_ib_post_rdma_write_immed",
    operation: DtoOperation::RdmaWriteImmed,
    opcode: Opcode::WRITE_IMM,
    access: Access::LOCAL_READ,
    flags: REQUEST_FLAGS.union(CompletionFlags::SOLICITED_WAIT),
};
const SEND_IMMED: Kind = Kind {
    call: "dat_ib_post_send_immed",
    operation: DtoOperation::Send,
    opcode: Opcode::SEND_IMM,
    access: Access::LOCAL_READ,
    flags: REQUEST_FLAGS.union(CompletionFlags::SOLICITED_WAIT),
};

impl Ep {
    /// `dat_ep_post_send_with_invalidate`: a send that ends the peer's memory window `rmr_context` before its receive
    /// completes there.
    pub fn post_send_with_invalidate(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        rmr_context: u32,
    ) -> Result<()> {
        self.0.has(&SEND_INVALIDATE, Caps::SEND_INVALIDATE)?;
        let target = RmrTriplet { context: rmr_context, ..RmrTriplet::default() };
        self.0.post_request(&SEND_INVALIDATE, iov, cookie, target, flags, 0)
    }

    /// `dat_ep_post_rdma_read_to_rmr`: an RDMA read whose sink is a local memory window that may be written through.
    pub fn post_rdma_read_to_rmr(
        &self,
        sink: RmrTriplet,
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        const CALL: &str = READ_TO_RMR.call;
        self.0.has(&READ_TO_RMR, Caps::WINDOWS)?;
        let domain = self.0.post.lock().domain;
        let local = match sink.length {
            0 => LmrTriplet::default(),
            _ => self.0.ia(CALL)?.window_sink(CALL, sink, domain)?,
        };
        self.0.post_request(&READ_TO_RMR, &[local], cookie, remote, flags, 0)
    }

    /// RDMA write with an immediate value (extension): consumes a receive of the peer, which completes with the value.
    pub fn post_rdma_write_immed(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        remote: RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.0.has(&WRITE_IMMED, Caps::IMMEDIATE)?;
        self.0.post_request(&WRITE_IMMED, iov, cookie, remote, flags, immediate)
    }

    /// Send with an immediate value (extension).
    pub fn post_send_immed(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.0.has(&SEND_IMMED, Caps::IMMEDIATE)?;
        self.0.post_request(&SEND_IMMED, iov, cookie, RmrTriplet::default(), flags, immediate)
    }

    /// Adds `operand` to the aligned 64-bit word at `remote` (extension); what it was before goes to `local`, in this
    /// host's byte order (decision D-52).
    pub fn post_fetch_add(
        &self,
        operand: u64,
        local: LmrTriplet,
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let kind = Atomic {
            call: "dat_ib_post_fetch_and_add",
            operation: DtoOperation::FetchAdd,
            operands: [operand, 0],
        };
        self.0.post_atomic(&kind, local, cookie, remote, flags)
    }

    /// Makes the aligned 64-bit word at `remote` `swap` if it is `expected` (extension); what it was before goes to
    /// `local`, in either case.
    pub fn post_compare_swap(
        &self,
        expected: u64,
        swap: u64,
        local: LmrTriplet,
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let operands = [expected, swap];
        let kind = Atomic { call: "dat_ib_post_cmp_and_swap", operation: DtoOperation::CmpSwap, operands };
        self.0.post_atomic(&kind, local, cookie, remote, flags)
    }
}

/// An atomic operation.
struct Atomic {
    call: &'static str,
    operation: DtoOperation,
    operands: [u64; 2],
}

impl EpInner {
    fn has(&self, kind: &Kind, cap: Caps) -> Result<()> {
        let side = self.post.lock();
        if side.caps.contains(cap) {
            return Ok(());
        }
        let message = "this provider has no such operation";
        Err(side.unless_freed(
            self,
            kind.call,
            match cap {
                // Of the extension: an operation that is not there, rather than a model that is not offered.
                Caps::IMMEDIATE => absent(kind.call, message),
                _ => error::unsupported(kind.call, message),
            },
        ))
    }

    fn post_atomic(
        &self,
        kind: &Atomic,
        local: LmrTriplet,
        cookie: u64,
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let call = kind.call;
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        let side = self.post.lock();
        if !side.caps.contains(Caps::ATOMICS) {
            let error = absent(call, "this provider has no atomic operations");
            return Err(side.unless_freed(self, call, error));
        }
        side.check_request(self, call, REQUEST_FLAGS, flags)?;
        if local.length < 8 || remote.length < 8 {
            let message = "an atomic operation is on 8 bytes; a segment is shorter";
            return Err(Error::fixed(call, ReturnType::LengthError, Subtype::None, message));
        }
        if !remote.address.is_multiple_of(8) {
            let message = format!("the remote word at {:#x} is not aligned to 8 bytes", remote.address);
            return Err(error::parameter(call, Subtype::Arg5, message));
        }
        let domain =
            side.domain.ok_or_else(|| Error::fixed(call, ZONE_MISMATCH.0, ZONE_MISMATCH.1, "no zone"))?;
        let sink = side.spans.segment(local.context, local.address, 8, domain, Access::LOCAL_WRITE);
        let sink = sink.map_err(|error| span_error(call, error))?;
        let opcode = match kind.operation {
            DtoOperation::FetchAdd => Opcode::FETCH_ADD,
            _ => Opcode::CMP_SWAP,
        };
        let [operand, swap] = kind.operands;
        self.submit(side, call, Work { cookie, operation: kind.operation, flags }, |channel, token, quiet| {
            let status = channel.post_atomic(&AtomicRequest {
                token,
                opcode,
                flags: wire_flags(flags) | quiet,
                rkey: remote.context,
                remote_addr: remote.address,
                operand,
                swap,
                sink,
            });
            if status.0 >= 0 {
                self.counts.posted.add(kind.operation, 1, 8);
            }
            status
        })
    }

    /// Posts the binding of a window of `rmr` to `range`, or its end. `None`: it was flushed at once.
    pub(crate) fn post_bind(
        &self,
        call: &'static str,
        (rmr, domain): (ObjectId, u32),
        window: &Window,
        range: Option<(Segment, Access)>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<Option<u32>> {
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        let side = self.post.lock();
        if flags.contains(CompletionFlags::SOLICITED_WAIT) {
            return Err(bad_flags(call, flags));
        }
        side.check_request(self, call, REQUEST_FLAGS, flags)?;
        if side.domain != Some(domain) {
            let message = "the endpoint and the window are of different protection zones";
            return Err(Error::fixed(call, ZONE_MISMATCH.0, ZONE_MISMATCH.1, message));
        }
        let takes_binds = |flags: EvdFlags| flags.contains(EvdFlags::RMR_BIND);
        if !side.request_evd.as_ref().is_some_and(|evd| takes_binds(evd.0.flags)) {
            let message = "the endpoint's request dispatcher was not created with RMR_BIND";
            return Err(error::state(call, Subtype::EpEvdRequest, message));
        }
        let mut context = None;
        let requests = side.requests.clone();
        requests.push_bind(rmr);
        let work = Work { cookie, operation: DtoOperation::BindMw, flags };
        let submitted = self.submit(side, call, work, |channel, token, quiet| {
            match channel.bind(wire_flags(flags) | quiet, token, window, range) {
                Ok(key) => {
                    context = Some(key);
                    Status::OK
                }
                Err(status) => status,
            }
        });
        if submitted.is_err() {
            requests.unpush_bind();
        }
        submitted.map(|()| context)
    }
}

/// `DAT_NOT_IMPLEMENTED`: the extension's answer for an operation the provider lacks (contract section 11).
#[cold]
fn absent(call: &'static str, message: &'static str) -> Error {
    Error::fixed(call, ReturnType::NotImplemented, Subtype::None, message)
}
