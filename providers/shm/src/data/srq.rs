//! Receives that several channels share.
//!
//! A channel takes a receive when a message is there for it. A channel whose message finds none waits in line, and the
//! next post of a receive serves the line.

use std::collections::VecDeque;
use std::sync::Weak;

use dat_kit::{Fifo, MemSpan};
use dat_plugin::{RecvRequest, SrqAttr, Status};
use dat_sync::Lock;

use crate::data::conn::{Conn, Control};
use crate::data::recv::Recv;

/// Most receives of a shared queue.
pub(crate) const MAX_DEPTH: u32 = 1 << 16;

/// A shared receive queue.
pub(crate) struct Shared {
    pub(crate) max_segs: u32,
    state: Lock<State>,
    /// Reports that fewer receives are left than the limit.
    low: Box<dyn Fn() + Send + Sync>,
}

struct State {
    recvs: Fifo<Recv>,
    depth: usize,
    /// Taken for messages that never came whole; first in line.
    returned: VecDeque<(Recv, Box<[MemSpan]>)>,
    /// Channels with a message that found no receive.
    waiting: VecDeque<Weak<dyn Control>>,
    /// An event is due once fewer are left; 0 is never.
    limit: usize,
}

impl State {
    fn len(&self) -> usize {
        self.recvs.len() + self.returned.len()
    }
}

impl Shared {
    /// `None`: there is not enough memory for the receives.
    pub(crate) fn new(attr: &SrqAttr, low: Box<dyn Fn() + Send + Sync>) -> Option<Shared> {
        let depth = attr.depth as usize;
        let recvs = Fifo::new(depth, attr.max_segments as usize)?;
        let state = State { recvs, depth, returned: VecDeque::new(), waiting: VecDeque::new(), limit: 0 };
        Some(Shared { max_segs: attr.max_segments, state: Lock::new(state), low })
    }

    pub(crate) fn post(&self, request: &RecvRequest) -> Status {
        let segments = request.segments();
        let total: u64 = segments.iter().map(|segment| u64::from(segment.len())).sum();
        if segments.len() > self.max_segs as usize || total != request.total {
            return Status::INVALID;
        }
        let waiting = {
            let mut state = self.state.lock();
            if state.len() >= state.depth || !state.recvs.push(Recv::new(request), segments) {
                return Status::NO_RESOURCE;
            }
            !state.waiting.is_empty()
        };
        if waiting {
            self.serve();
        }
        Status::OK
    }

    /// One event is due once fewer than `limit` receives are left.
    pub(crate) fn arm(&self, limit: u32) {
        let low = {
            let mut state = self.state.lock();
            state.limit = limit as usize;
            self.is_low(&mut state)
        };
        self.report(low);
    }

    pub(crate) fn resize(&self, depth: usize) -> Status {
        let mut state = self.state.lock();
        if state.len() > depth || !state.recvs.resize(depth) {
            return Status::NO_RESOURCE;
        }
        state.depth = depth;
        Status::OK
    }

    /// The oldest receive, its segments copied to `to`, which has room for the most segments of a receive. `None`: there is
    /// none, and the channel waits in line.
    pub(crate) fn take(&self, conn: &Conn, to: &mut [MemSpan]) -> Option<Recv> {
        let mut state = self.state.lock();
        let recv = if let Some((recv, segs)) = state.returned.pop_front() {
            to[..segs.len()].copy_from_slice(&segs);
            recv
        } else if let Some((recv, segs)) = state.recvs.front() {
            let recv = *recv;
            to[..segs.len()].copy_from_slice(segs);
            state.recvs.pop();
            recv
        } else {
            state.waiting.extend(conn.line_up());
            return None;
        };
        let low = self.is_low(&mut state);
        drop(state);
        self.report(low);
        Some(recv)
    }

    /// The first in line again; [`Shared::serve`] is to be called once the channel is let go.
    pub(crate) fn give_back(&self, recv: Recv, segs: &[MemSpan]) {
        self.state.lock().returned.push_back((recv, segs.into()));
    }

    /// Whether the event is due, which is reported once.
    fn is_low(&self, state: &mut State) -> bool {
        let low = state.len() < state.limit;
        if low {
            state.limit = 0;
        }
        low
    }

    fn report(&self, low: bool) {
        if low {
            (self.low)();
        }
    }

    /// Lets channels go on that wait in line, as long as there are receives.
    pub(crate) fn serve(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() || state.len() == 0 {
                    return;
                }
                state.waiting.pop_front()
            };
            if let Some(channel) = next.and_then(|channel| channel.upgrade()) {
                channel.receive_available();
            }
        }
    }
}
