//! A channel as its network sees it.

use std::sync::Arc;
use std::time::Instant;

use dat_kit::Fifo;
use dat_plugin::{ChannelAttr, Completion, Opcode, PostFlag};

use crate::queue::LoopQueue;

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    pub device: usize,
    pub attr: ChannelAttr,
    pub phase: Phase,
    pub local_port: u64,
    pub send_queue: Option<Arc<LoopQueue>>,
    pub recv_queue: Option<Arc<LoopQueue>>,
    pub requests: Fifo<Work>,
    pub recvs: Fifo<Recv>,
    /// The shared receive queue that takes the place of `recvs`.
    pub srq: Option<usize>,
    /// The last unsignalled success: token and length.
    pub unsignalled: Option<(u64, u32)>,
    /// When the first request, a message, first found no receive. Kept only where there is a time limit.
    pub waiting_since: Option<Instant>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Idle,
    /// The request is sent; the answer is outstanding.
    Connecting {
        request: u64,
    },
    /// The request is sent; no answer will come.
    Unanswered,
    Connected {
        peer: usize,
    },
    Stopped,
}

/// A posted request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub token: u64,
    pub opcode: Opcode,
    pub flags: PostFlag,
    pub length: u64,
    pub remote_addr: u64,
    pub rkey: u32,
    pub imm: u32,
    /// Of an atomic operation: the addend, or the expected and the new value.
    pub operands: [u64; 2],
    /// A bind that failed.
    pub failed: bool,
}

/// A posted receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recv {
    pub token: u64,
    pub room: u64,
    pub poisoned: bool,
}

impl Endpoint {
    /// Forgets all work; returns the phase it was in.
    pub fn stop(&mut self) -> Phase {
        self.settle();
        self.requests.clear();
        self.recvs.clear();
        self.waiting_since = None;
        std::mem::replace(&mut self.phase, Phase::Stopped)
    }

    /// Completes the last unsignalled success.
    pub fn settle(&mut self) {
        if let Some((token, length)) = self.unsignalled {
            self.complete_request(Completion { token, length, ..Completion::default() });
        }
    }

    pub fn complete_request(&mut self, completion: Completion) {
        self.unsignalled = None;
        if let Some(queue) = &self.send_queue {
            queue.push(Completion { user: self.attr.send_user, ..completion });
        }
    }

    pub fn complete_recv(&self, completion: Completion) {
        if let Some(queue) = &self.recv_queue {
            queue.push(Completion { user: self.attr.recv_user, ..completion });
        }
    }
}
