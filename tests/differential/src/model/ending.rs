//! The end of connections, and the events of endpoints.

use dat_types::ConnectionKind::{Broken, Disconnected};
use dat_types::ReturnType::InvalidState as IS;
use dat_types::{BreakReason, ConnectionKind, DtoOperation, DtoStatus, EpState};

use super::state::Model;
use crate::expect::{Answer, Completion, Expected, Stream, What};

impl Model {
    pub(super) fn disconnect(&mut self, ep: usize, graceful: bool) -> Answer {
        match self.eps[ep].state {
            EpState::Unconnected
            | EpState::Reserved
            | EpState::PassiveConnectionPending
            | EpState::TentativeConnectionPending => {
                return Answer::Refused(vec![IS]);
            }
            EpState::Disconnected => {}
            EpState::DisconnectPending if graceful => {}
            EpState::Connected if graceful && !self.eps[ep].requests.is_empty() => {
                self.eps[ep].state = EpState::DisconnectPending;
            }
            _ => {
                self.hang_up_at_peer(ep, &[Disconnected]);
                self.down(ep, &[Disconnected], &[]);
            }
        }
        Answer::Success
    }

    /// The other end learns that this one has gone.
    pub(crate) fn hang_up_at_peer(&mut self, ep: usize, kinds: &[ConnectionKind]) {
        if let Some(peer) = self.eps[ep].peer.take() {
            self.down(peer, kinds, &[]);
        }
    }

    /// To DISCONNECTED: outstanding work is flushed in post order, then the event.
    pub(crate) fn down(&mut self, ep: usize, kinds: &[ConnectionKind], data: &[u8]) {
        self.flush(ep);
        self.tell(ep, kinds, data.to_vec());
    }

    fn flush(&mut self, ep: usize) {
        self.eps[ep].state = EpState::Disconnected;
        self.eps[ep].peer = None;
        self.eps[ep].silent = false;
        for request in std::mem::take(&mut self.eps[ep].requests) {
            if let Some(bind) = request.bind {
                self.unbound(bind);
            }
            let flushed = Completion::failed(request.cookie, request.operation, &[DtoStatus::Flushed]);
            self.complete(ep, Stream::Request, flushed);
        }
        for recv in std::mem::take(&mut self.eps[ep].recvs) {
            let flushed = Completion::failed(recv.cookie, DtoOperation::Receive, &[DtoStatus::Flushed]);
            self.complete(ep, Stream::Recv, flushed);
        }
    }

    /// As [`Model::down`], because an operation failed.
    pub(super) fn break_down(&mut self, ep: usize, reason: BreakReason) {
        self.flush(ep);
        self.tell_why(ep, &[Broken], Vec::new(), Some(reason));
    }

    pub(super) fn tell(&mut self, ep: usize, kinds: &[ConnectionKind], data: Vec<u8>) {
        self.tell_why(ep, kinds, data, None);
    }

    fn tell_why(&mut self, ep: usize, kinds: &[ConnectionKind], data: Vec<u8>, reason: Option<BreakReason>) {
        let ep = &mut self.eps[ep];
        let Some(evd) = ep.shape.conn else { return };
        let what = What::Connection { kinds: kinds.to_vec(), data, reason };
        ep.expected[Stream::Connection as usize].push_back(Expected { evd, what });
    }

    pub(crate) fn complete(&mut self, ep: usize, stream: Stream, completion: Completion) {
        let ep = &mut self.eps[ep];
        let evd = if stream == Stream::Recv { ep.shape.recv } else { ep.shape.request };
        // A direction without a dispatcher has room for nothing.
        let Some(evd) = evd else { return };
        let what = What::Dto(completion);
        ep.expected[stream as usize].push_back(Expected { evd, what });
    }
}
