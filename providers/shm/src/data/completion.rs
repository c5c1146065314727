//! Completion of requests: the one home of sequence numbers, acknowledgements and signalling.
//!
//! Each side numbers the requests that it puts into its ring, and counts those of the peer that it finished. The count
//! reaches the peer in two ways: in the argument of every frame, and in the control page. [`Counters`] has both counts
//! of a channel, for both directions. [`Window`] has the requests under way, in post order.
//!
//! # Who writes what
//! | word | writer | ordering | read by | pairs with |
//! |---|---|---|---|---|
//! | [`Counters::acked`] | receiving half, from a frame's argument | relaxed | requesting half, polls | the frame's acquire; [`Window::credit`] checks the value |
//! | [`Counters::completed`] | receiving half | relaxed | both halves, for arguments of frames | the frame's release publishes it |
//! | [`Counters::due`] | requesting half | release | polls without the lock | a poll then takes the lock |
//! | [`Counters::ready`] | receiving half | release | polls without the lock | the word it points to |

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use dat_plugin::{Completion, CompletionStatus, PostFlag};

use crate::data::ring::ProtocolError;

/// What [`Counters::ready`] points to when there is certainly something to receive, or certainly nothing.
static READY: AtomicU32 = AtomicU32::new(1);
static NEVER: AtomicU32 = AtomicU32::new(0);

/// What polls look at before they take a lock; one cache line.
#[repr(align(64))]
pub(crate) struct Counters {
    /// The word that is not 0 when there is something to receive.
    ready: AtomicPtr<AtomicU32>,
    /// A byte on the second line of the next message: see [`Counters::expect`].
    ahead: AtomicPtr<u8>,
    /// How many requests the peer finished, as its last frame has it; not checked yet; wraps.
    pub(crate) acked: AtomicU32,
    /// How many of the peer's requests this side finished; wraps.
    pub(crate) completed: AtomicU32,
    /// Whether requests are under way.
    busy: AtomicU32,
    /// The requesting half has something to do once `acked` is beyond this.
    due: AtomicU32,
}

/// What the requesting half waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing is under way.
    Idle,
    /// The peer is to finish the request of this number.
    Counter(u32),
    /// A poll has something to do now.
    Now,
}

/// Where [`Counters::ready`] points.
pub(crate) enum Ready {
    Now,
    Never,
    /// The first word of the next header.
    Word(*mut AtomicU32),
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            ready: AtomicPtr::new((&raw const NEVER).cast_mut()),
            ahead: AtomicPtr::new(std::ptr::null_mut()),
            acked: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            due: AtomicU32::new(0),
        }
    }
}

