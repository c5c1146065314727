//! What software providers share:
//!
//! - copies between spans of application memory, and keys of registered memory;
//! - queues of posted work, and descriptors to wake a sleeper;
//! - qualifiers on fabrics with ports of 16 bits.
//!
//! # Unsafe
//! Only [`copy`], `heap` and `fork` have unsafe code. A provider promises a range of memory once, where it makes a
//! [`MemSpan`]; everything done with it afterwards is checked and safe.

pub mod copy;
mod fd;
mod fifo;
mod fork;
mod heap;
mod keys;
mod qualifier;
mod secrets;

pub use copy::MemSpan;
pub use fd::{EventFd, Timer};
pub use fifo::Fifo;
pub use fork::ForkGuard;
pub use heap::Heap;
pub use keys::{KeyError, KeyTable};
pub use qualifier::Qualifier;
pub use secrets::Secrets;
