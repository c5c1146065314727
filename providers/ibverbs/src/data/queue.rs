//! A completion queue of the device, and the completions that were taken from it early.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use dat_plugin::{Completion, CompletionFlag, CompletionStatus, Failure, Status};
use dat_sync::{Guard, Lock};
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::data::adapter::Adapter;
use crate::data::queue_pair::QueuePair;
use crate::data::ring::Slot;
use crate::data::work_id::{CqSlot, WorkId};
use crate::status;
use crate::sys::completion_queue::Cq;

/// A completion queue.
pub(crate) struct QueueInner {
    adapter: Arc<Adapter>,
    pub(crate) cq: Arc<Cq>,
    /// The engine sleeps on this epoll set. It has the completion channel only while armed: a device cannot cancel a
    /// notification.
    sleep: OwnedFd,
    state: Lock<State>,
}

struct State {
    members: Vec<Member>,
    free: Vec<usize>,
    /// Of queue pairs with a shared receive queue, whose completions name no channel: number → member.
    by_number: HashMap<u32, usize>,
    /// Completions taken from the device before the engine asked for them; handed out first.
    early: VecDeque<Completion>,
    /// The most work that may be outstanding, which is how many completions the device's queue must hold.
    promised: u32,
}

struct Member {
    slot: CqSlot,
    qp: Option<Arc<QueuePair>>,
}

/// Completions taken from the device at a time.
const BATCH: usize = 16;

