//! Posting: the hot path of requests and receives. No allocation, no lock but the engine's.

use dat_types::{CompletionFlags, Error, ReturnType, Subtype};

use crate::abi::*;
use crate::code::{Code, Outcome, handle as bad_handle, parameter};
use crate::handle::{self, epoch};
use crate::object::Ep;

const BAD: Code = bad_handle(Subtype::HandleEp);

#[inline]
pub unsafe fn send(ep: Handle, count: Count, iov: *const LmrTriplet, cookie: Context, flags: u32) -> Outcome {
    // SAFETY: null or valid for `count` triplets.
    unsafe {
        posted(ep, count, iov, flags, Subtype::Arg5, |ep, iov, flags| ep.engine.post_send(iov, cookie, flags))
    }
}

#[inline]
pub unsafe fn recv(ep: Handle, count: Count, iov: *const LmrTriplet, cookie: Context, flags: u32) -> Outcome {
    // SAFETY: null or valid for `count` triplets.
    unsafe {
        posted(ep, count, iov, flags, Subtype::Arg5, |ep, iov, flags| ep.engine.post_recv(iov, cookie, flags))
    }
}

#[inline]
pub unsafe fn rdma_read(
    ep: Handle,
    count: Count,
    iov: *const LmrTriplet,
    cookie: Context,
    remote: *const RmrTriplet,
    flags: u32,
) -> Outcome {
    // SAFETY: null or valid for `count` triplets; null or valid.
    unsafe {
        posted(ep, count, iov, flags, Subtype::Arg6, |ep, iov, flags| {
            ep.engine.post_rdma_read(iov, cookie, remote_of(remote, Subtype::Arg5)?, flags)
        })
    }
}

#[inline]
pub unsafe fn rdma_write(
    ep: Handle,
    count: Count,
    iov: *const LmrTriplet,
    cookie: Context,
    remote: *const RmrTriplet,
    flags: u32,
) -> Outcome {
    // SAFETY: null or valid for `count` triplets; null or valid.
    unsafe {
        posted(ep, count, iov, flags, Subtype::Arg6, |ep, iov, flags| {
            ep.engine.post_rdma_write(iov, cookie, remote_of(remote, Subtype::Arg5)?, flags)
        })
    }
}

pub unsafe fn send_with_invalidate(
    ep: Handle,
    count: Count,
    iov: *const LmrTriplet,
    cookie: Context,
    flags: u32,
    invalidate: Boolean,
    rmr_context: u32,
) -> Outcome {
    if invalidate == 0 {
        // SAFETY: null or valid for `count` triplets.
        return unsafe { send(ep, count, iov, cookie, flags) };
    }
    // SAFETY: null or valid for `count` triplets.
    unsafe {
        posted(ep, count, iov, flags, Subtype::Arg5, |ep, iov, flags| {
            ep.engine.post_send_with_invalidate(iov, cookie, flags, rmr_context)
        })
    }
}

pub unsafe fn rdma_read_to_rmr(
    ep: Handle,
    sink: *const RmrTriplet,
    cookie: Context,
    remote: *const RmrTriplet,
    flags: u32,
) -> Outcome {
    // SAFETY: both are null or valid.
    unsafe {
        posted(ep, 0, std::ptr::null(), flags, Subtype::Arg5, |ep, _, flags| {
            let (sink, remote) = (remote_of(sink, Subtype::Arg2)?, remote_of(remote, Subtype::Arg4)?);
            ep.engine.post_rdma_read_to_rmr(sink, cookie, remote, flags)
        })
    }
}

/// What all posts have in common.
#[inline(always)]
pub unsafe fn posted(
    ep: Handle,
    count: Count,
    iov: *const LmrTriplet,
    flags: u32,
    flags_at: Subtype,
    post: impl FnOnce(&Ep, &[LmrTriplet], CompletionFlags) -> dat_types::Result<()>,
) -> Outcome {
    let guard = epoch::enter();
    let Some(ep) = handle::get::<Ep>(&guard, ep) else { return Err(BAD) };
    // SAFETY: null or valid for `count` triplets.
    let iov = unsafe { segments(count, iov)? };
    let flags = CompletionFlags::from_bits(flags).ok_or(parameter(flags_at))?;
    Ok(post(ep, iov, flags)?)
}

/// The remote triplet.
#[inline]
pub unsafe fn remote_of(remote: *const RmrTriplet, position: Subtype) -> dat_types::Result<RmrTriplet> {
    const MISSING: &str = "the remote triplet is null";
    // SAFETY: null or valid.
    let remote = unsafe { remote.as_ref() };
    remote.copied().ok_or(Error::fixed("dat_ep_post", ReturnType::InvalidParameter, position, MISSING))
}

/// The segments as a slice.
#[inline]
pub unsafe fn segments<'a>(count: Count, iov: *const LmrTriplet) -> Outcome<&'a [LmrTriplet]> {
    let count = usize::try_from(count).map_err(|_| parameter(Subtype::Arg2))?;
    if count == 0 {
        return Ok(&[]);
    }
    if iov.is_null() || !iov.is_aligned() {
        // C guarantees the alignment of what it calls a triplet.
        return Err(parameter(Subtype::Arg3));
    }
    // SAFETY: not null, aligned, and valid for `count` by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}
