//! Registered memory owned by one place at a time: the program's, or an operation's.

use std::ops::{Deref, DerefMut};

use dat_engine::Lmr;
use dat_types::{LmrTriplet, Privileges, Result};

use crate::Pz;

/// Registered memory that only its owner can reach: no peer has a right to it, and while an operation uses it, it is
/// inside the endpoint.
///
/// ```compile_fail,E0382
/// # fn example(ep: &dat::Ep, mut buffer: dat::Buffer) -> dat::Result<()> {
/// ep.send(buffer, ..)?;
/// buffer[0] = 1; // it is the endpoint's now
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Buffer {
    lmr: Lmr,
    len: usize,
    // Dropped after the registration.
    _pz: Pz,
}

impl Buffer {
    pub(crate) fn new(pz: &Pz, len: usize) -> Result<Buffer> {
        let engine = &pz.0.ia.engine;
        // The provider's own memory is for what peers reach; nobody reaches a buffer.
        let memory = engine.heap(len)?;
        let lmr =
            engine.lmr_create(&pz.0.engine, memory, Privileges::LOCAL_READ | Privileges::LOCAL_WRITE)?;
        Ok(Buffer { lmr, len, _pz: pz.clone() })
    }

    pub(crate) fn triplet(&self, offset: u64, len: u32) -> LmrTriplet {
        self.lmr.triplet(offset, len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = self.lmr.free();
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and initialised as long as the region is; no peer has a right to it; local
        // operations on it hold the `Buffer` itself (`Ep` stores it), so none is under way while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.lmr.memory().addr() as *const u8, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lmr.memory().addr() as *mut u8, self.len) }
    }
}
