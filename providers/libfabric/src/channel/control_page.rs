//! The memory that a peer writes the payloads of control messages to.

use std::sync::atomic::{AtomicU64, Ordering};

use dat_plugin::Failure;

use crate::memory::MemoryRegion;
use crate::wire::control::{PAGE, PAYLOAD};

/// The control page of a channel. Only the channel's peer writes to it.
pub struct ControlPage {
    words: Box<[AtomicU64; PAGE / 8]>,
    region: Option<MemoryRegion>,
}

impl ControlPage {
    /// A page. `register` registers it for the peer's writes, with connected endpoints.
    pub fn new(
        register: impl FnOnce(u64, u64) -> Result<Option<MemoryRegion>, Failure>,
    ) -> Result<ControlPage, Failure> {
        let words: Box<[AtomicU64; PAGE / 8]> = Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let region = register(words.as_ptr() as u64, PAGE as u64)?;
        Ok(ControlPage { words, region })
    }

    /// Address and key for the peer.
    pub fn remote(&self) -> (u64, u64) {
        self.region.as_ref().map_or((0, 0), |region| (region.base, region.key()))
    }

    /// A copy of the payload at `slot`.
    pub fn read(&self, slot: usize) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        let words = self.words[slot / 8..].iter();
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        out
    }
}
