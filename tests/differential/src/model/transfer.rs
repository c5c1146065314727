//! Transfers: matching of sends with receives, one-sided operations, what memory then holds.

use dat_types::ConnectionKind::Disconnected;
use dat_types::DtoStatus::{LocalLength, LocalProtection, RemoteAccess, RemoteResponder, Success};
use dat_types::{BreakReason, DtoOperation, DtoStatus, EpState};

use super::atomic::word;
use super::memory::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, segment_faults, total};
use super::state::{Endpoint, Model, Recv, Request, is_atomic, writes};
use crate::expect::{Completion, Shared, Stream};
use crate::program::{Far, Segment};

/// A receive that a message uses.
enum Taken {
    Own(Recv),
    /// One of a shared queue.
    Shared(usize),
}

impl Request {
    /// Whether it waits until the peer has a receive.
    fn takes_receive(&self) -> bool {
        matches!(self.operation, DtoOperation::Send | DtoOperation::RdmaWriteImmed)
    }
}

impl Model {
    /// Everything that can finish does.
    pub(crate) fn transfer_all(&mut self) {
        while (0..self.eps.len()).any(|ep| self.transfer(ep)) {}
        // What waits behind an undeliverable message may have been done already, or not.
        for ep in 0..self.eps.len() {
            let Some(peer) = self.eps[ep].peer else { continue };
            let (here, there) = (self.eps[ep].side, self.eps[peer].side);
            for request in self.eps[ep].requests.clone() {
                match request.operation {
                    DtoOperation::RdmaRead => self.sides[here].memory.doubt(&request.iov),
                    operation if is_atomic(operation) => {
                        self.sides[here].memory.doubt(&request.iov);
                        if !self.remote_fault(ep, &request) {
                            self.sides[there].memory.doubt(&[word(request.far)]);
                        }
                    }
                    operation if writes(operation) && !self.remote_fault(ep, &request) => {
                        let request = self.placed(peer, &request);
                        self.sides[there].memory.doubt(&[target(&request)]);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The oldest request of an endpoint; `false`: it has none that can finish.
    fn transfer(&mut self, ep: usize) -> bool {
        let it = &self.eps[ep];
        let (Some(peer), Some(request)) = (it.peer, it.requests.front().cloned()) else { return false };
        if !matches!(it.state, EpState::Connected | EpState::DisconnectPending) {
            return false;
        }
        if request.takes_receive() && !self.has_receive(&self.eps[peer]) {
            return false;
        }
        match request.operation {
            DtoOperation::Send => self.deliver(ep, peer, &request),
            _ => self.one_sided(ep, peer, &request),
        }
        let it = &mut self.eps[ep];
        if it.state == EpState::DisconnectPending && it.requests.is_empty() {
            self.hang_up_at_peer(ep, &[Disconnected]);
            self.down(ep, &[Disconnected], &[]);
        }
        true
    }

    pub(super) fn has_receive(&self, ep: &Endpoint) -> bool {
        match ep.queue {
            Some(queue) => self.queues[queue].available() > 0,
            None => !ep.recvs.is_empty(),
        }
    }

    /// The receive that a message to an endpoint uses, and its length.
    fn take(&mut self, ep: usize) -> Option<(Taken, u64)> {
        match self.eps[ep].queue {
            Some(queue) => self.take_shared(queue).map(|length| (Taken::Shared(queue), length)),
            None => {
                let recv = self.eps[ep].recvs.pop_front()?;
                let length = total(&recv.iov);
                Some((Taken::Own(recv), length))
            }
        }
    }

    /// The completion of a used receive; `bytes` are what it holds then, none if that is not known.
    fn used(&mut self, ep: usize, taken: Taken, done: Completion, bytes: Option<Vec<Option<u8>>>) {
        let done = match taken {
            Taken::Shared(queue) => Completion { shared: Some(Shared { queue, bytes }), ..done },
            Taken::Own(recv) => {
                let memory = &mut self.sides[self.eps[ep].side].memory;
                match bytes {
                    Some(bytes) => memory.scatter(&recv.iov, &bytes),
                    None => memory.doubt(&recv.iov),
                }
                Completion { cookie: recv.cookie, ..done }
            }
        };
        self.complete(ep, Stream::Recv, done);
    }

    fn deliver(&mut self, ep: usize, peer: usize, request: &Request) {
        let Some((taken, room)) = self.take(peer) else { return };
        let length = total(&request.iov);
        let foreign = match &taken {
            Taken::Own(recv) => !segment_faults(&recv.iov, self.eps[peer].shape.zone, LOCAL_WRITE).is_empty(),
            Taken::Shared(_) => false,
        };
        let status = match () {
            () if foreign => LocalProtection,
            () if length > room => LocalLength,
            () => Success,
        };
        let operation = match request.immediate {
            None => DtoOperation::Receive,
            Some(_) => DtoOperation::RecvMsgImmed,
        };
        let done = Completion { immediate: request.immediate, ..Completion::succeeded(0, operation, length) };
        if status != Success {
            self.used(peer, taken, Completion { statuses: vec![status], ..done }, None);
            self.fail(ep, peer, RemoteResponder, BreakReason::Operation(status));
            return;
        }
        let bytes = self.sides[self.eps[ep].side].memory.gather(&request.iov);
        self.used(peer, taken, done, Some(bytes));
        self.succeed(ep, length);
    }

    /// The same request, with the region behind a window instead of the window.
    fn placed(&self, peer: usize, request: &Request) -> Request {
        let Endpoint { side, shape, .. } = &self.eps[peer];
        let right = if writes(request.operation) { REMOTE_WRITE } else { REMOTE_READ };
        let length = if writes(request.operation) { total(&request.iov) as u32 } else { request.far.len };
        let far = self.reach(*side, shape.zone, request.far, length, right).unwrap_or(request.far);
        Request { far, ..request.clone() }
    }

    fn one_sided(&mut self, ep: usize, peer: usize, request: &Request) {
        if let Some(bind) = request.bind {
            self.bound(bind);
            return self.succeed(ep, 0);
        }
        if self.remote_fault(ep, request) {
            if request.operation == DtoOperation::RdmaRead || request.atomic.is_some() {
                let here = self.eps[ep].side;
                self.sides[here].memory.doubt(&request.iov);
            }
            self.fail(ep, peer, RemoteAccess, BreakReason::Transport);
            return;
        }
        let request = &self.placed(peer, request);
        let (here, there) = (self.eps[ep].side, self.eps[peer].side);
        let length = if writes(request.operation) {
            let bytes = self.sides[here].memory.gather(&request.iov);
            if !bytes.is_empty() {
                self.sides[there].memory.scatter(&[target(request)], &bytes);
            }
            bytes.len() as u64
        } else if request.atomic.is_some() {
            self.change_word(here, there, request);
            total(&request.iov)
        } else {
            let Far { region, offset, len } = request.far;
            if len > 0 {
                let bytes = self.sides[there].memory.gather(&[Segment { region, offset, len }]);
                self.sides[here].memory.scatter(&request.iov, &bytes);
            }
            u64::from(len)
        };
        if request.immediate.is_some()
            && let Some((taken, _)) = self.take(peer)
        {
            let done = Completion::succeeded(0, DtoOperation::RecvImmed, length);
            // Its memory is left alone.
            self.used(peer, taken, Completion { immediate: request.immediate, ..done }, Some(Vec::new()));
        }
        self.succeed(ep, length);
    }

    fn succeed(&mut self, ep: usize, length: u64) {
        let Some(request) = self.eps[ep].requests.pop_front() else { return };
        self.eps[ep].silent = request.suppressed;
        if !request.suppressed {
            let done = Completion::succeeded(request.cookie, request.operation, length);
            self.complete(ep, Stream::Request, done);
        }
    }

    /// The oldest request fails with this status and the connection with it: at the peer for this reason.
    fn fail(&mut self, ep: usize, peer: usize, status: DtoStatus, at_peer: BreakReason) {
        if let Some(request) = self.eps[ep].requests.pop_front() {
            let done = Completion::failed(request.cookie, request.operation, &[status]);
            self.complete(ep, Stream::Request, done);
        }
        self.break_down(ep, BreakReason::Operation(status));
        self.break_down(peer, at_peer);
    }
}

fn target(request: &Request) -> Segment {
    let Far { region, offset, .. } = request.far;
    Segment { region, offset, len: total(&request.iov) as u32 }
}
