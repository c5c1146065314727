//! The local side of a post: slices as the engine's triplets, and cookies.

use arrayvec::ArrayVec;
use dat_types::{Error, LmrTriplet, Result, ReturnType, Subtype};

use crate::Ia;
use crate::inflight::MARK;
use crate::region::Slice;

/// Most segments of one post with any provider.
const MAX_SEGMENTS: usize = 32;

/// Slices as segments, each of a region that lives.
pub(crate) fn triplets(ia: &Ia, slices: &[Slice]) -> Result<ArrayVec<LmrTriplet, MAX_SEGMENTS>> {
    if slices.len() > MAX_SEGMENTS {
        return Err(TOO_MANY);
    }
    slices.iter().map(|slice| slice.triplet_on(ia)).collect()
}

/// Fails for a cookie of those that buffers go by.
#[inline]
pub(crate) fn check_cookie(cookie: u64) -> Result<()> {
    if cookie & MARK == 0 { Ok(()) } else { Err(COOKIE) }
}

const COOKIE: Error = Error::fixed(
    "dat_ep_post",
    ReturnType::InvalidParameter,
    Subtype::Arg4,
    "cookies with the highest bit set are reserved for buffers; use one below 2^63",
);

const TOO_MANY: Error = Error::fixed(
    "dat_ep_post",
    ReturnType::InvalidParameter,
    Subtype::Arg2,
    "more than 32 segments in one post",
);
