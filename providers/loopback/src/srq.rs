//! Shared receive queues.

use std::sync::Arc;

use dat_kit::Fifo;
use dat_plugin::{Failure, PostFlag, RecvRequest, Srq, SrqAttr, Status};

use crate::adapter::Adapter;
use crate::limits::{MAX_POSTS, MAX_SEGMENTS, well_formed};
use crate::network::{Endpoint, Network, Phase, Recv, SharedRecvs};

/// A shared receive queue.
#[derive(Debug)]
pub struct LoopSrq {
    network: Arc<Network>,
    pub(crate) index: usize,
}

impl LoopSrq {
    pub(crate) fn new(adapter: &Adapter, attr: &SrqAttr) -> Result<LoopSrq, Failure> {
        let refuse = |status, why: &str| {
            Err(Failure::new(status, format!("{}: new shared receive queue: {why}", adapter.params.ia_name)))
        };
        if attr.depth > MAX_POSTS || attr.max_segments > MAX_SEGMENTS {
            return refuse(Status::INVALID, "its attributes exceed those of the device");
        }
        let Some(recvs) = Fifo::new(attr.depth as usize, attr.max_segments as usize) else {
            return refuse(Status::NO_RESOURCE, "not enough memory for its receives");
        };
        let shared = SharedRecvs { device: adapter.index, attr: *attr, recvs, limit: 0 };
        let index = adapter.network.lock().srqs.insert(shared);
        Ok(LoopSrq { network: adapter.network.clone(), index })
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
        let sharing = |end: &Endpoint| match end.phase {
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