impl QueueInner {
    pub(crate) fn new(adapter: &Arc<Adapter>, depth: u32) -> Result<Arc<QueueInner>, Failure> {
        let what = || format!("{}: a queue of {depth} completions", adapter.params.ia_name);
        let most = adapter.attr.max_cqe.max(1) as u32;
        if depth > most {
            let message = format!("{}: the device's limit is {most}", what());
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let cq =
            Cq::new(&adapter.context, depth.max(1), 0).map_err(|error| status::failure(&what(), &error))?;
        let cq = Arc::new(cq);
        let os = |error: rustix::io::Errno| Failure::os(&what(), &error.into());
        let sleep = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        epoll::add(&sleep, cq.channel.borrow(), epoll::EventData::new_u64(0), epoll::EventFlags::empty())
            .map_err(os)?;
        let state = State {
            members: Vec::new(),
            free: Vec::new(),
            by_number: HashMap::new(),
            early: VecDeque::new(),
            promised: 0,
        };
        Ok(Arc::new(QueueInner { adapter: adapter.clone(), cq, sleep, state: Lock::new(state) }))
    }

    fn look_at_channel(&self, flags: epoll::EventFlags) {
        let token = epoll::EventData::new_u64(0);
        if let Err(error) = epoll::modify(&self.sleep, self.cq.channel.borrow(), token, flags) {
            // Both descriptors live as long as this, so the kernel has no reason to refuse.
            tracing::error!(%error, "epoll");
        }
    }

    /// Makes room for a channel with `work` outstanding.
    pub(crate) fn reserve(&self, work: u32) -> Result<(), Failure> {
        let mut state = self.lock();
        let promised = state.promised + work;
        if promised > self.cq.depth() {
            let most = self.adapter.attr.max_cqe.max(1) as u32;
            let wanted = promised.max(self.cq.depth().saturating_mul(2)).min(most);
            let none = |why: &str| {
                let message = format!(
                    "{}: a completion queue for {promised} completions: {why}; use shorter queues, or more dispatchers",
                    self.adapter.params.ia_name
                );
                Failure::new(Status::NO_RESOURCE, message)
            };
            if promised > most {
                return Err(none(&format!("the device's limit is {most}")));
            }
            self.cq.resize(wanted).map_err(|error| none(&error.to_string()))?;
        }
        state.promised = promised;
        Ok(())
    }

    pub(crate) fn release(&self, work: u32) {
        self.lock().promised -= work;
    }

    /// Lets a channel's completions be recognised.
    pub(crate) fn attach(&self, slot: CqSlot, qp: &Arc<QueuePair>, number: Option<u32>) {
        let mut state = self.lock();
        let index = slot.index();
        state.members[index].qp = Some(qp.clone());
        if let Some(number) = number {
            state.by_number.insert(number, index);
        }
    }

    /// A slot for a queue pair in the making.
    pub(crate) fn new_slot(&self) -> CqSlot {
        let mut state = self.lock();
        if let Some(index) = state.free.pop() {
            return state.members[index].slot;
        }
        let slot = CqSlot::new(state.members.len() as u32);
        state.members.push(Member { slot, qp: None });
        slot
    }

    /// Completions of a queue pair are no longer recognised; its slot goes to another.
    pub(crate) fn detach(&self, slot: CqSlot, number: Option<u32>) {
        let mut state = self.lock();
        let member = &mut state.members[slot.index()];
        let gone = member.qp.take();
        member.slot = slot.renewed();
        state.free.push(slot.index());
        if let Some(number) = number {
            state.by_number.remove(&number);
        }
        drop(state);
        drop(gone);
    }

    /// Takes what the device has, to be handed out later; `true` if there is something to hand out.
    pub(crate) fn harvest(&self) -> bool {
        let mut state = self.lock();
        let mut taken = [Completion::default(); BATCH];
        loop {
            match self.take(&state, &mut taken) {
                0 => return !state.early.is_empty(),
                n => state.early.extend(&taken[..n]),
            }
        }
    }

    /// Takes completions for the engine: those taken early first. Gives how many of `out` were filled.
    #[inline]
    pub(crate) fn poll(&self, out: &mut [Completion]) -> usize {
        let mut state = self.lock();
        if state.early.is_empty() { self.take(&state, out) } else { state.hand_out(out) }
    }

    /// Has the next completion reported; `false` if there is one already.
    pub(crate) fn arm(&self) -> bool {
        self.look_at_channel(epoll::EventFlags::IN);
        // The request comes first: a completion in between is seen by the harvest, or reported, or both.
        self.cq.request_report();
        !self.harvest()
    }

    pub(crate) fn disarm(&self) {
        self.look_at_channel(epoll::EventFlags::empty());
        self.cq.channel.drain();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.sleep.as_raw_fd()
    }

    /// Takes completions from the device: how many of `out` were filled. None: the device has none.
    #[inline]
    fn take(&self, state: &State, out: &mut [Completion]) -> usize {
        let mut raw = [const { MaybeUninit::uninit() }; BATCH];
        let got = self.cq.poll(&mut raw[..out.len().min(BATCH)]);
        if got <= 0 {
            return 0;
        }
        let got = got as usize;
        for at in 0..got {
            // SAFETY: the driver filled the first `got` entries, at most as many as it was given room for; `out` has room for
            // as many.
            let (wc, to) = unsafe { (raw.get_unchecked(at).assume_init_ref(), out.get_unchecked_mut(at)) };
            if !state.translate(wc, to) {
                return self.take_rest(state, out, &mut raw, at, got);
            }
        }
        got
    }

    /// The same from `at` on: an entry that may not be for the engine.
    #[cold]
    fn take_rest(
        &self,
        state: &State,
        out: &mut [Completion],
        raw: &mut [MaybeUninit<ibv_wc>; BATCH],
        mut at: usize,
        mut got: usize,
    ) -> usize {
        let mut n = at;
        loop {
            for wc in &raw[at..got] {
                // SAFETY: the driver filled the first `got` entries.
                let wc = unsafe { wc.assume_init_ref() };
                if state.translate(wc, &mut out[n]) || state.translate_rare(wc, &mut out[n]) {
                    n += 1;
                }
            }
            if n > 0 {
                return n;
            }
            at = 0;
            got = self.cq.poll(&mut raw[..out.len().min(BATCH)]).max(0) as usize;
            if got == 0 {
                return 0;
            }
        }
    }

    #[inline]
    fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Hands out what was taken early.
    #[cold]
    fn hand_out(&mut self, out: &mut [Completion]) -> usize {
        let count = self.early.len().min(out.len());
        for (to, completion) in out.iter_mut().zip(self.early.drain(..count)) {
            *to = completion;
        }
        count
    }

    /// Translates a completion, if it is the success of a queue pair's own request or receive without further data.
    #[inline]
    fn translate(&self, wc: &ibv_wc, out: &mut Completion) -> bool {
        let id = WorkId(wc.wr_id);
        if let Some(member) = self.members.get(id.index())
            && id.is_of(member.slot)
            && wc.status == IBV_WC_SUCCESS
            && let Some(qp) = &member.qp
        {
            if !id.is_receive() {
                sent(qp, qp.tx.complete(id.sequence()), out);
                return true;
            }
            if wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) == 0 {
                received(qp, qp.rx.complete(id.sequence()).token(), wc, out);
                return true;
            }
        }
        false
    }

