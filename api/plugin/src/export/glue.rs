//! What every exported function needs: the object behind a pointer, a guard for panics, room for a sentence.

use std::any::Any;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::abi::Status;
use crate::ops::{Ctx, Message, RawConfig};
use crate::provider::{Config, Failure};

/// Runs `f`; a panic becomes `panicked` and a log line, and goes no further.
#[inline]
pub(super) fn guard<T>(panicked: T, f: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(payload) => {
            report(payload);
            panicked
        }
    }
}

/// Cold, so that a call that does not panic needs no stack for it.
#[cold]
fn report(payload: Box<dyn Any + Send>) {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    // The log itself may have panicked, and the payload's drop may panic, too.
    let _ = catch_unwind(|| tracing::error!(target: "dat.plugin", "provider panicked: {text}"));
    std::mem::forget(payload);
}

/// The object behind `ctx`.
///
/// # Safety
/// `ctx` came from [`hand_out`] for a `T` and was not yet given to [`take_back`]: the host keeps both promises.
pub(super) unsafe fn object<'a, T>(ctx: Ctx) -> &'a T {
    // SAFETY: the caller promises that `hand_out` made `ctx` for a `T` and that the `Arc` still counts it.
    unsafe { &*ctx.cast::<T>() }
}

/// The pointer for the host. It counts as one owner until [`take_back`].
pub(crate) fn hand_out<T>(object: Arc<T>) -> Ctx {
    Arc::into_raw(object).cast()
}

/// # Safety
/// As [`object`], and `ctx` is not used again.
pub(super) unsafe fn take_back<T>(ctx: Ctx) -> Arc<T> {
    // SAFETY: the caller promises that `hand_out` made `ctx` for a `T` and gives up the reference that it counts.
    unsafe { Arc::from_raw(ctx.cast::<T>()) }
}

/// One more owner of the object behind `ctx`, or `None` for null.
///
/// # Safety
/// As [`object`].
pub(super) unsafe fn share<T>(ctx: Ctx) -> Option<Arc<T>> {
    // SAFETY: the caller promises that `hand_out` made `ctx` for a `T`. The count goes up, so that the host's own
    // reference stays.
    (!ctx.is_null()).then(|| unsafe {
        Arc::increment_strong_count(ctx.cast::<T>());
        Arc::from_raw(ctx.cast::<T>())
    })
}

/// # Safety
/// `ptr` and `len` describe readable bytes for the call, or `len` is 0.
pub(super) unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller promises that `len` bytes are readable for the call.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

struct Sentence<'a>(&'a mut Message);

impl std::fmt::Write for Sentence<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.0.capacity - self.0.len;
        let mut take = text.len().min(room);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        // SAFETY: the host's buffer has `capacity` bytes, and `len + take` is at most that.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.ptr.add(self.0.len), take) };
        self.0.len += take;
        Ok(())
    }
}

/// # Safety
/// `message` is null or valid for the call.
pub(super) unsafe fn say(message: *mut Message, text: &str) {
    // SAFETY: the caller promises that `message` is null or the host's own, valid for the call.
    if let Some(message) = unsafe { message.as_mut() } {
        let _ = Sentence(message).write_str(text);
    }
}

/// Runs a fallible call: the value goes to `out`, a failure's sentence to `message`, a panic's too.
///
/// # Safety
/// `out` is valid for a write, `message` null or valid.
pub(super) unsafe fn fallible<T>(
    out: *mut T,
    message: *mut Message,
    f: impl FnOnce() -> Result<T, Failure>,
) -> Status {
    let panicked =
        || Err(Failure::new(Status::PANICKED, "the provider panicked; its log line names the place"));
    match guard(panicked(), f) {
        Ok(value) => {
            // SAFETY: the caller promises that `out` takes a `T`.
            unsafe { out.write(value) };
            Status::OK
        }
        Err(failure) => {
            // SAFETY: the caller promises that `message` is null or valid.
            unsafe { say(message, &failure.message) };
            failure.status
        }
    }
}

/// # Safety
/// `raw` and all it points to are readable for the call.
pub(super) unsafe fn config_from(raw: *const RawConfig) -> Config {
    // SAFETY: the caller promises that the configuration and its parts are readable for the call.
    unsafe {
        let raw = &*raw;
        let params = if raw.count == 0 { &[] } else { std::slice::from_raw_parts(raw.params, raw.count) };
        Config {
            ia_name: raw.ia_name.text().into_owned(),
            params: params
                .iter()
                .map(|param| (param.key.text().into_owned(), param.value.text().into_owned()))
                .collect(),
        }
    }
}

/// Functions that pass plain values to a method. The one SAFETY note in here holds for all of them.
macro_rules! exported {
    ($(fn $name:ident<$t:ident: $trait:path>($object:ident $(, $arg:ident: $type:ty)*) -> $answer:ty {
        $call:expr; panicked: $panicked:expr
    })*) => {$(
        pub(super) unsafe extern "C" fn $name<$t: $trait>(ctx: Ctx $(, $arg: $type)*) -> $answer {
            guard($panicked, || {
                // SAFETY: the host, the only caller, passes a `ctx` of this table that it has not closed.
                let $object = unsafe { object::<$t>(ctx) };
                $call
            })
        }
    )*};
}

/// Functions that close an object.
macro_rules! closing {
    ($(fn $name:ident<$t:ident: $trait:path>;)*) => {$(
        pub(super) unsafe extern "C" fn $name<$t: $trait>(ctx: Ctx) {
            // SAFETY: the host, the only caller, passes a `ctx` of this table and never uses it again.
            guard((), || unsafe { take_back::<$t>(ctx) }.close())
        }
    )*};
}

pub(super) use {closing, exported};
