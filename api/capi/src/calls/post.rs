//! Posting: the hot path of requests and receives. No allocation, no lock but the engine's.

use std::mem::MaybeUninit;

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
    let mut copies = NO_COPIES;
    // SAFETY: null or valid for `count` triplets.
    let iov = unsafe { segments(count, iov, &mut copies)? };
    let flags = CompletionFlags::from_bits(flags).ok_or(parameter(flags_at))?;
    Ok(post(ep, iov, flags)?)
}

/// The remote triplet.
///
/// # Safety
/// `remote` is null or names a triplet, at any alignment.
#[inline]
pub unsafe fn remote_of(remote: *const RmrTriplet, position: Subtype) -> dat_types::Result<RmrTriplet> {
    const MISSING: &str = "the remote triplet is null";
    if remote.is_null() {
        return Err(Error::fixed("dat_ep_post", ReturnType::InvalidParameter, position, MISSING));
    }
    // SAFETY: the caller's program passes a triplet that is valid for the call.
    Ok(unsafe { remote.read_unaligned() })
}

/// Room for triplets that are not aligned. Intel MPI passes them out of packed structures.
pub type Copies = [MaybeUninit<LmrTriplet>; 32];

/// No triplets yet; costs nothing.
pub const NO_COPIES: Copies = [MaybeUninit::uninit(); 32];

/// The segments as a slice: the caller's, or copies in `copies` when the caller's are not aligned.
///
/// # Safety
/// `iov` is null or names `count` triplets, at any alignment, valid as long as the result.
#[inline]
pub unsafe fn segments(count: Count, iov: *const LmrTriplet, copies: &mut Copies) -> Outcome<&[LmrTriplet]> {
    let count = usize::try_from(count).map_err(|_| parameter(Subtype::Arg2))?;
    if count == 0 {
        return Ok(&[]);
    }
    if iov.is_null() {
        return Err(parameter(Subtype::Arg3));
    }
    if !iov.is_aligned() {
        // SAFETY: not null; the rest is the caller's promise.
        return unsafe { aligned(count, iov, copies) };
    }
    // SAFETY: not null, aligned, and valid for `count` by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

/// Copies triplets of any alignment.
///
/// # Safety
/// `iov` names `count` triplets.
#[cold]
unsafe fn aligned(count: usize, iov: *const LmrTriplet, copies: &mut Copies) -> Outcome<&[LmrTriplet]> {
    let copies = copies.get_mut(..count).ok_or(parameter(Subtype::Arg2))?;
    // SAFETY: the source holds `count` triplets and the destination is as long. Bytes have no alignment.
    unsafe {
        let bytes = count * size_of::<LmrTriplet>();
        std::ptr::copy_nonoverlapping(iov.cast::<u8>(), copies.as_mut_ptr().cast::<u8>(), bytes);
    }
    // SAFETY: all `count` of them were written just now, and each bit pattern is a triplet.
    Ok(unsafe { std::slice::from_raw_parts(copies.as_ptr().cast(), count) })
}
