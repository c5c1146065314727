//! Posts through a child whose keys differ from those the application has: local keys, remote keys, or both.
//!
//! A remote key that is not known yet is read from the peer's table. Until the answer is there this post and all later
//! ones of the channel are held, so that they stay in order. The completion of the read is taken by [`crate::queue`],
//! which calls [`Far::answered`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_plugin::host::{BelowChannel, Memory, Registration};
use dat_plugin::{
    Access, AtomicRequest, Channel as _, Completion, CompletionStatus, Failure, Opcode, PostFlag,
    RecvRequest, Request, Segment, Status,
};

use crate::child::Child;
use crate::header::TableAt;
use crate::regions::Regions;
use crate::table::{self, FETCH};

/// The token of a read of the route's own. The engine numbers its posts from 0.
pub(crate) const OWN: u64 = u64::MAX;

/// Translations kept for a channel; more are read again.
const MOST_KNOWN: usize = 16_384;

/// The translation of posts on one channel.
pub(crate) struct Far {
    regions: Arc<Regions>,
    child: usize,
    /// Before `scratch`: the channel is closed first, and the child then no longer writes there.
    below: Arc<BelowChannel>,
    /// Where the peer's table is; `None`: remote keys need no translation.
    table: Option<TableAt>,
    scratch: Option<Registration>,
    send_user: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The peer's keys of this child, by its keys of the first child.
    known: HashMap<u32, u32>,
    /// The key that is being read.
    asked: Option<u32>,
    held: VecDeque<Held>,
    /// The token of the last post, if that was unsignalled.
    unsignalled: Option<u64>,
    stopped: bool,
}

/// A post that waits, with segments of its own.
#[derive(Debug)]
enum Held {
    Request { wanted: Wanted, segments: Vec<Segment> },
    Atomic(AtomicRequest),
}

/// A request without its segments.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    token: u64,
    opcode: Opcode,
    flags: PostFlag,
    remote_addr: u64,
    rkey: u32,
    remote_len: u32,
    imm: u32,
}

/// What a post led to.
pub(crate) enum Posted {
    /// The child's answer.
    Done(Status),
    /// It is held. With `true` a read was posted just now, and its completion must be taken.
    Held(bool),
}

impl Far {
    pub(crate) fn new(
        regions: Arc<Regions>,
        (child, of): (usize, &Child),
        below: Arc<BelowChannel>,
        table: Option<TableAt>,
        (domain, send_user): (u32, u64),
    ) -> Result<Far, Failure> {
        let scratch = table.map(|_| {
            let memory = Memory::try_heap(FETCH as usize)?;
            of.device.register(memory, Access::LOCAL_WRITE, domain)
        });
        let scratch = scratch.transpose()?;
        Ok(Far { regions, child, below, table, scratch, send_user, state: Mutex::default() })
    }

