//! Requests beyond the base four: immediate values, atomic operations, window binds, and what names windows.

use std::sync::Arc;

use dat_plugin::host::Window;
use dat_plugin::{Access, AtomicRequest, Caps, Opcode, Segment, Status};
use dat_types::{
    CompletionFlags, DtoOperation, Error, EvdFlags, LmrTriplet, ObjectId, Result, ReturnType, RmrTriplet,
    Subtype,
};

use super::inner::{Ep, EpInner};
use super::kind::Kind;
use super::post::{Post, wire_flags};
use crate::base::error;
use crate::base::ring::Work;
use crate::base::segments::{ZONE_MISMATCH, segment_error};

const SEND_INVALIDATE: Kind = Kind::optional(
    "dat_ep_post_send_with_invalidate",
    DtoOperation::Send,
    Opcode::SEND_INVALIDATE,
    Access::LOCAL_READ,
    Caps::SEND_INVALIDATE,
)
.solicits();
const READ_TO_RMR: Kind = Kind::optional(
    "dat_ep_post_rdma_read_to_rmr",
    DtoOperation::RdmaRead,
    Opcode::READ,
    Access::LOCAL_WRITE,
    Caps::WINDOWS,
);
const WRITE_IMMED: Kind = Kind::optional(
    "dat_ib_post_rdma_write_immed",
    DtoOperation::RdmaWriteImmed,
    Opcode::WRITE_IMM,
    Access::LOCAL_READ,
    Caps::IMMEDIATE,
)
.solicits();
const SEND_IMMED: Kind = Kind::optional(
    "dat_ib_post_send_immed",
    DtoOperation::Send,
    Opcode::SEND_IMM,
    Access::LOCAL_READ,
    Caps::IMMEDIATE,
)
.solicits();
const FETCH_ADD: Kind = Kind::optional(
    "dat_ib_post_fetch_and_add",
    DtoOperation::FetchAdd,
    Opcode::FETCH_ADD,
    Access::LOCAL_WRITE,
    Caps::ATOMICS,
);
const CMP_SWAP: Kind = Kind::optional(
    "dat_ib_post_cmp_and_swap",
    DtoOperation::CmpSwap,
    Opcode::CMP_SWAP,
    Access::LOCAL_WRITE,
    Caps::ATOMICS,
);

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
        let target = RmrTriplet { context: rmr_context, ..RmrTriplet::default() };
        self.0.post_rare(Post::new(&SEND_INVALIDATE, iov, cookie, target, flags))
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
        let domain = {
            let side = self.0.post.lock();
            // The endpoint's state before the sink, as with every post.
            side.admit(&self.0, &READ_TO_RMR, 1, flags)?;
            side.domain
        };
        let local = match sink.length {
            0 => LmrTriplet::default(),
            _ => self.0.ia(CALL)?.window_sink(CALL, sink, domain)?,
        };
        self.0.post_rare(Post::new(&READ_TO_RMR, &[local], cookie, remote, flags))
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
        self.0.post_rare(Post { immediate, ..Post::new(&WRITE_IMMED, iov, cookie, remote, flags) })
    }

    /// Send with an immediate value (extension).
    pub fn post_send_immed(
        &self,
        iov: &[LmrTriplet],
        cookie: u64,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        let nothing = RmrTriplet::default();
        self.0.post_rare(Post { immediate, ..Post::new(&SEND_IMMED, iov, cookie, nothing, flags) })
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
        self.0.post_atomic(&FETCH_ADD, [operand, 0], (local, cookie), remote, flags)
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
        self.0.post_atomic(&CMP_SWAP, [expected, swap], (local, cookie), remote, flags)
    }
}

impl EpInner {
    /// Rare operations share one copy of the code.
    fn post_rare(self: &Arc<EpInner>, post: Post<'_>) -> Result<()> {
        self.post(post).map(drop)
    }

    fn post_atomic(
        self: &Arc<EpInner>,
        kind: &Kind,
        [operand, swap]: [u64; 2],
        (local, cookie): (LmrTriplet, u64),
        remote: RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let call = kind.call;
        if self.fork.forked() {
            return Err(error::forked(call));
        }
        let side = self.post.lock();
        // One segment, which is no list: limits of lists do not apply.
        side.admit(self, kind, 0, flags)?;
        if local.length < 8 || remote.length < 8 {
            let message = "an atomic operation is on 8 bytes; a segment is shorter";
            return Err(Error::fixed(call, ReturnType::LengthError, Subtype::None, message));
        }
        if !remote.address.is_multiple_of(8) {
            let message = format!("the remote word at {:#x} is not aligned to 8 bytes", remote.address);
            return Err(error::parameter(call, Subtype::Arg5, message));
        }
        let local = LmrTriplet { length: 8, ..local };
        let sink = side.segment(&local, kind.access).map_err(|error| segment_error(call, error))?;
        let work = Work { cookie, operation: kind.operation, flags };
        let posted = self.submit(side, kind, work, (&[], 8), |channel, token, signal| {
            channel.post_atomic(&AtomicRequest {
                token,
                opcode: kind.opcode,
                flags: wire_flags(flags) | signal,
                rkey: remote.context,
                remote_addr: remote.address,
                operand,
                swap,
                sink,
            })
        });
        posted.map(drop)
    }

    /// Posts the binding of a window of `rmr` to `range`, or its end. `None`: it was flushed at once.
    pub(crate) fn post_bind(
        self: &Arc<EpInner>,
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
        let kind = Kind::optional(call, DtoOperation::BindMw, Opcode::WRITE, Access::NONE, Caps::NONE);
        side.admit(self, &kind, 0, flags)?;
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
        let submitted = self.submit(side, &kind, work, (&[], 0), |channel, token, signal| {
            match channel.bind(wire_flags(flags) | signal, token, window, range) {
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
        submitted.map(|_| context)
    }
}