impl Counters {
    /// Whether a poll of the receiving half may find something.
    #[inline]
    pub(crate) fn rx_ready(&self) -> bool {
        // SAFETY: points to a static, or into the rings of the link that the owner of `self` keeps (`set_ready`).
        unsafe { (*self.ready.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
    }

    /// [`Counters::look_ahead`] fetches the line this far behind the header, beside the header's own. So a message on two
    /// lines does not wait for one after the other. Messages come in runs of one length, so the length of the last one is
    /// a good guess. A guess on the line of the header costs nothing.
    #[inline]
    pub(crate) fn expect(&self, header: *mut AtomicU32, distance: u32) {
        self.ahead.store(header.cast::<u8>().wrapping_add(distance as usize), Ordering::Relaxed);
    }

    /// At each look of a poll.
    #[inline]
    pub(crate) fn look_ahead(&self) {
        prefetch(self.ahead.load(Ordering::Relaxed));
    }

    /// Says which word the next look is for. A word lies in a ring of the link that lives as long as `self`.
    #[inline]
    pub(crate) fn set_ready(&self, ready: Ready) {
        let word = match ready {
            Ready::Word(word) => word,
            Ready::Now => (&raw const READY).cast_mut(),
            Ready::Never => (&raw const NEVER).cast_mut(),
        };
        self.ready.store(word, Ordering::Release);
    }

    /// Whether a poll of the requesting half may find something, by what frames brought.
    #[inline]
    pub(crate) fn tx_ready(&self) -> bool {
        self.is_due(self.acked.load(Ordering::Relaxed))
    }

    /// The same, with a counter of finished requests from elsewhere.
    #[inline]
    pub(crate) fn is_due(&self, finished: u32) -> bool {
        passed(finished, self.due.load(Ordering::Acquire))
    }

    /// Whether requests are under way.
    #[inline]
    pub(crate) fn tx_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn set_due(&self, due: Due, begun: u32) {
        let number = match due {
            Due::Counter(number) => number,
            // No peer finishes more requests than were begun.
            Due::Idle => begun,
            Due::Now => self.acked.load(Ordering::Relaxed).wrapping_sub(1),
        };
        self.busy.store(u32::from(due != Due::Idle), Ordering::Relaxed);
        self.due.store(number, Ordering::Release);
    }

    /// One more of the peer's requests is finished here.
    #[inline]
    pub(crate) fn complete_one(&self) -> u32 {
        // The receiving half alone writes it, under its lock.
        let completed = self.completed.load(Ordering::Relaxed).wrapping_add(1);
        self.completed.store(completed, Ordering::Relaxed);
        completed
    }
}

/// Fetches a line to be read.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Whether a counter that wraps went past a sequence number.
#[inline]
fn passed(counter: u32, number: u32) -> bool {
    counter.wrapping_sub(number) as i32 > 0
}

/// The requests of a channel from their post to their completion: a ring of entries with four marks.
///
/// `head <= done <= sent <= tail`: handed out, complete, started, posted.
pub(crate) struct Window {
    entries: Box<[Entry]>,
    capacity: u64,
    head: u64,
    done: u64,
    sent: u64,
    tail: u64,
    /// The request at `sent` has a frame in the ring.
    begun: bool,
    /// Once it is closed, no request completes that is not complete.
    open: bool,
    /// Requests begun in the ring, and finished by the peer as far as was checked; both wrap.
    seq: u32,
    acked: u32,
    /// Reads and atomic operations whose answer is not here.
    pub(crate) reads_open: u32,
    /// Goes with each completion.
    user: u64,
    /// The last unsignalled success that no later completion covers, and the completion that [`Window::flush`] made of it.
    unsignalled: Option<Completion>,
    flushed: Option<Completion>,
}

/// A request, half a cache line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    token: u64,
    /// Bytes.
    pub(crate) len: u32,
    pub(crate) seq: u32,
    /// Bytes of an answer still to come.
    pub(crate) left: u32,
    flags: PostFlag,
    state: State,
    status: CompletionStatus,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Not started, or not wholly.
    #[default]
    Waiting,
    /// In the ring: complete when the peer's counter passed its number.
    Ring,
    /// The peer answers it.
    Answer,
    Done,
}

impl Entry {
    /// `whole`: all its frames are in the ring.
    #[inline]
    fn is_complete(&self, acked: u32, whole: bool) -> bool {
        match self.state {
            State::Waiting => false,
            State::Ring => whole && passed(acked, self.seq),
            State::Answer => self.left == 0,
            State::Done => true,
        }
    }

    /// An unsignalled success: the next signalled completion covers it, or [`Window::flush`] reports it.
    #[inline]
    fn is_unsignalled(&self) -> bool {
        self.status == CompletionStatus::SUCCESS && self.flags.contains(PostFlag::UNSIGNALLED)
    }

    #[inline]
    fn completion(&self, user: u64) -> Completion {
        let length = if self.status == CompletionStatus::SUCCESS { self.len } else { 0 };
        Completion { token: self.token, user, status: self.status, length, ..Completion::default() }
    }
}

impl Window {
    pub(crate) fn new(capacity: usize, user: u64) -> Window {
        Window {
            entries: vec![Entry::default(); capacity.next_power_of_two()].into_boxed_slice(),
            capacity: capacity as u64,
            head: 0,
            done: 0,
            sent: 0,
            tail: 0,
            begun: false,
            open: false,
            seq: 0,
            acked: 0,
            reads_open: 0,
            user,
            unsignalled: None,
            flushed: None,
        }
    }

    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    pub(crate) fn close(&mut self) {
        self.open = false;
        self.flush();
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head >= self.capacity
    }

