//! Posting: the interface's requests become the device's. No lock, no allocation, no system call of this provider's.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use dat_plugin::{AtomicRequest, BindRequest, Opcode, PostFlag, RecvRequest, Request, Segment, Status};
use rdma_sys::verbs::*;

use crate::channel::Chan;
use crate::memory;
use crate::ring::{Posted, SEQUENCE_BITS};
use crate::status;

/// The most segments of a request.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// What a completion of the device carries back: which queue place and generation, what kind of work, which post.
///
/// Bits 0 to 22 the sequence number, 23 the marker, 24 to 43 the place, 44 to 61 the generation, 62 and 63 the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkId(pub(crate) u64);

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send = 0,
    Recv = 1,
    /// A receive of a shared queue: the sequence is its slot there, and there is no place.
    Shared = 2,
}

impl WorkId {
    pub(crate) const GENERATION: u32 = (1 << 18) - 1;
    /// The most places of a queue.
    pub(crate) const PLACES: u32 = 1 << 20;
    const MARKER: u64 = 1 << SEQUENCE_BITS;

    /// The part that all work of one kind of a channel shares.
    pub(crate) fn base(kind: Kind, index: u32, generation: u32) -> u64 {
        (kind as u64) << 62 | u64::from(generation & WorkId::GENERATION) << 44 | u64::from(index) << 24
    }

    /// Of a marker that follows all posts before `sequence`.
    pub(crate) fn marker(base: u64, sequence: u32) -> WorkId {
        WorkId(base | WorkId::MARKER | u64::from(sequence))
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 >> 62 {
            0 => Kind::Send,
            1 => Kind::Recv,
            _ => Kind::Shared,
        }
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        (self.0 >> 24) as u32 & (WorkId::PLACES - 1)
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 44) as u32 & WorkId::GENERATION
    }

    #[inline]
    pub(crate) fn sequence(self) -> u32 {
        self.0 as u32 & ((1 << SEQUENCE_BITS) - 1)
    }

    #[inline]
    pub(crate) fn is_marker(self) -> bool {
        self.0 & WorkId::MARKER != 0
    }
}

/// The interface's segments as the device's: the two have the same layout, which the test below shows.
#[inline]
pub(crate) fn as_sges(segments: &[Segment]) -> *mut ibv_sge {
    segments.as_ptr().cast::<ibv_sge>().cast_mut()
}

impl Chan {
    #[inline]
    pub(crate) fn post_request(&self, request: &Request) -> Status {
        let mut cut = NO_SGES;
        let mut wr = BLANK_SEND;
        let posted = match self.prepare(request, &mut wr, &mut cut) {
            Ok(posted) => posted,
            Err(status) => return status,
        };
        let Some(sequence) = self.tx.push(posted) else { return Status::NO_RESOURCE };
        wr.wr_id = self.send_base | u64::from(sequence);
        self.note_signalling(wr.send_flags);
        // SAFETY: the engine checked the segments against live registrations, and keeps them until they completed or
        // the channel stopped; the arrays live for the call, which copies what it needs.
        let (code, _) = unsafe { self.qp.post_send(&raw mut wr) };
        if code != 0 {
            self.tx.unpush(1);
            return status::refused(code);
        }
        Status::OK
    }

    /// Fills in a request; segments beyond what a read asks for are cut off in `cut`.
    #[inline]
    fn prepare(&self, request: &Request, wr: &mut ibv_send_wr, cut: &mut Sges) -> Result<Posted, Status> {
        if !self.live.load(Ordering::Acquire) {
            return Err(Status::NOT_CONNECTED);
        }
        let segments = request.segments();
        let mut length = request.total;
        let remote = ibv_rdma { remote_addr: request.remote_addr, rkey: request.rkey };
        wr.sg_list = as_sges(segments);
        wr.num_sge = segments.len() as i32;
        let mut inline = length <= u64::from(self.qp.max_inline);
        wr.opcode = match request.opcode {
            Opcode::SEND => IBV_WR_SEND,
            Opcode::WRITE => {
                wr.wr.rdma = remote;
                IBV_WR_RDMA_WRITE
            }
            Opcode::READ => {
                wr.wr.rdma = remote;
                length = request.remote_len.into();
                inline = false;
                if length < request.total {
                    wr.num_sge = cut_to(segments, length, cut);
                    wr.sg_list = cut.as_mut_ptr().cast();
                }
                IBV_WR_RDMA_READ
            }
            Opcode::WRITE_IMM => {
                wr.wr.rdma = remote;
                wr.imm_data = request.imm.to_be();
                IBV_WR_RDMA_WRITE_WITH_IMM
            }
            Opcode::SEND_IMM => {
                wr.imm_data = request.imm.to_be();
                IBV_WR_SEND_WITH_IMM
            }
            Opcode::SEND_INVALIDATE => {
                wr.imm_data = request.rkey;
                IBV_WR_SEND_WITH_INV
            }
            _ => return Err(Status::NOT_SUPPORTED),
        };
        if segments.len() > self.attr.max_request_segments as usize
            || length > request.total
            || length > self.dev.max_message
        {
            return Err(Status::INVALID);
        }
        wr.send_flags = send_flags(request.flags) | if inline && length > 0 { IBV_SEND_INLINE } else { 0 };
        Ok(Posted { token: request.token, length: length as u32, poisoned: false })
    }

