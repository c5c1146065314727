//! Where completions are taken from: a completion queue of the device, and what was taken from it early.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use dat_plugin::{Completion, CompletionFlag, CompletionStatus, Failure, Queue, Status};
use dat_sync::{Guard, Lock};
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::channel::Chan;
use crate::device::Dev;
use crate::handles::Cq;
use crate::ring::Slot;
use crate::status;
use crate::work::{Place, WorkId};

/// A completion queue.
pub struct IbQueue(pub(crate) Arc<Que>);

pub(crate) struct Que {
    dev: Arc<Dev>,
    pub(crate) cq: Cq,
    /// What the engine sleeps on. It looks at the completion channel only while armed: a device cannot take back the
    /// order to report.
    sleep: OwnedFd,
    state: Lock<State>,
}

struct State {
    members: Vec<Member>,
    free: Vec<usize>,
    /// Of queue pairs with a shared receive queue, whose completions name no channel: number → member.
    by_number: HashMap<u32, usize>,
    /// Completions taken from the device by somebody who does not want them: handed out first.
    early: VecDeque<Completion>,
    /// Work that may be outstanding: so many completions the device's queue must hold.
    promised: u32,
}

struct Member {
    place: Place,
    chan: Option<Arc<Chan>>,
}

/// Completions taken from the device at a time.
const BATCH: usize = 16;

