//! What must come: events, with the choices the contract leaves.

use std::fmt;

use dat_types::{ConnectionKind, DtoOperation, DtoStatus, ReturnType};

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
    /// A completion; one of these statuses, this length on success.
    Dto { cookie: u64, statuses: Vec<DtoStatus>, operation: DtoOperation, length: u64 },
    /// A connection event; one of these kinds, with these bytes.
    Connection { kinds: Vec<ConnectionKind>, data: Vec<u8> },
}

/// What a call must return: success, or one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not determined in this state: the step is left out.
    LeftOut,
    Success,
    Refused(Vec<ReturnType>),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Dto { cookie, statuses, operation, length } => {
                write!(f, "{operation:?} {cookie} {statuses:?}")?;
                match statuses[..] {
                    [DtoStatus::Success] => write!(f, " {length} bytes"),
                    _ => Ok(()),
                }
            }
            What::Connection { kinds, data } => write!(f, "{kinds:?} {} bytes", data.len()),
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
