//! Requests on their way. They start in order, as far as the peer's receives, its keys, fences and libfabric allow, and
//! complete in order. A request that fails is the last of its connection.

use dat_plugin::{ChannelFlag, Completion, CompletionStatus, EventKind, Opcode, PostFlag};

use crate::channel::ring::{Request, Stage};
use crate::channel::{ChannelInner, Phase, State};
use crate::core::CreditDelay;
use crate::endpoint::context::Seg;
use crate::endpoint::link::{Link, Local, Remote};
use crate::status::{self, Errno};
use crate::wire::control::CloseReason;
use crate::wire::count::reached;
use crate::wire::message::{Detail, MessageInfo, room_code};

/// What keeps a request from being started.
enum Blocked {
    /// The peer or an earlier request.
    Waits,
    /// libfabric takes no more now.
    Full,
    Failed(Errno),
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Blocked {
        if errno == -libc::EAGAIN || errno == -libc::ENOMEM { Blocked::Full } else { Blocked::Failed(errno) }
    }
}

impl ChannelInner {
    /// Starts requests in order, up to the first that must wait.
    pub fn start_requests(&self, st: &mut State) {
        while st.phase == Phase::Connected && !st.pending.connected && st.requests.next != st.requests.tail {
            match self.start_one(st) {
                Ok(()) => {}
                Err(Blocked::Waits) => return self.flush_control(st, false),
                Err(Blocked::Full) => return self.schedule(),
                Err(Blocked::Failed(errno)) => {
                    tracing::warn!(errno, "libfabric refused a request");
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
                        // The message that reports it follows when it is done.
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
                self.request_receives(st);
            }
            return Err(Blocked::Waits);
        }
        let announces = request.opcode == Opcode::WRITE_IMM;
        let len = if announces { 0 } else { request.len };
        if room_code(len.into(), true) > st.room && st.cts != Some(st.sent) {
            if !st.asking {
                st.asking = true;
                st.pending.ask_room = Some((st.sent, len.into()));
            }
            return Err(Blocked::Waits);
        }
        let detail = match announces {
            true => Detail::Written(request.len),
            // The peer must know of a smaller receive before it gets credit for it.
            false if st.pending.room || st.pending.credit => {
                Detail::Credit { posted: st.advertised.posted, consumed: st.credit_state.consumed }
            }
            false => Detail::Credit { posted: st.credit_state.posted, consumed: st.credit_state.consumed },
        };
        let imm = (request.opcode != Opcode::SEND).then_some(request.imm);
        let info = MessageInfo { solicited: request.flags.contains(PostFlag::SOLICITED), imm, detail };
        let Some(link) = st.link else { return Err(Blocked::Waits) };
        let segs = if announces { &[][..] } else { st.requests.segs(count) };
        let injected = !link.framed && len as usize <= self.core.fabric.limits.inject;
        if link.framed {
            self.send_in_frames(st, count, info.encode(), announces)?;
            st.requests.slot_mut(count).stage = Stage::Started;
        } else if injected {
            link.inject(segs, info.encode())?;
            // libfabric is done; the peer has still to consume it.
            st.requests.slot_mut(count).stage = Stage::Done;
        } else {
            let local = Local { segs, regions: &self.core.regions, context: st.requests.context(count) };
            link.send(&local, info.encode())?;
            self.started(st, count);
        }
        if let Detail::Credit { posted, consumed } = detail {
            st.advertised.posted = posted;
            st.advertised.consumed = consumed;
            st.unadvertised_since = None;
        }
        let seq = st.sent;
        st.sent = seq.wrapping_add(1);
        st.asking = false;
        st.cts = None;
        st.requests.slot_mut(count).seq = seq;
        Ok(())
    }

    fn started(&self, st: &mut State, count: u32) {
        st.inflight += 1;
        st.requests_inflight += 1;
        st.requests.slot_mut(count).stage = Stage::Started;
    }

    fn start_one_sided(&self, st: &mut State, count: u32, request: &Request) -> Result<(), Blocked> {
        // Without bytes there is nothing to check.
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
                st.pending.resolve = Some(request.rkey);
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
            regions: &self.core.regions,
            context: st.requests.context(count),
        };
        let slot = st.requests.slot(count);
        match request.opcode {
            Opcode::WRITE if request.len > 1 && self.writes_last_byte_last() => {
                self.write_in_two(st, count, link, remote)?;
            }
            Opcode::READ => link.read(&local, request.len.into(), remote)?,
            Opcode::FETCH_ADD => link.atomic(&local, remote, &slot.operand, None)?,
            Opcode::CMP_SWAP => link.atomic(&local, remote, &slot.swap, Some(&slot.operand))?,
            _ => link.write(&local, request.len.into(), remote, self.core.fabric.limits.delivery)?,
        }
        if request.is_read() {
            st.reads += 1;
        } else {
            st.writes += 1;
        }
        self.started(st, count);
        Ok(())
    }

