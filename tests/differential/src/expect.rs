//! Expected events, with the choices the specification leaves.

use std::fmt;

use dat_types::{BreakReason, ConnectionKind, DtoOperation, DtoStatus, ReturnType};

/// The three streams of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stream {
    Recv = 0,
    Request = 1,
    Connection = 2,
}

/// An event that must come next on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The dispatcher, by its number.
    pub evd: u8,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A completion.
    Dto(Completion),
    /// A connection event; one of these kinds, with these bytes, for this reason.
    Connection { kinds: Vec<ConnectionKind>, data: Vec<u8>, reason: Option<BreakReason> },
}

/// The end of something posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub cookie: u64,
    /// One of these is seen.
    pub statuses: Vec<DtoStatus>,
    pub operation: DtoOperation,
    /// On success.
    pub length: u64,
    /// The value that came with it, on success.
    pub immediate: Option<u32>,
    /// The receive came from a shared queue, and its cookie is that of any receive there.
    pub shared: Option<Shared>,
}

/// The contents of a receive of a shared queue, once its cookie is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    pub queue: usize,
    /// The bytes of the message, where they are known; none: nothing is known of the receive's memory.
    pub bytes: Option<Vec<Option<u8>>>,
}

impl Completion {
    /// A failed completion has neither length nor value.
    pub fn failed(cookie: u64, operation: DtoOperation, statuses: &[DtoStatus]) -> Completion {
        Completion {
            cookie,
            statuses: statuses.to_vec(),
            operation,
            length: 0,
            immediate: None,
            shared: None,
        }
    }

    pub fn succeeded(cookie: u64, operation: DtoOperation, length: u64) -> Completion {
        Completion { length, ..Completion::failed(cookie, operation, &[DtoStatus::Success]) }
    }
}

/// What a call must return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not determined in this state: the step is left out.
    LeftOut,
    Success,
    Refused(Vec<ReturnType>),
    /// The provider's attributes lack the feature, so the call must be refused with this.
    Lacks(&'static str, ReturnType),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Dto(Completion { cookie, statuses, operation, length, immediate, shared }) => {
                match shared {
                    None => write!(f, "{operation:?} {cookie} {statuses:?}")?,
                    Some(_) => write!(f, "{operation:?} shared {statuses:?}")?,
                }
                match (&statuses[..], immediate) {
                    ([DtoStatus::Success], None) => write!(f, " {length} bytes"),
                    ([DtoStatus::Success], Some(value)) => write!(f, " {length} bytes and {value:#x}"),
                    _ => Ok(()),
                }
            }
            What::Connection { kinds, data, reason } => {
                write!(f, "{kinds:?} {} bytes", data.len())?;
                reason.map_or(Ok(()), |reason| write!(f, ", {reason:?}"))
            }
        }?;
        write!(f, " on dispatcher {}", self.evd)
    }
}

/// The faults of a call, each with its place in the order of checks: the earliest ones decide.
#[derive(Debug, Default)]
pub struct Faults(Vec<(u8, ReturnType)>);

impl Faults {
    pub fn when(&mut self, fault: bool, rank: u8, code: ReturnType) {
        if fault {
            self.0.push((rank, code));
        }
    }

    pub fn answer(self) -> Answer {
        let Some(first) = self.0.iter().map(|(rank, _)| *rank).min() else { return Answer::Success };
        let mut codes: Vec<ReturnType> =
            self.0.iter().filter(|(rank, _)| *rank == first).map(|(_, code)| *code).collect();
        codes.sort();
        codes.dedup();
        Answer::Refused(codes)
    }
}
