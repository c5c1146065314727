//! The data path of a channel: posts go into rings, and from there to libfabric as far as the peer's receives, the keys'
//! meaning, fences and libfabric itself allow. What cannot go now goes when something changed; nothing spins.

use std::time::{Duration, Instant};

use dat_plugin::{
    AtomicRequest, BindRequest, Completion, CompletionFlag, CompletionStatus, EventKind, Opcode, PostFlag,
    RecvRequest, Request as Posted, Status,
};

use crate::channel::{Chan, Phase, State, code_of};
use crate::endpoint::{Errno, Link, Local, Remote};
use crate::status;
use crate::wire::{Farewell, MAX_WRITTEN, Mark, Rest, reached, room_code, widen};
use crate::work::{Recv, RecvStage, Request, Role, Seg, Stage};

/// How much time there is for what could be told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lull {
    /// Something is being done.
    None,
    /// A poll found nothing: a message may follow that carries the news.
    Moment,
    /// Nothing is going on, or somebody is about to sleep.
    Long,
}

/// How long news wait for a message that could carry them, while somebody polls.
const PATIENCE: Duration = Duration::from_micros(15);

/// What keeps a request from being started.
enum Blocked {
    /// Something of the peer's or of an earlier request.
    Waits,
    /// libfabric takes no more just now.
    Full,
    Failed(Errno),
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Blocked {
        if errno == -libc::EAGAIN || errno == -libc::ENOMEM { Blocked::Full } else { Blocked::Failed(errno) }
    }
}

