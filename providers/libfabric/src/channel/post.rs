//! Posting. A post goes into its ring, and from there to libfabric if it can go at once.

use dat_plugin::{
    AtomicRequest, BindRequest, CompletionStatus, Opcode, PostFlag, RecvRequest, Request as Posted, Status,
};

use crate::channel::ring::{Recv, Request};
use crate::channel::{ChannelInner, Phase};
use crate::endpoint::context::Seg;
use crate::wire::message::MAX_WRITTEN;

impl ChannelInner {
    pub fn post(&self, posted: &Posted) -> Status {
        let (len, remote) = match posted.opcode {
            Opcode::SEND | Opcode::SEND_IMM => (posted.total, false),
            Opcode::WRITE => (posted.total, true),
            Opcode::WRITE_IMM if posted.total < MAX_WRITTEN => (posted.total, true),
            Opcode::READ if u64::from(posted.remote_len) <= posted.total => (posted.remote_len.into(), true),
            _ => return Status::INVALID,
        };
        if len > self.core.max_message() || self.send.is_none() {
            return Status::INVALID;
        }
        let request = Request {
            token: posted.token,
            opcode: posted.opcode,
            flags: posted.flags,
            len: len as u32,
            imm: posted.imm,
            rkey: if remote { posted.rkey } else { 0 },
            remote_addr: posted.remote_addr,
            ..Request::default()
        };
        self.queue_request(request, posted.segments())
    }

    pub fn post_atomic(&self, posted: &AtomicRequest) -> Status {
        if !self.core.fabric.limits.atomics {
            return Status::NOT_SUPPORTED;
        }
        let known = matches!(posted.opcode, Opcode::FETCH_ADD | Opcode::CMP_SWAP);
        if !known || posted.sink.len() != 8 || !posted.remote_addr.is_multiple_of(8) || self.send.is_none() {
            return Status::INVALID;
        }
        let request = Request {
            token: posted.token,
            opcode: posted.opcode,
            flags: posted.flags,
            len: 8,
            rkey: posted.rkey,
            remote_addr: posted.remote_addr,
            operand: posted.operand,
            swap: posted.swap,
            ..Request::default()
        };
        self.queue_request(request, &[posted.sink])
    }

    /// Binds a window: opens a range of registered memory to peers under a new key.
    pub fn bind(&self, posted: &BindRequest) -> Result<u32, Status> {
        let mut st = self.lock();
        if !matches!(st.phase, Phase::Connected) {
            return Err(Status::NOT_CONNECTED);
        }
        let range = posted.range().map(|segment| (segment.addr(), u64::from(segment.len())));
        let bound = self.core.bind_window(posted.window, range, posted.access)?;
        let request = Request {
            token: posted.token,
            opcode: Opcode::BIND,
            flags: posted.flags,
            rkey: bound.before,
            ..Request::default()
        };
        if !st.requests.push::<Seg>(request, &[]) {
            self.core.unbind_window(posted.window, bound);
            return Err(Status::NO_RESOURCE);
        }
        self.start_requests(&mut st);
        self.complete_or_break(&mut st);
        Ok(bound.now)
    }

    fn queue_request(&self, request: Request, segments: &[dat_plugin::Segment]) -> Status {
        let mut st = self.lock();
        if st.phase != Phase::Connected {
            return Status::NOT_CONNECTED;
        }
        if !st.requests.push(request, segments) {
            return Status::NO_RESOURCE;
        }
        if st.requests.tail.wrapping_sub(st.requests.next) == 1 {
            self.start_requests(&mut st);
            let posted = st.requests.slot(st.requests.tail.wrapping_sub(1));
            // Requests without bytes, and those that failed at once, are done. A message never is.
            if !posted.is_message() || posted.status != CompletionStatus::SUCCESS {
                self.complete_or_break(&mut st);
            }
        }
        Status::OK
    }

    pub fn post_recv(&self, posted: &RecvRequest) -> Status {
        if self.recv.is_none() || self.srq.is_some() || posted.total > u64::from(u32::MAX) {
            return Status::INVALID;
        }
        let mut st = self.lock();
        if st.phase == Phase::Stopped {
            return Status::NOT_CONNECTED;
        }
        let recv = Recv {
            token: posted.token,
            len: posted.total as u32,
            poisoned: posted.flags.contains(PostFlag::POISON),
            ..Recv::default()
        };
        if !st.recvs.push(recv, posted.segments()) {
            return Status::NO_RESOURCE;
        }
        if st.link.is_some() {
            self.start_recvs(&mut st);
            // The next message carries the credit, or else the next run of this channel sends it.
            self.schedule();
        }
        Status::OK
    }
}
