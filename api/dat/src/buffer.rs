//! Registered memory with one owner at a time: the program, or an operation.

use std::ops::{Deref, DerefMut};

use dat_engine::ExclusiveLmr;
use dat_types::Result;

use crate::Pz;

/// Registered memory that only its owner can reach. No peer has a right to it. While an operation uses it, the endpoint
/// owns it.
///
/// ```compile_fail,E0382
/// # fn example(ep: &dat::Ep, mut buffer: dat::Buffer) -> dat::Result<()> {
/// ep.send(buffer, ..)?;
/// buffer[0] = 1; // the endpoint owns it now
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Buffer {
    lmr: ExclusiveLmr,
    len: usize,
    // Dropped after the registration.
    _pz: Pz,
}

impl Pz {
    /// A buffer of `len` zeroed bytes, owned by the caller alone, for sends, receives, and as the local side of RDMA.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        Buffer::new(self, len)
    }
}

impl Buffer {
    fn new(pz: &Pz, len: usize) -> Result<Buffer> {
        let lmr = pz.0.ia.engine.lmr_create_exclusive(&pz.0.engine, len)?;
        Ok(Buffer { lmr, len, _pz: pz.clone() })
    }

    pub(crate) fn lmr(&self) -> &ExclusiveLmr {
        &self.lmr
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and initialised as long as the region lives. Nothing writes to it while `self`
        // is borrowed: the region gives no key to peers, only `self.lmr` can post it, and `InFlight` keeps a posted
        // buffer until the engine says that its operation completed.
        unsafe { std::slice::from_raw_parts(self.lmr.addr() as *const u8, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: nothing else reaches the memory, for the reasons in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lmr.addr() as *mut u8, self.len) }
    }
}
