//! The counters of a channel. Threads that post and poll write them, readers read them, all without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use dat_plugin::{Completion, CompletionStatus, EventKind, Opcode};

use crate::layer::Kind;
use crate::stats::{Histogram, OpStats};

/// What can be posted, each counted on its own.
const KINDS: [Kind; 11] = [
    Kind::Request(Opcode::SEND),
    Kind::Request(Opcode::WRITE),
    Kind::Request(Opcode::READ),
    Kind::Request(Opcode::WRITE_IMM),
    Kind::Request(Opcode::SEND_IMM),
    Kind::Request(Opcode::SEND_INVALIDATE),
    Kind::Request(Opcode::FETCH_ADD),
    Kind::Request(Opcode::CMP_SWAP),
    Kind::Bind,
    Kind::Recv,
    // Operations that a newer engine may post.
    Kind::Request(Opcode(u16::MAX)),
];
const RECV: usize = 9;
const OTHER: usize = 10;

const STATES: [&str; 5] = ["open", "connected", "disconnected", "broken", "failed"];

/// The counters of a channel.
pub struct ChannelCounters {
    number: u64,
    start: Instant,
    state: AtomicU8,
    ops: [OnceLock<Box<OpCounters>>; KINDS.len()],
    /// Requests under way, oldest first; the engine has at most `max_requests` of them whose completion it did not take.
    /// The poster moves `tail`, the poller `head`; each is one thread at a time, by
    /// the plugin interface's contract.
    pending: Box<[Pending]>,
    head: AtomicU64,
    tail: AtomicU64,
}

#[derive(Default)]
struct Pending {
    token: AtomicU64,
    /// Nanoseconds since the device was opened, times 16, plus the index of the kind.
    begun: AtomicU64,
}

/// The first three are the poster's, the others the poller's; of receives the bytes are the poller's too. Each is one thread
/// at a time, so nothing here takes an atomic addition, which costs as much as the rest together.
struct OpCounters {
    posted: AtomicU64,
    refused: AtomicU64,
    bytes: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
    buckets: [AtomicU64; Histogram::BUCKETS],
}

/// Adds to what only this thread writes; readers see the number before or after.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl ChannelCounters {
    pub fn new(number: u64, start: Instant, max_requests: u32) -> ChannelCounters {
        let room = max_requests.clamp(16, 65_536).next_power_of_two() as usize;
        ChannelCounters {
            number,
            start,
            state: AtomicU8::new(0),
            ops: [const { OnceLock::new() }; KINDS.len()],
            pending: std::iter::repeat_with(Pending::default).take(room).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    /// Its number on the device.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What became of it, in a word.
    pub fn state(&self) -> &'static str {
        STATES[self.state.load(Ordering::Relaxed) as usize]
    }

    /// An event came.
    pub fn saw(&self, kind: EventKind) {
        let state = match kind {
            EventKind::ESTABLISHED => 1,
            EventKind::DISCONNECTED => 2,
            EventKind::BROKEN => 3,
            EventKind::REJECTED | EventKind::REFUSED | EventKind::UNREACHABLE | EventKind::ACCEPT_FAILED => 4,
            _ => return,
        };
        self.state.store(state, Ordering::Relaxed);
    }

    /// A request is about to be posted. It is noted before, because it may complete before the post returns.
    pub fn begin(&self, kind: Kind, token: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail - self.head.load(Ordering::Acquire) < self.pending.len() as u64 {
            let place = self.place(tail);
            place.token.store(token, Ordering::Relaxed);
            place.begun.store(self.at(Instant::now()) << 4 | index(kind) as u64, Ordering::Relaxed);
        }
        // Counted beyond the room too, so that what follows is matched by its own number.
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// A post returned.
    pub fn posted(&self, kind: Kind, bytes: u64, accepted: bool) {
        let op = self.op(index(kind));
        if accepted {
            add(&op.posted, 1);
            if kind != Kind::Recv {
                add(&op.bytes, bytes);
            }
            return;
        }
        add(&op.refused, 1);
        if kind != Kind::Recv {
            self.tail.store(self.tail.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Release);
        }
    }

    /// A request completed, and with it those before it that needed no completion of their own. Taken at `taken`.
    pub fn request_completed(&self, completion: &Completion, taken: Instant) {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        let room = self.pending.len() as u64;
        let known = tail.min(head + room);
        let of = |at: u64| self.place(at).token.load(Ordering::Relaxed);
        let Some(found) = (head..known).find(|at| of(*at) == completion.token) else {
            add(&self.op(OTHER).completed, 1);
            return;
        };
        for at in head..found {
            let silent = self.place(at).begun.load(Ordering::Relaxed) as usize & 15;
            add(&self.op(silent).completed, 1);
        }
        let begun = self.place(found).begun.load(Ordering::Relaxed);
        self.head.store(found + 1, Ordering::Release);
        let op = self.op(begun as usize & 15);
        op.finish(completion.status);
        op.took(self.at(taken).saturating_sub(begun >> 4));
    }

    /// A receive completed.
    pub fn recv_completed(&self, completion: &Completion) {
        let op = self.op(RECV);
        op.finish(completion.status);
        add(&op.bytes, completion.length.into());
    }

    /// The numbers of every operation that was used.
    pub fn snapshot(&self) -> Vec<OpStats> {
        let used = self.ops.iter().zip(KINDS).filter_map(|(op, kind)| Some((op.get()?, kind)));
        used.map(|(op, kind)| op.snapshot(kind.name())).collect()
    }

    fn place(&self, at: u64) -> &Pending {
        &self.pending[at as usize & (self.pending.len() - 1)]
    }

    fn op(&self, index: usize) -> &OpCounters {
        self.ops[index.min(OTHER)].get_or_init(Box::default)
    }

    /// A time as it is noted.
    fn at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.start).as_nanos() as u64
    }
}

