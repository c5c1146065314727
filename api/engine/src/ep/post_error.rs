//! Why a post is refused. Programs meet some of these in loops: those that mean "later" allocate nothing.

use dat_plugin::{Caps, Status};
use dat_types::{CompletionFlags, Error, ObjectId, ReturnType, Subtype};

use super::inner::EpInner;
use super::kind::Kind;
use super::post_side::PostSide;
use crate::base::{error, status_map};

impl EpInner {
    /// The endpoint's state forbids it.
    #[cold]
    pub(super) fn post_refused(&self, kind: &Kind, side: &PostSide) -> Error {
        if side.freed {
            return freed(kind.call, self.id);
        }
        if kind.is_receive() {
            let message = "the endpoint takes its receives from a shared queue; post them there";
            return Error::fixed(kind.call, ReturnType::InvalidState, Subtype::SrqInUse, message);
        }
        self.wrong_state(kind.call, side.state)
    }
}

#[cold]
pub(super) fn freed(call: &'static str, ep: ObjectId) -> Error {
    error::freed(call, Subtype::HandleEp, "endpoint", ep)
}

/// The provider has no such operation.
#[cold]
pub(super) fn absent(kind: &Kind) -> Error {
    let message = "this provider has no such operation; `dat info` lists what it has";
    match kind.caps {
        // An operation of the extension is not implemented, where one of DAT is a model that is not supported.
        Caps::IMMEDIATE | Caps::ATOMICS => {
            Error::fixed(kind.call, ReturnType::NotImplemented, Subtype::None, message)
        }
        _ => error::unsupported(kind.call, message),
    }
}

#[cold]
pub(super) fn flags(call: &'static str, flags: CompletionFlags) -> Error {
    let message =
        format!("completion flags {flags:?} are not allowed here, or not with the endpoint's attributes");
    error::parameter(call, Subtype::Arg5, message)
}

#[cold]
pub(super) fn segment_count(call: &'static str, segments: usize, most: u32) -> Error {
    error::parameter(
        call,
        Subtype::Arg2,
        format!("{segments} segments; the endpoint's attributes allow {most}"),
    )
}

#[cold]
pub(super) fn length(call: &'static str, total: u64, most: u64) -> Error {
    error::parameter(call, Subtype::Arg3, format!("{total} bytes; the endpoint's attributes allow {most}"))
}

#[cold]
pub(super) fn no_reads(call: &'static str) -> Error {
    let message = "the endpoint has max_rdma_read_out 0, so it cannot read";
    Error::fixed(call, ReturnType::InvalidParameter, Subtype::None, message)
}

#[cold]
pub(super) fn sink_too_short(call: &'static str) -> Error {
    let message = "the local segments are shorter than the remote one";
    Error::fixed(call, ReturnType::LengthError, Subtype::None, message)
}

#[cold]
pub(super) fn target_too_short(call: &'static str) -> Error {
    let message = "the remote segment is shorter than the local ones";
    Error::fixed(call, ReturnType::LengthError, Subtype::None, message)
}

/// Backpressure: it allocates nothing.
#[cold]
pub(super) fn full(call: &'static str) -> Error {
    let message =
        "no room for more outstanding work; take completions first, or raise the endpoint's attributes";
    Error::fixed(call, ReturnType::InsufficientResources, Subtype::ResourceTep, message)
}

/// The provider's answer.
#[cold]
pub(super) fn status(call: &'static str, status: Status) -> Error {
    let (kind, subtype) = status_map::returned(status);
    match status {
        Status::NO_RESOURCE => full(call),
        Status::FORKED => error::forked(call),
        _ => Error::new(call, kind, subtype, format!("the provider refused the post: {status:?}")),
    }
}
