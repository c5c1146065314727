//! Segments of posts: how many, and why one is refused.

use dat_plugin::host::SpanError;
use dat_types::{Error, ReturnType, Subtype};

/// Most segments one post can have with any provider.
pub(crate) const MAX_IOV: usize = 32;

/// `DAT_PROTECTION_VIOLATION`, without a sentence: posts return it.
pub(crate) const ZONE_MISMATCH: (ReturnType, Subtype) = (ReturnType::ProtectionViolation, Subtype::None);

/// A segment is not what its triplet says.
#[cold]
pub(crate) fn segment_error(call: &'static str, error: SpanError) -> Error {
    let (kind, subtype, message) = match error {
        SpanError::Unknown => (
            ReturnType::PrivilegesViolation,
            Subtype::None,
            "a segment's lmr_context names no live memory region of this IA",
        ),
        SpanError::Range => {
            (ReturnType::InvalidParameter, Subtype::Arg3, "a segment reaches outside of its memory region")
        }
        SpanError::Domain => {
            (ZONE_MISMATCH.0, ZONE_MISMATCH.1, "a segment's memory region is of another protection zone")
        }
        SpanError::Access => (
            ReturnType::PrivilegesViolation,
            Subtype::None,
            "a segment's memory region lacks the local right: read to send or write, write to receive or read",
        ),
        SpanError::Exclusive => (
            ReturnType::PrivilegesViolation,
            Subtype::None,
            "a segment's memory belongs to one owner, such as a buffer; only the owner can post it",
        ),
    };
    Error::fixed(call, kind, subtype, message)
}