    pub(crate) fn post_requests(&self, requests: &[Request]) -> (usize, Status) {
        let mut done = 0;
        while done < requests.len() {
            let mut cuts = [NO_SGES; LIST];
            let mut list = [BLANK_SEND; LIST];
            let mut n = 0;
            let mut stop = Status::OK;
            for request in requests[done..].iter().take(LIST) {
                let pushed = self
                    .prepare(request, &mut list[n], &mut cuts[n])
                    .and_then(|posted| self.tx.push(posted).ok_or(Status::NO_RESOURCE));
                match pushed {
                    Ok(sequence) => list[n].wr_id = self.send_base | u64::from(sequence),
                    Err(status) => {
                        stop = status;
                        break;
                    }
                }
                n += 1;
            }
            if n == 0 {
                return (done, stop);
            }
            self.note_signalling(list[n - 1].send_flags);
            let first = list.as_mut_ptr();
            // SAFETY: the elements are of this array, which lives for the call; segments as in `post_request`.
            let (code, taken) = unsafe {
                for i in 1..n {
                    (*first.add(i - 1)).next = first.add(i);
                }
                let (code, bad) = self.qp.post_send(first);
                (code, if code == 0 { n } else { bad.offset_from(first).clamp(0, n as isize) as usize })
            };
            self.tx.unpush((n - taken) as u32);
            done += taken;
            if code != 0 {
                return (done, status::refused(code));
            }
            if stop != Status::OK {
                return (done, stop);
            }
        }
        (done, Status::OK)
    }

    #[inline]
    pub(crate) fn post_receive(&self, request: &RecvRequest) -> Status {
        let mut sges = NO_SGES;
        let mut wr = BLANK_RECV;
        let posted = match self.prepare_recv(request, &mut wr, &mut sges) {
            Ok(posted) => posted,
            Err(status) => return status,
        };
        let Some(sequence) = self.rx.push(posted) else { return Status::NO_RESOURCE };
        wr.wr_id = self.recv_base | u64::from(sequence);
        // SAFETY: as in `post_request`.
        let (code, _) = unsafe { self.qp.post_recv(&raw mut wr) };
        if code != 0 {
            self.rx.unpush(1);
            return status::refused(code);
        }
        Status::OK
    }

