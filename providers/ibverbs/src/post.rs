//! Posting: the interface's requests become the device's. No lock, no allocation, no system call of this provider's.
//!
//! A request of the device's is written where it is needed and no further: a driver looks at no field that its operation
//! has no use for, and clearing them all would take as many instructions as all the rest of a send.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use dat_plugin::{AtomicRequest, BindRequest, Opcode, PostFlag, RecvRequest, Request, Segment, Status};
use rdma_sys::verbs::*;

use crate::channel::Chan;
use crate::memory;
use crate::ring::{Posted, Ring};
use crate::status;
use crate::work::WorkId;

/// The most segments of a request.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// The interface's segments as the device's: the two have the same layout, which the test below shows.
#[inline]
pub(crate) fn as_sges(segments: &[Segment]) -> *mut ibv_sge {
    segments.as_ptr().cast::<ibv_sge>().cast_mut()
}

/// What is posted one by one or in lists: a request or a receive.
pub(crate) trait Work {
    /// The device's form of it.
    type Wr;

    fn ring(chan: &Chan) -> &Ring;

    /// Writes all that the device looks at but its number; segments that differ from those of `self` go to `sges`.
    fn prepare(&self, chan: &Chan, wr: &mut MaybeUninit<Self::Wr>, sges: &mut Sges)
    -> Result<Posted, Status>;

    /// Why the ring takes no more.
    fn refused(chan: &Chan) -> Status;

    /// Writes the number of the post.
    ///
    /// # Safety
    /// `wr` was prepared.
    unsafe fn number(chan: &Chan, wr: *mut Self::Wr, sequence: u32);

    /// Has another one follow.
    ///
    /// # Safety
    /// Both were prepared.
    unsafe fn link(wr: *mut Self::Wr, next: *mut Self::Wr);

    /// Posts a list; the result is an error number, and with it the first that was not taken is in `bad`.
    ///
    /// # Safety
    /// All were prepared and numbered; what they were made of lives for the call.
    unsafe fn post(chan: &Chan, first: *mut Self::Wr, bad: *mut *mut Self::Wr) -> c_int;
}

/// Posts one.
#[inline(always)]
pub(crate) fn one<W: Work>(chan: &Chan, work: &W) -> Status {
    let mut sges = NO_SGES;
    let mut wr = MaybeUninit::uninit();
    let posted = match work.prepare(chan, &mut wr, &mut sges) {
        Ok(posted) => posted,
        Err(status) => return status,
    };
    let Some(sequence) = W::ring(chan).push(posted) else { return W::refused(chan) };
    let mut bad = MaybeUninit::uninit();
    // SAFETY: just prepared; the engine checked the segments against live registrations, and keeps them until they
    // completed or the channel stopped; the rest lives for the call, which copies what it needs.
    let code = unsafe {
        W::number(chan, wr.as_mut_ptr(), sequence);
        W::post(chan, wr.as_mut_ptr(), bad.as_mut_ptr())
    };
    if code != 0 {
        W::ring(chan).unpush(1);
        return status::refused(code);
    }
    Status::OK
}

/// Posts in order, up to the first that is not accepted: how many were, and why no more.
pub(crate) fn list<W: Work>(chan: &Chan, works: &[W]) -> (usize, Status) {
    let mut done = 0;
    for works in works.chunks(LIST) {
        let mut sges = [NO_SGES; LIST];
        let mut list = [const { MaybeUninit::uninit() }; LIST];
        let mut n = 0;
        let mut stop = Status::OK;
        for (work, (wr, sges)) in works.iter().zip(list.iter_mut().zip(&mut sges)) {
            let pushed = work
                .prepare(chan, wr, sges)
                .and_then(|posted| W::ring(chan).push(posted).ok_or_else(|| W::refused(chan)));
            match pushed {
                // SAFETY: just prepared.
                Ok(sequence) => unsafe { W::number(chan, wr.as_mut_ptr(), sequence) },
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
        // SAFETY: the first `n` of this array were prepared and numbered; the rest as in `one`.
        let (code, taken) = unsafe {
            for i in 1..n {
                W::link(first.add(i - 1), first.add(i));
            }
            let code = W::post(chan, first, &raw mut bad);
            (code, if code == 0 { n } else { bad.offset_from(first).clamp(0, n as isize) as usize })
        };
        W::ring(chan).unpush((n - taken) as u32);
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
        // SAFETY: room for the whole, which the caller of this borrows.
        unsafe { (&raw mut (*$wr).$field $(. $part)*).write(value) };)*
    }};
}

impl Work for Request {
    type Wr = ibv_send_wr;

    #[inline(always)]
    fn ring(chan: &Chan) -> &Ring {
        &chan.tx
    }