fn index(kind: Kind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(OTHER)
}

impl Default for OpCounters {
    fn default() -> OpCounters {
        let zero = || AtomicU64::new(0);
        OpCounters {
            posted: zero(),
            refused: zero(),
            bytes: zero(),
            completed: zero(),
            failed: zero(),
            sum: zero(),
            max: zero(),
            buckets: [const { AtomicU64::new(0) }; Histogram::BUCKETS],
        }
    }
}

impl OpCounters {
    fn finish(&self, status: CompletionStatus) {
        let counter = if status == CompletionStatus::SUCCESS { &self.completed } else { &self.failed };
        add(counter, 1);
    }

    fn took(&self, nanoseconds: u64) {
        add(&self.sum, nanoseconds);
        if nanoseconds > self.max.load(Ordering::Relaxed) {
            self.max.store(nanoseconds, Ordering::Relaxed);
        }
        add(&self.buckets[Histogram::bucket_of(nanoseconds)], 1);
    }

    fn snapshot(&self, name: &'static str) -> OpStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OpStats {
            op: name.into(),
            posted: read(&self.posted),
            refused: read(&self.refused),
            bytes: read(&self.bytes),
            completed: read(&self.completed),
            failed: read(&self.failed),
            latency: Histogram::of(read(&self.sum), read(&self.max), self.buckets.iter().map(read)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Kind = Kind::Request(Opcode::SEND);
    const WRITE: Kind = Kind::Request(Opcode::WRITE);

    fn done(token: u64) -> Completion {
        Completion { token, ..Completion::default() }
    }

    fn op(counters: &ChannelCounters, name: &str) -> OpStats {
        counters.snapshot().into_iter().find(|op| op.op == name).expect("it was used")
    }

    #[test]
    fn a_completion_counts_the_silent_requests_before_it() {
        let counters = ChannelCounters::new(1, Instant::now(), 4);
        for token in [10, 11, 12] {
            counters.begin(WRITE, token);
            counters.posted(WRITE, 100, true);
        }
        counters.begin(SEND, 13);
        counters.posted(SEND, 1, true);
        counters.request_completed(&done(12), Instant::now());
        let writes = op(&counters, "write");
        assert_eq!((writes.posted, writes.completed, writes.bytes), (3, 3, 300));
        assert_eq!(writes.latency.count(), 1, "only what completed itself has a latency");
        assert_eq!(op(&counters, "send").completed, 0);
        counters.request_completed(
            &Completion { status: CompletionStatus::TRANSPORT, ..done(13) },
            Instant::now(),
        );
        assert_eq!((op(&counters, "send").completed, op(&counters, "send").failed), (0, 1));
    }

    #[test]
    fn a_refused_post_leaves_nothing_under_way() {
        let counters = ChannelCounters::new(1, Instant::now(), 4);
        counters.begin(SEND, 1);
        counters.posted(SEND, 8, false);
        counters.begin(SEND, 2);
        counters.posted(SEND, 8, true);
        counters.request_completed(&done(2), Instant::now());
        let sends = op(&counters, "send");
        assert_eq!((sends.posted, sends.refused, sends.completed, sends.bytes), (1, 1, 1, 8));
    }

    #[test]
    fn more_under_way_than_there_is_room_for_is_counted_without_a_time() {
        let counters = ChannelCounters::new(1, Instant::now(), 1);
        for token in 0..20 {
            counters.begin(SEND, token);
            counters.posted(SEND, 1, true);
        }
        for token in 0..20 {
            counters.request_completed(&done(token), Instant::now());
        }
        assert_eq!(op(&counters, "send").completed, 16);
        assert_eq!(op(&counters, "other").completed, 4);
    }
}