    #[inline]
    fn prepare_recv(
        &self,
        request: &RecvRequest,
        wr: &mut ibv_recv_wr,
        poisoned: &mut Sges,
    ) -> Result<Posted, Status> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Status::NOT_CONNECTED);
        }
        let segments = request.segments();
        if self.srq.is_some() || segments.len() > self.attr.max_recv_segments as usize {
            return Err(Status::INVALID);
        }
        wr.num_sge = segments.len() as i32;
        wr.sg_list = as_sges(segments);
        let poison = request.flags.contains(PostFlag::POISON);
        if poison {
            wr.num_sge = self.poison(segments, poisoned);
            wr.sg_list = poisoned.as_mut_ptr().cast();
        }
        Ok(Posted { token: request.token, length: 0, poisoned: poison })
    }

    /// Segments that fail when a message uses them.
    #[cold]
    fn poison(&self, segments: &[Segment], out: &mut Sges) -> i32 {
        let lkey = self.dev.memory.poison_key();
        for (sge, segment) in out.iter_mut().zip(segments) {
            sge.write(ibv_sge { addr: segment.addr(), length: segment.len(), lkey });
        }
        segments.len().min(MAX_SEGMENTS) as i32
    }

    pub(crate) fn post_receives(&self, requests: &[RecvRequest]) -> (usize, Status) {
        let mut done = 0;
        while done < requests.len() {
            let mut poisoned = [NO_SGES; LIST];
            let mut list = [BLANK_RECV; LIST];
            let mut n = 0;
            let mut stop = Status::OK;
            for request in requests[done..].iter().take(LIST) {
                let pushed = self
                    .prepare_recv(request, &mut list[n], &mut poisoned[n])
                    .and_then(|posted| self.rx.push(posted).ok_or(Status::NO_RESOURCE));
                match pushed {
                    Ok(sequence) => list[n].wr_id = self.recv_base | u64::from(sequence),
                    Err(status) => {
                        stop = status;
                        break;
                    }
                }
                n += 1;
            }
            if n == 0 {
                return (done, stop);
            }
            let first = list.as_mut_ptr();
            // SAFETY: as in `post_requests`.
            let (code, taken) = unsafe {
                for i in 1..n {
                    (*first.add(i - 1)).next = first.add(i);
                }
                let (code, bad) = self.qp.post_recv(first);
                (code, if code == 0 { n } else { bad.offset_from(first).clamp(0, n as isize) as usize })
            };
            self.rx.unpush((n - taken) as u32);
            done += taken;
            if code != 0 {
                return (done, status::refused(code));
            }
            if stop != Status::OK {
                return (done, stop);
            }
        }
        (done, Status::OK)
    }

    pub(crate) fn post_atomic_request(&self, request: &AtomicRequest) -> Status {
        if !self.live.load(Ordering::Acquire) {
            return Status::NOT_CONNECTED;
        }
        let sink = [request.sink];
        let mut wr = BLANK_SEND;
        wr.sg_list = as_sges(&sink);
        wr.num_sge = 1;
        wr.opcode = match request.opcode {
            Opcode::FETCH_ADD => IBV_WR_ATOMIC_FETCH_AND_ADD,
            Opcode::CMP_SWAP => IBV_WR_ATOMIC_CMP_AND_SWP,
            _ => return Status::INVALID,
        };
        wr.wr.atomic = ibv_atomic {
            remote_addr: request.remote_addr,
            compare_add: request.operand,
            swap: request.swap,
            rkey: request.rkey,
        };
        wr.send_flags = send_flags(request.flags);
        let posted = Posted { token: request.token, length: 8, poisoned: false };
        let Some(sequence) = self.tx.push(posted) else { return Status::NO_RESOURCE };
        wr.wr_id = self.send_base | u64::from(sequence);
        self.note_signalling(wr.send_flags);
        // SAFETY: as in `post_request`.
        let (code, _) = unsafe { self.qp.post_send(&raw mut wr) };
        if code != 0 {
            self.tx.unpush(1);
            return status::refused(code);
        }
        Status::OK
    }

    pub(crate) fn post_bind(&self, request: &BindRequest) -> Result<u32, Status> {
        if !self.live.load(Ordering::Acquire) {
            return Err(Status::NOT_CONNECTED);
        }
        let window = self.dev.memory.window(request.window).ok_or(Status::INVALID)?;
        let region = match request.range() {
            None => None,
            Some(range) => {
                let region = self.dev.memory.region(range.lkey()).ok_or(Status::INVALID)?;
                Some((region, range.addr(), u64::from(range.len()), memory::flags(request.access)))
            }
        };
        let posted = Posted { token: request.token, length: 0, poisoned: false };
        let sequence = self.tx.push(posted).ok_or(Status::NO_RESOURCE)?;
        let wr_id = self.send_base | u64::from(sequence);
        let flags = send_flags(request.flags);
        self.note_signalling(flags);
        let range = region.as_ref().map(|(region, addr, len, access)| {
            // The local right that comes along with a remote one is of no use to a window.
            (&**region, *addr, *len, *access & !IBV_ACCESS_LOCAL_WRITE)
        });
        let (code, rkey) = self.qp.bind(&window, wr_id, flags, range);
        self.dev.memory.bound(request.window, request.range().map_or(0, |range| range.lkey()));
        if code != 0 {
            self.tx.unpush(1);
            return Err(status::refused(code));
        }
        Ok(if request.range().is_some() { rkey } else { 0 })
    }

    /// Has the last silent success told, by way of a marker, unless a later completion will.
    pub(crate) fn settle_silent(&self) {
        if !self.last_unsignalled.load(Ordering::Relaxed) || self.tx.is_past(self.tx.mark()) {
            return;
        }
        // One at a time: there is room for one. The one that is out is followed by another when it comes back.
        if self.marker_out.swap(true, Ordering::AcqRel) {
            self.marker_again.store(true, Ordering::Release);
        } else if !self.post_marker() {
            self.marker_out.store(false, Ordering::Release);
        }
    }

    /// A marker came back, from a live queue pair or a failed one.
    #[cold]
    pub(crate) fn marker_back(&self) {
        self.marker_out.store(false, Ordering::Release);
        if self.marker_again.swap(false, Ordering::AcqRel) && self.live.load(Ordering::Acquire) {
            self.settle_silent();
        }
    }

    /// Posts a request that does nothing but come back: a write of no bytes, for which a peer needs no key. When it
    /// comes back, all before it are done; those that failed have said so.
    pub(crate) fn post_marker(&self) -> bool {
        let mut wr = BLANK_SEND;
        wr.wr_id = WorkId::marker(self.send_base, self.tx.next_sequence()).0;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        // SAFETY: no segments.
        let (code, _) = unsafe { self.qp.post_send(&raw mut wr) };
        code == 0
    }

    #[inline]
    fn note_signalling(&self, flags: u32) {
        self.last_unsignalled.store(flags & IBV_SEND_SIGNALED == 0, Ordering::Relaxed);
    }
}

