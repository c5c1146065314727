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
//! calls return `DAT_INVALID_HANDLE` (spec: common, R-3). All are `Send` and `Sync`, and every call is thread-safe
//! (`is_thread_safe` is TRUE). Dropping a handle frees nothing, except [`Ia`]: dropping it closes abruptly.
//!
//! # Lock order
//! Endpoint control, endpoint post, event dispatcher. What is found under a dispatcher's lock but needs an endpoint's
//! (a failed transfer, a finished drain) is a `Deferred`, handled after the lock is gone.
//!
//! # Folders
//! `base`, `adapter`, `memory`, `srq` and `cno`, `evd`, `ep`, `rmr` and `service_point`, `open`: each needs only those
//! before it.
#![forbid(unsafe_code)]

mod adapter;
mod base;
mod cno;
mod ep;
mod evd;
mod memory;
mod open;
mod rmr;
mod service_point;
mod srq;

pub use adapter::{Ia, IaOptions, Rules};
pub use base::agent::Agent;
#[doc(hidden)]
pub use base::error::forked;
pub use base::states;
pub use cno::{Cno, CnoParam, CnoProxy};
pub use dat_plugin::host::{Device, Memory, Plugin};
pub use ep::{ConnectOptions, Ep, EpMask, EpModify, EpParam, EpRecvParam, EpStatus, PostNumber, Posting};
pub use evd::{Evd, EvdParam, WaitError};
pub use memory::{ExclusiveLmr, Lmr, LmrParam, Origin, Pz, Region};
pub use open::AsyncEvd;
pub use rmr::{Rmr, RmrParam};
pub use service_point::{Cr, CrParam, Csp, CspParam, Psp, PspParam, Rsp, RspParam};
pub use srq::{Srq, SrqParam, SrqPostNumber};
