//! The clauses, one file or two for each chapter of the contract's section 13.

pub(crate) mod a_completion_modes;
pub(crate) mod a_ep_create;
pub(crate) mod b_connect;
pub(crate) mod b_connect_data;
pub(crate) mod c_dup_connect;
pub(crate) mod d_disconnect;
pub(crate) mod d_disconnect_states;
pub(crate) mod e_modify;
pub(crate) mod e_modify_states;
pub(crate) mod f_endpoint;
pub(crate) mod g_common;
pub(crate) mod g_reserved;
pub(crate) mod g_service_points;
pub(crate) mod h_cno;
pub(crate) mod h_evd;
pub(crate) mod i_transfer;
pub(crate) mod j_memory;
pub(crate) mod j_windows;
pub(crate) mod k_srq;
pub(crate) mod l_extensions;
pub(crate) mod l_ia;
pub(crate) mod l_objects;
pub(crate) mod l_registry;
pub(crate) mod p_codes;
pub(crate) mod p_plugin;
pub(crate) mod p_threads;

/// One line of a chapter's table; what it needs goes in front of the function.
macro_rules! clauses {
    ($($number:tt $(+ $more:literal)? $title:literal => $([$($need:ident),*])? $run:ident;)*) => {
        pub(crate) const CLAUSES: &[$crate::clause::Clause] = &[$($crate::clause::Clause {
            number: $number $(+ $more)?,
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
        CloseFlags, CompletionFlags, ConnectFlags, ConnectionKind, DtoOperation, DtoStatus, EpAttr, EpState,
        EvdFlags, LmrTriplet, Privileges, PspFlags, Qos, ReturnType, RmrTriplet, ServiceType, Subtype,
        Timeout,
    };

    pub(crate) use super::clauses;
    pub(crate) use crate::bench::{Asked, Bench, join, unstall};
    pub(crate) use crate::check::{Outcome, Stop, fail, holds, not_supported, same};
    pub(crate) use crate::peer::{AttrSpec, RemoteSide};
    pub(crate) use crate::side::{REGION, Side};

    /// No completion flags.
    pub(crate) const PLAIN: CompletionFlags = CompletionFlags::empty();
}
