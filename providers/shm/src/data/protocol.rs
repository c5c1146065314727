//! The protocol of the rings, and the one table of ways to execute a request.
//!
//! # Frames
//! A frame has a [`kind`], flags, a length and a 64-bit argument. The low half of the argument is the sender's counter of
//! finished requests, so that each frame acknowledges. The high half is the frame's own value (`extra` below).
//!
//! | kind | payload | extra | meaning |
//! |---|---|---|---|
//! | `SEND` | the bytes | length, or the value of a note | a whole message |
//! | `NOTE` | none | immediate value or window key | goes ahead of a message in parts |
//! | `HEAD` | the first bytes | length of the message | begins a message in parts |
//! | `MORE` | further bytes | 0 | continues a message or a write |
//! | `PULL` | a list of [`Part`]s | length of the message | the receiver fetches the message |
//! | `WRITE` | a [`Target`], `MORE` follows | length | the receiver writes |
//! | `READ` | a [`Target`] | length | the receiver reads, and answers with `DATA` |
//! | `ATOMIC` | an [`Atomic`] | 8 | the receiver executes it, and answers with `DATA` |
//! | `DATA` | the bytes | the read's sequence number | only in the ring of answers |
//! | `WRITTEN` | the length | immediate value | a write with an immediate value is done |
//!
//! # Plans
//! `Tx` classifies each request once, when it becomes the oldest one that is not started. The plan then stays.
//!
//! | plan | requests | condition, first match wins | reason |
//! |---|---|---|---|
//! | [`Plan::Eager`] | sends | below `map_threshold` and 4 KiB, up to a quarter of the ring | one frame, one copy on each side |
//! | [`Plan::Mapped`] | sends | every segment lies in memory that the peer can map | one copy in all |
//! | [`Plan::Kernel`] | sends | where the receiver found it faster, or from `cma_threshold` | one copy; the system call must pay off: [`select`] |
//! | [`Plan::Eager`] | sends | up to a quarter of the ring | as above |
//! | [`Plan::Parts`] | sends | all others | always works |
//! | [`Plan::Rdma`] | writes, reads, atomics | the first attempt | this side copies; the peer does nothing |
//! | [`Plan::Remote`] | writes, reads, atomics | [`Plan::Rdma`] found no access from here | the peer executes it |
//! | [`Plan::Local`] | binds | always | done before it was posted; it only keeps its turn |
//!
//! [`Part`]: crate::memory::target::Part
//! [`select`]: crate::data::select
//! [`Target`]: crate::memory::target::Target
//! [`Atomic`]: crate::memory::target::Atomic

/// Kinds of frames. 0 is no frame, 1 the wrap marker.
pub(crate) mod kind {
    pub(crate) const SEND: u8 = 2;
    pub(crate) const HEAD: u8 = 3;
    pub(crate) const MORE: u8 = 4;
    pub(crate) const PULL: u8 = 5;
    pub(crate) const WRITE: u8 = 6;
    pub(crate) const READ: u8 = 7;
    pub(crate) const DATA: u8 = 8;
    pub(crate) const NOTE: u8 = 9;
    pub(crate) const WRITTEN: u8 = 10;
    pub(crate) const ATOMIC: u8 = 11;
}

/// Flag of a frame: the completion of the receive is marked as solicited.
pub(crate) const SOLICITED: u8 = 1;
/// `extra` is an immediate value.
pub(crate) const IMMEDIATE: u8 = 2;
/// `extra` is the key of a window to be invalidated.
pub(crate) const INVALIDATE: u8 = 4;
/// Of a write: a `WRITTEN` frame ends the request.
pub(crate) const UNFINISHED: u8 = 8;

/// The longest access through the kernel, which moves a little less than 2 GiB in one call.
pub(crate) const KERNEL_MAX: u64 = 1 << 30;

/// How a request is executed: see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Eager,
    /// Where its first segment lies in memory that the peer can map.
    Mapped {
        map: u64,
        offset: u64,
    },
    Kernel,
    Parts,
    Rdma,
    Remote,
    Local,
}

/// The parameters that decide on a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// Bytes from which on a message in mappable memory is fetched by the receiver.
    pub(crate) mapped: u64,
    /// Bytes from which on a message is fetched through the kernel; `None`: as the receiver measures.
    pub(crate) kernel: Option<u64>,
    pub(crate) one_sided: OneSided,
}

/// Which mechanism writes and reads use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneSided {
    Auto,
    Mapped,
    Cma,
    Target,
}

/// What goes with a message beside its bytes: [`IMMEDIATE`], [`INVALIDATE`] or 0, and the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) flags: u8,
    pub(crate) value: u32,
}
