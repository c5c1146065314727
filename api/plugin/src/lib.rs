//! The interface between the DAT engine and a provider plugin.
//!
//! A provider moves bytes, registers memory, makes connections and reports completions. It knows nothing of DAT's
//! objects, states, return codes, cookies or events. The engine has those, once, so that all providers have identical
//! semantics. [`Caps`] lists what a provider can do. The engine learns of differences in no other way.
//!
//! # For authors
//! Implement [`Provider`], [`Device`], [`Channel`], [`Queue`] and [`Listener`] (and [`Srq`], or name [`NoSrq`]). Then write
//! `dat_plugin::export_provider!(MyProvider);` in a `cdylib`. The macro makes the tables of [`ops`]. It turns each panic
//! at the boundary into [`Status::PANICKED`], and it forwards `tracing` events to the host.
//!
//! # Contract
//! - **Threads.** Any thread may call any method. The engine serialises `post` and `post_recv` of one channel. It
//!   serialises `poll` and `arm` of one queue. One thread at a time calls `poll_events`. Different objects are used
//!   concurrently.
//! - **Time.** `post`, `post_recv`, `poll` and `arm` never block, allocate, format or take a contended lock. Control
//!   calls may do system calls but never wait for a peer: outcomes arrive as events.
//! - **Progress.** The engine calls `poll_events` soon after [`Device::event_fd`] becomes readable, even if the
//!   application is idle. Connection set-up, the death of a peer and work executed at the target make progress there.
//! - **Completions.** Requests of one channel complete in post order, receives in the order of the peer's sends. Each
//!   accepted post completes exactly once, with two exceptions. It was [`PostFlag::UNSIGNALLED`], or the channel stopped
//!   first. The engine flushes work that did not complete by then; the provider never does. Channels take receives out
//!   of a [`Srq`] in any order.
//! - **Stopping.** A channel has stopped when `disconnect` returned [`Status::OK`]. It has also stopped when the provider
//!   handed out [`EventKind::DISCONNECTED`], [`EventKind::BROKEN`] or a failure to connect. A stopped channel touches no
//!   local buffer and adds no completion. Completions of work that succeeded before are already in the queues. A
//!   completion with an error status stops the channel too. `BROKEN` follows unless the engine disconnects first.
//! - **Validation.** The engine checked local segments: registration, range, right and zone. The provider checks
//!   everything that comes from a peer.
//!
//! # Versions
//! [`ABI_MAJOR`] changes when a table changes shape. A host loads plugins of its own major version and of the two
//! before it. [`ABI_MINOR`] counts what was appended to the root module. Each table leads with its size.
//!
//! # Unsafe
//! This crate is the boundary: `ops` and `export` face plugins, `host` faces loaded code. All other code of the
//! project uses providers by safe calls of [`host`].

mod abi;
mod elf_note;
#[doc(hidden)]
pub mod export;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod feed;
pub mod host;
#[cfg(all(test, not(miri)))]
mod layout;
mod log;
mod module;
pub mod ops;
mod provider;

pub use abi::{
    Access, AtomicRequest, BindRequest, Block, Caps, ChannelAttr, ChannelFlag, Completion, CompletionFlag,
    CompletionStatus, DeviceAttr, Event, EventKind, Keys, MAX_PRIVATE_DATA, Opcode, PostFlag, RecvRequest,
    RejectReason, Request, Segment, SockAddr, SrqAttr, Status,
};
pub use elf_note::Note;
pub use module::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MAJOR, PluginModule, PluginModuleRef};
pub use provider::{
    Channel, Config, ConnectParam, Device, Failure, Listener, NoSrq, Probe, Provider, ProviderInfo, Queue,
    Srq,
};

#[doc(hidden)]
pub use abi_stable;