impl Que {
    pub(crate) fn new(dev: &Arc<Dev>, depth: u32) -> Result<Arc<Que>, Failure> {
        let what = || format!("{}: a queue of {depth} completions", dev.params.ia_name);
        let most = dev.attr.max_cqe.max(1) as u32;
        if depth > most {
            let message = format!("{}: the device's limit is {most}", what());
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let cq = Cq::new(&dev.context, depth.max(1), 0).map_err(|error| status::failure(&what(), &error))?;
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
        Ok(Arc::new(Que { dev: dev.clone(), cq, sleep, state: Lock::new(state) }))
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
            let most = self.dev.attr.max_cqe.max(1) as u32;
            let wanted = promised.max(self.cq.depth().saturating_mul(2)).min(most);
            let none = |why: &str| {
                let message = format!(
                    "{}: a completion queue for {promised} completions: {why}; use shorter queues, or more dispatchers",
                    self.dev.params.ia_name
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
    pub(crate) fn attach(&self, chan: &Arc<Chan>, number: Option<u32>) {
        let mut state = self.lock();
        let index = chan.place(self).index();
        state.members[index].chan = Some(chan.clone());
        if let Some(number) = number {
            state.by_number.insert(number, index);
        }
    }

    /// A place for a channel in the making.
    pub(crate) fn place(&self) -> Place {
        let mut state = self.lock();
        if let Some(index) = state.free.pop() {
            return state.members[index].place;
        }
        let place = Place::new(state.members.len() as u32);
        state.members.push(Member { place, chan: None });
        place
    }

    /// Completions of a channel are no longer recognised; its place goes to another.
    pub(crate) fn detach(&self, place: Place, number: Option<u32>) {
        let mut state = self.lock();
        let member = &mut state.members[place.index()];
        let gone = member.chan.take();
        member.place = place.renewed();
        state.free.push(place.index());
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

    /// Takes completions from the device: how many of `out` were filled. None: the device has none.
    #[inline(always)]
    fn take(&self, state: &State, out: &mut [Completion]) -> usize {
        let mut raw = [const { MaybeUninit::uninit() }; BATCH];
        let got = self.cq.poll(&mut raw[..out.len().min(BATCH)]);
        if got <= 0 {
            return 0;
        }
        let got = got as usize;
        for at in 0..got {
            // SAFETY: the device's driver filled the first `got`, which are no more than it was given room for, and for
            // which `out` has room.
            let (wc, place) = unsafe { (raw.get_unchecked(at).assume_init_ref(), out.get_unchecked_mut(at)) };
            if !state.translate(wc, place) {
                return self.take_rest(state, out, &mut raw, at, got);
            }
        }
        got
    }

    /// The same from `at` on, of those that were taken: one that may be nothing to the engine.
    #[cold]
    #[inline(never)]
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
                // SAFETY: filled, being among the first `got`.
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

    #[inline(always)]
    fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Hands out what was taken early.
    #[cold]
    fn hand_out(&mut self, out: &mut [Completion]) -> usize {
        let count = self.early.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(self.early.drain(..count)) {
            *place = completion;
        }
        count
    }

    /// Writes what a completion of the device is to the engine, if it is the plain success of a channel's own work.
    #[inline(always)]
    fn translate(&self, wc: &ibv_wc, out: &mut Completion) -> bool {
        let id = WorkId(wc.wr_id);
        if let Some(member) = self.members.get(id.index())
            && id.is_of(member.place)
            && wc.status == IBV_WC_SUCCESS
            && let Some(chan) = &member.chan
        {
            if !id.is_receive() {
                sent(chan, chan.tx.complete(id.sequence()), out);
                return true;
            }
            if wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) == 0 {
                received(chan, chan.rx.complete(id.sequence()).token(), wc, out);
                return true;
            }
        }
        false
    }

    /// The same for all else. It is nothing, and the result `false`, when it is of a channel that is gone, gives back work
    /// of one that stops, or is a marker.
    fn translate_rare(&self, wc: &ibv_wc, out: &mut Completion) -> bool {
        let id = WorkId(wc.wr_id);
        let index = match id.is_shared() {
            true => self.by_number.get(&wc.qp_num).copied(),
            false => Some(id.index()),
        };
        let Some(member) = index.and_then(|index| self.members.get(index)) else { return false };
        let Some(chan) = member.chan.as_deref() else { return false };
        if !id.is_shared() && !id.is_of_or_marks(member.place) {
            return false;
        }
        if !id.is_receive() && (id.is_marker() || wc.status == IBV_WC_WR_FLUSH_ERR) {
            return given_back(chan, id, out);
        }
        let posted = match (id.is_shared(), id.is_receive()) {
            (true, _) => match chan.srq() {
                Some(srq) => srq.complete(id),
                None => return false,
            },
            (false, true) => chan.rx.complete(id.sequence()).posted(),
            (false, false) => chan.tx.complete(id.sequence()).posted(),
        };
        if wc.status == IBV_WC_SUCCESS {
            received(chan, posted.token, wc, out);
            came_along(wc, out);
            return true;
        }
        match failed(chan, wc, id.is_receive(), posted.mark) {
            Some(status) => {
                let user = if id.is_receive() { chan.attr.recv_user } else { chan.attr.send_user };
                *out = Completion { token: posted.token, user, status, ..Completion::default() };
                true
            }
            None => false,
        }
    }
}

/// The success of a request.
#[inline(always)]
fn sent(chan: &Chan, posted: &Slot, out: &mut Completion) {
    let (token, user, length) = (posted.token(), chan.attr.send_user, posted.length());
    *out = Completion { token, user, length, ..Completion::default() };
}

/// A message, or a write that told of itself.
#[inline(always)]
fn received(chan: &Chan, token: u64, wc: &ibv_wc, out: &mut Completion) {
    *out = Completion {
        token,
        user: chan.attr.recv_user,
        status: CompletionStatus::SUCCESS,
        length: wc.byte_len,
        // The device does not say whether the sender asked for it; that nobody is left asleep counts more than that
        // nobody is woken in vain.
        flags: CompletionFlag::SOLICITED,
        imm: 0,
    };
}

/// What came with a message, or instead of one.
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

/// A marker, or a request given back: what is before it and did not fail succeeded, silently, and that is news.
fn given_back(chan: &Chan, id: WorkId, out: &mut Completion) -> bool {
    let silent = chan.tx.complete_before(id.sequence());
    if id.is_marker() {
        chan.marker_back();
    } else {
        chan.tx.complete(id.sequence());
        chan.fault("the queue pair has failed");
    }
    let Some(posted) = silent else { return false };
    sent(chan, posted, out);
    true
}

/// A work request that did not succeed: the status to hand out, if any. Work given back because the queue pair has
/// failed is for the engine to flush; but if nobody stopped this channel, the failure itself is news.
#[cold]
fn failed(chan: &Chan, wc: &ibv_wc, receive: bool, mark: u32) -> Option<CompletionStatus> {
    if wc.status == IBV_WC_WR_FLUSH_ERR {
        chan.fault("the queue pair has failed");
        return None;
    }
    tracing::debug!(status = wc.status, vendor = wc.vendor_err, qp = wc.qp_num, "a request failed");
    chan.fault("a request failed");
    let poisoned = receive && mark != 0;
    Some(if poisoned { CompletionStatus::LOCAL_ACCESS } else { status::completed(wc.status, receive) })
}

impl Queue for IbQueue {
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        let que = &*self.0;
        let mut state = que.lock();
        if state.early.is_empty() { que.take(&state, out) } else { state.hand_out(out) }
    }

    fn arm(&self) -> bool {
        self.0.look_at_channel(epoll::EventFlags::IN);
        // Asked for first, then looked: a completion in between is seen here, or reported, or both.
        self.0.cq.request_report();
        !self.0.harvest()
    }

    fn disarm(&self) {
        self.0.look_at_channel(epoll::EventFlags::empty());
        self.0.cq.channel.drain();
    }

    fn fd(&self) -> RawFd {
        self.0.sleep.as_raw_fd()
    }

    fn close(&self) {
        self.0.dev.queue_closed();
    }
}
