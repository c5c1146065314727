//! Posting: the interface's requests become the device's. No lock, no allocation, no system call of this provider's.
//!
//! Only the fields that an operation uses are written. Drivers read no others, and clearing all of them would take as many
//! instructions as the rest of a send.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use dat_plugin::{AtomicRequest, BindRequest, Opcode, PostFlag, RecvRequest, Request, Segment, Status};
use rdma_sys::verbs::*;

use crate::data::queue_pair::QueuePair;
use crate::data::ring::{Posted, Ring};
use crate::data::sge::{MAX_SEGMENTS, NO_SGES, Sges, as_sges, cut_to};
use crate::data::work_id::WorkId;
use crate::memory;
use crate::status;

/// A request or a receive, posted singly or in lists.
pub(crate) trait Work {
    /// The device's form of it.
    type Wr;

    fn ring(qp: &QueuePair) -> &Ring;

    /// Writes everything that the device reads, except the number. Segments that differ from those of `self` go to `sges`.
    fn prepare(
        &self,
        qp: &QueuePair,
        wr: &mut MaybeUninit<Self::Wr>,
        sges: &mut Sges,
    ) -> Result<Posted, Status>;

    /// Why the ring takes no more.
    fn refused(qp: &QueuePair) -> Status;

    /// Writes the number of the post.
    ///
    /// # Safety
    /// `wr` was prepared.
    unsafe fn number(qp: &QueuePair, wr: *mut Self::Wr, sequence: u32);

    /// Has another one follow.
    ///
    /// # Safety
    /// Both were prepared.
    unsafe fn link(wr: *mut Self::Wr, next: *mut Self::Wr);

    /// Posts a list; the result is an error number, and with it the first that was not taken is in `bad`.
    ///
    /// # Safety
    /// All were prepared and numbered; what they were made of lives for the call.
    unsafe fn post(qp: &QueuePair, first: *mut Self::Wr, bad: *mut *mut Self::Wr) -> c_int;
}

/// Posts one.
#[inline]
pub(crate) fn one<W: Work>(qp: &QueuePair, work: &W) -> Status {
    let mut sges = NO_SGES;
    let mut wr = MaybeUninit::uninit();
    let posted = match work.prepare(qp, &mut wr, &mut sges) {
        Ok(posted) => posted,
        Err(status) => return status,
    };
    let Some(sequence) = W::ring(qp).push(posted) else { return W::refused(qp) };
    let mut bad = MaybeUninit::uninit();
    // SAFETY: `prepare` wrote the request. The engine checked the segments against live registrations, and keeps those until
    // the post completed or the channel stopped. The driver copies the rest during the call.
    let code = unsafe {
        W::number(qp, wr.as_mut_ptr(), sequence);
        W::post(qp, wr.as_mut_ptr(), bad.as_mut_ptr())
    };
    if code != 0 {
        W::ring(qp).unpush(1);
        return status::refused(code);
    }
    Status::OK
}