    /// Whether reads of its own complete in the channel's send queue.
    pub(crate) fn reads(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn post(&self, request: &Request) -> Posted {
        let posted = self.regions.with_local(self.child, request.segments(), |segments| {
            self.post_local(&Wanted::of(request), segments)
        });
        posted.unwrap_or_else(Posted::Done)
    }

    fn post_local(&self, wanted: &Wanted, segments: &[Segment]) -> Posted {
        let mut state = self.state();
        if state.stopped {
            return Posted::Done(Status::NOT_CONNECTED);
        }
        if state.asked.is_none() {
            if !names_remote(wanted.opcode) || self.table.is_none() {
                return Posted::Done(self.submit(&mut state, wanted, segments, wanted.rkey));
            }
            if let Some(rkey) = state.known.get(&wanted.rkey).copied() {
                return Posted::Done(self.submit(&mut state, wanted, segments, rkey));
            }
        }
        let held = Held::Request { wanted: *wanted, segments: segments.to_vec() };
        self.hold(&mut state, wanted.rkey, held)
    }

    pub(crate) fn post_atomic(&self, request: &AtomicRequest) -> Posted {
        let sink = match self.regions.with_local(self.child, &[request.sink], |segments| segments[0]) {
            Ok(sink) => sink,
            Err(status) => return Posted::Done(status),
        };
        let request = AtomicRequest { sink, ..*request };
        let mut state = self.state();
        if state.stopped {
            return Posted::Done(Status::NOT_CONNECTED);
        }
        if state.asked.is_none() {
            let known = state.known.get(&request.rkey).copied();
            if let Some(rkey) = known.or(self.table.is_none().then_some(request.rkey)) {
                return Posted::Done(self.submit_atomic(&mut state, &request, rkey));
            }
        }
        self.hold(&mut state, request.rkey, Held::Atomic(request))
    }

    pub(crate) fn post_recv(&self, request: &RecvRequest) -> Status {
        let posted = self.regions.with_local(self.child, request.segments(), |segments| {
            post_recv(&self.below, request.token, request.flags, segments)
        });
        posted.unwrap_or_else(|status| status)
    }

    /// Takes the completion of a read of the route's own, and posts what was held. What it gives is for the engine. `true`:
    /// another read was posted.
    pub(crate) fn answered(&self, completion: &Completion) -> (Option<Completion>, bool) {
        let mut state = self.state();
        let (Some(key), Some(scratch)) = (state.asked.take(), &self.scratch) else { return (None, false) };
        // The read covers the unsignalled requests before it, so the engine needs a completion of the last.
        let covered = state.unsignalled.take().map(|token| Completion {
            token,
            user: self.send_user,
            status: CompletionStatus::SUCCESS,
            ..Completion::default()
        });
        if state.stopped {
            return (covered, false);
        }
        if completion.status != CompletionStatus::SUCCESS {
            // The channel is broken. The first post held fails as the read did; the engine ends the connection.
            let failed = state.held.pop_front().map(|held| Completion { token: held.token(), ..*completion });
            state.stop();
            return (failed, false);
        }
        let mut fetched = [0; FETCH as usize];
        scratch.memory().read(0, &mut fetched);
        let translation = table::translation(&fetched, key);
        if let Some(rkey) = translation {
            if state.known.len() >= MOST_KNOWN {
                state.known.clear();
            }
            state.known.insert(key, rkey);
        }
        let (failed, again) = self.release(&mut state, translation.is_none().then_some(key));
        (failed.or(covered), again)
    }

    /// Posts what is held, up to the next unknown key. A request with the key `invalid` fails at the peer.
    fn release(&self, state: &mut State, invalid: Option<u32>) -> (Option<Completion>, bool) {
        while let Some(held) = state.held.pop_front() {
            let rkey = match held.remote_key() {
                None => Some(0),
                Some(key) if self.table.is_none() => Some(key),
                Some(key) => state.known.get(&key).copied(),
            };
            let status = match (rkey, &held) {
                (Some(rkey), Held::Request { wanted, segments }) => {
                    self.submit(state, wanted, segments, rkey)
                }
                (Some(rkey), Held::Atomic(request)) => self.submit_atomic(state, request, rkey),
                (None, held) if held.remote_key() == invalid => Status::INVALID,
                (None, held) => self.ask(state, held.remote_key().unwrap_or_default()),
            };
            if status == Status::OK && rkey.is_none() {
                state.held.push_front(held);
                return (None, true);
            }
            if status != Status::OK {
                let status = match status {
                    Status::INVALID => CompletionStatus::REMOTE_ACCESS,
                    Status::NOT_CONNECTED => CompletionStatus::TRANSPORT,
                    _ => CompletionStatus::LOCAL_CHANNEL,
                };
                state.stop();
                let (token, user) = (held.token(), self.send_user);
                return (Some(Completion { token, user, status, ..Completion::default() }), false);
            }
        }
        (None, false)
    }

    fn hold(&self, state: &mut State, key: u32, held: Held) -> Posted {
        let first = state.asked.is_none();
        if first {
            let status = self.ask(state, key);
            if status != Status::OK {
                return Posted::Done(status);
            }
        }
        state.held.push_back(held);
        Posted::Held(first)
    }

    /// Reads the part of the peer's table that may have the key.
    #[allow(unsafe_code, reason = "a segment of the route's own memory")]
    fn ask(&self, state: &mut State, key: u32) -> Status {
        let (Some(at), Some(scratch)) = (self.table, &self.scratch) else { return Status::INVALID };
        // SAFETY: `scratch` is registered for as long as `self` lives, which closes the channel before it drops it.
        let segment = [unsafe { Segment::from_parts(scratch.memory().addr(), FETCH, scratch.keys().lkey) }];
        // SAFETY: the segment outlives the call.
        let mut read = unsafe { Request::from_parts(Opcode::READ, OWN, &segment) };
        read.remote_addr = at.addr.wrapping_add(table::offset(key));
        read.rkey = at.rkey;
        read.remote_len = FETCH;
        let status = self.below.post(&read);
        if status == Status::OK {
            state.asked = Some(key);
        }
        status
    }

    #[allow(unsafe_code, reason = "the engine's request with this child's keys")]
    fn submit(&self, state: &mut State, request: &Wanted, segments: &[Segment], rkey: u32) -> Status {
        // SAFETY: the segments outlive the call.
        let mut ours = unsafe { Request::from_parts(request.opcode, request.token, segments) };
        ours.flags = request.flags;
        ours.remote_addr = request.remote_addr;
        ours.rkey = rkey;
        ours.remote_len = request.remote_len;
        ours.imm = request.imm;
        let status = self.below.post(&ours);
        state.posted(status, request.token, request.flags);
        status
    }

    fn submit_atomic(&self, state: &mut State, request: &AtomicRequest, rkey: u32) -> Status {
        let status = self.below.post_atomic(&AtomicRequest { rkey, ..*request });
        state.posted(status, request.token, request.flags);
        status
    }

    /// The channel has stopped, so what is held is not posted. The engine flushes it.
    pub(crate) fn stop(&self) {
        self.state().stop();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is held is not posted, and nothing is accepted any more.
    fn stop(&mut self) {
        self.stopped = true;
        self.held.clear();
    }

    fn posted(&mut self, status: Status, token: u64, flags: PostFlag) {
        if status == Status::OK {
            self.unsignalled = flags.contains(PostFlag::UNSIGNALLED).then_some(token);
        }
    }
}

impl Wanted {
    fn of(request: &Request) -> Wanted {
        let &Request { token, opcode, flags, remote_addr, rkey, remote_len, imm, .. } = request;
        Wanted { token, opcode, flags, remote_addr, rkey, remote_len, imm }
    }
}

impl Held {
    fn token(&self) -> u64 {
        match self {
            Held::Request { wanted, .. } => wanted.token,
            Held::Atomic(request) => request.token,
        }
    }

    fn remote_key(&self) -> Option<u32> {
        match self {
            Held::Request { wanted, .. } => names_remote(wanted.opcode).then_some(wanted.rkey),
            Held::Atomic(request) => Some(request.rkey),
        }
    }
}

fn names_remote(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::WRITE | Opcode::READ | Opcode::WRITE_IMM)
}

/// Posts a receive with these segments.
#[allow(unsafe_code, reason = "the engine's receive with this child's keys")]
pub(crate) fn post_recv(below: &BelowChannel, token: u64, flags: PostFlag, segments: &[Segment]) -> Status {
    // SAFETY: the segments outlive the call.
    let mut ours = unsafe { RecvRequest::from_parts(token, segments) };
    ours.flags = flags;
    below.post_recv(&ours)
}
