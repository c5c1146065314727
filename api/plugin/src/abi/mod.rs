//! The plain values that cross the plugin boundary. All are `#[repr(C)]`. Constants replace enumerations, so an unknown
//! number is a value and never undefined behaviour.
//!
//! `include/dat_plugin.h` says the same in C; the tests in `layout.rs` compare them.

mod attr;
mod constants;
mod event;
mod remote;
mod request;

pub use attr::{Block, ChannelAttr, DeviceAttr, Keys, SrqAttr};
pub use constants::{
    Access, Caps, ChannelFlag, CompletionFlag, CompletionStatus, EventKind, Opcode, PostFlag, RejectReason,
    Status,
};
pub use event::{Event, MAX_PRIVATE_DATA, SockAddr};
pub use remote::Remote;
pub use request::{AtomicRequest, BindRequest, Completion, RecvRequest, Request, Segment};
