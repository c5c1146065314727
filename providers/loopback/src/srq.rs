//! Receives that several channels share.

use std::sync::Arc;

use dat_kit::{Fifo, Stretch};
use dat_plugin::{Event, EventKind, Failure, PostFlag, RecvRequest, Srq, SrqAttr, Status};

use crate::channel::{Phase, Recv, well_formed};
use crate::device::{LoopDevice, MAX_POSTS, MAX_SEGMENTS};
use crate::network::{Network, Origin, State};

/// A shared receive queue.
#[derive(Debug)]
pub struct LoopSrq {
    network: Arc<Network>,
    pub(crate) index: usize,
}

/// A shared receive queue as the network sees it.
#[derive(Debug)]
pub struct Shared {
    device: usize,
    attr: SrqAttr,
    recvs: Fifo<Recv>,
    /// An event is due once fewer are left; 0 is never.
    limit: u32,
}

impl LoopSrq {
    pub(crate) fn new(device: &LoopDevice, attr: &SrqAttr) -> Result<LoopSrq, Failure> {
        let refuse = |status, why: &str| {
            Err(Failure::new(status, format!("{}: new shared receive queue: {why}", device.params.ia_name)))
        };
        if attr.depth > MAX_POSTS || attr.max_segments > MAX_SEGMENTS {
            return refuse(Status::INVALID, "more is asked for than the device's attributes offer");
        }
        let Some(recvs) = Fifo::new(attr.depth as usize, attr.max_segments as usize) else {
            return refuse(Status::NO_RESOURCE, "not enough memory for its receives");
        };
        let shared = Shared { device: device.index, attr: *attr, recvs, limit: 0 };
        let index = device.network.lock().srqs.insert(shared);
        Ok(LoopSrq { network: device.network.clone(), index })
    }
}

impl Srq for LoopSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        let mut state = self.network.lock();
        let Some(shared) = state.srqs.get_mut(self.index) else { return Status::INVALID };
        let (segments, room) = (request.segments(), request.total);
        if !well_formed(segments, shared.attr.max_segments, room) {
            return Status::INVALID;
        }
        let poisoned = request.flags.contains(PostFlag::POISON);
        if !shared.recvs.push(Recv { token: request.token, room, poisoned }, segments) {
            return Status::NO_RESOURCE;
        }
        let sharing = |end: &crate::channel::End| match end.phase {
            Phase::Connected { peer } if end.srq == Some(self.index) => Some(peer),
            _ => None,
        };
        let senders: Vec<_> = state.channels.iter().filter_map(|(_, end)| sharing(end)).collect();
        for sender in senders {
            state.progress(sender);
        }
        Status::OK
    }

    fn arm(&self, limit: u32) -> Status {
        let mut state = self.network.lock();
        let Some(shared) = state.srqs.get_mut(self.index) else { return Status::INVALID };
        shared.limit = limit;
        state.check_limit(self.index);
        Status::OK
    }

    fn resize(&self, depth: u32) -> Status {
        let mut state = self.network.lock();
        match state.srqs.get_mut(self.index) {
            Some(shared) if depth <= MAX_POSTS => match shared.recvs.resize(depth as usize) {
                true => Status::OK,
                false => Status::NO_RESOURCE,
            },
            _ => Status::INVALID,
        }
    }

    fn close(&self) {
        self.network.lock().srqs.remove(self.index);
    }
}

impl Shared {
    pub fn front(&self) -> Option<(&Recv, &[Stretch])> {
        self.recvs.front()
    }

    pub fn pop(&mut self) {
        self.recvs.pop();
    }
}

impl State {
    /// Tells, once, that fewer receives are left than was asked for.
    pub fn check_limit(&mut self, srq: usize) {
        let Some(shared) = self.srqs.get_mut(srq) else { return };
        if shared.recvs.len() >= shared.limit as usize {
            return;
        }
        shared.limit = 0;
        let (device, event) = (shared.device, Event::new(EventKind::SRQ_LIMIT, shared.attr.user));
        self.send_event(device, Origin::Srq, event);
    }
}
