//! Heap memory for applications.

use std::alloc::{Layout, alloc_zeroed, dealloc};

const PAGE: usize = 4096;

/// Zeroed memory aligned to a page; freed on drop. Owned by address, so that no reference to it exists while the
/// application and its peers use it.
#[derive(Debug)]
pub struct Heap {
    addr: usize,
    layout: Layout,
}

impl Heap {
    /// At least `len` bytes, a whole number of pages; `None` when there is not enough memory.
    pub fn zeroed(len: usize) -> Option<Heap> {
        let len = len.max(1).checked_next_multiple_of(PAGE)?;
        let layout = Layout::from_size_align(len, PAGE).ok()?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        (!start.is_null()).then(|| Heap { addr: start.expose_provenance(), layout })
    }

    /// Address of the first byte; valid until this is dropped.
    pub fn addr(&self) -> usize {
        self.addr
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated it with this layout, and this owner is dropped once.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(self.addr), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemSpan, copy};

    #[test]
    fn memory_is_zeroed_aligned_and_writable_to_the_end() {
        for len in [0, 1, PAGE, PAGE + 1] {
            let heap = Heap::zeroed(len).unwrap();
            assert!(heap.len() >= len.max(1) && heap.addr().is_multiple_of(PAGE));
            // SAFETY: used before `heap` is dropped, and no reference to the memory is made.
            let memory = [unsafe { MemSpan::new(heap.addr(), heap.len()) }];
            let mut bytes = vec![1; heap.len()];
            assert_eq!(copy::gather(&memory, &mut bytes), heap.len());
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes[heap.len() - 1] = 7;
            assert_eq!(copy::scatter(&bytes, &memory), heap.len());
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert!(Heap::zeroed(usize::MAX).is_none());
        assert!(Heap::zeroed(isize::MAX as usize).is_none());
    }
}
