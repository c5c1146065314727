//! What software providers share: copies between stretches of application memory, keys of registered memory, queues
//! of posted work, descriptors to wake a sleeper.
//!
//! # Unsafe
//! [`copy`] and [`heap`] are the only modules with unsafe code. A provider vouches once for a range of memory, where
//! it makes a [`Stretch`] of it; everything done with it afterwards is checked and safe.

pub mod copy;
mod fd;
mod fifo;
mod heap;
mod keys;
mod secrets;

pub use copy::Stretch;
pub use fd::{EventFd, Timer};
pub use fifo::Fifo;
pub use heap::Heap;
pub use keys::{KeyError, KeyTable};
pub use secrets::Secrets;
