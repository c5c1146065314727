//! One endpoint API over any fabric, chosen by name at run time: Direct Access Transport (uDAPL 2.0) for Rust.
//!
//! # Quick start
//! ```no_run
//! use dat::{Event, Privileges};
//! use std::time::Duration;
//!
//! # fn main() -> dat::Result<()> {
//! let ia = dat::open("shm0")?;                       // a name from plugins.toml
//! let pz = ia.pz()?;
//! let evd = ia.evd(64)?;                             // takes every kind of event
//! let ep = ia.ep(&pz).evd(&evd).create()?;
//! ep.connect(ia.address()?, 4711).timeout(Duration::from_secs(5)).establish()?;
//!
//! let mut buffer = pz.buffer(4096)?;                 // yours until it is posted
//! buffer[..5].copy_from_slice(b"hello");
//! ep.send(buffer, 0..5)?;                            // the endpoint's until it completes
//! if let Some(Event::Completion(done)) = evd.wait(Duration::from_secs(1))? {
//!     assert!(done.status.is_success());
//!     let buffer = ep.reclaim(&done);                // yours again
//! }
//! # Ok(()) }
//! ```
//!
//! # Names
//! [`open`] looks a name up in `plugins.toml` (see `docs/plugins-toml.md`), loads the provider's plugin and opens an
//! interface adapter. A name never falls back to another; a chain of names is written as one.
//!
//! # Memory
//! - [`Buffer`]: registered memory owned by you alone. Posting moves it into the endpoint, its completion gives it back
//!   ([`Ep::reclaim`]): it cannot be freed, read or written while an operation uses it.
//! - [`Region`]: registered memory that peers may read and write (RDMA). It is read and written by copies, never through
//!   a reference, because a peer may change it at any moment. It can be freed at any time; its pages go when nothing
//!   in flight names them any more.
//! - [`Pz::register_foreign`]: memory that the program owns, `unsafe`.
//!
//! # Lifetimes
//! Every object keeps alive what it needs: an endpoint its dispatchers, zone and adapter. Dropping the last handle frees
//! the object, in an order DAT allows. Explicit `free` calls report what DAT reports.
//!
//! # Threads
//! Everything is `Send` and `Sync`, every call is thread-safe. Connections are set up and broken by a thread of the
//! adapter; data moves on the caller's thread.
//!
//! # Waiting
//! [`Evd::poll`] looks, [`Evd::wait`] blocks for one dispatcher, a [`Cno`] for several, a [`CnoFd`] or [`Evd::fd`] is for an
//! event loop. Blocking calls look for a short while before they sleep ([`IaBuilder::spin`]).
//!
//! # Errors
//! [`Error`] carries the DAT return code, names the culprit and says what to do.
//!
//! # Below
//! [`engine`] is the layer below, with DAT's own calls one by one, for those who port uDAPL programs.
#![forbid(unsafe_op_in_unsafe_fn)]

mod buffer;
mod cno;
mod ep;
mod evd;
mod ia;
mod inflight;
mod listener;
mod local;
#[cfg(doctest)]
mod misuse;
mod pz;
mod refused;
mod region;
mod request;
mod srq;
#[cfg(feature = "async")]
mod stream;
mod window;

pub use buffer::Buffer;
pub use cno::{Cno, CnoFd, Notifier};
pub use dat_engine as engine;
pub use dat_plugin as plugin;
pub use dat_registry as registry;
pub use dat_types::{
    AsyncReason, BreakReason, CloseFlags, CompletionFlags, ConnectFlags, ConnectionKind, DtoCompletion,
    DtoOperation, DtoStatus, EpAttr, EpCounter, EpState, Error, EvdCounter, EvdFlags, IaAttr, IaCounter,
    LmrCookie, LmrTriplet, ObjectId, Privileges, ProviderAttr, PspFlags, Qos, Result, ReturnCode, ReturnType,
    RmrTriplet, Subtype, Timeout,
};
pub use ep::{Connect, Ep, EpBuilder, Post};
pub use evd::{Evd, Event};
pub use ia::{Ia, IaBuilder, open};
pub use listener::{Csp, Psp, Rsp};
pub use pz::Pz;
pub use refused::Refused;
pub use region::{Region, Slice};
pub use request::Request;
pub use srq::Srq;
#[cfg(feature = "async")]
pub use stream::EventStream;
pub use window::Window;

/// The README's examples are tested with the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
