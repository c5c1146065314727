//! The clauses by chapter. A chapter has the name of its file in `docs/spec`; long ones are folders.

pub(crate) mod adapter;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod extensions;
pub(crate) mod memory;
pub(crate) mod plugin;
pub(crate) mod registry;
pub(crate) mod return_codes;
pub(crate) mod service_points;
pub(crate) mod shared_receive;
pub(crate) mod threads;
pub(crate) mod transfer;

/// One line of a chapter's table; what it needs goes in front of the function.
macro_rules! clauses {
    ($($number:tt $(+ $more:literal)? $title:literal => $([$($need:ident),*])? $run:ident;)*) => {
        pub(crate) const CLAUSES: &[$crate::clause::Clause] = &[$($crate::clause::Clause {
            number: $number $(+ $more)?,
            module: module_path!(),
            title: $title,
            needs: &[$($($crate::clause::Need::$need),*)?],
            run: $run,
        }),*];
    };
}
pub(crate) use clauses;

/// What every chapter uses.
mod prelude {
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use dat_engine::{ConnectOptions, Ep, EpMask, EpModify, Evd};
    pub(crate) use dat_types::{
        BreakReason, CloseFlags, CompletionFlags, ConnectFlags, ConnectionKind, DtoOperation, DtoStatus,
        EpAttr, EpState, EvdFlags, LmrTriplet, Privileges, PspFlags, Qos, ReturnType, RmrTriplet,
        ServiceType, Subtype, Timeout,
    };

    pub(crate) use super::clauses;
    pub(crate) use crate::check::{Outcome, Stop, ensure, ensure_eq, fail, not_applicable, not_supported};
    pub(crate) use crate::context::{PendingRequest, TestContext, join, take_stalled};
    pub(crate) use crate::local::{LocalEnd, REGION};
    pub(crate) use crate::peer::{AttrSpec, RemoteEnd};

    /// No completion flags.
    pub(crate) const PLAIN: CompletionFlags = CompletionFlags::empty();
}
