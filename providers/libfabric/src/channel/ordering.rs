//! Order that some fabrics do not keep: a message after a write must find the written bytes, and a read or write must find
//! the bytes of an earlier write to the same memory.

use dat_plugin::Opcode;
use libfabric_sys::consts::{FI_ORDER_RAW, FI_ORDER_SAW, FI_ORDER_WAW};

use crate::channel::ring::{Request, Stage};
use crate::channel::{ChannelInner, State};

impl ChannelInner {
    /// Whether this request must wait because the fabric may let it visibly overtake a write.
    pub fn must_follow_writes(&self, st: &State, request: &Request) -> bool {
        let kept = |order| self.core.fabric.limits.order & order != 0;
        match request.opcode {
            Opcode::SEND | Opcode::SEND_IMM => !kept(FI_ORDER_SAW),
            Opcode::BIND => false,
            Opcode::WRITE | Opcode::WRITE_IMM => !kept(FI_ORDER_WAW) && self.overlaps_write(st, request),
            _ => !kept(FI_ORDER_RAW) && self.overlaps_write(st, request),
        }
    }

    /// Whether a write to some of the same memory is under way.
    fn overlaps_write(&self, st: &State, request: &Request) -> bool {
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
