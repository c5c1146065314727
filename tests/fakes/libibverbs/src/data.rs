//! The data path: what the inline functions of `infiniband/verbs.h` reach through the context's table.

use std::ffi::c_int;
use std::time::Instant;

use rdma_sys::verbs::*;

use crate::common::signal;
use crate::world::{Pair, Queue, Receive, Request, SEGMENTS, Waiting, World, flush_delay, lock};

/// `ibv_post_send`.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let world = lock();
    // SAFETY: the caller's promise of `ibv_post_send`; every queue pair is the first field of a `Pair`.
    unsafe {
        let pair = qp.cast::<Pair>();
        while !wr.is_null() {
            let code = request(&world, pair, &*wr);
            if code != 0 {
                *bad = wr;
                return code;
            }
            wr = (*wr).next;
        }
    }
    drop(world);
    0
}

/// `ibv_post_recv`.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let world = lock();
    // SAFETY: the caller's promise of `ibv_post_recv`; every queue pair is the first field of a `Pair`.
    unsafe {
        let pair = qp.cast::<Pair>();
        while !wr.is_null() {
            let code = receive(&world, pair, &*wr);
            if code != 0 {
                *bad = wr;
                return code;
            }
            wr = (*wr).next;
        }
    }
    drop(world);
    0
}

/// `ibv_poll_cq`.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, out: *mut ibv_wc) -> c_int {
    let world = lock();
    // SAFETY: the caller's promise of `ibv_poll_cq`.
    let taken = unsafe {
        let Queue { done, late, .. } = &mut *cq.cast::<Queue>();
        if !late.is_empty() {
            let now = Instant::now();
            while let Some((_, completion)) = late.pop_front_if(|(due, _)| *due <= now) {
                done.push_back(completion);
            }
        }
        let count = done.len().min(entries.max(0) as usize);
        for (at, completion) in done.drain(..count).enumerate() {
            out.add(at).write(completion);
        }
        count as c_int
    };
    drop(world);
    taken
}

/// `ibv_req_notify_cq`.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, _solicited_only: c_int) -> c_int {
    let world = lock();
    // SAFETY: the caller's promise.
    unsafe { (*cq.cast::<Queue>()).armed = true };
    drop(world);
    0
}

unsafe fn request(world: &World, pair: *mut Pair, wr: &ibv_send_wr) -> c_int {
    // SAFETY: the list of a posted request, as long as it says; the pair lives.
    unsafe {
        let segments = std::slice::from_raw_parts(wr.sg_list, wr.num_sge.max(0) as usize);
        let segments = if wr.num_sge == 0 { &[] } else { segments };
        let mut mapped = [ibv_sge { addr: 0, length: 0, lkey: 0 }; SEGMENTS];
        let segments = match world.dmabufs.is_empty() {
            true => segments,
            // A driver copies inline segments from their address with the processor, which has no such page.
            false
                if wr.send_flags & IBV_SEND_INLINE != 0
                    && segments.iter().any(|segment| world.dmabufs.contains_key(&segment.lkey)) =>
            {
                return libc::EFAULT;
            }
            false => {
                for (to, segment) in mapped.iter_mut().zip(segments) {
                    *to = world.mapped(segment);
                }
                &mapped[..segments.len()]
            }
        };
        let mut request = Request {
            id: wr.wr_id,
            opcode: IBV_WC_SEND,
            signalled: wr.send_flags & IBV_SEND_SIGNALED != 0,
            value: None,
            written: None,
        };
        match (*pair).base.state {
            IBV_QPS_RTS => {}
            IBV_QPS_ERR => {
                sent(pair, &request, IBV_WC_WR_FLUSH_ERR);
                return 0;
            }
            _ => return libc::EINVAL,
        }
        let peer = (*pair).peer;
        if peer.is_null() || !matches!((*peer).base.state, IBV_QPS_RTR | IBV_QPS_RTS) {
            sent(pair, &request, IBV_WC_RETRY_EXC_ERR);
            break_down(pair);
            return 0;
        }
        // As a driver does: no field is looked at that the operation has no use for, for it may not be written.
        match wr.opcode {
            IBV_WR_SEND => return message(pair, segments, request),
            IBV_WR_SEND_WITH_IMM => {
                return message(pair, segments, Request { value: Some(wr.imm_data), ..request });
            }
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => {
                request.opcode = IBV_WC_RDMA_WRITE;
                if !is_granted(world, peer, wr, segments, IBV_ACCESS_REMOTE_WRITE) {
                    return refuse(pair, &request);
                }
                let mut to = wr.wr.rdma.remote_addr as *mut u8;
                for segment in segments {
                    std::ptr::copy(segment.addr as *const u8, to, segment.length as usize);
                    to = to.add(segment.length as usize);
                }
                if wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM {
                    request.value = Some(wr.imm_data);
                    request.written = Some(segments.iter().map(|segment| segment.length).sum());
                    return message(pair, &[], request);
                }
            }
            IBV_WR_RDMA_READ => {
                request.opcode = IBV_WC_RDMA_READ;
                if !is_granted(world, peer, wr, segments, IBV_ACCESS_REMOTE_READ) {
                    return refuse(pair, &request);
                }
                let mut from = wr.wr.rdma.remote_addr as *const u8;
                for segment in segments {
                    std::ptr::copy(from, segment.addr as *mut u8, segment.length as usize);
                    from = from.add(segment.length as usize);
                }
            }
            _ => return libc::EOPNOTSUPP,
        }
        sent(pair, &request, IBV_WC_SUCCESS);
        0
    }
}