    /// Whether all that was posted is started.
    #[inline]
    pub(crate) fn all_sent(&self) -> bool {
        self.sent == self.tail
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether all that was posted is complete.
    pub(crate) fn all_done(&self) -> bool {
        self.done == self.tail
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completion(&self) -> bool {
        self.head != self.done || self.flushed.is_some()
    }

    /// The slot of a request; the same for its scatter/gather list.
    #[inline]
    pub(crate) fn slot(&self, index: u64) -> usize {
        index as usize & (self.entries.len() - 1)
    }

    /// The slot of the oldest request that is not started.
    pub(crate) fn next_slot(&self) -> usize {
        self.slot(self.sent)
    }

    /// The slot of the request that is posted next.
    pub(crate) fn next_slot_to_post(&self) -> usize {
        self.slot(self.tail)
    }

    /// Takes in a request that is to be started.
    #[inline]
    pub(crate) fn push(&mut self, token: u64, flags: PostFlag, len: u32) {
        let slot = self.slot(self.tail);
        self.entries[slot] = Entry { token, len, flags, ..Entry::default() };
        self.tail += 1;
    }

    /// Takes in a request whose only frame is in the ring. `true`: it is the oldest one under way.
    // Part of the hot arm of a send.
    #[inline(always)]
    pub(crate) fn push_sent(&mut self, token: u64, flags: PostFlag, len: u32, counters: &Counters) -> bool {
        let (index, seq) = (self.tail, self.seq);
        let slot = self.slot(index);
        let entry = &mut self.entries[slot];
        (entry.token, entry.flags, entry.len, entry.seq) = (token, flags, len, seq);
        (entry.state, entry.status) = (State::Ring, CompletionStatus::SUCCESS);
        self.seq = seq.wrapping_add(1);
        self.tail = index + 1;
        self.sent = index + 1;
        let oldest = self.done == index;
        if oldest && !self.has_completion() {
            counters.set_due(Due::Counter(seq), seq);
        }
        oldest
    }

    /// A frame of the request at `sent` is in the ring.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            let (slot, seq) = (self.next_slot(), self.seq);
            let entry = &mut self.entries[slot];
            (entry.seq, entry.state) = (seq, State::Ring);
            self.seq = seq.wrapping_add(1);
        }
    }

    /// The request at `sent` is in the ring, and the peer answers with `left` bytes.
    pub(crate) fn await_answer(&mut self, left: u32) {
        let slot = self.next_slot();
        let entry = &mut self.entries[slot];
        (entry.state, entry.left) = (State::Answer, left);
        self.reads_open += 1;
    }

    /// The request at `sent` was executed here.
    #[inline]
    pub(crate) fn finish(&mut self, status: CompletionStatus) {
        let slot = self.next_slot();
        let entry = &mut self.entries[slot];
        (entry.state, entry.status) = (State::Done, status);
    }

    /// The request at `sent` is started: on to the next.
    #[inline]
    pub(crate) fn advance_sent(&mut self) {
        self.sent += 1;
        self.begun = false;
    }

    /// Learns how many requests the peer finished; an older count changes nothing.
    #[inline]
    pub(crate) fn credit(&mut self, acked: u32) -> Result<(), ProtocolError> {
        if !passed(acked, self.acked) {
            return Ok(());
        }
        if passed(acked, self.seq) {
            return Err(ProtocolError);
        }
        self.acked = acked;
        Ok(())
    }

