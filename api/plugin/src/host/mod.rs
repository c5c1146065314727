//! The host's side: safe handles on a plugin's objects.
//!
//! For the engine and the registry. A handle closes its object when dropped, and keeps alive what that needs: a
//! [`Channel`] its queues and device, a [`Device`] its plugin (which is never unloaded).
//!
//! Only a [`SpanTable`] gives segments, and it checks them against registered memory. That is why posting is safe.

mod batch;
mod c_root;
mod channel;
mod copy;
mod device;
mod error;
mod fork;
mod inner;
mod inspect;
mod layer;
mod load;
mod memory;
mod object;
mod queue;
mod spans;
mod srq;
mod tables;
mod window;

pub use crate::abi::Remote;
pub use batch::{BATCH, Batch, RecvBatch};
pub use channel::Channel;
pub use device::{Device, Listener};
pub use error::LoadError;
pub use fork::ForkGuard;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use inspect::inspect_bytes;
pub use inspect::{Inspection, Root, inspect};
pub use layer::{Below, BelowChannel, BelowListener, BelowQueue, BelowSrq};
pub use load::{Make, Plugin, Wrap};
pub use memory::{Memory, Registration};
pub use queue::Queue;
pub use spans::{SpanError, SpanTable};
pub use srq::Srq;
pub use window::Window;
