//! A plugin's object and the calls that can fail.

use crate::abi::Status;
use crate::ops::{Ctx, Message};
use crate::provider::Failure;

/// Calls `f` with room for a sentence. A status below 0 becomes a failure with that sentence; an unknown one a failure of
/// the provider.
pub(super) fn call<T>(initial: T, f: impl FnOnce(*mut T, *mut Message) -> Status) -> Result<T, Failure> {
    let mut text = [0u8; 1024];
    let mut message = Message { ptr: text.as_mut_ptr(), capacity: text.len(), len: 0 };
    let mut out = initial;
    let status = f(&raw mut out, &raw mut message);
    if matches!(status, Status::OK | Status::PENDING) {
        return Ok(out);
    }
    if status.0 > 0 {
        return Err(faulty(format!("it returned {status:?}, which is neither success nor a failure")));
    }
    let text = shown(&text, message.len);
    let text = if text.is_empty() { format!("the provider returned {status:?}") } else { text };
    Err(Failure::new(status, text))
}

/// The same of a function that opens an object, which is never null.
pub(super) fn open(what: &str, f: impl FnOnce(*mut Ctx, *mut Message) -> Status) -> Result<Ctx, Failure> {
    let ctx = call(std::ptr::null(), f)?;
    match ctx.is_null() {
        true => Err(faulty(format!("it opened a {what} and gave a null pointer for it"))),
        false => Ok(ctx),
    }
}

/// A provider that breaks the plugin interface, and how.
pub(super) fn faulty(what: String) -> Failure {
    Failure::new(Status::FAULTY, format!("the provider breaks the plugin interface: {what}"))
}

/// The sentence that an object gives as its description.
pub(super) fn sentence(f: impl FnOnce(*mut Message) -> Status) -> String {
    let mut text = [0u8; 1024];
    let mut message = Message { ptr: text.as_mut_ptr(), capacity: text.len(), len: 0 };
    f(&raw mut message);
    shown(&text, message.len)
}

/// A provider's text, of the length it claims or to its end, in one line and without what a terminal would obey.
fn shown(text: &[u8], len: usize) -> String {
    let text = &text[..len.min(text.len())];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    printable(text[..end].trim_ascii())
}

/// A plugin's object, closed on drop.
pub(super) struct Object {
    pub(super) ctx: Ctx,
    pub(super) close: unsafe extern "C" fn(Ctx),
}

// SAFETY: the contract asks every object of a plugin to be usable from any thread; `crate::Provider`'s traits have
// Send and Sync as bounds.
unsafe impl Send for Object {}
// SAFETY: as for `Send`: the traits of `crate::provider` have `Sync` as a bound, and C authors promise the same.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `ctx` came from the plugin whose function this is. This is its owner, so nothing uses it afterwards.
        unsafe { (self.close)(self.ctx) }
    }
}

/// A text of a file or a provider for people: control characters are replaced, because a terminal obeys them.
pub(super) fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}
