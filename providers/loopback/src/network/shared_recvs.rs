//! A shared receive queue as its network sees it.

use dat_kit::{Fifo, MemSpan};
use dat_plugin::SrqAttr;

use super::endpoint::Recv;

/// Receives that several channels share.
#[derive(Debug)]
pub struct SharedRecvs {
    pub device: usize,
    pub attr: SrqAttr,
    pub recvs: Fifo<Recv>,
    /// The low watermark: an event is due once fewer are left. 0 is never.
    pub limit: u32,
}

impl SharedRecvs {
    pub fn front(&self) -> Option<(&Recv, &[MemSpan])> {
        self.recvs.front()
    }

    pub fn pop(&mut self) {
        self.recvs.pop();
    }
}
