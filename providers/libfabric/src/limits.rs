//! What a fabric can do, and which it cannot do without.

use std::mem::size_of;

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::types::{fi_cq_data_entry, fi_cq_tagged_entry, fi_info};

use crate::endpoint::MAX_INJECT;
use crate::params::{Endpoint, Params};
use crate::wire::{Head, PAYLOAD};

/// What the fabric can do, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub mr_mode: i32,
    pub mr_key_size: usize,
    pub iov: usize,
    pub max_message: u64,
    pub cm_data: usize,
    /// Writes may complete when their bytes are in the peer's memory, rather than on their way.
    pub delivery: bool,
    pub atomics: bool,
    /// What the fabric keeps in order (`FI_ORDER_*`).
    pub order: u64,
    /// Immediate data is too little for the books of a connection, or uses a receive: frames hold them.
    pub framed: bool,
    /// Messages up to this length may be copied by the call that sends them.
    pub inject: usize,
}

impl Limits {
    /// Bytes of an entry of a completion queue.
    pub fn entry_size(&self) -> usize {
        if self.framed { size_of::<fi_cq_data_entry>() } else { size_of::<fi_cq_tagged_entry>() }
    }
}

/// Reads it from an entry of the library's; refuses a fabric that does not do.
pub fn limits_of(info: &fi_info, params: &Params) -> Result<Limits, Failure> {
    // SAFETY: an entry of the library's has all attributes.
    let (tx, rx, ep, domain) =
        unsafe { (&*info.tx_attr, &*info.rx_attr, &*info.ep_attr, &*info.domain_attr) };
    let refuse = |why: String| {
        let message = format!("{}: fabric {:?} {why}", params.ia_name, params.fabric);
        Err(Failure::new(Status::NOT_SUPPORTED, message))
    };
    let both = info.mode | tx.mode | rx.mode | domain.mode;
    let little = domain.cq_data_size < 8 || both & FI_RX_CQ_DATA != 0 || params.frames;
    if little && params.endpoint == Endpoint::Rdm {
        return refuse(format!(
            "carries {} bytes of immediate data; with datagrams 8 are needed for the books of a connection",
            domain.cq_data_size
        ));
    }
    if both & !(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA) != 0 {
        return refuse(format!("asks for mode bits {both:#x}, which this provider does not have"));
    }
    if domain.mr_mode & FI_MR_RAW != 0 {
        return refuse("has keys that do not fit 64 bits (FI_MR_RAW)".into());
    }
    if params.endpoint == Endpoint::Msg && domain.mr_mode & FI_MR_ENDPOINT != 0 {
        return refuse("binds memory to single connected endpoints (FI_MR_ENDPOINT)".into());
    }
    if tx.msg_order & FI_ORDER_SAS == 0 {
        return refuse("does not keep messages in order (FI_ORDER_SAS)".into());
    }
    let iov = tx.iov_limit.min(rx.iov_limit);
    if little && (tx.inject_size < Head::SIZE + PAYLOAD || iov < 2) {
        return refuse(format!(
            "injects {} bytes and has {iov} segments; frames need {} and 2",
            tx.inject_size,
            Head::SIZE + PAYLOAD
        ));
    }
    Ok(Limits {
        mr_mode: domain.mr_mode,
        mr_key_size: domain.mr_key_size,
        iov,
        framed: little,
        max_message: ep.max_msg_size as u64,
        cm_data: 256,
        delivery: false,
        atomics: false,
        inject: tx.inject_size.min(MAX_INJECT),
        order: tx.msg_order,
    })
}
