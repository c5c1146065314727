//! The interface between the DAT engine and a provider plugin.
//!
//! A provider moves bytes, registers memory, makes connections and reports completions. It knows nothing of DAT's
//! objects, states, return codes, cookies or events: those live once, in the engine, so that every provider gives
//! identical semantics. [`Caps`] is what a provider can do; the engine learns of differences in no other way.
//!
//! # For authors
//! Implement [`Provider`], [`Device`], [`Channel`], [`Queue`] and [`Listener`] (and [`Srq`], or name [`NoSrq`]), then write
//! `dat_plugin::export_provider!(MyProvider);` in a `cdylib`. The macro makes the tables of [`ops`], catches every
//! panic at the boundary and turns it into [`Status::PANICKED`], and forwards `tracing` events to the host.
//!
//! # Contract
//! - **Threads.** Every method may be called from any thread. The engine serialises calls to one channel's `post` and
//!   `post_recv` with each other, and calls to one queue's `poll` and `arm` with each other; `poll_events` is called by
//!   one thread at a time. Different objects are used concurrently.
//! - **Time.** `post`, `post_recv`, `poll` and `arm` never block, allocate, format or take a contended lock. Control
//!   calls may do system calls but never wait for a peer: outcomes arrive as events.
//! - **Progress.** `poll_events` is called soon after [`Device::event_fd`] becomes readable, whatever the application
//!   does. Connection set-up, the death of a peer and work executed at the target for a peer make progress there.
//! - **Completions.** Requests of one channel complete in post order, receives in the order of the peer's sends. Each
//!   accepted post completes exactly once, unless it was [`PostFlag::UNSIGNALLED`] or the channel stops first: work
//!   that did not complete by then is flushed by the engine, never by the provider. Receives out of a [`Srq`] are the
//!   exception to the order of posts: channels take them in any order.
//! - **Stopping.** A channel has stopped when `disconnect` returned [`Status::OK`], or when an event of kind
//!   [`EventKind::DISCONNECTED`] or [`EventKind::BROKEN`] (or a failure to connect) was handed out for it. Once stopped
//!   it touches no local buffer and adds no completion; completions of work that succeeded before are already in the
//!   queues. A completion with an error status stops the channel too; `BROKEN` follows unless the engine disconnects
//!   first.
//! - **Validation.** Local segments were checked by the engine: registered, in range, right and zone. Everything that
//!   comes from a peer is checked by the provider.
//!
//! # Versions
//! [`ABI_MAJOR`] changes when a table changes shape; a host loads plugins of its own major version and of the two
//! before it. [`ABI_MINOR`] counts what was appended to the root module. Each table leads with its size.
//!
//! # Unsafe
//! This crate is the boundary: `ops` and `export` face plugins, `host` faces loaded code. Everything else of the
//! project that looks at a provider is safe code over [`host`].

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
