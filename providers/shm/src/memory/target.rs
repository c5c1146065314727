//! What requests that the target executes, or pulls, carry in their frames.

use crate::memory::bytes::Span;

/// Memory of the executing side, as a request names it. Nothing in it is to be believed before the keys were asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) rkey: u32,
}

impl Target {
    /// Its size in a frame.
    pub(crate) const BYTES: usize = 24;

    /// # Safety
    /// [`Target::BYTES`] bytes are writable at `to`.
    pub(crate) unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            to.cast::<u64>().write_unaligned(self.addr);
            to.add(8).cast::<u64>().write_unaligned(self.len);
            to.add(16).cast::<u64>().write_unaligned(self.rkey as u64);
        }
    }

    /// # Safety
    /// [`Target::BYTES`] bytes are readable at `from`, which is aligned to 8.
    pub(crate) unsafe fn load(from: *const u8) -> Target {
        // SAFETY: the caller's promise. Volatile, because the peer may write meanwhile: each is read once.
        unsafe {
            Target {
                addr: from.cast::<u64>().read_volatile(),
                len: from.add(8).cast::<u64>().read_volatile(),
                rkey: from.add(16).cast::<u32>().read_volatile(),
            }
        }
    }
}

/// An atomic operation on a word of the executing side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomic {
    pub(crate) target: Target,
    pub(crate) operands: [u64; 2],
    pub(crate) swap: bool,
}

impl Atomic {
    /// Its size in a frame.
    pub(crate) const BYTES: usize = Target::BYTES + 24;

    /// # Safety
    /// [`Atomic::BYTES`] bytes are writable at `to`.
    pub(crate) unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            self.target.store(to);
            let rest = [self.operands[0], self.operands[1], self.swap as u64];
            to.add(Target::BYTES).cast::<[u64; 3]>().write_unaligned(rest);
        }
    }

    /// # Safety
    /// [`Atomic::BYTES`] bytes are readable at `from`, which is aligned to 8.
    pub(crate) unsafe fn load(from: *const u8) -> Atomic {
        // SAFETY: the caller's promise. Read once each, as the peer may write meanwhile.
        unsafe {
            let target = Target::load(from);
            let [operand, swap, is_swap] = from.add(Target::BYTES).cast::<[u64; 3]>().read_volatile();
            Atomic { target, operands: [operand, swap], swap: is_swap != 0 }
        }
    }
}

/// The most segments a message that is pulled has.
const MAX: usize = 16;

/// A part of a message in the peer's memory: its address, and where in memory that can be mapped, if `map` is not 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) map: u64,
    pub(crate) offset: u64,
}

/// Where in the peer's memory a message lies.
#[derive(Clone, Copy)]
pub(crate) struct List {
    parts: [Part; MAX],
    count: usize,
}

impl Part {
    /// Its size in a frame.
    pub(crate) const BYTES: usize = 32;

    /// # Safety
    /// [`Part::BYTES`] bytes are writable at `to`.
    pub(crate) unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u64; 4]>().write_unaligned([self.addr, self.len, self.map, self.offset]) }
    }

    /// # Safety
    /// [`Part::BYTES`] bytes are readable at `from`, which is aligned to 8.
    pub(crate) unsafe fn load(from: *const u8) -> Part {
        // SAFETY: the caller's promise. Read once each, as the peer may write meanwhile.
        let [addr, len, map, offset] = unsafe { from.cast::<[u64; 4]>().read_volatile() };
        Part { addr, len, map, offset }
    }
}

impl List {
    /// Reads the payload of a frame. `None`: it is not a valid list.
    ///
    /// # Safety
    /// `len` bytes are readable at `from`, which is aligned to 8.
    pub(crate) unsafe fn load(from: *const u8, len: usize) -> Option<List> {
        let count = len / Part::BYTES;
        if !len.is_multiple_of(Part::BYTES) || count == 0 || count > MAX {
            return None;
        }
        let mut list = List { parts: [Part::default(); MAX], count };
        for (index, part) in list.parts[..count].iter_mut().enumerate() {
            // SAFETY: the caller's promise: part `index` is inside the `len` bytes, and 32 bytes keep the alignment.
            *part = unsafe { Part::load(from.add(index * Part::BYTES)) };
        }
        list.parts[..count].iter().try_fold(0u64, |sum, part| sum.checked_add(part.len))?;
        Some(list)
    }

    pub(crate) fn total(&self) -> u64 {
        self.parts().iter().map(|part| part.len).sum()
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts[..self.count]
    }
}

/// Segments as the kernel's vectors, cut to `len` bytes.
pub(crate) fn vectors(segs: &[impl Span], mut len: usize) -> ([libc::iovec; MAX], usize) {
    let mut out = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX];
    let mut count = 0;
    for seg in segs.iter().take(MAX) {
        let piece = seg.len().min(len);
        if piece == 0 {
            break;
        }
        out[count] = libc::iovec { iov_base: seg.addr() as *mut libc::c_void, iov_len: piece };
        count += 1;
        len -= piece;
    }
    (out, count)
}
