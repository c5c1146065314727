//! Posts: what each must return, and what waits then (spec: transfer).

use dat_types::DtoStatus::Flushed;
use dat_types::ReturnType::{
    InsufficientResources as IR, InvalidParameter as IP, InvalidState as IS, LengthError as LE,
    NotImplemented,
};
use dat_types::{DtoOperation, EpState};

use super::memory::{
    LOCAL_READ, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, segment_faults, total,
};
use super::state::{
    Endpoint, Model, Recv, Request, SOLICITED, UNSIGNALLED, is_atomic, request_flags, writes,
};
use crate::expect::{Answer, Completion, Faults, Stream};
use crate::program::{Far, Step};

impl Model {
    pub(crate) fn post(&mut self, ep: usize, step: &Step) -> Answer {
        let (iov, flags, operation, far) = match step {
            Step::Recv { iov, flags, .. } => (iov, *flags, DtoOperation::Receive, None),
            Step::Send { iov, flags, .. } => (iov, *flags, DtoOperation::Send, None),
            Step::Write { iov, far, flags, immediate: None, .. } => {
                (iov, *flags, DtoOperation::RdmaWrite, Some(*far))
            }
            Step::Write { iov, far, flags, .. } => (iov, *flags, DtoOperation::RdmaWriteImmed, Some(*far)),
            Step::Read { iov, far, flags, .. } => (iov, *flags, DtoOperation::RdmaRead, Some(*far)),
            _ => return Answer::LeftOut,
        };
        let immediate = match step {
            Step::Send { immediate, .. } | Step::Write { immediate, .. } => *immediate,
            _ => None,
        };
        if immediate.is_some() && !self.limits.immediate {
            return Answer::Lacks("immediate values", NotImplemented);
        }
        let it = &self.eps[ep];
        let attrs = &it.shape.attrs;
        let is_recv = operation == DtoOperation::Receive;
        let total = total(iov);
        let mut faults = Faults::default();
        // Flags and counts come first, then the state; the segments may be looked at before or after it.
        let (mode, most) = match is_recv {
            true => (attrs.recv_flags, attrs.recv_iov),
            false => (attrs.request_flags, attrs.request_iov),
        };
        let mut allowed = request_flags(mode);
        if is_recv {
            allowed &= UNSIGNALLED;
        }
        if matches!(operation, DtoOperation::Send | DtoOperation::RdmaWriteImmed) {
            allowed |= SOLICITED;
        }
        faults.when(flags & !allowed != 0 || iov.len() > most as usize, 0, IP);
        if is_recv && it.queue.is_some() {
            // Its number of segments is the queue's (K-11), so whether one too many is named is open.
            let counted = iov.len() > most as usize;
            faults.when(true, if counted { 0 } else { 1 }, IS);
        }
        let usable = matches!(it.state, EpState::Connected | EpState::Disconnected);
        faults.when(!is_recv && !usable, 1, IS);
        let right = match operation {
            DtoOperation::Receive | DtoOperation::RdmaRead => LOCAL_WRITE,
            _ => LOCAL_READ,
        };
        segment_faults(iov, it.shape.zone, right).into_iter().for_each(|code| faults.when(true, 1, code));
        let most = if operation == DtoOperation::Send { attrs.message } else { attrs.rdma };
        faults.when(!is_recv && total > most, 1, IP);
        if let Some(far) = far {
            if operation == DtoOperation::RdmaRead {
                faults.when(attrs.reads_out == 0, 1, IP);
                faults.when(total < u64::from(far.len), 1, LE);
            } else {
                faults.when(total > u64::from(far.len), 1, LE);
            }
        }
        let (outstanding, limit) = match is_recv {
            true => (it.recvs.len(), attrs.recvs),
            false => (it.requests.len(), attrs.requests),
        };
        let full = outstanding >= limit as usize;
        faults.when(full, 2, IR);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let iov = iov.clone();
        if !is_recv {
            let far = far.unwrap_or(Far { region: 0, offset: 0, len: 0 });
            let request = Request::new(self.step, operation, iov, far, flags);
            return self.admit(ep, Request { immediate, ..request });
        }
        let cookie = self.step as u64;
        if self.eps[ep].state == EpState::Disconnected {
            self.complete(ep, Stream::Recv, Completion::failed(cookie, operation, &[Flushed]));
        } else {
            self.eps[ep].recvs.push_back(Recv { cookie, iov });
        }
        answer
    }

    /// Takes a request that was found right.
    pub(super) fn admit(&mut self, ep: usize, request: Request) -> Answer {
        if self.eps[ep].state == EpState::Disconnected {
            let flushed = Completion::failed(request.cookie, request.operation, &[Flushed]);
            self.complete(ep, Stream::Request, flushed);
        } else {
            // A suppressed success cannot be observed while other requests wait behind it. It decides whether a later
            // flush reports it.
            let waiting = &self.eps[ep].requests;
            if !waiting.is_empty() && (request.suppressed || waiting.iter().any(|other| other.suppressed)) {
                return Answer::LeftOut;
            }
            let there = self.eps[ep].peer.map(|peer| self.eps[peer].side);
            if there.is_some_and(|there| self.is_open(there, request.far)) {
                return Answer::LeftOut;
            }
            // Behind a message that cannot be delivered it is open when a one-sided operation fails.
            if !self.eps[ep].requests.is_empty() && self.remote_fault(ep, &request) {
                return Answer::LeftOut;
            }
            if request.operation == DtoOperation::RdmaWriteImmed && self.is_open_with_immediate(ep, &request)
            {
                return Answer::LeftOut;
            }
            self.eps[ep].requests.push_back(request);
        }
        Answer::Success
    }

    /// A write with a value takes a receive, whose memory it does not touch: whether it finds out first that there is none
    /// or that it may not write is open, and so is what becomes of a receive that a message could not use.
    fn is_open_with_immediate(&self, ep: usize, request: &Request) -> bool {
        let Some(peer) = self.eps[ep].peer.map(|peer| &self.eps[peer]) else { return false };
        let foreign = |recv: &Recv| !segment_faults(&recv.iov, peer.shape.zone, LOCAL_WRITE).is_empty();
        (!self.has_receive(peer) && self.remote_fault(ep, request)) || peer.recvs.iter().any(foreign)
    }

    /// Whether the far side refuses it.
    pub(super) fn remote_fault(&self, ep: usize, request: &Request) -> bool {
        let right = match request.operation {
            operation if writes(operation) => REMOTE_WRITE,
            DtoOperation::RdmaRead => REMOTE_READ,
            operation if is_atomic(operation) => REMOTE_ATOMIC,
            _ => return false,
        };
        let length = match request.operation {
            operation if writes(operation) => total(&request.iov) as u32,
            _ => request.far.len,
        };
        let Some(peer) = self.eps[ep].peer else { return false };
        if length == 0 {
            return false;
        }
        let Endpoint { side, shape, .. } = &self.eps[peer];
        self.reach(*side, shape.zone, request.far, length, right).is_none()
    }
}