    fn writes_last_byte_last(&self) -> bool {
        let asked = || self.attr.flags().contains(ChannelFlag::LAST_BYTE_LAST);
        self.core.params.last_byte_last.unwrap_or_else(asked)
    }

    /// Writes the last byte separately, so that it arrives after all others: within one write the peer's system copies in
    /// any order. If libfabric takes only the first piece, the next call writes only the last byte.
    fn write_in_two(&self, st: &mut State, count: u32, link: Link, remote: Remote) -> Result<(), Blocked> {
        let Request { len, pieces, .. } = *st.requests.slot(count);
        let (regions, context) = (&self.core.regions, st.requests.context(count));
        let delivery = self.core.fabric.limits.delivery;
        let segs = st.requests.segs(count);
        let body = u64::from(len - 1);
        let tail = [last_byte(segs)];
        if pieces == 0 {
            link.write(&Local { segs, regions, context }, body, remote, delivery)?;
            st.inflight += 1;
            st.requests_inflight += 1;
            st.requests.slot_mut(count).pieces = 2;
        }
        let remote = Remote { addr: remote.addr.wrapping_add(body), ..remote };
        Ok(link.write(&Local { segs: &tail, regions, context }, 1, remote, delivery)?)
    }

    /// Reports completed requests in order, and breaks the connection at the first that failed.
    pub fn complete_or_break(&self, st: &mut State) {
        if !self.complete_requests(st) {
            self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
        }
    }

    /// Reports completed requests in order. `false`: one failed, and is the last.
    pub fn complete_requests(&self, st: &mut State) -> bool {
        while st.phase == Phase::Connected && st.requests.head != st.requests.next {
            let request = *st.requests.slot(st.requests.head);
            if request.stage != Stage::Done {
                break;
            }
            let failed = request.status != CompletionStatus::SUCCESS;
            if !failed && request.is_message() && !reached(st.consumed_by_peer, request.seq.wrapping_add(1)) {
                break;
            }
            st.requests.head = st.requests.head.wrapping_add(1);
            if request.opcode == Opcode::BIND && request.rkey != 0 {
                self.core.regions.revoke(request.rkey);
            }
            let length = if failed { 0 } else { request.len };
            let (token, status) = (request.token, request.status);
            let completion = Completion { token, status, length, ..Completion::default() };
            if failed || !request.flags.contains(PostFlag::UNSIGNALLED) {
                // It covers the unsignalled ones before it.
                st.unsignalled = None;
                self.complete(&self.send, self.attr.send_user, &completion);
            } else {
                st.unsignalled = Some(completion);
            }
            if failed {
                return false;
            }
        }
        true
    }

    /// Reports the last unsignalled success, unless a later completion covered it.
    pub fn report_unsignalled(&self, st: &mut State) {
        if let Some(completion) = st.unsignalled.take() {
            self.complete(&self.send, self.attr.send_user, &completion);
        }
    }

    pub fn on_request(&self, st: &mut State, index: u32, error: Option<Errno>) {
        st.requests_inflight = st.requests_inflight.saturating_sub(1);
        let Some(count) = st.requests.count_of(index) else { return };
        let slot = st.requests.slot_mut(count);
        if slot.is_read() && slot.stage == Stage::Started {
            st.reads = st.reads.saturating_sub(1);
        }
        if error.is_some_and(|errno| self.is_end_of_connection(st, errno)) {
            return;
        }
        let slot = st.requests.slot_mut(count);
        slot.pieces = slot.pieces.saturating_sub(1);
        match error {
            // The first of two pieces; the other may not be started.
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
                let was_starting = slot.stage == Stage::Writing || slot.stage == Stage::Queued;
                slot.stage = Stage::Done;
                slot.status = status::of_completion(errno);
                if was_starting {
                    st.requests.next = count.wrapping_add(1);
                }
            }
        }
        self.progress(st, CreditDelay::Busy);
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
    fn the_last_byte_is_in_the_last_segment_that_has_bytes() {
        let seg = |addr, len| Seg { addr, len, lkey: addr as u32 };
        let last = last_byte(&[seg(100, 8), seg(200, 5), seg(300, 0)]);
        assert_eq!((last.addr, last.len, last.lkey), (204, 1, 200));
    }
}
