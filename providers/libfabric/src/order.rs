//! What a fabric does not keep in order by itself: a message after a write must find the bytes written, and a read or write
//! the bytes of an earlier write to the same memory.

use dat_plugin::Opcode;
use libfabric_sys::consts::{FI_ORDER_RAW, FI_ORDER_SAW, FI_ORDER_WAW};

use crate::channel::{Chan, State};
use crate::work::{Request, Stage};

impl Chan {
    /// Whether the fabric might let this request overtake a write that is under way, and that could be seen.
    pub fn must_follow_writes(&self, st: &State, request: &Request) -> bool {
        let kept = |order| self.dev.fabric.limits.order & order != 0;
        match request.opcode {
            Opcode::SEND | Opcode::SEND_IMM => !kept(FI_ORDER_SAW),
            Opcode::BIND => false,
            Opcode::WRITE | Opcode::WRITE_IMM => !kept(FI_ORDER_WAW) && self.meets_a_write(st, request),
            _ => !kept(FI_ORDER_RAW) && self.meets_a_write(st, request),
        }
    }

    /// Whether a write to some of the same memory is under way.
    fn meets_a_write(&self, st: &State, request: &Request) -> bool {
        let range =
            |request: &Request| (request.remote_addr, request.remote_addr.saturating_add(request.len.into()));
        let (from, to) = range(request);
        let outstanding = st.requests.next.wrapping_sub(st.requests.head);
        (0..outstanding).map(|ahead| st.requests.slot(st.requests.head.wrapping_add(ahead))).any(|earlier| {
            let (begin, end) = range(earlier);
            earlier.is_write() && earlier.stage == Stage::Started && begin < to && from < end
        })
    }
}
