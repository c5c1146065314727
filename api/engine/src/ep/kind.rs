//! What differs between the operations that can be posted.

use dat_plugin::{Access, Caps, Opcode};
use dat_types::{CompletionFlags, DtoOperation};

/// What differs between operations.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) call: &'static str,
    pub(super) operation: DtoOperation,
    pub(super) opcode: Opcode,
    /// What the local segments must allow.
    pub(super) access: Access,
    /// Completion flags it can have.
    pub(super) flags: CompletionFlags,
    /// What the device must have for it.
    pub(super) caps: Caps,
}

impl Kind {
    const fn request(call: &'static str, operation: DtoOperation, opcode: Opcode, access: Access) -> Kind {
        let flags = CompletionFlags::SUPPRESS
            .union(CompletionFlags::UNSIGNALLED)
            .union(CompletionFlags::BARRIER_FENCE);
        Kind { call, operation, opcode, access, flags, caps: Caps::NONE }
    }

    /// A request that needs this capability.
    pub(super) const fn optional(
        call: &'static str,
        operation: DtoOperation,
        opcode: Opcode,
        access: Access,
        caps: Caps,
    ) -> Kind {
        Kind { caps, ..Kind::request(call, operation, opcode, access) }
    }

    /// It uses a receive of the peer, and can notify there.
    pub(super) const fn solicits(self) -> Kind {
        Kind { flags: self.flags.union(CompletionFlags::SOLICITED_WAIT), ..self }
    }

    #[inline]
    pub(super) fn is_receive(&self) -> bool {
        matches!(self.operation, DtoOperation::Receive)
    }
}

pub(super) const SEND: Kind =
    Kind::request("dat_ep_post_send", DtoOperation::Send, Opcode::SEND, Access::LOCAL_READ).solicits();
pub(super) const WRITE: Kind =
    Kind::request("dat_ep_post_rdma_write", DtoOperation::RdmaWrite, Opcode::WRITE, Access::LOCAL_READ);
pub(super) const READ: Kind =
    Kind::request("dat_ep_post_rdma_read", DtoOperation::RdmaRead, Opcode::READ, Access::LOCAL_WRITE);
pub(super) const RECV: Kind = Kind {
    flags: CompletionFlags::UNSIGNALLED,
    // The opcode is not looked at: receives go to the provider by a function of their own.
    ..Kind::request("dat_ep_post_recv", DtoOperation::Receive, Opcode::SEND, Access::LOCAL_WRITE)
};