/// Posts in order, up to the first that is refused. Gives the number of accepted posts, and the reason to stop.
pub(crate) fn list<W: Work>(qp: &QueuePair, works: &[W]) -> (usize, Status) {
    let mut done = 0;
    for works in works.chunks(LIST) {
        let mut sges = [NO_SGES; LIST];
        let mut list = [const { MaybeUninit::uninit() }; LIST];
        let mut n = 0;
        let mut stop = Status::OK;
        for (work, (wr, sges)) in works.iter().zip(list.iter_mut().zip(&mut sges)) {
            let pushed = work
                .prepare(qp, wr, sges)
                .and_then(|posted| W::ring(qp).push(posted).ok_or_else(|| W::refused(qp)));
            match pushed {
                // SAFETY: `prepare` wrote the request.
                Ok(sequence) => unsafe { W::number(qp, wr.as_mut_ptr(), sequence) },
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
        let first: *mut W::Wr = list.as_mut_ptr().cast();
        let mut bad = null_mut();
        // SAFETY: the first `n` of this array were prepared and numbered. The engine keeps their segments as in `one`.
        let (code, taken) = unsafe {
            for i in 1..n {
                W::link(first.add(i - 1), first.add(i));
            }
            let code = W::post(qp, first, &raw mut bad);
            (code, if code == 0 { n } else { bad.offset_from(first).clamp(0, n as isize) as usize })
        };
        W::ring(qp).unpush((n - taken) as u32);
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

/// Writes fields of what a pointer leads to.
macro_rules! put {
    ($wr:ident: $($field:ident $(. $part:ident)* = $value:expr),* $(,)?) => {{
        $(let value = $value;
        // SAFETY: the pointer is to room for a whole request, which the caller of the macro borrows.
        unsafe { (&raw mut (*$wr).$field $(. $part)*).write(value) };)*
    }};
}

impl Work for Request {
    type Wr = ibv_send_wr;

    #[inline]
    fn ring(qp: &QueuePair) -> &Ring {
        &qp.tx
    }

    #[inline]
    fn prepare(
        &self,
        qp: &QueuePair,
        wr: &mut MaybeUninit<ibv_send_wr>,
        cut: &mut Sges,
    ) -> Result<Posted, Status> {
        let segments = self.segments();
        if segments.len() > qp.attr.max_request_segments as usize {
            return Err(Status::INVALID);
        }
        let wr = wr.as_mut_ptr();
        let mut flags = send_flags(self.flags);
        put!(wr: next = null_mut(), sg_list = as_sges(segments), num_sge = segments.len() as i32);
        let opcode = match self.opcode {
            Opcode::SEND => IBV_WR_SEND,
            Opcode::WRITE => {
                put!(wr: wr.rdma.remote_addr = self.remote_addr, wr.rdma.rkey = self.rkey);
                IBV_WR_RDMA_WRITE
            }
            Opcode::READ => return read(qp, self, segments, wr, cut),
            _ => extended(self, wr)?,
        };
        // Not for a length of 0.
        if self.total.wrapping_sub(1) < qp.inline {
            if qp.adapter.memory.all_in_process() {
                flags |= IBV_SEND_INLINE;
            }
        } else if self.total > qp.max_message {
            return Err(Status::INVALID);
        }
        put!(wr: opcode = opcode, send_flags = flags);
        Ok(Posted { token: self.token, length: self.total as u32, mark: flags })
    }

    #[cold]
    fn refused(qp: &QueuePair) -> Status {
        if qp.live.load(Ordering::Acquire) { Status::NO_RESOURCE } else { Status::NOT_CONNECTED }
    }

    #[inline]
    unsafe fn number(qp: &QueuePair, wr: *mut ibv_send_wr, sequence: u32) {
        put!(wr: wr_id = qp.send_base | u64::from(sequence));
    }

    unsafe fn link(wr: *mut ibv_send_wr, next: *mut ibv_send_wr) {
        put!(wr: next = next);
    }

    #[inline]
    unsafe fn post(qp: &QueuePair, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: the caller prepared and numbered the list, and keeps what it was made of.
        unsafe { qp.handle.post_send(first, bad) }
    }
}

/// The rest of a read, which may be shorter than the local segments.
fn read(
    qp: &QueuePair,
    request: &Request,
    segments: &[Segment],
    wr: *mut ibv_send_wr,
    cut: &mut Sges,
) -> Result<Posted, Status> {
    let length = u64::from(request.remote_len);
    if length > request.total || length > qp.max_message {
        return Err(Status::INVALID);
    }
    if length < request.total {
        put!(wr: num_sge = cut_to(segments, length, cut), sg_list = cut.as_mut_ptr().cast());
    }
    let flags = send_flags(request.flags);
    put!(wr: wr.rdma.remote_addr = request.remote_addr, wr.rdma.rkey = request.rkey);
    put!(wr: opcode = IBV_WR_RDMA_READ, send_flags = flags);
    Ok(Posted { token: request.token, length: length as u32, mark: flags })
}

/// The further fields of the extended operations, and the device's opcode.
#[cold]
fn extended(request: &Request, wr: *mut ibv_send_wr) -> Result<c_int, Status> {
    Ok(match request.opcode {
        Opcode::WRITE_IMM => {
            put!(wr: wr.rdma.remote_addr = request.remote_addr, wr.rdma.rkey = request.rkey);
            put!(wr: imm_data = request.imm.to_be());
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Opcode::SEND_IMM => {
            put!(wr: imm_data = request.imm.to_be());
            IBV_WR_SEND_WITH_IMM
        }
        Opcode::SEND_INVALIDATE => {
            put!(wr: imm_data = request.rkey);
            IBV_WR_SEND_WITH_INV
        }
        _ => return Err(Status::NOT_SUPPORTED),
    })
}

impl Work for RecvRequest {
    type Wr = ibv_recv_wr;

    #[inline]
    fn ring(qp: &QueuePair) -> &Ring {
        &qp.rx
    }

    #[inline]
    fn prepare(
        &self,
        qp: &QueuePair,
        wr: &mut MaybeUninit<ibv_recv_wr>,
        poisoned: &mut Sges,
    ) -> Result<Posted, Status> {
        let segments = self.segments();
        if segments.len() > qp.attr.max_recv_segments as usize {
            return Err(Status::INVALID);
        }
        let wr = wr.as_mut_ptr();
        put!(wr: next = null_mut(), sg_list = as_sges(segments), num_sge = segments.len() as i32);
        let poison = self.flags.contains(PostFlag::POISON);
        if poison {
            put!(wr: num_sge = qp.poison(segments, poisoned), sg_list = poisoned.as_mut_ptr().cast());
        }
        Ok(Posted { token: self.token, length: 0, mark: poison.into() })
    }

    #[cold]
    fn refused(qp: &QueuePair) -> Status {
        match (qp.stopped.load(Ordering::Acquire), &qp.srq) {
            (true, _) => Status::NOT_CONNECTED,
            (false, Some(_)) => Status::INVALID,
            (false, None) => Status::NO_RESOURCE,
        }
    }

    #[inline]
    unsafe fn number(qp: &QueuePair, wr: *mut ibv_recv_wr, sequence: u32) {
        put!(wr: wr_id = qp.recv_base | u64::from(sequence));
    }

    unsafe fn link(wr: *mut ibv_recv_wr, next: *mut ibv_recv_wr) {
        put!(wr: next = next);
    }

    #[inline]
    unsafe fn post(qp: &QueuePair, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: the caller prepared and numbered the list, and keeps what it was made of.
        unsafe { qp.handle.post_recv(first, bad) }
    }
}

impl QueuePair {
    /// Segments that fail when a message uses them.
    #[cold]
    fn poison(&self, segments: &[Segment], out: &mut Sges) -> i32 {
        let lkey = self.adapter.memory.poison_key();
        for (sge, segment) in out.iter_mut().zip(segments) {
            sge.write(ibv_sge { addr: segment.addr(), length: segment.len(), lkey });
        }
        segments.len().min(MAX_SEGMENTS) as i32
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
        let posted = Posted { token: request.token, length: 8, mark: wr.send_flags };
        let Some(sequence) = self.tx.push(posted) else { return <Request as Work>::refused(self) };
        wr.wr_id = self.send_base | u64::from(sequence);
        let mut bad = null_mut();
        // SAFETY: all fields are written, and `sink` lives for the call. The engine keeps its registration as in `one`.
        let code = unsafe { self.handle.post_send(&raw mut wr, &raw mut bad) };
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
        let flags = send_flags(request.flags);
        let range = request.range();
        // A device wants the local right with a remote one; a window has no use for it.
        let access = memory::flags(request.access) & !IBV_ACCESS_LOCAL_WRITE;
        self.adapter.memory.bind(request.window, range.map(|range| range.lkey()), |window, region| {
            let posted = Posted { token: request.token, length: 0, mark: flags };
            let sequence = self.tx.push(posted).ok_or_else(|| <Request as Work>::refused(self))?;
            let wr_id = self.send_base | u64::from(sequence);
            let bound = region.zip(range);
            let bound = bound.map(|(mr, range)| (mr, range.addr(), u64::from(range.len()), access));
            match self.handle.bind(window, wr_id, flags, bound) {
                (0, rkey) => Ok(if range.is_some() { rkey } else { 0 }),
                (code, _) => {
                    self.tx.unpush(1);
                    Err(status::refused(code))
                }
            }
        })
    }

    /// Reports the last unsignalled success by way of a marker, unless a later completion will.
    pub(crate) fn complete_unsignalled(&self) {
        if !self.is_silent() || self.tx.is_past(self.tx.mark()) {
            return;
        }
        // There is room for one marker. When it comes back, another one follows.
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
            self.complete_unsignalled();
        }
    }

    /// Posts a write of no bytes, for which a peer needs no key. When it completes, all requests before it are done; those
    /// that failed completed with an error.
    pub(crate) fn post_marker(&self) -> bool {
        let mut wr = BLANK_SEND;
        wr.wr_id = WorkId::marker(self.send_base, self.tx.next_sequence()).0;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        let mut bad = null_mut();
        // SAFETY: all fields are written, and there are no segments.
        let code = unsafe { self.handle.post_send(&raw mut wr, &raw mut bad) };
        code == 0
    }

    /// The last request is unsignalled, so that its success leaves no completion.
    pub(crate) fn is_silent(&self) -> bool {
        self.tx.last_mark() & IBV_SEND_SIGNALED == 0
    }
}

/// Requests posted to the device in one call.
const LIST: usize = 8;

/// The interface's flags as the device's.
#[inline]
fn send_flags(flags: PostFlag) -> u32 {
    FLAGS[usize::from(flags.0) & (FLAGS.len() - 1)].into()
}

/// Indexed by the low bits of the interface's flags: one load instead of a test for each flag.
const FLAGS: [u8; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < table.len() {
        let flags = bits as u16;
        let mut out = if flags & PostFlag::UNSIGNALLED.0 == 0 { IBV_SEND_SIGNALED } else { 0 };
        if flags & PostFlag::SOLICITED.0 != 0 {
            out |= IBV_SEND_SOLICITED;
        }
        if flags & PostFlag::FENCE.0 != 0 {
            out |= IBV_SEND_FENCE;
        }
        table[bits] = out as u8;
        bits += 1;
    }
    table
};

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
    fn flags_become_the_devices() {
        let of = |flags: PostFlag| send_flags(flags);
        assert_eq!(of(PostFlag::NONE), IBV_SEND_SIGNALED);
        assert_eq!(of(PostFlag::UNSIGNALLED), 0);
        assert_eq!(of(PostFlag::SOLICITED), IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
        assert_eq!(of(PostFlag::FENCE), IBV_SEND_SIGNALED | IBV_SEND_FENCE);
        let all = PostFlag::UNSIGNALLED | PostFlag::SOLICITED | PostFlag::FENCE;
        assert_eq!(of(all), IBV_SEND_SOLICITED | IBV_SEND_FENCE);
        let known = PostFlag::ALL.iter().fold(0, |known, (_, flag)| known | flag.0);
        assert!(usize::from(known) < FLAGS.len(), "every flag is looked at");
    }
}
