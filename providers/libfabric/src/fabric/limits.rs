//! What a fabric can do, and what this provider requires of it.

use std::mem::size_of;

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::types::{fi_cq_data_entry, fi_cq_tagged_entry, fi_info};

use crate::params::{Endpoint, Params};
use crate::wire::control::PAYLOAD;
use crate::wire::head::Head;

/// Entries of the completion queue.
pub const CQ_SIZE: usize = 8192;

/// Most segments of one post, on any fabric.
pub const MAX_SEGMENTS: usize = 16;

/// Longest message that the call copies.
pub const MAX_INJECT: usize = 256;

/// With frames: receives for frames of a channel, and frames it may have on their way.
pub const FRAMES_IN: u32 = 16;
pub const FRAMES_OUT: u32 = 32;

/// What the fabric can do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub mr_mode: i32,
    pub mr_key_size: usize,
    pub iov: usize,
    pub max_message: u64,
    pub cm_data: usize,
    /// Writes can be asked to complete when their bytes are in the peer's memory (FI_DELIVERY_COMPLETE).
    pub delivery: bool,
    pub atomics: bool,
    /// Orderings that the fabric keeps (`FI_ORDER_*`).
    pub order: u64,
    /// Immediate data is too short for credit, or uses a receive. So messages travel in frames.
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

/// Reads the limits from an entry of `fi_getinfo`; refuses a fabric that lacks something required.
pub fn limits_of(info: &fi_info, params: &Params) -> Result<Limits, Failure> {
    // SAFETY: libfabric allocated the entry, with all attributes; `Info` keeps it.
    let (tx, rx, ep, domain) =
        unsafe { (&*info.tx_attr, &*info.rx_attr, &*info.ep_attr, &*info.domain_attr) };
    let refuse = |why: String| {
        let message = format!("{}: fabric {:?} {why}", params.ia_name, params.fabric);
        Err(Failure::new(Status::NOT_SUPPORTED, message))
    };
    let both = info.mode | tx.mode | rx.mode | domain.mode;
    let short = domain.cq_data_size < 8 || both & FI_RX_CQ_DATA != 0 || params.frames;
    if short && params.endpoint == Endpoint::Rdm {
        return refuse(format!(
            "carries {} bytes of immediate data; with datagrams a connection needs 8 for its credit",
            domain.cq_data_size
        ));
    }
    if both & !(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA) != 0 {
        return refuse(format!("asks for mode bits {both:#x}, which this provider does not support"));
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
    if short && (tx.inject_size < Head::SIZE + PAYLOAD || iov < 2) {
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
        framed: short,
        max_message: ep.max_msg_size as u64,
        cm_data: 256,
        delivery: false,
        atomics: false,
        inject: tx.inject_size.min(MAX_INJECT),
        order: tx.msg_order,
    })
}
