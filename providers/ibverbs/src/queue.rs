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
use crate::post::{Kind, WorkId};
use crate::status;

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
    free: Vec<u32>,
    /// Of queue pairs with a shared receive queue, whose completions name no channel: number → member.
    by_number: HashMap<u32, u32>,
    /// Completions taken from the device by somebody who does not want them: handed out first.
    early: VecDeque<Completion>,
    /// Work that may be outstanding: so many completions the device's queue must hold.
    promised: u32,
}

#[derive(Default)]
struct Member {
    generation: u32,
    chan: Option<Arc<Chan>>,
}

/// A channel's place in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) generation: u32,
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
        let index = chan.place(self).index;
        state.members[index as usize].chan = Some(chan.clone());
        if let Some(number) = number {
            state.by_number.insert(number, index);
        }
    }

    /// A place for a channel in the making.
    pub(crate) fn place(&self) -> Place {
        let mut state = self.lock();
        let index = match state.free.pop() {
            Some(index) => index,
            None => {
                state.members.push(Member::default());
                state.members.len() as u32 - 1
            }
        };
        Place { index, generation: state.members[index as usize].generation }
    }

    /// Completions of a channel are no longer recognised; its place goes to another.
    pub(crate) fn detach(&self, place: Place, number: Option<u32>) {
        let mut state = self.lock();
        let member = &mut state.members[place.index as usize];
        let gone = member.chan.take();
        member.generation = member.generation.wrapping_add(1) & WorkId::GENERATION;
        state.free.push(place.index);
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
            let (n, more) = self.take(&state, &mut taken);
            state.early.extend(&taken[..n]);
            if !more {
                return !state.early.is_empty();
            }
        }
    }

    /// Takes completions from the device: how many of `out` were filled, and whether there may be more.
    #[inline(always)]
    fn take(&self, state: &State, out: &mut [Completion]) -> (usize, bool) {
        let mut raw = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let wanted = out.len().min(BATCH);
        let got = self.cq.poll(&mut raw[..wanted]);
        if got == 0 {
            return (0, false);
        }
        let mut n = 0;
        for wc in &raw[..got.min(BATCH)] {
            // SAFETY: filled by the device's driver, being among the first `got`.
            if let Some(completion) = state.translate(unsafe { wc.assume_init_ref() }) {
                out[n] = completion;
                n += 1;
            }
        }
        (n, got == wanted)
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

    /// What a completion of the device is to the engine: nothing when it is of a channel that is gone, gives back work
    /// of one that stops, or is a marker.
    #[inline(always)]
    fn translate(&self, wc: &ibv_wc) -> Option<Completion> {
        let id = WorkId(wc.wr_id);
        let index = match id.kind() {
            Kind::Shared => *self.by_number.get(&wc.qp_num)?,
            Kind::Send | Kind::Recv => id.index(),
        };
        let member = self.members.get(index as usize)?;
        let chan = member.chan.as_deref()?;
        let posted = match id.kind() {
            Kind::Shared => chan.srq()?.complete(id),
            _ if id.generation() != member.generation => return None,
            Kind::Send if id.is_marker() || wc.status == IBV_WC_WR_FLUSH_ERR => return given_back(chan, id),
            Kind::Send => chan.tx.complete(id.sequence()),
            Kind::Recv => chan.rx.complete(id.sequence()),
        };
        let receives = id.kind() != Kind::Send;
        let mut out = Completion {
            token: posted.token,
            user: if receives { chan.attr.recv_user } else { chan.attr.send_user },
            ..Completion::default()
        };
        if wc.status != IBV_WC_SUCCESS {
            return failed(chan, wc, receives, posted.poisoned).map(|status| Completion { status, ..out });
        }
        if !receives {
            out.length = posted.length;
            return Some(out);
        }
        out.length = wc.byte_len;
        // The device does not say whether the sender asked for it; that nobody is left asleep counts more than that
        // nobody is woken in vain.
        out.flags = CompletionFlag::SOLICITED;
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
        Some(out)
    }
}

/// A marker, or a request given back: what is before it and did not fail succeeded, silently, and that is news.
#[cold]
fn given_back(chan: &Chan, id: WorkId) -> Option<Completion> {
    let silent = chan.tx.complete_before(id.sequence());
    if id.is_marker() {
        chan.marker_back();
    } else {
        chan.tx.complete(id.sequence());
        chan.fault("the queue pair has failed");
    }
    let user = chan.attr.send_user;
    silent.map(|posted| Completion {
        token: posted.token,
        user,
        length: posted.length,
        ..Completion::default()
    })
}

/// A work request that did not succeed: the status to hand out, if any. Work given back because the queue pair has
/// failed is for the engine to flush; but if nobody stopped this channel, the failure itself is news.
#[cold]
fn failed(chan: &Chan, wc: &ibv_wc, receive: bool, poisoned: bool) -> Option<CompletionStatus> {
    if wc.status == IBV_WC_WR_FLUSH_ERR {
        chan.fault("the queue pair has failed");
        return None;
    }
    tracing::debug!(status = wc.status, vendor = wc.vendor_err, qp = wc.qp_num, "a request failed");
    chan.fault("a request failed");
    Some(if poisoned { CompletionStatus::LOCAL_ACCESS } else { status::completed(wc.status, receive) })
}

impl Queue for IbQueue {
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        let que = &*self.0;
        let mut state = que.lock();
        let mut n = if state.early.is_empty() { 0 } else { state.hand_out(out) };
        while n < out.len() {
            let (taken, more) = que.take(&state, &mut out[n..]);
            n += taken;
            if !more {
                break;
            }
        }
        n
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