/// Whether the peer's registration allows the access. One of no bytes is not checked.
unsafe fn is_granted(
    world: &World,
    peer: *mut Pair,
    wr: &ibv_send_wr,
    segments: &[ibv_sge],
    right: c_int,
) -> bool {
    let len = segments.iter().map(|segment| u64::from(segment.length)).sum();
    // SAFETY: a connected pair; the request is a write or a read.
    unsafe {
        let rdma = wr.wr.rdma;
        len == 0 || world.grants(rdma.rkey, (*peer).base.pd as usize, (rdma.remote_addr, len), right)
    }
}

/// Refuses an access: the device at the other end fails its queue pair, the one here learns of it.
unsafe fn refuse(pair: *mut Pair, request: &Request) -> c_int {
    // SAFETY: a connected pair and its peer.
    unsafe {
        sent(pair, request, IBV_WC_REM_ACCESS_ERR);
        break_down((*pair).peer);
        break_down(pair);
    }
    0
}

/// Matches a message with the peer's oldest receive, or lets it wait for one.
unsafe fn message(pair: *mut Pair, segments: &[ibv_sge], request: Request) -> c_int {
    // SAFETY: a connected pair and its peer; segments of the application's memory, registered and in use for this.
    unsafe {
        let peer = (*pair).peer;
        if (*pair).waiting.is_empty()
            && let Some(receive) = (*peer).receives.pop_front()
        {
            deliver(pair, &receive, segments, &request);
        } else {
            let bytes = segments
                .iter()
                .flat_map(|segment| {
                    std::slice::from_raw_parts(segment.addr as *const u8, segment.length as usize)
                })
                .copied()
                .collect();
            (*pair).waiting.push_back(Waiting { bytes, request });
        }
        0
    }
}

unsafe fn receive(world: &World, pair: *mut Pair, wr: &ibv_recv_wr) -> c_int {
    // SAFETY: as in `request`.
    unsafe {
        let count = wr.num_sge.max(0) as usize;
        if count > SEGMENTS || (*pair).receives.len() >= (*pair).receives_limit {
            return libc::ENOMEM;
        }
        let nothing = ibv_sge { addr: 0, length: 0, lkey: 0 };
        let mut posted = Receive { id: wr.wr_id, count, segments: [nothing; SEGMENTS] };
        for (at, segment) in posted.segments[..count].iter_mut().enumerate() {
            *segment = world.mapped(&*wr.sg_list.add(at));
        }
        match (*pair).base.state {
            IBV_QPS_RESET => return libc::EINVAL,
            IBV_QPS_ERR => {
                received(pair, &posted, &blank(), IBV_WC_WR_FLUSH_ERR, 0);
                return 0;
            }
            _ => {}
        }
        let peer = (*pair).peer;
        let waits = if peer.is_null() { None } else { (*peer).waiting.pop_front() };
        match waits {
            Some(Waiting { bytes, request }) => {
                let whole = ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 };
                deliver(peer, &posted, &[whole], &request);
            }
            None => (*pair).receives.push_back(posted),
        }
        0
    }
}

/// Copies a message of `pair` to a receive of its peer, and completes both.
unsafe fn deliver(pair: *mut Pair, receive: &Receive, from: &[ibv_sge], request: &Request) {
    // SAFETY: as in `message`.
    unsafe {
        let peer = (*pair).peer;
        match scatter(from, &receive.segments[..receive.count]) {
            Some(length) => {
                let length = request.written.unwrap_or(length);
                received(peer, receive, request, IBV_WC_SUCCESS, length);
                sent(pair, request, IBV_WC_SUCCESS);
            }
            None => {
                received(peer, receive, request, IBV_WC_LOC_LEN_ERR, 0);
                sent(pair, request, IBV_WC_REM_INV_REQ_ERR);
                break_down(peer);
                break_down(pair);
            }
        }
    }
}

