//! DAT semantics, once, over any provider.
//!
//! # Design
//! - Every DAT object, state, return code, cookie, completion flag, flush order, time-out and event is here; a provider
//!   ([`dat_plugin`]) only moves bytes, registers memory, makes connections and reports completions. The engine learns
//!   of differences by capability bits and limits alone; no provider's name appears in it.
//! - Endpoint states are tables ([`states`]); calls ask them.
//! - The data path runs on the caller's thread: one uncontended lock of the endpoint to post, one of the event
//!   dispatcher to take a completion, no allocation, no system call. Everything else runs on one thread per interface
//!   adapter ([`Ia`]): connection events, time-outs, flushes.
//! - No `unsafe`: addresses are numbers here. Memory comes as [`Memory`], whose maker promised that it may be accessed.
//!
//! # Handles
//! [`Evd`], [`Ep`] and the others are cheap clones of one object. Freeing an object makes every clone invalid: later
//! calls return `DAT_INVALID_HANDLE` (contract R-3). All are `Send` and `Sync`, and every call is thread-safe
//! (`is_thread_safe` is TRUE). Dropping a handle frees nothing, except [`Ia`]: dropping it closes abruptly.
//!
//! # Lock order
//! Endpoint control, endpoint post, event dispatcher. What is found under a dispatcher's lock but needs an endpoint's
//! (a failed transfer, a finished drain) is carried out as a [`sequel::Sequel`] and done after the lock is gone.
#![forbid(unsafe_code)]

mod async_evd;
mod attributes;
mod cno;
mod context;
mod counters;
mod cr;
mod ep;
mod error;
mod evd;
mod ia;
mod life;
mod lmr;
mod lock;
mod progress;
mod pz;
mod rmr;
mod sequel;
mod service_point;
mod shared_memory;
mod srq;
mod status_map;

pub use async_evd::AsyncEvd;
pub use cno::{Agent, Cno, CnoParam, CnoProxy};
pub use cr::{Cr, CrParam};
pub use dat_plugin::host::{Device, Memory, Plugin};
pub use ep::{ConnectOptions, Ep, EpMask, EpModify, EpParam, EpRecvParam, EpStatus, Posting, states};
pub use evd::{Evd, EvdParam, WaitError};
pub use ia::{Ia, IaOptions};
pub use lmr::{Lmr, LmrParam, Origin, Region};
pub use pz::Pz;
pub use rmr::{Rmr, RmrParam};
pub use service_point::{Csp, CspParam, Psp, PspParam, Rsp, RspParam};
pub use srq::{Srq, SrqParam};

/// The next object id of this process.
fn next_id() -> dat_types::ObjectId {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    dat_types::ObjectId(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}
