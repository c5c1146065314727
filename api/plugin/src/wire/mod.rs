//! The plain values that cross the boundary. All `#[repr(C)]`; numbers with constants instead of enumerations, so that
//! an unknown value is a value and never undefined behaviour.
//!
//! The printer of the C header reads these files in the order of the modules below.

mod attr;
mod event;
mod numbers;
mod request;

pub use attr::{Block, ChannelAttr, DeviceAttr, Keys, SrqAttr};
pub use event::{Event, MAX_PRIVATE_DATA, SockAddr};
pub use numbers::{
    Access, Caps, ChannelFlag, CompletionFlag, CompletionStatus, EventKind, Opcode, PostFlag, RejectReason,
    Status,
};
pub use request::{AtomicRequest, BindRequest, Completion, RecvRequest, Request, Segment};
