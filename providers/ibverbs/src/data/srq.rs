//! A shared receive queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_plugin::{Event, EventKind, Failure, PostFlag, RecvRequest, SrqAttr, Status};
use rdma_sys::verbs::*;

use crate::data::adapter::Adapter;
use crate::data::ring::Posted;
use crate::data::sge::as_sges;
use crate::data::work_id::WorkId;
use crate::status;
use crate::sys::queue_pair::SharedQueue;

/// A shared receive queue.
pub(crate) struct SrqInner {
    pub(crate) handle: Arc<SharedQueue>,
    adapter: Arc<Adapter>,
    attr: SrqAttr,
    slots: Mutex<Slots>,
}

/// Receives that are with the device, each with its token; they come back in any order.
struct Slots {
    tokens: Vec<Posted>,
    free: Vec<u32>,
    depth: u32,
    longest: u32,
}

impl SrqInner {
    pub(crate) fn new(adapter: &Arc<Adapter>, attr: &SrqAttr) -> Result<Arc<SrqInner>, Failure> {
        let what = format!("{}: a shared receive queue of {}", adapter.params.ia_name, attr.depth);
        let most = adapter.device_attr();
        if attr.depth == 0 || attr.depth > most.max_srq_depth || attr.max_segments > most.max_srq_segments {
            let message = format!(
                "{what} receives of {} segments: the device has up to {} of {}",
                attr.max_segments, most.max_srq_depth, most.max_srq_segments
            );
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let domain = adapter.memory.domain(attr.domain)?;
        let handle = SharedQueue::new(&domain, attr.depth, attr.max_segments.max(1), attr.user)
            .map_err(|error| status::failure(&what, &error))?;
        let slots = Slots {
            tokens: vec![Posted::default(); attr.depth as usize],
            free: (0..attr.depth).rev().collect(),
            depth: attr.depth,
            longest: attr.depth,
        };
        Ok(Arc::new(SrqInner {
            handle: Arc::new(handle),
            adapter: adapter.clone(),
            attr: *attr,
            slots: Mutex::new(slots),
        }))
    }

    /// The most receives in it.
    pub(crate) fn depth(&self) -> u32 {
        self.slots().depth
    }

    /// The receive a completion is of.
    pub(crate) fn complete(&self, id: WorkId) -> Posted {
        let mut slots = self.slots();
        let slot = id.sequence();
        slots.free.push(slot);
        slots.tokens.get(slot as usize).copied().unwrap_or_default()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn post_recv(&self, request: &RecvRequest) -> Status {
        let segments = request.segments();
        if segments.len() > self.attr.max_segments as usize || request.flags.contains(PostFlag::POISON) {
            return Status::INVALID;
        }
        let mut slots = self.slots();
        let Some(slot) = slots.free.pop() else { return Status::NO_RESOURCE };
        slots.tokens[slot as usize] = Posted { token: request.token, length: 0, mark: 0 };
        let mut wr = ibv_recv_wr {
            wr_id: WorkId::shared(slot).0,
            next: std::ptr::null_mut(),
            sg_list: as_sges(segments),
            num_sge: segments.len() as i32,
        };
        // SAFETY: the engine checked the segments against live registrations, and keeps them until they completed or the
        // queue is closed.
        let code = unsafe { self.handle.post(&mut wr) };
        if code != 0 {
            slots.free.push(slot);
            return status::refused(code);
        }
        Status::OK
    }

    pub(crate) fn arm(&self, limit: u32) -> Status {
        let slots = self.slots();
        // A device reports only when a receive is taken, so the present count is checked here.
        let held = slots.depth - (slots.free.len() as u32).min(slots.depth);
        if limit > 0 && held < limit {
            self.adapter.push_event(None, Event::new(EventKind::SRQ_LIMIT, self.attr.user));
            return Status::OK;
        }
        match self.handle.set_limit(limit) {
            Ok(()) => Status::OK,
            Err(error) => status::failure("limit of a shared receive queue", &error).status,
        }
    }

    pub(crate) fn resize(&self, depth: u32) -> Status {
        let mut slots = self.slots();
        let held = slots.depth - slots.free.len() as u32;
        if depth < held || depth == 0 || depth > self.adapter.device_attr().max_srq_depth {
            return Status::INVALID;
        }
        if depth < slots.depth {
            // Receives beyond the new depth may be anywhere in the device's queue: it stays as long as it is, and only
            // takes no more.
            let gone = slots.depth - depth;
            let keep = slots.free.len() - gone as usize;
            slots.free.truncate(keep);
            slots.depth = depth;
            return Status::OK;
        }
        // The device's queue may be longer, from an earlier shortening, and never has to be shorter.
        if depth > slots.longest
            && let Err(error) = self.handle.resize(depth)
        {
            return status::failure("resizing a shared receive queue", &error).status;
        }
        slots.longest = slots.longest.max(depth);
        grow(&mut slots, depth);
        Status::OK
    }
}

/// Adds slots that are not in use.
fn grow(slots: &mut Slots, depth: u32) {
    let known = slots.tokens.len() as u32;
    let more = depth - slots.depth;
    slots.tokens.resize((known + more) as usize, Posted::default());
    slots.free.extend(known..known + more);
    slots.depth = depth;
}
