//! The host's side: safe handles on what a plugin offers.
//!
//! For the engine and the registry. Handles close what they stand for when dropped, and keep alive what it needs: a
//! [`Channel`] its queues and device, a [`Device`] its plugin (which is never unloaded).
//!
//! Segments can be had from a [`SpanTable`] only, which checks them against registered memory; that is why posting is
//! safe.

mod batch;
mod c_root;
mod channel;
mod device;
mod fork;
mod inspect;
mod layer;
mod load;
mod memory;
mod queue;
mod spans;
mod srq;
mod window;

pub use batch::{BATCH, Batch, RecvBatch};
pub use channel::{Channel, Remote};
pub use device::{Device, Listener};
pub use fork::ForkGuard;
pub use inspect::{Inspection, Root, inspect};
pub use layer::{Below, BelowChannel, BelowListener, BelowQueue, BelowSrq};
pub use load::{LoadError, Plugin, Wrap};
pub use memory::{Memory, Registration};
pub use queue::Queue;
pub use spans::{SpanError, SpanTable};
pub use srq::Srq;
pub use window::Window;

use crate::ops::{Ctx, Message};
use crate::provider::Failure;
use crate::wire::Status;

/// Calls `f` with room for a sentence; a status below 0 becomes a failure with it, and so does one that means nothing.
fn call<T>(initial: T, f: impl FnOnce(*mut T, *mut Message) -> Status) -> Result<T, Failure> {
    let mut text = [0u8; 1024];
    let mut message = Message { ptr: text.as_mut_ptr(), capacity: text.len(), len: 0 };
    let mut out = initial;
    let status = f(&raw mut out, &raw mut message);
    if matches!(status, Status::OK | Status::PENDING) {
        return Ok(out);
    }
    if status.0 > 0 {
        return Err(faulty(format!("it answered {status:?}, which is neither success nor a failure")));
    }
    let said = shown(&text, message.len);
    let said = if said.is_empty() { format!("the provider answered {status:?}") } else { said };
    Err(Failure::new(status, said))
}

/// The same of a function that opens an object, which is never null.
fn open(what: &str, f: impl FnOnce(*mut Ctx, *mut Message) -> Status) -> Result<Ctx, Failure> {
    let ctx = call(std::ptr::null(), f)?;
    match ctx.is_null() {
        true => Err(faulty(format!("it opened a {what} and gave a null pointer for it"))),
        false => Ok(ctx),
    }
}

/// A provider that does not keep the interface: what it did.
fn faulty(what: String) -> Failure {
    Failure::new(Status::FAULTY, format!("the provider breaks the plugin interface: {what}"))
}

/// The sentence an object says about itself.
fn sentence(f: impl FnOnce(*mut Message) -> Status) -> String {
    let mut text = [0u8; 1024];
    let mut message = Message { ptr: text.as_mut_ptr(), capacity: text.len(), len: 0 };
    f(&raw mut message);
    shown(&text, message.len)
}

/// A provider's text, of the length it claims or to its end, in one line and without what a terminal would obey.
fn shown(text: &[u8], len: usize) -> String {
    let text = &text[..len.min(text.len())];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    inspect::printable(text[..end].trim_ascii())
}

/// A plugin's object, closed on drop.
struct Object {
    ctx: Ctx,
    close: unsafe extern "C" fn(Ctx),
}

// SAFETY: the contract asks every object of a plugin to be usable from any thread; `crate::Provider`'s traits have
// Send and Sync as bounds.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `ctx` came from the plugin whose function this is, and is used no more.
        unsafe { (self.close)(self.ctx) }
    }
}
