//! Atomic operations (spec: extensions).

use dat_types::ReturnType::{
    InsufficientResources as IR, InvalidParameter as IP, InvalidState as IS, LengthError as LE,
    NotImplemented,
};
use dat_types::{DtoOperation, EpState};

use super::memory::{LOCAL_WRITE, Memory, segment_faults};
use super::state::{Model, Request, request_flags};
use crate::expect::{Answer, Faults};
use crate::program::{Atomic, Far, Segment, UNKNOWN};

/// Bytes of a word.
const WORD: u32 = 8;

impl Model {
    pub(super) fn atomic(
        &mut self,
        ep: usize,
        local: Segment,
        far: Far,
        atomic: Atomic,
        flags: u32,
    ) -> Answer {
        if !self.limits.atomics {
            return Answer::Lacks("atomic operations", NotImplemented);
        }
        let it = &self.eps[ep];
        let attrs = &it.shape.attrs;
        let mut faults = Faults::default();
        faults.when(flags & !request_flags(attrs.request_flags) != 0, 0, IP);
        faults.when(!matches!(it.state, EpState::Connected | EpState::Disconnected), 1, IS);
        faults.when(local.len < WORD || far.len < WORD, 1, LE);
        faults.when(far.region != UNKNOWN && !far.offset.is_multiple_of(WORD), 1, IP);
        let local = Segment { len: WORD, ..local };
        let segments = segment_faults(&[local], it.shape.zone, LOCAL_WRITE);
        segments.into_iter().for_each(|code| faults.when(true, 1, code));
        faults.when(it.requests.len() >= attrs.requests as usize, 2, IR);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        // The specification counts reads alone; a transport may count these with them.
        let peer = it.peer.map(|peer| self.eps[peer].shape.attrs.reads_in);
        if attrs.reads_out == 0 || peer == Some(0) {
            return Answer::LeftOut;
        }
        let operation = match atomic {
            Atomic::Add(_) => DtoOperation::FetchAdd,
            Atomic::Swap { .. } => DtoOperation::CmpSwap,
        };
        let request = Request::new(self.step, operation, vec![local], far, flags);
        self.admit(ep, Request { atomic: Some(atomic), ..request })
    }

    /// At the far side; what was there comes back.
    pub(super) fn change_word(&mut self, here: usize, there: usize, request: &Request) {
        let word = word(request.far);
        let old = self.sides[there].memory.word(word);
        self.sides[here].memory.set_word(request.iov[0], old);
        let new = match (request.atomic, old) {
            (Some(Atomic::Add(operand)), Some(old)) => Some(old.wrapping_add(operand)),
            (Some(Atomic::Swap { expected, swap }), Some(old)) => {
                Some(if old == expected { swap } else { old })
            }
            _ => None,
        };
        self.sides[there].memory.set_word(word, new);
    }
}

/// The word an atomic operation is on.
pub(super) fn word(Far { region, offset, .. }: Far) -> Segment {
    Segment { region, offset, len: WORD }
}

impl Memory {
    /// As hosts keep it.
    pub(crate) fn word(&mut self, at: Segment) -> Option<u64> {
        let known: Option<Vec<u8>> = self.gather(&[at]).into_iter().collect();
        known.and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes)
    }

    fn set_word(&mut self, at: Segment, word: Option<u64>) {
        match word {
            Some(word) => self.scatter(&[at], &word.to_ne_bytes().map(Some)),
            None => self.doubt(&[at]),
        }
    }
}
