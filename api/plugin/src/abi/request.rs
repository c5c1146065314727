//! What is posted, and how it ended.

use abi_stable::StableAbi;

use super::constants::{Access, CompletionFlag, CompletionStatus, Opcode, PostFlag};
use super::remote::Remote;

/// A range of local registered memory. Only [`crate::host::SpanTable`] makes one, from memory that is registered.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Segment {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

impl Segment {
    /// A segment without a [`crate::host::SpanTable`], for tests and benchmarks that call a provider directly.
    ///
    /// # Safety
    /// The range lies inside memory registered under `lkey`, for as long as a post that names it is outstanding; `len`
    /// is not 0.
    pub const unsafe fn from_parts(addr: u64, len: u32, lkey: u32) -> Segment {
        Segment { addr, len, lkey }
    }

    /// Address of the first byte in this process.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes, not 0.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The local key [`crate::Device::register`] gave.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }
}

/// One request: a send, write or read, each in its variants.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Request {
    /// Comes back in the completion.
    pub token: u64,
    pub(crate) segs: *const Segment,
    pub(crate) nsegs: u32,
    /// What to do.
    pub opcode: Opcode,
    /// How.
    pub flags: PostFlag,
    /// Sum of the segments' lengths.
    pub total: u64,
    /// Write and read: first byte at the peer.
    pub remote_addr: u64,
    /// Write and read: key the peer gave out.
    pub rkey: u32,
    /// Read: bytes to read, at most `total`. Write: 0.
    pub remote_len: u32,
    /// Immediate value, for the opcodes that carry one; the receiver sees the same number.
    pub imm: u32,
    pub(crate) reserved: u32,
}

/// One atomic operation on an aligned 64-bit word at the peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct AtomicRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// [`Opcode::FETCH_ADD`] or [`Opcode::CMP_SWAP`].
    pub opcode: Opcode,
    /// How.
    pub flags: PostFlag,
    /// Key the peer gave out, with [`Access::REMOTE_ATOMIC`].
    pub rkey: u32,
    /// The word at the peer, aligned to 8 bytes.
    pub remote_addr: u64,
    /// What to add, or what the word is expected to be.
    pub operand: u64,
    /// What the word becomes when it is as expected.
    pub swap: u64,
    /// Eight bytes that receive the old value, in this host's byte order.
    pub sink: Segment,
}

/// Binding of a memory window, a request like others: it completes in order, with an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct BindRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// What [`crate::Device::open_window`] gave.
    pub window: u64,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// Remote rights of the window; none when it is unbound.
    pub access: Access,
    /// How.
    pub flags: PostFlag,
    pub(crate) reserved: u16,
}

impl BindRequest {
    /// The range to open, of registered memory that has [`Access::WINDOW`]; `None`: end what the window is bound to.
    pub fn range(&self) -> Option<Segment> {
        (self.len != 0).then_some(Segment { addr: self.addr, len: self.len, lkey: self.lkey })
    }
}

/// One receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct RecvRequest {
    /// Comes back in the completion.
    pub token: u64,
    pub(crate) segs: *const Segment,
    pub(crate) nsegs: u32,
    /// Only [`PostFlag::POISON`] means something here.
    pub flags: PostFlag,
    pub(crate) reserved: u16,
    /// Sum of the segments' lengths.
    pub total: u64,
}

impl Request {
    /// Holds a pointer to the segments only: the caller keeps them in place while the result is used.
    #[inline]
    pub(crate) fn new(
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: Remote,
        imm: u32,
    ) -> Request {
        Request {
            token,
            segs: segments.as_ptr(),
            nsegs: segments.len() as u32,
            opcode,
            flags,
            total,
            remote_addr: remote.addr,
            rkey: remote.rkey,
            remote_len: remote.len,
            imm,
            reserved: 0,
        }
    }

    /// A request without a [`crate::host::Channel`], for tests and benchmarks that call a provider directly.
    ///
    /// # Safety
    /// `segments` outlives the result.
    pub unsafe fn from_parts(opcode: Opcode, token: u64, segments: &[Segment]) -> Request {
        let total = segments.iter().map(|segment| u64::from(segment.len)).sum();
        Request::new(opcode, PostFlag::NONE, token, segments, total, Remote::default(), 0)
    }
}

impl RecvRequest {
    /// As [`Request::new`].
    #[inline]
    pub(crate) fn new(flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> RecvRequest {
        let (segs, nsegs) = (segments.as_ptr(), segments.len() as u32);
        RecvRequest { token, segs, nsegs, flags, reserved: 0, total }
    }

    /// As [`Request::from_parts`].
    ///
    /// # Safety
    /// `segments` outlives the result.
    pub unsafe fn from_parts(token: u64, segments: &[Segment]) -> RecvRequest {
        let total = segments.iter().map(|segment| u64::from(segment.len)).sum();
        RecvRequest::new(PostFlag::NONE, token, segments, total)
    }
}

macro_rules! segments {
    ($($type:ident),*) => {$(
        impl $type {
            /// The local segments, none of them empty. Copy what is needed after the call.
            #[inline]
            pub fn segments(&self) -> &[Segment] {
                if self.nsegs == 0 {
                    return &[];
                }
                // SAFETY: the fields are private to this crate; `host` fills them from a slice that outlives the call.
                unsafe { std::slice::from_raw_parts(self.segs, self.nsegs as usize) }
            }
        }
    )*};
}
segments!(Request, RecvRequest);

/// One finished request or receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct Completion {
    /// The token of the post.
    pub token: u64,
    /// The number given for this channel and direction when the channel was opened.
    pub user: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// Bytes transferred.
    pub length: u32,
    /// Marks.
    pub flags: CompletionFlag,
    /// Immediate value or key, as `flags` says; else 0.
    pub imm: u32,
}