/// Requests posted to the device in one call.
const LIST: usize = 8;

#[inline]
fn send_flags(flags: PostFlag) -> u32 {
    let mut out = if flags.contains(PostFlag::UNSIGNALLED) { 0 } else { IBV_SEND_SIGNALED };
    if flags.contains(PostFlag::SOLICITED) {
        out |= IBV_SEND_SOLICITED;
    }
    if flags.contains(PostFlag::FENCE) {
        out |= IBV_SEND_FENCE;
    }
    out
}

/// The first `length` bytes of `segments`: how many segments that takes.
#[cold]
fn cut_to(segments: &[Segment], length: u64, out: &mut Sges) -> i32 {
    let mut left = length;
    let mut n = 0;
    for (sge, segment) in out.iter_mut().zip(segments) {
        if left == 0 {
            break;
        }
        let len = left.min(segment.len().into()) as u32;
        sge.write(ibv_sge { addr: segment.addr(), length: len, lkey: segment.lkey() });
        left -= u64::from(len);
        n += 1;
    }
    n
}

/// Segments that differ from those of a request; filled in only where they do.
type Sges = [MaybeUninit<ibv_sge>; MAX_SEGMENTS];

const NO_SGES: Sges = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
const BLANK_RECV: ibv_recv_wr = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
const BLANK_SEND: ibv_send_wr = ibv_send_wr {
    wr_id: 0,
    next: null_mut(),
    sg_list: null_mut(),
    num_sge: 0,
    opcode: IBV_WR_SEND,
    send_flags: 0,
    imm_data: 0,
    wr: ibv_send_wr_remote { atomic: ibv_atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
    remote_srqn: 0,
    bind_mw: ibv_send_wr_bind {
        mw: null_mut(),
        rkey: 0,
        bind_info: ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_devices_layout() {
        assert_eq!(size_of::<Segment>(), size_of::<ibv_sge>());
        assert_eq!(align_of::<Segment>(), align_of::<ibv_sge>());
        // SAFETY: never posted.
        let segment = [unsafe { Segment::from_parts(0x1122_3344_5566_7788, 0x99aa_bbcc, 0xddee_ff01) }];
        // SAFETY: of the same size and alignment, all bits valid.
        let sge = unsafe { *as_sges(&segment) };
        assert_eq!((sge.addr, sge.length, sge.lkey), (0x1122_3344_5566_7788, 0x99aa_bbcc, 0xddee_ff01));
    }

    #[test]
    fn work_ids_keep_their_parts() {
        for kind in [Kind::Send, Kind::Recv, Kind::Shared] {
            let base = WorkId::base(kind, 0xABCDE, 0x2_FEDC);
            let id = WorkId(base | 0x7F_FFFF);
            assert_eq!((id.kind(), id.index(), id.generation()), (kind, 0xABCDE, 0x2_FEDC));
            assert_eq!((id.sequence(), id.is_marker()), (0x7F_FFFF, false));
            let marker = WorkId::marker(base, 77);
            assert_eq!((marker.is_marker(), marker.index(), marker.sequence()), (true, 0xABCDE, 77));
        }
    }

    #[test]
    fn a_read_is_cut_to_what_it_asks_for() {
        // SAFETY: never posted.
        let segments =
            [unsafe { Segment::from_parts(100, 10, 1) }, unsafe { Segment::from_parts(200, 10, 2) }];
        let mut out = NO_SGES;
        for (length, want) in [(0, vec![]), (10, vec![10]), (13, vec![10, 3]), (20, vec![10, 10])] {
            let n = cut_to(&segments, length, &mut out) as usize;
            // SAFETY: the first `n` were filled in.
            let lengths: Vec<u32> =
                out[..n].iter().map(|sge| unsafe { sge.assume_init_ref() }.length).collect();
            assert_eq!(lengths, want);
        }
    }
}