    /// Whether only the peer's counter can say that the oldest request under way is complete.
    pub(crate) fn needs_counter(&self) -> bool {
        let oldest = &self.entries[self.slot(self.done)];
        oldest.state != State::Done && !passed(self.acked, oldest.seq)
    }

    /// Marks what is complete. `fail` is the status with which the peer refused the request after those it finished, or 0.
    /// `true`: a request failed, so that all after it are flushed by the engine.
    pub(crate) fn reap(&mut self, fail: u32) -> bool {
        // A request that was begun may be refused before its last frame is in the ring.
        let end = if self.begun { self.sent + 1 } else { self.sent };
        while self.open && self.done != end {
            let slot = self.slot(self.done);
            if !self.entries[slot].is_complete(self.acked, self.done < self.sent) {
                let entry = &mut self.entries[slot];
                if fail == 0 || entry.state == State::Waiting || self.acked != entry.seq {
                    break;
                }
                entry.status = match CompletionStatus(fail) {
                    known @ (CompletionStatus::REMOTE_ACCESS
                    | CompletionStatus::REMOTE_ERROR
                    | CompletionStatus::NOT_READY) => known,
                    _ => CompletionStatus::BAD_RESPONSE,
                };
            }
            self.done += 1;
            let entry = &self.entries[slot];
            if entry.status != CompletionStatus::SUCCESS {
                return true;
            }
            if self.head + 1 == self.done && entry.is_unsignalled() {
                // Nothing waits before it, and nothing is to be reported: no poll has to come for it.
                self.unsignalled = Some(entry.completion(self.user));
                self.head += 1;
            }
        }
        false
    }

    /// Hands out completions, and marks successes as complete that were not. A failure is first found by [`Window::reap`].
    #[inline]
    pub(crate) fn take(&mut self, out: &mut [Completion]) -> usize {
        let mut n = 0;
        if self.flushed.is_some() && !out.is_empty() {
            out[0] = self.flushed.take().unwrap_or_default();
            n = 1;
        }
        let mask = self.entries.len() - 1;
        while n < out.len() && self.head != self.tail {
            let Some(entry) = self.entries.get(self.head as usize & mask) else { break };
            if self.head == self.done {
                let succeeded = entry.status == CompletionStatus::SUCCESS;
                if !self.open || !succeeded || !entry.is_complete(self.acked, self.head < self.sent) {
                    break;
                }
                self.done += 1;
            }
            self.head += 1;
            if entry.is_unsignalled() {
                self.unsignalled = Some(entry.completion(self.user));
            } else {
                self.unsignalled = None;
                out[n] = entry.completion(self.user);
                n += 1;
            }
        }
        n
    }

    /// Makes a completion of the last unsignalled success, unless a later completion covers it.
    pub(crate) fn flush(&mut self) {
        if self.head == self.done
            && let Some(last) = self.unsignalled.take()
        {
            self.flushed = Some(last);
        }
    }

    /// Publishes what the next poll is to look for.
    #[inline]
    pub(crate) fn publish_due(&self, counters: &Counters) {
        let oldest = &self.entries[self.slot(self.done)];
        let due = if self.has_completion() || self.open && self.sent != self.tail {
            Due::Now
        } else if !self.open || self.done == self.tail {
            Due::Idle
        } else if oldest.state == State::Ring {
            Due::Counter(oldest.seq)
        } else {
            Due::Now
        };
        counters.set_due(due, self.seq);
    }

    /// The oldest request whose answer is still to come, with its slot. Answers come in the order of the requests.
    pub(crate) fn next_answer(&mut self) -> Option<(usize, &mut Entry)> {
        let index = (self.done..self.sent).find(|index| {
            let entry = &self.entries[self.slot(*index)];
            entry.state == State::Answer && entry.left > 0
        })?;
        let slot = self.slot(index);
        Some((slot, &mut self.entries[slot]))
    }

    /// Grows with every progress.
    pub(crate) fn progress(&self) -> u64 {
        self.done.wrapping_add(self.sent).wrapping_add(self.acked.into())
    }
}