impl Chan {
    pub fn post(&self, posted: &Posted) -> Status {
        let (len, remote) = match posted.opcode {
            Opcode::SEND | Opcode::SEND_IMM => (posted.total, false),
            Opcode::WRITE => (posted.total, true),
            Opcode::WRITE_IMM if posted.total < MAX_WRITTEN => (posted.total, true),
            Opcode::READ if u64::from(posted.remote_len) <= posted.total => (posted.remote_len.into(), true),
            _ => return Status::INVALID,
        };
        if len > self.dev.max_message() || self.send.is_none() {
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
        if !self.dev.fabric.limits.atomics {
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

    /// Opens a part of registered memory to peers, under a key of its own.
    pub fn bind(&self, posted: &BindRequest) -> Result<u32, Status> {
        let mut st = self.lock();
        if !matches!(st.phase, Phase::Up) {
            return Err(Status::NOT_CONNECTED);
        }
        let range = posted.range().map(|segment| (segment.addr(), u64::from(segment.len())));
        let bound = self.dev.bind_window(posted.window, range, posted.access)?;
        let request = Request {
            token: posted.token,
            opcode: Opcode::BIND,
            flags: posted.flags,
            rkey: bound.before,
            ..Request::default()
        };
        if !st.requests.push::<Seg>(request, &[]) {
            self.dev.unbind_window(posted.window, bound);
            return Err(Status::NO_RESOURCE);
        }
        self.start_requests(&mut st);
        self.complete_or_break(&mut st);
        Ok(bound.now)
    }

    fn queue_request(&self, request: Request, segments: &[dat_plugin::Segment]) -> Status {
        let mut st = self.lock();
        if st.phase != Phase::Up {
            return Status::NOT_CONNECTED;
        }
        if !st.requests.push(request, segments) {
            return Status::NO_RESOURCE;
        }
        if st.requests.tail.wrapping_sub(st.requests.next) == 1 {
            self.start_requests(&mut st);
            let posted = st.requests.slot(st.requests.tail.wrapping_sub(1));
            // What has no length, and what is known to fail, is done already; a message never is.
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
            // The peer learns of it with the next message, or when somebody looks after this channel.
            self.list();
        }
        Status::OK
    }

    /// Brings everything forward that can be.
    pub fn pump(&self, st: &mut State, lull: Lull) {
        if let Phase::Leaving(until) = st.phase
            && (st.requests_out == 0 || Instant::now() >= until)
        {
            return self.end(st, EventKind::DISCONNECTED, &[], None);
        }
        if st.phase == Phase::Stopped {
            if self.still_says_farewell(st) {
                self.list();
            }
            return self.finish_ending(st);
        }
        if st.link.is_some() {
            self.draw(st);
            self.start_recvs(st);
        }
        if lull != Lull::None {
            st.owed.revoke.append(&mut self.revokes.lock());
            if std::mem::take(&mut st.smallest_gone) {
                self.look_for_more_room(st);
            }
        }
        if st.asked.is_some() {
            self.answer(st);
        }
        if st.phase == Phase::Up {
            self.start_requests(st);
        }
        let all = match lull {
            Lull::Long => true,
            Lull::Moment => self.peer_may_wait(st) && self.has_news_for_long(st),
            Lull::None => self.much_gathered(st),
        };
        self.say_what_is_owed(st, all);
        self.complete_or_break(st);
        if self.owes(st) {
            self.list();
        }
    }

    /// Whether the peer may wait for news that nothing else carries: that its messages were consumed, or for credit.
    fn peer_may_wait(&self, st: &State) -> bool {
        let known = st.told.posted.wrapping_sub(st.books.consumed);
        let open = st.books.posted.wrapping_sub(st.books.consumed);
        st.books.consumed != st.told.consumed || known < open.div_ceil(2)
    }

    /// Who takes a completion polls once more before it answers: the answer carries the news, so it is given a little time.
    fn has_news_for_long(&self, st: &mut State) -> bool {
        st.news_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE
    }

    /// Whether half a window of news has gathered while there was no time to tell it.
    fn much_gathered(&self, st: &State) -> bool {
        let gathered = st.books.consumed.wrapping_sub(st.told.consumed);
        gathered >= 8 && gathered >= (st.recvs.len() + gathered) / 2
    }

    /// Hands out the last event of a channel that waited for libfabric to let go.
    pub fn finish_ending(&self, st: &mut State) {
        self.give_back(st);
        if self.settled(st)
            && let Some(event) = st.owed.ending.take()
        {
            self.dev.event(self.arc(), *event);
        }
    }

    /// Gives libfabric the receives it does not have yet.
    pub fn start_recvs(&self, st: &mut State) {
        let Some(link) = st.link else { return };
        while st.recvs.next != st.recvs.tail {
            let count = st.recvs.next;
            let recv = *st.recvs.slot(count);
            if !recv.poisoned && !link.framed {
                let local = Local {
                    segs: st.recvs.segs(count),
                    regions: &self.dev.regions,
                    context: st.recvs.context(count),
                };
                if let Err(errno) = link.recv(&local) {
                    if errno != -libc::EAGAIN {
                        tracing::warn!(errno, "libfabric takes no receive");
                    }
                    return self.list();
                }
                st.inflight += 1;
            }
            st.recvs.slot_mut(count).stage = RecvStage::Posted;
            st.recvs.next = count.wrapping_add(1);
            st.books.posted = st.books.posted.wrapping_add(1);
            st.owed.credit |= self.srq.is_some();
            let code = code_of(&recv);
            if code < st.books.room {
                st.books.room = code;
                st.owed.room = true;
            }
        }
    }

    /// Starts requests in order, up to the first that has to wait.
    pub fn start_requests(&self, st: &mut State) {
        while st.phase == Phase::Up && !st.owed.up && st.requests.next != st.requests.tail {
            match self.start_one(st) {
                Ok(()) => {}
                Err(Blocked::Waits) => return self.say_what_is_owed(st, false),
                Err(Blocked::Full) => return self.list(),
                Err(Blocked::Failed(errno)) => {
                    tracing::warn!(errno, "libfabric refuses a request");
                    let next = st.requests.next;
                    let request = st.requests.slot_mut(next);
                    request.stage = Stage::Done;
                    request.status = status::of_completion(errno);
                    st.requests.next = next.wrapping_add(1);
                }
            }
        }
    }

    fn start_one(&self, st: &mut State) -> Result<(), Blocked> {
        let count = st.requests.next;
        let request = *st.requests.slot(count);
        if request.flags.contains(PostFlag::FENCE) && st.reads > 0 {
            return Err(Blocked::Waits);
        }
        if st.writes > 0 && self.must_follow_writes(st, &request) {
            return Err(Blocked::Waits);
        }
        match request.opcode {
            Opcode::SEND | Opcode::SEND_IMM => self.start_message(st, count, &request)?,
            Opcode::WRITE_IMM if request.len == 0 => self.start_message(st, count, &request)?,
            Opcode::WRITE_IMM => match request.stage {
                Stage::Queued => {
                    self.start_one_sided(st, count, &request)?;
                    if st.requests.slot(count).stage == Stage::Started {
                        // The message that announces it goes once it is done.
                        st.requests.slot_mut(count).stage = Stage::Writing;
                        return Err(Blocked::Waits);
                    }
                }
                Stage::Announce => self.start_message(st, count, &request)?,
                _ => return Err(Blocked::Waits),
            },
            Opcode::BIND => st.requests.slot_mut(count).stage = Stage::Done,
            _ => self.start_one_sided(st, count, &request)?,
        }
        st.requests.next = count.wrapping_add(1);
        Ok(())
    }

    fn start_message(&self, st: &mut State, count: u32, request: &Request) -> Result<(), Blocked> {
        if reached(st.sent, st.credit) {
            if st.peer_shares {
                self.want(st);
            }
            return Err(Blocked::Waits);
        }
        let announces = request.opcode == Opcode::WRITE_IMM;
        let len = if announces { 0 } else { request.len };
        if room_code(len.into(), true) > st.room && st.go != Some(st.sent) {
            if !st.asking {
                st.asking = true;
                st.owed.ask = Some((st.sent, len.into()));
            }
            return Err(Blocked::Waits);
        }
        let rest = match announces {
            true => Rest::Written(request.len),
            // A smaller room is told before the peer may count on it.
            false if st.owed.room || st.owed.credit => {
                Rest::Books { posted: st.told.posted, consumed: st.books.consumed }
            }
            false => Rest::Books { posted: st.books.posted, consumed: st.books.consumed },
        };
        let imm = (request.opcode != Opcode::SEND).then_some(request.imm);
        let mark = Mark { solicited: request.flags.contains(PostFlag::SOLICITED), imm, rest };
        let Some(link) = st.link else { return Err(Blocked::Waits) };
        let segs = if announces { &[][..] } else { st.requests.segs(count) };
        let injected = !link.framed && len as usize <= self.dev.fabric.limits.inject;
        if link.framed {
            self.send_in_frames(st, count, mark.encode(), announces)?;
            st.requests.slot_mut(count).stage = Stage::Started;
        } else if injected {
            link.inject(segs, mark.encode())?;
            // It is done; that the peer consumed it is still to come.
            st.requests.slot_mut(count).stage = Stage::Done;
        } else {
            let local = Local { segs, regions: &self.dev.regions, context: st.requests.context(count) };
            link.send(&local, mark.encode())?;
            self.started(st, count);
        }
        if let Rest::Books { posted, consumed } = rest {
            st.told.posted = posted;
            st.told.consumed = consumed;
            st.news_since = None;
        }
        let seq = st.sent;
        st.sent = seq.wrapping_add(1);
        st.asking = false;
        st.go = None;
        st.requests.slot_mut(count).seq = seq;
        Ok(())
    }

    fn started(&self, st: &mut State, count: u32) {
        st.inflight += 1;
        st.requests_out += 1;
        st.requests.slot_mut(count).stage = Stage::Started;
    }

    fn start_one_sided(&self, st: &mut State, count: u32, request: &Request) -> Result<(), Blocked> {
        // Without bytes nothing is checked.
        if request.len == 0 {
            st.requests.slot_mut(count).stage = Stage::Done;
            return Ok(());
        }
        if request.is_read() && st.reads >= self.attr.max_reads_out.max(1) {
            return Err(Blocked::Waits);
        }
        let Some(key) = st.keys.get(&request.rkey) else {
            if st.resolving.is_none() {
                st.resolving = Some(request.rkey);
                st.owed.resolve = Some(request.rkey);
            }
            return Err(Blocked::Waits);
        };
        let right = match request.opcode {
            Opcode::READ => dat_plugin::Access::REMOTE_READ,
            Opcode::FETCH_ADD | Opcode::CMP_SWAP => dat_plugin::Access::REMOTE_ATOMIC,
            _ => dat_plugin::Access::REMOTE_WRITE,
        };
        let Some(addr) = key.locate(request.remote_addr, request.len.into(), right.0) else {
            let slot = st.requests.slot_mut(count);
            slot.stage = Stage::Done;
            slot.status = CompletionStatus::REMOTE_ACCESS;
            return Ok(());
        };
        let remote = Remote { addr, key: key.key };
        let Some(link) = st.link else { return Err(Blocked::Waits) };
        let local = Local {
            segs: st.requests.segs(count),
            regions: &self.dev.regions,
            context: st.requests.context(count),
        };
        let slot = st.requests.slot(count);
        match request.opcode {
            Opcode::WRITE if self.dev.params.last_byte_last && request.len > 1 => {
                self.write_in_two(st, count, link, remote)?;
            }
            Opcode::READ => link.read(&local, request.len.into(), remote)?,
            Opcode::FETCH_ADD => link.atomic(&local, remote, &slot.operand, None)?,
            Opcode::CMP_SWAP => link.atomic(&local, remote, &slot.swap, Some(&slot.operand))?,
            _ => link.write(&local, request.len.into(), remote, self.dev.fabric.limits.delivery)?,
        }
        if request.is_read() {
            st.reads += 1;
        } else {
            st.writes += 1;
        }
        self.started(st, count);
        Ok(())
    }

    /// A write whose last byte goes by itself, so that it arrives when all others are there: within one write the peer's
    /// system copies in whatever order is fastest. When libfabric takes the first part alone, only the rest comes again.
    fn write_in_two(&self, st: &mut State, count: u32, link: Link, remote: Remote) -> Result<(), Blocked> {
        let Request { len, pieces, .. } = *st.requests.slot(count);
        let (regions, context) = (&self.dev.regions, st.requests.context(count));
        let delivery = self.dev.fabric.limits.delivery;
        let segs = st.requests.segs(count);
        let body = u64::from(len - 1);
        let tail = [last_byte(segs)];
        if pieces == 0 {
            link.write(&Local { segs, regions, context }, body, remote, delivery)?;
            st.inflight += 1;
            st.requests_out += 1;
            st.requests.slot_mut(count).pieces = 2;
        }
        let remote = Remote { addr: remote.addr.wrapping_add(body), ..remote };
        Ok(link.write(&Local { segs: &tail, regions, context }, 1, remote, delivery)?)
    }

    /// Hands completed requests to the queue, in order, and breaks the connection at the first that failed.
    pub fn complete_or_break(&self, st: &mut State) {
        if !self.complete_requests(st) {
            self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
        }
    }

    /// `false`: one has failed, and is the last.
    pub fn complete_requests(&self, st: &mut State) -> bool {
        while st.phase == Phase::Up && st.requests.head != st.requests.next {
            let request = *st.requests.slot(st.requests.head);
            if request.stage != Stage::Done {
                break;
            }
            let failed = request.status != CompletionStatus::SUCCESS;
            if !failed && request.is_message() && !reached(st.taken, request.seq.wrapping_add(1)) {
                break;
            }
            st.requests.head = st.requests.head.wrapping_add(1);
            if request.opcode == Opcode::BIND && request.rkey != 0 {
                self.dev.take_back(request.rkey);
            }
            let length = if failed { 0 } else { request.len };
            let (token, status) = (request.token, request.status);
            let completion = Completion { token, status, length, ..Completion::default() };
            if failed || !request.flags.contains(PostFlag::UNSIGNALLED) {
                // Tells of the silent ones before it, too.
                st.silent = None;
                self.complete(&self.send, self.attr.send_user, &completion);
            } else {
                st.silent = Some(completion);
            }
            if failed {
                return false;
            }
        }
        true
    }

    /// Completes the last success that was kept silent, if nothing told of it since.
    pub fn tell_silent(&self, st: &mut State) {
        if let Some(completion) = st.silent.take() {
            self.complete(&self.send, self.attr.send_user, &completion);
        }
    }

    fn complete(
        &self,
        queue: &Option<std::sync::Arc<crate::queue::Que>>,
        user: u64,
        completion: &Completion,
    ) {
        if let Some(queue) = queue {
            queue.push(Completion { user, ..*completion });
        }
    }

    /// A receive cannot take the message that is for it: it fails, and the connection breaks.
    pub fn fail_recv(&self, st: &mut State, count: u32, poisoned: bool) {
        let recv = st.recvs.slot_mut(count);
        recv.stage = RecvStage::Failed;
        let token = recv.token;
        if let Some(srq) = &self.srq {
            srq.used();
        }
        let status = if poisoned { CompletionStatus::LOCAL_ACCESS } else { CompletionStatus::LOCAL_LENGTH };
        self.complete(
            &self.recv,
            self.attr.recv_user,
            &Completion { token, status, ..Completion::default() },
        );
        self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
    }

    /// libfabric is done with an operation of this channel: with what came, or with an error.
    pub fn on_operation(&self, role: Role, index: u32, result: Result<(usize, u64), Errno>) {
        let mut st = self.lock();
        st.inflight = st.inflight.saturating_sub(1);
        match role {
            Role::Request => self.on_request(&mut st, index, result.err()),
            Role::Recv => self.on_recv(&mut st, index, result),
            Role::FrameIn => self.on_frame_in(&mut st, index, result.map(|(len, _)| len)),
            Role::FrameOut => self.on_frame_out(&mut st, index, result.err()),
        }
        if st.phase == Phase::Stopped {
            self.finish_ending(&mut st);
        }
    }

    pub fn on_request(&self, st: &mut State, index: u32, error: Option<Errno>) {
        st.requests_out = st.requests_out.saturating_sub(1);
        let Some(count) = st.requests.count_of(index) else { return };
        let slot = st.requests.slot_mut(count);
        if slot.is_read() && slot.stage == Stage::Started {
            st.reads = st.reads.saturating_sub(1);
        }
        if error.is_some_and(|errno| self.is_just_the_end(st, errno)) {
            return;
        }
        let slot = st.requests.slot_mut(count);
        slot.pieces = slot.pieces.saturating_sub(1);
        match error {
            // The first of two; the other may be waiting for room.
            None if slot.pieces > 0 => {}
            None if slot.stage == Stage::Writing => {
                slot.stage = Stage::Announce;
                st.writes = st.writes.saturating_sub(1);
            }
            None => {
                let wrote = slot.opcode == Opcode::WRITE;
                slot.stage = Stage::Done;
                st.writes = st.writes.saturating_sub(wrote.into());
            }
            Some(errno) => {
                let was_begun = slot.stage == Stage::Writing || slot.stage == Stage::Queued;
                slot.stage = Stage::Done;
                slot.status = status::of_completion(errno);
                if was_begun {
                    st.requests.next = count.wrapping_add(1);
                }
            }
        }
        self.pump(st, Lull::None);
    }

    /// Operations libfabric hands back because the connection is over say nothing of their own; with connected endpoints
    /// an event tells of the end.
    fn is_just_the_end(&self, st: &State, errno: Errno) -> bool {
        let datagrams = st.link.is_some_and(|link| link.datagrams);
        !matches!(st.phase, Phase::Up) || (!datagrams && errno == libc::ECANCELED)
    }

    pub fn on_recv(&self, st: &mut State, index: u32, result: Result<(usize, u64), Errno>) {
        if !matches!(st.phase, Phase::Up | Phase::Accepting | Phase::Leaving(_)) {
            return;
        }
        self.heard.store(true, std::sync::atomic::Ordering::Relaxed);
        let Some(count) = st.recvs.count_of(index) else { return };
        let (len, data) = match result {
            Ok(filled) => filled,
            Err(errno) if self.is_just_the_end(st, errno) => return,
            Err(errno) => {
                // The peer keeps to the room it is told, so this is a fault of the fabric's or the peer's.
                tracing::warn!(errno, "a receive failed");
                let poisoned = status::of_completion(errno) != CompletionStatus::LOCAL_LENGTH;
                return self.fail_recv(st, count, poisoned);
            }
        };
        let slot = st.recvs.slot_mut(count);
        slot.stage = RecvStage::Filled;
        slot.filled = len as u32;
        slot.mark = data;
        if let Rest::Books { posted, consumed } = Mark::decode(data).rest {
            if let Some(posted) = widen(st.credit, posted) {
                st.credit = posted;
            }
            if let Some(consumed) = widen(st.taken, consumed)
                && reached(st.sent, consumed)
            {
                st.taken = consumed;
            }
        }
        if st.phase == Phase::Accepting {
            // Overtook the news that the peer is connected; taken when that came.
            return;
        }
        self.take_filled(st);
        let waiting =
            st.requests.next != st.requests.tail || st.recvs.next != st.recvs.tail || st.asked.is_some();
        if waiting || st.phase != Phase::Up || self.owes_more_than_news(st) || self.much_gathered(st) {
            self.pump(st, Lull::None);
        } else {
            // Whoever takes the message may have an answer to send: the rest can wait until that is on its way.
            self.dev.do_more_later();
        }
    }

    /// Completes filled receives, in order.
    pub fn take_filled(&self, st: &mut State) {
        while st.recvs.head != st.recvs.next {
            let recv = *st.recvs.slot(st.recvs.head);
            if recv.stage != RecvStage::Filled {
                break;
            }
            st.recvs.head = st.recvs.head.wrapping_add(1);
            st.books.consumed = st.books.consumed.wrapping_add(1);
            if let Some(srq) = &self.srq {
                srq.used();
            }
            st.smallest_gone |= code_of(&recv) == st.books.room;
            let mark = Mark::decode(recv.mark);
            let mut flags = CompletionFlag::NONE;
            if mark.solicited {
                flags = flags | CompletionFlag::SOLICITED;
            }
            if mark.imm.is_some() {
                flags = flags | CompletionFlag::IMMEDIATE;
            }
            let length = match mark.rest {
                Rest::Books { .. } => recv.filled,
                Rest::Written(len) => {
                    flags = flags | CompletionFlag::WRITTEN;
                    len
                }
            };
            let imm = mark.imm.unwrap_or(0);
            self.complete(
                &self.recv,
                self.attr.recv_user,
                &Completion { token: recv.token, length, flags, imm, ..Completion::default() },
            );
        }
        self.list();
    }

    /// The smallest receive was used: if all that are left are larger the peer need not ask any more. Only where that is
    /// quickly seen.
    fn look_for_more_room(&self, st: &mut State) {
        const QUICK: u32 = 32;
        let open = st.recvs.next.wrapping_sub(st.recvs.head);
        if open == 0 || open > QUICK {
            return;
        }
        let codes = (0..open).map(|ahead| code_of(st.recvs.slot(st.recvs.head.wrapping_add(ahead))));
        let smallest = codes.min().unwrap_or(st.books.room);
        if smallest > st.books.room {
            st.books.room = smallest;
            st.owed.room = true;
        }
    }
}

/// The last byte of segments that have one.
fn last_byte(segs: &[Seg]) -> Seg {
    let last = segs.iter().rev().find(|seg| seg.len > 0).copied().unwrap_or_default();
    Seg { addr: last.addr.wrapping_add(u64::from(last.len.saturating_sub(1))), len: 1, lkey: last.lkey }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_is_that_of_the_last_segment_with_any() {
        let seg = |addr, len| Seg { addr, len, lkey: addr as u32 };
        let last = last_byte(&[seg(100, 8), seg(200, 5), seg(300, 0)]);
        assert_eq!((last.addr, last.len, last.lkey), (204, 1, 200));
    }
}