    /// Translates any other completion. `false`, and nothing is written: it is of a queue pair that is gone, gives back work
    /// of one that stops, or is a marker.
    fn translate_rare(&self, wc: &ibv_wc, out: &mut Completion) -> bool {
        let id = WorkId(wc.wr_id);
        let index = match id.is_shared() {
            true => self.by_number.get(&wc.qp_num).copied(),
            false => Some(id.index()),
        };
        let Some(member) = index.and_then(|index| self.members.get(index)) else { return false };
        let Some(qp) = member.qp.as_deref() else { return false };
        if !id.is_shared() && !id.is_of_or_marks(member.slot) {
            return false;
        }
        if !id.is_receive() && (id.is_marker() || wc.status == IBV_WC_WR_FLUSH_ERR) {
            return given_back(qp, id, out);
        }
        let posted = match (id.is_shared(), id.is_receive()) {
            (true, _) => match qp.srq() {
                Some(srq) => srq.complete(id),
                None => return false,
            },
            (false, true) => qp.rx.complete(id.sequence()).posted(),
            (false, false) => qp.tx.complete(id.sequence()).posted(),
        };
        if wc.status == IBV_WC_SUCCESS {
            received(qp, posted.token, wc, out);
            came_along(wc, out);
            return true;
        }
        match failed(qp, wc, id.is_receive(), posted.mark) {
            Some(status) => {
                let user = if id.is_receive() { qp.attr.recv_user } else { qp.attr.send_user };
                *out = Completion { token: posted.token, user, status, ..Completion::default() };
                true
            }
            None => false,
        }
    }
}

/// The success of a request.
#[inline]
fn sent(qp: &QueuePair, posted: &Slot, out: &mut Completion) {
    let (token, user, length) = (posted.token(), qp.attr.send_user, posted.length());
    *out = Completion { token, user, length, ..Completion::default() };
}

/// The success of a receive.
#[inline]
fn received(qp: &QueuePair, token: u64, wc: &ibv_wc, out: &mut Completion) {
    *out = Completion {
        token,
        user: qp.attr.recv_user,
        status: CompletionStatus::SUCCESS,
        length: wc.byte_len,
        // The device does not report the sender's flag. A wrong wake-up costs less than a missed one.
        flags: CompletionFlag::SOLICITED,
        imm: 0,
    };
}

/// Adds the immediate value or the invalidated key.
fn came_along(wc: &ibv_wc, out: &mut Completion) {
    if wc.wc_flags & IBV_WC_WITH_IMM != 0 {
        out.flags = out.flags | CompletionFlag::IMMEDIATE;
        out.imm = u32::from_be(wc.imm_data);
        if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
            out.flags = out.flags | CompletionFlag::WRITTEN;
        }
    } else if wc.wc_flags & IBV_WC_WITH_INV != 0 {
        out.flags = out.flags | CompletionFlag::INVALIDATED;
        out.imm = wc.imm_data;
    }
}

/// A marker, or a request given back. The requests before it that have not failed succeeded; the last of them completes.
fn given_back(qp: &QueuePair, id: WorkId, out: &mut Completion) -> bool {
    let silent = qp.tx.complete_before(id.sequence());
    if id.is_marker() {
        qp.marker_back();
    } else {
        qp.tx.complete(id.sequence());
        qp.fault("the queue pair has failed");
    }
    let Some(posted) = silent else { return false };
    sent(qp, posted, out);
    true
}

/// The status to hand out for a failed work request, if any. The engine flushes work that a failed queue pair gives back.
/// The failure itself is reported unless the channel was stopped.
#[cold]
fn failed(qp: &QueuePair, wc: &ibv_wc, receive: bool, mark: u32) -> Option<CompletionStatus> {
    if wc.status == IBV_WC_WR_FLUSH_ERR {
        qp.fault("the queue pair has failed");
        return None;
    }
    tracing::debug!(status = wc.status, vendor = wc.vendor_err, qp = wc.qp_num, "a request failed");
    qp.fault("a request failed");
    let poisoned = receive && mark != 0;
    Some(if poisoned { CompletionStatus::LOCAL_ACCESS } else { status::completed(wc.status, receive) })
}