/// Copies a gather list to a scatter list: the bytes copied, or `None` when they do not fit.
unsafe fn scatter(from: &[ibv_sge], to: &[ibv_sge]) -> Option<u32> {
    let sum = |list: &[ibv_sge]| list.iter().map(|segment| u64::from(segment.length)).sum::<u64>();
    let total = sum(from);
    if total > sum(to) {
        return None;
    }
    let mut targets = to.iter();
    let (mut at, mut room) = (0u64, 0u32);
    for segment in from {
        let (mut source, mut left) = (segment.addr, segment.length);
        while left > 0 {
            if room == 0 {
                // The sum says that there is another one.
                let next = targets.next()?;
                (at, room) = (next.addr, next.length);
            }
            let count = left.min(room);
            // SAFETY: within both lists, whose memory the callers keep.
            unsafe { std::ptr::copy(source as *const u8, at as *mut u8, count as usize) };
            (source, left) = (source + u64::from(count), left - count);
            (at, room) = (at + u64::from(count), room - count);
        }
    }
    Some(total as u32)
}

/// Forgets the completions of a queue pair that were not taken, as a driver does when the queue pair is reset.
pub unsafe fn forget_completions(pair: *mut Pair) {
    // SAFETY: the pair lives; its queues outlive it.
    unsafe {
        let number = (*pair).base.qp_num;
        for queue in [(*pair).base.send_cq, (*pair).base.recv_cq] {
            let queue = &mut *queue.cast::<Queue>();
            queue.done.retain(|completion| completion.qp_num != number);
            queue.late.retain(|(_, completion)| completion.qp_num != number);
        }
    }
}

/// Brings a queue pair to its error state and gives its work back.
pub unsafe fn break_down(pair: *mut Pair) {
    // SAFETY: the pair lives; its queues outlive it.
    unsafe {
        if (*pair).base.state == IBV_QPS_ERR {
            return;
        }
        (*pair).base.state = IBV_QPS_ERR;
        for waiting in std::mem::take(&mut (*pair).waiting) {
            sent(pair, &waiting.request, IBV_WC_WR_FLUSH_ERR);
        }
        for receive in std::mem::take(&mut (*pair).receives) {
            received(pair, &receive, &blank(), IBV_WC_WR_FLUSH_ERR, 0);
        }
    }
}

fn blank() -> Request {
    Request { id: 0, opcode: IBV_WC_SEND, signalled: true, value: None, written: None }
}

/// Completes a request, if it is signalled or failed.
unsafe fn sent(pair: *mut Pair, request: &Request, status: c_int) {
    if request.signalled || status != IBV_WC_SUCCESS {
        // SAFETY: the pair lives.
        unsafe { complete((*pair).base.send_cq, pair, request.id, status, request.opcode, 0, None) };
    }
}

unsafe fn received(pair: *mut Pair, receive: &Receive, request: &Request, status: c_int, length: u32) {
    let opcode = if request.written.is_some() { IBV_WC_RECV_RDMA_WITH_IMM } else { IBV_WC_RECV };
    // SAFETY: the pair lives.
    unsafe { complete((*pair).base.recv_cq, pair, receive.id, status, opcode, length, request.value) };
}

unsafe fn complete(
    queue: *mut ibv_cq,
    pair: *mut Pair,
    wr_id: u64,
    status: c_int,
    opcode: c_int,
    byte_len: u32,
    value: Option<u32>,
) {
    // SAFETY: a queue outlives its pairs.
    unsafe {
        let queue = &mut *queue.cast::<Queue>();
        let completion = ibv_wc {
            wr_id,
            status,
            opcode,
            vendor_err: 0,
            byte_len,
            imm_data: value.unwrap_or(0),
            qp_num: (*pair).base.qp_num,
            src_qp: 0,
            wc_flags: if value.is_some() { IBV_WC_WITH_IMM } else { 0 },
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        if status == IBV_WC_WR_FLUSH_ERR && !flush_delay().is_zero() {
            // Not reported on the channel: a waiting thread looks again.
            queue.late.push_back((Instant::now() + flush_delay(), completion));
            return;
        }
        queue.done.push_back(completion);
        if queue.armed && !queue.base.channel.is_null() {
            queue.armed = false;
            signal((*queue.base.channel).fd);
        }
    }
}
