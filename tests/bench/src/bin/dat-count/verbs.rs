//! libibverbs called directly, as a program without DAT does: what the ibverbs provider cannot be cheaper than.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rdma_sys::verbs::*;

use crate::layers::{BATCH, Layer};

pub(crate) struct Verbs {
    pairs: [*mut ibv_qp; 2],
    queues: [*mut ibv_cq; 2],
    segments: [ibv_sge; 2],
    number: u64,
}

impl Verbs {
    /// Two connected queue pairs of the first device, which must be able to connect them by number alone.
    pub(crate) fn new() -> Verbs {
        let lib = rdma_sys::libraries().expect("libibverbs");
        let verbs = &lib.verbs;
        let mut sides = [(null_mut(), null_mut(), ibv_sge { addr: 0, length: 8, lkey: 0 }); 2];
        // SAFETY: plain calls in the order of the manual; nothing is freed before the process ends.
        unsafe {
            let mut count = 0;
            let list = (verbs.ibv_get_device_list)(&raw mut count);
            assert!(!list.is_null() && count > 0, "there is no device");
            let context = (verbs.ibv_open_device)(*list);
            assert!(!context.is_null(), "the device does not open");
            let pd = (verbs.ibv_alloc_pd)(context);
            for (pair, queue, segment) in &mut sides {
                *queue = (verbs.ibv_create_cq)(context, 4 * BATCH as c_int, null_mut(), null_mut(), 0);
                let work = 2 * BATCH as u32;
                let cap = ibv_qp_cap {
                    max_send_wr: work,
                    max_recv_wr: work,
                    max_send_sge: 4,
                    max_recv_sge: 4,
                    max_inline_data: 64,
                };
                let mut init = ibv_qp_init_attr {
                    qp_context: null_mut(),
                    send_cq: *queue,
                    recv_cq: *queue,
                    srq: null_mut(),
                    cap,
                    qp_type: IBV_QPT_RC,
                    sq_sig_all: 0,
                };
                *pair = (verbs.ibv_create_qp)(pd, &raw mut init);
                assert!(!pair.is_null(), "no queue pair");
                let memory = Box::leak(Box::new([0u8; 4096]));
                let access = IBV_ACCESS_LOCAL_WRITE;
                let region = (verbs.ibv_reg_mr)(pd, memory.as_mut_ptr().cast(), memory.len(), access);
                segment.addr = memory.as_ptr() as u64;
                segment.lkey = (*region).lkey;
            }
            for (pair, peer) in [(sides[0].0, sides[1].0), (sides[1].0, sides[0].0)] {
                for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
                    let mut attr: ibv_qp_attr = std::mem::zeroed();
                    attr.qp_state = state;
                    attr.dest_qp_num = (*peer).qp_num;
                    let of_peer = if state == IBV_QPS_RTR { IBV_QP_DEST_QPN } else { 0 };
                    let code = (verbs.ibv_modify_qp)(pair, &raw mut attr, IBV_QP_STATE | of_peer);
                    assert_eq!(code, 0, "to state {state}");
                }
            }
        }
        Verbs {
            pairs: sides.map(|side| side.0),
            queues: sides.map(|side| side.1),
            segments: sides.map(|side| side.2),
            number: 0,
        }
    }

    #[inline]
    fn poll(&self, side: usize) -> usize {
        let mut out = MaybeUninit::<ibv_wc>::uninit();
        // SAFETY: the queue lives, there is room for one.
        let n = unsafe { ibv_poll_cq(self.queues[side], 1, out.as_mut_ptr()) };
        if n == 1 {
            // SAFETY: filled by the call.
            assert_eq!(unsafe { out.assume_init_ref() }.status, IBV_WC_SUCCESS);
        }
        n as usize
    }

    fn take(&self, side: usize) {
        let mut left = BATCH;
        while left > 0 {
            left -= self.poll(side);
        }
    }
}

impl Layer for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn post_recvs(&mut self) {
        for _ in 0..BATCH {
            let mut wr = ibv_recv_wr {
                wr_id: self.number,
                next: null_mut(),
                sg_list: &raw mut self.segments[1],
                num_sge: 1,
            };
            let mut bad = null_mut();
            // SAFETY: the pair lives, the request does for the call, its memory is never freed.
            assert_eq!(unsafe { ibv_post_recv(self.pairs[1], &raw mut wr, &raw mut bad) }, 0);
            self.number += 1;
        }
    }

    fn post_sends(&mut self) {
        for _ in 0..BATCH {
            let rdma = ibv_rdma { remote_addr: 0, rkey: 0 };
            let bind_info = ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
            let mut wr = ibv_send_wr {
                wr_id: self.number,
                next: null_mut(),
                sg_list: &raw mut self.segments[0],
                num_sge: 1,
                opcode: IBV_WR_SEND,
                send_flags: IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                imm_data: 0,
                wr: ibv_send_wr_remote { rdma },
                remote_srqn: 0,
                bind_mw: ibv_send_wr_bind { mw: null_mut(), rkey: 0, bind_info },
            };
            let mut bad = null_mut();
            // SAFETY: as above.
            assert_eq!(unsafe { ibv_post_send(self.pairs[0], &raw mut wr, &raw mut bad) }, 0);
            self.number += 1;
        }
    }

    fn take_recvs(&mut self) {
        self.take(1);
    }

    fn take_sends(&mut self) {
        self.take(0);
    }

    fn poll_nothing(&mut self) {
        for _ in 0..BATCH {
            assert_eq!(self.poll(1), 0);
        }
    }
}