    #[inline(always)]
    fn prepare(
        &self,
        chan: &Chan,
        wr: &mut MaybeUninit<ibv_send_wr>,
        cut: &mut Sges,
    ) -> Result<Posted, Status> {
        let segments = self.segments();
        if segments.len() > chan.attr.max_request_segments as usize {
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
            Opcode::READ => return read(chan, self, segments, wr, cut),
            _ => extended(self, wr)?,
        };
        // Not for a length of 0.
        if self.total.wrapping_sub(1) < chan.inline {
            flags |= IBV_SEND_INLINE;
        } else if self.total > chan.max_message {
            return Err(Status::INVALID);
        }
        put!(wr: opcode = opcode, send_flags = flags);
        Ok(Posted { token: self.token, length: self.total as u32, mark: flags })
    }

    #[cold]
    fn refused(chan: &Chan) -> Status {
        if chan.live.load(Ordering::Acquire) { Status::NO_RESOURCE } else { Status::NOT_CONNECTED }
    }

    #[inline(always)]
    unsafe fn number(chan: &Chan, wr: *mut ibv_send_wr, sequence: u32) {
        put!(wr: wr_id = chan.send_base | u64::from(sequence));
    }

    unsafe fn link(wr: *mut ibv_send_wr, next: *mut ibv_send_wr) {
        put!(wr: next = next);
    }

    #[inline(always)]
    unsafe fn post(chan: &Chan, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { chan.qp.post_send(first, bad) }
    }
}

/// The rest of a read, which may ask for less than there is room for.
#[inline(never)]
fn read(
    chan: &Chan,
    request: &Request,
    segments: &[Segment],
    wr: *mut ibv_send_wr,
    cut: &mut Sges,
) -> Result<Posted, Status> {
    let length = u64::from(request.remote_len);
    if length > request.total || length > chan.max_message {
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

/// What the extended operations have more, and their number at the device.
#[inline(never)]
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

    #[inline(always)]
    fn ring(chan: &Chan) -> &Ring {
        &chan.rx
    }

    #[inline(always)]
    fn prepare(
        &self,
        chan: &Chan,
        wr: &mut MaybeUninit<ibv_recv_wr>,
        poisoned: &mut Sges,
    ) -> Result<Posted, Status> {
        let segments = self.segments();
        if segments.len() > chan.attr.max_recv_segments as usize {
            return Err(Status::INVALID);
        }
        let wr = wr.as_mut_ptr();
        put!(wr: next = null_mut(), sg_list = as_sges(segments), num_sge = segments.len() as i32);
        let poison = self.flags.contains(PostFlag::POISON);
        if poison {
            put!(wr: num_sge = chan.poison(segments, poisoned), sg_list = poisoned.as_mut_ptr().cast());
        }
        Ok(Posted { token: self.token, length: 0, mark: poison.into() })
    }

    #[cold]
    fn refused(chan: &Chan) -> Status {
        match (chan.stopped.load(Ordering::Acquire), &chan.srq) {
            (true, _) => Status::NOT_CONNECTED,
            (false, Some(_)) => Status::INVALID,
            (false, None) => Status::NO_RESOURCE,
        }
    }

    #[inline(always)]
    unsafe fn number(chan: &Chan, wr: *mut ibv_recv_wr, sequence: u32) {
        put!(wr: wr_id = chan.recv_base | u64::from(sequence));
    }

    unsafe fn link(wr: *mut ibv_recv_wr, next: *mut ibv_recv_wr) {
        put!(wr: next = next);
    }

    #[inline(always)]
    unsafe fn post(chan: &Chan, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { chan.qp.post_recv(first, bad) }
    }
}

impl Chan {
    /// Segments that fail when a message uses them.
    #[cold]
    fn poison(&self, segments: &[Segment], out: &mut Sges) -> i32 {
        let lkey = self.dev.memory.poison_key();
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
        // SAFETY: as in `one`.
        let code = unsafe { self.qp.post_send(&raw mut wr, &raw mut bad) };
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
        let flags = send_flags(request.flags);
        let posted = Posted { token: request.token, length: 0, mark: flags };
        let sequence = self.tx.push(posted).ok_or_else(|| <Request as Work>::refused(self))?;
        let wr_id = self.send_base | u64::from(sequence);
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
        if !self.is_silent() || self.tx.is_past(self.tx.mark()) {
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
        let mut bad = null_mut();
        // SAFETY: no segments.
        let code = unsafe { self.qp.post_send(&raw mut wr, &raw mut bad) };
        code == 0
    }

    /// The last request asked for no completion, so that its end shows with nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.tx.last_mark() & IBV_SEND_SIGNALED == 0
    }
}

/// Requests posted to the device in one call.
const LIST: usize = 8;

/// The interface's flags as the device's.
#[inline(always)]
fn send_flags(flags: PostFlag) -> u32 {
    FLAGS[usize::from(flags.0) & (FLAGS.len() - 1)].into()
}

/// By the low bits of the interface's flags: one look instead of a question for each.
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
