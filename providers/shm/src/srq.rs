//! Receives that several channels share.
//!
//! A channel takes one when a message is there for it. One whose message finds none waits in line; whoever posts a
//! receive serves the line.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_kit::{Fifo, Stretch};
use dat_plugin::{Event, EventKind, Failure, RecvRequest, Srq, SrqAttr, Status};
use dat_sync::Lock;

use crate::channel::Chan;
use crate::device::Dev;
use crate::rx::Recv;

/// Most receives of a shared queue.
pub(crate) const MAX_DEPTH: u32 = 1 << 16;

/// A shared receive queue.
#[derive(Clone)]
pub struct ShmSrq(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    dev: Arc<Dev>,
    user: u64,
    pub(crate) max_segs: u32,
    state: Lock<State>,
    closed: AtomicBool,
}

struct State {
    recvs: Fifo<Recv>,
    depth: usize,
    /// Taken for messages that never came whole; first in line.
    returned: VecDeque<(Recv, Box<[Stretch]>)>,
    /// Channels with a message that found no receive.
    waiting: VecDeque<Weak<Chan>>,
    /// An event is due once fewer are left; 0 is never.
    limit: usize,
}

impl ShmSrq {
    pub(crate) fn new(dev: &Arc<Dev>, attr: &SrqAttr) -> Result<ShmSrq, Failure> {
        let Some(recvs) = Fifo::new(attr.depth as usize, attr.max_segments as usize) else {
            return Err(Failure::new(
                Status::NO_RESOURCE,
                "not enough memory for the receives of a shared queue",
            ));
        };
        let state = State {
            recvs,
            depth: attr.depth as usize,
            returned: VecDeque::new(),
            waiting: VecDeque::new(),
            limit: 0,
        };
        Ok(ShmSrq(Arc::new(Shared {
            dev: dev.clone(),
            user: attr.user,
            max_segs: attr.max_segments,
            state: Lock::new(state),
            closed: AtomicBool::new(false),
        })))
    }
}

impl State {
    fn len(&self) -> usize {
        self.recvs.len() + self.returned.len()
    }
}

impl Shared {
    /// The oldest receive, its segments copied to `to`, which has room for as many as one may have. `None`: there is
    /// none, and `chan` waits in line.
    pub(crate) fn take(&self, chan: &Chan, to: &mut [Stretch]) -> Option<Recv> {
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
            if !chan.in_line.swap(true, Ordering::AcqRel)
                && let Some(chan) = chan.arc()
            {
                state.waiting.push_back(Arc::downgrade(&chan));
            }
            return None;
        };
        let few = self.few(&mut state);
        drop(state);
        self.tell(few);
        Some(recv)
    }

    /// The first in line again; [`Shared::serve`] is to be called once the channel is let go.
    pub(crate) fn give_back(&self, recv: Recv, segs: &[Stretch]) {
        self.state.lock().returned.push_back((recv, segs.into()));
    }

    /// Whether the event is due; it is told once.
    fn few(&self, state: &mut State) -> bool {
        let few = state.len() < state.limit;
        if few {
            state.limit = 0;
        }
        few
    }

    fn tell(&self, few: bool) {
        if few {
            self.dev.push_event(None, Event::new(EventKind::SRQ_LIMIT, self.user));
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
            if let Some(chan) = next.and_then(|chan| chan.upgrade()) {
                chan.in_line.store(false, Ordering::Release);
                chan.pump();
            }
        }
    }
}

impl Srq for ShmSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        let shared = &*self.0;
        if !shared.dev.owner.here() {
            return Status::FORKED;
        }
        let segments = request.segments();
        let total: u64 = segments.iter().map(|segment| u64::from(segment.len())).sum();
        if segments.len() > shared.max_segs as usize || total != request.total {
            return Status::INVALID;
        }
        let recv = Recv::new(request);
        let waiting = {
            let mut state = shared.state.lock();
            if state.len() >= state.depth || !state.recvs.push(recv, segments) {
                return Status::NO_RESOURCE;
            }
            !state.waiting.is_empty()
        };
        if waiting {
            shared.serve();
        }
        Status::OK
    }

    fn arm(&self, limit: u32) -> Status {
        if !self.0.dev.owner.here() {
            return Status::FORKED;
        }
        let few = {
            let mut state = self.0.state.lock();
            state.limit = limit as usize;
            self.0.few(&mut state)
        };
        self.0.tell(few);
        Status::OK
    }

    fn resize(&self, depth: u32) -> Status {
        if !self.0.dev.owner.here() {
            return Status::FORKED;
        }
        if depth > MAX_DEPTH {
            return Status::INVALID;
        }
        let mut state = self.0.state.lock();
        if state.len() > depth as usize || !state.recvs.resize(depth as usize) {
            return Status::NO_RESOURCE;
        }
        state.depth = depth as usize;
        Status::OK
    }

    fn close(&self) {
        if !self.0.closed.swap(true, Ordering::AcqRel) {
            self.0.dev.srq_closed();
        }
    }
}
