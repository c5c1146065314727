//! The vocabulary of the Direct Access Transport API: return codes, flags, attributes, events and states.
//!
//! Nothing here does anything: no input or output, no `unsafe`, no dependency on another crate of the project.
//! Names, values and units are those of uDAPL 2.0, so that the C library can hand them through unchanged.
#![forbid(unsafe_code)]

mod attr;
mod counter;
mod error;
mod event;
mod flags;
mod objects;
mod state;
mod status;

pub use attr::{EpAttr, EpCreator, IaAttr, ProviderAttr, SrqAttr};
pub use counter::{EpCounter, EvdCounter, IaCounter};
pub use error::{Error, Result};
pub use event::{
    AsyncReason, BreakReason, ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, Event, EventData,
};
pub use flags::{
    CloseFlags, CompletionFlags, ConnectFlags, EvdFlags, EvdState, MemTypes, Privileges, PspFlags, Qos,
    ServiceType,
};
pub use objects::{
    Comm, Extension, HaLoadBalancing, HandleType, IovOwnership, LmrCookie, PzSupport, RmrScope, VaType,
};
pub use state::EpState;
pub use status::{ReturnCode, ReturnType, Subtype};

/// Identifies an object (endpoint, event dispatcher, …) inside this process. Never reused, never 0.
///
/// A freed handle stays invalid (spec: common, R-3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectId(pub u64);

impl std::fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A stretch of local registered memory: the LMR triplet (spec: common).
///
/// A length of 0 makes the other two fields irrelevant; they are then never looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LmrTriplet {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// The `lmr_context` of the registration that covers it.
    pub context: u32,
}

/// A stretch of a peer's registered memory: the RMR triplet (spec: common).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RmrTriplet {
    /// Virtual address of the first byte, in the peer's address space.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// The `rmr_context` the peer gave out.
    pub context: u32,
}

impl RmrTriplet {
    /// As 16 bytes in network order, to be sent to a peer: address, length, context.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..].copy_from_slice(&self.context.to_be_bytes());
        out
    }

    /// The reverse of [`RmrTriplet::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> RmrTriplet {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        RmrTriplet {
            address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            length: u32::from_be_bytes([i, j, k, l]),
            context: u32::from_be_bytes([m, n, o, p]),
        }
    }
}

/// How long a blocking call may block. Microseconds, as in DAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub u32);

impl Timeout {
    /// `DAT_TIMEOUT_INFINITE`: no limit.
    pub const INFINITE: Timeout = Timeout(u32::MAX);
    /// Do not block at all.
    pub const ZERO: Timeout = Timeout(0);

    /// A time-out of `ms` milliseconds; 4,294,967 ms and more saturate just below infinite.
    pub const fn from_millis(ms: u32) -> Timeout {
        match ms.checked_mul(1000) {
            Some(us) if us != u32::MAX => Timeout(us),
            _ => Timeout(u32::MAX - 1),
        }
    }

    /// The same as a duration, or `None` when infinite.
    pub const fn duration(self) -> Option<std::time::Duration> {
        match self.0 {
            u32::MAX => None,
            us => Some(std::time::Duration::from_micros(us as u64)),
        }
    }
}

impl From<std::time::Duration> for Timeout {
    /// Rounds up to whole microseconds; saturates just below infinite.
    fn from(d: std::time::Duration) -> Timeout {
        let us = d.as_nanos().div_ceil(1000);
        Timeout(u32::try_from(us).unwrap_or(u32::MAX).min(u32::MAX - 1))
    }
}
